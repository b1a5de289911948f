//! The problems of a test case.

use std::{collections::BTreeMap, rc::Rc};

use crate::capability::problem::{
    Level, Problem,
    format::go_output,
    trace::{self, Place},
};

/// Most bytes of the end of a case's output that are kept.
const OUTPUT_BYTES_MAX: usize = 8 * 1024;
/// Most bytes of the names of a suite and of those around it.
const LABEL_BYTES_MAX: usize = 500;

/// The names of a suite.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Label {
    /// Its name, after those of the suites around it.
    path: String,
    host: String,
}

/// A suite of test cases.
#[derive(Debug, Default)]
pub(super) struct Suite {
    pub(super) label: Rc<Label>,
    name: Option<String>,
    pub(super) file: Option<String>,
    /// Number of failures and errors according to its attributes.
    pub(super) declared: u64,
    /// Number of listed cases that failed, in it and in the suites in it.
    pub(super) failed: usize,
}

/// A problem with the suite that it was found in.
#[derive(Debug)]
pub(super) struct Found {
    problem: Problem,
    suite: Option<Rc<Label>>,
}

#[derive(Debug, Default)]
pub(super) struct Case {
    pub(super) file: Option<String>,
    pub(super) class: Option<String>,
    pub(super) name: Option<String>,
    pub(super) line: Option<u32>,
    pub(super) suite: Option<Rc<Label>>,
    pub(super) suite_file: Option<String>,
    /// Whether its attributes say that it failed.
    pub(super) is_failed: bool,
    pub(super) failures: Vec<Failure>,
    /// The end of its output.
    pub(super) output: String,
}

/// A failure or an error.
#[derive(Debug, Default)]
pub(super) struct Failure {
    pub(super) message: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) text: String,
}

impl Suite {
    /// Shape: `host` distinguishes suites of one name; `declared` is the number of failures that its
    /// attributes state.
    pub(super) fn new(
        parent: Option<&Self>,
        name: Option<String>,
        file: Option<String>,
        host: Option<String>,
        declared: u64,
    ) -> Self {
        let outer = parent.map(|parent| parent.label.path.as_str()).filter(|path| !path.is_empty());
        let path = match (outer, name.as_deref()) {
            (Some(outer), Some(name)) if outer.len() + name.len() < LABEL_BYTES_MAX => {
                format!("{outer}::{name}")
            }
            (_, Some(name)) => name.to_owned(),
            (outer, None) => outer.unwrap_or_default().to_owned(),
        };
        let host = host.or_else(|| Some(parent?.label.host.clone())).unwrap_or_default();
        let file = file.or_else(|| parent?.file.clone());
        Self { label: Rc::new(Label { path, host }), name, file, declared, failed: 0 }
    }
}

impl Case {
    /// A case for the failures of a suite itself.
    pub(super) fn of_suite(suite: &Suite) -> Self {
        let (label, file) = (Some(suite.label.clone()), suite.file.clone());
        Self { name: suite.name.clone(), suite: label, suite_file: file, ..Self::default() }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.is_failed || !self.failures.is_empty()
    }

    /// Keeps the end of the output.
    pub(super) fn add_output(&mut self, text: &str) {
        self.output.push_str(text);
        if self.output.len() > 2 * OUTPUT_BYTES_MAX {
            let from = self.output.len() - OUTPUT_BYTES_MAX;
            let from = (from..self.output.len()).find(|at| self.output.is_char_boundary(*at));
            self.output.drain(..from.unwrap_or(0));
        }
    }

    /// One problem for each failure; those without a reason only if no other one has a reason.
    pub(super) fn problems(&self) -> Vec<Found> {
        let alone = [Failure::default()];
        let failures = match self.failures.as_slice() {
            [] if self.is_failed => &alone[..],
            failures => failures,
        };
        let mut all: Vec<(Problem, bool)> = Vec::new();
        for failure in failures {
            let (problem, has_reason) = self.problem(failure);
            if all.iter().all(|(other, _)| *other != problem) {
                all.push((problem, has_reason));
            }
        }
        let has_reason = all.iter().any(|(_, has_reason)| *has_reason);
        let kept = all.into_iter().filter(|(_, of_one)| *of_one || !has_reason);
        // Without a reason one is enough.
        let kept = kept.take(if has_reason { usize::MAX } else { 1 });
        kept.map(|(problem, _)| Found { problem, suite: self.suite.clone() }).collect()
    }

    /// The problem, and whether it has a reason.
    fn problem(&self, failure: &Failure) -> (Problem, bool) {
        let go = failure.go_output();
        let reason = failure.reason(self.message(failure), self.name.as_deref());
        let reason = reason.or_else(|| go.as_ref().and_then(|go| go.message.clone()));
        let (reason, has_reason) = match reason.or_else(|| trace::reason_of_output(&self.output)) {
            Some(reason) => (reason, true),
            None => (failure.bare(), false),
        };
        let place = go.and_then(|go| go.place).or_else(|| self.place(failure));
        let name = self.name.clone().unwrap_or_else(|| "test".to_owned());
        let code = match (&self.file, &self.class) {
            (None, Some(class)) => format!("{class}::{name}"),
            (Some(_), _) | (None, None) => name,
        };
        let (file, line, column) = match place {
            Some(Place { file, line, column }) => (Some(file), line.or(self.line), column),
            None => (None, self.line, None),
        };
        let problem =
            Problem { file, line, column, severity: Level::Error, code: Some(code), message: reason };
        (problem, has_reason)
    }

