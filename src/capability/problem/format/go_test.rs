//! Lines of `go test -json`. Source: `go doc test2json`, `go help buildjson`.

use std::collections::{BTreeMap, BTreeSet};

use engine::hash::hash_parts;
use serde::Deserialize;

use crate::capability::problem::{
    Level, Problem,
    text::begin,
    trace::{self, Place},
};

/// Most running tests with kept output; of further ones only the name is reported. Also most
/// packages and builds that are remembered.
const OPEN_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    action: String,
    package: Option<String>,
    import_path: Option<String>,
    test: Option<String>,
    output: Option<String>,
    output_type: Option<String>,
    failed_build: Option<String>,
}

/// The output of each running test, package and build.
#[derive(Debug, Clone, Default)]
pub struct GoTest {
    /// By package and test; the test of a package itself is empty.
    open: BTreeMap<(String, String), Output>,
    /// The output of builds without a place.
    builds: BTreeMap<String, Output>,
    /// The tests that failed because a subtest failed.
    parents: BTreeSet<(String, String)>,
    /// The running builds with a problem that has a place.
    placed: BTreeSet<String>,
    /// The packages and builds with a problem.
    failed: BTreeSet<String>,
    /// The reported problems, each with its package.
    reported: BTreeMap<u64, String>,
}

impl GoTest {
    /// The problem that a line completes: a failed test, a failed package, or a compiler error.
    pub fn line(&mut self, line: &str) -> Option<Problem> {
        let line = serde_json::from_str::<Line>(line).ok()?;
        let package = line.package.unwrap_or_default();
        let mark = match line.output_type.as_deref() {
            Some("error") => Some(Mark::Error),
            Some("error-continue") => Some(Mark::ErrorContinue),
            Some("frame") => Some(Mark::Frame),
            Some(_) | None => None,
        };
        let output = || line.output.as_deref();
        match (line.action.as_str(), line.test) {
            ("build-output", _) => self.build_output(line.import_path.unwrap_or(package), output()?),
            ("build-fail", _) => self.build_fail(line.import_path.unwrap_or(package)),
            ("output", test) => self.output(package, test, output()?, mark),
            ("fail", Some(test)) => self.test_fail(package, test),
            ("fail", None) => self.package_fail(package, line.failed_build),
            ("pass" | "skip", test) => {
                self.open.remove(&(package, test.unwrap_or_default()));
                None
            }
            _ => None,
        }
    }

    fn output(
        &mut self,
        package: String,
        test: Option<String>,
        text: &str,
        mark: Option<Mark>,
    ) -> Option<Problem> {
        // Before go 1.24 errors of the compiler were output of the package.
        if test.is_none()
            && let Some(problem) = placed_problem(text).filter(|problem| problem.column.is_some())
        {
            self.remember(package);
            return Some(problem);
        }
        let key = (package, test.unwrap_or_default());
        if self.open.len() < OPEN_MAX || self.open.contains_key(&key) {
            self.open.entry(key).or_default().line(text, mark);
        }
        None
    }

    fn build_output(&mut self, build: String, text: &str) -> Option<Problem> {
        if let Some(problem) = placed_problem(text) {
            if self.placed.len() < OPEN_MAX {
                self.placed.insert(build);
            }
            return Some(problem);
        }
        if !text.starts_with("# ") && (self.builds.len() < OPEN_MAX || self.builds.contains_key(&build)) {
            self.builds.entry(build).or_default().line(text, None);
        }
        None
    }

    /// A build whose output has no place, such as that of the linker.
    fn build_fail(&mut self, build: String) -> Option<Problem> {
        let said = self.builds.remove(&build).and_then(Output::finish);
        self.remember(build.clone());
        if self.placed.remove(&build) {
            return None;
        }
        let message =
            said.and_then(|said| said.message).unwrap_or_else(|| format!("the build of {build} failed"));
        Some(Problem::at(None, Level::Error, None, message))
    }

    fn test_fail(&mut self, package: String, test: String) -> Option<Problem> {
        let key = (package, test);
        let output = self.open.remove(&key).unwrap_or_default();
        if let Some((parent, _)) = key.1.rsplit_once('/').filter(|_| self.parents.len() < OPEN_MAX) {
            self.parents.insert((key.0.clone(), parent.to_owned()));
        }
        let is_parent = self.parents.remove(&key);
        let (package, test) = key;
        self.remember(package.clone());
        // The logs of a test do not say why a subtest failed.
        if is_parent && !output.has_reason() {
            return None;
        }
        Some(self.report(package, test, output.finish()))
    }

