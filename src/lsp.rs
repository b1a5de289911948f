//! Language servers: what they find in files that sessions wrote, as differences.
//!
//! [`Fleet`] takes the files that sessions wrote, what servers say and the time. It gives what is
//! to be done with the processes of servers, the messages to send, and what is to be published. It
//! starts no process and reads no file. A finding is compared only when its server is quiet about
//! the newest text: [`server`] decides when that is. docs/design/lsp.md says why it is so.

pub mod diagnostics;
pub mod fleet;
pub mod frame;
pub mod message;
pub mod record;
pub mod server;
pub mod switch;
pub mod uri;

use std::sync::Arc;

pub use self::fleet::{Action, End, Fleet, RunId, Write};
use crate::event::SessionId;

/// The name of the source.
pub const NAME: &str = "lsp";

/// A session that writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// Which.
    pub session: SessionId,
    /// Where it works.
    pub workspace: Option<Arc<str>>,
}
