//! The waits that are allowed for a writing thread.

/// The thread that writes a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A caller that waits for the sync anyway, so it may sync itself.
    Blocking,
    /// A caller that must not block.
    Inline,
    /// A caller that has more to append: the thread writes while the caller prepares the next
    /// batch.
    Pipelined,
    /// The writer thread.
    Background,
}

impl Role {
    /// Whether it may sync.
    pub(crate) const fn may_sync(self) -> bool {
        matches!(self, Self::Blocking | Self::Background)
    }

    /// Whether it may wait for the next file.
    pub(crate) const fn may_wait_for_file(self) -> bool {
        matches!(self, Self::Background)
    }
}
