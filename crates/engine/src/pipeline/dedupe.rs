//! Decides whether an event repeats an earlier one.
//!
//! Two events are the same if their keys and scopes are equal. A window begins with the first of
//! them, and repeats do not prolong it, so a lasting fault is delivered once per window. No timer
//! is needed: ended windows are removed at the next check. The pipeline counts the repeats.

use std::{collections::VecDeque, hash::BuildHasher, time::Duration};

use hashbrown::{DefaultHashBuilder, HashTable};

use journal::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    event::{Event, Scope, Seq},
    notification::{Resolution, State, StateKey, Version},
    pipeline::{
        key::KeyWriter,
        rule::{DedupeRule, Weight},
    },
    snapshot,
};

/// Most keys of a subscriber, at most about 400 bytes each. When it is reached, the one that ends
/// soonest is evicted, and a later event with that key counts as new.
const DEDUPE_KEYS_MAX: usize = 4_096;

/// The relation of an event to earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No equal event has an open window.
    First,
    /// An equal event has an open window.
    Repeat {
        /// The first event of the window.
        of: Seq,
    },
}

/// Writes the key of `event`.
///
/// Shape: an event's own key never equals one made from fields. Keys of escalating and other events
/// differ, so a critical event is not a repeat of a warning. Keys of trusted and untrusted events
/// differ, so a trusted event is not a repeat of one that anybody may have sent. Fields are
/// compared with their kinds: `1` is not `"1"`, and null is not absence. If none of the key's
/// payload fields are present, the whole payload is compared.
pub(crate) fn write_key<'w>(
    writer: &'w mut KeyWriter,
    rule: &DedupeRule,
    scope: &Scope,
    event: &Event,
    weight: Weight,
) -> &'w [u8] {
    let writer = writer.start().scope(scope).word(match weight {
        Weight::Untrusted => b"untrusted".as_slice(),
        Weight::Usual => b"usual",
        Weight::Escalated => b"escalated",
    });
    match &event.dedupe_key {
        Some(own) => writer.word(b"own").text(own).finish(),
        None if rule.ignore.is_empty() => writer.word(b"fields").identity(&rule.key, event).finish(),
        None => {
            let mut payload = (**event.payload.value()).clone();
            rule.ignore.iter().for_each(|field| field.remove_from(&mut payload));
            writer.word(b"rest").text(&payload.to_string()).finish()
        }
    }
}

/// The time in which events with the same key are repeats.
#[derive(Debug, Serialize, Deserialize)]
struct Window {
    ends_at: Timestamp,
    /// The event that opened it.
    first: Seq,
    /// Hash of the key, computed once.
    #[serde(skip)]
    hash: u64,
    #[serde(with = "snapshot::bytes")]
    key: Box<[u8]>,
    /// The condition raised by the event; the window ends with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    condition: Option<StateKey>,
    /// The version of the condition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<Box<Version>>,
}

/// The open windows of one subscriber.
///
/// Shape: windows end in about the order in which they open, so they form a queue. The index by key
/// has only their numbers.
#[derive(Debug, Default)]
pub(crate) struct Dedupe {
    /// Ordered by end. A new window ends last, unless the rule's window became shorter.
    windows: VecDeque<Window>,
    /// The number of the first window in the queue; it rises with each one removed from the front.
    forgotten: u64,
    /// The number of each window, by the hash of its key. Never iterated.
    numbers: HashTable<u64>,
    /// Randomly seeded, because producers choose the keys.
    hasher: DefaultHashBuilder,
}

impl Dedupe {
    /// Checks whether an event with `key` repeats one with an open window; otherwise opens a window
    /// for it.
    ///
    /// `condition`: the condition raised by the event, if any.
    pub(crate) fn check(
        &mut self,
        key: &[u8],
        window: Duration,
        seq: Seq,
        condition: Option<State>,
        now: Timestamp,
    ) -> Verdict {
        self.forget_ended(now);
        let hash = self.hasher.hash_one(key);
        if let Some(known) = self.number(key, hash).and_then(|number| self.window(number)) {
            return Verdict::Repeat { of: known.first };
        }
        let condition = condition.map(|state| (state.key, state.version));
        self.remember(key, hash, seq, condition, now + window);
        Verdict::First
    }

