//! The stage in which a newer event about a state takes the place of an older one of its batch.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::{
    event::{Event, Seq},
    notification::{State, StateKey},
    pipeline::{key::KeyWriter, row::Row, rule::Subscriber},
};

/// Removes each row of whose state a later row is newer.
///
/// Shape: the states of the rows that stay, in the order of their keys, and the events of those that went, of which nothing comes.
pub(crate) fn supersede(
    rule: &Subscriber,
    key: &mut KeyWriter,
    rows: &mut Vec<Row>,
) -> (Vec<State>, Vec<Seq>) {
    if rule.supersede_key.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let (mut newest, mut ended) = (BTreeMap::new(), Vec::new());
    for row in rows.iter() {
        ended.extend(newest.insert(state_key(rule, key, &row.event), row.seq));
    }
    rows.retain(|row| !ended.contains(&row.seq));
    (newest.into_iter().map(|(key, seq)| State { key, seq }).collect(), ended)
}

/// The key of the state that an event is about. Events that are not trusted have keys of their own, so they supersede nothing that is.
fn state_key(rule: &Subscriber, key: &mut KeyWriter, event: &Event) -> StateKey {
    let trust: &[u8] = if rule.wake.trusts_event(event) { b"trusted" } else { b"untrusted" };
    let hash = Sha256::digest(key.start().word(trust).identity(&rule.supersede_key, event).finish());
    StateKey(u64::from_be_bytes(*hash.first_chunk().expect("32 bytes begin with 8")))
}
