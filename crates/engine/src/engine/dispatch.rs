//! Passes an event to the pipelines that match it and to all other consumers of events, and a
//! pipeline's outputs to the queues and to the user.
//!
//! The user gets a subscriber's notifications as one line each, and the notices of templates.

use std::sync::Arc;

use journal::time::Timestamp;
use serde_json::{Value, json};

use super::{
    io::Output,
    parts::{Engine, Folds, pipeline, resources, rule},
};
use crate::{
    ci::Wanted,
    conversation::Concerned,
    event::{Event, EventRef, Seq, SessionId, Severity, catalogue::ends_checks, mask_secrets},
    fold::Dispatched,
    format,
    hold::Hold,
    ledger::{LedgerEntry, Reason, Subject},
    notification::{Audience, Level, Notification, Priority, Sink, SubscriberId, TemplateNotice},
    pipeline::{
        Failure, HoldChange, Pipeline, PipelineOutput, Resources, remainder, rule::Activity, territory,
    },
    probe::{
        self, NOTED,
        pause::{CHECKS, PAUSE_ENDED},
    },
    sink::{MESSAGE_CHARS_MAX, Notice, clean_line},
    watch::{self, Condition},
};

/// Most characters of what nobody answered, in the notice about it.
const UNANSWERED_CHARS_MAX: usize = 160;

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
        let used_context = probe::used_context(event);
        let dispatched = Dispatched { seq, event, trust, checks_go_on, used_context, now };
        let is_taken = self.folds.observe(&dispatched, &self.rules, &mut self.effects);
        if event.is_own() && event.event_type == watch::SET {
            self.follow_for_watch(event, now);
        }
        self.drain_folds();
        if event.is_own() && event.event_type == NOTED {
            self.end_known(event);
        }
        self.sessions.note_for_delays(event, || event.scope(), used_context);
        self.drain_sessions();
        let mut matched: Vec<u32> = self.matcher.matches(event.event_type).to_vec();
        let mut resolving: Vec<u32> = self.resolvers.matches(event.event_type).to_vec();
        let mut inhibiting: Vec<u32> = self.inhibitors.matches(event.event_type).to_vec();
        inhibiting.sort_unstable();
        inhibiting.dedup();
        if !self.rules.folders.is_empty() {
            self.keep_holding(&mut matched, [&mut resolving, &mut inhibiting], event);
        }
        if matched.is_empty() && resolving.is_empty() && inhibiting.is_empty() {
            if !is_taken {
                self.record(LedgerEntry::Unmatched { seq });
            }
            return;
        }
        if trust.is_trusted() {
            self.note_summed_up(event, &matched);
        }
        let event = Arc::new(event.to_event());
        for index in inhibiting {
            let resources = resources(&self.rules, &self.zone, &self.silences);
            pipeline(&mut self.pipelines, index).inhibit(seq, &event, resources, now);
            self.drain_pipeline(index, now);
            if !matched.contains(&index) && !resolving.contains(&index) {
                let subscriber = self.pipeline_mut(index).rule().id.clone();
                self.record(LedgerEntry::EventEnded { seq, subscriber, reason: Reason::Inhibits });
            }
        }
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

    /// Removes the subscribers that do not hold for the sessions of `event`, by their folders. One that
    /// is replaced in a folder still has what it delivered there before: the `others` may resolve or
    /// inhibit that.
    fn keep_holding(&self, matched: &mut Vec<u32>, others: [&mut Vec<u32>; 2], event: &EventRef<'_>) {
        if matched.is_empty() && others.iter().all(|one| one.is_empty()) {
            return;
        }
        let event = Arc::new(event.to_event());
        let workspace = event.session.as_ref().and_then(|session| self.folder_of(session));
        let rule = |index: &u32| rule(&self.pipelines, *index);
        matched.retain(|index| territory::holds_for(rule(index), &event, workspace.as_deref()));
        for own in others {
            own.retain(|index| territory::is_around(rule(index), &event, workspace.as_deref()));
        }
    }

    /// The folder of a session, else of its parent.
    pub(super) fn folder_of(&self, session: &SessionId) -> Option<Arc<str>> {
        let known = self.sessions.view(session)?;
        let parent = || self.sessions.view(known.harness.parent.as_ref()?)?.harness.workspace.clone();
        known.harness.workspace.clone().or_else(parent)
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
        let muted = self.muted_for_all(rule(&self.pipelines, index), event);
        let pipeline = pipeline(&mut self.pipelines, index);
        if pipeline.rule().activity == Activity::Disabled {
            let subscriber = pipeline.rule().id.clone();
            self.record(LedgerEntry::EventEnded { seq, subscriber, reason: Reason::SubscriberOff });
            return;
        }
        let own = resources(&self.rules, &self.zone, &self.silences);
        pipeline.handle(seq, event, Resources { muted: muted.as_ref(), ..own }, now);
        self.drain_pipeline(index, now);
    }

    /// Passes an event to a pipeline whose conditions it may resolve. Returns the reason why the
    /// event ends there if the subscriber does not also take it.
    fn resolve(&mut self, index: u32, seq: Seq, event: &Event, now: Timestamp) -> Reason {
        let pipeline = pipeline(&mut self.pipelines, index);
        let resolution = match pipeline.rule().activity {
            Activity::Disabled => Err(Reason::SubscriberOff),
            Activity::Core | Activity::Enabled => {
                pipeline.resolve(seq, event, resources(&self.rules, &self.zone, &self.silences), now)
            }
        };
        self.drain_pipeline(index, now);
        if let Ok(resolution) = &resolution {
            self.sessions.withdraw(resolution);
            self.drain_sessions();
        }
        resolution.err().unwrap_or(Reason::Resolves)
    }
}

