//! From an event to the queues: the pipelines that match it, and the sessions that their
//! notifications concern.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Engine, fanout::DIRECT_MAX, io::Output, lineage::CHAIN_MAX, rules::SourceSettings};
use crate::{
    ci::Wanted,
    event::{Event, EventRef, OWN_SOURCE, Provenance, Scope, Seq, SessionId, Severity, mask_secrets},
    format,
    injector::Earlier,
    ledger::{HeldBackBy, LedgerEntry, Reason, Subject},
    notification::{Audience, Level, Notification, Priority, Sink, SubscriberId, Word},
    pipeline::{Failure, Pipeline, PipelineOutput, rule::Activity},
    probe::{
        NOTED,
        pause::{CHECKS, PAUSE_ENDED},
    },
    sink::{MESSAGE_CHARS_MAX, Notice, clean_line},
    time::Timestamp,
    watch::{self, Condition},
};

/// The type of the event that reports a failed template or `where`.
pub const SUBSCRIBER_FAILED: &str = "subscriber.failed";

impl Engine {
    /// Passes an event to every pipeline that selects its type.
    pub(super) fn dispatch(&mut self, seq: Seq, event: &EventRef<'_>, now: Timestamp) {
        self.tally.events += 1;
        self.note_turn(event, now);
        let chain = event.cause.map_or(0, |cause| self.lineage.of(cause) + 1);
        self.lineage.remember(seq, event.id, chain);
        let by = (chain > CHAIN_MAX).then_some(HeldBackBy::Causes).or_else(|| self.over_rate(event, now));
        if let Some(by) = by {
            self.throttle.hold_back(event, by, now);
            self.record(LedgerEntry::HeldBack { seq, by });
            return;
        }
        self.detect(event, now);
        self.probes.note_published(seq, event);
        let is_trusted = self.rules.wake.trusts(event.source, event.provenance);
        let ended = self.watches.observe(seq, event, is_trusted, now);
        let mut checked = self.ci.observe(seq, event, is_trusted, now);
        if is_trusted && event.event_type == watch::SET && event.source == watch::SOURCE {
            checked.extend(self.follow_for_watch(event, now));
        }
        self.outputs.extend(ended.into_iter().chain(checked).map(Output::Publish));
        let sinks = Arc::clone(&self.rules.sinks);
        let for_user = self.for_user.observe(seq, event, is_trusted, &sinks, now);
        let is_for_user = for_user.is_some();
        self.record_all(for_user.unwrap_or_default());
        let ended = self.questions.observe(event, is_trusted, now);
        self.close_questions();
        self.outputs.extend(ended.into_iter().map(Output::Publish));
        let matched: Vec<u32> = self.matcher.matches(event.event_type).to_vec();
        let resolving: Vec<u32> = self.resolvers.matches(event.event_type).to_vec();
        if matched.is_empty() && resolving.is_empty() {
            if !is_for_user {
                self.record(LedgerEntry::Unmatched { seq });
            }
            return;
        }
        if is_trusted {
            self.note_summed_up(event, &matched);
        }
        let event = Arc::new(event.to_event());
        for index in resolving {
            self.resolve(index, seq, &event, matched.contains(&index), now);
        }
        for index in matched {
            self.feed(index, seq, &event, now);
        }
    }

    /// Starts following what a new watch waits for, unless its session pushed that.
    fn follow_for_watch(&mut self, event: &EventRef<'_>, now: Timestamp) -> Vec<Event> {
        let Some(watch) = event.id.split(':').next().and_then(|id| self.watches.get(id)).cloned() else {
            return Vec::new();
        };
        let mut ended = Vec::new();
        for part in &watch.parts {
            let Condition::Ci { reference, folder } = &part.condition else { continue };
            let wanted = Wanted {
                by: &format!("{}:{}", watch.id, part.text),
                session: watch.session.as_ref(),
                workspace: watch.workspace.as_deref(),
                folder,
                reference: reference.as_deref(),
            };
            ended.extend(self.ci.want(&wanted, now));
        }
        ended
    }

