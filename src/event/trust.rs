//! Whether the source of an event may report on sessions, wake and interrupt.

/// Whether the source of an event is trusted, as `[activation]` and the event's way here decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It may.
    Trusted,
    /// It may not.
    Untrusted,
}

impl Trust {
    /// Whether it is [`Self::Trusted`].
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Trusted)
    }
}
