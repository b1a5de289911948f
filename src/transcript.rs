//! Transcripts of harnesses, as far as probes need them: read in parts by the harness's own
//! [`Reader`].

use std::time::Duration;

use crate::{call::TouchKind, time::Timestamp};

/// After this time from the first look at what happened, the client has written it into its
/// transcript and its logs, or does not write it.
///
/// Source: 2.1.332 wrote the announcement of a changed file up to 112 ms late on two busy cores, in
/// which an agent made three calls; 2.1.197 wrote the failed start of an MCP server into its log up
/// to a second late.
pub const WRITTEN_AFTER: Duration = Duration::from_secs(2);

/// Reads parts of a transcript, which may begin and end anywhere.
///
/// Errors: none. Unreadable parts are ignored.
#[derive(Debug)]
pub struct Reader {
    /// How an agent must have touched a file so that its client reports the file's change by
    /// itself, once.
    pub announces: &'static [TouchKind],
    /// The absolute paths of files whose change was reported.
    pub changed: fn(&[u8]) -> Vec<String>,
    /// The background commands, by the harness's ids, whose end the client reported.
    pub ended: fn(&[u8]) -> Vec<String>,
    /// How full the context is, by the last report.
    pub context: fn(&[u8]) -> Context,
    /// The client's reports of its MCP servers to its agent, oldest first.
    pub servers: fn(&[u8]) -> Vec<ServerSaid>,
    /// The client's logs of its connections to them, if it has such logs.
    pub connections: Option<&'static Connections>,
}

/// A client's logs of its connections to MCP servers: a folder per server, with a file per process
/// of the client.
#[derive(Debug)]
pub struct Connections {
    /// The parent of those folders, from the path of a transcript and the user's cache folder.
    pub folder: fn(&str, &str) -> Option<String>,
    /// The name of a server's folder.
    pub name: fn(&str) -> String,
    /// The server of a folder's name, as far as the name contains it.
    pub server: fn(&str) -> Option<String>,
    /// The connections of a session in a part of a log, oldest first.
    pub read: fn(&[u8], &str) -> Vec<Connection>,
}

/// A log entry about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// The time.
    pub at: Timestamp,
    /// Whether it was established; otherwise it failed or has ended.
    pub is_up: bool,
}

/// A client's report of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSaid {
    /// Its name, as far as the report contains it.
    pub server: String,
    /// Its state.
    pub state: ServerState,
    /// The time.
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
    /// Its absolute path.
    pub path: &'a str,
    /// The reader for it.
    pub reader: &'static Reader,
}

/// How full a context is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// The model's last input; `None` when there was none since the last compaction.
    pub used: Option<Usage>,
    /// The client's last compaction because of a full context.
    pub compacted: Option<Usage>,
}

/// How full a context is according to another source of the client, such as its status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// The used part, in percent: 0 to 100.
    pub used_percent: u8,
    /// Its size, in tokens.
    pub size: Option<u64>,
}

/// The tokens of a model's input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The model, as the client names it.
    pub model: String,
    /// The tokens of the request, including those read from a cache.
    pub tokens: u64,
}
