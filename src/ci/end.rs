//! How a follow ends.

/// The end of a follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// No check is in progress any more.
    Run {
        /// Number of passed checks.
        passed: u32,
        /// Number of failed ones.
        failed: u32,
        /// Number of skipped ones.
        skipped: u32,
    },
    /// The commit gets no checks.
    NoChecks,
    /// The limit of calls or of time was reached.
    StillPending,
    /// The branch has moved to another commit.
    Superseded,
    /// The pull request was merged.
    Merged,
    /// The pull request was closed.
    Closed,
    /// No access.
    Unauthorised(String),
    /// `gh` is not installed.
    NoProgram,
    /// The repository is not on GitHub.
    NotOfGithub,
    /// The commit does not exist, locally or at GitHub.
    NoCommit,
    /// There was no valid answer.
    Failed(String),
}
