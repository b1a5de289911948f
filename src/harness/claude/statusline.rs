//! What the client tells its status line.

use serde::Deserialize;

use crate::{
    event::SessionId,
    harness::{
        HookError,
        claude::stdin::read,
        status_line::{Context, StatusLine},
    },
};

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

/// Reads what the client writes to the stdin of a status line.
///
/// Errors: it is not JSON, or has no `session_id`.
pub(super) fn parse(stdin: &[u8]) -> Result<StatusLine, HookError> {
    let Stdin { session_id, context_window } = read(stdin)?;
    if session_id.is_empty() {
        return Err(HookError::Missing { hook: "the status line".to_owned(), field: "session_id" });
    }
    let context = context_window.and_then(|window| {
        let used_percent = window.used_percentage.filter(|used| used.is_finite())?.clamp(0.0, 100.0);
        Some(Context { used_percent, size: window.context_window_size })
    });
    Ok(StatusLine { session: SessionId::new(&session_id), context })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_is_nearly_full_from_eighty_percent_on() {
        for (window, expected) in [
            ("{\"used_percentage\":79.9}", Some(false)),
            ("{\"used_percentage\":80}", Some(true)),
            ("{\"used_percentage\":null}", None),
            ("{}", None),
            ("null", None),
        ] {
            let stdin = format!("{{\"session_id\":\"s1\",\"model\":{{}},\"context_window\":{window}}}");
            let status = parse(stdin.as_bytes()).expect("valid");
            assert_eq!(status.is_nearly_full(), expected, "{window}");
        }
    }

    #[test]
    fn input_without_a_session_is_refused() {
        for stdin in ["", "{}", "{\"session_id\":\"\"}", "[1]"] {
            assert!(parse(stdin.as_bytes()).is_err(), "{stdin}");
        }
    }
}
