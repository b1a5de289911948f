//! The message socket of a running client.

use std::{fmt, path::PathBuf};

use crate::exchange::Injection;

/// The address of a message socket, and its format.
#[derive(Clone)]
pub struct MessageSocket {
    /// An absolute path.
    pub path: PathBuf,
    pub(super) token: Option<String>,
    /// Formats an injection for the client, with the token.
    pub(super) write: fn(Option<&str>, &Injection) -> String,
}

impl MessageSocket {
    /// The bytes that deliver `injection` over the socket.
    pub fn message(&self, injection: &Injection) -> String {
        (self.write)(self.token.as_deref(), injection)
    }
}

#[cfg(test)]
impl MessageSocket {
    /// A socket at `path`, to which an injection is written as its text.
    pub(crate) fn at(path: &std::path::Path) -> Self {
        Self { path: path.to_owned(), token: None, write: |_, injection| injection.text.to_string() }
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
