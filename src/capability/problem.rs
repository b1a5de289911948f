//! Problems: findings of a compiler, a linter, a test run or a language server in files.
//!
//! [`Problems`] compares a tool's current problems with its known ones, and returns the
//! differences. [`Change::reports`] writes them as one event per problem, so that a problem is
//! delivered once and not again with the next one of its file. This module does not know where the
//! problems come from. docs/design/problems.md has the reasons.
//!
//! A problem is the same as before if file, code and message are equal and the same number of equal
//! ones precedes it. The line does not count, because an edit above a problem moves it without
//! making it a new one. Equal problems at one place are one problem.

pub mod collector;
pub mod format;
pub mod matcher;
pub mod text;
mod trace;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use engine::{
    event::{Severity, cut_text, strip_text},
    hash::hash_parts,
};
use journal::time::{Timestamp, duration_millis};
use serde_json::{Map, Value, json};
use strum::IntoStaticStr;
use trace::Place;

/// Longest file name, in characters.
const FILE_CHARS_MAX: usize = 400;
/// Longest code, in characters.
const CODE_CHARS_MAX: usize = 100;
/// Longest message, in characters.
const MESSAGE_CHARS_MAX: usize = 500;

engine::words::impl_as_str!(Level);

/// The level of a problem, worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Level {
    /// The code does not compile, or a test fails.
    Error,
    /// The code works and should be checked.
    Warning,
    /// A hint.
    Info,
}

impl Level {
    /// Parses a tool's name of a level; `None` for an unknown name.
    pub fn of_word(word: &str) -> Option<Self> {
        match word.trim().trim_end_matches(':').to_ascii_lowercase().as_str() {
            "error" | "fatal error" | "fatal" | "failure" | "failed" | "e" | "f" | "2" => Some(Self::Error),
            "warning" | "warn" | "w" | "1" => Some(Self::Warning),
            "info" | "information" | "note" | "notice" | "hint" | "help" | "style" | "convention"
            | "refactor" | "suggestion" | "message" | "c" | "r" | "i" | "n" => Some(Self::Info),
            _ => None,
        }
    }
}

/// One finding of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as named by the tool.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<u32>,
    /// The column, from 1, in the tool's unit.
    pub column: Option<u32>,
    /// The level.
    pub severity: Level,
    /// The tool's code for this kind of problem, such as `E0425`.
    pub code: Option<String>,
    /// The message.
    pub message: String,
}

impl Problem {
    /// A problem at a place, if one is known.
    fn at(place: Option<Place>, severity: Level, code: Option<String>, message: String) -> Self {
        let (file, line, column) = place.map_or((None, None, None), |at| (Some(at.file), at.line, at.column));
        Self { file, line, column, severity, code, message }
    }

    /// The same with texts of bounded length, each on one line and without terminal escapes.
    fn bounded(self) -> Self {
        let named = |text: Option<String>, chars_max| {
            text.map(|text| one_line(&text, chars_max)).filter(|text| !text.is_empty())
        };
        Self {
            file: named(self.file, FILE_CHARS_MAX),
            line: self.line.filter(|line| *line > 0),
            column: self.column.filter(|column| *column > 0),
            severity: self.severity,
            code: named(self.code, CODE_CHARS_MAX),
            message: one_line(&self.message, MESSAGE_CHARS_MAX),
        }
    }
}

fn one_line(text: &str, chars_max: usize) -> String {
    let text = strip_text(text);
    let words = text.split(['\n', '\r', '\t']).map(str::trim).filter(|part| !part.is_empty());
    let line = words.collect::<Vec<_>>().join(" ");
    cut_text(Cow::Owned(line), chars_max).into_owned()
}

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

/// The type of the event that a problem was found.
pub const FOUND: &str = "problem.found";
/// The type of the event that a problem is gone; has the same `problem`.
pub const FIXED: &str = "problem.fixed";
/// The type of the event that a tool finds no problems any more.
pub const CLEARED: &str = "problem.cleared";

/// The origin of problems.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The tool, such as `tsc`.
    pub tool: &'a str,
    /// The folder to which file names are relative.
    pub folder: Option<&'a str>,
    /// The folder whose path is removed from the names of files in it.
    pub workspace: Option<&'a str>,
}

/// The parts of an event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// [`FOUND`], [`FIXED`] or [`CLEARED`].
    pub event_type: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The key of the problem among those of its tool; the tool's name for [`CLEARED`].
    pub problem: String,
    /// The payload of the event.
    pub payload: Value,
}

impl Change {
    /// The events to publish: fixed problems, found ones, and last that none is left.
    ///
    /// Shape: the last found one has `more`, the number of problems that are not listed.
    pub fn reports(&self, origin: &Origin<'_>) -> Vec<Report> {
        let fixed = self.fixed.iter().map(|listed| origin.report(FIXED, Severity::Debug, listed));
        let found =
            self.found.iter().map(|listed| origin.report(FOUND, severity(listed.problem.severity), listed));
        let mut found: Vec<Report> = found.collect();
        if let (Some(payload), 1..) =
            (found.last_mut().and_then(|report| report.payload.as_object_mut()), self.left_out)
        {
            payload.insert("more".to_owned(), self.left_out.into());
        }
        let cleared = self.cleared_after.map(|lasted| Report {
            event_type: CLEARED,
            severity: Severity::Info,
            problem: origin.tool.to_owned(),
            payload: json!({ "tool": origin.tool, "lasted_ms": duration_millis(lasted) }),
        });
        fixed.chain(found).chain(cleared).collect()
    }
}

