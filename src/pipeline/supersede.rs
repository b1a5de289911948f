//! The supersede stage: a newer event about a state replaces an older one of its batch.

use std::collections::BTreeMap;

use crate::{
    event::Seq,
    notification::State,
    pipeline::{key::KeyWriter, row::Row, rule::Subscriber},
};

/// Removes each row if a later row is about the same state.
///
/// Shape: the states of the remaining rows, in key order, and the events of the removed ones.
pub(crate) fn supersede(
    rule: &Subscriber,
    key: &mut KeyWriter,
    rows: &mut Vec<Row>,
) -> (Vec<State>, Vec<Seq>) {
    if rule.supersede_key.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let mut state_key =
        |row: &Row| key.state(&rule.supersede_key, rule.wake.trust_in(&row.event), &row.event);
    let (mut newest, mut ended) = (BTreeMap::new(), Vec::new());
    for row in rows.iter() {
        ended.extend(newest.insert(state_key(row), row.seq));
    }
    rows.retain(|row| !ended.contains(&row.seq));
    (newest.into_iter().map(|(key, seq)| State { key, seq }).collect(), ended)
}
