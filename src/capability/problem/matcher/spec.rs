//! Files of problem matchers, and the matchers for a command line.

use std::sync::LazyLock;

use engine::nearest::{clause, nearest};
use serde::Deserialize;

use super::{Background, Groups, Heading, Matcher, Pattern, regexp::Regexp};
use crate::capability::problem::Level;

/// Largest file of matchers, in bytes.
pub const FILE_BYTES_MAX: usize = 256 * 1024;
/// Most patterns of one matcher, and so most lines of a problem.
const PATTERNS_MAX: usize = 8;
/// Most lines that a pattern may skip.
const SKIP_MAX: usize = 200;
/// Most words that may precede the tool in a command line, such as `npx` or `uv run`.
const WORDS_BEFORE_MAX: usize = 6;
/// The built-in matchers.
const SHIPPED: &str = include_str!("../../../../config/matchers.json");

/// An error in a file of matchers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}: {}{}{message}",
    position.map(|(line, column)| format!("{line}:{column}: ")).unwrap_or_default(),
    if field.is_empty() { String::new() } else { format!("{field}: ") }
)]
pub struct MatcherError {
    /// The file, as it was named.
    pub file: String,
    /// Line and column, from 1, if the text does not have the required form.
    pub position: Option<(usize, usize)>,
    /// The path of the field; empty if the error concerns none.
    pub field: String,
    /// The error.
    pub message: String,
}

/// Matchers in the form of the file.
#[derive(Debug, Clone, Default)]
pub struct Matchers {
    specs: Vec<Spec>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "$schema", default)]
    _schema: Option<String>,
    #[serde(rename = "problemMatcher")]
    problem_matcher: Vec<Spec>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    owner: String,
    #[serde(default)]
    commands: Vec<String>,
    severity: Option<String>,
    fallback: Option<String>,
    heading: Option<HeadingSpec>,
    pattern: Vec<PatternSpec>,
    background: Option<BackgroundSpec>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadingSpec {
    regexp: String,
    file: usize,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct PatternSpec {
    regexp: String,
    #[serde(default)]
    file: usize,
    #[serde(default)]
    from_path: usize,
    #[serde(default)]
    line: usize,
    #[serde(default)]
    column: usize,
    #[serde(default, rename = "endLine")]
    _end_line: usize,
    #[serde(default, rename = "endColumn")]
    _end_column: usize,
    #[serde(default)]
    severity: usize,
    #[serde(default)]
    code: usize,
    #[serde(default)]
    message: usize,
    #[serde(default, rename = "loop")]
    is_loop: bool,
    #[serde(default)]
    skip: usize,
    #[serde(default, rename = "optional")]
    is_optional: bool,
    #[serde(default, rename = "frames")]
    is_frame: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct BackgroundSpec {
    #[serde(default)]
    active_on_start: bool,
    #[serde(default)]
    begins_pattern: Vec<String>,
    #[serde(default)]
    ends_pattern: Vec<String>,
}

impl Matchers {
    /// The built-in matchers.
    pub fn shipped() -> &'static Self {
        static READ: LazyLock<Matchers> =
            LazyLock::new(|| Matchers::parse("matchers.json", SHIPPED).expect("what ships is tested"));
        &READ
    }

    /// Parses a file, and compiles every regular expression once, so that errors are found here.
    ///
    /// Errors: the first error, with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, MatcherError> {
        let error = |position, field: &str, message: String| MatcherError {
            file: file.to_owned(),
            position,
            field: field.to_owned(),
            message,
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        if text.len() > FILE_BYTES_MAX {
            return Err(error(None, "", format!("larger than {FILE_BYTES_MAX} bytes")));
        }
        let mut json = serde_json::Deserializer::from_str(text);
        let parsed: File = serde_path_to_error::deserialize(&mut json).map_err(|wrong| {
            let (at, json) = (wrong.path().to_string(), wrong.into_inner());
            let field = if matches!(at.as_str(), "." | "?") { "" } else { &at };
            error(Some((json.line(), json.column())), field, with_nearest(&json.to_string()))
        })?;
        json.end()
            .map_err(|wrong| error(Some((wrong.line(), wrong.column())), "", "text after the end".into()))?;
        for (number, spec) in parsed.problem_matcher.iter().enumerate() {
            spec.compile().map_err(|(field, message)| {
                error(None, &format!("problemMatcher[{number}].{field}"), message)
            })?;
        }
        Ok(Self { specs: parsed.problem_matcher })
    }

    /// The matchers of one owner, ready for lines.
    ///
    /// Errors: there is no such owner; contains the most similar one, if one is similar.
    pub fn named(&self, name: &str) -> Result<Vec<Matcher>, Option<String>> {
        let found: Vec<Matcher> = self
            .specs
            .iter()
            .filter(|spec| spec.owner == name)
            .filter_map(|spec| spec.compile().ok())
            .collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(nearest(name, self.owners()).map(str::to_owned)),
        }
    }

    /// All matchers, ready for lines.
    pub fn all(&self) -> Vec<Matcher> {
        self.specs.iter().filter_map(|spec| spec.compile().ok()).collect()
    }

    /// The matchers for a command line, in the order of the file.
    pub fn of_command(&self, words: &[String]) -> Vec<Matcher> {
        let words = spoken(words);
        let fits = |spec: &&Spec| spec.commands.iter().any(|command| is_command(command, &words));
        self.specs.iter().filter(fits).filter_map(|spec| spec.compile().ok()).collect()
    }

    /// The names of the tools, once each, in the order of the file.
    pub fn owners(&self) -> impl Iterator<Item = &str> {
        let is_first = |(number, spec): &(usize, &Spec)| {
            self.specs.iter().take(*number).all(|earlier| earlier.owner != spec.owner)
        };
        self.specs.iter().enumerate().filter(is_first).map(|(_, spec)| spec.owner.as_str())
    }

    /// The concatenation of these matchers and those of `other`.
    pub fn followed_by(mut self, other: &Self) -> Self {
        self.specs.extend(other.specs.iter().cloned());
        self
    }
}

