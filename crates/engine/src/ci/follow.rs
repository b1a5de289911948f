//! One followed push: its queries, its state, and its end; and the schedule of calls: the gaps
//! between those of one push, and the rate of all.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Checks, Head, Outcome, Output, PrState, Remote, reply};
use crate::{event::SessionId, hash::hash_parts, sorted::SortedSet};

/// Up to this age an end must be answered twice, because checks appear one after another at first.
const SETTLED_AFTER: Duration = Duration::from_secs(60);
/// Age from which a commit without checks counts as one that will not get any.
const NO_CHECKS_AFTER: Duration = Duration::from_secs(2 * 60);
const FAILURES_MAX: u32 = 10;
/// Most consecutive answers with an unknown commit, or with a refusal that mentions no limit.
const REFUSALS_MAX: u32 = 3;

/// A followed push.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Follow {
    /// Its id, also of the event that ends it.
    pub id: Arc<str>,
    /// The session that pushed.
    pub session: Option<SessionId>,
    /// The session's working folder.
    pub workspace: Option<Arc<str>>,
    /// The folder of the push.
    pub folder: Arc<str>,
    /// The pushed ref, by git's local name; the checked-out one if absent.
    pub from: Option<String>,
    /// The remote branch; the checked-out one if absent.
    pub branch: Option<String>,
    /// The commit, once git has returned it.
    pub commit: Option<String>,
    /// The top folder of the repository.
    pub(super) top: Option<String>,
    /// The repository at GitHub that its remotes name; known with the commit.
    pub(super) remote: Option<Remote>,
    pub(super) began: Timestamp,
    /// When the next call is due.
    pub(super) due: Timestamp,
    /// Number of answers.
    pub calls: u32,
    /// Whether the requester is also notified of the reason if there is no result.
    pub(super) is_asked: bool,
    /// Whether it is followed even if the checks of its commit were already followed until they
    /// ended.
    pub(super) may_repeat: bool,
    /// Identifies its owner in ids, also after the session changed.
    pub(super) owner: u64,
    /// `OWNER/NAME` at GitHub.
    pub(super) repo: Option<String>,
    /// URL of its commit or its pull request.
    pub(super) url: Option<String>,
    /// The number of its pull request.
    pub(super) pr: Option<u64>,
    /// Whether the branch was seen at the commit.
    pub(super) was_at_head: bool,
    /// Whether the pull request was seen open.
    pub(super) was_open: bool,
    /// The reported failed checks, by [`Failure::key`](super::Failure::key).
    pub(super) failed: SortedSet<u64>,
    /// The names of the first of them.
    pub(super) names: Vec<String>,
    /// Numbers of passed, failed and skipped checks when none was in progress.
    pub(super) settled: Option<[u32; 3]>,
    /// Number of pending checks in the last answer.
    pub(super) pending: u32,
    pub(super) failures: u32,
    pub(super) refusals: u32,
}

/// The commit of a follow; the payload of a [`FOLLOWED`](super::FOLLOWED) event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Its follow.
    pub follow: Arc<str>,
    /// The commit; `None` if git does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The checked-out branch, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The top folder of the repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top: Option<String>,
    /// The repository at GitHub, if a remote names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
    /// Why git could not be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

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
    /// The commit will not get checks.
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
    /// The folder is in no repository.
    NoRepository,
    /// The commit does not exist, locally or at GitHub.
    NoCommit,
    /// There was no valid answer.
    Failed(String),
}

impl Follow {
    /// The arguments of `gh` for its query, and the repository that it is about; `None` before they
    /// are known.
    pub fn arguments(&self) -> Option<(Vec<String>, &Remote)> {
        let (commit, remote) = (self.commit.as_deref()?, self.remote.as_ref()?);
        let Remote { host, owner, name } = remote;
        let branch = self.branch.as_deref().unwrap_or("HEAD");
        let fields = [
            format!("owner={owner}"),
            format!("name={name}"),
            format!("oid={commit}"),
            format!("ref=refs/heads/{branch}"),
            format!("query={}", reply::QUERY),
        ];
        let command = ["api", "-i", "graphql", "--hostname", host].map(str::to_owned);
        let fields = fields.into_iter().flat_map(|field| ["-f".to_owned(), field]);
        Some((command.into_iter().chain(fields).collect(), remote))
    }

    /// The arguments of `git` that print its commit and the checked-out branch, one per line.
    pub fn git_arguments(&self) -> Vec<String> {
        commit_arguments(self.from.as_deref())
    }

