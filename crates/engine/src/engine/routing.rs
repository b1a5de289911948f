//! Passes a pipeline's outputs to the queues and to the user.

use std::sync::Arc;

use serde_json::json;

use super::{io::Output, parts::Engine};
use journal::time::Timestamp;

use crate::{
    conversation::Concerned,
    event::{Event, Severity},
    ledger::LedgerEntry,
    notification::{Audience, Notification, SubscriberId},
    pipeline::{Failure, PipelineOutput},
};

/// The type of the event that reports a failed template or `where`.
pub const SUBSCRIBER_FAILED: &str = "subscriber.failed";

impl Engine {
    /// Handles a pipeline's outputs, and sets its wake-up time.
    pub(super) fn drain_pipeline(&mut self, index: u32, now: Timestamp) {
        let pipeline = self.pipeline_mut(index);
        let (rule, timeout) = (Arc::clone(pipeline.rule()), pipeline.poll_timeout());
        self.pipeline_deadlines.set(index, timeout);
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
                PipelineOutput::Failed(failure) => self.report_failure(&rule.id, &failure, now),
            }
        }
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
        if audience != Audience::Agent {
            self.send_to_user(&notification, audience, now);
        }
        if audience == Audience::User {
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
