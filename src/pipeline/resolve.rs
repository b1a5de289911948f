//! Resolves conditions.

use std::sync::Arc;

use super::{Pipeline, PipelineOutput};
use crate::{
    event::{Event, Seq, Trust},
    ledger::{FilteredBy, Reason},
    notification::Resolution,
    pipeline::{filter, render::Templates, row::Row, rule::Subscriber, unresolved::condition_of},
    time::Timestamp,
};

impl Pipeline {
    /// Takes an event whose type resolves conditions, and returns the resolution. Rows of open
    /// batches are withdrawn here. The caller drains `poll_output`, then withdraws the
    /// notifications. An untrusted event resolves no condition of a trusted one.
    ///
    /// Errors: the filter that refuses it. `where` and `severity_filter` are not checked, because
    /// they select what is delivered.
    pub fn resolve(
        &mut self,
        seq: Seq,
        event: &Event,
        templates: &Templates,
        now: Timestamp,
    ) -> Result<Resolution, FilteredBy> {
        self.handle_timeout(templates, now);
        let rule = Arc::clone(&self.rule);
        filter::check_source(&rule, event)?;
        let equal = rule.resolve.as_ref().map_or(&[][..], |resolve| &resolve.equal);
        let mut keys = vec![self.key.state(equal, Trust::Untrusted, event)];
        if rule.wake.trust_in(event).is_trusted() {
            keys.push(self.key.state(equal, Trust::Trusted, event));
        }
        let resolution = Resolution { subscriber: rule.id.clone(), seq, scope: event.scope(), keys };
        self.dedupe.forget_conditions(&resolution.keys);
        self.withdraw_rows(&rule, &resolution, templates, now);
        Ok(resolution)
    }

    /// Ends the rows resolved by `resolution`. A batch with a wider scope closes instead, so that
    /// each session can withdraw its own notification.
    fn withdraw_rows(
        &mut self,
        rule: &Subscriber,
        resolution: &Resolution,
        templates: &Templates,
        now: Timestamp,
    ) {
        let key = &mut self.key;
        let mut ends =
            |row: &Row| condition_of(rule, key, &row.event).is_some_and(|key| resolution.keys.contains(&key));
        let withdrawn = self.batcher.withdraw(&resolution.scope, &mut ends);
        let shared = self
            .batcher
            .close_that(|scope, rows| resolution.scope.meets(scope) && rows.iter().any(&mut ends), now);
        for row in withdrawn {
            self.outputs.push_back(PipelineOutput::Ended { seq: row.seq, reason: Reason::Withdrawn });
        }
        for batch in shared {
            self.leave(batch, templates);
        }
    }
}