    /// The message, unless it has only the place and the name of the case, as Playwright's.
    fn message<'f>(&self, failure: &'f Failure) -> Option<&'f str> {
        let is_name = |name| self.name.as_deref().is_some_and(|whole| whole.ends_with(name));
        failure.message.as_deref().filter(|message| !trace::after_place(message).is_some_and(is_name))
    }

    /// The file is that of an attribute, if there is one; the line is that of the text in it.
    fn place(&self, failure: &Failure) -> Option<Place> {
        let text = [self.message(failure).unwrap_or_default(), &failure.text].join("\n");
        let is_file = |name: &&String| trace::is_file(name);
        let suite =
            self.suite.as_deref().map(|label| label.path.rsplit("::").next().unwrap_or_default().to_owned());
        let named = self.file.as_ref().or(self.suite_file.as_ref());
        let named = named.or(self.class.as_ref().filter(is_file)).or(self.name.as_ref().filter(is_file));
        let Some(file) = named.or(suite.as_ref().filter(is_file)) else {
            let place = trace::place(&text, None, self.class.as_deref());
            return place.or_else(|| trace::place(&self.output, None, self.class.as_deref()));
        };
        let title = || trace::place(failure.message.as_deref()?, Some(file), None);
        let found = trace::place(&text, Some(file), None).or_else(title);
        let (line, column) = found.map_or((None, None), |found| (found.line, found.column));
        Some(Place { file: file.clone(), line, column })
    }
}

impl Failure {
    /// What a test of go printed, if it is one.
    fn go_output(&self) -> Option<go_output::Finding> {
        let is_go = self.text.contains(".go:") || self.text.contains("--- FAIL: ");
        let is_said = self.message.as_deref().is_some_and(|message| !trace::is_empty(message));
        if !is_go || is_said {
            return None;
        }
        let mut output = go_output::Output::default();
        self.text.lines().for_each(|line| output.line(line, None));
        output.finish()
    }

    /// The message, else the reason in its text, else its type. A panic of Rust is named by what it
    /// says. PHPUnit begins the text with the name of the case.
    fn reason(&self, message: Option<&str>, name: Option<&str>) -> Option<String> {
        let has_reason = |text: &&str| !trace::is_empty(text);
        let message = message.map(trace::without_place).filter(has_reason);
        let is_head = message.is_some_and(|message| message.contains(" panicked at "));
        let in_text = || {
            let is_go = self.text.contains(".go:") || self.text.contains("--- FAIL: ");
            if is_go { None } else { trace::reason(without_name(&self.text, name)) }
        };
        let kind = || self.kind.as_deref().filter(has_reason).map(str::to_owned);
        if let Some(message) = message {
            let inner =
                is_head.then(|| trace::reason(message).filter(|inner| inner != message).or_else(in_text));
            return Some(inner.flatten().unwrap_or_else(|| message.to_owned()));
        }
        in_text().or_else(|| if self.text.trim().is_empty() { kind() } else { None })
    }

    /// What it says without a reason.
    fn bare(&self) -> String {
        let text = self.text.lines().map(str::trim).find(|line| !line.is_empty());
        let text = self.message.as_deref().or(text).or(self.kind.as_deref());
        text.unwrap_or("failed").to_owned()
    }
}

/// Removes a first line that is the name of the case.
fn without_name<'t>(text: &'t str, name: Option<&str>) -> &'t str {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let is_name = name.is_some_and(|name| first.trim_end().ends_with(name)) && !first.trim().contains(": ");
    if is_name && !rest.trim().is_empty() { rest } else { text }
}

/// The problems, with the suite in the code of those that only their suites distinguish.
pub(super) fn distinct(found: Vec<Found>) -> Vec<Problem> {
    type Key = (Option<String>, Option<u32>, Option<String>, String);
    let key = |problem: &Problem| -> Key {
        (problem.file.clone(), problem.line, problem.code.clone(), problem.message.clone())
    };
    let mut suites: BTreeMap<Key, Vec<Rc<Label>>> = BTreeMap::new();
    for Found { problem, suite } in &found {
        let labels = suites.entry(key(problem)).or_default();
        labels.extend(suite.clone().filter(|suite| labels.last() != Some(suite)));
    }
    let named = |Found { problem, suite }: Found| {
        let (Some(labels), Some(suite)) = (suites.get(&key(&problem)), suite) else { return problem };
        let Some(other) = labels.iter().find(|label| **label != suite) else { return problem };
        let prefix = if other.path == suite.path { &suite.host } else { &suite.path };
        let code = problem.code.as_deref().unwrap_or_default();
        let code = if prefix.is_empty() { code.to_owned() } else { format!("{prefix}::{code}") };
        Problem { code: Some(code), ..problem }
    };
    found.into_iter().map(named).collect()
}
