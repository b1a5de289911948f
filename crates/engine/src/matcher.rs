//! Finds the subscribers for an event type without checking each of them.
//!
//! The patterns of all subscribers form one trie over segments, so a lookup walks the segments of
//! the type and not the list of subscribers. Results are cached: producers repeat a few types, and
//! the second lookup of one is a single hash. A `Matcher` belongs to one generation of rules; new
//! rules need a new one. It knows patterns and indexes, not the subscribers behind the indexes.
//!
//! ```
//! use aside_engine::{event::Pattern, matcher::Matcher};
//!
//! let (tools, all): (Pattern, Pattern) = ("tool.**".parse()?, "**".parse()?);
//! let mut matcher = Matcher::new([(0, &[tools][..]), (1, &[all][..])]);
//! assert_eq!(matcher.matches("tool.call.failure"), [0, 1]);
//! assert_eq!(matcher.matches("build.done"), [1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;

use hashbrown::HashMap;

use crate::{
    event::{Pattern, PatternSegment},
    sorted::SortedMap,
};

/// Most cached event types, 128 bytes each: 0.5 MiB. A catalogue has a few hundred; the limit is
/// for producers that write ids into their types.
pub const MEMO_TYPES_MAX: usize = 4_096;
/// Most cached indexes over all types, 4 bytes each: 1 MiB, exceeded by one list at most.
pub const MEMO_INDEXES_MAX: usize = 256 * 1_024;

/// The subscribers' patterns as an index.
#[derive(Debug, Default)]
pub struct Matcher {
    nodes: Vec<Node>,
    /// The range in `lists` of a type's indexes. Never iterated.
    memo: HashMap<Box<str>, Range<usize>>,
    lists: Vec<u32>,
}

/// A trie node: the possible continuations of the same first segments.
#[derive(Debug, Default)]
struct Node {
    exact: SortedMap<Box<str>, usize>,
    one: Option<usize>,
    ends_here: Vec<u32>,
    rest: Vec<u32>,
}

const ROOT: usize = 0;

