//! The client's input for its status line.

use engine::{event::SessionId, transcript::Gauge};
use serde::Deserialize;

use crate::harness::{HookError, kind::StatusLine, stdin::read};

/// The fields that are used.
#[derive(Deserialize)]
struct Stdin {
    session_id: String,
    #[serde(default)]
    context_window: Option<ContextWindow>,
}

#[derive(Deserialize)]
struct ContextWindow {
    #[serde(default)]
    used_percentage: Option<f64>,
    #[serde(default)]
    context_window_size: Option<u64>,
}

/// Parses the stdin of a status line.
///
/// Errors: it is not JSON, or has no `session_id`.
pub(super) fn parse(stdin: &[u8]) -> Result<StatusLine, HookError> {
    let Stdin { session_id, context_window } = read(stdin)?;
    if session_id.is_empty() {
        return Err(HookError::Missing { hook: "the status line".to_owned(), field: "session_id" });
    }
    let context = context_window.and_then(|window| {
        let used_percent = whole_percent(window.used_percentage?)?;
        Some(Gauge { used_percent, size: window.context_window_size })
    });
    Ok(StatusLine { session: SessionId::new(&session_id), context })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 100, cut to a whole number"
)]
fn whole_percent(percent: f64) -> Option<u8> {
    percent.is_finite().then(|| percent.clamp(0.0, 100.0) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_gauge_shows_the_clients_percentage() {
        for (window, expected) in [
            ("{\"used_percentage\":79.9}", Some(Gauge { used_percent: 79, size: None })),
            (
                "{\"used_percentage\":180,\"context_window_size\":200000}",
                Some(Gauge { used_percent: 100, size: Some(200_000) }),
            ),
            ("{\"used_percentage\":null}", None),
            ("{}", None),
            ("null", None),
        ] {
            let stdin = format!("{{\"session_id\":\"s1\",\"model\":{{}},\"context_window\":{window}}}");
            assert_eq!(parse(stdin.as_bytes()).expect("valid").context, expected, "{window}");
        }
    }

    #[test]
    fn input_without_a_session_is_refused() {
        for stdin in ["", "{}", "{\"session_id\":\"\"}", "[1]"] {
            assert!(parse(stdin.as_bytes()).is_err(), "{stdin}");
        }
    }
}
