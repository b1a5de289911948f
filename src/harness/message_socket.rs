//! The message socket of a running client.

use std::{fmt, path::PathBuf};

use engine::event::SessionId;
use serde_json::Value;

use crate::harness::Headers;

/// The message sockets of a harness's clients.
#[derive(Debug)]
pub struct MessageSockets {
    /// Finds the session's socket in the headers of a hook call.
    pub find: fn(&SessionId, Headers<'_>) -> Option<MessageSocket>,
    /// The user's setting about messages of others, in the client's settings; `None` if it is not
    /// set, so that the session's mode decides.
    pub inbound: fn(&Value) -> Option<Inbound>,
    /// For users: when a client without a monitor is not woken.
    pub note: &'static str,
}

/// What a client does with a message of a process that it did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbound {
    /// It begins a turn with it.
    Accepts,
    /// It keeps it from its model.
    Holds,
}

/// The address of a message socket, and its format.
#[derive(Clone)]
pub struct MessageSocket {
    /// An absolute path.
    pub path: PathBuf,
    pub(super) token: Option<String>,
    /// Whether the client may be about to exit while no turn runs. Then it is woken only when its
    /// own file shows that it waits.
    pub may_exit: bool,
    /// Formats a sentence for the client, with the token.
    pub(super) write: fn(Option<&str>, &str) -> String,
}

impl MessageSocket {
    /// The bytes that deliver `sentence` over the socket.
    pub fn message(&self, sentence: &str) -> String {
        (self.write)(self.token.as_deref(), sentence)
    }
}

#[cfg(test)]
impl MessageSocket {
    /// A socket at `path`, to which a sentence is written as it is.
    pub(crate) fn at(path: &std::path::Path) -> Self {
        Self { path: path.to_owned(), token: None, may_exit: false, write: |_, sentence| sentence.to_owned() }
    }
}

impl PartialEq for MessageSocket {
    /// A socket belongs to one client, and so has one format.
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.token) == (&other.path, &other.token)
    }
}

impl Eq for MessageSocket {}

impl fmt::Debug for MessageSocket {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSocket").field("path", &self.path).finish_non_exhaustive()
    }
}
