//! Parses an answer of `gh`: the state of a commit's checks, its pull request, reviews and
//! comments; or the reason why there are none.
//!
//! Its texts are untrusted: they are cleaned and cut here, before any other use.
//!
//! Shape: an answer is read as one struct with the fields of every outcome, for the reason of a
//! watch's stored part.

use std::{sync::Arc, time::Duration};

use journal::time::{Timestamp, duration_millis};
use serde::{Deserialize, Serialize};

use super::reply::{Context, Pull, Reply, Written};
use crate::{
    event::{cut_text, strip_text},
    hash::hash_parts,
};

/// The type of the event with a follow's commit; its payload is a [`Found`](super::Found).
pub const FOLLOWED: &str = "ci.followed";
/// The type of the event with an answer; its payload is an [`Answered`].
pub const ANSWERED: &str = "ci.answered";

/// Most named failed checks of one answer.
const FAILURES_MAX: usize = 20;
/// Most characters of a name: of a check, a branch, a repository, a person.
const NAME_CHARS_MAX: usize = 100;
/// Most characters of the text of a check, a review, a comment or an error.
const TEXT_CHARS_MAX: usize = 240;
/// Longest URL; a longer one is omitted, because a part of it is useless.
const URL_BYTES_MAX: usize = 300;
/// Calls per hour that are reserved for the user.
const LEFT_ALONE: u64 = 100;
/// The exit code of `gh` without a login.
///
/// Source: `gh help exit-codes`.
const NOT_LOGGED_IN: i32 = 4;
/// Messages of `gh` in a repository without a known host.
///
/// Source: `gh` 2.40 to 2.83: `none of the git remotes configured for this repository point to a
/// known GitHub host`, `no git remotes found`.
const NOT_OF_GITHUB: [&str; 2] = ["none of the git remotes", "no git remotes"];

/// The result of an ended process.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
}

/// The outcome of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The state of the checks.
    Checks(Checks),
    /// GitHub does not know the commit, or the repository.
    Unknown,
    /// Rate limit exceeded.
    Limited {
        /// The requested wait, if the answer has one.
        wait_seconds: Option<u64>,
        /// Whether it is certainly a rate limit; otherwise it may be a permanent refusal.
        is_certain: bool,
    },
    /// `gh` is not logged in, or has no access to this repository.
    Unauthorised {
        /// Its message.
        message: String,
    },
    /// `gh` is not installed.
    NoProgram,
    /// The repository is not on GitHub.
    NotOfGithub,
    /// There was no valid answer.
    Failed {
        /// The reason.
        message: String,
    },
}

/// An answer; the payload of an [`ANSWERED`] event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "StoredAnswer")]
pub struct Answered {
    /// Its follow.
    pub follow: Arc<str>,
    /// The number of the call, from 1.
    pub call: u32,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// The state of a commit's checks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Checks {
    /// `OWNER/NAME`.
    pub repo: String,
    /// URL of the commit or its pull request.
    pub url: Option<String>,
    /// Number of passed checks.
    pub passed: u32,
    /// Number of failed ones.
    pub failed: u32,
    /// Number of running or queued ones.
    pub pending: u32,
    /// Number of skipped ones.
    pub skipped: u32,
    /// Failed ones that were not yet reported.
    pub failures: Vec<Failure>,
    /// The branch's position.
    pub head: Head,
    /// Its pull request.
    pub pr: Option<Pr>,
    /// Reviews and comments that were not yet reported; oldest first.
    pub remarks: Vec<Remark>,
    /// Wait before the next call, so that some calls are left for the user.
    pub wait_seconds: Option<u64>,
}

/// A check that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Its name.
    pub check: String,
    /// Its summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// URL of the details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// When it ended, at GitHub: one that is run again may have the same URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl Failure {
    /// What identifies it among the failed checks of a commit: its name, its URL, and when it ended.
    pub(super) fn identity(&self) -> [&str; 3] {
        [&self.check, self.url.as_deref().unwrap_or_default(), self.at.as_deref().unwrap_or_default()]
    }

    /// A hash of its identity.
    pub(super) fn key(&self) -> u64 {
        hash_parts(&self.identity())
    }
}

/// The position of a remote branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Head {
    /// At the pushed commit.
    Here,
    /// At another one.
    Elsewhere,
    /// The branch does not exist.
    #[default]
    Unknown,
}

