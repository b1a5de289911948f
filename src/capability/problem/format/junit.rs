//! JUnit XML: the failed test cases.
//!
//! It has no standard. Source: the output of pytest, Surefire, gotestsum, nextest, vitest and
//! jest-junit. They agree on `testcase` with `classname` and `name`, and on its children `failure`
//! and `error`. A `flakyFailure` or `rerunFailure` is a failure of one attempt, and no problem of its
//! own. The elements are read one after the other, in linear time and without a tree. A document
//! type is refused, so no entity can expand.

use std::{collections::BTreeMap, rc::Rc};

use quick_xml::{
    Reader,
    escape::{resolve_predefined_entity, unescape},
    events::{BytesRef, BytesStart, Event},
};

use crate::capability::problem::{
    Level, Problem,
    format::go_test,
    text::{PROBLEMS_MAX, begin},
    trace::{self, Place},
};

/// Most attributes of an element; a test case has some five.
const ATTRIBUTES_MAX: usize = 100;
/// Most levels of elements.
const DEPTH_MAX: usize = 100;
/// Most bytes that are read of an attribute, and of the text of a failure.
const TEXT_BYTES_MAX: usize = 8 * 1024;
/// Most bytes of a name in an error.
const NAME_BYTES_MAX: usize = 64;
/// Most failures and errors of a test case.
const FAILURES_MAX: usize = 20;

/// Errors: what is wrong, with line and column.
pub(super) fn read(text: &str) -> Result<Vec<Problem>, String> {
    let mut reader = Reader::from_str(text);
    let mut document = Document::default();
    loop {
        let at = reader.buffer_position();
        let event = reader.read_event().map_err(|error| {
            let at = reader.error_position();
            format!("{error} at {}", place(text, at))
        })?;
        let is_end = matches!(event, Event::Eof);
        document.take(event).map_err(|error| format!("{error} at {}", place(text, at)))?;
        if is_end {
            return Ok(distinct(document.found));
        }
    }
}

/// Line and column of a byte, from 1.
fn place(text: &str, at: u64) -> String {
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    let line_start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    let line = before.get(line_start..).expect("0, or the position after a byte");
    let column = String::from_utf8_lossy(line).chars().count();
    format!("{}:{}", memchr::memchr_iter(b'\n', before).count() + 1, column + 1)
}

/// The document so far.
#[derive(Debug, Default)]
struct Document {
    /// Number of open elements.
    depth: usize,
    /// The name of the root.
    root: Option<String>,
    /// Whether there is an element of JUnit.
    is_junit: bool,
    /// The open suites, each with its depth.
    suites: Vec<(usize, Suite)>,
    /// The open test case, and its depth; a failure of a suite itself is one, too.
    case: Option<(usize, Case)>,
    /// The element whose text is kept, and its depth.
    text: Option<(usize, Text)>,
    found: Vec<SuiteProblem>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Text {
    Failure,
    Output,
}

impl Document {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Start(tag) => self.open(&tag)?,
            Event::Empty(tag) => {
                self.open(&tag)?;
                self.close();
            }
            Event::End(_) => self.close(),
            Event::Text(text) => self.text(&text.into_inner())?,
            Event::CData(text) => self.text(&text.into_inner())?,
            Event::GeneralRef(reference) => {
                let text = resolve(&reference)?;
                self.text(&text)?;
            }
            Event::DocType(_) => return Err("a document type is not allowed".to_owned()),
            Event::Eof if self.depth > 0 => return Err(format!("{} elements have no end", self.depth)),
            Event::Eof if !self.is_junit => {
                let no_test = |root| format!("`{root}` has no `testsuite` and no `testcase`");
                return Err(self.root.take().map_or_else(|| "there is no element".to_owned(), no_test));
            }
            Event::Eof | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
        Ok(())
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(format!("elements are nested deeper than {DEPTH_MAX} levels"));
        }
        let attributes = Attributes::read(tag)?;
        let local = tag.local_name();
        let name: &str = local.as_ref();
        let depth = self.depth;
        self.root.get_or_insert_with(|| begin(name, NAME_BYTES_MAX).to_owned());
        self.is_junit |= matches!(name, "testsuites" | "testsuite" | "testcase");
        match (&mut self.case, name) {
            (None, "testsuite" | "testsuites") => {
                let parent = self.suites.last().map(|(_, suite)| suite);
                let suite = attributes.into_suite(parent, name == "testsuite");
                self.suites.push((depth, suite));
            }
            (None, "testcase") => {
                let suite = self.suites.last().map(|(_, suite)| suite);
                self.case = Some((depth, attributes.into_case(suite)));
            }
            // An error of the suite itself, such as a file that cannot be loaded.
            (None, "failure" | "error") => {
                if let Some((_, suite)) = self.suites.last().filter(|(suite, _)| suite + 1 == depth) {
                    let mut case = Case::of_suite(suite);
                    case.failures.push(attributes.into_failure());
                    self.case = Some((depth, case));
                    self.text = Some((depth, Text::Failure));
                }
            }
            (Some((case_depth, case)), "failure" | "error") if depth == *case_depth + 1 => {
                if case.failures.len() < FAILURES_MAX {
                    case.failures.push(attributes.into_failure());
                    self.text = Some((depth, Text::Failure));
                }
            }
            (Some((case_depth, _)), "system-out" | "system-err") if depth == *case_depth + 1 => {
                self.text = Some((depth, Text::Output));
            }
            (None | Some(_), _) => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        let depth = self.depth;
        self.text = self.text.filter(|(text, _)| *text != depth);
        if let Some((_, case)) = self.case.take_if(|(case, _)| *case == depth) {
            self.found(&case);
        }
        if let Some((_, suite)) = self.suites.pop_if(|(suite, _)| *suite == depth) {
            // Its failures are counted and not listed.
            if suite.declared > 0 && suite.failed == 0 {
                let mut case = Case::of_suite(&suite);
                let message = format!("{} failures or errors that the report does not list", suite.declared);
                case.failures.push(Failure { message: Some(message), ..Failure::default() });
                self.found(&case);
            }
        }
        self.depth = depth.saturating_sub(1);
    }