/// The type of the event that reports a failed template or `where`.
pub const SUBSCRIBER_FAILED: &str = "subscriber.failed";

impl Engine {
    /// Notes the state of a pipeline after a step, and handles its outputs.
    pub(super) fn drain_pipeline(&mut self, index: u32, now: Timestamp) {
        let rule = Arc::clone(self.pipeline_mut(index).rule());
        self.note_pipeline(index);
        while let Some(output) = self.pipeline_mut(index).poll_output() {
            match output {
                PipelineOutput::Batched { seq } => {
                    self.record(LedgerEntry::Batched { seq, subscriber: rule.id.clone() });
                }
                PipelineOutput::Ended { seq, reason } => {
                    self.record(LedgerEntry::EventEnded { seq, subscriber: rule.id.clone(), reason });
                }
                PipelineOutput::Notification(notification) => {
                    self.route(notification, rule.output.audience, now);
                }
                PipelineOutput::Said { notification, number, word } => {
                    self.say(&notification, number, word, now);
                }
                PipelineOutput::Events { notification, events, hold } => {
                    self.recent.insert(notification, events.0);
                    if let Some(hold) = hold {
                        self.region_changes += 1;
                        self.sessions.keep_holds(notification, vec![*hold]);
                    }
                }
                PipelineOutput::Resolved(resolution) => {
                    self.sessions.withdraw(&resolution);
                    self.drain_sessions();
                }
                PipelineOutput::Unseen(newer) => {
                    self.sessions.outdate(&newer);
                    self.drain_sessions();
                }
                PipelineOutput::Holds(change) => self.change_holds(&rule.id, &change, now),
                PipelineOutput::Failed(failure) => self.report_failure(&rule.id, &failure, now),
            }
        }
    }

    fn change_holds(&mut self, subscriber: &SubscriberId, change: &HoldChange, now: Timestamp) {
        self.region_changes += 1;
        match change {
            HoldChange::QuietBegan { since, until } => self.sessions.begin_quiet(subscriber, *since, *until),
            HoldChange::QuietEnded => self.sessions.end_quiet(subscriber),
            HoldChange::SuppressionBegan { scope, rows: _ } => self.inhibit_pending(subscriber, scope, now),
            HoldChange::InhibitionsEnded(ended) => {
                let is_over = |hold: &Hold| matches!(hold, Hold::Inhibited { by, .. } if ended.contains(by));
                self.end_suppression(is_over, now);
            }
        }
        self.drain_sessions();
    }

    /// Routes a notification to its audience: the queue of every open session in its scope (without
    /// one, it is kept for the next session), the user's sinks, or both.
    pub(super) fn route(&mut self, notification: Arc<Notification>, audience: Audience, now: Timestamp) {
        self.folds.lineage.remember_notification(&notification);
        self.outputs.push_back(Output::Made(notification.clone()));
        self.record(LedgerEntry::Created {
            notification: notification.id,
            subscriber: notification.subscriber.clone(),
            events: notification.events.clone(),
            created_at: notification.created_at,
        });
        if self.sessions.is_dismissed(&notification) {
            self.sessions.end(notification.id, Reason::Dismissed);
            self.drain_sessions();
            return;
        }
        if audience != Audience::Agent {
            self.pass_to_user(&notification, audience, now);
        }
        if audience == Audience::User {
            return;
        }
        self.sessions.retain(&notification);
        self.sessions.note_for_regions(&notification);
        if notification.is_in_region_only() {
            self.sessions.end(notification.id, Reason::InRegion);
            self.drain_sessions();
            return;
        }
        match self.sessions.concerned(&notification.scope) {
            Concerned::Many => self.sessions.broadcast(notification),
            Concerned::Nobody => self.sessions.keep(notification),
            Concerned::Few(sessions) => {
                let mut takers = Vec::with_capacity(sessions.len());
                for session in sessions {
                    let id = self.sessions.id(session);
                    match self.folds.reason_against(id, &notification.events) {
                        Some(reason) => self.sessions.refuse(notification.id, id.clone(), reason),
                        None => takers.push(session),
                    }
                }
                let woken = self.sessions.woken_for(&notification, takers.iter().copied());
                for session in takers {
                    self.sessions.queue(session, Arc::clone(&notification), woken);
                }
            }
        }
        self.drain_sessions();
    }

