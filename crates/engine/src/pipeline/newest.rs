//! The order of reported states: which versions of a state are known, and whether a report is older.
//!
//! A report may arrive after a newer one of the same state: the slower run of the commit before. It
//! neither replaces nor resolves, also if the newer one was delivered already. So the newest known
//! versions are kept until newer ones are known.
//!
//! In the supersede stage a newer event about a state replaces an older one of its batch. The
//! conditions that events raise are states too.

use std::collections::VecDeque;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    event::{Event, FieldPath, FieldValue, Seq},
    hash::first_64_bits,
    notification::{Nature, Ordinal, Relation, State, StateKey, Version},
    pipeline::{
        key::KeyWriter,
        row::Row,
        rule::{ResolveRule, Subscriber},
    },
    sorted::SortedMap,
};

/// Most states of a subscriber whose newest versions are known, at most some 600 bytes each. When it
/// is reached, the one that was reported least recently is evicted.
const STATES_MAX: usize = 1_024;
/// Most versions of a state without an order between them, such as commits; the oldest is evicted.
const VERSIONS_MAX: usize = 8;
/// Most digits of a number that orders; more do not fit.
const DIGITS_MAX: usize = 18;

/// What a key names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Named {
    /// A state, by `supersede_key`; or both, if `equal` has the same fields.
    State,
    /// A condition, by `equal`.
    Condition,
}

/// The newest known versions of the states of one subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Newest {
    /// The most recently reported one last.
    states: VecDeque<KnownVersions>,
}

/// The newest known versions of one state.
#[derive(Debug, Serialize, Deserialize)]
struct KnownVersions {
    named: Named,
    key: StateKey,
    /// Those that no other one is known to replace, oldest first.
    versions: Vec<Version>,
}

impl Newest {
    /// Takes a report; returns whether a newer version is known.
    pub(crate) fn is_stale(&mut self, named: Named, key: StateKey, version: &Version) -> bool {
        if version.is_empty() {
            return false;
        }
        let at = self.states.iter().rposition(|known| known.named == named && known.key == key);
        let mut known = match at.and_then(|at| self.states.remove(at)) {
            Some(known) => known,
            None => KnownVersions { named, key, versions: Vec::new() },
        };
        let is_stale = known.versions.iter().any(|other| version.relation_to(other) == Relation::Older);
        if !is_stale {
            known.take(version);
        }
        self.states.push_back(known);
        self.states.drain(..self.states.len().saturating_sub(STATES_MAX));
        is_stale
    }

    /// Forgets all versions, because the keys or the order changed.
    pub(crate) fn clear(&mut self) {
        self.states.clear();
    }
}

impl KnownVersions {
    fn take(&mut self, version: &Version) {
        // One that was replaced only because it was reported earlier still shows what is older.
        self.versions.retain(|other| version != other && version.relation_to(other) != Relation::Newer);
        self.versions.push(version.clone());
        self.versions.drain(..self.versions.len().saturating_sub(VERSIONS_MAX));
    }
}

/// What the key of a condition names.
pub(crate) fn name_of_condition(rule: &Subscriber) -> Named {
    let is_same = rule.resolve.as_ref().is_some_and(|resolve| resolve.equal == rule.supersede_key);
    if is_same { Named::State } else { Named::Condition }
}

/// The version that `event` reports; `None` if the subscriber has no `revision` and no `order_by`,
/// or the event has none of their fields.
pub(crate) fn version_of(rule: &Subscriber, event: &Event) -> Option<Box<Version>> {
    if rule.order.is_empty() {
        return None;
    }
    let order = rule.order.by.iter().map(|field| ordinal(field, event)).collect();
    let version = Version { revision: revision(&rule.order.revision, event), order };
    (!version.is_empty()).then(|| Box::new(version))
}

/// `None` if the event has none of the fields.
fn revision(fields: &[FieldPath], event: &Event) -> Option<u64> {
    let (mut hash, mut has_any) = (Sha256::new(), false);
    for field in fields {
        let text = field.text(event);
        has_any |= !text.is_empty();
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(&*text);
    }
    has_any.then(|| first_64_bits(hash))
}

/// `None` if the value is neither a whole number nor a time.
fn ordinal(field: &FieldPath, event: &Event) -> Option<Ordinal> {
    match field.value(event) {
        FieldValue::Absent | FieldValue::Null => None,
        FieldValue::Json(json) => json.parse().ok().map(Ordinal::Number),
        FieldValue::Text(text) => {
            let is_number = text.len() <= DIGITS_MAX && text.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| text.parse().ok()).flatten().map(Ordinal::Number);
            number.or_else(|| time(&text).map(Ordinal::Time))
        }
    }
}

/// A time of RFC 3339, or as GitLab writes it: `2026-11-25 10:00:00 UTC`.
fn time(text: &str) -> Option<i64> {
    let plain = text.strip_suffix(" UTC").map(|text| format!("{}Z", text.replacen(' ', "T", 1)));
    let at = plain.as_deref().unwrap_or(text).parse::<Timestamp>().ok()?;
    i64::try_from(at.as_millis()).ok()
}

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
    let (mut newest, mut ended): (SortedMap<StateKey, Vec<State>>, _) = (SortedMap::new(), Vec::new());
    for state in rows.iter().filter_map(|row| state_of(rule, key, row.seq, &row.event)) {
        let of_key = newest.get_or_default(state.key);
        ended.extend(of_key.extract_if(.., |older| state.replaces(older)).map(|older| older.seq));
        of_key.push(state);
    }
    rows.retain(|row| !ended.contains(&row.seq));
    (newest.into_values().flatten().collect(), ended)
}

