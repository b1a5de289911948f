//! The stages that limit how much a subscriber makes: of events, and of notifications.

use std::sync::Arc;

use journal::time::Timestamp;

use super::Pipeline;
use crate::{
    event::{Event, Scope},
    ledger::Reason,
    pipeline::{
        batch::Batch,
        row::DeferredCounts,
        rule::{RateOf, Subscriber, Weight},
    },
};

impl Pipeline {
    /// Takes one of the subscriber's limit of events; what is over it is counted in the next
    /// notification.
    pub(super) fn limit_event(
        &mut self,
        event: &Arc<Event>,
        scope: &Scope,
        weight: Weight,
        now: Timestamp,
    ) -> Result<(), Reason> {
        if weight == Weight::Escalated || !self.limits(RateOf::Events) {
            return Ok(());
        }
        self.take_one(&Arc::clone(&self.rule), scope, event, now).map_err(|retry_at| {
            self.deferred.add(scope, DeferredCounts { repeats: 0, suppressed: 1 }, now);
            Reason::RateLimited { retry_at }
        })
    }

    fn limits(&self, of: RateOf) -> bool {
        self.rule.rate.as_ref().is_some_and(|rule| rule.of == of)
    }

    /// Takes a token from the bucket of the limit for a scope and an event. Errors: the time from
    /// which one is available.
    fn take_one(
        &mut self,
        rule: &Subscriber,
        scope: &Scope,
        event: &Event,
        now: Timestamp,
    ) -> Result<(), Timestamp> {
        match &rule.rate {
            None => Ok(()),
            Some(limit) if limit.by.is_empty() => self.limiter.try_take(limit.rate, scope, now),
            Some(limit) => {
                let key = self.key.start().scope(scope).identity(&limit.by, event).digest();
                self.limiter_by.try_take(limit.rate, &key, now)
            }
        }
    }

    /// Takes a notification from the limit; the rows of a batch over it end, counted in the next one.
    pub(super) fn limit(&mut self, batch: Batch, weight: Weight) -> Option<Batch> {
        let is_limited = weight != Weight::Escalated && self.limits(RateOf::Notifications);
        let Some(first) = batch.rows.first().filter(|_| is_limited) else { return Some(batch) };
        let event = Arc::clone(&first.event);
        let Err(retry_at) = self.take_one(&Arc::clone(&self.rule), &batch.scope, &event, batch.closed_at)
        else {
            return Some(batch);
        };
        let suppressed = DeferredCounts { repeats: 0, suppressed: batch.event_count() };
        self.deferred.add(&batch.scope, suppressed, batch.closed_at);
        for row in batch.rows {
            self.end(row.seq, Reason::RateLimited { retry_at });
        }
        None
    }
}
