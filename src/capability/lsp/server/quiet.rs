//! Decides when a server is quiet, so that its findings are about the newest text.

use std::time::Duration;

use engine::sorted::SortedMap;

use serde_json::Value;

use journal::time::Timestamp;

/// How long a server has to be silent to count as quiet. Source: OpenCode waits 150 ms, and a
/// compiler run started by a save begins some milliseconds after the previous one has ended.
pub(super) const QUIET: Duration = Duration::from_millis(300);
/// The same until a server is first quiet: errors found before are old, and servers for TypeScript
/// report syntax errors seconds before type errors.
pub(super) const FIRST_QUIET: Duration = Duration::from_secs(2);
/// Longest wait for the first findings about a text.
pub(super) const NEWS_MAX: Duration = Duration::from_secs(5);
/// The same until a server is first quiet: it may have to read a large project.
pub(super) const FIRST_NEWS_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a response.
pub(super) const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest silence of a running task. After it the task is not waited for until its next report.
const SILENT_MAX: Duration = Duration::from_secs(5 * 60);
/// Most concurrent tasks of a server that are waited for.
const TASKS_MAX: usize = 64;

/// A server's reports about its own work.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// The running tasks, by token, with the time of the last report.
    tasks: SortedMap<String, Timestamp>,
    /// The time since which it reports that it is not quiescent.
    unquiet_since: Option<Timestamp>,
}

impl Busy {
    /// Takes `$/progress`; returns whether a task has started or ended.
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

    /// Takes `experimental/serverStatus`; returns whether the server became quiescent.
    pub(super) fn status(&mut self, params: &Value, now: Timestamp) -> bool {
        let is_quiescent = params.get("quiescent").and_then(Value::as_bool).unwrap_or(true);
        let was_quiescent = self.unquiet_since.is_none();
        self.unquiet_since = (!is_quiescent).then(|| self.unquiet_since.unwrap_or(now));
        is_quiescent && !was_quiescent
    }

    /// When the wait for the server's work ends, if it reports work.
    pub(super) fn until(&self) -> Option<Timestamp> {
        self.tasks.values().copied().chain(self.unquiet_since).max().map(|heard| heard + SILENT_MAX)
    }

    /// Removes tasks without recent reports.
    pub(super) fn forget_silent(&mut self, now: Timestamp) {
        self.tasks.retain(|_, heard| now < *heard + SILENT_MAX);
        self.unquiet_since = self.unquiet_since.filter(|since| now < *since + SILENT_MAX);
    }
}
