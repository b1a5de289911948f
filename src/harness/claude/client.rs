//! What a running client shows besides its hooks: the state file of a session, `sessions/PID.json` in
//! its folder; the input for its status line; and its message socket, with its address, its message
//! format, and when the client holds a message.
//!
//! Source of the state file: measured with client 2.1.330: `status` is `busy` from a prompt on. It
//! becomes `idle` (`shell` while something runs in the background, such as a monitor) within a second
//! of a turn's end, also if the user interrupted it, which runs no hook.
//!
//! Source of the socket: measured with client 2.1.329; clients from 2.1.224 on name the socket in the
//! environment of their hooks. Measured with 2.1.332: a session in `bypassPermissions` holds the
//! message of a sender that states no permission mode, and drops it at its end.

use std::path::{Path, PathBuf};

use engine::{
    event::SessionId,
    transcript::{Gauge, Gauges, RateLimit},
};
use hook::harness::header;
use journal::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::harness::{
    Headers, HookError,
    claude::native::CAPS,
    kind::{SessionFile, StatusLine},
    process::Process,
    text::read,
    wake::{Inbound, MessageSocket, MessageSockets},
};

/// The folder of the files, in the client's own.
const SESSIONS: &str = "sessions";
/// The folder of transcripts, in the client's own.
const TRANSCRIPTS: &str = "projects";
/// States without a current turn.
const IDLE: [&str; 2] = ["idle", "shell"];

/// The fields that are used.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionState {
    pid: u32,
    session_id: String,
    cwd: Option<String>,
    #[serde(default)]
    status: String,
    /// Start of the process, as reported by the system.
    proc_start: Option<String>,
}

/// The file of the client with the folder `client` and the process `pid`.
pub(super) fn session_file(client: &Path, pid: u32) -> PathBuf {
    client.join(SESSIONS).join(format!("{pid}.json"))
}

/// Parses the file; `None` if it is not of `process`, or invalid.
pub(super) fn parse_session_file(text: &[u8], process: Process) -> Option<SessionFile> {
    let SessionState { pid, session_id, cwd, status, proc_start } = serde_json::from_slice(text).ok()?;
    let started = proc_start.is_none_or(|start| start == process.started.to_string());
    let is_of_it = pid == process.pid && started && !session_id.is_empty();
    is_of_it.then(|| SessionFile { session_id, cwd, is_idle: IDLE.contains(&status.as_str()) })
}

/// The client's folder, which contains the transcript at `path`.
pub(super) fn client_folder(path: &str) -> Option<&Path> {
    let mut above = Path::new(path).ancestors();
    above.find(|folder| folder.file_name().is_some_and(|name| name == TRANSCRIPTS))?.parent()
}

/// The fields that are used.
#[derive(Deserialize)]
struct StatusLineStdin {
    session_id: String,
    #[serde(default)]
    context_window: Option<ContextWindow>,
    /// Not read strictly: a status line is also drawn if its form has changed.
    #[serde(default)]
    rate_limits: Value,
}

/// The limits of a plan, with their names in events.
///
/// Source: the client's issue 45133 and its page on status lines; since 2.1.80, absent without a
/// subscription and before the first answer of the API.
const RATE_LIMITS: [(&str, &str); 2] = [("five_hour", "5 hours"), ("seven_day", "7 days")];

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
pub(super) fn parse_status_line(stdin: &[u8]) -> Result<StatusLine, HookError> {
    let StatusLineStdin { session_id, context_window, rate_limits } = read(stdin)?;
    if session_id.is_empty() {
        return Err(HookError::Missing { hook: "the status line".to_owned(), field: "session_id" });
    }
    let context = context_window.and_then(|window| {
        let used_percent = whole_percent(window.used_percentage?)?;
        Some(Gauge { used_percent, size: window.context_window_size })
    });
    let stated = RATE_LIMITS.into_iter().filter_map(|(key, name)| rate_limit(rate_limits.get(key)?, name));
    let gauges = Gauges { context, rate_limits: stated.collect() };
    Ok(StatusLine { session: SessionId::new(&session_id), gauges })
}