    /// A package that failed for another reason than its tests: its build, `TestMain`, `os.Exit`, a
    /// timeout.
    fn package_fail(&mut self, package: String, build: Option<String>) -> Option<Problem> {
        let of_package = |(key, _): &(&(String, String), &Output)| key.0 == package;
        let open: Vec<_> = self.open.iter().filter(of_package).map(|(key, _)| key.clone()).collect();
        let running: Vec<(String, Output)> =
            open.iter().filter_map(|key| Some((key.1.clone(), self.open.remove(key)?))).collect();
        let is_known =
            build.is_some_and(|build| self.failed.contains(&build)) || self.failed.remove(&package);
        // The test that panicked has ended the program, so nothing says that it failed.
        let panicked = running.iter().position(|(test, output)| !test.is_empty() && output.has_panic());
        if let Some((test, output)) = panicked.and_then(|at| running.get(at)) {
            return Some(self.report(package, test.clone(), output.clone().finish()));
        }
        if is_known {
            return None;
        }
        let own = running.iter().find(|(test, _)| test.is_empty());
        let panic =
            own.filter(|(_, output)| output.has_panic()).and_then(|(_, output)| output.clone().finish());
        if let Some(Finding { place, message }) = panic {
            let problem = Problem::at(None, Level::Error, None, message.unwrap_or_default());
            let (file, line) = place.map_or((None, None), |place| (Some(place.file), place.line));
            return Some(Problem { file, line, ..problem });
        }
        let last = |(_, output): &(String, Output)| output.last_line().map(str::to_owned);
        let test = running.iter().find(|(test, output)| !test.is_empty() && output.last_line().is_some());
        let code = test.map(|(test, _)| test.clone());
        let reason = test.and_then(last).or_else(|| own.and_then(last));
        let message = reason
            .map_or_else(|| format!("{package} failed"), |reason| format!("{package} failed: {reason}"));
        Some(Problem::at(None, Level::Error, code, message))
    }

    /// The problem of a failed test; the code has the package, if a test of another package failed
    /// in the same way.
    fn report(&mut self, package: String, test: String, finding: Option<Finding>) -> Problem {
        let Finding { place, message } = finding.unwrap_or_default();
        let message = message.unwrap_or_else(|| format!("a test of {package} failed"));
        let (file, line) = place.map_or((None, None), |place| (Some(place.file), place.line));
        let number = line.unwrap_or(0).to_string();
        let key = hash_parts(&[file.as_deref().unwrap_or_default(), &number, &test, &message]);
        let is_other = self.reported.get(&key).is_some_and(|other| *other != package);
        let code = if is_other { format!("{package}.{test}") } else { test };
        if self.reported.len() < OPEN_MAX {
            self.reported.entry(key).or_insert(package);
        }
        Problem { file, line, ..Problem::at(None, Level::Error, Some(code), message) }
    }

    fn remember(&mut self, name: String) {
        if self.failed.len() < OPEN_MAX {
            self.failed.insert(name);
        }
    }
}

/// Parses `file.go:line: message` and `file.go:line:column: message`.
fn placed_problem(output: &str) -> Option<Problem> {
    let output = output.trim().trim_start_matches("vet: ");
    let (file, rest) = output.split_once(".go:")?;
    let (line, rest) = rest.split_once(':')?;
    let line = line.parse().ok()?;
    let column = rest.split_once(':').and_then(|(column, rest)| Some((column.parse().ok()?, rest)));
    let (column, message) = column.map_or((None, rest), |(column, rest)| (Some(column), rest));
    let message = message.trim();
    let is_place = !file.contains(char::is_whitespace) && !message.is_empty() && !trace::is_empty(message);
    is_place.then(|| Problem {
        file: Some(format!("{file}.go")),
        line: Some(line),
        column,
        severity: Level::Error,
        code: None,
        message: message.to_owned(),
    })
}

/// Most texts of one test that are kept.
const TEXTS_MAX: usize = 3;
/// Most bytes of a text.
const TEXT_BYTES_MAX: usize = 1_024;

/// What is known of a failed test.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) place: Option<Place>,
    /// The reason; `None` if it printed none.
    pub(super) message: Option<String>,
}

/// Whether go marked a line as one of an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    Error,
    ErrorContinue,
    /// A line of the framework.
    Frame,
}

