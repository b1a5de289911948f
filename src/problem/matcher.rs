//! Problem matchers: regular expressions that find problems in lines of text, as data in GitHub's
//! form.
//!
//! ```json
//! {"problemMatcher": [{"owner": "tsc", "commands": ["tsc"], "pattern": [
//!   {"regexp": "^(\\S.*)\\((\\d+),(\\d+)\\): (error|warning) (TS\\d+): (.*)$",
//!    "file": 1, "line": 2, "column": 3, "severity": 4, "code": 5, "message": 6}]}]}
//! ```
//!
//! Several patterns match lines that follow each other; with `loop` the last one matches any number
//! of them. `commands` and `background` are additions: which command lines a matcher is for, and
//! how a tool that goes on says that it begins and ends to look. Of VS Code's model `background`
//! has `activeOnStart`, `beginsPattern` and `endsPattern`.
//!
//! Source: <https://github.com/actions/toolkit/blob/main/docs/problem-matchers.md>, and VS Code's
//! documentation of tasks.

mod spec;
#[cfg(test)]
mod tests;

use regex::{Captures, Regex};

pub use self::spec::{FILE_BYTES_MAX, MatcherError, Matchers};
use super::{Level, Problem};

/// One place of a pattern: the regular expression, and which group has what.
#[derive(Debug, Clone)]
struct Pattern {
    regexp: Regex,
    groups: Groups,
    is_loop: bool,
}

/// Which group of a match has what; 0 for what it does not have.
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

/// When a tool that goes on begins and ends to look.
#[derive(Debug, Clone)]
pub struct Background {
    /// Whether it looks as soon as it runs.
    pub is_active_on_start: bool,
    begins: Vec<Regex>,
    ends: Vec<Regex>,
}

impl Background {
    /// Whether the tool says with this line that it begins.
    pub fn begins(&self, line: &str) -> bool {
        self.begins.iter().any(|regexp| regexp.is_match(line))
    }

    /// Whether the tool says with this line that it has ended.
    pub fn ends(&self, line: &str) -> bool {
        self.ends.iter().any(|regexp| regexp.is_match(line))
    }
}

/// One matcher amid its lines.
#[derive(Debug, Clone)]
pub struct Matcher {
    /// The tool whose problems these are.
    pub owner: String,
    /// How the tool says that it begins and ends, if it does.
    pub background: Option<Background>,
    severity: Level,
    patterns: Vec<Pattern>,
    /// How many patterns have matched, and what they gave.
    matched: usize,
    draft: Draft,
}

/// What lines have given of a problem.
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
    /// Takes the next line; gives the problem that it ends.
    pub fn line(&mut self, line: &str) -> Option<Problem> {
        if self.matched > 0 {
            if self.step(line) {
                return self.complete();
            }
            (self.matched, self.draft) = (0, Draft::default());
        }
        if self.step(line) { self.complete() } else { None }
    }

    /// Whether the pattern whose turn it is matches.
    fn step(&mut self, line: &str) -> bool {
        let Some(pattern) = self.patterns.get(self.matched) else { return false };
        let Some(captures) = pattern.regexp.captures(line) else { return false };
        self.draft.take(&captures, &pattern.groups);
        self.matched += 1;
        true
    }

    /// The problem, if the last pattern has matched; a loop goes on with it.
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
