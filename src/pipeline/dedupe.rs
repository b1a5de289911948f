//! Whether an event repeats an earlier one.
//!
//! Two events are the same when their keys are equal and they concern the same sessions. A window begins with the first
//! of them and is not prolonged by repeats, so a fault that goes on is told again once a window. Nothing needs to be woken
//! to forget: what has ended is dropped on the next question. How repeats are counted is the pipeline's business.

use std::{
    collections::VecDeque,
    hash::{BuildHasher, RandomState},
    time::Duration,
};

use hashbrown::HashTable;

use crate::{
    event::{Event, Scope, Seq},
    pipeline::{Weight, key::KeyWriter, rule::DedupeRule},
    snapshot::{Damaged, Reader, State, Writer},
    time::Timestamp,
};

/// Most keys a subscriber remembers, about 400 bytes each at worst. When it is reached, the one that ends soonest is
/// forgotten, and an event with that key is told as a new one.
pub(crate) const DEDUPE_KEYS_MAX: usize = 4_096;

/// What an event is to those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// No equal event is inside its window.
    First,
    /// An equal event came before.
    Repeat {
        /// The first one of the window.
        of: Seq,
    },
}

/// Writes the key under which `event` is known.
///
/// Shape: an event's own key never equals one made from fields, and the key of an event that escalates never equals that
/// of one that does not, so a critical event is not taken for the repeat of a warning.
pub(crate) fn write_key<'w>(
    writer: &'w mut KeyWriter,
    rule: &DedupeRule,
    scope: &Scope,
    event: &Event,
    weight: Weight,
) -> &'w [u8] {
    let writer = writer.start().scope(scope).text(match weight {
        Weight::Usual => "usual",
        Weight::Escalated => "escalated",
    });
    match &event.dedupe_key {
        Some(own) => writer.text("own").text(own).finish(),
        None => writer.text("fields").fields(&rule.key, event).finish(),
    }
}

/// The first event of a window, which names the window, and the key that it opened it for.
#[derive(Debug)]
struct First {
    seq: Seq,
    key: Box<[u8]>,
    hash: u64,
}

/// When a window ends, and which one. Its key is not needed to forget it, so it is not looked at, nor its hash made, again.
#[derive(Debug, Clone, Copy)]
struct End {
    at: Timestamp,
    first: Seq,
    hash: u64,
}

/// The windows of one subscriber that are open.
#[derive(Debug, Default)]
pub(crate) struct Dedupe {
    /// By the hashes of their keys. Never iterated.
    firsts: HashTable<First>,
    /// Producers choose their keys, so what they hash to is not theirs to know.
    hasher: RandomState,
    /// One for each window, soonest first. A new one ends last, unless its rule gave the ones before it more time.
    ends: VecDeque<End>,
}

impl Dedupe {
    /// Says whether an event with `key` repeats one whose window is open, and opens a window for it if not.
    pub(crate) fn check(&mut self, key: &[u8], window: Duration, seq: Seq, now: Timestamp) -> Verdict {
        self.forget_ended(now);
        let hash = self.hasher.hash_one(key);
        if let Some(first) = self.firsts.find(hash, |first| *first.key == *key) {
            return Verdict::Repeat { of: first.seq };
        }
        if self.firsts.len() >= DEDUPE_KEYS_MAX {
            self.forget_soonest();
        }
        let end = End { at: now + window, first: seq, hash };
        let place = match self.ends.back() {
            Some(last) if last.at > end.at => self.ends.partition_point(|other| other.at <= end.at),
            Some(_) | None => self.ends.len(),
        };
        self.ends.insert(place, end);
        self.firsts.insert_unique(hash, First { seq, key: key.into(), hash }, |first| first.hash);
        Verdict::First
    }

    /// Forgets everything, because keys are made from other fields from here on.
    pub(crate) fn clear(&mut self) {
        self.firsts.clear();
        self.ends.clear();
    }

    fn forget_ended(&mut self, now: Timestamp) {
        while self.ends.front().is_some_and(|end| end.at <= now) {
            self.forget_soonest();
        }
    }