impl Matcher {
    /// Builds the index from each subscriber's number and patterns.
    pub fn new<'p>(subscribers: impl IntoIterator<Item = (u32, &'p [Pattern])>) -> Self {
        let mut matcher = Self { nodes: vec![Node::default()], ..Self::default() };
        for (index, patterns) in subscribers {
            for pattern in patterns {
                matcher.insert(index, pattern);
            }
        }
        matcher
    }

    /// The subscribers whose patterns select `event_type`, which must be a valid type.
    ///
    /// Shape: ascending, each once. A cached type costs one hash and no allocation. When
    /// [`MEMO_TYPES_MAX`] or [`MEMO_INDEXES_MAX`] is reached, the cache is cleared and refilled, so
    /// that types that never repeat do not displace those that do.
    pub fn matches(&mut self, event_type: &str) -> &[u32] {
        if self.is_empty() {
            return &[];
        }
        let found = match self.memo.get(event_type) {
            Some(range) => range.clone(),
            None => self.look_up(event_type),
        };
        self.lists.get(found).expect("a range that `look_up` gave")
    }

    /// Whether there are no patterns.
    fn is_empty(&self) -> bool {
        self.nodes.len() <= 1 && self.nodes.first().is_none_or(|root| root.rest.is_empty())
    }

    fn look_up(&mut self, event_type: &str) -> Range<usize> {
        if self.memo.len() >= MEMO_TYPES_MAX || self.lists.len() >= MEMO_INDEXES_MAX {
            self.memo.clear();
            self.lists.clear();
        }
        let mut found = Vec::new();
        self.collect(ROOT, event_type, &mut found);
        found.sort_unstable();
        found.dedup();
        let start = self.lists.len();
        self.lists.extend_from_slice(&found);
        let range = start..self.lists.len();
        self.memo.insert(event_type.into(), range.clone());
        range
    }

    /// Adds the subscribers whose patterns below `node` select a type that continues with `rest`.
    /// Recursion depth is the number of segments.
    fn collect(&self, node: usize, rest: &str, found: &mut Vec<u32>) {
        let Some(node) = self.nodes.get(node) else { return };
        found.extend_from_slice(&node.rest);
        let (segment, rest) = match rest.split_once('.') {
            Some((segment, rest)) => (segment, Some(rest)),
            None => (rest, None),
        };
        for child in [node.exact.get(segment).copied(), node.one].into_iter().flatten() {
            match (rest, self.nodes.get(child)) {
                (Some(rest), _) => self.collect(child, rest, found),
                (None, Some(child)) => found.extend_from_slice(&child.ends_here),
                (None, None) => {}
            }
        }
    }

    fn insert(&mut self, index: u32, pattern: &Pattern) {
        let mut at = ROOT;
        for segment in pattern.segments() {
            let next = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else { return };
            at = match segment {
                PatternSegment::Rest => return node.rest.push(index),
                PatternSegment::One => *node.one.get_or_insert(next),
                PatternSegment::Exact(text) => *node.exact.get_or_insert_with(text.into(), || next),
            };
            if at == next {
                self.nodes.push(Node::default());
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.ends_here.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().expect("valid pattern")).collect()
    }

    #[test]
    fn overlapping_patterns_match_a_subscriber_once() {
        let subscribers =
            [patterns(&["tool.call.*", "tool.**", "tool.call.failure"]), patterns(&["fs.change"])];
        let mut matcher = Matcher::new((0..).zip(subscribers.iter().map(Vec::as_slice)));
        assert_eq!(matcher.matches("tool.call.failure"), [0]);
        assert_eq!(matcher.matches("fs.change"), [1]);
        assert_eq!(matcher.matches("fs.change.done"), [0; 0]);
    }

    #[test]
    fn the_bounded_memo_never_changes_a_match() {
        let subscribers = [patterns(&["job.*.done"]), patterns(&["job.**"])];
        let mut matcher = Matcher::new((0..).zip(subscribers.iter().map(Vec::as_slice)));
        for id in 0..3 * MEMO_TYPES_MAX {
            assert_eq!(matcher.matches(&format!("job.{id}.done")), [0, 1]);
            assert_eq!(matcher.matches("job.1"), [1]);
            assert!(matcher.memo.len() <= MEMO_TYPES_MAX);
        }
    }

    #[test]
    fn wildcard_subscribers_do_not_grow_the_memo() {
        let everything = patterns(&["**"]);
        let many = 10_000;
        let mut matcher = Matcher::new((0..many).map(|index| (index, everything.as_slice())));
        for id in 0..100 {
            assert_eq!(matcher.matches(&format!("job.{id}")).len(), 10_000);
            assert!(matcher.lists.len() < MEMO_INDEXES_MAX + 10_000);
        }
    }

    proptest! {
        #[test]
        fn it_finds_what_asking_every_pattern_finds(
            subscribers in prop::collection::vec(
                prop::collection::vec(
                    r"((a|b|c|tool|x-1|\*)\.){1,4}(a|b|c|tool|x-1|\*|\*\*)|\*\*", 1..4), 0..12),
            types in prop::collection::vec(r"((a|b|c|tool|x-1)\.){1,5}(a|b|c|tool|x-1)", 1..12),
        ) {
            let subscribers: Vec<Vec<Pattern>> = subscribers
                .iter()
                .map(|texts| texts.iter().map(|text| text.parse().expect("valid pattern")).collect())
                .collect();
            let mut matcher = Matcher::new((0..).zip(subscribers.iter().map(Vec::as_slice)));
            for event_type in types.iter().chain(&types) {
                let expected: Vec<u32> = (0..)
                    .zip(&subscribers)
                    .filter(|(_, own)| own.iter().any(|pattern| pattern.matches_text(event_type)))
                    .map(|(index, _)| index)
                    .collect();
                prop_assert_eq!(matcher.matches(event_type), expected, "{}", event_type);
            }
        }
    }
}
