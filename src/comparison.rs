//! Compares what one journal led to with two sets of rules: then, and now.
//!
//! Pure: two streams of facts in, one outcome out. `observer` makes the facts of an engine's outputs.
//! The two streams may come in any order. Notifications are compared by their ids, which are derived
//! from subscriber and events.

pub mod observer;

use std::{collections::BTreeMap, time::Duration};

use engine::{
    event::Seq,
    notification::{NotificationId, SubscriberId, Tokens},
    sorted::SortedMap,
};
use journal::time::{Timestamp, duration_millis};

/// Most notifications that are compared one by one; later ones are counted. Each takes some 300 bytes.
pub const NOTIFICATIONS_MAX: usize = 1_000_000;

/// The rules that a fact is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Those of its time.
    Then,
    /// Those that are tried.
    Now,
}

/// Something that an engine did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fact {
    /// It made a notification.
    Made(Made),
    /// It delivered one to a session for the first time.
    Delivered(Delivered),
    /// It answered an exchange.
    Answered {
        /// The exchange.
        exchange: Seq,
        /// Its time.
        at: Timestamp,
        /// Whether the answer has a text.
        has_text: bool,
    },
}

/// A notification that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its id.
    pub id: NotificationId,
    /// Its subscriber.
    pub subscriber: SubscriberId,
    /// When its batch was closed.
    pub at: Timestamp,
    /// A hash of its content.
    pub digest: u64,
    /// The beginning of its content: one line, without its end.
    pub line: Box<str>,
}

/// The first delivery of a notification to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The notification.
    pub id: NotificationId,
    /// Its subscriber.
    pub subscriber: SubscriberId,
    /// The time of the exchange.
    pub at: Timestamp,
    /// The estimated size of its content.
    pub tokens: Tokens,
    /// The time since its first event; `None` if that is not known.
    pub delay: Option<Duration>,
}

/// Two streams that are being compared.
#[derive(Debug, Default)]
pub struct Comparison {
    since: Timestamp,
    rows: SortedMap<SubscriberId, [Counted; 2]>,
    notifications: BTreeMap<NotificationId, Entry>,
    untracked: u64,
    /// Answers of one side whose counterpart is not known yet.
    texts: BTreeMap<Seq, (usize, bool)>,
    lost_texts: u64,
    gained_texts: u64,
}

#[derive(Debug, Default)]
struct Counted {
    made: u64,
    delivered: u64,
    tokens: u64,
    delays: Vec<u64>,
}

#[derive(Debug)]
struct Entry {
    subscriber: SubscriberId,
    sides: [Option<Tracked>; 2],
}

#[derive(Debug)]
struct Tracked {
    made_at: Timestamp,
    digest: u64,
    /// `None` if it is that of the other side.
    line: Option<Box<str>>,
    first_delivery: Option<Timestamp>,
}

impl Side {
    const fn index(self) -> usize {
        match self {
            Self::Then => 0,
            Self::Now => 1,
        }
    }
}

/// What one side did for one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Numbers {
    /// Notifications made.
    pub made: u64,
    /// First deliveries to a session.
    pub delivered: u64,
    /// Their estimated tokens, without the wrappers.
    pub tokens: u64,
    /// The delay that 99 of 100 deliveries do not exceed (nearest rank); `None` without deliveries.
    pub delay_p99: Option<Duration>,
}

/// Both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pair {
    /// With the rules of the time.
    pub then: Numbers,
    /// With the rules that are tried.
    pub now: Numbers,
}

/// One subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its id.
    pub subscriber: SubscriberId,
    /// Its numbers.
    pub numbers: Pair,
    /// How many notifications are gone.
    pub gone: u64,
    /// How many are added.
    pub added: u64,
    /// How many are the same with another text or another delivery.
    pub changed: u64,
}

impl Row {
    /// Whether both sides did the same.
    pub fn is_unchanged(&self) -> bool {
        self.numbers.then == self.numbers.now && self.gone + self.added + self.changed == 0
    }
}

