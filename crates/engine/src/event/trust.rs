//! Whether the source of an event may report on sessions, wake agents and interrupt them.

/// The trust in the source of an event, decided by `[activation]` and the event's provenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// The source may report on sessions, wake agents and interrupt them.
    Trusted,
    /// The source may do none of these.
    Untrusted,
}

impl Trust {
    /// Whether it is [`Self::Trusted`].
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Trusted)
    }
}
