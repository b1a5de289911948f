//! The settings of a journal, and which of its oldest segments they delete.

use std::time::Duration;

use crate::{
    Seq,
    log::record::{NameOf, RecordKind},
    time::Timestamp,
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

/// The limits of the stored journal; the last segment is always kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// The largest age of a segment's newest record.
    pub age: Option<Duration>,
    /// The largest size of all segments on the disk, in bytes.
    pub bytes: Option<u64>,
}

/// A segment that is not the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// The first record of the segment after it.
    pub(crate) following: Seq,
    /// The time of its last record.
    pub(crate) time: Timestamp,
    /// Its size on the disk.
    pub(crate) bytes: u64,
}

/// Time between two segments that are deleted for their age.
///
/// A wrong clock makes all segments old at once. With this interval it costs one segment, and the
/// next one only if the clock is still wrong an hour later. At 64 MiB a segment, age alone deletes
/// at most 1.5 GiB a day; a journal that grows faster needs a size limit.
const AGE_INTERVAL: Duration = Duration::from_secs(3_600);

/// The records that may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Forgettable {
    /// All records before this one, oldest first; [`Seq::ZERO`] for nothing.
    pub(crate) before: Seq,
    /// Whether a segment is included only for its age.
    pub(crate) by_age: bool,
}

impl Retention {
    /// Returns the records that may be deleted. Pure: takes segments and time.
    ///
    /// `total` is the size of all segments, `needed` the first record that must be kept, `aged_at`
    /// the last time a segment was deleted for its age.
    pub(crate) fn forgettable(
        &self,
        full: &[Full],
        total: u64,
        needed: Seq,
        now: Timestamp,
        aged_at: Option<Timestamp>,
    ) -> Forgettable {
        let (mut total, mut forgettable) = (total, Forgettable::default());
        let is_due = aged_at.is_none_or(|aged_at| now.since(aged_at) >= AGE_INTERVAL);
        for segment in full.iter().take_while(|segment| segment.following <= needed) {
            let is_over = self.bytes.is_some_and(|bytes| total > bytes);
            let may_age = is_due && !forgettable.by_age;
            let is_old = may_age && self.age.is_some_and(|age| now.since(segment.time) > age);
            if !is_old && !is_over {
                break;
            }
            total = total.saturating_sub(segment.bytes);
            forgettable.before = segment.following;
            forgettable.by_age |= !is_over;
        }
        forgettable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_deletes_old_or_excess_unneeded_segments() {
        let at = |following, secs: u64, bytes| Full {
            following: Seq(following),
            time: Timestamp::from_millis(secs * 1_000),
            bytes,
        };
        let full = [at(10, 1, 50), at(20, 2, 60), at(30, 5, 70)];
        let now = Timestamp::from_millis(12_000);
        let age = |secs| Retention { age: Some(Duration::from_secs(secs)), bytes: None };
        let bytes = |bytes| Retention { age: None, bytes: Some(bytes) };
        let both = Retention { age: Some(Duration::from_secs(10)), bytes: Some(150) };
        for (retention, needed, before) in [
            (Retention::default(), 99, 0),
            (age(11), 99, 0),
            (age(9), 99, 10),
            (age(0), 99, 10),
            (bytes(200), 99, 0),
            (bytes(199), 99, 10),
            (bytes(149), 99, 20),
            (bytes(0), 99, 30),
            (bytes(0), 29, 20),
            (bytes(0), 1, 0),
            (both, 99, 10),
        ] {
            let found = retention.forgettable(&full, 200, Seq(needed), now, None);
            assert_eq!(found.before, Seq(before), "{retention:?}, needed {needed}");
        }
    }

    #[test]
    fn clock_jump_deletes_one_segment_per_hour() {
        let hour = 3_600_000;
        let year = 365 * 24 * hour;
        let full: Vec<Full> = (1..=4)
            .map(|at| Full { following: Seq(10 * at), time: Timestamp::from_millis(at), bytes: 100 })
            .collect();
        let retention = Retention { age: Some(Duration::from_secs(30 * 86_400)), bytes: None };
        let found = |full: &[Full], now: u64, aged_at: Option<u64>| {
            let aged_at = aged_at.map(Timestamp::from_millis);
            retention.forgettable(full, 400, Seq(99), Timestamp::from_millis(now), aged_at)
        };
        let one = |before| Forgettable { before: Seq(before), by_age: true };
        assert_eq!(found(&full, year, None), one(10));
        assert_eq!(found(&full[1..], year + 4_000, Some(year)), Forgettable::default());
        assert_eq!(found(&full[1..], year + hour - 1, Some(year)), Forgettable::default());
        assert_eq!(found(&full[1..], year + hour, Some(year)), one(20));
    }
}
