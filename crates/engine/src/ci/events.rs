//! The events of a follow: its commit, its answers, and the notifications of a session.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{
    ANSWERED, Answered, FOLLOWED, Failure, Follow, Found, Outcome, Remark,
    answer::{line, name},
    follow::End,
};
use journal::time::{Timestamp, short_duration};

use crate::{
    event::{Event, EventRef, Provenance, Severity, catalogue::ends_checks},
    hash::hash_parts,
    words::counted,
};

const CHECK_PASSED: &str = "ci.check.passed";
const CHECK_FAILED: &str = "ci.check.failed";
const RUN_COMPLETED: &str = "ci.run.completed";
const RUN_FAILED: &str = "ci.run.failed";
const ENDED: &str = "ci.follow.ended";
const REVIEWED: &str = "pr.review.submitted";
const COMMENTED: &str = "pr.comment.created";
/// Displayed characters of a commit.
const COMMIT_CHARS: usize = 9;
/// Most displayed characters of an error.
const ERROR_CHARS_MAX: usize = 120;

/// Whether an event is about the state or end of a push's checks.
pub(super) fn is_of_checks(event: &EventRef<'_>) -> bool {
    ends_checks(event) || event.is_own() && event.event_type == CHECK_FAILED
}

impl End {
    /// Its name, for `reason`.
    const fn reason(&self) -> &'static str {
        match self {
            Self::Run { .. } => "ended",
            Self::NoChecks => "no_checks",
            Self::StillPending => "still_pending",
            Self::Superseded => "superseded",
            Self::Merged => "merged",
            Self::Closed => "closed",
            Self::Unauthorised(_) => "not_authorised",
            Self::NoProgram => "no_gh",
            Self::NotOfGithub => "not_github",
            Self::NoRepository => "no_repository",
            Self::NoCommit => "no_commit",
            Self::Failed(_) => "no_answer",
        }
    }

    /// Whether a session is not notified of it, unless it requested the follow.
    const fn is_quiet(&self) -> bool {
        match self {
            Self::Run { .. } | Self::StillPending | Self::Merged | Self::Closed => false,
            Self::NoChecks
            | Self::Superseded
            | Self::Unauthorised(_)
            | Self::NoProgram
            | Self::NotOfGithub
            | Self::NoRepository
            | Self::NoCommit
            | Self::Failed(_) => true,
        }
    }

    fn summary(&self, follow: &Follow, now: Timestamp) -> String {
        let error = |message: &str| line(message, ERROR_CHARS_MAX);
        match self {
            Self::Run { passed, failed: 0, skipped: 0 } => format!("{} passed", counted(*passed, "check")),
            Self::Run { passed, failed: 0, skipped } => {
                format!("{} passed, {skipped} skipped", counted(*passed, "check"))
            }
            Self::Run { passed, failed, .. } => {
                let names = follow.names.join(", ");
                let more = if u64::from(*failed) > follow.names.len() as u64 { ", .." } else { "" };
                let names = if names.is_empty() { names } else { format!(": {names}{more}") };
                format!("{failed} of {} failed{names}", counted(passed + failed, "check"))
            }
            Self::NoChecks => "no checks".to_owned(),
            Self::StillPending => {
                let after = short_duration(now.since(follow.began));
                format!("{} pending after {after}; no longer polled", counted(follow.pending, "check"))
            }
            Self::Superseded => "the branch is at another commit".to_owned(),
            Self::Merged => "the pull request was merged before its checks ended".to_owned(),
            Self::Closed => "the pull request was closed before its checks ended".to_owned(),
            Self::Unauthorised(message) => format!("gh has no access: {}", error(message)),
            Self::NoProgram => "gh is not installed".to_owned(),
            Self::NotOfGithub => "gh knows no GitHub repository here".to_owned(),
            Self::NoRepository => "there is no git repository".to_owned(),
            Self::NoCommit => match &follow.from {
                Some(from) => format!("unknown commit `{}`", name(from)),
                None => "unknown commit".to_owned(),
            },
            Self::Failed(message) => format!("gh got no answer: {}", error(message)),
        }
    }
}

impl Follow {
    fn event(
        &self,
        event_type: &str,
        id: String,
        severity: Severity,
        payload: Value,
        now: Timestamp,
    ) -> Event {
        Event {
            session: self.session.clone(),
            workspace: self.workspace.clone(),
            ..Event::own(event_type, id, severity, payload, now)
        }
    }

    /// The event with its commit.
    pub fn found_event(&self, found: &Found, now: Timestamp) -> Event {
        let payload = serde_json::to_value(found).expect("texts always serialize");
        self.event(FOLLOWED, format!("{}:found", self.id), Severity::Debug, payload, now)
    }

