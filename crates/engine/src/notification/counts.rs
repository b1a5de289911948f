//! Counts by subscriber, as a text of bounded length.

use std::fmt;

use super::SubscriberId;

use crate::{budget::BudgetName, sorted::SortedMap};

/// Most subscribers named in a count; the others are summarized as a number. Five names of usual
/// length cost about 40 tokens.
pub const NAMED_MAX: usize = 5;

/// The detail of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The total, and the subscribers with the largest counts.
    Subscribers,
    /// The total alone.
    Total,
}

/// A total, and the subscribers with the largest counts.
///
/// ```
/// use aside_engine::notification::{Counts, Detail, SubscriberId};
///
/// let by_subscriber = (0..95).map(|n| (SubscriberId::new(&format!("s{n:02}")), if n == 7 { 2 } else { 1 })).collect();
/// let counts = Counts::new(&by_subscriber, Detail::Subscribers);
/// assert_eq!(counts.total(), 96);
/// assert_eq!(counts.to_string(), "s07 2; s00 1; s01 1; s02 1; s03 1; and 90 more");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    total: u32,
    named: Vec<(SubscriberId, u32)>,
}

impl Counts {
    /// Sums up `by_subscriber`, which contains no zeroes.
    pub fn new(by_subscriber: &SortedMap<SubscriberId, u32>, detail: Detail) -> Self {
        let total = by_subscriber.values().copied().fold(0, u32::saturating_add);
        let mut named: Vec<(SubscriberId, u32)> = match detail {
            Detail::Subscribers => by_subscriber.iter().map(|(id, count)| (id.clone(), *count)).collect(),
            Detail::Total => Vec::new(),
        };
        named.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        named.truncate(NAMED_MAX);
        Self { total, named }
    }

    /// The total of all subscribers.
    pub fn total(&self) -> u32 {
        self.total
    }

    /// The subscribers with the largest counts, in descending order; at most [`NAMED_MAX`], empty
    /// for [`Detail::Total`].
    pub fn named(&self) -> &[(SubscriberId, u32)] {
        &self.named
    }

    /// The total of the subscribers that are not named.
    pub fn others(&self) -> u32 {
        let named = self.named.iter().map(|(_, count)| *count).fold(0, u32::saturating_add);
        self.total.saturating_sub(named)
    }
}

/// How many pending notifications wait for a budget.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waiting {
    /// How many.
    pub count: u32,
    /// The budget; `None` if there are several.
    pub of: Option<BudgetName>,
}

impl Waiting {
    /// With others that wait for `of`.
    #[must_use]
    pub fn or_for(&self, of: &BudgetName) -> Self {
        let is_same = self.count == 0 || self.of.as_ref() == Some(of);
        Self { count: self.count, of: is_same.then(|| of.clone()) }
    }

    /// With so many more.
    #[must_use]
    pub fn and(&self, more: usize) -> Self {
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        Self { count: self.count.saturating_add(more), of: self.of.clone() }
    }

    /// The number of all pending ones, if `others` wait for nothing, and how many of them wait, such as
    /// `9 pending; 6 of them wait for the hour's budget (aside inbox)`.
    pub fn in_words(&self, others: u32) -> String {
        let all = others.saturating_add(self.count);
        let verb = if self.count == 1 { "waits" } else { "wait" };
        format!("{all} pending; {} of them {verb} for {} (aside inbox)", self.count, self.what())
    }

    /// What they wait for.
    pub fn what(&self) -> String {
        self.of.as_ref().map_or_else(|| "a budget".to_owned(), ToString::to_string)
    }
}

/// What a text leaves out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LeftOut {
    /// Those that wait for nothing but another injection.
    pub pending: Counts,
    /// Those that wait for a budget; `None` if the text does not say it.
    pub waiting: Option<Waiting>,
}

impl LeftOut {
    /// The number of those that the text speaks of.
    pub fn total(&self) -> u32 {
        let waiting = self.waiting.as_ref().map_or(0, |waiting| waiting.count);
        self.pending.total().saturating_add(waiting)
    }
}

impl From<Counts> for LeftOut {
    fn from(pending: Counts) -> Self {
        Self { pending, waiting: None }
    }
}

impl fmt::Display for Counts {
    /// Writes the named subscribers and the count of the others, without characters that need
    /// quotes in TOON; writes nothing if none is named.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (subscriber, count)) in self.named.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{subscriber} {count}")?;
        }
        match self.others() {
            others if others > 0 && !self.named.is_empty() => write!(f, "; and {others} more"),
            _ => Ok(()),
        }
    }
}
