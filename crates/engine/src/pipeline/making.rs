//! Makes a notification of a batch: its text, its words for a person, and its properties.

use std::sync::Arc;

use journal::time::Timestamp;
use sha2::{Digest, Sha256};

use super::{
    FailedPart, Failure, Pipeline, PipelineOutput, Resources, RowEvents,
    batch::Batch,
    delay::delays,
    newest::Conditions,
    origins::Origins,
    render::{Kept, RenderFailure, RenderInput},
    row::{DeferredCounts, Row, raw_bytes},
    rule::{Subscriber, Weight},
};
use crate::{
    event::Seq,
    hex::hex,
    notification::{InjectionPoint, Notification, NotificationId, Priority, State, TemplateNotice},
};

impl Pipeline {
    /// Makes the notification of a batch, and says what its text asks for.
    pub(super) fn render(
        &mut self,
        batch: Batch,
        states: Vec<State>,
        weight: Weight,
        resources: Resources<'_>,
    ) {
        let rule = Arc::clone(&self.rule);
        let (deferred, now) = (self.deferred.take(&batch.scope), batch.closed_at);
        let layout = &rule.output.layout;
        let origins = Origins::new(&batch.rows, &rule.wake);
        let input = RenderInput { origins: origins.by_row(), ..render_input(&rule, &batch, deferred) };
        let rendered = layout.render(resources.templates, &input);
        let sentences = self.say(&rule, &input, now);
        let part = layout.part(batch.rows.len());
        match rendered.failure {
            None => self.failures.succeeded(&part),
            Some(RenderFailure { line, message, range: _ }) => {
                self.report(Failure { part, line, message }, now)
            }
        }
        let (priority, inject_at) = match weight {
            Weight::Untrusted | Weight::Usual => {
                let priority = rule.output.priority_of(&batch.rows);
                rule.wake.lowered(priority, rule.output.inject_at, &batch.rows)
            }
            Weight::Escalated => (Priority::Critical, InjectionPoint::Immediate),
        };
        let requested = rule.output.activation_in(&batch.scope);
        let activation = rule.wake.activation(requested, priority, &batch.rows);
        let is_asked = rule.wake.is_asked(&batch.rows);
        let (severity, raw_bytes) = (batch.severity(), raw_bytes(&batch.rows, deferred));
        let Conditions { nature, unresolved } = Conditions::new(&rule, &mut self.key, &batch.rows);
        let events: Vec<Seq> = batch.rows.iter().map(|row| row.seq).collect();
        let first_id = batch.rows.first().map(|row| &*row.event.id).unwrap_or_default();
        let notification = Arc::new(Notification {
            id: notification_id(&rule, &events, first_id),
            subscriber: rule.id.clone(),
            scope: batch.scope.clone(),
            priority,
            inject_at,
            activation,
            is_asked,
            interrupt: rule.output.interrupt,
            nature,
            untrusted_source: origins.in_line(),
            rows_name_sources: rendered.names_sources,
            severity,
            content: rendered.content.into(),
            sentences,
            tokens: rendered.tokens,
            raw_bytes,
            events,
            states,
            unresolved,
            created_at: now,
            expires_at: rule.ttl.map(|ttl| now + ttl),
            delays: delays(&rule, &batch, priority, resources.zone),
            retain_until: rule.retain.map(|retain| now + retain),
            requires_response: rule.output.requires_response,
            repeat: rule.repeat.clone(),
            region: rule.output.region,
            charged_to: resources.budget.charged_to(batch.rows.iter().map(|row| &*row.event.source)),
            summarised: None,
        });
        self.queue(notification, batch.rows, rendered.words, resources);
    }

    /// Queues a notification for the engine: its events and their hold before it, its words after it.
    fn queue(
        &mut self,
        notification: Arc<Notification>,
        mut rows: Vec<Row>,
        words: Vec<TemplateNotice>,
        resources: Resources<'_>,
    ) {
        let hold = rows.first_mut().and_then(|row| row.suppressed.take());
        let hold = hold.filter(|hold| self.is_in_force(hold, resources));
        let events = RowEvents(rows.into_iter().map(|row| row.event).collect());
        self.outputs.push_back(PipelineOutput::Events { notification: notification.id, events, hold });
        self.outputs.push_back(PipelineOutput::Notification(Arc::clone(&notification)));
        for (number, word) in (1..).zip(words) {
            let notification = Arc::clone(&notification);
            self.outputs.push_back(PipelineOutput::Said { notification, number, word });
        }
    }

    /// The words for a person; none if the subscriber has no `sentence`, or it fails.
    fn say(&mut self, rule: &Subscriber, input: &RenderInput<'_>, now: Timestamp) -> Vec<Arc<str>> {
        let Some(sentence) = &rule.output.sentence else { return Vec::new() };
        match sentence.render(input) {
            Ok(said) => {
                self.failures.succeeded(&FailedPart::Sentence);
                said
            }
            Err(RenderFailure { line, message, range: _ }) => {
                self.report(Failure { part: FailedPart::Sentence, line, message }, now);
                Vec::new()
            }
        }
    }
}

pub(super) fn render_input<'a>(
    rule: &'a Subscriber,
    batch: &'a Batch,
    deferred: DeferredCounts,
) -> RenderInput<'a> {
    RenderInput {
        subscriber: &rule.id,
        subscriber_name: &rule.name,
        rows: &batch.rows,
        kept: if batch.held_since.is_some() { Kept::Newest } else { rule.batching.kept() },
        origins: &[],
        repeats: deferred.repeats,
        suppressed: deferred.suppressed,
        omitted: batch.omitted,
        held_since: batch.held_since,
        absent_for: rule.absence.as_ref().map(|absence| absence.after),
        now: batch.closed_at,
        max_tokens: rule.output.max_tokens,
    }
}

/// The id of the notification of `events`. The same subscriber and events always have the same id,
/// so a replay creates no duplicate. Positions are reused after a loss, so the id of the first
/// event is hashed too.
///
/// Shape: `n` and 12 lower-case hex digits, the first 48 bits of a SHA-256.
pub(super) fn notification_id(rule: &Subscriber, events: &[Seq], first_id: &str) -> NotificationId {
    let mut hash = Sha256::new_with_prefix(rule.id.as_str());
    for seq in events {
        hash.update([0]);
        hash.update(seq.0.to_le_bytes());
    }
    hash.update([0]);
    hash.update(first_id);
    NotificationId::new(&format!("n{}", hex(hash.finalize().iter().take(6))))
}
