//! What became of every event and notification, and why something was not delivered.
//!
//! Nothing ends without a [`Reason`]: whoever drops, counts or cuts something says so with an entry. Entries are outputs of
//! the engine; counting and listing them is for whoever keeps them.

use serde::{Deserialize, Serialize};

use crate::{
    event::{Seq, SessionId},
    notification::{InjectionPoint, NotificationId, Sink, SubscriberId},
    time::Timestamp,
};

/// Why an event or a notification was not delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Its type matched, but its source, severity or `where` did not.
    FilteredOut(FilteredBy),
    /// It repeats an event inside the dedupe window and is counted there.
    Duplicate {
        /// The event that it repeats.
        of: Seq,
    },
    /// It was over the subscriber's rate and is counted in the next notification.
    RateLimited {
        /// When the rate allows the next one.
        retry_at: Timestamp,
    },
    /// It had its time to live and nobody took it.
    Expired,
    /// The session's queue was full and everything in it was at least as important.
    QueueOverflow,
    /// Its session ended before it was delivered.
    SessionGone,
    /// It was released, but nothing showed that it arrived, and it is not important enough to repeat.
    Uncertain,
    /// A subscriber for it exists but is switched off.
    SubscriberOff,
    /// The user did not want it.
    Dismissed,
    /// A newer one about the same state takes its place.
    Superseded,
    /// What it tells of holds no longer.
    Withdrawn,
    /// It resolves what its subscriber tells of, and is nothing to tell itself.
    Resolves,
    /// A watch of the session says what happened.
    Watched,
    /// What was said with a prompt after a pause says it.
    SummedUp,
    /// The session knows the files as they are.
    Known,
}

impl Reason {
    /// Every word that [`Reason::as_str`] gives.
    pub const WORDS: [&'static str; 15] = [
        "filtered",
        "duplicate",
        "over_rate",
        "expired",
        "queue_overflow",
        "session_gone",
        "uncertain",
        "subscriber_off",
        "dismissed",
        "superseded",
        "withdrawn",
        "resolves",
        "watched",
        "summed_up",
        "known",
    ];

    /// The word under which this reason is counted.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::FilteredOut(_) => "filtered",
            Self::Duplicate { .. } => "duplicate",
            Self::RateLimited { .. } => "over_rate",
            Self::Expired => "expired",
            Self::QueueOverflow => "queue_overflow",
            Self::SessionGone => "session_gone",
            Self::Uncertain => "uncertain",
            Self::SubscriberOff => "subscriber_off",
            Self::Dismissed => "dismissed",
            Self::Superseded => "superseded",
            Self::Withdrawn => "withdrawn",
            Self::Resolves => "resolves",
            Self::Watched => "watched",
            Self::SummedUp => "summed_up",
            Self::Known => "known",
        }
    }
}

/// Which filter an event did not pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FilteredBy {
    /// `sources`.
    Source,
    /// `severity_filter`.
    Severity,
    /// `where` was false.
    Where,
    /// `where` could not be evaluated.
    WhereFailed,
}

/// Why an event was not dispatched at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeldBackBy {
    /// Its chain of causes is too long.
    Causes,
    /// Its source was over its rate.
    SourceRate,
    /// The process died of it, or its record cannot be read; it was skipped by the start that followed.
    Unreadable,
}

