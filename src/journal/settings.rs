//! How a journal is kept.

use std::time::Duration;

use crate::journal::{log::record::RecordKind, maintenance::retention::Retention};

/// How large a segment is, in bytes, unless set otherwise.
///
/// Source: opening and pruning work by segment; at 400 bytes an event this is about 160,000 of them.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// How long what nobody waits for stays unsynced, unless set otherwise: what a power loss may take of the exchanges.
///
/// Source: a sync takes 0.1 to 5 ms of a thread that nobody waits for, so one a second is no load; Redis' `everysec` is the same.
pub const SYNC_WITHIN: Duration = Duration::from_secs(1);

/// When what is written is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before an append at [`Level::Synced`] is answered.
    Sync,
    /// Later: every append is answered before, so a power loss can take what is younger than `sync_within`.
    Interval,
}

/// How the journal is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSettings {
    /// How large a segment is; a record that is larger gets one of its own.
    pub segment_bytes: u64,
    /// When what is written is made durable.
    pub durability: Durability,
    /// How long what is written stays unsynced when nobody waits for a sync.
    pub sync_within: Duration,
    /// Whether full segments are sealed in the background; those that are not are read through at every start.
    pub seal: bool,
    /// What is deleted of that which nobody needs, see `Journal::set_needed_from`.
    pub retention: Retention,
    /// The kind of record that every segment begins with: the newest one is written again in front of each, so that a
    /// reader of any of them knows it. `None` for no such kind.
    pub preface: Option<RecordKind>,
}

impl Default for JournalSettings {
    fn default() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES,
            durability: Durability::Sync,
            sync_within: SYNC_WITHIN,
            seal: true,
            retention: Retention::default(),
            preface: None,
        }
    }
}
