//! What one tool is known to find, and what is new when it has looked again.
//!
//! A problem is the same as before when file, code and message are equal and as many equal ones go
//! before it. Its line is no part of that: an edit above a problem moves it, and it is no other
//! problem then. What is found twice at one place is one problem.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Level, Problem};
use crate::time::Timestamp;

/// Most problems of one tool that are remembered. Beyond it, what is new is counted and not listed
/// while others are.
pub const KNOWN_MAX: usize = 500;
/// Most problems that one change lists as found. The others are counted, and listed once all that
/// were listed are fixed.
pub const FOUND_MAX: usize = 20;

/// File, code, message, and how many equal ones go before it.
type Identity = (Option<String>, Option<String>, String, u32);

/// A problem, and how many with the same file, code and message go before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// What is wrong, and where.
    pub problem: Problem,
    /// From 0.
    pub ordinal: u32,
}

/// What one tool is known to find: those that a [`Change`] listed, and those that it only counted.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    listed: BTreeMap<Identity, Listed>,
    counted: BTreeSet<Identity>,
    /// Whether there were more than [`KNOWN_MAX`].
    is_overfull: bool,
    /// Since when some are listed.
    since: Option<Timestamp>,
}

/// What is new with what a tool found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// Those that are listed with this change, at most [`FOUND_MAX`]: errors first, else in the
    /// tool's order.
    pub found: Vec<Listed>,
    /// Those that were listed and are gone, by file, code and message.
    pub fixed: Vec<Listed>,
    /// How many the tool finds now that were never listed.
    pub left_out: usize,
    /// Given when the tool finds nothing any more: for how long some were listed.
    pub cleared_after: Option<Duration>,
}

impl Change {
    /// Whether there is nothing to publish.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && self.fixed.is_empty() && self.cleared_after.is_none()
    }

    /// Whether the tool finds nothing any more, after it did.
    pub fn is_cleared(&self) -> bool {
        self.cleared_after.is_some()
    }
}

impl Problems {
    /// Takes all that the tool finds now, and gives the differences.
    ///
    /// Shape: a caller whose change may get lost replaces in a clone, and keeps the clone once the
    /// change has arrived.
    pub fn replace(&mut self, current: Vec<Problem>, now: Timestamp) -> Change {
        let current = numbered(current);
        let total = current.len();
        let there: BTreeSet<&Identity> = current.iter().map(|(identity, _)| identity).collect();
        let gone = |identity: &&Identity| !there.contains(identity);
        let gone: Vec<Identity> = self.listed.keys().filter(gone).cloned().collect();
        self.counted.retain(|identity| there.contains(identity));
        let fixed = gone.iter().filter_map(|identity| self.listed.remove(identity)).collect();
        let mut others = Vec::new();
        for (identity, problem) in current {
            match self.listed.get_mut(&identity) {
                Some(known) => *known = problem,
                None => others.push((identity, problem)),
            }
        }
        let found = self.list(others);
        self.is_overfull = total > KNOWN_MAX;
        let left_out = total - self.listed.len();
        let cleared_after = self.since.filter(|_| total == 0).map(|since| now.since(since));
        self.since = self.since.or(Some(now)).filter(|_| !self.listed.is_empty());
        Change { found, fixed, left_out, cleared_after }
    }

    /// Lists those of `others` that are new, or any if none is listed; the rest is remembered as
    /// counted.
    fn list(&mut self, others: Vec<(Identity, Listed)>) -> Vec<Listed> {
        let is_first = self.listed.is_empty();
        let (counted, is_overfull) = (std::mem::take(&mut self.counted), self.is_overfull);
        let is_new = |identity: &Identity| !is_overfull && !counted.contains(identity);
        let (mut found, rest): (Vec<_>, Vec<_>) =
            others.into_iter().partition(|(identity, _)| is_first || is_new(identity));
        found.sort_by_key(|(_, listed)| listed.problem.severity != Level::Error);
        let room = KNOWN_MAX.saturating_sub(self.listed.len()).min(FOUND_MAX);
        let later = found.split_off(room.min(found.len()));
        self.listed.extend(found.iter().cloned());
        let room = KNOWN_MAX.saturating_sub(self.listed.len());
        self.counted.extend(rest.into_iter().chain(later).map(|(identity, _)| identity).take(room));
        found.into_iter().map(|(_, listed)| listed).collect()
    }
}