    fn found(&mut self, case: &Case) {
        if case.has_failed() {
            self.suites.iter_mut().for_each(|(_, suite)| suite.failed += 1);
        }
        let room = PROBLEMS_MAX.saturating_sub(self.found.len());
        if room > 0 {
            self.found.extend(case.problems().into_iter().take(room));
        }
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        if self.depth == 0 && !text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Err("there is text outside of an element".to_owned());
        }
        if let Some((_, kind)) = self.text.filter(|(depth, _)| *depth == self.depth)
            && let Some((_, case)) = &mut self.case
        {
            match (kind, case.failures.last_mut()) {
                (Text::Failure, Some(failure)) => {
                    let text = if failure.text.is_empty() { text.trim_start() } else { text };
                    let room = TEXT_BYTES_MAX.saturating_sub(failure.text.len());
                    failure.text.push_str(begin(text, room));
                }
                (Text::Output, _) => case.add_output(text),
                (Text::Failure, None) => {}
            }
        }
        Ok(())
    }
}

/// The used attributes of an element, without empty ones.
#[derive(Debug, Default)]
struct Attributes {
    file: Option<String>,
    line: Option<String>,
    classname: Option<String>,
    name: Option<String>,
    message: Option<String>,
    kind: Option<String>,
    status: Option<String>,
    /// What distinguishes suites of one name, such as the browser.
    host: Option<String>,
    failures: Option<String>,
    errors: Option<String>,
}

impl Attributes {
    /// Errors: there are more than [`ATTRIBUTES_MAX`], or one is no attribute.
    fn read(tag: &BytesStart<'_>) -> Result<Self, String> {
        let mut read = Self::default();
        let mut attributes = tag.attributes();
        // The check for doubled names compares each with each.
        for (number, attribute) in attributes.with_checks(false).enumerate() {
            if number == ATTRIBUTES_MAX {
                return Err(format!("an element has more than {ATTRIBUTES_MAX} attributes"));
            }
            let attribute = attribute.map_err(|error| error.to_string())?;
            let slot = match attribute.key.as_ref() {
                "file" | "filepath" => &mut read.file,
                "line" | "lineno" => &mut read.line,
                "classname" => &mut read.classname,
                "name" => &mut read.name,
                "message" => &mut read.message,
                "type" => &mut read.kind,
                "status" | "result" => &mut read.status,
                "hostname" | "package" => &mut read.host,
                "failures" => &mut read.failures,
                "errors" => &mut read.errors,
                _ => continue,
            };
            let raw = begin(&attribute.value, TEXT_BYTES_MAX);
            let value = unescape(raw).map_or_else(|_| raw.to_owned(), std::borrow::Cow::into_owned);
            *slot = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
        Ok(read)
    }

    fn into_suite(self, parent: Option<&Suite>, is_named: bool) -> Suite {
        let count = |text: Option<String>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let Self { file, name, host, failures, errors, .. } = self;
        let declared = count(failures).saturating_add(count(errors));
        let name = name.filter(|_| is_named);
        let file = file.and_then(|file| without_line(file).0);
        Suite::new(parent, name, file, host, declared)
    }

    fn into_case(self, suite: Option<&Suite>) -> Case {
        let Self { file, line, classname: class, name, status, .. } = self;
        let (file, line_of_file) = file.map_or((None, None), without_line);
        let line = line.and_then(|line| line.parse().ok()).or(line_of_file);
        let status = status.map(|status| status.to_ascii_lowercase());
        let is_failed =
            matches!(status.as_deref(), Some("fail" | "failed" | "failure" | "error" | "errored"));
        let (suite, suite_file) =
            suite.map_or((None, None), |suite| (Some(suite.label.clone()), suite.file.clone()));
        Case { file, class, name, line, suite, suite_file, is_failed, ..Case::default() }
    }

    fn into_failure(self) -> Failure {
        let Self { message, kind, .. } = self;
        Failure { message, kind, text: String::new() }
    }
}

/// A file and the line that its attribute may have: ExUnit's is `test/cart_test.exs:5`.
fn without_line(file: String) -> (Option<String>, Option<u32>) {
    match file.rsplit_once(':').and_then(|(file, line)| Some((file, line.parse().ok()?))) {
        Some((file, line)) => (Some(file.to_owned()), Some(line)),
        None => (Some(file), None),
    }
}

/// The text of a reference: a character, or one of the five predefined entities.
fn resolve(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Some(character) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(character.to_string());
    }
    let name = reference.xml10_content();
    let known = resolve_predefined_entity(&name).map(str::to_owned);
    known.ok_or_else(|| format!("unknown entity `{}`", begin(&name, NAME_BYTES_MAX)))
}

