//! The socket on which a running client takes messages.

use std::{fmt, path::PathBuf};

use crate::exchange::Injection;

/// Where a client takes messages, and in which form.
#[derive(Clone)]
pub struct MessageSocket {
    /// An absolute path.
    pub path: PathBuf,
    pub(super) token: Option<String>,
    /// Writes an injection as the client takes it, with the token.
    pub(super) write: fn(Option<&str>, &Injection) -> String,
}

impl MessageSocket {
    /// What is written to the socket to hand over `injection`.
    pub fn message(&self, injection: &Injection) -> String {
        (self.write)(self.token.as_deref(), injection)
    }
}

impl PartialEq for MessageSocket {
    /// One socket is of one client, and so of one form.
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.token) == (&other.path, &other.token)
    }
}

impl Eq for MessageSocket {}

impl fmt::Debug for MessageSocket {
    /// Leaves the token out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSocket").field("path", &self.path).finish_non_exhaustive()
    }
}