/// The problems by identity, in the tool's order; what is found twice at one place is there once.
fn numbered(problems: Vec<Problem>) -> Vec<(Identity, Listed)> {
    type Places = BTreeSet<(Option<u32>, Option<u32>)>;
    let mut places: BTreeMap<(Option<String>, Option<String>, String), Places> = BTreeMap::new();
    let number = |problem: Problem| {
        let problem = problem.bounded();
        let of = (problem.file.clone(), problem.code.clone(), problem.message.clone());
        let places = places.entry(of.clone()).or_default();
        let ordinal = u32::try_from(places.len()).unwrap_or(u32::MAX);
        let (file, code, message) = of;
        let is_new = places.insert((problem.line, problem.column));
        is_new.then_some(((file, code, message, ordinal), Listed { problem, ordinal }))
    };
    problems.into_iter().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(file: &str, line: u32, message: &str) -> Problem {
        Problem {
            file: Some(file.to_owned()),
            line: Some(line),
            column: None,
            severity: if message.starts_with("unused") { Level::Warning } else { Level::Error },
            code: None,
            message: message.to_owned(),
        }
    }

    /// `file:line message`, apart by commas.
    fn problems(text: &str) -> Vec<Problem> {
        let one = |text: &str| {
            let (place, message) = text.trim().split_once(' ').expect("file:line message");
            let (file, line) = place.split_once(':').expect("file:line");
            problem(file, line.parse().expect("a line"), message)
        };
        text.split(',').filter(|text| !text.trim().is_empty()).map(one).collect()
    }

    fn numbers(count: u32) -> Vec<Problem> {
        (1..=count).map(|number| problem("a", number, &format!("no {number}"))).collect()
    }

    fn said(listed: &[Listed]) -> String {
        let one = |Listed { problem, ordinal }: &Listed| {
            let (file, line) = (problem.file.as_deref().unwrap_or("-"), problem.line.unwrap_or(0));
            format!("{file}:{line} {}#{ordinal}", problem.message)
        };
        listed.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn only_differences_are_said() {
        for (name, steps) in [
            (
                "one comes and goes",
                &[("a:1 x", "a:1 x#0", "", false), ("a:1 x", "", "", false), ("", "", "a:1 x#0", true)][..],
            ),
            ("a line that moved is no news", &[("a:1 x", "a:1 x#0", "", false), ("a:9 x", "", "", false)]),
            (
                "the newest line is kept",
                &[("a:1 x", "a:1 x#0", "", false), ("a:9 x", "", "", false), ("", "", "a:9 x#0", true)],
            ),
            (
                "equal ones are counted",
                &[("a:1 x, a:5 x", "a:1 x#0, a:5 x#1", "", false), ("a:5 x", "", "a:5 x#1", false)],
            ),
            ("twice at one place is once", &[("a:1 x, a:1 x", "a:1 x#0", "", false)]),
            ("errors first", &[("a:1 unused y, a:2 x", "a:2 x#0, a:1 unused y#0", "", false)]),
            ("nothing after nothing", &[("", "", "", false), ("", "", "", false)]),
            (
                "a repair and another one",
                &[("a:1 x", "a:1 x#0", "", false), ("b:1 y", "b:1 y#0", "a:1 x#0", false)],
            ),
        ] {
            let mut known = Problems::default();
            for (current, found, fixed, is_cleared) in steps {
                let change = known.replace(problems(current), Timestamp::from_millis(5));
                let seen = (said(&change.found), said(&change.fixed), change.is_cleared());
                assert_eq!(
                    seen,
                    ((*found).to_owned(), (*fixed).to_owned(), *is_cleared),
                    "{name}: {current}"
                );
                assert_eq!(change.is_empty(), found.is_empty() && fixed.is_empty(), "{name}");
            }
        }
    }

    #[test]
    fn many_are_listed_in_parts() {
        let mut known = Problems::default();
        let first = known.replace(numbers(50), Timestamp::default());
        assert_eq!((first.found.len(), first.left_out), (FOUND_MAX, 30));
        let same = known.replace(numbers(50), Timestamp::default());
        assert_eq!((same.is_empty(), same.left_out), (true, 30));
        // One that was not there is news, those that were counted are not.
        let mut more = numbers(50);
        more.insert(0, problem("b", 1, "other"));
        let change = known.replace(more, Timestamp::default());
        assert_eq!((said(&change.found).as_str(), change.left_out), ("b:1 other#0", 30));
        // Once all that were listed are fixed, the next ones are.
        let rest = known.replace(numbers(50).split_off(20), Timestamp::default());
        assert_eq!((rest.found.len(), rest.fixed.len(), rest.left_out), (20, 21, 10));
        assert!(!rest.is_cleared());
    }

    #[test]
    fn beyond_what_is_remembered_nothing_trickles() {
        let mut known = Problems::default();
        known.replace(numbers(2_000), Timestamp::default());
        for _ in 0..3 {
            let change = known.replace(numbers(2_000), Timestamp::default());
            assert_eq!((change.is_empty(), change.left_out), (true, 1_980));
        }
        // None that is still found is said to be fixed, however many come before it.
        let mut more: Vec<Problem> =
            (1..=900).map(|line| problem("0", line, &format!("new {line}"))).collect();
        more.extend(numbers(2_000));
        assert_eq!(known.replace(more, Timestamp::default()).fixed, []);
        assert!(known.listed.len() + known.counted.len() <= KNOWN_MAX);
        assert!(known.replace(Vec::new(), Timestamp::default()).is_cleared());
    }

    #[test]
    fn how_long_they_lasted_is_from_the_first_one() {
        let mut known = Problems::default();
        for (at, current, expected) in
            [(1_000, "a:1 x", None), (3_000, "a:1 y", None), (7_000, "", Some(6_000)), (9_000, "", None)]
        {
            let change = known.replace(problems(current), Timestamp::from_millis(at));
            assert_eq!(change.cleared_after, expected.map(Duration::from_millis), "{at}");
        }
    }

    #[test]
    fn texts_are_bounded_and_on_one_line() {
        let long =
            Problem { message: format!("a\n  \x1b[31mb\x1b[0m{}", "x".repeat(9_000)), ..problem("f", 0, "") };
        let change = Problems::default().replace(vec![long], Timestamp::default());
        let problem = &change.found.first().expect("one").problem;
        assert!(problem.message.starts_with("a bxxx") && problem.message.chars().count() < 530);
        assert_eq!(problem.line, None);
    }
}
