//! Hostile bodies to every intake of a real daemon: each is answered, and none takes much more
//! memory than its text. `scripts/bodies` sends larger ones, eight at once, with exchanges meanwhile.

use std::fs;

use crate::support::daemon::{Daemon, Home, at};

/// Most memory over idle that a body may take, in KiB: 64 MB, the bound of `scripts/bodies`. An error
/// quotes its value twice, in a buffer that doubles, and the allocator keeps some of it.
const KIB_MAX: u64 = 62_500;
const MIB: usize = 1024 * 1024;
/// Longest refusal of a body, in bytes: its error quotes a part of what is wrong.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;

/// The largest body of any intake, in bytes.
const BYTES_MAX: usize = 8 * MIB;

/// A value of about `size` bytes that would be a large tree.
type Shape = fn(usize) -> String;

const SHAPES: [(&str, Shape); 7] = [
    ("empty objects", |size| format!("[{}{{}}]", "{},".repeat(size / 3))),
    ("small texts", |size| format!("[{}\"\"]", "\"\",".repeat(size / 3))),
    ("deep", |size| "[".repeat(size / 2) + &"]".repeat(size / 2)),
    ("equal keys", |size| format!("{{{}\"a\":0}}", "\"a\":0,".repeat(size / 6))),
    ("escapes", |size| format!("[\"{}\"]", "\\u0041".repeat(size / 6))),
    ("long text", |size| format!("\"{}\"", "a".repeat(size - 2))),
    ("long key", |size| format!("{{\"{}\":0}}", "a".repeat(size - 6))),
];

/// The intake, its path, the largest body, and a body of a value.
type Intake = (&'static str, &'static str, usize, fn(&str) -> String);

const INTAKES: [Intake; 15] = [
    ("array", "/v1/events", 4 * MIB, str::to_owned),
    ("event", "/v1/events", 64 * 1024, |value| format!(r#"{{"type":"a.b","payload":{{"x":{value}}}}}"#)),
    ("match", "/v1/match", 64 * 1024, |value| format!(r#"{{"type":"a.b","payload":{{"x":{value}}}}}"#)),
    ("observed", "/v1/sessions/s1/exchange", 8 * MIB, |value| {
        format!(r#"{{"point":"after_tool","carrier":"c","observe":{value}}}"#)
    }),
    ("acks", "/v1/sessions/s1/exchange", 8 * MIB, |value| {
        format!(r#"{{"point":"after_tool","carrier":"c","ack":{value}}}"#)
    }),
    ("hook", "/v1/hooks/claude", 8 * MIB, |value| {
        format!(
            r#"{{"hook_event_name":"PostToolBatch","session_id":"s1","tool_calls":[{{"tool_name":"Bash","tool_use_id":"t",
            "tool_input":{value}}}]}}"#
        )
    }),
    ("calls of a hook", "/v1/hooks/claude", 8 * MIB, |value| {
        format!(r#"{{"hook_event_name":"PostToolBatch","session_id":"s1","tool_calls":{value}}}"#)
    }),
    ("tasks of a hook", "/v1/hooks/claude", 8 * MIB, |value| {
        format!(r#"{{"hook_event_name":"Stop","session_id":"s1","background_tasks":{value}}}"#)
    }),
    ("status line", "/v1/statusline/claude", MIB, |value| format!(r#"{{"session_id":"s1","x":{value}}}"#)),
    ("notice", "/v1/notify", MIB, |value| format!(r#"{{"message":"m","level":{value}}}"#)),
    ("question", "/v1/questions", MIB, |value| format!(r#"{{"message":"m","choices":{value}}}"#)),
    ("watch", "/v1/watches", MIB, |value| format!(r#"{{"conditions":{value}}}"#)),
    ("webhook", "/v1/webhooks/standard", MIB, |value| format!(r#"{{"type":"a.b","x":{value}}}"#)),
    ("alerts", "/api/v2/alerts", MIB, |value| format!(r#"[{{"labels":{{"alertname":"a"}},"x":{value}}}]"#)),
    ("labels", "/v1/webhooks/alertmanager", MIB, |value| format!(r#"{{"alerts":[{{"labels":{value}}}]}}"#)),
];

fn kib(daemon: &Daemon, key: &str) -> u64 {
    let pid = daemon.pid().as_raw_nonzero();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(key)).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn no_body_takes_much_more_than_its_text() {
    let home = Home::new();
    let senders = ["standard", "alertmanager"].map(|name| format!("[webhooks.{name}]\nenabled = true\n"));
    home.configure("aside.toml", &senders.concat());
    let daemon = home.serve();
    home.ask("POST", "/v1/events", r#"{"type":"a.b"}"#);
    let idle = kib(&daemon, "VmRSS:");
    for (intake, path, largest, body) in INTAKES {
        for (shape, make) in SHAPES {
            // What the daemon still does with the body before has ended.
            home.get("/v1/status");
            let text = body(&make(largest - 400));
            assert!(text.len() <= largest, "{intake}: {} bytes", text.len());
            let answer = home.ask("POST", path, &text);
            let (status, bytes) = (answer.status(), answer.0.body.len());
            assert!((200..500).contains(&status), "{intake}, {shape}: {status}");
            assert!(status < 300 || bytes < REFUSAL_BYTES_MAX, "{intake}, {shape}: {status}, {bytes} bytes");
            let over = kib(&daemon, "VmHWM:").saturating_sub(idle);
            assert!(over < KIB_MAX, "{intake}, {shape}: {over} KiB over idle");
        }
        let answer = home.ask("POST", path, &" ".repeat(BYTES_MAX + 1));
        assert_eq!(answer.status(), 413, "{intake}");
        let message = at(&answer.json(), "/error/message").as_str().map(str::to_owned);
        let said = |words: &str| message.as_deref().is_some_and(|message| message.contains(words));
        assert!(said("at most"), "{intake}: {message:?}");
    }
}