/// A limit with the part of it that is used, and its end in seconds since 1970.
fn rate_limit(window: &Value, name: &'static str) -> Option<RateLimit> {
    let used_percent = whole_percent(window.get("used_percentage")?.as_f64()?)?;
    let resets_at = window.get("resets_at").and_then(Value::as_u64).and_then(|at| at.checked_mul(1_000));
    Some(RateLimit { name, used_percent, resets_at: resets_at.map(Timestamp::from_millis) })
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "0 to 100, cut to a whole number"
)]
fn whole_percent(percent: f64) -> Option<u8> {
    percent.is_finite().then(|| percent.clamp(0.0, 100.0) as u8)
}

pub(super) const SOCKETS: MessageSockets = MessageSockets {
    find,
    inbound,
    note: "without the plugin's monitor an idle session is woken by the client's message socket; in \
           bypassPermissions the client holds messages, so its next hook delivers",
};

/// The client's name for a run without a terminal. It ends with its last turn, unless its host
/// sends it further prompts.
const WITHOUT_TERMINAL: &str = "sdk-cli";
/// Prefix of a message, before its sentence. No person types it, so a prompt with this prefix is a
/// message.
pub(super) const INTRO: &str = "aside (automated notification): ";
/// The permission mode in which the client holds messages of others.
const HOLDING_MODE: &str = "bypassPermissions";
/// The user's setting about messages of others.
const SETTING: &str = "crossSessionInbound";

/// Whether a session in this permission mode holds messages.
pub(super) fn holds(permission_mode: &str) -> bool {
    permission_mode == HOLDING_MODE
}

/// The user's setting. An unknown value holds messages.
fn inbound(settings: &Value) -> Option<Inbound> {
    let set = settings.get(SETTING)?;
    Some(if set.as_str() == Some("accept") { Inbound::Accepts } else { Inbound::Holds })
}

/// The socket in a hook's environment.
///
/// Errors: none. `None` if the environment was inherited from another client, whose session it
/// names.
fn find(session: &SessionId, value: Headers<'_>) -> Option<MessageSocket> {
    value(header::SESSION).filter(|id| id == session.own(CAPS.name).unwrap_or(session.as_str()))?;
    let path = value(header::MESSAGE_SOCKET).map(PathBuf::from).filter(|path| path.is_absolute())?;
    let may_exit = value(header::ENTRYPOINT).is_some_and(|entrypoint| entrypoint == WITHOUT_TERMINAL);
    Some(MessageSocket { path, token: value(header::MESSAGE_TOKEN), may_exit, write })
}

