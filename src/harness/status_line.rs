//! What a client tells its status line, which may be the one place where it says how full its context is.

use crate::{event::SessionId, transcript::Gauge};

/// What a client tells its status line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusLine {
    /// The client's own id of the session.
    pub session: SessionId,
    /// How full the context is, if the client says so.
    pub context: Option<Gauge>,
}