/// A pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pr {
    /// Its number.
    pub number: u64,
    /// Whether it is open.
    pub state: PrState,
}

/// The state of a pull request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrState {
    /// It is open.
    Open,
    /// It was merged.
    Merged,
    /// It was closed without a merge.
    Closed,
}

/// A review or a comment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remark {
    /// Its id at GitHub.
    pub id: String,
    /// Its time at GitHub: RFC 3339 in UTC.
    pub at: String,
    /// Its author.
    pub author: String,
    /// The verdict of a review, such as `changes_requested`; absent for a comment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// Its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Untrusted text, as one line.
pub(super) fn line(text: &str, chars_max: usize) -> String {
    let words = strip_text(text).split_whitespace().collect::<Vec<_>>().join(" ");
    cut_text(words.into(), chars_max).into_owned()
}

fn short_text(text: Option<&str>) -> Option<String> {
    text.map(|text| line(text, TEXT_CHARS_MAX)).filter(|text| !text.is_empty())
}

pub(super) fn name(text: &str) -> String {
    line(text, NAME_CHARS_MAX)
}

fn url(text: Option<&str>) -> Option<String> {
    let is_address = |url: &&str| {
        let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic() && !b"<>\"`".contains(&byte));
        url.len() <= URL_BYTES_MAX && is_plain && (url.starts_with("https://") || url.starts_with("http://"))
    };
    text.filter(is_address).map(str::to_owned)
}

impl Outcome {
    /// Parses the output of `gh api -i graphql` for `commit` and `branch`.
    pub fn read(output: &Output, commit: &str, branch: Option<&str>, now: Timestamp) -> Self {
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        let failed = |text: &str| short_text(Some(text)).unwrap_or_else(|| "it printed nothing".to_owned());
        let Some(answer) = Http::split(&stdout) else {
            let message = failed(stderr.lines().next().unwrap_or_default());
            return match output.code {
                Some(NOT_LOGGED_IN) => Self::Unauthorised { message },
                _ if NOT_OF_GITHUB.iter().any(|words| message.contains(words)) => Self::NotOfGithub,
                _ => Self::Failed { message },
            };
        };
        match answer.status {
            401 => Self::Unauthorised { message: "the login is not valid".to_owned() },
            403 | 429 => answer.refusal(now),
            404 => Self::Unknown,
            200..300 => match serde_json::from_str::<Reply>(answer.body) {
                Ok(reply) => read_reply(reply, commit, branch, now),
                Err(error) => {
                    Self::Failed { message: failed(&format!("the answer cannot be parsed: {error}")) }
                }
            },
            status => Self::Failed { message: format!("HTTP status {status}") },
        }
    }
}

/// An answer with its HTTP head, as printed by `gh api -i`.
struct Http<'a> {
    status: u16,
    head: &'a str,
    body: &'a str,
}

impl<'a> Http<'a> {
    fn split(text: &'a str) -> Option<Self> {
        let (head, body) = text
            .split_once("\r\n\r\n")
            .filter(|(head, _)| !head.contains("\n\n"))
            .or_else(|| text.split_once("\n\n"))
            .unwrap_or((text, ""));
        let mut words = head.strip_prefix("HTTP/")?.split_whitespace().skip(1);
        Some(Self { status: words.next()?.parse().ok()?, head, body })
    }

