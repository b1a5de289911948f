//! The outcome of every event and notification, with the reason for each one that was not
//! delivered.
//!
//! Each event or notification that ends without delivery has a [`Reason`]: every drop, count or cut
//! makes an entry. Entries are outputs of the engine; other modules count and list them.
//!
//! Outcomes are counted from the new ledger entries, so the numbers always match the entries.

mod reason;

use std::sync::Arc;

use std::borrow::Cow;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr};

use crate::{
    event::{Seq, SessionId},
    exchange::InjectionId,
    notification::{
        InjectionPoint, Notification, NotificationId, Sink, SubscriberId, Tokens, repeat::Action,
    },
    sorted::SortedMap,
};

pub use reason::{FilteredBy, Reason, ReasonText, Sentence, of_word};

impl_as_str!(ThrottledBy, NotSent, Redelivered, ConfirmedBy);

/// The reason why an event was throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ThrottledBy {
    /// Its chain of causes is too long.
    Causes,
    /// Its source exceeded its rate.
    SourceRate,
}

impl ThrottledBy {
    /// The reason in words for the user.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Causes => "chain of causes too long",
            Self::SourceRate => "source over its rate",
        }
    }
}

/// One entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEntry {
    /// No subscriber selected the event.
    Unmatched {
        /// The event.
        seq: Seq,
    },
    /// The event was journaled but not dispatched.
    Throttled {
        /// The event.
        seq: Seq,
        /// The reason.
        by: ThrottledBy,
    },
    /// The event crashed the process, or its record cannot be read; the next start skipped it.
    Skipped {
        /// The event.
        seq: Seq,
    },
    /// The event became a row of an open batch.
    Batched {
        /// The event.
        seq: Seq,
        /// The batch's subscriber.
        subscriber: SubscriberId,
    },
    /// The event ended in this pipeline.
    EventEnded {
        /// The event.
        seq: Seq,
        /// The pipeline's subscriber.
        subscriber: SubscriberId,
        /// The reason.
        reason: Reason,
    },
    /// A batch became a notification.
    Created {
        /// The notification.
        notification: NotificationId,
        /// The subscriber that created it.
        subscriber: SubscriberId,
        /// The events of its rows.
        events: Vec<Seq>,
        /// When its batch was closed.
        created_at: Timestamp,
    },
    /// The notification waits for a session to open.
    Unclaimed {
        /// The notification.
        notification: NotificationId,
    },
    /// The notification is in a session's queue.
    Queued {
        /// The notification.
        notification: NotificationId,
        /// The queue's session.
        session: SessionId,
    },
    /// The notification was handed to a carrier, under a lease.
    Injected {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
        /// The injection that released it.
        injection: InjectionId,
        /// The injection point.
        point: InjectionPoint,
        /// The reason for a redelivery; `None` for the first delivery.
        redelivered: Option<Redelivered>,
    },
    /// The notification's injection has arrived.
    Confirmed {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
        /// The evidence.
        by: ConfirmedBy,
    },
    /// The notification returned to the queue, because its injection was not confirmed.
    Returned {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
    },
    /// The delivered notification is pending again, because the session lost its context.
    Recalled {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
    },
    /// The delivered notification waits for its repetition, or after the last one for an answer.
    Repeated {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
        /// The number of the repetition, from 1; `None` if there is no other.
        number: Option<u32>,
    },
    /// The notification was answered.
    Responded {
        /// The notification.
        notification: NotificationId,
        /// A session that has or had it.
        session: SessionId,
        /// The answer.
        action: Action,
        /// Who gave it.
        by: Arc<str>,
    },
    /// The notification ended without delivery to `session`, or to any session if `None`.
    NotificationEnded {
        /// The notification.
        notification: NotificationId,
        /// The session, if it reached one.
        session: Option<SessionId>,
        /// The reason.
        reason: Reason,
    },
    /// A notice to the user advanced by one step.
    ForUser {
        /// The subject.
        subject: Subject,
        /// The step.
        step: Step,
    },
}

