//! What the client tells its status line: the one place where it says how full its context is.

use serde::Deserialize;
use serde_json::json;

use crate::{
    event::{Event, Provenance, SessionId, Severity},
    harness::{HookError, caps::CLAUDE_CODE, claude::stdin::read},
    time::Timestamp,
};

/// From which share of the context on it counts as nearly full, in percent.
pub const CONTEXT_WARNING_PERCENT: f64 = 80.0;

/// The fields that are used.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct StatusLine {
    session_id: String,
    #[serde(default)]
    context_window: Option<ContextWindow>,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
struct ContextWindow {
    #[serde(default)]
    used_percentage: Option<f64>,
    #[serde(default)]
    context_window_size: Option<u64>,
}

impl StatusLine {
    /// Reads what the client writes to the stdin of a status line.
    ///
    /// Errors: it is not JSON, or has no `session_id`.
    pub fn parse(stdin: &[u8]) -> Result<Self, HookError> {
        let status: Self = read(stdin)?;
        if status.session_id.is_empty() {
            return Err(HookError::Missing { hook: "the status line".to_owned(), field: "session_id" });
        }
        Ok(status)
    }

    /// Whose it is.
    pub fn session(&self) -> SessionId {
        SessionId::new(&self.session_id)
    }

    /// Whether the context is nearly full; `None` when the client does not say.
    pub fn is_nearly_full(&self) -> Option<bool> {
        let used = self.context_window.as_ref()?.used_percentage?;
        used.is_finite().then_some(used >= CONTEXT_WARNING_PERCENT)
    }

    /// The event that says so.
    pub fn warning(&self, session: SessionId, now: Timestamp) -> Option<Event> {
        let window = self.context_window.as_ref()?;
        let percentage = window.used_percentage?.clamp(0.0, 100.0);
        let mut payload = json!({ "budget_type": "context", "percentage": percentage });
        if let (Some(size), Some(fields)) = (window.context_window_size, payload.as_object_mut()) {
            let current = tokens(size, percentage);
            fields.insert("current".to_owned(), current.into());
            fields.insert("limit".to_owned(), size.into());
            fields.insert("remaining".to_owned(), size.saturating_sub(current).into());
        }
        Some(Event {
            id: format!("{}:context:{}", self.session_id, now.as_millis()).into(),
            event_type: "budget.token.warning".parse().expect("a valid literal"),
            source: CLAUDE_CODE.name.into(),
            provenance: Provenance::Harness,
            severity: Severity::Warning,
            timestamp: now,
            payload: payload.into(),
            dedupe_key: None,
            session: Some(session),
            workspace: None,
            cause: None,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a share of a count of tokens: not negative, and exact to the last digit for none"
)]
fn tokens(size: u64, percentage: f64) -> u64 {
    (size as f64 * percentage / 100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_nearly_full_from_eighty_percent_on() {
        let of = |window: &str| {
            let stdin = format!("{{\"session_id\":\"s1\",\"model\":{{}},\"context_window\":{window}}}");
            StatusLine::parse(stdin.as_bytes()).expect("valid")
        };
        for (window, expected) in [
            ("{\"used_percentage\":79.9}", Some(false)),
            ("{\"used_percentage\":80}", Some(true)),
            ("{\"used_percentage\":null}", None),
            ("{}", None),
            ("null", None),
        ] {
            assert_eq!(of(window).is_nearly_full(), expected, "{window}");
        }
        let event = of("{\"used_percentage\":85,\"context_window_size\":200000}")
            .warning(SessionId::new("s1"), Timestamp::from_millis(7));
        let event = event.expect("it says how full");
        assert_eq!(&*event.id, "s1:context:7");
        assert_eq!(
            event.payload.as_str(),
            r#"{"budget_type":"context","percentage":85.0,"current":170000,"limit":200000,"remaining":30000}"#
        );
    }

    #[test]
    fn input_without_a_session_is_refused() {
        for stdin in ["", "{}", "{\"session_id\":\"\"}", "[1]"] {
            assert!(StatusLine::parse(stdin.as_bytes()).is_err(), "{stdin}");
        }
    }
}