    /// Ends notifications about single checks of a session when a summary after a pause covers
    /// them.
    fn note_summed_up(&mut self, event: &EventRef<'_>, matched: &[u32]) {
        let is_it = event.event_type == PAUSE_ENDED && event.source == OWN_SOURCE;
        let Some(id) = event.session.filter(|_| is_it).map(SessionId::new) else { return };
        let is_on = |index: &u32| {
            let pipeline = usize::try_from(*index).ok().and_then(|index| self.pipelines.get(index));
            pipeline.is_some_and(|pipeline| pipeline.rule().activity != Activity::Disabled)
        };
        let says_checks =
            serde_json::from_str::<Value>(event.payload).is_ok_and(|payload| payload.get(CHECKS).is_some());
        if !says_checks || !matched.iter().any(is_on) {
            return;
        }
        let ci = &self.ci;
        if let Some(session) = self.sessions.known_mut(&id) {
            let is_said = |notification: &Notification| ci.has_said(&id, &notification.events);
            session.injector.end_all_that(is_said, &Reason::SummedUp);
            self.settle_session(&id);
        }
    }

    /// Updates the probes with a trusted event, and publishes what the detectors find.
    fn detect(&mut self, event: &EventRef<'_>, now: Timestamp) {
        if event.session.is_some() && self.rules.wake.trusts(event.source, event.provenance) {
            self.probes.learn(event, now);
            let found = self.detectors.observe(event, &self.rules.detectors, now);
            self.outputs.extend(found.into_iter().map(Output::Publish));
            self.end_known(event);
        }
    }

    /// Ends notifications that only concern files whose content the session knows by now.
    fn end_known(&mut self, event: &EventRef<'_>) {
        let Some(id) = event.session.filter(|_| event.event_type == NOTED).map(SessionId::new) else {
            return;
        };
        let probes = &self.probes;
        if let Some(session) = self.sessions.known_mut(&id) {
            let is_known = |notification: &Notification| probes.knows_all(&id, &notification.events);
            session.injector.end_all_that(is_known, &Reason::Known);
            self.settle_session(&id);
        }
    }

    /// Whether the source of `event` exceeds its rate; the engine's own events have no limit.
    fn over_rate(&mut self, event: &EventRef<'_>, now: Timestamp) -> Option<HeldBackBy> {
        let SourceSettings { rate, remote_rate } = self.rules.sources;
        if (rate.is_none() && remote_rate.is_none()) || event.source == OWN_SOURCE {
            return None;
        }
        let is_from_elsewhere =
            event.provenance == Provenance::Remote && !self.rules.wake.trusts(event.source, event.provenance);
        let rate = if is_from_elsewhere { remote_rate } else { rate };
        (!self.throttle.try_take(event.source, rate?, now)).then_some(HeldBackBy::SourceRate)
    }

    fn feed(&mut self, index: u32, seq: Seq, event: &Arc<Event>, now: Timestamp) {
        let Some(pipeline) = usize::try_from(index).ok().and_then(|index| self.pipelines.get_mut(index))
        else {
            return;
        };
        if pipeline.rule().activity == Activity::Disabled {
            let subscriber = pipeline.rule().id.clone();
            self.record(LedgerEntry::EventEnded { seq, subscriber, reason: Reason::SubscriberOff });
            return;
        }
        pipeline.handle(seq, event, &self.rules.templates, now);
        self.drain_pipeline(index, now);
    }

    /// Handles a pipeline's outputs, and sets its wake-up time.
    pub(super) fn drain_pipeline(&mut self, index: u32, now: Timestamp) {
        let Some(place) = usize::try_from(index).ok() else { return };
        let Some(pipeline) = self.pipelines.get(place) else { return };
        let rule = Arc::clone(pipeline.rule());
        self.pipeline_deadlines.set(index, pipeline.poll_timeout());
        while let Some(output) = self.pipelines.get_mut(place).and_then(Pipeline::poll_output) {
            let subscriber = rule.id.clone();
            match output {
                PipelineOutput::Batched { seq } => self.record(LedgerEntry::Batched { seq, subscriber }),
                PipelineOutput::Ended { seq, reason } => {
                    self.record(LedgerEntry::EventEnded { seq, subscriber, reason });
                }
                PipelineOutput::Notification(notification) => {
                    self.route(notification, rule.output.audience, now);
                }
                PipelineOutput::Said { notification, number, word } => {
                    self.say(&notification, number, word, now);
                }
                PipelineOutput::Failed(failure) => self.report_failure(&subscriber, &failure, now),
            }
        }
    }

