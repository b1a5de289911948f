//! The parts of harness transcripts that probes need, read piecewise by the harness's [`Reader`].

use std::time::Duration;

use journal::time::Timestamp;

use crate::call::TouchKind;

/// The longest delay of a client's writes: its transcript and its logs contain an occurrence within
/// this time of the first check, or never.
///
/// Source: client 2.1.332 wrote the announcement of a changed file up to 112 ms late on two busy
/// cores, while the agent made three calls; client 2.1.197 wrote the failed start of an MCP server
/// into its log up to a second late.
pub const WRITTEN_AFTER: Duration = Duration::from_secs(2);

/// Reads parts of a transcript, which may begin and end at any byte.
///
/// Errors: none. Unreadable parts are ignored.
#[derive(Debug)]
pub struct Reader {
    /// The kinds of access to a file after which the client itself reports the file's change, once.
    pub announces: &'static [TouchKind],
    /// The absolute paths of files whose change was reported.
    pub changed: fn(&[u8]) -> Vec<String>,
    /// The background commands, by the harness's ids, whose end the client has reported.
    pub ended: fn(&[u8]) -> Vec<String>,
    /// The context usage in the last report.
    pub context: fn(&[u8]) -> Context,
    /// The client's reports to its agent about its MCP servers, oldest first.
    pub servers: fn(&[u8]) -> Vec<ServerSaid>,
    /// The client's logs of its connections to MCP servers, if it writes such logs.
    pub connections: Option<&'static Connections>,
}

/// A client's logs of its connections to MCP servers: a folder per server, with a file per process
/// of the client.
#[derive(Debug)]
pub struct Connections {
    /// Derives the parent of those folders from the path of a transcript and the user's cache
    /// folder.
    pub folder: fn(&str, &str) -> Option<String>,
    /// The name of a server's folder.
    pub name: fn(&str) -> String,
    /// The server of a folder, as far as the folder's name contains it.
    pub server: fn(&str) -> Option<String>,
    /// Reads the connections of a session from a part of a log, oldest first.
    pub read: fn(&[u8], &str) -> Vec<Connection>,
}

/// A log entry about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// When the client wrote the entry.
    pub at: Timestamp,
    /// Whether the connection was established; otherwise it failed or ended.
    pub is_up: bool,
}

/// A client's report of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSaid {
    /// The name, as far as the report contains it.
    pub server: String,
    /// What the report says of it.
    pub state: ServerState,
    /// When the client reported it.
    pub at: Timestamp,
}

/// The reported state of an MCP server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// The connection failed.
    Failed,
    /// Its tools are unavailable.
    Gone,
    /// Its tools are available.
    There,
}

/// The transcript of one conversation.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'a> {
    /// The absolute path.
    pub path: &'a str,
    /// The reader for it.
    pub reader: &'static Reader,
}

/// The usage of a context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// The model's last input; `None` if there was none since the last compaction.
    pub used: Option<Usage>,
    /// The client's last compaction due to a full context.
    pub compacted: Option<Usage>,
}

/// The usage of a context from another source of the client, such as its status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// The used part, in percent: 0 to 100.
    pub used_percent: u8,
    /// The size of the context, in tokens.
    pub size: Option<u64>,
}

/// The used part of a limit of the user's plan, as the client states it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Its span, such as `5 hours`.
    pub name: &'static str,
    /// The used part, in percent: 0 to 100.
    pub used_percent: u8,
    /// When it is reset, if the client says so.
    pub resets_at: Option<Timestamp>,
}

/// What a client states about its use of limits, such as in its status line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gauges {
    /// Of its context.
    pub context: Option<Gauge>,
    /// Of the limits of the user's plan.
    pub rate_limits: Vec<RateLimit>,
}

/// The tokens of a model's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The client's name of the model.
    pub model: String,
    /// The tokens of the request, including those read from a cache.
    pub tokens: u64,
}
