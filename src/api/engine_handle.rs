//! Queries of handlers to the event loop, which alone owns the engine.

use std::{sync::Arc, time::Duration};

use engine::{
    Explanation,
    conversation::Named,
    event::{Event, SessionId},
    exchange::{Decision, InjectionId},
    notification::{Notification, NotificationId},
    rules::CompiledRules,
    sink::{QuestionState, Verdict},
    sorted::SortedSet,
};
use journal::meter::MonotonicClock;
use tokio::sync::{mpsc, oneshot};

use crate::api::{
    Pulse,
    error::ApiError,
    wire::views::{SessionView, StatusView},
};

/// Most queries that wait for the event loop; it answers each in microseconds, so reaching this
/// means that the loop is stuck.
pub const QUERIES_MAX: usize = 64;

/// One query, with the channel for its answer.
#[derive(Debug)]
pub enum Query {
    /// The status of the daemon.
    Status(oneshot::Sender<StatusView>),
    /// The rules in force.
    Rules(oneshot::Sender<Arc<CompiledRules>>),
    /// Every session, by id.
    Sessions(oneshot::Sender<Vec<SessionView>>),
    /// One session; `None` when it is not known.
    Session(SessionId, oneshot::Sender<Option<SessionView>>),
    /// The session that now runs in the process of this one; itself when no successor is known.
    SessionNow(SessionId, oneshot::Sender<SessionId>),
    /// Whether a session is one of the first or belongs to one: it continues it, is continued by it,
    /// or is a subagent of it. `None` when it is not known.
    IsRelated(Vec<SessionId>, SessionId, oneshot::Sender<Option<bool>>),
    /// Every name of the known sessions that belong to these, and these.
    Related(Vec<SessionId>, oneshot::Sender<SortedSet<SessionId>>),
    /// The session with this id, or the session that this harness knows by it.
    Named(SessionId, Option<Arc<str>>, oneshot::Sender<Named>),
    /// The state that a hook of a session needs before an exchange, or instead of one.
    Outstanding(SessionId, oneshot::Sender<Outstanding>),
    /// What an idle session is woken for, in one sentence; `None` when it requests no wake.
    WakeSentence(SessionId, oneshot::Sender<Option<String>>),
    /// A page of the pending notifications of a session, or of all.
    Waiting(WaitingPage, oneshot::Sender<(Vec<Waiting>, Option<PageStart>)>),
    /// Whether a decision can be made about a notification in the queue of a session, or in any.
    CanDecide(Option<SessionId>, NotificationId, Decision, oneshot::Sender<bool>),
    /// The known session whose id is most similar to this one.
    Nearest(SessionId, oneshot::Sender<Option<SessionId>>),
    /// The subscribers that would take an event, and the types that subscribers name in full.
    Explain(Arc<Event>, oneshot::Sender<(Explanation, Vec<String>)>),
    /// The verdict on a notice for the user, with its sinks; `None` when it is not one of the
    /// newest.
    SinkVerdict(Arc<str>, oneshot::Sender<Option<Verdict>>),
    /// The state of a question; `None` when it is neither open nor one of the newest that ended.
    Question(Arc<str>, oneshot::Sender<Option<QuestionState>>),
}

/// A page of pending notifications.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPage {
    /// The session; all sessions if absent.
    pub session: Option<SessionId>,
    /// The start of the page.
    pub from: Option<PageStart>,
    /// Most notifications.
    pub limit: usize,
}

/// A position in the list of pending notifications: by session, in delivery order; then those for a
/// session that is not open, in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageStart {
    /// In the queue of a session.
    Session {
        /// The session.
        session: SessionId,
        /// How many of its notifications precede it.
        skip: usize,
    },
    /// Among the unclaimed ones.
    Unclaimed {
        /// How many of them precede it.
        skip: usize,
    },
}

/// A pending notification. Its view is built outside of the event loop, because the words about it
/// cost more than the rest of the query.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The notification.
    pub notification: Arc<Notification>,
    /// Where it waits.
    pub place: WaitingPlace,
    /// How long ago it was made.
    pub age: Duration,
}

/// The queue in which a notification waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitingPlace {
    /// Of a session, for its agent.
    Agent(SessionId),
    /// Of a session, for the user's approval.
    User(SessionId),
    /// Of none: no session in its scope is open.
    NextSession,
}

/// State of a session's queue and leases; empty for an unknown session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Whether a pending notification is released before the next tool.
    pub check_before_tool: bool,
    /// The unconfirmed injections, oldest first.
    pub unconfirmed: Vec<InjectionId>,
}

