//! The stage in which a newer event about a state takes the place of an older one of its batch.

use std::collections::BTreeMap;

use crate::{
    event::Seq,
    notification::State,
    pipeline::{key::KeyWriter, row::Row, rule::Subscriber},
};

/// Removes each row of whose state a later row is newer.
///
/// Shape: the states of the rows that stay, in the order of their keys, and the events of those
/// that went, of which nothing comes.
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