/// Most bytes of the end of a case's output that are kept.
const OUTPUT_BYTES_MAX: usize = 8 * 1024;
/// Most bytes of the names of a suite and of those around it.
const LABEL_BYTES_MAX: usize = 500;

/// The names of a suite.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Label {
    /// Its name, after those of the suites around it.
    path: String,
    host: String,
}

/// A suite of test cases.
#[derive(Debug, Default)]
struct Suite {
    label: Rc<Label>,
    name: Option<String>,
    file: Option<String>,
    /// Number of failures and errors according to its attributes.
    declared: u64,
    /// Number of listed cases that failed, in it and in the suites in it.
    failed: usize,
}

/// A problem with the suite that it was found in.
#[derive(Debug)]
struct SuiteProblem {
    problem: Problem,
    suite: Option<Rc<Label>>,
}

#[derive(Debug, Default)]
struct Case {
    file: Option<String>,
    class: Option<String>,
    name: Option<String>,
    line: Option<u32>,
    suite: Option<Rc<Label>>,
    suite_file: Option<String>,
    /// Whether its attributes say that it failed.
    is_failed: bool,
    failures: Vec<Failure>,
    /// The end of its output.
    output: String,
}

/// A failure or an error.
#[derive(Debug, Default)]
struct Failure {
    message: Option<String>,
    kind: Option<String>,
    text: String,
}

impl Suite {
    /// Shape: `host` distinguishes suites of one name; `declared` is the number of failures that its
    /// attributes state.
    fn new(
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
    fn of_suite(suite: &Suite) -> Self {
        let (label, file) = (Some(suite.label.clone()), suite.file.clone());
        Self { name: suite.name.clone(), suite: label, suite_file: file, ..Self::default() }
    }

    fn has_failed(&self) -> bool {
        self.is_failed || !self.failures.is_empty()
    }

    /// Keeps the end of the output.
    fn add_output(&mut self, text: &str) {
        self.output.push_str(text);
        if self.output.len() > 2 * OUTPUT_BYTES_MAX {
            let from = self.output.len() - OUTPUT_BYTES_MAX;
            let from = (from..self.output.len()).find(|at| self.output.is_char_boundary(*at));
            self.output.drain(..from.unwrap_or(0));
        }
    }

    /// One problem for each failure; those without a reason only if no other one has a reason.
    fn problems(&self) -> Vec<SuiteProblem> {
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
        kept.map(|(problem, _)| SuiteProblem { problem, suite: self.suite.clone() }).collect()
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
    fn go_output(&self) -> Option<go_test::Finding> {
        let is_go = self.text.contains(".go:") || self.text.contains("--- FAIL: ");
        let is_said = self.message.as_deref().is_some_and(|message| !trace::is_empty(message));
        if !is_go || is_said {
            return None;
        }
        let mut output = go_test::Output::default();
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
fn distinct(found: Vec<SuiteProblem>) -> Vec<Problem> {
    type Key = (Option<String>, Option<u32>, Option<String>, String);
    let key = |problem: &Problem| -> Key {
        (problem.file.clone(), problem.line, problem.code.clone(), problem.message.clone())
    };
    let mut suites: BTreeMap<Key, Vec<Rc<Label>>> = BTreeMap::new();
    for SuiteProblem { problem, suite } in &found {
        let labels = suites.entry(key(problem)).or_default();
        labels.extend(suite.clone().filter(|suite| labels.last() != Some(suite)));
    }
    let named = |SuiteProblem { problem, suite }: SuiteProblem| {
        let (Some(labels), Some(suite)) = (suites.get(&key(&problem)), suite) else { return problem };
        let Some(other) = labels.iter().find(|label| **label != suite) else { return problem };
        let prefix = if other.path == suite.path { &suite.host } else { &suite.path };
        let code = problem.code.as_deref().unwrap_or_default();
        let code = if prefix.is_empty() { code.to_owned() } else { format!("{prefix}::{code}") };
        Problem { code: Some(code), ..problem }
    };
    found.into_iter().map(named).collect()
}