/// The lines so far, as far as they are needed.
#[derive(Debug, Clone, Default)]
pub(super) struct Output {
    /// Texts of lines that go marked as errors.
    errors: Vec<Text>,
    /// Texts that state a reason.
    reasons: Vec<Text>,
    /// The last text with a place.
    last: Option<Text>,
    /// The panic, or the race.
    panic: Option<Text>,
    /// The first lines without a place.
    loose: Vec<String>,
    /// The last line without a place.
    loose_last: Option<String>,
    current: Current,
    /// Whether the previous line of a stack was a function of the library.
    is_library: bool,
}

/// The text that further lines belong to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Current {
    #[default]
    None,
    Error,
    Placed,
    Panic,
}

#[derive(Debug, Clone, Default)]
struct Text {
    place: Option<Place>,
    message: String,
}

impl Text {
    fn push(&mut self, line: &str) {
        if self.message.len() + line.len() < TEXT_BYTES_MAX {
            let space = if self.message.is_empty() || line.is_empty() { "" } else { " " };
            self.message.push_str(space);
            self.message.push_str(line);
        }
    }

    fn new(place: Option<Place>, line: &str) -> Self {
        Self { place, message: begin(line, TEXT_BYTES_MAX).trim().to_owned() }
    }
}

impl Output {
    /// Takes a line, without its end.
    pub(super) fn line(&mut self, line: &str, mark: Option<Mark>) {
        let line = line.trim_end_matches(['\n', '\r']);
        if mark == Some(Mark::Frame) || is_frame(line) {
            self.end_text();
            return;
        }
        if self.panic_line(line) {
            return;
        }
        match (mark, placed(line)) {
            (Some(Mark::ErrorContinue), _) => self.continued(line),
            (Some(Mark::Error), found) => {
                self.end_text();
                let text =
                    found.map_or_else(|| Text::new(None, line), |(place, text)| Text::new(Some(place), text));
                if self.errors.len() < TEXTS_MAX {
                    self.errors.push(text);
                    self.current = Current::Error;
                }
            }
            (Some(Mark::Frame) | None, Some((place, text))) => {
                self.end_text();
                self.last = Some(Text::new(Some(place), text));
                self.current = Current::Placed;
            }
            (Some(Mark::Frame) | None, None) => {
                if self.current != Current::None && line.starts_with(['\t', ' ']) {
                    self.continued(line);
                } else {
                    self.end_text();
                    self.loose(line);
                }
            }
        }
    }

    /// Whether there is more than logs.
    pub(super) fn has_reason(&self) -> bool {
        !self.errors.is_empty() || !self.reasons.is_empty() || self.panic.is_some()
    }

    pub(super) fn has_panic(&self) -> bool {
        self.panic.is_some()
    }

    /// What the test printed; `None` if it is nothing.
    pub(super) fn finish(mut self) -> Option<Finding> {
        self.end_text();
        if let Some(mut panic) = self.panic {
            panic.place = panic.place.filter(|place| !trace::is_foreign(&place.file));
            return Some(Finding { place: panic.place, message: Some(panic.message) });
        }
        let texts = match (self.errors.is_empty(), self.reasons.is_empty()) {
            (false, _) => self.errors,
            (true, false) => self.reasons,
            (true, true) => self.last.into_iter().collect(),
        };
        let own = |place: &Place| !place.file.starts_with("testing.go");
        let place = texts.iter().find_map(|text| text.place.clone().filter(own));
        let said: Vec<&str> =
            texts.iter().map(|text| text.message.as_str()).filter(|text| !text.is_empty()).collect();
        let message = match said.is_empty() {
            false => Some(said.join("; ")),
            true if !self.loose.is_empty() => Some(self.loose.join(" ")),
            true => None,
        };
        (place.is_some() || message.is_some()).then_some(Finding { place, message })
    }

    /// The last line without a place, for a program that ended without a failed test.
    pub(super) fn last_line(&self) -> Option<&str> {
        self.loose_last.as_deref()
    }

