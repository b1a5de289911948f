//! The conditions raised by events.

use std::collections::BTreeMap;

use crate::{
    event::{Event, Seq},
    notification::{Nature, State, StateKey},
    pipeline::{
        key::KeyWriter,
        row::Row,
        rule::{ResolveRule, Subscriber},
    },
};

/// The nature and the conditions of a notification's rows.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) nature: Nature,
    /// The conditions raised by the rows, in key order, each once.
    pub(crate) unresolved: Vec<State>,
}

impl Conditions {
    /// Computes them from the rows of a batch.
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

/// The condition raised by an event; `None` for an occurrence.
pub(crate) fn condition_of(rule: &Subscriber, key: &mut KeyWriter, event: &Event) -> Option<StateKey> {
    let resolve = rule.resolve.as_ref().filter(|resolve| !resolves(resolve, event))?;
    Some(key.state(&resolve.equal, rule.wake.trust_in(event), event))
}

fn resolves(resolve: &ResolveRule, event: &Event) -> bool {
    resolve.by.iter().any(|pattern| pattern.matches(&event.event_type))
}
