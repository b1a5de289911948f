//! A client's input for its status line, which may be the only source of the context gauge.

use engine::{event::SessionId, transcript::Gauge};

/// A client's input for its status line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusLine {
    /// The client's own id of the session.
    pub session: SessionId,
    /// The context gauge, if the client reports it.
    pub context: Option<Gauge>,
}
