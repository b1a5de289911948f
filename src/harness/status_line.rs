//! What a client tells its status line, which may be the one place where it says how full its context is.

use serde_json::json;

use crate::{
    event::{Event, Provenance, SessionId, Severity},
    time::Timestamp,
};

/// From which share of the context on it counts as nearly full, in percent.
pub const CONTEXT_WARNING_PERCENT: f64 = 80.0;

/// What a client tells its status line.
#[derive(Debug, Clone, PartialEq)]
pub struct StatusLine {
    /// The client's own id of the session.
    pub session: SessionId,
    /// How full the context is, if the client says so.
    pub context: Option<Context>,
}

/// How full a context is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Context {
    /// A finite number; 0 to 100.
    pub used_percent: f64,
    /// Its size, in tokens.
    pub size: Option<u64>,
}

impl StatusLine {
    /// Whether the context is nearly full; `None` when the client does not say.
    pub fn is_nearly_full(&self) -> Option<bool> {
        self.context.map(|context| context.used_percent >= CONTEXT_WARNING_PERCENT)
    }

    /// The event that says so, of the harness named `source`, for `session`; `None` when the client does not say how full it is.
    pub fn warning(&self, source: &str, session: SessionId, now: Timestamp) -> Option<Event> {
        let Context { used_percent, size } = self.context?;
        let mut payload = json!({ "budget_type": "context", "percentage": used_percent });
        if let (Some(size), Some(fields)) = (size, payload.as_object_mut()) {
            let current = tokens(size, used_percent);
            fields.insert("current".to_owned(), current.into());
            fields.insert("limit".to_owned(), size.into());
            fields.insert("remaining".to_owned(), size.saturating_sub(current).into());
        }
        Some(Event {
            id: format!("{}:context:{}", self.session, now.as_millis()).into(),
            event_type: "budget.token.warning".parse().expect("a valid literal"),
            source: source.into(),
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
fn tokens(size: u64, percent: f64) -> u64 {
    (size as f64 * percent / 100.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warning_says_how_many_tokens_are_left() {
        let context = Some(Context { used_percent: 85.0, size: Some(200_000) });
        let status = StatusLine { session: SessionId::new("s1"), context };
        let event =
            status.warning("some-client", SessionId::new("some-client:s1"), Timestamp::from_millis(7));
        let event = event.expect("it says how full");
        assert_eq!((&*event.id, &*event.source), ("s1:context:7", "some-client"));
        assert_eq!(
            event.payload.as_str(),
            r#"{"budget_type":"context","percentage":85.0,"current":170000,"limit":200000,"remaining":30000}"#
        );
        let silent = StatusLine { context: None, ..status };
        assert_eq!(silent.is_nearly_full(), None);
        assert!(silent.warning("some-client", SessionId::new("s1"), Timestamp::ZERO).is_none());
    }
}
