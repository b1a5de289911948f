//! Conditions: which ones the rows of a batch give, and what an event resolves.

use std::{collections::BTreeMap, sync::Arc};

use super::{Pipeline, PipelineOutput};
use crate::{
    event::{Event, Seq},
    ledger::{FilteredBy, Reason},
    notification::{Nature, Resolution, State, StateKey},
    pipeline::{
        filter,
        key::KeyWriter,
        render::Templates,
        row::Row,
        rule::{ResolveRule, Subscriber},
    },
    time::Timestamp,
};

/// What the rows of a notification tell of.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) nature: Nature,
    /// Those that the rows give, in the order of their keys, each once.
    pub(crate) unresolved: Vec<State>,
}

impl Conditions {
    /// Reads them off the rows of a batch.
    pub(crate) fn of(rule: &Subscriber, key: &mut KeyWriter, rows: &[Row]) -> Self {
        let given: Vec<Option<StateKey>> =
            rows.iter().map(|row| condition_of(rule, key, &row.event)).collect();
        let is_condition = !given.is_empty() && given.iter().all(Option::is_some);
        let newest: BTreeMap<StateKey, Seq> =
            given.into_iter().zip(rows).filter_map(|(key, row)| Some((key?, row.seq))).collect();
        Self {
            nature: if is_condition { Nature::Condition } else { Nature::Occurrence },
            unresolved: newest.into_iter().map(|(key, seq)| State { key, seq }).collect(),
        }
    }
}

/// The condition that an event gives; `None` for one that happened and is over.
pub(crate) fn condition_of(rule: &Subscriber, key: &mut KeyWriter, event: &Event) -> Option<StateKey> {
    let resolve = rule.resolve.as_ref().filter(|resolve| !resolves(resolve, event))?;
    Some(key.state(&resolve.equal, rule.wake.trusts_event(event), event))
}

fn resolves(resolve: &ResolveRule, event: &Event) -> bool {
    resolve.by.iter().any(|pattern| pattern.matches(&event.event_type))
}

impl Pipeline {
    /// Takes an event whose type resolves conditions, and gives what it resolves: rows of open batches end here, the rest is the
    /// caller's to withdraw, after what `poll_output` has. An event that is not trusted resolves nothing that is.
    ///
    /// Errors: the filter that refuses it. `where` and `severity_filter` are not asked: they pick what is delivered.
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
        let mut keys = vec![self.key.state(equal, false, event)];
        if rule.wake.trusts_event(event) {
            keys.push(self.key.state(equal, true, event));
        }
        let resolution = Resolution { subscriber: rule.id.clone(), seq, scope: event.scope(), keys };
        self.dedupe.forget_conditions(&resolution.keys);
        self.withdraw_rows(&rule, &resolution, templates, now);
        Ok(resolution)
    }

    /// Ends the rows of which `resolution` is; a batch that is for others too closes, so that each session can withdraw its own.
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
