//! Problem matchers: regular expressions that find problems in lines of text, as data in GitHub's
//! form.
//!
//! ```json
//! {"problemMatcher": [{"owner": "tsc", "commands": ["tsc"], "pattern": [
//!   {"regexp": "^(\\S.*)\\((\\d+),(\\d+)\\): (error|warning) (TS\\d+): (.*)$",
//!    "file": 1, "line": 2, "column": 3, "severity": 4, "code": 5, "message": 6}]}]}
//! ```
//!
//! Several patterns match consecutive lines; with `loop` the last one matches any number of lines.
//! `commands` and `background` are additions: the command lines that a matcher is for, and the
//! lines with which a long-running tool announces the beginning and end of a round. Of VS Code's
//! model, `background` has `activeOnStart`, `beginsPattern` and `endsPattern`.
//!
//! Source: <https://github.com/actions/toolkit/blob/main/docs/problem-matchers.md>, and VS Code's
//! documentation of tasks.

mod spec;
#[cfg(test)]
mod tests;

use regex::{Captures, Regex};

pub use self::spec::{FILE_BYTES_MAX, MatcherError, Matchers};
use super::{Level, Problem};

/// One pattern: the regular expression, and its groups.
#[derive(Debug, Clone)]
struct Pattern {
    regexp: Regex,
    groups: Groups,
    is_loop: bool,
}

/// The group number of each field; 0 for a field that the pattern does not have.
#[derive(Debug, Clone, Copy, Default)]
struct Groups {
    file: usize,
    from_path: usize,
    line: usize,
    column: usize,
    severity: usize,
    code: usize,
    message: usize,
}

/// The lines with which a long-running tool announces the beginning and end of a round.
#[derive(Debug, Clone)]
pub struct Background {
    /// Whether a round begins at the start of the tool.
    pub is_active_on_start: bool,
    begins: Vec<Regex>,
    ends: Vec<Regex>,
}

impl Background {
    /// Whether the line announces the beginning of a round.
    pub fn begins(&self, line: &str) -> bool {
        self.begins.iter().any(|regexp| regexp.is_match(line))
    }

    /// Whether the line announces the end of a round.
    pub fn ends(&self, line: &str) -> bool {
        self.ends.iter().any(|regexp| regexp.is_match(line))
    }
}

/// A matcher with its state between lines.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// The tool of the problems.
    pub owner: String,
    /// The announcements of rounds, if the tool has them.
    pub background: Option<Background>,
    severity: Level,
    patterns: Vec<Pattern>,
    /// Number of patterns matched so far.
    matched: usize,
    draft: Draft,
}

/// The fields of a problem that were read so far.
#[derive(Debug, Clone, Default)]
struct Draft {
    file: Option<String>,
    from_path: Option<String>,
    line: Option<u32>,
    column: Option<u32>,
    severity: Option<Level>,
    code: Option<String>,
    message: Option<String>,
}

impl Matcher {
    /// Takes the next line; returns the problem that it completes.
    pub fn line(&mut self, line: &str) -> Option<Problem> {
        if self.matched > 0 {
            if self.step(line) {
                return self.complete();
            }
            (self.matched, self.draft) = (0, Draft::default());
        }
        if self.step(line) { self.complete() } else { None }
    }

    /// Whether the next pattern matches.
    fn step(&mut self, line: &str) -> bool {
        let Some(pattern) = self.patterns.get(self.matched) else { return false };
        let Some(captures) = pattern.regexp.captures(line) else { return false };
        self.draft.take(&captures, &pattern.groups);
        self.matched += 1;
        true
    }

    /// The problem, if the last pattern has matched; a loop then expects the same pattern again.
    fn complete(&mut self) -> Option<Problem> {
        if self.matched < self.patterns.len() {
            return None;
        }
        let is_loop = self.patterns.last().is_some_and(|last| last.is_loop);
        let draft = if is_loop { self.draft.clone() } else { std::mem::take(&mut self.draft) };
        self.matched = if is_loop { self.patterns.len() - 1 } else { 0 };
        if is_loop {
            let (file, from_path) = (self.draft.file.take(), self.draft.from_path.take());
            self.draft = Draft { file, from_path, ..Draft::default() };
        }
        draft.problem(self.severity)
    }
}

impl Draft {
    fn take(&mut self, captures: &Captures<'_>, groups: &Groups) {
        let text = |group: usize| {
            let found = captures.get(group).filter(|_| group > 0)?;
            Some(found.as_str().trim()).filter(|text| !text.is_empty())
        };
        let number = |group| text(group).and_then(|text| text.parse().ok());
        let owned = |group| text(group).map(str::to_owned);
        self.file = owned(groups.file).or(self.file.take());
        self.from_path = owned(groups.from_path).or(self.from_path.take());
        self.line = number(groups.line).or(self.line);
        self.column = number(groups.column).or(self.column);
        self.severity = text(groups.severity).and_then(Level::of_word).or(self.severity);
        self.code = owned(groups.code).or(self.code.take());
        self.message = owned(groups.message).or(self.message.take());
    }

    fn problem(self, severity: Level) -> Option<Problem> {
        let folder = self.from_path.as_deref().and_then(|path| path.rsplit_once('/'));
        let file = match (self.file, folder) {
            (Some(file), Some((folder, _))) if !file.starts_with('/') => Some(format!("{folder}/{file}")),
            (file, _) => file,
        };
        Some(Problem {
            file,
            line: self.line,
            column: self.column,
            severity: self.severity.unwrap_or(severity),
            code: self.code,
            message: self.message?,
        })
    }
}
