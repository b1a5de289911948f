//! Absence: a condition about what did not come. It begins when no event of a key has come for so long
//! after the last one, and the next one ends it.
//!
//! The clock stands while no input could come: while the daemon is not running and while the machine
//! sleeps. Each input of the engine has a time. A running daemon has an input at each deadline, so a
//! deadline that passed long before the next input was not watched.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, FieldPath, Seq},
    notification::StateKey,
    snapshot,
    sorted::SortedMap,
};

/// Most keys of a subscriber. Beyond it, the one that was seen longest ago is forgotten.
const KEYS_MAX: usize = 4_096;
/// How long after a deadline a running daemon has an input at the latest, on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(60);

/// The rule of an absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbsenceRule {
    /// How long no event of a key comes.
    pub after: Duration,
    /// The fields whose values are the key; one key if empty.
    pub by: Vec<FieldPath>,
    /// How long after its last event a key is not missed any more.
    pub forget: Duration,
}

/// The keys of one subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Absences {
    keys: SortedMap<StateKey, Seen>,
    /// No later than the first key is missed.
    next: Option<Timestamp>,
}

/// The last event of a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) seq: Seq,
    #[serde(with = "snapshot::shared")]
    pub(crate) event: Arc<Event>,
    /// When it came; later by the time in which the clock stood.
    at: Timestamp,
    /// Whether its absence is reported.
    is_missed: bool,
}

impl Absences {
    /// Notes an event of a key.
    pub(crate) fn note(
        &mut self,
        rule: &AbsenceRule,
        key: StateKey,
        seq: Seq,
        event: &Arc<Event>,
        now: Timestamp,
    ) -> Noted {
        let is_full = self.keys.len() >= KEYS_MAX && !self.keys.contains_key(&key);
        let evicted = if is_full { self.keys.pop_least(|seen| seen.at) } else { None };
        let seen = Seen { seq, event: Arc::clone(event), at: now, is_missed: false };
        let before = self.keys.insert(key, seen);
        let due = now + rule.after;
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
        Noted {
            was_missed: before.as_ref().is_some_and(|before| before.is_missed),
            replaced: before.and_then(Seen::waiting),
            evicted: evicted.and_then(|(_, seen)| seen.waiting()),
        }
    }

    /// The next key that is missed at or before `now`, with the time since which it is. Keys that were
    /// seen too long ago are forgotten; their events that still wait are added to `forgotten`.
    pub(crate) fn due(
        &mut self,
        rule: &AbsenceRule,
        now: Timestamp,
        forgotten: &mut Vec<Seq>,
    ) -> Option<(Seen, Timestamp)> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        self.keys.retain(|_, seen| {
            let is_kept = now.since(seen.at) < rule.forget;
            forgotten.extend(seen.clone().waiting().filter(|_| !is_kept));
            is_kept
        });
        let waiting = self.keys.values_mut().filter(|seen| !seen.is_missed);
        let first = waiting.min_by_key(|seen| (seen.at, seen.seq));
        self.next = first.as_ref().map(|seen| seen.at + rule.after);
        let first = first.filter(|seen| seen.at + rule.after <= now)?;
        first.is_missed = true;
        Some((first.clone(), first.at + rule.after))
    }

    /// When a key may be missed next.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.next
    }

    /// Lets the clock stand from `before` to `now`, if nothing watched a deadline in between.
    pub(crate) fn stand_still(&mut self, before: Timestamp, now: Timestamp) {
        if self.next.is_none_or(|next| next + LATE_MAX >= now) {
            return;
        }
        let stood = now.since(before);
        for seen in self.keys.values_mut() {
            seen.at = seen.at + stood;
        }
        self.next = self.next.map(|next| next + stood);
    }

    /// When the key of an event is missed, if the event is its newest one and it is not missed yet.
    pub(crate) fn missed_at(&self, rule: &AbsenceRule, seq: Seq) -> Option<Timestamp> {
        let mut waiting = self.keys.values().filter(|seen| !seen.is_missed);
        waiting.find(|seen| seen.seq == seq).map(|seen| seen.at + rule.after)
    }

    /// The events that wait: the newest ones of the keys that are not missed.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Seq> {
        self.keys.values().filter_map(|seen| seen.clone().waiting())
    }

    /// Forgets every key, because the rule changed; returns the events that waited.
    pub(crate) fn clear(&mut self) -> Vec<Seq> {
        let waiting = self.waiting().collect();
        *self = Self::default();
        waiting
    }
}