    /// Routes a notification to its audience: the queue of every open session in its scope (or it
    /// is kept for the next one), the user's sinks, or both.
    pub(super) fn route(&mut self, notification: Arc<Notification>, audience: Audience, now: Timestamp) {
        self.lineage.remember_notification(&notification);
        self.outputs.push_back(Output::Made(notification.clone()));
        self.record(LedgerEntry::Created {
            notification: notification.id.clone(),
            subscriber: notification.subscriber.clone(),
            events: notification.events.clone(),
            created_at: notification.created_at,
        });
        if audience != Audience::Agent {
            self.send_to_user(&notification, audience, now);
        }
        if audience == Audience::User {
            return;
        }
        let Some(concerned) = self.sessions.concerned(&notification.scope, DIRECT_MAX) else {
            self.broadcast(notification);
            return;
        };
        if concerned.is_empty() {
            self.keep_unclaimed(notification, None, Earlier::Not);
            return;
        }
        for session in concerned {
            let events = &notification.events;
            let is_watched = self.watches.has_said(&session, events).then_some(Reason::Watched);
            match is_watched.or_else(|| self.probes.knows_all(&session, events).then_some(Reason::Known)) {
                Some(reason) => {
                    let (notification, session) = (notification.id.clone(), Some(session));
                    self.record(LedgerEntry::NotificationEnded { notification, session, reason });
                }
                None => {
                    self.queue(&session, notification.clone());
                }
            }
        }
    }

    /// Sends a notification to the user's sinks as one line.
    fn send_to_user(&mut self, notification: &Notification, audience: Audience, now: Timestamp) {
        // A user who sees what the agent gets does not need it twice.
        let is_shown = audience == Audience::Both
            && self.rules.injection.delivery_notice
            && notification.priority > Priority::Low;
        let sinks = self.rules.sinks.default.iter().copied();
        let sinks: Vec<Sink> = sinks.filter(|sink| !is_shown || *sink != Sink::Harness).collect();
        if is_shown && sinks.is_empty() {
            return;
        }
        let message = format::line_for_user(notification, MESSAGE_CHARS_MAX);
        let notice = Notice {
            level: Level::of(notification.severity),
            ..self.notice(notification, notification.id.as_str(), &message, now)
        };
        let subject = Subject::Notification(notification.id.clone());
        let entries = self.for_user.take(notice, subject, &sinks, now);
        self.record_all(entries);
    }

    /// Sends to the user's sinks what the template of a notification says.
    fn say(&mut self, notification: &Notification, number: usize, word: Word, now: Timestamp) {
        let Word { message, level, category, link } = word;
        let message = clean_line(&message, MESSAGE_CHARS_MAX);
        if message.is_empty() {
            // Nothing of it can be shown.
            return;
        }
        // The same after a replay, as that of the notification is.
        let id = format!("{}:{number}", notification.id);
        let link = link.map(|link| mask_secrets(&link).into());
        let notice = Notice { level, category, link, ..self.notice(notification, &id, &message, now) };
        self.outputs.push_back(Output::Said(Arc::new(notice.clone())));
        let sinks = Arc::clone(&self.rules.sinks);
        let subject = Subject::Notification(notification.id.clone());
        let entries = self.for_user.take(notice, subject, &sinks.default, now);
        self.record_all(entries);
    }

    /// A notice of the subscriber of a notification, from the place that this concerns.
    fn notice(&self, notification: &Notification, id: &str, message: &str, now: Timestamp) -> Notice {
        let (session, workspace) = match &notification.scope {
            Scope::Session(session) => {
                let known = self.sessions.view(session).and_then(|known| known.harness.workspace.clone());
                (Some(session.clone()), known.map(|folder| folder.as_ref().into()))
            }
            Scope::Workspace(folder) => (None, Some(Arc::clone(folder))),
            Scope::All => (None, None),
        };
        let context = notification.subscriber.as_str().into();
        Notice { context, session, workspace, ..Notice::new(id, message, now) }
    }

    /// Puts a notification into one session's queue; returns whether it is new there.
    pub(super) fn queue(&mut self, session: &SessionId, notification: Arc<Notification>) -> bool {
        self.catch_up(session);
        let Some(known) = self.sessions.known_mut(session) else {
            return false;
        };
        let pushed = known.injector.push(notification);
        self.settle_session(session);
        pushed.is_new
    }

    /// Publishes that a template or a `where` failed. The pipeline reports a place once, so this
    /// cannot loop.
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