    fn forget_soonest(&mut self) {
        let Some(end) = self.ends.pop_front() else { return };
        if let Ok(first) = self.firsts.find_entry(end.hash, |first| first.seq == end.first) {
            first.remove();
        }
    }
}

impl State for Dedupe {
    fn write(&self, to: &mut Writer) {
        let Self { firsts, hasher: _, ends } = self;
        to.length(ends.len());
        for end in ends {
            end.at.write(to);
            end.first.write(to);
            let first = firsts.find(end.hash, |first| first.seq == end.first);
            to.block(first.map_or(&[], |first| &first.key));
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let mut dedupe = Self::default();
        for _ in 0..from.length()? {
            let (at, seq, key) = (State::read(from)?, State::read(from)?, from.block()?);
            let hash = dedupe.hasher.hash_one(key);
            dedupe.ends.push_back(End { at, first: seq, hash });
            dedupe.firsts.insert_unique(hash, First { seq, key: key.into(), hash }, |first| first.hash);
        }
        Ok(dedupe)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_millis(5_000);

    fn ask(dedupe: &mut Dedupe, key: &str, seq: u64, at: u64) -> Verdict {
        dedupe.check(key.as_bytes(), WINDOW, Seq(seq), Timestamp::from_millis(at))
    }

    #[test]
    fn the_window_counts_from_the_first_event_and_then_the_key_is_new() {
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
    fn other_keys_are_not_repeats() {
        let mut dedupe = Dedupe::default();
        assert_eq!(ask(&mut dedupe, "a", 1, 0), Verdict::First);
        assert_eq!(ask(&mut dedupe, "b", 2, 0), Verdict::First);
        assert_eq!(ask(&mut dedupe, "a", 3, 1), Verdict::Repeat { of: Seq(1) });
    }

    #[test]
    fn a_full_table_forgets_the_key_that_ends_soonest() {
        let mut dedupe = Dedupe::default();
        let full = u64::try_from(DEDUPE_KEYS_MAX).expect("small");
        for seq in 0..=full {
            assert_eq!(ask(&mut dedupe, &format!("k{seq}"), seq, seq / 1_000), Verdict::First);
        }
        assert_eq!(dedupe.firsts.len(), DEDUPE_KEYS_MAX);
        assert_eq!(ask(&mut dedupe, "k1", 9_000, 5), Verdict::Repeat { of: Seq(1) });
        assert_eq!(ask(&mut dedupe, "k0", 9_001, 5), Verdict::First);
    }

    #[test]
    fn what_has_ended_takes_no_memory_after_the_next_question() {
        let mut dedupe = Dedupe::default();
        for seq in 0..100 {
            ask(&mut dedupe, &format!("k{seq}"), seq, 0);
        }
        ask(&mut dedupe, "later", 100, 5_000);
        assert_eq!((dedupe.firsts.len(), dedupe.ends.len()), (1, 1));
    }

    #[test]
    fn a_key_made_by_the_producer_or_by_an_escalation_is_its_own() {
        let event = |own: Option<&str>| Event {
            id: "e".into(),
            event_type: "tool.call.failure".parse().expect("valid type"),
            source: "s".into(),
            severity: crate::event::Severity::Error,
            timestamp: Timestamp::ZERO,
            payload: crate::event::Payload::from_valid("{}"),
            dedupe_key: own.map(Into::into),
            session: None,
            workspace: None,
            cause: None,
        };
        let field = crate::event::FieldPath::parse("type").expect("valid path");
        let rule = DedupeRule { key: vec![field], window: WINDOW };
        let mut writer = KeyWriter::default();
        let mut key = |own: Option<&str>, scope: &Scope, weight| {
            write_key(&mut writer, &rule, scope, &event(own), weight).to_vec()
        };
        let folder = Scope::Workspace("/w".into());
        let keys = [
            key(None, &Scope::All, Weight::Usual),
            key(None, &Scope::All, Weight::Escalated),
            key(None, &folder, Weight::Usual),
            key(Some("tool.call.failure"), &Scope::All, Weight::Usual),
            key(Some("other"), &Scope::All, Weight::Usual),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
    }
}