/// The subject of a notice to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// An event with the notice.
    Event(Seq),
    /// A notification with the user as its audience.
    Notification(NotificationId),
}

/// A step in the delivery of a notice to the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Queued for this sink.
    Queued(Sink),
    /// The sink accepted it; with the id that the sink assigned.
    Sent(Sink, Option<String>),
    /// The sink did not accept it.
    Failed {
        /// The sink.
        sink: Sink,
        /// The error.
        error: String,
        /// When it is retried; `None` for no retry.
        retry_at: Option<Timestamp>,
    },
    /// Deferred for this sink until the quiet hours end.
    Waits {
        /// The sink.
        sink: Sink,
        /// When the quiet hours end.
        until: Timestamp,
    },
    /// It ended before this sink sent it.
    Ended(Sink, NotSent),
    /// It is sent to no sink, but counted in the next notice that is sent.
    Suppressed(Suppressed),
}

/// The reason why a notice to the user ended before a sink accepted it or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum NotSent {
    /// Too many notices were in progress, and it was the oldest.
    Evicted,
    /// Its session has ended, so no hook can show it.
    SessionGone,
    /// No hook that can show it ran in time.
    Expired,
    /// It is a question that expired or was answered elsewhere.
    QuestionOver,
    /// A newer one with the same key replaces it.
    Superseded,
    /// The sink takes no notices of its level or its category.
    Filtered,
}

impl NotSent {
    /// The reason in words for the user, after the name of the sink.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Evicted => "did not get it: too many notices were in progress",
            Self::SessionGone => "did not show it: the session ended before",
            Self::Expired => "did not show it: no hook that can show it was called in time",
            Self::QuestionOver => "no longer asks: the question was answered or has expired",
            Self::Superseded => "did not get it: a newer one replaces it",
            Self::Filtered => "does not take it: its level or its category is filtered out",
        }
    }
}

/// The reason why a notice to the user is sent to no sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumDiscriminants)]
#[strum_discriminants(
    name(SuppressedKind),
    vis(pub(self)),
    derive(Deserialize, IntoStaticStr),
    serde(rename_all = "snake_case"),
    strum(serialize_all = "snake_case")
)]
pub enum Suppressed {
    /// The same notice was sent at this time.
    Repeat {
        /// The time.
        sent_at: Timestamp,
    },
    /// The limit per minute is reached.
    RateLimited {
        /// When the limit allows the next one.
        retry_at: Timestamp,
    },
    /// No sink is configured.
    NoSink,
    /// No sink takes notices of its level and its category.
    Filtered,
}

impl Suppressed {
    /// The reason's text.
    pub fn as_str(self) -> &'static str {
        SuppressedKind::from(self).into()
    }

    /// The time of the reason, if it has one.
    pub const fn time(self) -> Option<Timestamp> {
        match self {
            Self::Repeat { sent_at: at } | Self::RateLimited { retry_at: at } => Some(at),
            Self::NoSink | Self::Filtered => None,
        }
    }

    /// The text for the user about the reason with this word, and the next step; `None` for an
    /// unknown word.
    ///
    /// Shape: `{detail}` is replaced by [`Suppressed::time`].
    pub fn sentence_of(word: &str) -> Option<Sentence> {
        of_word(word).map(SuppressedKind::sentence)
    }
}

impl SuppressedKind {
    const fn sentence(self) -> Sentence {
        match self {
            Self::Repeat => Sentence {
                end: "it repeats one from {detail}, and is counted in the next one",
                next: "nothing to do",
            },
            Self::RateLimited => Sentence {
                end: "too many within a minute, until {detail}; it is counted in the next one",
                next: "nothing to do",
            },
            Self::NoSink => Sentence {
                end: "no sink is configured",
                next: "name some in `default` of [sinks], then aside reload",
            },
            Self::Filtered => Sentence {
                end: "no sink takes its level and its category",
                next: "change `level` or `categories` of a sink in [sinks], then aside reload",
            },
        }
    }
}

