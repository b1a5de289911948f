//! Resolves conditions.

use std::sync::Arc;

use super::{Pipeline, PipelineOutput, Resources};
use journal::time::Timestamp;

use crate::{
    event::{Event, Seq, Trust},
    ledger::Reason,
    notification::Resolution,
    pipeline::{
        newest::{condition_of, name_of_condition, version_of},
        row::Row,
        rule::{Subscriber, Weight},
    },
};

impl Pipeline {
    /// Takes an event whose type resolves conditions, and returns the resolution. Rows of open
    /// batches are withdrawn here. The caller drains `poll_output`, then withdraws the
    /// notifications. An untrusted event resolves no condition of a trusted one.
    ///
    /// Errors: the filter that refuses it, or [`Reason::Stale`] if it is older than all that is known
    /// of its conditions. `where` and `severity_filter` are not checked, because they select what is
    /// delivered.
    pub fn resolve(
        &mut self,
        seq: Seq,
        event: &Event,
        resources: Resources<'_>,
        now: Timestamp,
    ) -> Result<Resolution, Reason> {
        self.handle_timeout(resources, now);
        let rule = Arc::clone(&self.rule);
        rule.check_source(event).map_err(Reason::FilteredOut)?;
        let equal = rule.resolve.as_ref().map_or(&[][..], |resolve| &resolve.equal);
        let mut keys = vec![self.key.state(equal, Trust::Untrusted, event)];
        if rule.wake.trust_in(event).is_trusted() {
            keys.push(self.key.state(equal, Trust::Trusted, event));
        }
        let version = version_of(&rule, event);
        if let Some(version) = &version {
            let named = name_of_condition(&rule);
            keys.retain(|key| !self.newest.is_stale(named, *key, version));
            if keys.is_empty() {
                return Err(Reason::Stale);
            }
        }
        let (subscriber, scope) = (rule.id.clone(), event.scope());
        let resolution = Resolution { subscriber, seq, scope, keys, version };
        self.dedupe.forget_conditions(&resolution);
        self.withdraw_rows(&rule, &resolution, resources, now);
        Ok(resolution)
    }

    /// Ends the rows resolved by `resolution`. A batch with a wider scope closes instead, so that
    /// each session can withdraw its own notification.
    pub(super) fn withdraw_rows(
        &mut self,
        rule: &Subscriber,
        resolution: &Resolution,
        resources: Resources<'_>,
        now: Timestamp,
    ) {
        let key = &mut self.key;
        let mut ends = |row: &Row| {
            condition_of(rule, key, row.seq, &row.event).is_some_and(|state| resolution.ends(&state))
        };
        let withdrawn = self.batcher.withdraw(&resolution.scope, &mut ends);
        let shared = self
            .batcher
            .close_that(|scope, rows| resolution.scope.meets(scope) && rows.iter().any(&mut ends), now);
        for row in withdrawn {
            self.outputs.push_back(PipelineOutput::Ended { seq: row.seq, reason: Reason::Withdrawn });
        }
        for batch in shared {
            self.leave(batch, Weight::Usual, resources);
        }
    }
}
