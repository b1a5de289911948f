//! When a server is quiet, so that what it finds is about the newest text.

use std::{collections::BTreeMap, time::Duration};

use serde_json::Value;

use super::{News, Phase, Question, Server};
use crate::time::Timestamp;

/// How long nothing may happen before a server is taken to be quiet. Source: OpenCode waits 150 ms,
/// and the run of a compiler that a save starts begins some milliseconds after the one before has
/// ended.
const QUIET: Duration = Duration::from_millis(300);
/// The same until a server has been quiet for the first time: what it finds by then was there
/// before, and servers for TypeScript say what is wrong with the syntax seconds before they say
/// what is wrong with the types.
const FIRST_QUIET: Duration = Duration::from_secs(2);
/// How long it is waited for the first word about a text.
const NEWS_MAX: Duration = Duration::from_secs(5);
/// The same until a server has been quiet for the first time: it may read a large project.
const FIRST_NEWS_MAX: Duration = Duration::from_secs(60);
/// How long an answer may take before it is no longer waited for.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long work that a server reports may go on without a word. It is no longer waited for then,
/// until it says a word.
const SILENT_MAX: Duration = Duration::from_secs(5 * 60);
/// Most tasks that a server may report at once; further ones are not waited for.
const TASKS_MAX: usize = 64;

/// What a server says of its own work.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// The tasks under way, by their tokens, and when each was last heard of.
    tasks: BTreeMap<String, Timestamp>,
    /// Since when it has said that it is not quiescent.
    unquiet_since: Option<Timestamp>,
}

impl Busy {
    /// Takes `$/progress`; returns whether a task has begun or ended.
    pub(super) fn progress(&mut self, params: &Value, now: Timestamp) -> bool {
        let Some(token) = params.get("token").map(Value::to_string) else { return false };
        match params.pointer("/value/kind").and_then(Value::as_str) {
            Some("begin") if self.tasks.len() < TASKS_MAX => {
                self.tasks.insert(token, now);
                true
            }
            Some("report") => {
                if let Some(heard) = self.tasks.get_mut(&token) {
                    *heard = now;
                }
                false
            }
            Some("end") => self.tasks.remove(&token).is_some(),
            _ => false,
        }
    }

    /// Takes `experimental/serverStatus`; returns whether the server came to rest.
    pub(super) fn status(&mut self, params: &Value, now: Timestamp) -> bool {
        let is_quiescent = params.get("quiescent").and_then(Value::as_bool).unwrap_or(true);
        let was_quiescent = self.unquiet_since.is_none();
        self.unquiet_since = (!is_quiescent).then(|| self.unquiet_since.unwrap_or(now));
        is_quiescent && !was_quiescent
    }

    /// Until when it is waited for what the server works on.
    fn until(&self) -> Option<Timestamp> {
        self.tasks.values().copied().chain(self.unquiet_since).max().map(|heard| heard + SILENT_MAX)
    }

    /// Forgets what nothing was heard of.
    pub(super) fn forget_silent(&mut self, now: Timestamp) {
        self.tasks.retain(|_, heard| now < *heard + SILENT_MAX);
        self.unquiet_since = self.unquiet_since.filter(|since| now < *since + SILENT_MAX);
    }
}

impl Server {
    /// When it counts as quiet if nothing more happens; `None` when there is nothing that was not
    /// given.
    pub(super) fn settles_at(&self) -> Option<Timestamp> {
        if !self.is_dirty || self.phase != Phase::Running {
            return None;
        }
        let (patience, quiet) =
            if self.has_settled { (NEWS_MAX, QUIET) } else { (FIRST_NEWS_MAX, FIRST_QUIET) };
        let unheard = self.documents.values().filter(|document| document.news != News::There);
        let unheard = unheard.map(|document| document.since + patience);
        let unanswered = self.asked.values().filter(|asked| matches!(asked.what, Question::Pull(..)));
        let unanswered = unanswered.map(|asked| asked.at + ANSWER_MAX);
        let quiet = self.active_at + quiet;
        unheard.chain(unanswered).chain(self.busy.until()).chain([quiet]).max()
    }
}