/// Formats a sentence as lines of JSON.
fn write(token: Option<&str>, sentence: &str) -> String {
    let auth = token.map(|token| json!({ "type": "auth", "token": token }));
    let content = format!("{INTRO}{sentence}");
    let message = json!({ "type": "user", "message": { "role": "user", "content": content } });
    auth.into_iter().chain([message]).map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: Process = Process { pid: 41, started: 263_480 };

    #[test]
    fn session_file_states_whether_its_process_is_idle() {
        let file = |pid: u32, start: &str, status: &str| {
            let text = format!(
                r#"{{"pid":{pid},"sessionId":"s1","cwd":"/w","procStart":"{start}","version":"2.1.330","status":"{status}"}}"#
            );
            parse_session_file(text.as_bytes(), PROCESS)
        };
        for (status, is_idle) in [("idle", true), ("shell", true), ("busy", false), ("waiting", false)] {
            let found = file(41, "263480", status).expect("it is that of the process");
            assert_eq!((found.session_id.as_str(), found.is_idle), ("s1", is_idle), "{status}");
        }
        assert_eq!(file(42, "263480", "idle"), None);
        assert_eq!(file(41, "9", "idle"), None);
        let old = parse_session_file(br#"{"pid":41,"sessionId":"s1"}"#, PROCESS).expect("it says less");
        assert!(!old.is_idle);
        assert_eq!(parse_session_file(b"{", PROCESS), None);
    }

    #[test]
    fn the_clients_folder_is_where_its_transcripts_are() {
        for (path, expected) in [
            ("/home/u/.claude/projects/-w/s1.jsonl", Some("/home/u/.claude")),
            ("/home/projects/.claude/projects/-w/s1.jsonl", Some("/home/projects/.claude")),
            ("/tmp/s1.jsonl", None),
        ] {
            assert_eq!(client_folder(path), expected.map(Path::new), "{path}");
        }
    }

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
            let gauges = parse_status_line(stdin.as_bytes()).expect("valid").gauges;
            assert_eq!(gauges.context, expected, "{window}");
        }
    }

    #[test]
    fn a_status_line_states_limits_of_the_plan() {
        let limit = |name, used_percent, resets_at: Option<u64>| RateLimit {
            name,
            used_percent,
            resets_at: resets_at.map(Timestamp::from_millis),
        };
        for (limits, expected) in [
            (
                r#"{"five_hour":{"used_percentage":23.5,"resets_at":1738425600},"seven_day":{"used_percentage":41}}"#,
                vec![limit("5 hours", 23, Some(1_738_425_600_000)), limit("7 days", 41, None)],
            ),
            (r#"{"five_hour":{"used_percentage":"many","resets_at":1},"seven_day":null}"#, vec![]),
            (
                r#"{"five_hour":{"used_percentage":120,"resets_at":18446744073709551615}}"#,
                vec![limit("5 hours", 100, None)],
            ),
            ("null", vec![]),
            ("[7]", vec![]),
        ] {
            let stdin = format!("{{\"session_id\":\"s1\",\"rate_limits\":{limits}}}");
            let gauges = parse_status_line(stdin.as_bytes()).expect("valid").gauges;
            assert_eq!(gauges.rate_limits, expected, "{limits}");
        }
    }

    #[test]
    fn input_without_a_session_is_refused() {
        for stdin in ["", "{}", "{\"session_id\":\"\"}", "[1]"] {
            assert!(parse_status_line(stdin.as_bytes()).is_err(), "{stdin}");
        }
    }

    use crate::harness::header_text;

    fn socket(headers: &[(&str, &str)]) -> Option<MessageSocket> {
        let header = |name: &str| {
            headers.iter().find(|(known, _)| *known == name).and_then(|(_, value)| header_text(value))
        };
        find(&SessionId::new("s1"), &header)
    }

    #[test]
    fn message_socket_belongs_to_session_and_hides_token() {
        let full = [
            ("aside-session", "s1"),
            ("aside-message-socket", "/run/a%20b.sock"),
            ("aside-message-token", "secret"),
            ("aside-entrypoint", "cli"),
        ];
        let found = socket(&full).expect("a socket");
        assert_eq!((found.path.to_str(), found.may_exit), (Some("/run/a b.sock"), false));
        assert!(!format!("{found:?}").contains("secret"));
        assert_eq!(
            found.message("tool failure (critical): deploy timeout"),
            "{\"type\":\"auth\",\"token\":\"secret\"}\n{\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\
             \"aside (automated notification): tool failure (critical): deploy timeout\"}}\n"
        );
        let without_terminal =
            [("aside-session", "s1"), ("aside-message-socket", "/a"), ("aside-entrypoint", "sdk-cli")];
        assert!(socket(&without_terminal).is_some_and(|found| found.may_exit));
        for other in [
            &[("aside-session", "s2"), ("aside-message-socket", "/a")][..],
            &[("aside-message-socket", "/a")],
            &[("aside-session", "s1"), ("aside-message-socket", "a")],
            &[("aside-session", "s1"), ("aside-message-socket", "")],
        ] {
            assert_eq!(socket(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_users_setting_goes_before_the_mode() {
        for (settings, expected) in [
            (json!({}), None),
            (json!({ "crossSessionInbound": "accept" }), Some(Inbound::Accepts)),
            (json!({ "crossSessionInbound": "hold" }), Some(Inbound::Holds)),
            (json!({ "crossSessionInbound": "refuse" }), Some(Inbound::Holds)),
            (json!({ "crossSessionInbound": 1 }), Some(Inbound::Holds)),
        ] {
            assert_eq!(inbound(&settings), expected, "{settings}");
        }
        assert!(holds("bypassPermissions") && !holds("default") && !holds("plan"));
    }
}