    /// Publishes the failure of a template or a `where`. The pipeline reports each place only once,
    /// so this cannot loop.
    fn report_failure(&mut self, subscriber: &SubscriberId, failure: &Failure, now: Timestamp) {
        let file = failure.part.file(subscriber);
        let payload = json!({
            "subscriber": subscriber.as_str(),
            "file": file,
            "line": failure.line,
            "message": failure.message,
        });
        let id = format!("failed-{subscriber}-{file}-{}-{}", failure.line.unwrap_or(0), now.as_millis());
        let event = Event::own(SUBSCRIBER_FAILED, id, Severity::Warning, payload, now);
        self.outputs.push_back(Output::Publish(event));
    }
}

impl Engine {
    /// Sends a notification to the user's sinks as one line.
    pub(super) fn send_to_user(&mut self, notification: &Notification, audience: Audience, now: Timestamp) {
        // A user who sees the agent's notifications does not need a second copy.
        let is_shown = audience == Audience::Both
            && self.rules.injection.delivery_notice
            && notification.priority > Priority::Low;
        let sinks = self.rules.sinks.all.default.iter().copied();
        let sinks: Vec<Sink> = sinks.filter(|sink| !is_shown || *sink != Sink::Harness).collect();
        if is_shown && sinks.is_empty() {
            return;
        }
        let message = format::line_for_user(notification, MESSAGE_CHARS_MAX);
        let notice = Notice {
            level: Level::of(notification.severity),
            ..self.notice(notification, notification.id.as_str(), &message, now)
        };
        let subject = Subject::Notification(notification.id);
        let sinks = (sinks.as_slice(), &self.rules.sinks.filters);
        self.folds.for_user.take(notice, subject, sinks, now, &mut self.effects);
        self.drain_folds();
    }

    /// Sends a notice of a notification's template to the user's sinks.
    pub(super) fn say(
        &mut self,
        notification: &Notification,
        number: usize,
        word: TemplateNotice,
        now: Timestamp,
    ) {
        let TemplateNotice { message, level, category, link } = word;
        let message = clean_line(&message, MESSAGE_CHARS_MAX);
        if message.is_empty() {
            // The notice has no text that can be shown.
            return;
        }
        // The id is the same after a replay, like the notification's id.
        let id = format!("{}:{number}", notification.id);
        let link = link.map(|link| mask_secrets(&link).into());
        let notice = Notice { level, category, link, ..self.notice(notification, &id, &message, now) };
        self.outputs.push_back(Output::Said(Arc::new(notice.clone())));
        let subject = Subject::Notification(notification.id);
        let sinks = (self.rules.sinks.all.default.as_slice(), &self.rules.sinks.filters);
        self.folds.for_user.take(notice, subject, sinks, now, &mut self.effects);
        self.drain_folds();
    }

    /// Tells the user that nobody answered a notification, once for all sessions.
    pub(super) fn report_unanswered(&mut self, notification: &Notification) {
        let id = notification.id;
        let line = format::line_for_user(notification, UNANSWERED_CHARS_MAX);
        let subscriber = notification.subscriber.in_file();
        let message = format!("nobody answered {id} of {subscriber}: {line}; aside why {id} shows it");
        let notice = Notice {
            level: Level::Warn,
            context: "repeat".into(),
            ..Notice::new(&format!("unanswered-{id}"), &message, self.now)
        };
        self.outputs.push_back(Output::Publish(notice.event()));
    }

    /// A notice of a notification's subscriber, with the notification's folder.
    fn notice(&self, notification: &Notification, id: &str, message: &str, now: Timestamp) -> Notice {
        let (session, folder) = notification.scope.address();
        let own = session.and_then(|session| self.sessions.view(session)?.harness.workspace.clone());
        let (session, workspace) = (session.cloned(), own.or_else(|| folder.cloned()));
        let context = notification.subscriber.as_str().into();
        Notice { context, session, workspace, ..Notice::new(id, message, now) }
    }
}