    /// Opens a window for `key` that begins with `seq`, and replaces the open one.
    ///
    /// Shape: the old window stays in the queue until it ends, so that no number changes, but with
    /// an empty key, which no event has.
    pub(crate) fn renew(&mut self, key: &[u8], window: Duration, seq: Seq, now: Timestamp) {
        let hash = self.hasher.hash_one(key);
        let mut condition = None;
        if let Some(number) = self.number(key, hash) {
            condition =
                self.window(number).and_then(|old| old.condition.map(|key| (key, old.version.clone())));
            self.vacate(number, hash);
        }
        self.remember(key, hash, seq, condition, now + window);
    }

    /// Closes the windows of events whose conditions `resolution` ends: an event after the end of its
    /// condition is not a repeat.
    pub(crate) fn forget_conditions(&mut self, resolution: &Resolution) {
        let ends = |window: &Window| {
            let state = |key| State { key, seq: window.first, version: window.version.clone() };
            window.condition.is_some_and(|key| resolution.ends(&state(key)))
        };
        let ended: Vec<(u64, u64)> = (self.forgotten..)
            .zip(&self.windows)
            .filter(|(_, window)| ends(window))
            .map(|(number, window)| (number, window.hash))
            .collect();
        for (number, hash) in ended {
            self.vacate(number, hash);
        }
    }

    /// Clears the key of a window, which stays in the queue.
    fn vacate(&mut self, number: u64, hash: u64) {
        if let Ok(known) = self.numbers.find_entry(hash, |known| *known == number) {
            known.remove();
        }
        if let Some(old) = self.index(number).and_then(|index| self.windows.get_mut(index)) {
            (old.key, old.condition, old.version) = (Box::default(), None, None);
        }
    }

    /// Removes all windows, because the fields of the key changed.
    pub(crate) fn clear(&mut self) {
        self.windows.clear();
        self.numbers.clear();
    }

    /// The number of the open window for `key`.
    fn number(&self, key: &[u8], hash: u64) -> Option<u64> {
        let has_key = |number: &u64| self.window(*number).is_some_and(|window| *window.key == *key);
        self.numbers.find(hash, has_key).copied()
    }

    fn window(&self, number: u64) -> Option<&Window> {
        self.windows.get(self.index(number)?)
    }

    fn index(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.forgotten)?).ok()
    }

    /// Opens a window for `key` that begins with `seq`; `condition`: the one raised by that event.
    fn remember(
        &mut self,
        key: &[u8],
        hash: u64,
        seq: Seq,
        condition: Option<(StateKey, Option<Box<Version>>)>,
        ends_at: Timestamp,
    ) {
        if self.windows.len() >= DEDUPE_KEYS_MAX {
            self.forget_soonest();
        }
        let (condition, version) = condition.unzip();
        let version = version.flatten();
        self.open(Window { ends_at, first: seq, hash, key: key.into(), condition, version });
    }

    fn open(&mut self, window: Window) {
        let place = match self.windows.back() {
            Some(last) if last.ends_at > window.ends_at => {
                self.windows.partition_point(|other| other.ends_at <= window.ends_at)
            }
            Some(_) | None => self.windows.len(),
        };
        for (index, behind) in self.windows.iter().enumerate().skip(place).rev() {
            let number = self.forgotten + index as u64;
            if let Some(moved) = self.numbers.find_mut(behind.hash, |known| *known == number) {
                *moved += 1;
            }
        }
        let hash = window.hash;
        self.windows.insert(place, window);
        let (windows, forgotten) = (&self.windows, self.forgotten);
        let hash_of =
            |number: &u64| windows.get((number - forgotten) as usize).map_or(0, |window| window.hash);
        self.numbers.insert_unique(hash, forgotten + place as u64, hash_of);
    }

    fn forget_ended(&mut self, now: Timestamp) {
        while self.windows.front().is_some_and(|window| window.ends_at <= now) {
            self.forget_soonest();
        }
    }

    fn forget_soonest(&mut self) {
        let Some(window) = self.windows.pop_front() else { return };
        if let Ok(number) = self.numbers.find_entry(window.hash, |number| *number == self.forgotten) {
            number.remove();
        }
        self.forgotten += 1;
    }
}

/// The windows in a snapshot; the index over them is rebuilt.
#[derive(Serialize, Deserialize)]
struct DedupeState<W> {
    windows: W,
}

