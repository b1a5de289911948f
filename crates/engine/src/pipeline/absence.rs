//! Absence: a condition about what did not come. It begins when no event of a key has come for so long
//! after the last one, and the next one ends it.
//!
//! The clock stands while no input could come: while the daemon is not running and while the machine
//! sleeps. Each input of the engine has a time. A running daemon has an input at each deadline, so a
//! deadline that passed long before the next input was not watched.

use std::{sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::aged::Aged;
use crate::{
    event::{Event, FieldPath, Seq},
    notification::StateKey,
    snapshot,
};

/// Most keys of a subscriber. Beyond it, the one that was seen longest ago is forgotten.
const KEYS_MAX: usize = 4_096;
/// How long after a deadline a running daemon has an input at the latest, on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(60);

/// Whether nothing watched a deadline, as the first input after it is at `now`.
pub(crate) fn is_unwatched(deadline: Timestamp, now: Timestamp) -> bool {
    deadline + LATE_MAX < now
}

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

/// The keys of one subscriber, each in one of two tables; by the time and the position of the last event.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Absences {
    /// Those whose next event is awaited.
    #[serde(default)]
    awaited: Aged<StateKey, Seen, Age>,
    /// Those whose absence is reported.
    #[serde(default)]
    missed: Aged<StateKey, Seen, Age>,
    /// No later than the first key is missed.
    next: Option<Timestamp>,
}

/// When the last event of a key came, later by the time in which the clock stood; and its position.
type Age = (Timestamp, Seq);

/// The last event of a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) seq: Seq,
    #[serde(with = "snapshot::shared")]
    pub(crate) event: Arc<Event>,
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
        let replaced = self.awaited.remove(&key).map(|before| before.seq);
        let was_missed = self.missed.remove(&key).is_some();
        let is_full = self.awaited.len() + self.missed.len() >= KEYS_MAX;
        let evicted = if is_full { self.evict() } else { None };
        self.awaited.insert(key, (now, seq), Seen { seq, event: Arc::clone(event) });
        let due = now + rule.after;
        self.next = Some(self.next.map_or(due, |next| next.min(due)));
        Noted { was_missed, replaced, evicted }
    }

    /// Forgets the key that was seen longest ago; returns its event, if that waited.
    fn evict(&mut self) -> Option<Seq> {
        let is_awaited = match (self.awaited.oldest_age(), self.missed.oldest_age()) {
            (Some(awaited), Some(missed)) => awaited < missed,
            (awaited, _) => awaited.is_some(),
        };
        let oldest = if is_awaited { self.awaited.pop_oldest() } else { self.missed.pop_oldest() };
        oldest.filter(|_| is_awaited).map(|(_, seen)| seen.seq)
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
        let is_old = |(at, _): Age| now.since(at) >= rule.forget;
        while self.awaited.oldest_age().is_some_and(is_old) {
            forgotten.extend(self.awaited.pop_oldest().map(|(_, seen)| seen.seq));
        }
        while self.missed.oldest_age().is_some_and(is_old) {
            self.missed.pop_oldest();
        }
        let age = self.awaited.oldest_age();
        self.next = age.map(|(at, _)| at + rule.after);
        let (age, since) = age.zip(self.next).filter(|(_, since)| *since <= now)?;
        let (key, seen) = self.awaited.pop_oldest()?;
        self.missed.insert(key, age, seen.clone());
        Some((seen, since))
    }

    /// When a key may be missed next.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.next
    }

    /// Lets the clock stand from `before` to `now`, if nothing watched a deadline in between.
    pub(crate) fn stand_still(&mut self, before: Timestamp, now: Timestamp) {
        if !self.next.is_some_and(|next| is_unwatched(next, now)) {
            return;
        }
        let stood = now.since(before);
        for table in [&mut self.awaited, &mut self.missed] {
            table.change_ages(|(at, seq)| (at + stood, seq));
        }
        self.next = self.next.map(|next| next + stood);
    }

    /// When the key of an event is missed, if the event is its newest one and it is not missed yet.
    pub(crate) fn missed_at(&self, rule: &AbsenceRule, seq: Seq) -> Option<Timestamp> {
        let mut ages = self.awaited.iter().map(|(age, ..)| age);
        ages.find(|(_, own)| *own == seq).map(|(at, _)| at + rule.after)
    }

    /// The events that wait: the newest ones of the keys that are not missed.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Seq> {
        self.awaited.iter().map(|(_, _, seen)| seen.seq)
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
        assert_eq!((absences.awaited.len(), absences.missed.len()), (0, 0));
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
        assert_eq!(absences.awaited.len(), KEYS_MAX);
        assert!(absences.awaited.get(&StateKey(0)).is_none());
    }
}
