//! What became of the newest events and notifications, for whoever asks.
//!
//! Bounded by [`EVENTS_MAX`] events that a subscriber asked for; of older ones the journal tells that they happened, not what
//! became of them. Events that nobody asked for take no room: among the newest, those without a trace are they.

use std::collections::{BTreeMap, VecDeque};

use crate::{event::Seq, ledger::LedgerEntry, notification::NotificationId};

/// Most events that are remembered; a few megabytes.
const EVENTS_MAX: usize = 10_000;
/// Most notifications that are remembered.
const NOTIFICATIONS_MAX: usize = 10_000;
/// Most entries of notifications that are remembered, some 20 MB: one that concerns every session has a few for each of them.
const NOTIFICATION_ENTRIES_MAX: usize = 100_000;

/// The newest entries of the ledger, by what they are about.
#[derive(Debug, Default)]
pub(super) struct History {
    events: BTreeMap<Seq, Vec<LedgerEntry>>,
    /// The newest event whose entries had to go.
    forgotten: Seq,
    notifications: BTreeMap<NotificationId, Vec<LedgerEntry>>,
    notification_order: VecDeque<NotificationId>,
    /// How many entries there are in `notifications`.
    notification_entries: usize,
}

impl History {
    /// Knows nothing of the records up to `seq`, as those of a snapshot.
    pub(super) fn after(seq: Seq) -> Self {
        Self { forgotten: seq, ..Self::default() }
    }

    /// Keeps an entry with what it is about.
    pub(super) fn keep(&mut self, entry: LedgerEntry) {
        match &entry {
            LedgerEntry::Unmatched { .. } => {}
            LedgerEntry::HeldBack { seq, .. }
            | LedgerEntry::Batched { seq, .. }
            | LedgerEntry::EventEnded { seq, .. } => self.keep_event(*seq, entry),
            LedgerEntry::Created { notification, events, .. } => {
                let notification = notification.clone();
                for seq in events {
                    self.keep_event(*seq, entry.clone());
                }
                self.keep_notification(notification, entry);
            }
            LedgerEntry::Unclaimed { notification }
            | LedgerEntry::Queued { notification, .. }
            | LedgerEntry::Injected { notification, .. }
            | LedgerEntry::Confirmed { notification, .. }
            | LedgerEntry::Returned { notification, .. }
            | LedgerEntry::Recalled { notification, .. }
            | LedgerEntry::NotificationEnded { notification, .. } => {
                let notification = notification.clone();
                self.keep_notification(notification, entry);
            }
        }
    }

    /// What became of an event, and of the notifications it is a part of, in the order in which it happened.
    pub(super) fn of_event(&self, seq: Seq) -> Vec<LedgerEntry> {
        let Some(own) = self.events.get(&seq) else {
            return if seq > self.forgotten { vec![LedgerEntry::Unmatched { seq }] } else { Vec::new() };
        };
        own.iter()
            .flat_map(|entry| {
                if let LedgerEntry::Created { notification, .. } = entry {
                    return self.of_notification(notification);
                }
                vec![entry.clone()]
            })
            .collect()
    }

    fn of_notification(&self, id: &NotificationId) -> Vec<LedgerEntry> {
        self.notifications.get(id).cloned().unwrap_or_default()
    }

    fn keep_event(&mut self, seq: Seq, entry: LedgerEntry) {
        // The batch of an event may close after the event had to go.
        if seq <= self.forgotten {
            return;
        }
        self.events.entry(seq).or_default().push(entry);
        if self.events.len() > EVENTS_MAX
            && let Some((oldest, _)) = self.events.pop_first()
        {
            self.forgotten = oldest;
        }
    }

    fn keep_notification(&mut self, id: NotificationId, entry: LedgerEntry) {
        self.notification_entries += 1;
        if let Some(entries) = self.notifications.get_mut(&id) {
            entries.push(entry);
        } else {
            self.notification_order.push_back(id.clone());
            self.notifications.insert(id, vec![entry]);
        }
        while self.notifications.len() > NOTIFICATIONS_MAX
            || self.notification_entries > NOTIFICATION_ENTRIES_MAX
        {
            let Some(oldest) = self.notification_order.pop_front() else { return };
            let forgotten = self.notifications.remove(&oldest).map_or(0, |entries| entries.len());
            self.notification_entries -= forgotten;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::SessionId, ledger::Reason, notification::SubscriberId, time::Timestamp};

    #[test]
    fn an_event_is_followed_into_its_notification() {
        let mut history = History::default();
        let subscriber = SubscriberId::new("tool_failure");
        let notification = NotificationId::new("n1");
        let batched = LedgerEntry::Batched { seq: Seq(7), subscriber: subscriber.clone() };
        let created = LedgerEntry::Created {
            notification: notification.clone(),
            subscriber,
            events: vec![Seq(7)],
            created_at: Timestamp::ZERO,
        };
        let queued = LedgerEntry::Queued { notification, session: SessionId::new("s1") };
        for entry in [&batched, &created, &queued] {
            history.keep(entry.clone());
        }
        assert_eq!(history.of_event(Seq(7)), [batched, created, queued]);
        assert_eq!(history.of_event(Seq(8)), [LedgerEntry::Unmatched { seq: Seq(8) }]);
    }

    #[test]
    fn notifications_for_many_sessions_are_fewer() {
        let mut history = History::default();
        for (index, session) in (0..3).flat_map(|index| (0..40_000).map(move |session| (index, session))) {
            let notification = NotificationId::new(&format!("n{index}"));
            history.keep(LedgerEntry::Queued { notification, session: SessionId::new(&session.to_string()) });
        }
        let kept = ["n0", "n1", "n2"].map(|id| history.of_notification(&NotificationId::new(id)).len());
        assert_eq!(kept, [0, 40_000, 40_000]);
        assert_eq!(history.notification_entries, 80_000);
    }

    #[test]
    fn what_becomes_of_an_event_that_had_to_go_brings_nothing_back() {
        let mut history = History::default();
        let subscriber = SubscriberId::new("tool_failure");
        for seq in (1..).map(Seq).take(EVENTS_MAX + 2) {
            history.keep(LedgerEntry::Batched { seq, subscriber: subscriber.clone() });
        }
        history.keep(LedgerEntry::EventEnded { seq: Seq(1), subscriber, reason: Reason::SubscriberOff });
        assert_eq!(history.of_event(Seq(1)), []);
        assert_eq!(history.of_event(Seq(2)), []);
        assert_eq!(history.of_event(Seq(3)).len(), 1);
    }

    #[test]
    fn of_events_that_had_to_go_nothing_is_claimed() {
        let mut history = History::default();
        let subscriber = SubscriberId::new("tool_failure");
        for seq in (1..).map(Seq).take(EVENTS_MAX + 1) {
            history.keep(LedgerEntry::Batched { seq, subscriber: subscriber.clone() });
        }
        assert_eq!(history.of_event(Seq(1)), []);
        assert_eq!(history.of_event(Seq(2)).len(), 1);
    }
}
