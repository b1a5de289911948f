//! How many events and notifications came to which end, in all and for each subscriber.
//!
//! Counted from the ledger's entries as they are made, so the numbers and the entries cannot disagree.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, Serialize};

use crate::{injector::Fitted, ledger::LedgerEntry, notification::SubscriberId};

/// The word of a [`crate::ledger::Reason`], also of one that only an earlier version knew.
pub type Word = Cow<'static, str>;

/// The counts since the journal began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Tally {
    /// Events taken in.
    pub events: u64,
    /// Events that no subscriber asked for.
    pub unmatched: u64,
    /// Events that were not dispatched because their chain of causes is too long or their source was over its rate.
    pub held_back: u64,
    /// Notifications made.
    pub created: u64,
    /// Notifications handed to a carrier; once for each session and release.
    pub injected: u64,
    /// Notifications known to have arrived; once for each session.
    pub confirmed: u64,
    /// Answers that were asked for so often and for so long that their carrier seems never to change.
    pub fixed_carriers: u64,
    /// Estimated tokens of all injections, wrappers included.
    pub injected_tokens: u64,
    /// Bytes of JSON of the payloads that the injected notifications stand for; a redelivery adds none.
    pub raw_bytes: u64,
    /// Notifications that ended otherwise, by the word of the reason.
    pub notifications_ended: BTreeMap<Word, u64>,
    /// Each subscriber's own counts.
    pub subscribers: BTreeMap<SubscriberId, SubscriberTally>,
}

/// The counts of one subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriberTally {
    /// Events that waited in an open batch.
    pub batched: u64,
    /// Events behind the rows of its notifications.
    pub rows: u64,
    /// Notifications made.
    pub created: u64,
    /// Estimated tokens of its notifications in all injections, without the wrappers.
    pub injected_tokens: u64,
    /// Bytes of JSON of the payloads that these stand for; a redelivery adds none.
    pub raw_bytes: u64,
    /// Events that ended otherwise, by the word of the reason.
    pub events_ended: BTreeMap<Word, u64>,
}

impl Tally {
    /// Counts one entry.
    pub(super) fn count(&mut self, entry: &LedgerEntry) {
        match entry {
            LedgerEntry::Unmatched { .. } => self.unmatched += 1,
            LedgerEntry::HeldBack { .. } => self.held_back += 1,
            LedgerEntry::Batched { subscriber, .. } => self.of(subscriber, |own| own.batched += 1),
            LedgerEntry::EventEnded { subscriber, reason, .. } => {
                self.of(subscriber, |own| {
                    *own.events_ended.entry(Cow::Borrowed(reason.as_str())).or_default() += 1
                });
            }
            LedgerEntry::Created { subscriber, events, .. } => {
                self.created += 1;
                self.of(subscriber, |own| {
                    own.created += 1;
                    own.rows += events.len() as u64;
                });
            }
            LedgerEntry::Injected { .. } => self.injected += 1,
            LedgerEntry::Confirmed { .. } => self.confirmed += 1,
            LedgerEntry::NotificationEnded { reason, .. } => {
                *self.notifications_ended.entry(Cow::Borrowed(reason.as_str())).or_default() += 1;
            }
            LedgerEntry::Unclaimed { .. }
            | LedgerEntry::Queued { .. }
            | LedgerEntry::Returned { .. }
            | LedgerEntry::Recalled { .. }
            | LedgerEntry::ForUser { .. } => {}
        }
    }

    /// Counts what an injection costs, and what it stands for.
    pub(super) fn count_injection(&mut self, fitted: &Fitted) {
        self.injected_tokens += u64::from(fitted.tokens.0);
        for candidate in &fitted.chosen {
            let notification = &candidate.notification;
            let raw_bytes = if candidate.redelivered.is_some() { 0 } else { notification.raw_bytes };
            self.raw_bytes += raw_bytes;
            self.of(&notification.subscriber, |own| {
                own.injected_tokens += u64::from(notification.tokens.0);
                own.raw_bytes += raw_bytes;
            });
        }
    }

    /// Changes the counts of one subscriber; its name is shared only when it is counted for the first time.
    fn of(&mut self, id: &SubscriberId, count: impl FnOnce(&mut SubscriberTally)) {
        match self.subscribers.get_mut(id) {
            Some(own) => count(own),
            None => count(self.subscribers.entry(id.clone()).or_default()),
        }
    }
}
