//! What a harness writes down of a conversation, as far as probes ask: read in parts, by the harness's own [`Reader`].

use crate::{call::TouchKind, time::Timestamp};

/// Reads parts of a transcript, which begin and end anywhere.
///
/// Errors: none. What cannot be read says nothing.
#[derive(Debug)]
pub struct Reader {
    /// How an agent has to know a file for its client to announce by itself that it changed, once.
    pub announces: &'static [TouchKind],
    /// The files, by absolute paths, that were announced so.
    pub changed: fn(&[u8]) -> Vec<String>,
    /// The background commands, by the harness's ids, whose end the client reported.
    pub ended: fn(&[u8]) -> Vec<String>,
    /// How full the context is, by the last of what says so.
    pub context: fn(&[u8]) -> Context,
    /// What the client said of its MCP servers to its agent, oldest first.
    pub servers: fn(&[u8]) -> Vec<ServerSaid>,
    /// Where the client writes down its connections to them, if it does.
    pub connections: Option<&'static Connections>,
}

/// A client's logs of its connections to MCP servers: a folder for each server, with a file for each process of the client.
#[derive(Debug)]
pub struct Connections {
    /// The folder of those folders, by the path of a transcript and the folder of the user's caches.
    pub folder: fn(&str, &str) -> Option<String>,
    /// The name of a server's folder.
    pub name: fn(&str) -> String,
    /// The server of a folder's name, as far as the name has it.
    pub server: fn(&str) -> Option<String>,
    /// What a part of a log says of the connections of a session, oldest first.
    pub read: fn(&[u8], &str) -> Vec<Connection>,
}

/// What a log says of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection {
    /// When.
    pub at: Timestamp,
    /// Whether it was made; otherwise it was not, or has ended.
    pub is_up: bool,
}

/// What a client said of an MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSaid {
    /// Its name, as far as the client says it there.
    pub server: String,
    /// What is said of it.
    pub state: ServerState,
    /// When.
    pub at: Timestamp,
}

/// How a client says that an MCP server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerState {
    /// It could not be connected to.
    Failed,
    /// Its tools are gone.
    Gone,
    /// Its tools are there.
    There,
}

/// The transcript of one conversation.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'a> {
    /// Where it is, absolute.
    pub path: &'a str,
    /// Reads it.
    pub reader: &'static Reader,
}

/// How full a context is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Context {
    /// What the model was given last; `None` when it was given nothing since the last compaction.
    pub used: Option<Usage>,
    /// The last compaction that the client made because the context was full.
    pub compacted: Option<Usage>,
}

/// How full a context is, as a client says it elsewhere, such as at its status line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gauge {
    /// How much of it is used, in percent: 0 to 100.
    pub used_percent: u8,
    /// Its size, in tokens.
    pub size: Option<u64>,
}

/// How many tokens a model was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// The model, as the client names it.
    pub model: String,
    /// The tokens of the request, with those that were read from a cache.
    pub tokens: u64,
}
