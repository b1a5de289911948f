//! Language servers: changes of their findings in files that sessions wrote.
//!
//! [`Fleet`] takes written files, servers' messages and the time. It returns actions on server
//! processes, messages to send, and events to publish. It starts no process and reads no file. A
//! finding is compared only when its server is quiet about the newest text, which [`server`]
//! decides. docs/design/lsp.md has the reasons.

pub mod diagnostics;
pub mod fleet;
pub mod frame;
pub mod message;
pub mod record;
pub mod server;
pub mod source;
pub mod switch;
pub mod uri;

use std::sync::Arc;

use engine::event::SessionId;

pub use self::fleet::{Action, End, Fleet, RunId, Write};

/// The name of the source.
pub const NAME: &str = "lsp";

/// A session that writes files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The session.
    pub session: SessionId,
    /// Its working folder.
    pub workspace: Option<Arc<str>>,
}
