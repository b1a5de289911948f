//! Everything that can make the engine act, and everything it can ask for.
//!
//! Every input but [`Input::RulesReplaced`]'s compiled form is a journal record, so feeding the journal again gives the same
//! state. A variant more is a design decision and belongs in ARCHITECTURE.md.

use std::sync::Arc;

use crate::{
    engine::rules::CompiledRules,
    event::{Event, EventRef, Seq, SessionId},
    exchange::{Answer, Decision, Exchange, Harness, InjectionId, Process, Release, ReleaseRecord},
    ledger::{ConfirmedBy, LedgerEntry},
    notification::{Notification, NotificationId, Priority},
    session::Wake,
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
    /// A harness asks.
    Exchange {
        /// Its position.
        seq: Seq,
        /// Names the request that waits for the answer; not a part of the state.
        request: RequestId,
        /// What it says.
        exchange: Exchange,
        /// What is known of what it releases.
        release: Release,
    },
    /// The record cannot be followed, so nothing comes of it: the process died of it, or nobody can read it.
    Skipped {
        /// Its position, if it is an event's.
        event: Option<Seq>,
    },
    /// An injection is known to have arrived.
    Ack {
        /// Whose.
        session: SessionId,
        /// Which.
        injection: InjectionId,
        /// How that is known.
        by: ConfirmedBy,
    },
    /// An injection is known not to have arrived: its carrier was gone before the answer.
    Undelivered {
        /// Whose.
        session: SessionId,
        /// Which.
        injection: InjectionId,
    },
    /// A harness says that a conversation began, or where it stands.
    SessionOpened {
        /// Which.
        session: SessionId,
        /// What is known of it.
        harness: Harness,
    },
    /// A harness says that a conversation ended.
    SessionClosed {
        /// Which.
        session: SessionId,
        /// Whether it can be taken up again, so that what waits for it is kept for a while.
        may_return: bool,
    },
    /// The process of a session has ended without a word: nothing confirms any more what left for it.
    ProcessGone {
        /// Which.
        session: SessionId,
        /// The process that has ended; a session that is in another one by now goes on.
        process: Process,
    },
    /// A client is attached to a session that says nothing.
    SessionSeen {
        /// Which.
        session: SessionId,
    },
    /// The client's own files say that no turn is under way.
    SessionIdle {
        /// Whose.
        session: SessionId,
        /// When that was so; what was heard of the session later counts more.
        as_of: Timestamp,
    },
    /// The user decided about a notification that waits.
    Decided {
        /// In whose queue; everywhere if there is none.
        session: Option<SessionId>,
        /// Which notification.
        notification: NotificationId,
        /// What is to become of it.
        decision: Decision,
    },
    /// The rules are these from here on.
    RulesReplaced(Arc<CompiledRules>),
    /// The daemon stops: open batches close, so that nothing waits for its return.
    ShuttingDown,
    /// Nothing but time has passed.
    Tick,
}

/// Names a waiting request of this process; meaningless in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What the shell must do next, in the order in which it must be done.
#[derive(Debug)]
pub enum Output {
    /// Write down what became of something.
    Record(LedgerEntry),
    /// Know what a notification says, whose id entries will name; before the first of them.
    Made(Arc<Notification>),
    /// Know what a template says to the user, before what becomes of it.
    Said(Arc<Notice>),
    /// Know that a session began, ended, or said more of itself.
    Session(SessionId, SessionChange),
    /// Answer a waiting request, if it still waits; otherwise report the injection as undelivered.
    Answer {
        /// Which request.
        request: RequestId,
        /// Whose session.
        session: SessionId,
        /// What it gets.
        answer: Answer,
        /// What is released with it for the first time, to be written down before it is answered.
        released: Option<ReleaseRecord>,
    },
    /// Refuse a waiting request: its session's id is taken.
    Refuse {
        /// Which request.
        request: RequestId,
        /// The harness whose open session has that id.
        harness: Arc<str>,
    },
    /// Publish an event that the engine itself makes; its id is deterministic, so doing it twice is harmless.
    Publish(Event),
    /// Tell whoever watches the session that its queue changed. Carries no text.
    Wake(Pending),
}

/// What changed about a session besides its queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SessionChange {
    /// It began, and this is known of it.
    Opened(Harness),
    /// This is known of it now.
    Learned(Harness),
    /// It ended.
    Closed {
        /// When it was last heard of.
        last_seen: Timestamp,
        /// Whether what waits is kept, because it can be taken up again; otherwise that went to another session or ended.
        keeps_pending: bool,
    },
}

/// What waits in a session's queue, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    /// Which session.
    pub session: SessionId,
    /// How many notifications wait for the agent.
    pub count: u32,
    /// The most urgent one's priority; `None` when there is none.
    pub top: Option<Priority>,
    /// How many notifications wait for the user's word.
    pub for_user: u32,
    /// What the queue asks of the harness; `None` when it can wait for the next point.
    pub wake: Option<Wake>,
    /// Whether its harness has ended the session.
    pub is_closed: bool,
    /// The session that the harness's process has gone on in; `None` while that is not known.
    pub moved_to: Option<SessionId>,
}

impl Pending {
    /// Nothing waits.
    pub fn nothing(session: SessionId) -> Self {
        Self { session, count: 0, top: None, for_user: 0, wake: None, is_closed: false, moved_to: None }
    }
}

/// Why the engine wants to be woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum WakeReason {
    /// A batch or dedupe window of a pipeline ends.
    Pipeline,
    /// A lease or notification of a session ends, or the session was silent for too long.
    Session,
    /// A notification that nobody took expires.
    Unclaimed,
    /// Sessions have broadcasts to take.
    Fanout,
    /// It is time to say how many events of a source were held back.
    Throttle,
    /// A time comes that a watch waits for, or one ends.
    Watch,
    /// A sink is to be tried again, or no hook came that shows a notice.
    Sink,
    /// A question expires, or nobody took its end.
    Question,
}
