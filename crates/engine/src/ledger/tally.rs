//! Counts of the outcomes of events and notifications, in all and per subscriber; and the texts of
//! the kinds of ledger entries, as used by the history and the API.
//!
//! Outcomes are counted from the new ledger entries, so the numbers always match the entries.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{LedgerEntry, Step};
use crate::{
    notification::{Notification, SubscriberId, Tokens},
    sorted::SortedMap,
};

/// The text of a [`super::Reason`]; owned when it was read from a snapshot.
pub type Word = Cow<'static, str>;

/// The counts since the journal began.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// Events received.
    pub events: u64,
    /// Events that no subscriber selected.
    pub unmatched: u64,
    /// Events not dispatched because their chain of causes is too long or their source exceeded its
    /// rate.
    pub throttled: u64,
    /// Events skipped at a start.
    pub skipped: u64,
    /// Created notifications.
    pub created: u64,
    /// Notifications passed to a carrier, once per session and release.
    pub injected: u64,
    /// Notifications that have arrived, once per session.
    pub confirmed: u64,
    /// Those, by the word of their proof.
    pub confirmed_by: SortedMap<Word, u64>,
    /// Answers that were requested so often and for so long that their carrier probably never
    /// changes.
    pub fixed_carriers: u64,
    /// Estimated tokens of all injections, with the wrappers.
    pub injected_tokens: u64,
    /// Bytes of JSON of the payloads of the injected notifications; a redelivery adds none.
    pub raw_bytes: u64,
    /// Notifications with another outcome, by the text of the reason.
    pub notifications_ended: SortedMap<Word, u64>,
    /// Each subscriber's own counts.
    pub subscribers: SortedMap<SubscriberId, SubscriberTally>,
}

/// The counts of one subscriber.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SubscriberTally {
    /// Events that waited in an open batch.
    pub batched: u64,
    /// Events in the rows of its notifications.
    pub rows: u64,
    /// Created notifications.
    pub created: u64,
    /// Estimated tokens of its notifications in all injections, without the wrappers.
    pub injected_tokens: u64,
    /// Bytes of JSON of the payloads of these; a redelivery adds none.
    pub raw_bytes: u64,
    /// Events with another outcome, by the text of the reason.
    pub events_ended: SortedMap<Word, u64>,
}

impl Tally {
    /// Counts one entry.
    pub fn count(&mut self, entry: &LedgerEntry) {
        match entry {
            LedgerEntry::Unmatched { .. } => self.unmatched += 1,
            LedgerEntry::Throttled { .. } => self.throttled += 1,
            LedgerEntry::Skipped { .. } => self.skipped += 1,
            LedgerEntry::Batched { subscriber, .. } => self.of(subscriber, |own| own.batched += 1),
            LedgerEntry::EventEnded { subscriber, reason, .. } => {
                self.of(subscriber, |own| {
                    *own.events_ended.get_or_default(Cow::Borrowed(reason.as_str())) += 1
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
            LedgerEntry::Confirmed { by, .. } => {
                self.confirmed += 1;
                *self.confirmed_by.get_or_default(Cow::Borrowed(by.as_str())) += 1;
            }
            LedgerEntry::NotificationEnded { reason, .. } => {
                *self.notifications_ended.get_or_default(Cow::Borrowed(reason.as_str())) += 1;
            }
            LedgerEntry::Unclaimed { .. }
            | LedgerEntry::Queued { .. }
            | LedgerEntry::Returned { .. }
            | LedgerEntry::Recalled { .. }
            | LedgerEntry::ForUser { .. } => {}
        }
    }

    /// Counts an injection of `tokens` with its wrapper, and its notifications, each with whether
    /// it is redelivered. A redelivery adds no bytes of payloads.
    pub fn count_injection<'n>(
        &mut self,
        tokens: Tokens,
        notifications: impl Iterator<Item = (&'n Notification, bool)>,
    ) {
        self.injected_tokens += u64::from(tokens.0);
        for (notification, is_redelivered) in notifications {
            let raw_bytes = if is_redelivered { 0 } else { notification.raw_bytes };
            self.raw_bytes += raw_bytes;
            self.of(&notification.subscriber, |own| {
                own.injected_tokens += u64::from(notification.tokens.0);
                own.raw_bytes += raw_bytes;
            });
        }
    }

    /// Changes the counts of one subscriber; clones its id only for the first count.
    fn of(&mut self, id: &SubscriberId, count: impl FnOnce(&mut SubscriberTally)) {
        match self.subscribers.get_mut(id) {
            Some(own) => count(own),
            None => count(self.subscribers.get_or_default(id.clone())),
        }
    }
}

impl_as_str!(EntryKind);

/// The kind of a ledger entry; each step of a notice to the user is a separate kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
#[expect(missing_docs, reason = "`LedgerEntry` and `Step` describe them")]
pub enum EntryKind {
    Unmatched,
    Throttled,
    Skipped,
    Batched,
    EventEnded,
    Created,
    Unclaimed,
    Queued,
    Injected,
    Confirmed,
    Returned,
    Recalled,
    NotificationEnded,
    UserQueued,
    UserSent,
    UserFailed,
    UserWaits,
    UserEnded,
    UserSuppressed,
}

impl LedgerEntry {
    /// The entry's kind.
    pub const fn kind(&self) -> EntryKind {
        match self {
            Self::Unmatched { .. } => EntryKind::Unmatched,
            Self::Throttled { .. } => EntryKind::Throttled,
            Self::Skipped { .. } => EntryKind::Skipped,
            Self::Batched { .. } => EntryKind::Batched,
            Self::EventEnded { .. } => EntryKind::EventEnded,
            Self::Created { .. } => EntryKind::Created,
            Self::Unclaimed { .. } => EntryKind::Unclaimed,
            Self::Queued { .. } => EntryKind::Queued,
            Self::Injected { .. } => EntryKind::Injected,
            Self::Confirmed { .. } => EntryKind::Confirmed,
            Self::Returned { .. } => EntryKind::Returned,
            Self::Recalled { .. } => EntryKind::Recalled,
            Self::NotificationEnded { .. } => EntryKind::NotificationEnded,
            Self::ForUser { step, .. } => match step {
                Step::Queued(_) => EntryKind::UserQueued,
                Step::Sent(..) => EntryKind::UserSent,
                Step::Failed { .. } => EntryKind::UserFailed,
                Step::Waits { .. } => EntryKind::UserWaits,
                Step::Ended(..) => EntryKind::UserEnded,
                Step::Suppressed(_) => EntryKind::UserSuppressed,
            },
        }
    }
}