impl HeldBackBy {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Causes => "causes",
            Self::SourceRate => "source_rate",
            Self::Unreadable => "unreadable",
        }
    }

    /// The same for people.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Causes => "chain of causes too long",
            Self::SourceRate => "source over its rate",
            Self::Unreadable => "its record could not be followed, and a start skipped it",
        }
    }
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LedgerEntry {
    /// No subscriber asked for the event.
    Unmatched {
        /// The event.
        seq: Seq,
    },
    /// The event was journaled but not dispatched.
    HeldBack {
        /// The event.
        seq: Seq,
        /// What it was too much of.
        by: HeldBackBy,
    },
    /// The event became a row of an open batch.
    Batched {
        /// The event.
        seq: Seq,
        /// Whose batch.
        subscriber: SubscriberId,
    },
    /// The event ended in this pipeline.
    EventEnded {
        /// The event.
        seq: Seq,
        /// Whose pipeline.
        subscriber: SubscriberId,
        /// Why.
        reason: Reason,
    },
    /// A batch became a notification.
    Created {
        /// The notification.
        notification: NotificationId,
        /// Who made it.
        subscriber: SubscriberId,
        /// The events behind its rows.
        events: Vec<Seq>,
        /// When its batch closed.
        created_at: Timestamp,
    },
    /// The notification waits for a session that is not open yet.
    Unclaimed {
        /// The notification.
        notification: NotificationId,
    },
    /// The notification is in a session's queue.
    Queued {
        /// The notification.
        notification: NotificationId,
        /// Whose queue.
        session: SessionId,
    },
    /// The notification was handed to a carrier, under a lease.
    Injected {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
        /// The injection it left with.
        injection: String,
        /// Where.
        point: InjectionPoint,
        /// Why it was released once more; `None` the first time.
        redelivered: Option<Redelivered>,
    },
    /// Its injection is known to have arrived.
    Confirmed {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
        /// How that is known.
        by: ConfirmedBy,
    },
    /// The notification went back to the queue after a release that did not arrive.
    Returned {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
    },
    /// The notification waits again although it was told, because the session lost what it had in its context.
    Recalled {
        /// The notification.
        notification: NotificationId,
        /// The session.
        session: SessionId,
    },
    /// The notification ended without being delivered to `session`, or to any if there is none.
    NotificationEnded {
        /// The notification.
        notification: NotificationId,
        /// The session, if it had reached one.
        session: Option<SessionId>,
        /// Why.
        reason: Reason,
    },
    /// Word for the user went a step on its way.
    ForUser {
        /// What it is about.
        subject: Subject,
        /// The step.
        step: Step,
    },
}

/// What word for the user is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// An event that says it.
    Event(Seq),
    /// A notification whose audience the user is.
    Notification(NotificationId),
}

/// A step of word for the user on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// It goes to this sink.
    Queued(Sink),
    /// The sink took it, and calls it so.
    Sent(Sink, Option<String>),
    /// The sink did not take it.
    Failed {
        /// Which.
        sink: Sink,
        /// Why.
        error: String,
        /// When it is tried again; not any more if there is none.
        retry_at: Option<Timestamp>,
    },
    /// It goes to this sink when the quiet hours end.
    Waits {
        /// Which.
        sink: Sink,
        /// When they end.
        until: Timestamp,
    },
    /// It ended on its way to this sink.
    Ended(Sink, NotSent),
    /// It goes to no sink, and is counted in the next that does.
    Suppressed(Suppressed),
}

/// Why word for the user ended before a sink took it or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotSent {
    /// Too much was on its way, and it was the oldest.
    Evicted,
    /// Its session has ended, and no hook shows it any more.
    SessionGone,
    /// No hook that can show it came in time.
    Expired,
    /// It is a question that was answered elsewhere, or has expired.
    QuestionOver,
    /// A newer one with the same key takes its place.
    Superseded,
}

impl NotSent {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::SessionGone => "session_gone",
            Self::Expired => "expired",
            Self::QuestionOver => "question_over",
            Self::Superseded => "superseded",
        }
    }
}

/// Why word for the user goes to no sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suppressed {
    /// The same was sent at this time.
    Repeat {
        /// When.
        sent_at: Timestamp,
    },
    /// As many as may be went out within a minute.
    Rate {
        /// When there is room again.
        retry_at: Timestamp,
    },
    /// No sink is set.
    NoSink,
}

impl Suppressed {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Repeat { .. } => "repeat",
            Self::Rate { .. } => "over_rate",
            Self::NoSink => "no_sink",
        }
    }
}

/// Why a notification is delivered once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redelivered {
    /// Nothing showed that it had arrived.
    Unconfirmed,
    /// It arrived, and the context that it was in is gone.
    ContextLost,
}

impl Redelivered {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unconfirmed => "unconfirmed",
            Self::ContextLost => "context_lost",
        }
    }
}

/// What proved that an injection arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfirmedBy {
    /// The harness said so.
    Ack,
    /// A later exchange of the same session and turn.
    LaterExchange,
    /// Its short name stands in what the agent was given.
    Seen,
}

impl ConfirmedBy {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ack => "ack",
            Self::LaterExchange => "later_exchange",
            Self::Seen => "seen",
        }
    }
}
