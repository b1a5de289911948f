//! Silences, and what they and inhibitions suppress of what is pending.
//!
//! Rows are suppressed by the pipelines. A pending notification is suppressed if each of its events is,
//! and in a session of its own if what suppresses them is for a part of the sessions.

use std::sync::Arc;

use journal::time::Timestamp;
use serde_json::json;

use super::{
    io::Output,
    parts::{Engine, Taken, pipeline, resources},
};
use crate::{
    conversation::{SessionView, Sessions, Suppress, Suppressed},
    event::{Event, Scope, SessionId, Severity},
    hold::{Hold, SilenceId},
    ledger::{LedgerEntry, Reason},
    notification::{Audience, Nature, Notification, NotificationId, SubscriberId},
    pipeline::{
        Pipeline, Resources,
        mute::Place,
        recent::RecentEvents,
        row,
        silence::{Began, Matchers, Silence, Silences},
        suppression::{Chosen, Suppressors},
    },
    rules::CompiledRules,
};

/// The type of the event about what a silence suppressed.
pub const SILENCE_ENDED: &str = "silence.ended";

/// Finds what suppresses notifications.
#[derive(Clone, Copy)]
struct Finder<'a> {
    rules: &'a CompiledRules,
    recent: &'a RecentEvents,
    resources: Resources<'a>,
    pipelines: &'a [Pipeline],
    now: Timestamp,
}

impl Finder<'_> {
    fn suppressors(self, notification: &Notification, chosen: &Chosen<'_>) -> Option<Suppressors> {
        let pipeline = self.pipelines.get(self.rules.position(&notification.subscriber)?)?;
        Some(match self.recent.get(notification.id) {
            Some(events) => {
                let mut events = notification.events.iter().copied().zip(events);
                pipeline.suppressors_of(notification, &mut events, chosen, self.resources, self.now)
            }
            None => pipeline.suppressors_of_forgotten(notification, chosen, self.resources, self.now),
        })
    }

    /// What becomes of a notification.
    fn decide(self, notification: &Notification, chosen: &Chosen<'_>) -> Option<Suppress> {
        effect(notification, self.suppressors(notification, chosen)?)
    }

    /// What becomes of a notification because something has `begun` to suppress: alone, or with the others
    /// `in_force` what it leaves.
    fn decide_begun(
        self,
        notification: &Notification,
        begun: &Chosen<'_>,
        in_force: &Chosen<'_>,
    ) -> Option<Suppress> {
        let by_it = self.suppressors(notification, begun)?;
        if by_it.holds.is_empty() {
            None
        } else if by_it.is_of_all {
            effect(notification, by_it)
        } else {
            self.decide(notification, in_force)
        }
    }
}

/// What becomes of a notification by what suppresses its events.
fn effect(notification: &Notification, Suppressors { holds, is_of_all }: Suppressors) -> Option<Suppress> {
    let first = holds.first().filter(|_| is_of_all)?;
    Some(match notification.nature {
        Nature::Occurrence => Suppress::End(row::reason(first)),
        Nature::Condition => Suppress::Hold(holds),
    })
}

/// Whether a silence in force concerns a session; `None` for all sessions.
fn is_for(matchers: &Matchers, session: Option<&SessionView<'_>>) -> bool {
    session.map_or(!matchers.is_scoped(), |session| concerns(matchers, session))
}

/// Whether what an event of this scope inhibits in a session concerns a notification; `None` for all
/// sessions.
fn is_around(own: &Scope, notification: &Notification, session: Option<&SessionView<'_>>) -> bool {
    match session {
        Some(session) => own.concerns(session.id, session.harness.workspace.as_deref()),
        None => own.covers(&notification.scope),
    }
}

/// The session as a place of delivery.
pub(super) fn place_of<'s>(session: &SessionView<'s>) -> Place<'s> {
    Place { session: session.id, workspace: session.harness.workspace.as_deref() }
}

/// Whether a silence concerns a session.
pub(super) fn concerns(matchers: &Matchers, session: &SessionView<'_>) -> bool {
    place_of(session).is_meant(matchers.session.as_ref(), matchers.workspace.as_ref())
}

impl Engine {
    fn finder(&mut self, now: Timestamp) -> (Finder<'_>, &mut Sessions) {
        let Self { rules, recent, zone, silences, pipelines, sessions, .. } = self;
        let resources = resources(rules, zone, silences);
        (Finder { rules, recent, resources, pipelines, now }, sessions)
    }

    /// Whether something suppresses in a part of the sessions.
    fn suppresses_in_part(&self) -> bool {
        self.silences.is_scoped() || !self.inhibiting_in_part.is_empty()
    }