/// How a notification differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Kind {
    /// It was made then only.
    Gone,
    /// It is made now only.
    Added,
    /// It has another text, or is delivered otherwise.
    Changed,
}

engine::words::impl_as_str!(Kind);

/// A notification on one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// When it was made.
    pub made_at: Timestamp,
    /// When it was first delivered; `None` if it was not.
    pub delivered_at: Option<Timestamp>,
    /// The beginning of its content.
    pub line: Box<str>,
}

/// A notification that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// How.
    pub kind: Kind,
    /// Its id.
    pub id: NotificationId,
    /// Its subscriber.
    pub subscriber: SubscriberId,
    /// What it was then.
    pub then: Option<Seen>,
    /// What it is now.
    pub now: Option<Seen>,
    /// Whether its text is another one.
    pub has_other_text: bool,
}

impl Difference {
    /// When it was made, then if it was.
    pub fn made_at(&self) -> Timestamp {
        self.then.as_ref().or(self.now.as_ref()).map_or(Timestamp::ZERO, |seen| seen.made_at)
    }
}

/// The result of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Outcome {
    /// Every subscriber that made or delivered something, by id.
    pub rows: Vec<Row>,
    /// All of them together.
    pub all: Pair,
    /// The notifications that differ, in the order in which they were made.
    pub differences: Vec<Difference>,
    /// Notifications that were counted and not compared, because there were too many.
    pub untracked: u64,
    /// Exchanges that had a text then and have none now.
    pub lost_texts: u64,
    /// Exchanges that had no text then and have one now.
    pub gained_texts: u64,
}

impl Comparison {
    /// A comparison of what happens from `since` on.
    pub fn since(since: Timestamp) -> Self {
        Self { since, ..Self::default() }
    }

    /// Takes the next fact of a side.
    pub fn take(&mut self, side: Side, fact: Fact) {
        match fact {
            Fact::Made(made) if made.at >= self.since => self.take_made(side, made),
            Fact::Delivered(delivered) if delivered.at >= self.since => self.take_delivered(side, &delivered),
            Fact::Answered { exchange, at, has_text } if at >= self.since => {
                self.take_answer(side, exchange, has_text);
            }
            Fact::Made(_) | Fact::Delivered(_) | Fact::Answered { .. } => {}
        }
    }

    fn counted(&mut self, side: Side, subscriber: &SubscriberId) -> &mut Counted {
        let index = side.index();
        let sides = self.rows.get_or_default(subscriber.clone());
        sides.get_mut(index).expect("there are two sides")
    }

    fn take_made(&mut self, side: Side, made: Made) {
        let Made { id, subscriber, at, digest, line } = made;
        self.counted(side, &subscriber).made += 1;
        if self.notifications.len() >= NOTIFICATIONS_MAX && !self.notifications.contains_key(&id) {
            self.untracked += 1;
            return;
        }
        let entry = self.notifications.entry(id);
        let entry = entry.or_insert_with(|| Entry { subscriber, sides: [None, None] });
        let is_known = entry.sides.iter().flatten().any(|other| other.digest == digest);
        let line = (!is_known).then_some(line);
        let own = entry.sides.get_mut(side.index()).expect("there are two sides");
        *own = Some(Tracked { made_at: at, digest, line, first_delivery: None });
    }

    fn take_delivered(&mut self, side: Side, delivered: &Delivered) {
        let counted = self.counted(side, &delivered.subscriber);
        counted.delivered += 1;
        counted.tokens += u64::from(delivered.tokens.0);
        counted.delays.extend(delivered.delay.map(duration_millis));
        let entry = self.notifications.get_mut(&delivered.id);
        let own = entry.and_then(|entry| entry.sides.get_mut(side.index()));
        if let Some(Some(own)) = own {
            own.first_delivery.get_or_insert(delivered.at);
        }
    }

