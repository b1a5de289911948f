//! One row of a batch: an event and its count; and deferred counts: numbers of events without a row,
//! added to the next notification.
//!
//! Repeats of delivered rows and rate-limited events are counted for each scope, until a
//! notification of the same scope takes the counts. Each of these events has also ended with its
//! own reason, so a lost count is a lost detail, not a lost event.

use std::sync::Arc;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, FieldPath, Scope, Seq},
    hold::Hold,
    ledger::Reason,
    pipeline::{aged::Aged, key::KeyWriter, threshold::Reached},
    snapshot,
};

/// An event in a batch, with its repeats.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The journal position of the event that opened the row.
    pub seq: Seq,
    /// The shown event: the first, or the newest of its repeats.
    #[serde(with = "snapshot::shared")]
    pub event: Arc<Event>,
    /// The count within the dedupe window; 1 without repeats.
    pub repeats: u32,
    /// The level that the event reached; `None` if its subscriber has no threshold, or the event is
    /// critical and reached none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Box<Reached>>,
    /// What suppresses it; only of a condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<Box<Hold>>,
}

/// The reason for which a suppressed occurrence ends.
pub(crate) fn reason(hold: &Hold) -> Reason {
    match hold {
        Hold::Silenced { by, .. } => Reason::Silenced { by: *by },
        Hold::Inhibited { by, .. } => Reason::Inhibited { by: *by },
        Hold::Quiet { .. } | Hold::Deferred { .. } | Hold::Snoozed { .. } | Hold::Budget { .. } => {
            unreachable!("these suppress nothing")
        }
    }
}

/// The key of the batch of an event. Suppressed events have batches of their own, and so have those
/// that delay themselves: nothing waits for a delay of another event.
pub(crate) fn group<'k>(
    key: &'k mut KeyWriter,
    group_by: &[FieldPath],
    event: &Event,
    suppressed: Option<&Hold>,
) -> &'k [u8] {
    let mut writer = key.start().fields(group_by, event);
    match suppressed {
        Some(Hold::Silenced { by, .. }) => writer = writer.word(b"silenced").text(by.as_str()),
        Some(Hold::Inhibited { by, .. }) => writer = writer.word(b"inhibited").text(&by.to_string()),
        Some(Hold::Quiet { .. } | Hold::Deferred { .. } | Hold::Snoozed { .. } | Hold::Budget { .. })
        | None => {}
    }
    if let Some(delay) = &event.deliver_after {
        writer = writer.word(b"deliver_after").text(delay);
    }
    writer.finish()
}

/// Most scopes with counts, about 150 bytes each. When it is reached, the least recently raised
/// counts are evicted.
const DEFERRED_SCOPES_MAX: usize = 1_024;

/// Counts of events without a row of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct DeferredCounts {
    /// Repeats of events whose row was already in a notification.
    pub(crate) repeats: u32,
    /// Rate-limited events, with their repeats.
    pub(crate) suppressed: u32,
}

/// The counts of one subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct DeferredByScope {
    scopes: Aged<Scope, DeferredCounts>,
}

impl DeferredByScope {
    /// Adds `more` to the counts of `scope`.
    pub(crate) fn add(&mut self, scope: &Scope, more: DeferredCounts, now: Timestamp) {
        let deferred = self.scopes.use_or_default(scope, now, DEFERRED_SCOPES_MAX);
        deferred.repeats = deferred.repeats.saturating_add(more.repeats);
        deferred.suppressed = deferred.suppressed.saturating_add(more.suppressed);
    }

    /// Takes the counts for the next notification of `scope`.
    pub(crate) fn take(&mut self, scope: &Scope) -> DeferredCounts {
        self.scopes.remove(scope).unwrap_or_default()
    }

    /// The counts for the next notification of `scope`.
    #[cfg(test)]
    pub(crate) fn peek(&self, scope: &Scope) -> DeferredCounts {
        self.scopes.get(scope).copied().unwrap_or_default()
    }
}

/// Size of the payloads represented by a notification, in bytes.
pub(crate) fn raw_bytes(rows: &[Row], deferred: DeferredCounts) -> u64 {
    let length = |row: &Row| row.event.payload.as_str().len() as u64;
    let shown: u64 = rows.iter().map(|row| length(row) * u64::from(row.repeats)).sum();
    let mean = rows.iter().map(length).sum::<u64>() / (rows.len() as u64).max(1);
    shown + mean * (u64::from(deferred.repeats) + u64::from(deferred.suppressed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::SessionId;

    fn scope(id: usize) -> Scope {
        Scope::Session(SessionId::new(&id.to_string()))
    }

    #[test]
    fn deferred_counts_accumulate_and_leave_once_per_scope() {
        let mut deferred = DeferredByScope::default();
        let now = Timestamp::from_millis(1);
        deferred.add(&scope(1), DeferredCounts { repeats: 2, suppressed: 0 }, now);
        deferred.add(&scope(1), DeferredCounts { repeats: 1, suppressed: 5 }, now);
        deferred.add(&scope(2), DeferredCounts { repeats: 7, suppressed: 0 }, now);
        assert_eq!(deferred.take(&scope(1)), DeferredCounts { repeats: 3, suppressed: 5 });
        assert_eq!(deferred.take(&scope(1)), DeferredCounts::default());
        assert_eq!(deferred.take(&scope(2)), DeferredCounts { repeats: 7, suppressed: 0 });
    }

    #[test]
    fn the_counts_raised_longest_ago_make_room() {
        let mut deferred = DeferredByScope::default();
        let one = DeferredCounts { repeats: 1, suppressed: 0 };
        for id in 0..=DEFERRED_SCOPES_MAX {
            deferred.add(&scope(id), one, Timestamp::from_millis(u64::try_from(id).expect("small")));
        }
        assert_eq!(deferred.scopes.len(), DEFERRED_SCOPES_MAX);
        assert_eq!((deferred.take(&scope(0)), deferred.take(&scope(1))), (DeferredCounts::default(), one));
    }
}