/// The state that an event reports; `None` without `supersede_key`.
pub(crate) fn state_of(rule: &Subscriber, key: &mut KeyWriter, seq: Seq, event: &Event) -> Option<State> {
    let fields = Some(&rule.supersede_key).filter(|fields| !fields.is_empty())?;
    let key = key.state(fields, rule.wake.trust_in(event), event);
    Some(State { key, seq, version: version_of(rule, event) })
}

/// The nature and the conditions of a notification's rows.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) nature: Nature,
    /// The conditions raised by the rows, in key order; each version of one once.
    pub(crate) unresolved: Vec<State>,
}

impl Conditions {
    /// Computes them from the rows of a batch.
    pub(crate) fn new(rule: &Subscriber, key: &mut KeyWriter, rows: &[Row]) -> Self {
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
    if let Some(absence) = &rule.absence {
        let key = key.state(&absence.by, rule.wake.trust_in(event), event);
        return Some(State { key, seq, version: None });
    }
    let resolve = rule.resolve.as_ref().filter(|resolve| !resolves(resolve, event))?;
    let key = key.state(&resolve.equal, rule.wake.trust_in(event), event);
    Some(State { key, seq, version: version_of(rule, event) })
}

fn resolves(resolve: &ResolveRule, event: &Event) -> bool {
    resolve.by.iter().any(|pattern| pattern.matches(&event.event_type))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::FieldPath,
        pipeline::{
            rule::OrderRule,
            tests::{event, field, rule},
        },
    };

    fn version(fields: &str) -> Option<Version> {
        let by: Vec<FieldPath> = vec![field("payload.run|payload.pushed_at"), field("payload.at")];
        let order = OrderRule { revision: vec![field("payload.commit")], by };
        version_of(&Subscriber { order, ..rule() }, &event(fields)).map(|version| *version)
    }

    #[test]
    fn versions_are_read_from_numbers_and_times() {
        use Ordinal::{Number, Time};
        let at = Some(Time(1_795_600_800_000));
        for (fields, expected) in [
            (r#""run":31"#, vec![Some(Number(31)), None]),
            (r#""run":"31""#, vec![Some(Number(31)), None]),
            (r#""run":null,"pushed_at":"2026-11-25T10:00:00Z""#, vec![at, None]),
            (r#""run":7,"at":"2026-11-25T11:00:00+01:00""#, vec![Some(Number(7)), at]),
            (r#""at":"2026-11-25 10:00:00 UTC""#, vec![None, at]),
            (r#""commit":"aaa1","run":1.5,"at":"soon""#, vec![None, None]),
            (r#""commit":"aaa1","run":12345678901234567890"#, vec![None, None]),
            (r#""commit":"aaa1","run":"","at":true"#, vec![None, None]),
        ] {
            assert_eq!(version(fields).map(|version| version.order), Some(expected), "{fields}");
        }
        assert_eq!(version(r#""tool":"grep""#), None);
        let revision = |commit: &str| version(&format!("\"commit\":{commit}")).expect("a version").revision;
        assert_ne!(revision("\"aaa1\""), revision("\"bbb2\""));
    }

    #[test]
    fn an_older_report_is_stale_within_a_bound() {
        let mut newest = Newest::default();
        let run = |number: i64| Version { revision: None, order: vec![Some(Ordinal::Number(number))] };
        let mut stale = |key: u64, number: i64| newest.is_stale(Named::State, StateKey(key), &run(number));
        let found =
            [(1, 31), (1, 30), (2, 5), (1, 31), (1, 32), (1, 31)].map(|(key, number)| stale(key, number));
        assert_eq!(found, [false, true, false, false, false, true]);
        for key in 10..10 + STATES_MAX as u64 {
            assert!(!stale(key, 1));
        }
        assert!(!stale(1, 1), "it was evicted");
        assert_eq!(newest.states.len(), STATES_MAX);
        assert!(!newest.is_stale(Named::Condition, StateKey(1), &run(0)), "another use of the key");
        for revision in 0..100 {
            let version = Version { revision: Some(revision), order: Vec::new() };
            assert!(!newest.is_stale(Named::State, StateKey(7), &version));
        }
        assert_eq!(newest.states.back().map(|known| known.versions.len()), Some(VERSIONS_MAX));
    }

    #[test]
    fn a_report_without_order_hides_no_known_one() {
        let mut newest = Newest::default();
        let version =
            |order: Option<i64>| Version { revision: Some(1), order: vec![order.map(Ordinal::Number)] };
        let found = [Some(31), None, Some(30), None]
            .map(|order| newest.is_stale(Named::State, StateKey(1), &version(order)));
        assert_eq!(found, [false, false, true, false]);
    }
}
