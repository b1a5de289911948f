//! Which of the oldest segments nobody needs any more. Pure: what is kept, and the time, in; a position out.

use std::time::Duration;

use crate::{event::Seq, time::Timestamp};

/// How much of the journal is kept; the last segment always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Retention {
    /// How old the newest record of a segment may be.
    pub age: Option<Duration>,
    /// How much of the disk all segments together may take up, in bytes.
    pub bytes: Option<u64>,
}

/// A segment that another one follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full {
    /// The first record of the segment after it.
    pub(super) following: Seq,
    /// The time of its last record.
    pub(super) time: Timestamp,
    /// How much of the disk it takes up.
    pub(super) bytes: u64,
}

impl Retention {
    /// Before which record everything may go, oldest first; [`Seq::ZERO`] when nothing may.
    ///
    /// `total` is what all segments take up, `needed` the first record that must stay.
    pub(super) fn forgettable(&self, full: &[Full], total: u64, needed: Seq, now: Timestamp) -> Seq {
        let (mut total, mut before) = (total, Seq::ZERO);
        for segment in full.iter().take_while(|segment| segment.following <= needed) {
            let is_old = self.age.is_some_and(|age| now.since(segment.time) > age);
            let is_over = self.bytes.is_some_and(|bytes| total > bytes);
            if !is_old && !is_over {
                break;
            }
            total = total.saturating_sub(segment.bytes);
            before = segment.following;
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_while_they_are_too_old_or_too_much_and_not_needed() {
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
            (age(9), 99, 20),
            (age(0), 99, 30),
            (bytes(200), 99, 0),
            (bytes(199), 99, 10),
            (bytes(149), 99, 20),
            (bytes(0), 99, 30),
            (bytes(0), 29, 20),
            (bytes(0), 1, 0),
            (both, 99, 10),
        ] {
            let found = retention.forgettable(&full, 200, Seq(needed), now);
            assert_eq!(found, Seq(before), "{retention:?}, needed {needed}");
        }
    }
}
