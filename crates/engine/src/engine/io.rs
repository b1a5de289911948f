//! The inputs and outputs of the engine.
//!
//! Every input except the compiled form of [`Input::RulesReplaced`] is a journal record, so
//! replaying the journal produces the same state. A new variant is a design decision and belongs in
//! ARCHITECTURE.md.

use std::sync::Arc;

pub use crate::session::{Pending, SessionChange};
use journal::time::{Timestamp, zone::Zone};

use crate::{
    event::{Event, EventRef, Seq, SessionId},
    exchange::{Answer, Decision, Exchange, Harness, InjectionId, Process, Release, ReleaseRecord},
    hold::SilenceId,
    ledger::{ConfirmedBy, LedgerEntry},
    notification::{Notification, NotificationId, repeat::Response},
    pipeline::silence::Silence,
    rules::CompiledRules,
    sink::Notice,
    user::UserSettings,
};

/// An input, in the order of the journal.
#[derive(Debug)]
pub enum Input<'a> {
    /// An event was published.
    Event {
        /// Its position.
        seq: Seq,
        /// The event, borrowed from the record.
        event: EventRef<'a>,
    },
    /// A request of a harness.
    Exchange {
        /// Its position.
        seq: Seq,
        /// Identifies the waiting request; not part of the state.
        request: RequestId,
        /// The request; boxed, as it is far larger than the other inputs.
        exchange: Box<Exchange>,
        /// The notifications that it releases: to be selected, or as recorded.
        release: Release,
    },
    /// A record that cannot be processed and has no effect: the process crashed on it, or it is
    /// unreadable.
    Skipped {
        /// Its position, if it is an event.
        event: Option<Seq>,
    },
    /// An injection has arrived.
    Ack {
        /// The session.
        session: SessionId,
        /// The injection.
        injection: InjectionId,
        /// The evidence.
        by: ConfirmedBy,
    },
    /// An injection has not arrived: its carrier was closed before the answer.
    Undelivered {
        /// The session.
        session: SessionId,
        /// The injection.
        injection: InjectionId,
    },
    /// A harness reports the start or the state of a conversation.
    SessionOpened {
        /// The session.
        session: SessionId,
        /// Its properties.
        harness: Harness,
    },
    /// A harness reports the end of a conversation that can be resumed: its queue is kept for a
    /// while.
    SessionSuspended {
        /// The session.
        session: SessionId,
    },
    /// A harness reports the end of a conversation that cannot be resumed.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
    /// The process of a session ended without a report: injections in flight will not be confirmed.
    ProcessGone {
        /// The session.
        session: SessionId,
        /// The process that ended; no effect if the session is already in another one.
        process: Process,
    },
    /// A client is attached to an inactive session.
    SessionSeen {
        /// The session.
        session: SessionId,
    },
    /// The client's own files show that no turn is running.
    SessionIdle {
        /// The session.
        session: SessionId,
        /// The time of this state; later reports of the session take precedence.
        as_of: Timestamp,
    },
    /// The user decided about a pending notification.
    Decided {
        /// The session of the queue; `None` for all queues.
        session: Option<SessionId>,
        /// The notification.
        notification: NotificationId,
        /// The decision.
        decision: Decision,
    },
    /// A person suppresses something, or changes until when.
    Silenced(Box<Silence>),
    /// A person ends silences.
    SilencesEnded(Vec<SilenceId>),
    /// An agent or a user answers a notification.
    Responded {
        /// The notification.
        notification: NotificationId,
        /// The answer.
        response: Response,
    },
    /// A user's settings are other ones.
    UserSettings {
        /// The user.
        user: Arc<str>,
        /// The settings.
        settings: Box<UserSettings>,
    },
    /// New rules are in force.
    RulesReplaced(Arc<CompiledRules>),
    /// The local clock of the machine is another one, or more of it is known.
    ZoneChanged(Zone),
    /// The daemon stops: open batches close, so that nothing waits for its restart.
    ShuttingDown,
    /// Time has passed; there is no other input.
    Tick,
}

/// Identifies a waiting request of this process; meaningless in another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An action for the shell; the order matters.
#[derive(Debug)]
pub enum Output {
    /// Record an outcome.
    Record(LedgerEntry),
    /// Register a notification's content, before the first entry that names its id.
    Made(Arc<Notification>),
    /// Register a notice of a template for the user, before the first entry about it.
    Said(Arc<Notice>),
    /// Register the start, end or change of a session.
    Session(SessionId, SessionChange),
    /// Answer a waiting request, if it still waits; otherwise report the injection as undelivered.
    Answer {
        /// The request.
        request: RequestId,
        /// The session.
        session: SessionId,
        /// The answer.
        answer: Answer,
        /// The notifications that it releases for the first time, to be recorded before the answer.
        released: Option<ReleaseRecord>,
        /// Whether it would release something, and does not because an earlier process ended before
        /// it recorded that.
        is_unanswered: bool,
    },
    /// Refuse a waiting request: its session id is in use.
    Refuse {
        /// The request.
        request: RequestId,
        /// The harness that has the open session of that id.
        harness: Arc<str>,
    },
    /// Publish an event of the engine. Its id is deterministic, so publishing it twice is harmless.
    Publish(Event),
    /// Notify the watchers of a session that its queue changed. Contains no text.
    Wake(Pending),
}

/// The reason for a wake-up of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// A batch or dedupe window of a pipeline ends.
    Pipeline,
    /// A lease or notification of a session expires, or the session was inactive for too long.
    Session,
    /// An unclaimed notification expires.
    Unclaimed,
    /// Sessions have broadcasts pending.
    Fanout,
    /// What a region has is over.
    Region,
    /// What waits for the user is due, or over.
    ForUser,
    /// A silence ends.
    Silence,
    /// Quiet hours of a user begin or end.
    User,
    /// A fold wants to be called: a watch or a question expires, a sink is tried again.
    Fold,
}
