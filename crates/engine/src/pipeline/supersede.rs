//! The supersede stage: a newer event about a state replaces an older one of its batch.

use crate::{
    event::Seq,
    notification::{State, StateKey},
    pipeline::{key::KeyWriter, newest::version_of, row::Row, rule::Subscriber},
    sorted::SortedMap,
};

/// Removes each row if a later row is about the same state and replaces it.
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
    let mut state = |row: &Row| State {
        key: key.state(&rule.supersede_key, rule.wake.trust_in(&row.event), &row.event),
        seq: row.seq,
        version: version_of(rule, &row.event),
    };
    let (mut newest, mut ended): (SortedMap<StateKey, Vec<State>>, _) = (SortedMap::new(), Vec::new());
    for row in rows.iter() {
        let state = state(row);
        let of_key = newest.get_or_default(state.key);
        ended.extend(of_key.extract_if(.., |older| state.replaces(older)).map(|older| older.seq));
        of_key.push(state);
    }
    rows.retain(|row| !ended.contains(&row.seq));
    (newest.into_values().flatten().collect(), ended)
}
