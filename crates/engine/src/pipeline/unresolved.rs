//! The conditions raised by events.

use crate::{
    event::{Event, Seq},
    notification::{Nature, State},
    pipeline::{
        key::KeyWriter,
        newest::version_of,
        row::Row,
        rule::{ResolveRule, Subscriber},
    },
};

/// The nature and the conditions of a notification's rows.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) nature: Nature,
    /// The conditions raised by the rows, in key order; each version of one once.
    pub(crate) unresolved: Vec<State>,
}

impl Conditions {
    /// Computes them from the rows of a batch.
    pub(crate) fn of(rule: &Subscriber, key: &mut KeyWriter, rows: &[Row]) -> Self {
        let given: Vec<Option<State>> =
            rows.iter().map(|row| condition_of(rule, key, row.seq, &row.event)).collect();
        let is_condition = !given.is_empty() && given.iter().all(Option::is_some);
        let mut unresolved: Vec<State> = given.into_iter().flatten().collect();
        // The newest event of each version is kept.
        unresolved.reverse();
        unresolved.sort_by(|one, other| (one.key, &one.version).cmp(&(other.key, &other.version)));
        unresolved.dedup_by(|one, kept| (one.key, &one.version) == (kept.key, &kept.version));
        Self { nature: if is_condition { Nature::Condition } else { Nature::Occurrence }, unresolved }
    }
}

/// The condition raised by an event; `None` for an occurrence.
pub(crate) fn condition_of(rule: &Subscriber, key: &mut KeyWriter, seq: Seq, event: &Event) -> Option<State> {
    let resolve = rule.resolve.as_ref().filter(|resolve| !resolves(resolve, event))?;
    let key = key.state(&resolve.equal, rule.wake.trust_in(event), event);
    Some(State { key, seq, version: version_of(rule, event) })
}

fn resolves(resolve: &ResolveRule, event: &Event) -> bool {
    resolve.by.iter().any(|pattern| pattern.matches(&event.event_type))
}
