//! The settings of a journal.

use std::time::Duration;

use crate::{
    log::record::{NameOf, RecordKind},
    maintenance::retention::Retention,
};

/// The default size of a segment, in bytes.
///
/// Source: retention and sealing work by segment; at 400 bytes an event this is about 160,000 of
/// them.
pub const SEGMENT_BYTES: u64 = 64 << 20;

/// The default for how long a record stays unsynced if no caller waits for it. A power loss can
/// lose the exchanges of this time.
///
/// Source: a sync takes 0.1 to 5 ms of a background thread, so one a second is no load; Redis'
/// `everysec` is the same.
pub const SYNC_WITHIN: Duration = Duration::from_secs(1);

/// When written records are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Before an append at [`Level::Synced`](crate::Level::Synced) is answered.
    Sync,
    /// At most `sync_within` after the write. Appends are answered before the sync, so a power loss
    /// can lose records younger than that.
    Interval,
}

/// How the journal is kept.
#[derive(Debug, Clone, Copy)]
pub struct JournalSettings {
    /// The size of a segment; a larger record gets a segment of its own.
    pub segment_bytes: u64,
    /// When written records are made durable.
    pub durability: Durability,
    /// How long a record that nobody waits for stays unsynced.
    pub sync_within: Duration,
    /// Whether full segments are sealed in the background.
    pub seal: bool,
    /// What to delete of records that are not needed, see `Journal::set_needed_from`.
    pub retention: Retention,
    /// The kind of record that every segment begins with: the newest one is written again at the
    /// beginning, so that a reader of any segment knows it. `None` for no such kind.
    pub preface: Option<RecordKind>,
    /// The names by which `Journal::find_named` finds records. `None` if it finds none.
    pub names: Option<NameOf>,
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
            names: None,
        }
    }
}