/// The reason why a notification is redelivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Redelivered {
    /// Its arrival was not confirmed.
    Unconfirmed,
    /// It arrived, but its context was lost.
    ContextLost,
}

impl Redelivered {
    /// The reason in words for the user.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Unconfirmed => "it was not confirmed",
            Self::ContextLost => "its context was lost",
        }
    }
}

/// The proof that an injection arrived: that the model's input has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ConfirmedBy {
    /// The harness acknowledged it.
    Ack,
    /// Its id was seen in the agent's input.
    Seen,
    /// An exchange of another step of the turn: the model has answered since.
    Step,
    /// The end of the turn, or a later turn.
    Turn,
    /// Any later exchange, in a history that was written before the proofs were distinguished.
    LaterExchange,
}

impl ConfirmedBy {
    /// The proof in words for the user.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Ack => "the harness acknowledged it",
            Self::Seen => "its id is in the agent's input",
            Self::Step => "the model has answered since, in the same turn",
            Self::Turn => "the turn with it has ended",
            Self::LaterExchange => "the session continued after it",
        }
    }
}

/// The word of a [`Reason`], or of another outcome, under which it is counted; owned when it was read
/// from a snapshot.
pub type CountName = Cow<'static, str>;

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
    pub confirmed_by: SortedMap<CountName, u64>,
    /// Answers that were requested so often and for so long that their carrier probably never
    /// changes.
    pub fixed_carriers: u64,
    /// Estimated tokens of all injections, with the wrappers.
    pub injected_tokens: u64,
    /// Bytes of JSON of the payloads of the injected notifications; a redelivery adds none.
    pub raw_bytes: u64,
    /// Notifications with another outcome, by the text of the reason.
    pub notifications_ended: SortedMap<CountName, u64>,
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
    pub events_ended: SortedMap<CountName, u64>,
}

impl Tally {
    /// Counts one entry.
    pub fn count(&mut self, entry: &LedgerEntry) {
        match entry {
            LedgerEntry::Unmatched { .. } => self.unmatched += 1,
            LedgerEntry::Throttled { .. } => self.throttled += 1,
            LedgerEntry::Skipped { .. } => self.skipped += 1,
            LedgerEntry::Batched { subscriber, .. } => self.count_for(subscriber, |own| own.batched += 1),
            LedgerEntry::EventEnded { subscriber, reason, .. } => {
                self.count_for(subscriber, |own| {
                    *own.events_ended.get_or_default(Cow::Borrowed(reason.as_str())) += 1
                });
            }
            LedgerEntry::Created { subscriber, events, .. } => {
                self.created += 1;
                self.count_for(subscriber, |own| {
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
            | LedgerEntry::Repeated { .. }
            | LedgerEntry::Responded { .. }
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
            self.count_for(&notification.subscriber, |own| {
                own.injected_tokens += u64::from(notification.tokens.0);
                own.raw_bytes += raw_bytes;
            });
        }
    }

    /// Changes the counts of one subscriber; clones its id only for the first count.
    fn count_for(&mut self, id: &SubscriberId, count: impl FnOnce(&mut SubscriberTally)) {
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
    Repeated,
    Responded,
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
            Self::Repeated { .. } => EntryKind::Repeated,
            Self::Responded { .. } => EntryKind::Responded,
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

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use serde::de::DeserializeOwned;

    use super::{reason::tests::words_of, *};

    fn check<T: DeserializeOwned + Debug>(as_str: fn(T) -> &'static str) {
        for word in words_of::<T>() {
            assert_eq!(of_word(word).map(as_str), Some(*word));
        }
        assert!(of_word::<T>("another").is_none());
    }

    #[test]
    fn every_word_is_read_as_it_is_written() {
        check(EntryKind::as_str);
        check(ThrottledBy::as_str);
        check(NotSent::as_str);
        check(Redelivered::as_str);
        check(ConfirmedBy::as_str);
        check::<SuppressedKind>(Into::into);
    }
}