/// Queries the event loop; cheap to clone.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    queries: mpsc::Sender<Query>,
    pulse: Arc<Pulse>,
}

impl EngineHandle {
    /// Creates a handle and the receiver of the event loop.
    ///
    /// Shape: when [`QUERIES_MAX`] queries wait, the next caller waits too, because every query
    /// belongs to one connection.
    pub fn new(clock: MonotonicClock) -> (Self, mpsc::Receiver<Query>) {
        let (queries, receiver) = mpsc::channel(QUERIES_MAX);
        (Self { queries, pulse: Arc::new(Pulse::new(clock)) }, receiver)
    }

    /// The loop's record of its iterations, which can be read without waiting for it.
    pub fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    pub(crate) async fn status(&self) -> Result<StatusView, ApiError> {
        self.ask(Query::Status).await
    }

    pub(crate) async fn rules(&self) -> Result<Arc<CompiledRules>, ApiError> {
        self.ask(Query::Rules).await
    }

    pub(crate) async fn sessions(&self) -> Result<Vec<SessionView>, ApiError> {
        self.ask(Query::Sessions).await
    }

    pub(crate) async fn session(&self, session: SessionId) -> Result<Option<SessionView>, ApiError> {
        self.ask(|reply| Query::Session(session, reply)).await
    }

    /// The session that now runs in the process of this one.
    pub(crate) async fn session_now(&self, session: SessionId) -> Result<SessionId, ApiError> {
        self.ask(|reply| Query::SessionNow(session, reply)).await
    }

    /// Whether `session` is one of `own` or belongs to one; `None` when it is not known.
    pub(crate) async fn is_related(
        &self,
        own: &[SessionId],
        session: &SessionId,
    ) -> Result<Option<bool>, ApiError> {
        self.ask(|reply| Query::IsRelated(own.to_vec(), session.clone(), reply)).await
    }

    /// Every name of the known sessions that belong to `own`, and `own`.
    pub(crate) async fn related(&self, own: &[SessionId]) -> Result<SortedSet<SessionId>, ApiError> {
        self.ask(|reply| Query::Related(own.to_vec(), reply)).await
    }

    /// The session with this id, or the session that `harness` knows by it.
    pub(crate) async fn named(&self, id: SessionId, harness: Option<Arc<str>>) -> Result<Named, ApiError> {
        self.ask(|reply| Query::Named(id, harness, reply)).await
    }

    /// The state of a session's queue and leases.
    pub(crate) async fn outstanding(&self, session: SessionId) -> Result<Outstanding, ApiError> {
        self.ask(|reply| Query::Outstanding(session, reply)).await
    }

    /// What an idle session is woken for, in one sentence.
    pub(crate) async fn wake_sentence(&self, session: SessionId) -> Result<Option<String>, ApiError> {
        self.ask(|reply| Query::WakeSentence(session, reply)).await
    }

    /// A page of pending notifications, and the start of the next one.
    pub(crate) async fn waiting(
        &self,
        page: WaitingPage,
    ) -> Result<(Vec<Waiting>, Option<PageStart>), ApiError> {
        self.ask(|reply| Query::Waiting(page, reply)).await
    }

    /// Whether a decision can be made about a notification in the queue of a session, or in any.
    pub(crate) async fn can_decide(
        &self,
        session: Option<SessionId>,
        notification: NotificationId,
        decision: Decision,
    ) -> Result<bool, ApiError> {
        self.ask(|reply| Query::CanDecide(session, notification, decision, reply)).await
    }

    /// The subscribers that would take an event, and the types that subscribers name in full.
    pub(crate) async fn explain(&self, event: Arc<Event>) -> Result<(Explanation, Vec<String>), ApiError> {
        self.ask(|reply| Query::Explain(event, reply)).await
    }

    /// The verdict on a notice for the user, if it is one of the newest.
    pub(crate) async fn sink_verdict(&self, notice: Arc<str>) -> Result<Option<Verdict>, ApiError> {
        self.ask(|reply| Query::SinkVerdict(notice, reply)).await
    }

    /// The known session whose id is most similar to `id`.
    pub(crate) async fn nearest(&self, id: SessionId) -> Result<Option<SessionId>, ApiError> {
        self.ask(|reply| Query::Nearest(id, reply)).await
    }

    /// The state of a question, if it is open or one of the newest that ended.
    pub(crate) async fn question(&self, id: Arc<str>) -> Result<Option<QuestionState>, ApiError> {
        self.ask(|reply| Query::Question(id, reply)).await
    }

    async fn ask<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.queries.send(query(reply)).await.map_err(|_| ApiError::stopping())?;
        answer.await.map_err(|_| ApiError::stopping())
    }
}
