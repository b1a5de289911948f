//! The common interface of all kinds of probes, and what a look gets: its time and place, and the
//! engine's data on other sessions and pushes.

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Facts, Finding, files::Known as KnownFiles, git::Known as KnownRepository};
use crate::{
    call::Call,
    event::{EventRef, SessionId},
    notification::InjectionPoint,
    sorted::SortedMap,
    transcript::{Gauge, RateLimit, Transcript},
};

/// Known state of one kind, which every look compares with the current state.
pub(super) trait Probe {
    /// The settings of its module.
    type Settings;
    /// Returns the findings to publish, and records them as published.
    fn look(&mut self, moment: &Moment<'_>, settings: &Self::Settings, facts: &dyn Facts) -> Vec<Finding>;
    /// Applies an event about the session's calls and turns.
    fn observe(&mut self, _event: &EventRef<'_>, _now: Timestamp) {}
    /// Drops state that it cannot track while it is disabled.
    fn forget(&mut self) {}
}

/// The time and place of a look.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The session that makes the exchange.
    pub session: &'a SessionId,
    /// The injection point: `turn_start`, `before_tool` or `after_tool`.
    pub point: InjectionPoint,
    /// The current time.
    pub now: Timestamp,
    /// The session's working folder, absolute.
    pub workspace: Option<&'a str>,
    /// The top folder of its repository, if the session knows one.
    pub repository: Option<&'a str>,
    /// The calls that ended since the last exchange, oldest first; before a tool, the one that
    /// begins.
    pub calls: &'a [Call],
    /// Earliest start of those calls, as in [`Known::calls_since`](super::Known::calls_since).
    pub calls_since: Timestamp,
    /// Last activity of the session before its user's prompt, at the first look after that prompt;
    /// else `None`.
    pub prompt_after: Option<Timestamp>,
    /// The harness's transcript of the conversation, and the reader for the client's own reports.
    pub transcript: Option<Transcript<'a>>,
    /// The context gauge, if the client reports one outside of the transcript.
    pub gauge: Option<Gauge>,
    /// The limits of the user's plan, as far as the client states them.
    pub rate_limits: &'a [RateLimit],
    /// Whether the context is new: it was compacted or cleared.
    pub has_new_context: bool,
    /// Context limit of each model in tokens, as observed in sessions.
    pub limits: &'a SortedMap<String, u64>,
    /// The folder for temporary files.
    pub temporary: &'a str,
    /// The user's cache folder.
    pub caches: Option<&'a str>,
    /// Other sessions in, under or above the same folder, most recently active first.
    pub others: &'a [OtherSession<'a>],
    /// Offset of the local wall clock from UTC, in seconds.
    pub utc_offset: i32,
}

impl<'a> Moment<'a> {
    /// A moment without other sessions or ended calls.
    pub const fn new(session: &'a SessionId, point: InjectionPoint, now: Timestamp) -> Self {
        static NO_LIMITS: SortedMap<String, u64> = SortedMap::new();
        Self {
            session,
            point,
            now,
            workspace: None,
            repository: None,
            calls: &[],
            calls_since: Timestamp::ZERO,
            prompt_after: None,
            transcript: None,
            gauge: None,
            rate_limits: &[],
            has_new_context: false,
            limits: &NO_LIMITS,
            temporary: "/tmp",
            caches: None,
            others: &[],
            utc_offset: 0,
        }
    }
}

/// Another session in, under or above this folder.
#[derive(Debug, Clone, Copy)]
pub struct OtherSession<'a> {
    /// Its id.
    pub session: &'a SessionId,
    /// Whether it is open; otherwise it has ended.
    pub is_open: bool,
    /// Time of the last report on its turns and calls.
    pub heard_at: Timestamp,
    /// Time since which it has calls without a reported end.
    pub calling_since: Option<Timestamp>,
    /// Its working folder.
    pub workspace: Option<&'a str>,
    /// The files that it knows.
    pub files: &'a KnownFiles,
    /// The repository that it works in.
    pub git: &'a KnownRepository,
}

/// Outcome of the checks of a branch that a session pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// The time of their end.
    pub at: Timestamp,
    /// The branch, if it is known.
    pub branch: Option<String>,
    /// The outcome, in a few words.
    pub ended: String,
}