/// What an event of a key changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Noted {
    /// Whether the key was missed.
    pub(crate) was_missed: bool,
    /// The newest event before this one, if it waited.
    pub(crate) replaced: Option<Seq>,
    /// The event of the key that made room, if it waited.
    pub(crate) evicted: Option<Seq>,
}

impl Seen {
    /// Its position, if it waits; one that is missed is a row.
    fn waiting(self) -> Option<Seq> {
        (!self.is_missed).then_some(self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::tests::event;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn rule() -> AbsenceRule {
        let (after, forget) = (Duration::from_secs(600), Duration::from_secs(7_000));
        AbsenceRule { after, by: Vec::new(), forget }
    }

    #[test]
    fn a_key_is_missed_once_and_forgotten_later() {
        let (mut absences, rule) = (Absences::default(), rule());
        let nothing = Noted { was_missed: false, replaced: None, evicted: None };
        assert_eq!(absences.note(&rule, StateKey(1), Seq(1), &event(""), at(0)), nothing);
        let mut forgotten = Vec::new();
        let mut due = |absences: &mut Absences, at| absences.due(&rule, at, &mut forgotten);
        assert!(due(&mut absences, at(599)).is_none());
        let (seen, since) = due(&mut absences, at(600)).expect("it is missed");
        assert_eq!((seen.seq, since), (Seq(1), at(600)));
        assert!(due(&mut absences, at(601)).is_none() && absences.poll_timeout().is_none());
        let back = absences.note(&rule, StateKey(1), Seq(2), &event(""), at(700));
        assert_eq!(back, Noted { was_missed: true, ..nothing }, "it is back");
        assert!(due(&mut absences, at(7_800)).is_none(), "it is forgotten");
        assert!(absences.keys.is_empty());
        assert_eq!(forgotten, [Seq(2)]);
    }

    #[test]
    fn newest_event_of_a_key_waits_alone() {
        let (mut absences, rule) = (Absences::default(), rule());
        absences.note(&rule, StateKey(1), Seq(1), &event(""), at(0));
        let noted = absences.note(&rule, StateKey(1), Seq(2), &event(""), at(10));
        assert_eq!(noted.replaced, Some(Seq(1)));
        assert_eq!(absences.missed_at(&rule, Seq(2)), Some(at(610)));
        assert_eq!((absences.missed_at(&rule, Seq(1)), absences.clear()), (None, vec![Seq(2)]));
    }

    #[test]
    fn the_clock_stands_while_nothing_watches() {
        let (mut absences, rule) = (Absences::default(), rule());
        absences.note(&rule, StateKey(1), Seq(1), &event(""), at(0));
        absences.stand_still(at(100), at(650));
        assert_eq!(absences.poll_timeout(), Some(at(600)), "a busy machine is late");
        absences.stand_still(at(100), at(3_600));
        assert_eq!(absences.poll_timeout(), Some(at(4_100)));
        let mut is_due = |at| absences.due(&rule, at, &mut Vec::new()).is_some();
        assert_eq!((is_due(at(4_099)), is_due(at(4_100))), (false, true));
    }

    #[test]
    fn the_key_seen_longest_ago_makes_room() {
        let (mut absences, rule) = (Absences::default(), rule());
        let mut evicted = Vec::new();
        for key in 0..=u64::try_from(KEYS_MAX).expect("small") {
            let now = Timestamp::from_millis(key);
            evicted.extend(absences.note(&rule, StateKey(key), Seq(key), &event(""), now).evicted);
        }
        assert_eq!(evicted, [Seq(0)]);
        assert_eq!(absences.keys.len(), KEYS_MAX);
        assert!(!absences.keys.contains_key(&StateKey(0)));
    }
}