/// The words of a command line, without the paths of programs; a shell script in it is split into
/// words.
fn spoken(words: &[String]) -> Vec<&str> {
    let is_script =
        |index: usize| index > 0 && words.get(index - 1).is_some_and(|word| word == "-c" || word == "-lc");
    let split = |(index, word): (usize, &'_ String)| -> bool { is_script(index) && word.contains(' ') };
    let mut spoken = Vec::new();
    for (index, word) in words.iter().enumerate() {
        match split((index, word)) {
            true => spoken.extend(
                word.split([' ', '\n', '\t', ';', '&', '|', '(', ')']).filter(|word| !word.is_empty()),
            ),
            false => spoken.push(word.as_str()),
        }
    }
    spoken
}

/// Whether the words contain the tool of `command`, such as `cargo build|check`; options between
/// its words are skipped.
fn is_command(command: &str, words: &[&str]) -> bool {
    let mut parts = command.split_whitespace();
    let Some(program) = parts.next() else { return false };
    let is_program = |word: &str| word.rsplit('/').next() == Some(program);
    let scripts = words.len() > WORDS_BEFORE_MAX && words.contains(&"-c");
    let before = if scripts { words.len() } else { WORDS_BEFORE_MAX };
    let parts: Vec<&str> = parts.collect();
    words.iter().enumerate().take(before).filter(|(_, word)| is_program(word)).any(|(index, _)| {
        let rest =
            words.iter().skip(index + 1).filter(|word| !word.starts_with(['-', '+']) || parts.contains(word));
        let mut rest = rest.take(parts.len().max(1));
        parts.iter().all(|part| rest.next().is_some_and(|word| part.split('|').any(|one| one == *word)))
    })
}

impl Spec {
    /// Errors: the field, and the error in it.
    fn compile(&self) -> Result<Matcher, (String, String)> {
        let fail = |field: &str, message: &str| Err((field.to_owned(), message.to_owned()));
        if self.owner.is_empty() || self.owner == "none" {
            return fail("owner", "a name other than `none` is needed");
        }
        if self.pattern.is_empty() || self.pattern.len() > PATTERNS_MAX {
            return fail("pattern", &format!("1 to {PATTERNS_MAX} patterns are allowed"));
        }
        if self.fallback.is_none() && self.pattern.iter().all(|pattern| pattern.message == 0) {
            return fail("pattern", "no pattern has a `message`");
        }
        let severity = match self.severity.as_deref() {
            None => Level::Error,
            Some(word) => match Level::of_word(word) {
                Some(level) => level,
                None => return fail("severity", &format!("{word:?} is not one of error, warning, info")),
            },
        };
        let mut patterns = Vec::new();
        for (number, pattern) in self.pattern.iter().enumerate() {
            let at = |field: &str| format!("pattern[{number}].{field}");
            patterns.push(pattern.compile().map_err(|(field, message)| (at(&field), message))?);
            if pattern.is_loop && number + 1 < self.pattern.len() {
                return fail(&at("loop"), "only the last pattern can be a loop");
            }
            if pattern.skip > SKIP_MAX {
                return fail(&at("skip"), &format!("at most {SKIP_MAX} lines are allowed"));
            }
            if number == 0 && pattern.skip > 0 {
                return fail(&at("skip"), "the first pattern follows no line");
            }
            if pattern.is_optional && (number == 0 || pattern.is_loop) {
                return fail(&at("optional"), "the first pattern and a loop are needed");
            }
            if pattern.is_frame && (number > 0 || pattern.file == 0 || self.pattern.len() == 1) {
                return fail(&at("frames"), "only the first of several patterns, with a `file`, can have it");
            }
        }
        let heading = self.heading.as_ref().map(HeadingSpec::compile).transpose()?;
        let background = self.background.as_ref().map(BackgroundSpec::compile).transpose()?;
        let (owner, fallback) = (self.owner.clone(), self.fallback.clone());
        Ok(Matcher {
            owner,
            background,
            severity,
            fallback,
            heading,
            patterns,
            state: super::State::default(),
        })
    }
}

impl PatternSpec {
    fn compile(&self) -> Result<Pattern, (String, String)> {
        let regexp = Regexp::new(&self.regexp).map_err(|message| ("regexp".to_owned(), message))?;
        let groups = regexp.groups();
        for (name, group) in [
            ("file", self.file),
            ("fromPath", self.from_path),
            ("line", self.line),
            ("column", self.column),
            ("severity", self.severity),
            ("code", self.code),
            ("message", self.message),
        ] {
            if group > groups {
                return Err((name.to_owned(), format!("group {group} of a regexp that has {groups}")));
            }
        }
        let Self { file, from_path, line, column, severity, code, message, .. } = *self;
        let groups = Groups { file, from_path, line, column, severity, code, message };
        let (is_loop, skip, is_optional) = (self.is_loop, self.skip, self.is_optional);
        Ok(Pattern { regexp, groups, is_loop, skip, is_optional, is_frame: self.is_frame })
    }
}

impl HeadingSpec {
    fn compile(&self) -> Result<Heading, (String, String)> {
        let at = |field: &str, message: String| (format!("heading.{field}"), message);
        let regexp = Regexp::new(&self.regexp).map_err(|message| at("regexp", message))?;
        let groups = regexp.groups();
        if self.file == 0 || self.file > groups {
            return Err(at("file", format!("group {} of a regexp that has {groups}", self.file)));
        }
        Ok(Heading { regexp, file: self.file })
    }
}

impl BackgroundSpec {
    fn compile(&self) -> Result<Background, (String, String)> {
        let all = |name: &str, texts: &[String]| {
            let one = |(number, text): (usize, &String)| {
                Regexp::new(text).map_err(|message| (format!("background.{name}[{number}]"), message))
            };
            texts.iter().enumerate().map(one).collect::<Result<Vec<_>, _>>()
        };
        Ok(Background {
            is_active_on_start: self.active_on_start,
            begins: all("beginsPattern", &self.begins_pattern)?,
            ends: all("endsPattern", &self.ends_pattern)?,
        })
    }
}

/// An error of serde about an unknown field, with only the most similar field instead of the list
/// of all.
fn with_nearest(text: &str) -> String {
    let text = text.rsplit_once(" at line ").map_or(text, |(before, _)| before);
    let mut words = text.split('`').skip(1).step_by(2);
    match (text.starts_with("unknown field"), words.next()) {
        (true, Some(word)) => {
            format!("unknown field `{word}`{}", clause(nearest(word, words)))
        }
        _ => text.to_owned(),
    }
}