    fn header(&self, name: &str) -> Option<&'a str> {
        let mut fields = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        fields.find(|(field, _)| field.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn refusal(&self, now: Timestamp) -> Outcome {
        let number = |name: &str| self.header(name).and_then(|text| text.parse::<u64>().ok());
        let is_used_up = number("x-ratelimit-remaining") == Some(0);
        let reset = number("x-ratelimit-reset").filter(|_| is_used_up);
        let until_reset = reset.map(|at| at.saturating_sub(now.as_millis() / 1_000));
        let wait_seconds = number("retry-after").into_iter().chain(until_reset).max();
        let says_so = self.body.to_ascii_lowercase().contains("rate limit");
        Outcome::Limited {
            is_certain: wait_seconds.is_some() || is_used_up || self.status == 429 || says_so,
            wait_seconds,
        }
    }
}

fn read_reply(reply: Reply, commit: &str, branch: Option<&str>, now: Timestamp) -> Outcome {
    let has_error = |kinds: &[&str]| {
        reply.errors.iter().any(|error| error.kind.as_deref().is_some_and(|kind| kinds.contains(&kind)))
    };
    let limit = reply.data.as_ref().and_then(|data| data.rate_limit.as_ref());
    let until_reset = limit.and_then(|limit| limit.reset_at.as_deref()?.parse::<Timestamp>().ok());
    let until_reset = until_reset.map(|at| duration_millis(at.since(now)).div_ceil(1_000));
    if has_error(&["RATE_LIMITED"]) {
        return Outcome::Limited { wait_seconds: until_reset, is_certain: true };
    }
    let is_nearly_used_up = limit.is_some_and(|limit| limit.remaining.is_some_and(|left| left <= LEFT_ALONE));
    let Some(repository) = reply.data.and_then(|data| data.repository) else {
        if has_error(&["NOT_FOUND"]) {
            return Outcome::Unknown;
        }
        let message = short_text(reply.errors.first().and_then(|error| error.message.as_deref()));
        let message = message.unwrap_or_else(|| "the answer names no repository".to_owned());
        let is_refused = has_error(&["FORBIDDEN", "INSUFFICIENT_SCOPES"]);
        return if is_refused { Outcome::Unauthorised { message } } else { Outcome::Failed { message } };
    };
    let head = repository.branch.and_then(|branch| branch.target).map(|target| target.oid);
    let Some(object) = repository.object else { return Outcome::Unknown };
    let mut checks = Checks {
        repo: name(&repository.name_with_owner.unwrap_or_default()),
        head: head.map_or(Head::Unknown, |head| if head == commit { Head::Here } else { Head::Elsewhere }),
        url: url(object.url.as_deref()),
        wait_seconds: until_reset.filter(|_| is_nearly_used_up),
        ..Checks::default()
    };
    if let Some(rollup) = object.status_check_rollup {
        for context in &rollup.contexts.nodes {
            checks.add(context);
        }
        let is_open = matches!(rollup.state.as_deref(), Some("PENDING" | "EXPECTED"));
        if is_open && checks.pending == 0 {
            // Some checks did not fit into the answer.
            checks.pending = 1;
        }
    }
    // Jobs that wait for others are not checks yet, but their run is in progress.
    let of_runs = object.check_suites.nodes.iter().filter(|suite| suite.workflow_run.is_some());
    let has_open_run =
        of_runs.filter_map(|suite| suite.status.as_deref()).any(|status| status != "COMPLETED");
    if has_open_run && checks.pending == 0 {
        checks.pending = 1;
    }
    let is_own = |pull: &Pull| {
        pull.head_ref_oid.as_deref() == Some(commit)
            && branch.is_none_or(|branch| pull.head_ref_name.as_deref() == Some(branch))
    };
    if let Some(pull) = object.associated_pull_requests.nodes.into_iter().find(is_own) {
        checks.add_pull(pull);
    }
    Outcome::Checks(checks)
}

/// The end of a check.
enum End {
    Passed,
    Failed,
    Skipped,
}

/// The end of a check run or a commit status; `None` while it is in progress.
fn read_end(context: &Context) -> Option<End> {
    let is_of_run = context.state.is_none();
    if is_of_run && context.status.as_deref() != Some("COMPLETED") {
        return None;
    }
    Some(match context.state.as_deref().or(context.conclusion.as_deref()).unwrap_or_default() {
        "SUCCESS" => End::Passed,
        "NEUTRAL" | "SKIPPED" => End::Skipped,
        "PENDING" | "EXPECTED" | "STALE" | "" => return None,
        _ => End::Failed,
    })
}

impl Checks {
    fn add(&mut self, context: &Context) {
        match read_end(context) {
            None => self.pending += 1,
            Some(End::Passed) => self.passed += 1,
            Some(End::Skipped) => self.skipped += 1,
            Some(End::Failed) => {
                self.failed += 1;
                if self.failures.len() < FAILURES_MAX {
                    self.failures.push(failure(context));
                }
            }
        }
    }

    fn add_pull(&mut self, pull: Pull) {
        let state = match pull.state.as_deref() {
            Some("MERGED") => PrState::Merged,
            Some("CLOSED") => PrState::Closed,
            _ => PrState::Open,
        };
        self.pr = Some(Pr { number: pull.number, state });
        self.url = url(pull.url.as_deref()).or(self.url.take());
        let written = pull.reviews.nodes.into_iter().chain(pull.comments.nodes);
        // Remarks of the user or the agent are not reported to them.
        self.remarks = written.filter(|written| !written.viewer_did_author).filter_map(remark).collect();
        self.remarks.sort_by(|one, other| one.at.cmp(&other.at));
    }

