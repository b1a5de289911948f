//! Evidence of Claude Code's MCP servers: in results of calls, in the transcript, and in the
//! client's connection logs.
//!
//! Source: measured with 2.1.197 and 2.1.332 and a stdio server that dies, comes back, and fails at
//! its start.

use std::{borrow::Cow, path::Path};

use serde::Deserialize;

use engine::{
    call::{ServerCall, ServerOutcome},
    transcript::{Connection, Connections, ServerSaid, ServerState},
};
use journal::time::Timestamp;

/// The client's connection logs.
pub(super) static CONNECTIONS: Connections = Connections {
    folder,
    name,
    server: |name| name.strip_prefix(LOGS).map(str::to_owned),
    read: connections,
};

/// The client's folder in the user's cache folder. It has one subfolder per project, with the same
/// name as for transcripts.
const CACHE: &str = "claude-cli-nodejs";
/// Prefix of a server's log folder; the server's name follows, with `-` for all punctuation.
const LOGS: &str = "mcp-logs-";
/// Prefix of a server's tool name, before the server's name, and the separator before the tool's
/// own name.
const TOOL: (&str, &str) = ("mcp__", "__");
/// Prefixes, in JSON, of the result of a call without a connected server.
const NOT_CONNECTED: [&str; 3] = [
    "\"MCP server \\\"",
    "\"<tool_use_error>Error: No such tool available: mcp__",
    "\"MCP error -32000: Connection closed",
];
/// The end of the first of them.
const NOT_CONNECTED_END: &str = "is not connected\"";
/// Prefix, in JSON, of the result of a call without an answer.
///
/// Source: `RequestTimeout` of the TypeScript SDK of MCP, with which the client is made.
const TIMED_OUT: &str = "\"MCP error -32001: ";
/// The type of the attachment with the loadable tools, the removed tools, and the failed servers.
const TOOLS_DELTA: &str = "deferred_tools_delta";
/// Log messages of an established connection, and of a failed or closed one.
const CONNECTED: &str = "Successfully connected";
const FAILED: &str = "Connection failed";
const CLOSED: [&str; 2] = ["connection closed", "connection dropped"];

/// Evidence about the server in a call of its tool; `None` for another tool.
pub(super) fn of_call(tool: &str, response: &str) -> Option<ServerCall> {
    let server = server_of(tool)?.to_owned();
    let begins = |(begin, end): (&str, &str)| response.starts_with(begin) && response.ends_with(end);
    let ends = [NOT_CONNECTED_END, "", ""];
    let outcome = if response.is_empty() || NOT_CONNECTED.into_iter().zip(ends).any(begins) {
        ServerOutcome::NotConnected
    } else if response.starts_with(TIMED_OUT) {
        ServerOutcome::TimedOut
    } else {
        ServerOutcome::Answered
    };
    Some(ServerCall { server, outcome })
}

/// The server of a tool.
fn server_of(tool: &str) -> Option<&str> {
    let (before, between) = TOOL;
    let (server, _) = tool.strip_prefix(before)?.split_once(between)?;
    (!server.is_empty()).then_some(server)
}

/// The client's reports about servers to its agent, oldest first.
pub(super) fn said(transcript: &[u8]) -> Vec<ServerSaid> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        timestamp: Cow<'a, str>,
        attachment: Delta<'a>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Delta<'a> {
        #[serde(borrow)]
        r#type: Cow<'a, str>,
        #[serde(default)]
        added_names: Vec<Cow<'a, str>>,
        #[serde(default)]
        removed_names: Vec<Cow<'a, str>>,
        #[serde(default)]
        failed_mcp_servers: Vec<Failed<'a>>,
    }
    #[derive(Deserialize)]
    struct Failed<'a> {
        #[serde(borrow)]
        name: Cow<'a, str>,
    }
    let mut found = Vec::new();
    for line in lines_with(transcript, TOOLS_DELTA) {
        let Ok(Line { timestamp, attachment }) = serde_json::from_slice::<Line<'_>>(line) else { continue };
        let Some(at) = timestamp.parse::<Timestamp>().ok().filter(|_| attachment.r#type == TOOLS_DELTA)
        else {
            continue;
        };
        let failed = attachment.failed_mcp_servers.iter().map(|failed| (&*failed.name, ServerState::Failed));
        let removed =
            attachment.removed_names.iter().filter_map(|name| Some((server_of(name)?, ServerState::Gone)));
        let added =
            attachment.added_names.iter().filter_map(|name| Some((server_of(name)?, ServerState::There)));
        let begin = found.len();
        for (server, state) in failed.chain(removed).chain(added) {
            let is_new = |said: &ServerSaid| said.server != server || said.state != state;
            if found.iter().skip(begin).all(is_new) {
                found.push(ServerSaid { server: server.to_owned(), state, at });
            }
        }
    }
    found
}

fn folder(transcript: &str, caches: &str) -> Option<String> {
    let project = Path::new(transcript).parent()?.file_name()?.to_str()?;
    Some(format!("{caches}/{CACHE}/{project}"))
}

fn name(server: &str) -> String {
    LOGS.to_owned() + &server.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}