    /// The event for the answer to its next call.
    pub(super) fn answered_event(&self, outcome: Outcome, now: Timestamp) -> Event {
        let call = self.calls.saturating_add(1);
        let answered = Answered { follow: Arc::clone(&self.id), call, outcome };
        let payload = serde_json::to_value(answered).expect("texts and numbers always serialize");
        self.event(ANSWERED, format!("{}:{call}", self.id), Severity::Debug, payload, now)
    }

    /// Fields of all its events.
    fn subject(&self) -> Map<String, Value> {
        let commit =
            self.commit.as_deref().map(|commit| commit.chars().take(COMMIT_CHARS).collect::<String>());
        let fields = [
            ("repo", self.repo.clone().map(Value::from)),
            ("branch", self.branch.as_deref().map(|branch| Value::from(name(branch)))),
            // A number that is added later would change the condition's identity.
            ("pr", self.pr.filter(|_| self.branch.is_none()).map(Value::from)),
            ("commit", commit.map(Value::from)),
            ("pushed_at", Some(json!(self.began.to_string()))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    fn payload_with(&self, fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
        let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Value::Object(self.subject().into_iter().chain(fields).collect())
    }

    /// The event for one failed check.
    pub(super) fn failed_event(&self, failure: &Failure, now: Timestamp) -> Event {
        let Failure { check, summary, url, at } = failure;
        let commit = self.commit.as_deref().unwrap_or_default();
        let [named, link, ended] = failure.identity();
        let id = hash_parts(&[&format!("{:016x}", self.owner), commit, named, link, ended]);
        let payload = self.payload_with([
            ("check", Some(json!(check))),
            ("summary", summary.clone().map(Value::from)),
            ("url", url.clone().map(Value::from)),
            ("at", at.clone().map(Value::from)),
        ]);
        self.event(CHECK_FAILED, format!("ci-failed-{id:016x}"), Severity::Error, payload, now)
    }

    /// A check that failed in an earlier run of the branch and passes again. The event resolves the
    /// failure, and is not delivered itself.
    pub(super) fn passed_event(&self, check: &str, now: Timestamp) -> Event {
        let id = format!("{}:passed:{:016x}", self.id, hash_parts(&[check]));
        self.event(CHECK_PASSED, id, Severity::Debug, self.payload_with([("check", Some(json!(check)))]), now)
    }

    /// The event for a review or a comment. It is untrusted, because strangers write its text.
    pub(super) fn remark_event(&self, remark: &Remark, now: Timestamp) -> Event {
        let Remark { id, at: _, author, state, body, url } = remark;
        let is_request = state.as_deref() == Some("changes_requested");
        let severity = if is_request { Severity::Warning } else { Severity::Info };
        let id = hash_parts(&[&format!("{:016x}", self.owner), id]);
        let payload = self.payload_with([
            ("pr", self.pr.map(Value::from)),
            ("author", Some(json!(author))),
            ("state", state.clone().map(Value::from)),
            ("body", body.clone().map(Value::from)),
            ("url", url.clone().map(Value::from)),
        ]);
        let event_type = if state.is_some() { REVIEWED } else { COMMENTED };
        let event = self.event(event_type, format!("ci-remark-{id:016x}"), severity, payload, now);
        Event { provenance: Provenance::Quoted, ..event }
    }

    /// The event for its end.
    pub(super) fn ended_event(&self, end: &End, now: Timestamp) -> Event {
        let summary = Some(json!(end.summary(self, now)));
        if let End::Run { passed, failed, .. } = end {
            let (event_type, severity) =
                if *failed > 0 { (RUN_FAILED, Severity::Error) } else { (RUN_COMPLETED, Severity::Info) };
            let url = self.url.as_deref().map(|url| json!(format!("{url}/checks")));
            let payload = self.payload_with([
                ("passed", Some(json!(passed))),
                ("failed", Some(json!(failed))),
                ("summary", summary),
                ("url", url.filter(|_| *failed > 0)),
            ]);
            return self.event(event_type, self.id.to_string(), severity, payload, now);
        }
        let severity = match (end.is_quiet(), self.is_asked && *end != End::Superseded) {
            (true, false) => Severity::Debug,
            (true, true) | (false, _) => Severity::Info,
        };
        // Without a commit, only the requested ref identifies it.
        let reference = self.from.as_deref().filter(|_| self.commit.is_none());
        let payload = self.payload_with([
            ("reference", reference.map(|reference| json!(name(reference)))),
            ("reason", Some(json!(end.reason()))),
            ("summary", summary),
        ]);
        self.event(ENDED, self.id.to_string(), severity, payload, now)
    }
}