impl Serialize for Dedupe {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { windows, forgotten: _, numbers: _, hasher: _ } = self;
        DedupeState { windows }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Dedupe {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut dedupe = Self::default();
        for window in <DedupeState<Vec<Window>>>::deserialize(from)?.windows {
            let hash = dedupe.hasher.hash_one(&*window.key);
            dedupe.open(Window { hash, ..window });
        }
        Ok(dedupe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::rule::Keep;

    const WINDOW: Duration = Duration::from_millis(5_000);

    fn ask(dedupe: &mut Dedupe, key: &str, seq: u64, at: u64) -> Verdict {
        dedupe.check(key.as_bytes(), WINDOW, Seq(seq), None, Timestamp::from_millis(at))
    }

    #[test]
    fn the_dedupe_window_starts_with_the_first_event() {
        let mut dedupe = Dedupe::default();
        for (seq, at, expected) in [
            (1, 0, Verdict::First),
            (2, 3_000, Verdict::Repeat { of: Seq(1) }),
            (3, 4_999, Verdict::Repeat { of: Seq(1) }),
            (4, 5_000, Verdict::First),
            (5, 9_999, Verdict::Repeat { of: Seq(4) }),
        ] {
            assert_eq!(ask(&mut dedupe, "a", seq, at), expected, "seq {seq}");
        }
    }

    #[test]
    fn a_renewed_window_replaces_the_previous_window() {
        let mut dedupe = Dedupe::default();
        assert_eq!(ask(&mut dedupe, "a", 1, 0), Verdict::First);
        assert_eq!(ask(&mut dedupe, "b", 2, 1_000), Verdict::First);
        dedupe.renew(b"a", WINDOW, Seq(3), Timestamp::from_millis(3_000));
        for (key, seq, at, expected) in [
            ("a", 4, 4_999, Verdict::Repeat { of: Seq(3) }),
            ("b", 5, 5_000, Verdict::Repeat { of: Seq(2) }),
            ("a", 6, 7_999, Verdict::Repeat { of: Seq(3) }),
            ("a", 7, 8_000, Verdict::First),
        ] {
            assert_eq!(ask(&mut dedupe, key, seq, at), expected, "seq {seq}");
        }
        assert_eq!((dedupe.windows.len(), dedupe.numbers.len()), (1, 1));
    }

    #[test]
    fn windows_that_are_renewed_are_bounded_too() {
        let mut dedupe = Dedupe::default();
        let many = u64::try_from(DEDUPE_KEYS_MAX).expect("small") + 1;
        assert_eq!(ask(&mut dedupe, "a", 0, 0), Verdict::First);
        for seq in 1..=many {
            dedupe.renew(b"a", WINDOW, Seq(seq), Timestamp::from_millis(1));
        }
        assert_eq!(ask(&mut dedupe, "a", 9_000, 2), Verdict::Repeat { of: Seq(many) });
        assert_eq!((dedupe.windows.len(), dedupe.numbers.len()), (DEDUPE_KEYS_MAX, 1));
    }

    #[test]
    fn other_keys_are_not_repeats() {
        let mut dedupe = Dedupe::default();
        assert_eq!(ask(&mut dedupe, "a", 1, 0), Verdict::First);
        assert_eq!(ask(&mut dedupe, "b", 2, 0), Verdict::First);
        assert_eq!(ask(&mut dedupe, "a", 3, 1), Verdict::Repeat { of: Seq(1) });
    }

    #[test]
    fn a_full_table_evicts_the_key_ending_soonest() {
        let mut dedupe = Dedupe::default();
        let full = u64::try_from(DEDUPE_KEYS_MAX).expect("small");
        for seq in 0..=full {
            assert_eq!(ask(&mut dedupe, &format!("k{seq}"), seq, seq / 1_000), Verdict::First);
        }
        assert_eq!((dedupe.windows.len(), dedupe.numbers.len()), (DEDUPE_KEYS_MAX, DEDUPE_KEYS_MAX));
        assert_eq!(ask(&mut dedupe, "k1", 9_000, 5), Verdict::Repeat { of: Seq(1) });
        assert_eq!(ask(&mut dedupe, "k0", 9_001, 5), Verdict::First);
    }

    #[test]
    fn a_shorter_window_ends_before_earlier_longer_windows() {
        let mut dedupe = Dedupe::default();
        for seq in 0..4 {
            ask(&mut dedupe, &format!("k{seq}"), seq, seq);
        }
        let mut short = |key: &str, seq: u64, at: u64| {
            dedupe.check(
                key.as_bytes(),
                Duration::from_millis(10),
                Seq(seq),
                None,
                Timestamp::from_millis(at),
            )
        };
        assert_eq!(short("s1", 4, 20), Verdict::First);
        assert_eq!(short("s2", 5, 25), Verdict::First);
        assert_eq!(short("s1", 6, 29), Verdict::Repeat { of: Seq(4) });
        assert_eq!(short("s1", 7, 30), Verdict::First);
        for seq in 0..4 {
            assert_eq!(short(&format!("k{seq}"), 9, 34), Verdict::Repeat { of: Seq(seq) });
        }
        assert_eq!(short("s2", 10, 34), Verdict::Repeat { of: Seq(5) });
        assert_eq!((dedupe.windows.len(), dedupe.numbers.len()), (6, 6));
    }

    #[test]
    fn ended_windows_are_freed_at_the_next_check() {
        let mut dedupe = Dedupe::default();
        for seq in 0..100 {
            ask(&mut dedupe, &format!("k{seq}"), seq, 0);
        }
        ask(&mut dedupe, "later", 100, 5_000);
        assert_eq!((dedupe.windows.len(), dedupe.numbers.len()), (1, 1));
    }

    fn event(own: Option<&str>, payload: &str) -> Event {
        Event {
            id: "e".into(),
            event_type: "tool.call.failure".parse().expect("valid type"),
            source: "s".into(),
            provenance: crate::event::Provenance::Harness,
            severity: crate::event::Severity::Error,
            timestamp: Timestamp::ZERO,
            payload: crate::event::Payload::from_valid(payload),
            dedupe_key: own.map(Into::into),
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }

    #[test]
    fn dedupe_keys_distinguish_field_types() {
        let fields = ["type", "payload.a", "payload.b.c"]
            .map(|path| crate::event::FieldPath::parse(path).expect("a path"));
        let rule = DedupeRule { key: fields.to_vec(), ignore: Vec::new(), window: WINDOW, keep: Keep::First };
        let mut writer = KeyWriter::default();
        let mut key = |payload: &str| {
            write_key(&mut writer, &rule, &Scope::All, &event(None, payload), Weight::Usual).to_vec()
        };
        let payloads = [
            r#"{"a":1}"#,
            r#"{"a":"1"}"#,
            r#"{"a":null}"#,
            r#"{"a":"null"}"#,
            r#"{"a":""}"#,
            r#"{"a":[1]}"#,
            r#"{"b":{"c":1}}"#,
            r#"{"b":{"c":"1"}}"#,
            r#"{"b":1}"#,
            r#"{"percentage":90}"#,
            r#"{"percentage":99}"#,
            "{}",
        ];
        let distinct: std::collections::BTreeSet<_> = payloads.iter().map(|payload| key(payload)).collect();
        assert_eq!(distinct.len(), payloads.len());
        assert_eq!(key(r#"{"a":1,"x":1}"#), key(r#"{"a":1,"x":2}"#));
        assert_eq!(key(r#"{"x":1}"#), key(r#"{"x":1}"#));
    }

    #[test]
    fn producer_keys_scopes_and_weights_stay_distinct() {
        let field = crate::event::FieldPath::parse("type").expect("valid path");
        let rule = DedupeRule { key: vec![field], ignore: Vec::new(), window: WINDOW, keep: Keep::First };
        let mut writer = KeyWriter::default();
        let mut key = |own: Option<&str>, scope: &Scope, weight| {
            write_key(&mut writer, &rule, scope, &event(own, "{}"), weight).to_vec()
        };
        let folder = Scope::Workspace("/w".into());
        let keys = [
            key(None, &Scope::All, Weight::Usual),
            key(None, &Scope::All, Weight::Escalated),
            key(None, &Scope::All, Weight::Untrusted),
            key(None, &folder, Weight::Usual),
            key(Some("tool.call.failure"), &Scope::All, Weight::Usual),
            key(Some("other"), &Scope::All, Weight::Usual),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
