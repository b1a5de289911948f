//! Lines of `go test -json`. Source: `go doc test2json`.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::problem::{Level, Problem};

/// Most running tests with kept output; of further ones only the name is reported.
const OPEN_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Line {
    action: String,
    package: Option<String>,
    test: Option<String>,
    output: Option<String>,
}

/// The first message with a location of each running test.
#[derive(Debug, Clone, Default)]
pub struct GoTest {
    open: BTreeMap<(String, String), Problem>,
    /// The tests that failed because a subtest failed.
    parents: BTreeSet<(String, String)>,
}

impl GoTest {
    /// The problem that a line completes: a failed test, or a compiler error.
    pub fn line(&mut self, line: &str) -> Option<Problem> {
        let line = serde_json::from_str::<Line>(line).ok()?;
        let key = (line.package.unwrap_or_default(), line.test.clone().unwrap_or_default());
        match (line.action.as_str(), line.test) {
            ("build-output", _) | ("output", None) => {
                placed(line.output.as_deref()?).filter(|problem| problem.column.is_some())
            }
            ("output", Some(test)) => {
                let problem = placed(line.output.as_deref()?)?;
                if self.open.len() < OPEN_MAX {
                    self.open.entry(key).or_insert(Problem { code: Some(test), ..problem });
                }
                None
            }
            ("fail", Some(test)) => {
                let said = self.open.remove(&key);
                if let Some((parent, _)) = test.rsplit_once('/').filter(|_| self.parents.len() < OPEN_MAX) {
                    self.parents.insert((key.0.clone(), parent.to_owned()));
                }
                let is_parent = self.parents.remove(&key);
                let nameless = || Problem {
                    file: None,
                    line: None,
                    column: None,
                    severity: Level::Error,
                    code: Some(test),
                    message: format!("a test of {} failed", key.0),
                };
                said.or_else(|| (!is_parent).then(nameless))
            }
            ("pass" | "skip", _) => {
                self.open.remove(&key);
                None
            }
            _ => None,
        }
    }
}

/// Parses `file.go:line: message` and `file.go:line:column: message`.
fn placed(output: &str) -> Option<Problem> {
    let output = output.trim().trim_start_matches("vet: ");
    let (file, rest) = output.split_once(".go:")?;
    let (line, rest) = rest.split_once(':')?;
    let line = line.parse().ok()?;
    let column = rest.split_once(':').and_then(|(column, rest)| Some((column.parse().ok()?, rest)));
    let (column, message) = column.map_or((None, rest), |(column, rest)| (Some(column), rest));
    let is_place = !file.contains(char::is_whitespace) && !message.trim().is_empty();
    is_place.then(|| Problem {
        file: Some(format!("{file}.go")),
        line: Some(line),
        column,
        severity: Level::Error,
        code: None,
        message: message.trim().to_owned(),
    })
}