    /// Parses git's output as a [`Found`] in the repository at `top`.
    pub fn read_found(&self, output: &Output, top: Option<String>, remote: Option<Remote>) -> Found {
        let text = String::from_utf8_lossy(&output.stdout);
        let branch = text.lines().nth(1).filter(|branch| *branch != "HEAD").map(str::to_owned);
        let commit = read_commit(output);
        Found { follow: Arc::clone(&self.id), commit, branch, top, remote, error: None }
    }

    pub(super) fn seen_key(&self, repo: &str, pr: u64) -> String {
        format!("{:016x}:{repo}#{pr}", self.owner)
    }

    pub(super) fn branch_key(&self) -> String {
        let [repo, branch] = [&self.repo, &self.branch].map(|name| name.as_deref().unwrap_or_default());
        format!("{:016x}:{repo}:{branch}", self.owner)
    }

    /// Whether it belongs to the session, or without one to the folder.
    pub(super) fn is_of(&self, session: Option<&SessionId>, workspace: Option<&str>) -> bool {
        match session {
            Some(session) => self.session.as_ref() == Some(session),
            None => self.workspace.as_deref() == workspace,
        }
    }

    /// Whether it is about `reference`: a branch, or a prefix of a commit; always true without one.
    pub(super) fn is_about(&self, reference: Option<&str>) -> bool {
        let Some(reference) = reference.filter(|reference| *reference != "HEAD") else { return true };
        let is_commit = |commit: &String| reference.len() >= 7 && commit.starts_with(reference);
        self.branch.as_deref() == Some(reference) || self.commit.as_ref().is_some_and(is_commit)
    }
}

/// The arguments of `git` that print the commit of a ref, else of the checkout, and the checked-out
/// branch, one per line.
pub fn commit_arguments(reference: Option<&str>) -> Vec<String> {
    let commit = format!("{}^{{commit}}", reference.unwrap_or("HEAD"));
    ["rev-parse", &commit, "--abbrev-ref", "HEAD"].map(str::to_owned).to_vec()
}

/// The commit in the output of `git`; `None` if it knows none.
pub fn read_commit(output: &Output) -> Option<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let is_commit = |commit: &&str| {
        matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    text.lines().next().filter(is_commit).filter(|_| output.code == Some(0)).map(str::to_owned)
}

impl Follow {
    pub(super) fn new(id: Arc<str>, session: Option<SessionId>, folder: &str, now: Timestamp) -> Self {
        Self {
            owner: hash_parts(&[session.as_ref().map_or(folder, SessionId::as_str)]),
            id,
            session,
            folder: folder.into(),
            began: now,
            due: now,
            ..Self::default()
        }
    }

    /// Its end after an answer about its checks, if it ends.
    pub(super) fn end_with(&mut self, checks: &Checks, now: Timestamp) -> Option<End> {
        let age = now.since(self.began);
        let was_at_head = self.was_at_head;
        self.was_at_head |= checks.head == Head::Here;
        // Until the branch was seen at its commit, it may be a fork's branch, or one of the same
        // name elsewhere.
        if was_at_head && checks.head == Head::Elsewhere {
            return Some(End::Superseded);
        }
        let settled = Some([checks.passed, checks.failed, checks.skipped]);
        let has_ended = checks.total() > 0 && checks.pending == 0;
        let is_confirmed = age >= SETTLED_AFTER || self.settled == settled;
        self.settled = settled.filter(|_| has_ended);
        if has_ended && is_confirmed {
            return Some(End::Run { passed: checks.passed, failed: checks.failed, skipped: checks.skipped });
        }
        let was_open = self.was_open;
        match checks.pr.as_ref().map(|pr| pr.state) {
            Some(PrState::Open) => self.was_open = true,
            Some(PrState::Merged) if was_open => return Some(End::Merged),
            Some(PrState::Closed) if was_open => return Some(End::Closed),
            Some(PrState::Merged | PrState::Closed) | None => {}
        }
        (checks.total() == 0 && age >= NO_CHECKS_AFTER).then_some(End::NoChecks)
    }

    /// Its end after an answer without checks, if it ends.
    pub(super) fn end_without(&mut self, outcome: Outcome) -> Option<End> {
        match outcome {
            Outcome::Unauthorised { message } => Some(End::Unauthorised(message)),
            Outcome::NoProgram => Some(End::NoProgram),
            Outcome::NotOfGithub => Some(End::NotOfGithub),
            Outcome::Unknown => {
                self.refusals += 1;
                (self.refusals >= REFUSALS_MAX).then_some(End::NoCommit)
            }
            Outcome::Limited { is_certain, .. } => {
                self.refusals = if is_certain { 0 } else { self.refusals + 1 };
                let message = || "it refuses to answer".to_owned();
                (self.refusals >= REFUSALS_MAX).then(|| End::Unauthorised(message()))
            }
            Outcome::Failed { message } => {
                self.failures += 1;
                (self.failures >= FAILURES_MAX).then_some(End::Failed(message))
            }
            Outcome::Checks(_) => None,
        }
    }
}

