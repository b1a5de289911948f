//! Read access to the engine's state.

use std::sync::Arc;

use super::parts::Engine;
use crate::{
    ci::Plan,
    conversation::{Named, SessionView},
    event::SessionId,
    exchange::Decision,
    ledger::Tally,
    notification::{Notification, NotificationId, SubscriberId},
    pipeline::Failing,
    probe::memory::Changes,
    rules::CompiledRules,
    sink::{Outbound, Question, QuestionState, Verdict as SinkVerdict},
    watch::Watch,
};

impl Engine {
    /// Number of open sessions evicted at the limit since the journal began.
    pub fn sessions_evicted(&self) -> u64 {
        self.sessions.evicted()
    }

    /// The rules in force.
    pub fn rules(&self) -> &Arc<CompiledRules> {
        &self.rules
    }

    /// Counts of outcomes of events and notifications since the journal began.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The templates and conditions that failed under the rules in force, with the subscriber of
    /// each.
    pub fn failing(&self) -> impl Iterator<Item = (&SubscriberId, String, &Failing)> {
        self.pipelines.iter().flat_map(|pipeline| {
            let id = &pipeline.rule().id;
            pipeline.failing().map(move |(part, failing)| (id, part.file(id), failing))
        })
    }

    /// Number of notifications that wait for a session to open.
    pub fn unclaimed_len(&self) -> usize {
        self.sessions.unclaimed_len()
    }

    /// The open sessions, then the suspended ones, each in id order.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.sessions.views()
    }

    /// The same, all in id order.
    pub fn sessions_by_id(&self) -> impl Iterator<Item = SessionView<'_>> {
        self.sessions.views_by_id()
    }

    /// The notifications that wait for a session to open, in delivery order.
    pub fn unclaimed(&self) -> Vec<&Notification> {
        self.sessions.unclaimed()
    }

    /// Whether a decision about a notification is possible: it is in the session's queue, or in any
    /// queue if `session` is `None`. A notification that waits for the next session can be
    /// dismissed, but not discussed, because it has no agent yet.
    pub fn can_decide(
        &self,
        session: Option<&SessionId>,
        notification: &NotificationId,
        decision: Decision,
    ) -> bool {
        self.sessions.can_decide(session, notification, decision)
    }

    /// One open or suspended session.
    pub fn session(&self, id: &SessionId) -> Option<SessionView<'_>> {
        self.sessions.view(id)
    }

    /// Changes of the sessions' known states since the last call.
    pub fn take_known(&mut self) -> Option<Changes> {
        self.probes.has_changes().then(|| self.probes.take_changes())
    }

    /// The open watches, in id order.
    pub fn watches(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.watches.open()
    }

    /// The open watches, if they changed since the last call.
    pub fn take_watches(&mut self) -> Option<Arc<[Arc<Watch>]>> {
        self.watches.take_changes()
    }

    /// Due deliveries to the sinks, if they may have changed since the last call.
    pub fn take_outbound(&mut self) -> Option<Outbound> {
        let jobs = self.for_user.take_due()?;
        Some(Outbound { settings: Arc::clone(&self.rules.sinks), jobs })
    }

    /// The outcome of a notice at the sinks, if it is one of the newest.
    pub fn sink_verdict(&self, notice: &str) -> Option<&SinkVerdict> {
        self.for_user.verdict(notice)
    }

    /// The open questions, if they changed since the last call.
    pub fn take_questions(&mut self) -> Option<Arc<[Arc<Question>]>> {
        self.questions.take_changes()
    }

    /// The state of a question that is open or ended recently.
    pub fn question(&self, id: &str) -> Option<QuestionState> {
        self.questions.state(id)
    }

    /// The next CI requests, if they may have changed since the last call.
    pub fn take_ci_plan(&mut self) -> Option<Plan> {
        self.ci.take_plan()
    }

    /// The folders of open sessions, if they changed since the last call.
    pub fn take_folders(&mut self) -> Option<Arc<[Arc<str>]>> {
        self.sessions.take_folders()
    }

    /// The current session of the process that was in `id`; `id` itself if no other is known.
    pub fn session_now(&self, id: &SessionId) -> SessionId {
        self.sessions.current(id)
    }

    /// The session that `harness` calls `id`, which is an id of its own or a full name.
    ///
    /// Shape: without `harness`, the session with that id, or all of them if there are several.
    pub fn named(&self, id: &SessionId, harness: Option<&str>) -> Named {
        self.sessions.named(id, harness)
    }

    /// Whether the session has pending broadcasts that are not in its queue yet.
    pub fn is_behind(&self, id: &SessionId) -> bool {
        self.sessions.is_behind(id)
    }

    /// Upper limit of the number of notifications pending over all sessions.
    pub fn untaken(&self) -> u64 {
        self.sessions.untaken()
    }
}