/// At most a warning: hundreds of compiler errors are usual during an edit, and must not wake
/// anybody.
const fn severity(level: Level) -> Severity {
    match level {
        Level::Error => Severity::Warning,
        Level::Warning => Severity::Info,
        Level::Info => Severity::Debug,
    }
}

impl Origin<'_> {
    fn report(&self, event_type: &'static str, severity: Severity, listed: &Listed) -> Report {
        let Listed { problem: of, ordinal } = listed;
        let file = of.file.as_deref().map(|file| self.shown(file));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = hash_parts(&[
            self.tool,
            file.as_deref().unwrap_or_default(),
            &text(&of.code),
            &of.message,
            &ordinal.to_string(),
        ]);
        let key = format!("{key:016x}");
        let fields = [
            ("problem", Some(key.clone().into())),
            ("tool", Some(self.tool.into())),
            ("file", file.map(Value::from)),
            ("line", of.line.map(Value::from)),
            ("column", of.column.map(Value::from)),
            ("level", Some(of.severity.as_str().into())),
            ("code", of.code.clone().map(Value::from)),
            ("message", Some(of.message.clone().into())),
        ];
        let payload: Map<String, Value> =
            fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        Report { event_type, severity, problem: key, payload: payload.into() }
    }

    /// The name of a file relative to the workspace if it is inside, otherwise its most complete
    /// path.
    fn shown(&self, file: &str) -> String {
        let file = file.strip_prefix("file://").unwrap_or(file);
        let whole = match (self.folder, file.starts_with('/')) {
            (Some(folder), false) => joined(folder, file),
            (Some(_) | None, _) => joined("", file),
        };
        let workspace = self.workspace.unwrap_or_default().trim_end_matches('/');
        let inside = whole.strip_prefix(workspace).and_then(|rest| rest.strip_prefix('/'));
        inside.filter(|_| !workspace.is_empty()).map_or(whole.clone(), str::to_owned)
    }
}

/// Joins a path lexically, without `.` and `..`.
fn joined(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(file.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let is_absolute = folder.starts_with('/') || (folder.is_empty() && file.starts_with('/'));
    format!("{}{}", if is_absolute { "/" } else { "" }, parts.join("/"))
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

    mod report {
        use super::super::*;
        use crate::capability::problem::{Problem, Problems};
        use journal::time::Timestamp;

        fn problem(file: &str) -> Problem {
            Problem {
                file: Some(file.to_owned()),
                line: Some(42),
                column: Some(9),
                severity: Level::Error,
                code: Some("E0425".to_owned()),
                message: "cannot find value `total` in this scope".to_owned(),
            }
        }

        const ORIGIN: Origin<'_> =
            Origin { tool: "cargo", folder: Some("/w/crates/a"), workspace: Some("/w") };

        #[test]
        fn found_and_fixed_events_name_same_problem() {
            let mut known = Problems::default();
            let found = known.replace(vec![problem("src/a.rs")], Timestamp::from_millis(1)).reports(&ORIGIN);
            let moved = Problem { line: Some(50), ..problem("src/a.rs") };
            assert_eq!(known.replace(vec![moved], Timestamp::from_millis(2)).reports(&ORIGIN), []);
            let fixed = known.replace(Vec::new(), Timestamp::from_millis(3)).reports(&ORIGIN);
            let [found] = <[Report; 1]>::try_from(found).expect("one");
            let [fixed, cleared] = <[Report; 2]>::try_from(fixed).expect("two");
            assert_eq!((found.event_type, found.severity), (FOUND, Severity::Warning));
            assert_eq!(
                (fixed.event_type, fixed.severity, &fixed.problem),
                (FIXED, Severity::Debug, &found.problem)
            );
            assert_eq!(
                found.payload,
                json!({ "problem": found.problem, "tool": "cargo", "file": "crates/a/src/a.rs", "line": 42, "column": 9,
                    "level": "error", "code": "E0425", "message": "cannot find value `total` in this scope" })
            );
            assert_eq!((cleared.event_type, cleared.severity), (CLEARED, Severity::Info));
            assert_eq!(cleared.payload, json!({ "tool": "cargo", "lasted_ms": 2 }));
        }

        #[test]
        fn omitted_problems_are_counted_in_last_report() {
            let many = (0..25).map(|number| problem(&format!("{number}.rs"))).collect();
            let reports = Problems::default().replace(many, Timestamp::default()).reports(&ORIGIN);
            let more: Vec<_> = reports.iter().filter_map(|report| report.payload.get("more")).collect();
            assert_eq!((reports.len(), more), (20, vec![&json!(5)]));
            assert_eq!(reports.last().and_then(|report| report.payload.get("more")), Some(&json!(5)));
        }

        #[test]
        fn files_are_shown_from_the_workspace() {
            for (file, folder, workspace, shown) in [
                ("src/a.rs", Some("/w"), Some("/w"), "src/a.rs"),
                ("./src/../b.rs", Some("/w/x"), Some("/w/"), "x/b.rs"),
                ("/w/src/a.rs", None, Some("/w"), "src/a.rs"),
                ("file:///w/a.rs", None, Some("/w"), "a.rs"),
                ("/wide/a.rs", None, Some("/w"), "/wide/a.rs"),
                ("../../../x.rs", Some("/w"), Some("/w"), "/../../x.rs"),
                ("../x.rs", None, None, "../x.rs"),
                ("a.rs", None, Some("/w"), "a.rs"),
                ("a.rs", Some("/v"), Some("/w"), "/v/a.rs"),
                ("/", None, Some("/"), "/"),
            ] {
                let origin = Origin { tool: "t", folder, workspace };
                assert_eq!(origin.shown(file), shown, "{file}");
            }
        }
    }
}