    fn take_answer(&mut self, side: Side, exchange: Seq, has_text: bool) {
        match self.texts.get(&exchange).copied() {
            Some((other, other_has)) if other != side.index() => {
                self.texts.remove(&exchange);
                let (then, now) = match side {
                    Side::Then => (has_text, other_has),
                    Side::Now => (other_has, has_text),
                };
                self.lost_texts += u64::from(then && !now);
                self.gained_texts += u64::from(now && !then);
            }
            Some(_) | None => {
                self.texts.insert(exchange, (side.index(), has_text));
            }
        }
    }

    /// The result.
    pub fn finish(self) -> Outcome {
        let mut differences: Vec<Difference> =
            self.notifications.into_iter().filter_map(|(id, entry)| entry.difference(id)).collect();
        differences.sort_by_key(|one| (one.made_at(), one.id));
        let mut rows: SortedMap<SubscriberId, Row> = SortedMap::new();
        let mut all = [Counted::default(), Counted::default()];
        for (subscriber, mut sides) in self.rows {
            for (side, sum) in sides.iter().zip(&mut all) {
                sum.add(side);
            }
            let row = Row {
                subscriber: subscriber.clone(),
                numbers: Counted::pair(&mut sides),
                gone: 0,
                added: 0,
                changed: 0,
            };
            rows.insert(subscriber, row);
        }
        for one in &differences {
            let row = rows.get_mut(&one.subscriber).expect("a notification that was made was counted");
            match one.kind {
                Kind::Gone => row.gone += 1,
                Kind::Added => row.added += 1,
                Kind::Changed => row.changed += 1,
            }
        }
        Outcome {
            rows: rows.into_values().collect(),
            all: Counted::pair(&mut all),
            differences,
            untracked: self.untracked,
            lost_texts: self.lost_texts,
            gained_texts: self.gained_texts,
        }
    }
}

impl Counted {
    fn add(&mut self, other: &Self) {
        self.made += other.made;
        self.delivered += other.delivered;
        self.tokens += other.tokens;
        self.delays.extend(&other.delays);
    }

    fn numbers(&mut self) -> Numbers {
        let Self { made, delivered, tokens, ref mut delays } = *self;
        delays.sort_unstable();
        let rank = (delays.len() * 99).div_ceil(100);
        let delay = rank.checked_sub(1).and_then(|at| delays.get(at));
        Numbers { made, delivered, tokens, delay_p99: delay.map(|ms| Duration::from_millis(*ms)) }
    }

    fn pair(sides: &mut [Self; 2]) -> Pair {
        let [then, now] = sides;
        Pair { then: then.numbers(), now: now.numbers() }
    }
}

impl Entry {
    /// How the two sides differ; `None` if they do not.
    fn difference(self, id: NotificationId) -> Option<Difference> {
        let Self { subscriber, sides: [then, now] } = self;
        let has_other_text = match (&then, &now) {
            (Some(then), Some(now)) => then.digest != now.digest,
            (Some(_), None) | (None, Some(_)) | (None, None) => false,
        };
        let kind = match (&then, &now) {
            (Some(_), None) => Kind::Gone,
            (None, Some(_)) => Kind::Added,
            (Some(then), Some(now)) if has_other_text || then.first_delivery != now.first_delivery => {
                Kind::Changed
            }
            (Some(_), Some(_)) | (None, None) => return None,
        };
        let shared = [&then, &now].into_iter().flatten().find_map(|one| one.line.clone()).unwrap_or_default();
        let seen = |side: Option<Tracked>| {
            side.map(|side| Seen {
                made_at: side.made_at,
                delivered_at: side.first_delivery,
                line: side.line.unwrap_or_else(|| shared.clone()),
            })
        };
        Some(Difference { kind, id, subscriber, then: seen(then), now: seen(now), has_other_text })
    }
}
#[cfg(test)]
mod tests;