    /// Number of checks.
    pub const fn total(&self) -> u32 {
        self.passed + self.failed + self.pending + self.skipped
    }
}

fn failure(context: &Context) -> Failure {
    let conclusion = context.conclusion.as_deref().filter(|conclusion| *conclusion != "FAILURE");
    let conclusion = conclusion.map(|conclusion| conclusion.to_ascii_lowercase().replace('_', " "));
    let title = short_text(context.title.as_deref().or(context.description.as_deref()));
    Failure {
        check: name(context.name.as_deref().or(context.context.as_deref()).unwrap_or("a check")),
        summary: title.or(conclusion),
        url: url(context.details_url.as_deref().or(context.target_url.as_deref())),
        at: short_text(context.completed_at.as_deref().or(context.created_at.as_deref())),
    }
}

fn remark(written: Written) -> Option<Remark> {
    let state = written.state.map(|state| name(&state).to_ascii_lowercase());
    // A review that is not yet submitted.
    if state.as_deref() == Some("pending") {
        return None;
    }
    let inline = written.comments.map_or(0, |comments| comments.total_count);
    let inline = (inline > 0).then(|| format!("{inline} comments in the code"));
    Some(Remark {
        id: name(&written.id),
        at: name(&written.submitted_at.or(written.created_at)?),
        author: name(&written.author.map_or_else(|| "ghost".to_owned(), |author| author.login)),
        state,
        body: short_text(written.body_text.as_deref()).or(inline),
        url: url(written.url.as_deref()),
    })
}

impl Outcome {
    /// The time without calls that the outcome requires.
    pub(super) fn wait(&self) -> Option<Duration> {
        match self {
            Self::Limited { wait_seconds, .. } | Self::Checks(Checks { wait_seconds, .. }) => {
                wait_seconds.map(Duration::from_secs)
            }
            Self::Unknown
            | Self::Unauthorised { .. }
            | Self::NoProgram
            | Self::NotOfGithub
            | Self::Failed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;

#[derive(Deserialize)]
struct StoredAnswer {
    follow: Arc<str>,
    call: u32,
    outcome: Kind,
    message: Option<String>,
    is_certain: Option<bool>,
    wait_seconds: Option<u64>,
    #[serde(default)]
    repo: String,
    url: Option<String>,
    #[serde(default)]
    passed: u32,
    #[serde(default)]
    failed: u32,
    #[serde(default)]
    pending: u32,
    #[serde(default)]
    skipped: u32,
    #[serde(default)]
    failures: Vec<Failure>,
    #[serde(default)]
    head: Head,
    pr: Option<Pr>,
    #[serde(default)]
    remarks: Vec<Remark>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Checks,
    Unknown,
    Limited,
    Unauthorised,
    NoProgram,
    NotOfGithub,
    Failed,
}

/// An answer lacks a field that its outcome has.
#[derive(Debug, thiserror::Error)]
#[error("an answer lacks a field of its outcome")]
struct Incomplete;

impl TryFrom<StoredAnswer> for Answered {
    type Error = Incomplete;

    fn try_from(mut answer: StoredAnswer) -> Result<Self, Incomplete> {
        let (follow, call) = (std::mem::take(&mut answer.follow), answer.call);
        let outcome = answer.outcome().ok_or(Incomplete)?;
        Ok(Self { follow, call, outcome })
    }
}

impl StoredAnswer {
    fn outcome(self) -> Option<Outcome> {
        Some(match self.outcome {
            Kind::Checks => Outcome::Checks(Checks {
                repo: self.repo,
                url: self.url,
                passed: self.passed,
                failed: self.failed,
                pending: self.pending,
                skipped: self.skipped,
                failures: self.failures,
                head: self.head,
                pr: self.pr,
                remarks: self.remarks,
                wait_seconds: self.wait_seconds,
            }),
            Kind::Unknown => Outcome::Unknown,
            Kind::Limited => {
                Outcome::Limited { wait_seconds: self.wait_seconds, is_certain: self.is_certain? }
            }
            Kind::Unauthorised => Outcome::Unauthorised { message: self.message? },
            Kind::NoProgram => Outcome::NoProgram,
            Kind::NotOfGithub => Outcome::NotOfGithub,
            Kind::Failed => Outcome::Failed { message: self.message? },
        })
    }
}
