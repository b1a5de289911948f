//! The known problems of one tool, and the changes after each of its rounds.
//!
//! A problem is the same as before if file, code and message are equal and the same number of equal
//! ones precedes it. The line does not count, because an edit above a problem moves it without
//! making it a new one. Equal problems at one place are one problem.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{Level, Problem};
use journal::time::Timestamp;

/// Most remembered problems of one tool. Beyond that, new problems are only counted, not listed, as
/// long as others are listed.
pub const KNOWN_MAX: usize = 500;
/// Most problems that one change lists as found. The others are counted, and listed once all listed
/// ones are fixed.
pub const FOUND_MAX: usize = 20;

/// File, code, message, and the number of preceding equal ones.
type Identity = (Option<String>, Option<String>, String, u32);

/// A problem, and the number of preceding problems with the same file, code and message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The problem.
    pub problem: Problem,
    /// The number, from 0.
    pub ordinal: u32,
}

/// The known problems of one tool: those that a [`Change`] listed, and those that it only counted.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    listed: BTreeMap<Identity, Listed>,
    counted: BTreeSet<Identity>,
    /// Whether the last round had more than [`KNOWN_MAX`].
    is_overfull: bool,
    /// The time since which at least one is listed.
    since: Option<Timestamp>,
}

/// The changes after a round of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Change {
    /// The newly listed ones, at most [`FOUND_MAX`]: errors first, otherwise in the tool's order.
    pub found: Vec<Listed>,
    /// The listed ones that are gone, by file, code and message.
    pub fixed: Vec<Listed>,
    /// Number of present problems that are not listed.
    pub left_out: usize,
    /// Set if the tool finds nothing any more: how long at least one was listed.
    pub cleared_after: Option<Duration>,
}

impl Change {
    /// Whether there is nothing to publish.
    pub fn is_empty(&self) -> bool {
        self.found.is_empty() && self.fixed.is_empty() && self.cleared_after.is_none()
    }

    /// Whether the tool finds nothing any more, after it had problems.
    pub fn is_cleared(&self) -> bool {
        self.cleared_after.is_some()
    }
}

impl Problems {
    /// Takes all present problems of the tool, and returns the differences.
    ///
    /// Shape: a caller whose change may get lost calls this on a clone, and keeps the clone once
    /// the change has arrived.
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

    /// Lists the new ones of `others`, or any of them if none is listed; remembers the rest as
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

/// The problems by identity, in the tool's order; equal ones at one place appear once.
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

    /// Parses `file:line message` entries, separated by commas.
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
        // A problem that did not exist before is listed; the counted ones are not.
        let mut more = numbers(50);
        more.insert(0, problem("b", 1, "other"));
        let change = known.replace(more, Timestamp::default());
        assert_eq!((said(&change.found).as_str(), change.left_out), ("b:1 other#0", 30));
        // Once all listed ones are fixed, the next ones are listed.
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
        // A problem that still exists is never reported as fixed, even if many new ones precede it.
        let mut more: Vec<Problem> =
            (1..=900).map(|line| problem("0", line, &format!("new {line}"))).collect();
        more.extend(numbers(2_000));
        assert_eq!(known.replace(more, Timestamp::default()).fixed, []);
        assert!(known.listed.len() + known.counted.len() <= KNOWN_MAX);
        assert!(known.replace(Vec::new(), Timestamp::default()).is_cleared());
    }

    #[test]
    fn cleared_duration_counts_from_first_problem() {
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