fn connections(log: &[u8], session: &str) -> Vec<Connection> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(borrow)]
        debug: Option<Cow<'a, str>>,
        #[serde(borrow)]
        error: Option<Cow<'a, str>>,
        #[serde(borrow)]
        timestamp: Cow<'a, str>,
        #[serde(borrow, rename = "sessionId")]
        session: Cow<'a, str>,
    }
    let mut found = Vec::new();
    for line in lines_with(log, "onnect") {
        let Ok(line) = serde_json::from_slice::<Line<'_>>(line) else { continue };
        let text = line.debug.or(line.error).unwrap_or_default();
        let is_up = text.starts_with(CONNECTED);
        let is_down = text.starts_with(FAILED) || CLOSED.iter().any(|words| text.contains(words));
        let at = line.timestamp.parse().ok().filter(|_| line.session == session && (is_up || is_down));
        found.extend(at.map(|at| Connection { at, is_up }));
    }
    found
}

/// The lines that contain `word`.
pub(super) fn lines_with<'t>(text: &'t [u8], word: &'t str) -> impl DoubleEndedIterator<Item = &'t [u8]> {
    let lines = text.split(|byte| *byte == b'\n');
    lines.filter(move |line| memchr::memmem::find(line, word.as_bytes()).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_shows_whether_its_server_is_there() {
        use ServerOutcome::{Answered, NotConnected, TimedOut};
        for (tool, response, expected) in [
            ("mcp__depot__lookup", r#""looked up""#, Some(("depot", Answered))),
            (
                "mcp__depot__lookup",
                r#""MCP server \"depot\" is not connected""#,
                Some(("depot", NotConnected)),
            ),
            ("mcp__depot__lookup", r#""MCP server \"depot\" is connected""#, Some(("depot", Answered))),
            (
                "mcp__my-depot__look_up",
                r#""<tool_use_error>Error: No such tool available: mcp__my-depot__look_up</tool_use_error>""#,
                Some(("my-depot", NotConnected)),
            ),
            ("mcp__depot__lookup", r#""MCP error -32000: Connection closed""#, Some(("depot", NotConnected))),
            ("mcp__depot__lookup", r#""MCP error -32001: Request timed out""#, Some(("depot", TimedOut))),
            ("mcp__depot__lookup", r#""it says MCP error -32001: no""#, Some(("depot", Answered))),
            ("mcp__depot__lookup", "", Some(("depot", NotConnected))),
            ("Bash", r#""MCP server \"depot\" is not connected""#, None),
            ("mcp____x", "", None),
            ("mcp__x", "", None),
        ] {
            let found = of_call(tool, response);
            let found = found.as_ref().map(|call| (call.server.as_str(), call.outcome));
            assert_eq!(found, expected, "{tool} {response}");
        }
    }

    #[test]
    fn transcript_reports_of_servers_are_parsed() {
        let line = |second: u32, fields: &str| {
            format!(
                r#"{{"type":"attachment","timestamp":"2026-11-25T16:57:{second}.000Z","attachment":{{"type":"deferred_tools_delta",{fields}}}}}"#
            )
        };
        let transcript = [
            line(
                10,
                r#""addedNames":["Read","mcp__a__x","mcp__a__y"],"removedNames":[],"failedMcpServers":[{"name":"b","errorCode":"E"}]"#,
            ),
            line(11, r#""addedNames":[],"removedNames":["mcp__a__x","mcp__a__y"],"readdedNames":[]"#),
            line(12, r#""addedNames":["mcp__a__x"],"removedNames":[],"readdedNames":["mcp__a__x"]"#),
            line(13, r#""addedNames":7"#),
            r#"{"type":"user","message":"deferred_tools_delta"}"#.to_owned(),
        ];
        let found: Vec<_> = said(transcript.join("\n").as_bytes())
            .into_iter()
            .map(|said| format!("{} {:?} {}", said.server, said.state, said.at.as_millis() / 1_000 % 60))
            .collect();
        assert_eq!(found, ["b Failed 10", "a There 10", "a Gone 11", "a There 12"]);
    }

    #[test]
    fn a_log_says_when_a_session_was_connected() {
        let line = |second: u32, kind: &str, text: &str, session: &str| {
            format!(
                r#"{{"{kind}":"{text}","timestamp":"2026-11-25T16:57:{second}.462Z","sessionId":"{session}","cwd":"/w"}}"#
            )
        };
        let log = [
            "cut\"}".to_owned(),
            line(10, "debug", "Starting connection with timeout of 30000ms", "s"),
            line(11, "debug", "Successfully connected (transport: stdio) in 64ms", "s"),
            line(12, "debug", "STDIO connection closed after 0s (cleanly)", "s"),
            line(13, "debug", "Successfully connected (transport: http) in 6ms", "t"),
            line(14, "error", "Connection failed (CONNECTION_CLOSED): Connection closed", "s"),
            line(15, "debug", "Cleared connection cache for reconnection", "s"),
        ];
        let found = connections(log.join("\n").as_bytes(), "s");
        let found: Vec<_> =
            found.iter().map(|found| (found.is_up, found.at.as_millis() / 1_000 % 60)).collect();
        assert_eq!(found, [(true, 11), (false, 12), (false, 14)]);
    }

    #[test]
    fn connection_log_folder_follows_from_transcript_path() {
        let found = folder("/home/u/.claude/projects/-home-u-shop/1.jsonl", "/home/u/.cache");
        assert_eq!(found.as_deref(), Some("/home/u/.cache/claude-cli-nodejs/-home-u-shop"));
        assert_eq!(folder("", "/c"), None);
        assert_eq!(name("plugin:a_b:c"), "mcp-logs-plugin-a-b-c");
        assert_eq!((CONNECTIONS.server)("mcp-logs-my-depot").as_deref(), Some("my-depot"));
        assert_eq!((CONNECTIONS.server)("other"), None);
    }
}
