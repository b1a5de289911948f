//! The inputs and outputs of the engine.
//!
//! Every input except the compiled form of [`Input::RulesReplaced`] is a journal record, so
//! replaying the journal gives the same state. A new variant is a design decision and belongs in
//! ARCHITECTURE.md.

use std::sync::Arc;

pub use crate::session::{Pending, SessionChange};
use crate::{
    event::{Event, EventRef, Seq, SessionId},
    exchange::{Answer, Decision, Exchange, Harness, InjectionId, Process, Release, ReleaseRecord},
    ledger::{ConfirmedBy, LedgerEntry},
    notification::{Notification, NotificationId},
    rules::CompiledRules,
    sink::Notice,
    time::Timestamp,
};

/// Something that happened, in the order of the journal.
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
        /// Identifies the waiting request; not a part of the state.
        request: RequestId,
        /// The request.
        exchange: Exchange,
        /// What it releases: to be decided, or as recorded.
        release: Release,
    },
    /// A record that cannot be processed and has no effect: the process crashed on it, or it is
    /// unreadable.
    Skipped {
        /// Its position, if it is an event's.
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
    /// An injection has not arrived: its carrier was gone before the answer.
    Undelivered {
        /// The session.
        session: SessionId,
        /// The injection.
        injection: InjectionId,
    },
    /// A harness reports that a conversation began, or its state.
    SessionOpened {
        /// The session.
        session: SessionId,
        /// Its properties.
        harness: Harness,
    },
    /// A harness reports that a conversation ended.
    SessionClosed {
        /// The session.
        session: SessionId,
        /// Whether it can be resumed, so that its queue is kept for a while.
        may_return: bool,
    },
    /// The process of a session ended without a report: injections in flight will not be confirmed.
    ProcessGone {
        /// The session.
        session: SessionId,
        /// The process that ended; a session that is in another one by now goes on.
        process: Process,
    },
    /// A client is attached to a silent session.
    SessionSeen {
        /// The session.
        session: SessionId,
    },
    /// The client's own files say that no turn is running.
    SessionIdle {
        /// The session.
        session: SessionId,
        /// When that was so; later reports of the session take precedence.
        as_of: Timestamp,
    },
    /// The user decided about a waiting notification.
    Decided {
        /// In which queue; `None` for all.
        session: Option<SessionId>,
        /// Which notification.
        notification: NotificationId,
        /// The decision.
        decision: Decision,
    },
    /// The rules from now on.
    RulesReplaced(Arc<CompiledRules>),
    /// The daemon stops: open batches close, so that nothing waits for its restart.
    ShuttingDown,
    /// Only time has passed.
    Tick,
}

/// Identifies a waiting request of this process; meaningless in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The next thing the shell must do; the order matters.
#[derive(Debug)]
pub enum Output {
    /// Record an outcome.
    Record(LedgerEntry),
    /// Register a notification's content, before the first entry that names its id.
    Made(Arc<Notification>),
    /// Register what a template says to the user, before the first entry about it.
    Said(Arc<Notice>),
    /// Register that a session began, ended, or changed.
    Session(SessionId, SessionChange),
    /// Answer a waiting request, if it still waits; otherwise report the injection as undelivered.
    Answer {
        /// Which request.
        request: RequestId,
        /// The session.
        session: SessionId,
        /// The answer.
        answer: Answer,
        /// What it releases for the first time, to be recorded before the answer.
        released: Option<ReleaseRecord>,
    },
    /// Refuse a waiting request: its session id is taken.
    Refuse {
        /// Which request.
        request: RequestId,
        /// The harness that has the open session of that id.
        harness: Arc<str>,
    },
    /// Publish an event of the engine; its id is deterministic, so publishing it twice is harmless.
    Publish(Event),
    /// Notify watchers of a session that its queue changed. Carries no text.
    Wake(Pending),
}

/// Why the engine has to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// A batch or dedupe window of a pipeline ends.
    Pipeline,
    /// A lease or notification of a session ends, or the session was silent for too long.
    Session,
    /// An unclaimed notification expires.
    Unclaimed,
    /// Sessions have broadcasts pending.
    Fanout,
    /// The count of a source's throttled events is due.
    Throttle,
    /// A watch reaches its time or ends.
    Watch,
    /// A sink retry is due, or no hook came that shows a notice.
    Sink,
    /// A question expires, or its end was not fetched.
    Question,
}
