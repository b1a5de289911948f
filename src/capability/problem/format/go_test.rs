//! Lines of `go test -json`. Source: `go doc test2json`, `go help buildjson`.

use std::collections::{BTreeMap, BTreeSet};

use engine::hash::hash_parts;
use serde::Deserialize;

use super::go_output::{Finding, Mark, Output};
use crate::capability::problem::{Level, Problem, trace};

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
            && let Some(problem) = placed(text).filter(|problem| problem.column.is_some())
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
        if let Some(problem) = placed(text) {
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
        Some(bare(None, message))
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
            let problem = bare(None, message.unwrap_or_default());
            let (file, line) = place.map_or((None, None), |place| (Some(place.file), place.line));
            return Some(Problem { file, line, ..problem });
        }
        let last = |(_, output): &(String, Output)| output.last_line().map(str::to_owned);
        let test = running.iter().find(|(test, output)| !test.is_empty() && output.last_line().is_some());
        let code = test.map(|(test, _)| test.clone());
        let reason = test.and_then(last).or_else(|| own.and_then(last));
        let message = reason
            .map_or_else(|| format!("{package} failed"), |reason| format!("{package} failed: {reason}"));
        Some(bare(code, message))
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
        Problem { file, line, ..bare(Some(code), message) }
    }

    fn remember(&mut self, name: String) {
        if self.failed.len() < OPEN_MAX {
            self.failed.insert(name);
        }
    }
}

fn bare(code: Option<String>, message: String) -> Problem {
    Problem { file: None, line: None, column: None, severity: Level::Error, code, message }
}

/// Parses `file.go:line: message` and `file.go:line:column: message`.
fn placed(output: &str) -> Option<Problem> {
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
