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
//! Additions: `commands`, the command lines that a matcher is for; `background`, the lines with which
//! a long-running tool announces the beginning and end of a round (of VS Code's model, with
//! `activeOnStart`, `beginsPattern` and `endsPattern`); `heading`, a line whose file holds for the
//! problems below it; `skip`, the number of other lines that may come before the line of a pattern;
//! `optional` for a pattern whose line may be absent; `frames` for a first pattern whose lines are the
//! frames of a stack, of which the last one in a file of the user counts; `fallback`, the message if
//! no group has one.
//!
//! Source: <https://github.com/actions/toolkit/blob/main/docs/problem-matchers.md>, and VS Code's
//! documentation of tasks.

mod regexp;
mod spec;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod variants;

use regex::Captures;

use self::regexp::Regexp;
pub use self::spec::{FILE_BYTES_MAX, MatcherError, Matchers};
use super::{Level, Problem, trace};

/// One pattern: the regular expression, and its groups.
#[derive(Debug, Clone)]
struct Pattern {
    regexp: Regexp,
    groups: Groups,
    is_loop: bool,
    /// Number of other lines that may come before its line.
    skip: usize,
    is_optional: bool,
    /// Whether its lines are the frames of a stack.
    is_frame: bool,
}

impl Pattern {
    /// Whether the line names a file of a library.
    fn is_foreign(&self, line: &str) -> bool {
        let file = self.regexp.captures(line).and_then(|captures| captures.get(self.groups.file));
        self.groups.file > 0 && file.is_some_and(|file| trace::is_foreign(file.as_str()))
    }
}

/// A line whose file holds for the problems below it.
#[derive(Debug, Clone)]
struct Heading {
    regexp: Regexp,
    /// The number of the group.
    file: usize,
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
    begins: Vec<Regexp>,
    ends: Vec<Regexp>,
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
    fallback: Option<String>,
    heading: Option<Heading>,
    patterns: Vec<Pattern>,
    state: State,
}

#[derive(Debug, Clone, Default)]
struct State {
    /// The file of the last heading.
    file: Option<String>,
    /// Number of patterns matched or left out so far.
    matched: usize,
    /// Number of lines since the last matched one.
    skipped: usize,
    draft: Draft,
    /// The fields of the patterns before a loop.
    base: Option<Draft>,
}

/// What a line gives.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// The problem before it, which it ends because an optional line is absent.
    pub ended: Option<Problem>,
    /// The problem whose last line it is.
    pub found: Option<Problem>,
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
        let Read { ended, found } = self.read(line);
        found.or(ended)
    }

    /// Takes the next line.
    pub fn read(&mut self, line: &str) -> Read {
        if let Some(heading) = &self.heading
            && let Some(captures) = heading.regexp.captures(line)
        {
            let file = captures.get(heading.file).map(|file| file.as_str().to_owned());
            let ended = self.finish();
            self.state.file = file;
            return Read { ended, found: None };
        }
        if self.state.matched > 0 && self.next(line) {
            return Read { ended: None, found: self.complete() };
        }
        if self.state.matched > 0
            && self.patterns.first().is_some_and(|first| first.is_frame && first.is_foreign(line))
        {
            self.state.skipped = 0;
            return Read::default();
        }
        let is_first = self.patterns.first().is_some_and(|first| first.regexp.is_match(line));
        let skip = self.patterns.get(self.state.matched).map_or(0, |pattern| pattern.skip);
        if !is_first && self.state.matched > 0 && self.state.skipped < skip {
            self.state.skipped += 1;
            return Read::default();
        }
        let ended = self.finish();
        let found = if self.step(0, line) { self.complete() } else { None };
        Read { ended, found }
    }

    /// Takes the end of the output, or a pause in it: returns the problem that only lacks optional
    /// lines.
    pub fn finish(&mut self) -> Option<Problem> {
        let file = self.state.file.clone();
        let State { matched, draft, .. } =
            std::mem::replace(&mut self.state, State { file, ..State::default() });
        let is_whole = self.patterns.iter().skip(matched).all(|pattern| pattern.is_optional);
        if matched > 0 && is_whole { self.problem(draft) } else { None }
    }

    /// Whether the line is that of the next pattern, or of one behind patterns that are optional.
    fn next(&mut self, line: &str) -> bool {
        for number in self.state.matched..self.patterns.len() {
            if self.step(number, line) {
                return true;
            }
            if self.patterns.get(number).is_none_or(|pattern| !pattern.is_optional) {
                break;
            }
        }
        false
    }

    /// Whether the pattern matches. Where lines are skipped, so are those about files of libraries.
    fn step(&mut self, number: usize, line: &str) -> bool {
        let Some(pattern) = self.patterns.get(number) else { return false };
        if pattern.skip > 0 && pattern.is_foreign(line) {
            return false;
        }
        let Some(captures) = pattern.regexp.captures(line) else { return false };
        if pattern.is_loop {
            let base = self.state.base.get_or_insert_with(|| self.state.draft.clone());
            self.state.draft = base.clone();
        }
        self.state.draft.take(&captures, &pattern.groups);
        (self.state.matched, self.state.skipped) = (number + 1, 0);
        true
    }

    /// The problem, if the last pattern has matched; a loop then expects the same pattern again.
    fn complete(&mut self) -> Option<Problem> {
        if self.state.matched < self.patterns.len() {
            return None;
        }
        let is_loop = self.patterns.last().is_some_and(|last| last.is_loop);
        let draft = std::mem::take(&mut self.state.draft);
        self.state.matched = if is_loop { self.patterns.len() - 1 } else { 0 };
        if self.state.matched == 0 {
            self.state.base = None;
        }
        self.problem(draft)
    }

    fn problem(&self, mut draft: Draft) -> Option<Problem> {
        draft.file = draft.file.or_else(|| self.state.file.clone());
        draft.message = draft.message.or_else(|| self.fallback.clone());
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