    /// Takes a line of a panic or a race; returns whether it is one.
    fn panic_line(&mut self, line: &str) -> bool {
        let begin = line.trim_start();
        // A suite of testify prints the panic of its test as an error.
        let in_suite = || placed(line)?.1.strip_prefix("test panicked: ");
        let panic = begin.strip_prefix("panic: ").or_else(|| line.strip_prefix("fatal error: "));
        let panic = panic.or_else(in_suite);
        if let Some(text) = panic {
            self.end_text();
            let text = text.split(" [recovered").next().unwrap_or(text);
            if self.panic.is_none() {
                self.panic = Some(Text::new(None, text));
            }
            self.current = Current::Panic;
            return true;
        }
        if begin == "WARNING: DATA RACE" {
            self.end_text();
            self.panic = self.panic.take().or_else(|| Some(Text::new(None, "data race")));
            self.current = Current::Panic;
            return true;
        }
        if self.current != Current::Panic {
            return false;
        }
        if let Some(place) = frame(line) {
            let is_own = !self.is_library && !trace::is_foreign(&place.file);
            if let Some(panic) = self.panic.as_mut().filter(|panic| panic.place.is_none() && is_own) {
                panic.place = Some(place);
            }
        } else {
            let is_library = |begin: &&str| line.trim_start().starts_with(*begin);
            self.is_library = ["testing.", "runtime.", "panic(", "created by "].iter().any(is_library);
        }
        // The dump of a panic goes on to the end of the test.
        placed(line).is_none()
    }

    fn continued(&mut self, line: &str) {
        let text = match self.current {
            Current::Error => self.errors.last_mut(),
            Current::Placed => self.last.as_mut(),
            Current::Panic | Current::None => None,
        };
        if let Some(text) = text {
            text.push(line.trim());
        }
    }

    fn loose(&mut self, line: &str) {
        let line = line.trim();
        if line.is_empty() || trace::is_empty(line) {
            return;
        }
        let text = Text::new(None, line).message;
        if self.loose.len() < TEXTS_MAX + 1 {
            self.loose.push(text.clone());
        }
        self.loose_last = Some(text);
    }

    /// Ends the text that further lines belonged to.
    fn end_text(&mut self) {
        match self.current {
            Current::Error => {
                if let Some(text) = self.errors.last_mut() {
                    text.message = plain(&text.message);
                }
            }
            Current::Placed => {
                if let Some(text) = &mut self.last {
                    let is_table = is_table(&text.message);
                    text.message = plain(&text.message);
                    if self.reasons.len() < TEXTS_MAX && (is_table || trace::is_reason(&text.message)) {
                        self.reasons.push(text.clone());
                    }
                }
            }
            Current::Panic | Current::None => {}
        }
        self.current = Current::None;
    }
}

/// Whether a text is a table of testify.
fn is_table(text: &str) -> bool {
    text.starts_with("Error Trace:") || text.starts_with("Error:")
}

/// The reason in a table of testify: its `Error` and its `Messages`.
fn plain(text: &str) -> String {
    if !is_table(text) {
        return text.to_owned();
    }
    let (_, error) = text.split_once("Error:").unwrap_or(("", text));
    let (error, rest) = error.split_once(" Test:").unwrap_or((error, ""));
    let messages = rest.split_once("Messages:").or_else(|| error.split_once(" Messages:"));
    let error = error.split(" Messages:").next().unwrap_or(error);
    let error = words(error.split(" Diff:").next().unwrap_or(error));
    match messages {
        Some((_, messages)) => format!("{error}; {}", words(messages)),
        None => error,
    }
}

/// The text with one space between its words.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether a line is one of the framework.
fn is_frame(line: &str) -> bool {
    let line = line.trim_start();
    [
        "=== ",
        "--- FAIL: ",
        "--- PASS: ",
        "--- SKIP: ",
        "--- BENCH: ",
        "FAIL\t",
        "ok  \t",
        "exit status ",
        "coverage: ",
    ]
    .iter()
    .any(|begin| line.starts_with(begin))
        || matches!(line, "FAIL" | "PASS")
}

/// Parses `    a_test.go:9: text`.
fn placed(line: &str) -> Option<(Place, &str)> {
    let (file, rest) = line.trim().split_once(".go:")?;
    let (number, text) = rest.split_once(':')?;
    let line = Some(number.parse().ok()?);
    let is_file = !file.is_empty() && !file.contains(char::is_whitespace);
    is_file.then(|| (Place { file: format!("{file}.go"), line, column: None }, text.trim()))
}

/// Parses the second line of a frame: a tab, `/w/b_test.go:7 +0x1d`.
fn frame(line: &str) -> Option<Place> {
    let line = line.strip_prefix(['\t', ' '])?.trim();
    let place = line.split(' ').next()?;
    let (file, number) = place.rsplit_once(':')?;
    let is_place = file.ends_with(".go");
    let number = number.parse().ok()?;
    is_place.then(|| Place { file: file.to_owned(), line: Some(number), column: None })
}
