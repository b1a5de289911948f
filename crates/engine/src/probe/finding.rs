//! A probe's finding, before it is made into an event.

use serde_json::Value;

use crate::event::{SessionId, Severity, cut_text, strip_text};

/// Most characters of a displayed path.
const PATH_CHARS_MAX: usize = 200;
/// Number of displayed characters of a session id.
const NAME_CHARS: usize = 8;

/// A finding to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The event type.
    pub event_type: &'static str,
    /// Its severity.
    pub severity: Severity,
    /// Distinguishes it from other findings of its type and session; a repeated finding about the
    /// same state has the same name.
    pub name: String,
    /// Its payload.
    pub payload: Value,
}

/// A path for display.
pub(super) fn shown_path(path: &str) -> String {
    cut_text(strip_text(path), PATH_CHARS_MAX).replace(char::is_whitespace, " ")
}

/// The name of another session for the agent of `own`: `session` and the start of its id, or its
/// relation to that agent.
pub fn name_towards(own: &SessionId, other: &SessionId) -> String {
    let (own, other) = (own.as_str(), other.as_str());
    let short = |name: &str| strip_text(name).chars().take(NAME_CHARS).collect::<String>();
    match (other.strip_prefix(own), own.strip_prefix(other)) {
        (Some(agent), _) if agent.starts_with('/') => {
            format!("your subagent {}", short(agent.trim_start_matches('/')))
        }
        (_, Some(agent)) if agent.starts_with('/') => "your parent session".to_owned(),
        _ => format!("session {}", short(other)),
    }
}
