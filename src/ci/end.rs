//! How a follow ends.

use sha2::{Digest, Sha256};

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

/// The first 64 bits of a SHA-256 over the parts.
pub(super) fn hash(parts: &[&str]) -> u64 {
    let hash = parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part).chain_update([0]));
    u64::from_be_bytes(*hash.finalize().first_chunk().expect("32 bytes begin with 8"))
}