    /// Whether what is in force suppresses every event of a notification in a session, also of one that
    /// was delivered before.
    pub(super) fn is_suppressed_in(&self, session: &SessionView<'_>, notification: &Notification) -> bool {
        let Self { rules, recent, zone, silences, pipelines, now, .. } = self;
        let resources = resources(rules, zone, silences);
        let finder = Finder { rules, recent, resources, pipelines, now: *now };
        let is_in = |own: &Scope| is_around(own, notification, Some(session));
        let chosen = Chosen { is_silence: Some(&|own| is_for(own, Some(session))), is_in: Some(&is_in) };
        finder.decide(notification, &chosen).is_some()
    }

    /// Suppresses what a subscriber has pending, because an event has begun to inhibit in `scope`.
    pub(super) fn inhibit_pending(&mut self, subscriber: &SubscriberId, scope: &Scope, now: Timestamp) {
        let has_parts = self.suppresses_in_part();
        let (finder, sessions) = self.finder(now);
        let mut decide = |notification: &Notification, session: Option<&SessionView<'_>>| {
            if notification.subscriber != *subscriber || session.is_some() && !has_parts {
                return None;
            }
            let is_begun = |own: &Scope| own == scope || own.covers(&notification.scope);
            let is_in = |own: &Scope| own == scope || is_around(own, notification, session);
            let begun = Chosen { is_silence: None, is_in: Some(&is_begun) };
            let in_force = Chosen { is_silence: Some(&|own| is_for(own, session)), is_in: Some(&is_in) };
            finder.decide_begun(notification, &begun, &in_force)
        };
        let is_in = |session: &SessionView<'_>| {
            scope.concerns(session.id, session.harness.workspace.as_deref())
                && session.injector.has_pending_of(|own| own == subscriber)
        };
        let done = sessions.suppress(&mut decide, &is_in, scope);
        self.count_silenced(&done);
        self.drain_sessions();
    }

    /// Begins a silence, or changes its end.
    pub(super) fn begin_silence(&mut self, silence: &Silence, now: Timestamp) {
        if !self.silences.begin(silence, now) {
            return;
        }
        let (matchers, mut rows) = (silence.matchers.clone(), 0);
        if !matchers.is_scoped() {
            for index in self.pipeline_deadlines.keys() {
                let resources = resources(&self.rules, &self.zone, &self.silences);
                rows += pipeline(&mut self.pipelines, index).suppress_rows(resources, now);
                self.drain_pipeline(index, now);
            }
        }
        let has_parts = self.suppresses_in_part();
        let (finder, sessions) = self.finder(now);
        let begun = Chosen { is_silence: Some(&|own| *own == matchers), is_in: None };
        let mut decide = |notification: &Notification, session: Option<&SessionView<'_>>| {
            if session.is_some() && !has_parts {
                return None;
            }
            let is_silence = |own: &Matchers| *own == matchers || is_for(own, session);
            let is_in = |own: &Scope| is_around(own, notification, session);
            let in_force = Chosen { is_silence: Some(&is_silence), is_in: Some(&is_in) };
            finder.decide_begun(notification, &begun, &in_force)
        };
        let scope = if matchers.is_scoped() { Scope::Session(SessionId::new("")) } else { Scope::All };
        let is_its = |own: &SubscriberId| matchers.may_concern(own);
        let concerns = |session: &SessionView<'_>| {
            concerns(&matchers, session) && session.injector.has_pending_of(is_its)
        };
        let done = sessions.suppress(&mut decide, &concerns, &scope);
        self.count_silenced(&done);
        let began = Began { pending: done.count, rows: rows as u64 };
        self.silences.note_began(silence.id, began);
        self.drain_sessions();
    }

    /// Counts what ended by silences.
    fn count_silenced(&mut self, done: &Suppressed) {
        for (silence, subscriber) in &done.silenced {
            self.silences.count(*silence, subscriber);
        }
    }

    /// Ends a silence: what it holds is released, and what it ended is said.
    pub(super) fn end_silence(&mut self, id: SilenceId, now: Timestamp) {
        let Some(kept) = self.silences.end(id, now) else { return };
        let count = kept.ended_count();
        let subscribers: Vec<&str> = kept.ended.keys().map(SubscriberId::as_str).collect();
        let payload = json!({
            "silence": id.as_str(),
            "suppressed": kept.silence.matchers.to_string(),
            "count": count,
            "subscribers": subscribers.join(", "),
        });
        self.end_suppression(|hold| matches!(hold, Hold::Silenced { by, .. } if *by == id), now);
        if count > 0 {
            let id = format!("silence-{id}-{}", now.as_millis());
            let event = Event::own(SILENCE_ENDED, id, Severity::Info, payload, now);
            self.outputs.push_back(Output::Publish(event));
        }
    }

    /// Ends the holds of a suppression. What else is in force holds them again.
    pub(super) fn end_suppression(&mut self, is_over: impl Fn(&Hold) -> bool, now: Timestamp) {
        let released = self.sessions.end_suppression(is_over);
        if !released.is_empty() {
            let (finder, sessions) = self.finder(now);
            let mut decide = |notification: &Notification, session: Option<&SessionView<'_>>| {
                let is_in = |own: &Scope| own.covers(&notification.scope);
                let chosen = Chosen { is_silence: Some(&|own| !own.is_scoped()), is_in: Some(&is_in) };
                let is_it = session.is_none() && released.contains(&notification.id);
                is_it.then(|| finder.decide(notification, &chosen)).flatten()
            };
            sessions.suppress(&mut decide, &|_| true, &Scope::All);
            for (notification, session) in self.sessions.queues_with(&released) {
                self.suppress_queued(notification, &session, Taken::Again);
            }
        }
        self.sessions.release_for_user();
        self.drain_sessions();
    }

    /// Ends the silences whose time is over.
    pub(super) fn end_silences(&mut self, at: Timestamp) {
        while let Some(id) = self.silences.due(at) {
            self.end_silence(id, at);
        }
    }

    /// Suppresses a notification that a session's queue has just taken, if that is suppressed in a part
    /// of the sessions with this one. What suppresses it everywhere has acted before, unless the queue
    /// takes it again.
    pub(super) fn suppress_queued(
        &mut self,
        notification: NotificationId,
        session: &SessionId,
        taken: Taken,
    ) {
        // A session that opens takes what is retained, also while something suppresses it.
        let is_again = taken == Taken::Again || self.sessions.is_retained(&notification, session);
        if !self.suppresses_in_part() && !is_again {
            return;
        }
        let now = self.now;
        let (finder, sessions) = self.finder(now);
        let decide = |notification: &Notification, session: &SessionView<'_>| {
            let is_in = |own: &Scope| is_around(own, notification, Some(session));
            let is_silence = |own: &Matchers| (is_again || own.is_scoped()) && concerns(own, session);
            finder.decide(notification, &Chosen { is_silence: Some(&is_silence), is_in: Some(&is_in) })
        };
        let suppressed = sessions.suppress_one(notification, session, decide);
        if let Some((subscriber, Suppress::End(Reason::Silenced { by }))) = suppressed {
            self.silences.count(by, &subscriber);
        }
    }

    /// Passes a notification to the user, unless it is muted, or suppressed in the one session that it is
    /// for.
    pub(super) fn pass_to_user(
        &mut self,
        notification: &Arc<Notification>,
        audience: Audience,
        now: Timestamp,
    ) {
        let (finder, sessions) = self.finder(now);
        let session = match &notification.scope {
            Scope::Session(id) => sessions.view(id),
            Scope::Workspace(_) | Scope::All | Scope::Part(_) => None,
        };
        let in_session = session.and_then(|session| {
            let is_silence = |own: &Matchers| own.is_scoped() && concerns(own, &session);
            finder.decide(notification, &Chosen { is_silence: Some(&is_silence), is_in: None })
        });
        match self.muted_for_user(notification).or(in_session) {
            // The queues of sessions record the end of what is also for the agent.
            Some(Suppress::End(_)) if audience == Audience::Both => {}
            Some(Suppress::End(reason)) => {
                if let Reason::Silenced { by } = &reason {
                    self.silences.count(*by, &notification.subscriber);
                }
                self.record(LedgerEntry::NotificationEnded {
                    notification: notification.id,
                    session: None,
                    reason,
                });
            }
            Some(Suppress::Hold(holds)) => self.sessions.pass_to_user(notification, audience, holds),
            None => self.sessions.pass_to_user(notification, audience, Vec::new()),
        }
        self.drain_sessions();
    }

    /// When a hold ends at the latest, if a time is known.
    pub fn ends(&self, hold: &Hold) -> Option<Timestamp> {
        match hold {
            Hold::Silenced { by, .. } => self.silences.get(*by).map(|kept| kept.silence.until),
            Hold::Inhibited { by, .. } => {
                self.pipelines.iter().find_map(|pipeline| pipeline.inhibits_until(*by))
            }
            Hold::Quiet { .. } | Hold::Deferred { .. } | Hold::Snoozed { .. } | Hold::Budget { .. } => {
                hold.until()
            }
        }
    }

    /// The silences.
    pub fn silences(&self) -> &Silences {
        &self.silences
    }
}