/// Most calls for one push.
pub(super) const CALLS_MAX: u32 = 60;
/// How long a push is followed.
pub(super) const FOLLOWED_FOR: Duration = Duration::from_secs(6 * 60 * 60);
/// The first wait after exceeding a rate limit; doubled after each further one.
const BACK_OFF_MIN: Duration = Duration::from_secs(60);
/// Longest wait of that kind, unless the answer requests a longer one.
const BACK_OFF_MAX: Duration = Duration::from_secs(60 * 60);
/// Longest requested wait that is honored; no limit of GitHub lasts longer than an hour.
const ASKED_MAX: Duration = Duration::from_secs(2 * 60 * 60);
const HOUR: Duration = Duration::from_secs(60 * 60);
/// Age of a push up to which a gap between two calls applies, and the gap, in seconds.
const GAPS: [(u64, u64); 4] = [(30, 10), (15 * 60, 30), (60 * 60, 60), (u64::MAX, 5 * 60)];

/// The gap after a call at which the push is `age` old.
pub(super) fn gap(age: Duration) -> Duration {
    let gap = GAPS.iter().find(|(until, _)| age.as_secs() < *until).map_or(5 * 60, |(_, gap)| *gap);
    Duration::from_secs(gap)
}

/// The calls of the last hour, and pauses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Gate {
    /// The calls, oldest first.
    calls: VecDeque<Timestamp>,
    /// End of the pause.
    held_until: Timestamp,
    /// Duration of the last back-off; zero after a successful answer.
    back_off: Duration,
}

impl Gate {
    /// Records an answered call.
    pub(super) fn note_call(&mut self, now: Timestamp) {
        self.calls.push_back(now);
        while self.calls.front().is_some_and(|at| now.since(*at) >= HOUR) {
            self.calls.pop_front();
        }
    }

    /// Records a successful answer.
    pub(super) fn note_answer(&mut self) {
        self.back_off = Duration::ZERO;
    }

    /// Records a rate limit, with the requested wait.
    pub(super) fn hold(&mut self, asked: Option<Duration>, now: Timestamp) {
        self.back_off = (self.back_off * 2).clamp(BACK_OFF_MIN, BACK_OFF_MAX);
        self.wait(self.back_off.max(asked.unwrap_or_default()), now);
    }

    pub(super) fn wait(&mut self, wait: Duration, now: Timestamp) {
        self.held_until = self.held_until.max(now + wait.min(ASKED_MAX));
    }

    /// Earliest time of the next call, with at most `per_hour` an hour.
    pub(super) fn not_before(&self, per_hour: u32) -> Timestamp {
        let per_hour = usize::try_from(per_hour).unwrap_or(usize::MAX);
        let oldest = self.calls.len().checked_sub(per_hour).and_then(|index| self.calls.get(index));
        oldest.map_or(self.held_until, |oldest| self.held_until.max(*oldest + HOUR))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn poll_gaps_grow_with_the_push_age() {
        let (mut age, mut times) = (0, Vec::new());
        while age < FOLLOWED_FOR.as_secs() {
            age += gap(Duration::from_secs(age)).as_secs();
            times.push(age);
        }
        assert_eq!(times[..6], [10, 20, 30, 60, 90, 120]);
        let minutes =
            |from: u64, to: u64| times.iter().filter(|age| (from..to).contains(&(**age / 60))).count();
        assert_eq!((minutes(5, 6), minutes(20, 30), minutes(60, 90)), (2, 10, 6));
    }

    #[test]
    fn hourly_cap_and_refusals_delay_all_calls() {
        let mut gate = Gate::default();
        for seconds in [10, 20, 30] {
            gate.note_call(at(seconds));
        }
        assert_eq!(
            [4, 3, 2, 1].map(|per_hour| gate.not_before(per_hour)),
            [at(0), at(3_610), at(3_620), at(3_630)]
        );
        gate.note_call(at(3_615));
        assert_eq!(gate.not_before(3), at(3_620), "the first one is more than an hour ago");
        let mut held = |asked: Option<u64>, now: u64| {
            gate.hold(asked.map(Duration::from_secs), at(now));
            gate.not_before(10).since(at(now)).as_secs()
        };
        assert_eq!([held(None, 4_000), held(None, 4_100), held(Some(900), 5_000)], [60, 120, 900]);
        assert_eq!([held(None, 9_000), held(Some(u64::MAX), 20_000)], [480, 7_200]);
        gate.note_answer();
        gate.hold(None, at(50_000));
        assert_eq!(gate.not_before(10), at(50_060));
    }
}
