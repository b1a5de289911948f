//! Passes an event to the pipelines that match it, and to all other consumers of events.

use std::sync::Arc;

use serde_json::Value;

use super::{
    folds::Folds,
    parts::{Engine, pipeline},
};
use journal::time::Timestamp;

use crate::{
    ci::Wanted,
    event::{Event, EventRef, Seq, SessionId, catalogue::own::ends_checks},
    fold::Dispatched,
    ledger::{LedgerEntry, Reason},
    notification::Notification,
    pipeline::{Pipeline, remainder, rule::Activity},
    probe::{
        NOTED,
        pause::{CHECKS, PAUSE_ENDED},
    },
    watch::{self, Condition},
};

impl Engine {
    /// Passes an event to every pipeline that selects its type.
    pub(super) fn dispatch(&mut self, seq: Seq, event: &EventRef<'_>, now: Timestamp) {
        self.tally.events += 1;
        let trust = self.rules.wake.trust(event.source, event.provenance);
        self.sessions.note_turn(event, trust, now);
        self.drain_sessions();
        let chain = self.folds.lineage.extend(seq, event);
        let rate = self.rules.sources.rate_of(event, trust);
        if let Some(by) = self.folds.throttle.check(event, chain, rate, now) {
            self.record(LedgerEntry::Throttled { seq, by });
            return;
        }
        let checks_go_on = ends_checks(event) && self.folds.ci.goes_on(event);
        let dispatched = Dispatched { seq, event, trust, checks_go_on, now };
        let is_taken = self.folds.observe(&dispatched, &self.rules, &mut self.effects);
        if event.is_own() && event.event_type == watch::SET {
            self.follow_for_watch(event, now);
        }
        self.drain_folds();
        if event.is_own() && event.event_type == NOTED {
            self.end_known(event);
        }
        let matched: Vec<u32> = self.matcher.matches(event.event_type).to_vec();
        let resolving: Vec<u32> = self.resolvers.matches(event.event_type).to_vec();
        if matched.is_empty() && resolving.is_empty() {
            if !is_taken {
                self.record(LedgerEntry::Unmatched { seq });
            }
            return;
        }
        if trust.is_trusted() {
            self.note_summed_up(event, &matched);
        }
        let event = Arc::new(event.to_event());
        for index in resolving {
            let reason = self.resolve(index, seq, &event, now);
            if !matched.contains(&index) {
                let subscriber = self.pipeline_mut(index).rule().id.clone();
                self.record(LedgerEntry::EventEnded { seq, subscriber, reason });
            }
        }
        for index in matched {
            if !remainder::is_left(self.pipeline_mut(index).rule(), &event) {
                continue;
            }
            self.feed(index, seq, &event, now);
        }
    }

    /// Starts to follow the checks that a new watch waits for, unless its session pushed them.
    fn follow_for_watch(&mut self, event: &EventRef<'_>, now: Timestamp) {
        let Folds { watches, ci, .. } = &mut self.folds;
        let Some(watch) = event.id.split(':').next().and_then(|id| watches.get(id)) else { return };
        for part in &watch.parts {
            let Condition::Ci { reference, folder } = &part.condition else { continue };
            let wanted = Wanted {
                by: &format!("{}:{}", watch.id, part.text),
                session: watch.session.as_ref(),
                workspace: watch.workspace.as_deref(),
                folder,
                reference: reference.as_deref(),
            };
            ci.want(&wanted, now, &mut self.effects);
        }
    }

    /// Ends notifications about single checks of a session if a summary after a pause covers them.
    fn note_summed_up(&mut self, event: &EventRef<'_>, matched: &[u32]) {
        let is_it = event.is_own() && event.event_type == PAUSE_ENDED;
        let Some(id) = event.session.filter(|_| is_it).map(SessionId::new) else { return };
        let mut pipelines =
            matched.iter().filter_map(|index| self.pipelines.get(usize::try_from(*index).ok()?));
        let is_off = |pipeline: &Pipeline| pipeline.rule().activity == Activity::Disabled;
        let says_checks =
            serde_json::from_str::<Value>(event.payload).is_ok_and(|payload| payload.get(CHECKS).is_some());
        if !says_checks || pipelines.all(is_off) {
            return;
        }
        let ci = &self.folds.ci;
        let is_said = |notification: &Notification| ci.has_said(&id, &notification.events);
        self.sessions.end_pending(&id, is_said, &Reason::SummedUp);
        self.drain_sessions();
    }

    /// Ends notifications that only concern files whose content the session already knows.
    fn end_known(&mut self, event: &EventRef<'_>) {
        let Some(id) = event.session.map(SessionId::new) else { return };
        let probes = &self.folds.probes;
        let is_known = |notification: &Notification| probes.knows_all(&id, &notification.events);
        self.sessions.end_pending(&id, is_known, &Reason::Known);
        self.drain_sessions();
    }

    fn feed(&mut self, index: u32, seq: Seq, event: &Arc<Event>, now: Timestamp) {
        let pipeline = pipeline(&mut self.pipelines, index);
        if pipeline.rule().activity == Activity::Disabled {
            let subscriber = pipeline.rule().id.clone();
            self.record(LedgerEntry::EventEnded { seq, subscriber, reason: Reason::SubscriberOff });
            return;
        }
        pipeline.handle(seq, event, &self.rules.templates, now);
        self.drain_pipeline(index, now);
    }

    /// Passes an event to a pipeline whose conditions it may resolve. Returns the reason why the
    /// event ends there if the subscriber does not also take it.
    fn resolve(&mut self, index: u32, seq: Seq, event: &Event, now: Timestamp) -> Reason {
        let pipeline = pipeline(&mut self.pipelines, index);
        let resolution = match pipeline.rule().activity {
            Activity::Disabled => Err(Reason::SubscriberOff),
            Activity::Core | Activity::Enabled => pipeline.resolve(seq, event, &self.rules.templates, now),
        };
        self.drain_pipeline(index, now);
        if let Ok(resolution) = &resolution {
            self.sessions.withdraw(resolution);
            self.drain_sessions();
        }
        resolution.err().unwrap_or(Reason::Resolves)
    }
}
