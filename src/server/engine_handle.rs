//! How handlers ask the event loop, which alone owns the engine.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::{
    engine::{CompiledRules, Explanation, Named},
    event::{Event, SessionId},
    exchange::{Decision, InjectionId},
    meter::Steady,
    notification::NotificationId,
    protocol::views::{SessionView, StatusView, WaitingView},
    server::{Pulse, error::ApiError},
    sink::{QuestionState, Verdict},
};

/// Most questions that wait for the event loop; it answers each in microseconds, so more than this is a loop that is stuck.
pub const QUERIES_MAX: usize = 64;

/// One question, with the place for its answer.
#[derive(Debug)]
pub enum Query {
    /// How the daemon is.
    Status(oneshot::Sender<StatusView>),
    /// The rules in force.
    Rules(oneshot::Sender<Arc<CompiledRules>>),
    /// Every session, by id.
    Sessions(oneshot::Sender<Vec<SessionView>>),
    /// One session; `None` when it is not known.
    Session(SessionId, oneshot::Sender<Option<SessionView>>),
    /// The session in which the process goes on that was in this one; itself when none is known.
    SessionNow(SessionId, oneshot::Sender<SessionId>),
    /// Which session is meant by an id, or by this harness by it.
    Named(SessionId, Option<Arc<str>>, oneshot::Sender<Named>),
    /// What a hook of a session has to know before it makes an exchange, or instead of one.
    Standing(SessionId, oneshot::Sender<Standing>),
    /// A page of what waits in the queue of a session, or of all.
    Waiting(WaitingPage, oneshot::Sender<(Vec<WaitingView>, Option<PageStart>)>),
    /// Whether something can be decided about a notification in the queue of a session, or in any.
    CanDecide(Option<SessionId>, NotificationId, Decision, oneshot::Sender<bool>),
    /// Who would take an event, and the types that subscribers name in full.
    Explain(Arc<Event>, oneshot::Sender<(Explanation, Vec<String>)>),
    /// Where a notice for the user goes; `None` when it is not one of the newest.
    SinkVerdict(Arc<str>, oneshot::Sender<Option<Verdict>>),
    /// How a question is; `None` when it is not open and not one of the newest that ended.
    Question(Arc<str>, oneshot::Sender<Option<QuestionState>>),
}

/// Which part of what waits is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPage {
    /// Of which session; of all if there is none.
    pub session: Option<SessionId>,
    /// Where it begins.
    pub from: Option<PageStart>,
    /// Most notifications.
    pub limit: usize,
}

/// A place in the list of what waits: by session, and in each in the order in which it would be delivered; then what waits for a
/// session that is not open, in the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageStart {
    /// In the queue of a session.
    Session {
        /// The session.
        session: SessionId,
        /// How many of its notifications stand before.
        skip: usize,
    },
    /// Among those for the next session.
    Unclaimed {
        /// How many of them stand before.
        skip: usize,
    },
}

/// How a session's queue and leases stand; of one that is not known, nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Whether something waits that is released before the next tool.
    pub check_before_tool: bool,
    /// The injections that nothing has confirmed yet, oldest first.
    pub unconfirmed: Vec<InjectionId>,
}

/// Asks the event loop; cloning it is cheap.
#[derive(Debug, Clone)]
pub struct EngineHandle {
    queries: mpsc::Sender<Query>,
    pulse: Arc<Pulse>,
}

impl EngineHandle {
    /// A handle, and where the event loop takes the questions from.
    ///
    /// Shape: when [`QUERIES_MAX`] questions wait, whoever asks waits too, because every question is one connection's.
    pub fn new(steady: Steady) -> (Self, mpsc::Receiver<Query>) {
        let (queries, receiver) = mpsc::channel(QUERIES_MAX);
        (Self { queries, pulse: Arc::new(Pulse::new(steady)) }, receiver)
    }

    /// What the event loop notes of its turns, and whoever looks at it does not wait for.
    pub fn pulse(&self) -> &Arc<Pulse> {
        &self.pulse
    }

    /// How the daemon is.
    pub(crate) async fn status(&self) -> Result<StatusView, ApiError> {
        self.ask(Query::Status).await
    }

    /// The rules in force.
    pub(crate) async fn rules(&self) -> Result<Arc<CompiledRules>, ApiError> {
        self.ask(Query::Rules).await
    }

    /// Every session.
    pub(crate) async fn sessions(&self) -> Result<Vec<SessionView>, ApiError> {
        self.ask(Query::Sessions).await
    }

    /// One session.
    pub(crate) async fn session(&self, session: SessionId) -> Result<Option<SessionView>, ApiError> {
        self.ask(|reply| Query::Session(session, reply)).await
    }

    /// The session in which the process goes on that was in this one.
    pub(crate) async fn session_now(&self, session: SessionId) -> Result<SessionId, ApiError> {
        self.ask(|reply| Query::SessionNow(session, reply)).await
    }

    /// Which session is meant by an id, or by `harness` by it.
    pub(crate) async fn named(&self, id: SessionId, harness: Option<Arc<str>>) -> Result<Named, ApiError> {
        self.ask(|reply| Query::Named(id, harness, reply)).await
    }

    /// How a session's queue and leases stand.
    pub(crate) async fn standing(&self, session: SessionId) -> Result<Standing, ApiError> {
        self.ask(|reply| Query::Standing(session, reply)).await
    }

    /// A page of what waits, and where the next one begins.
    pub(crate) async fn waiting(
        &self,
        page: WaitingPage,
    ) -> Result<(Vec<WaitingView>, Option<PageStart>), ApiError> {
        self.ask(|reply| Query::Waiting(page, reply)).await
    }

    /// Whether something can be decided about a notification in the queue of a session, or in any.
    pub(crate) async fn can_decide(
        &self,
        session: Option<SessionId>,
        notification: NotificationId,
        decision: Decision,
    ) -> Result<bool, ApiError> {
        self.ask(|reply| Query::CanDecide(session, notification, decision, reply)).await
    }

    /// Who would take an event, and the types that subscribers name in full.
    pub(crate) async fn explain(&self, event: Arc<Event>) -> Result<(Explanation, Vec<String>), ApiError> {
        self.ask(|reply| Query::Explain(event, reply)).await
    }

    /// Where a notice for the user goes, if it is one of the newest.
    pub(crate) async fn sink_verdict(&self, notice: Arc<str>) -> Result<Option<Verdict>, ApiError> {
        self.ask(|reply| Query::SinkVerdict(notice, reply)).await
    }

    /// How a question is, if it is open or one of the newest that ended.
    pub(crate) async fn question(&self, id: Arc<str>) -> Result<Option<QuestionState>, ApiError> {
        self.ask(|reply| Query::Question(id, reply)).await
    }

    async fn ask<T>(&self, query: impl FnOnce(oneshot::Sender<T>) -> Query) -> Result<T, ApiError> {
        let (reply, answer) = oneshot::channel();
        self.queries.send(query(reply)).await.map_err(|_| ApiError::stopping())?;
        answer.await.map_err(|_| ApiError::stopping())
    }
}
