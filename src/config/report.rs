//! The findings about the configuration: each with its place and a correction.
//!
//! A [`Diagnostic`] is plain data, so that a program can read it. Its text form is like a
//! compiler's message, with the line of the mistake. Nothing here decides what is wrong: the
//! readers of the files do.
//!
//! ```text
//! error: unknown key `typs`
//!  --> subscribers/ci.toml:5:1
//!   |
//! 5 | typs = ["ci.check.*"]
//!   | ^^^^ did you mean `types`?
//!   |
//!   = note: at `events.typs`
//!   = help: allowed are types, sources, severity_filter, where
//! ```

mod escaped;

use std::{fmt, ops::Range, sync::Arc};

use annotate_snippets::{AnnotationKind, Element, Group, Level as Label, Renderer, Snippet};
use engine::{
    event::clean_text,
    nearest::{clause, nearest},
};
use strum::IntoStaticStr;

use crate::config::{lint_name::LintName, text::Text};

/// Most characters of a file's text that a message repeats.
const SHOWN_CHARS_MAX: usize = 64;
/// Most characters of another error's sentence; enough for the longest event type twice.
const SENTENCE_CHARS_MAX: usize = 400;
/// Most findings that are shown; a file full of mistakes must not take minutes to report.
const FINDINGS_MAX: usize = 200;

/// The findings: errors before warnings.
///
/// Shape: all findings are counted, the first 200 are shown.
#[derive(Debug, Clone, Default)]
pub struct Report {
    diagnostics: Vec<Diagnostic>,
}

engine::words::impl_as_str!(Level);

/// Whether a finding makes something unusable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Level {
    /// The part that it concerns is not used.
    Error,
    /// The part is used unchanged, and is probably a mistake.
    Warning,
}

/// One finding.
#[derive(Debug, Clone)]
pub struct Diagnostic {
    /// Error or warning.
    pub level: Level,
    /// The lint that found it; `None` for a mistake.
    pub lint: Option<LintName>,
    /// Its place.
    pub place: Place,
    /// The path of the key, such as `events.types[1]`; empty if it concerns no key.
    pub key: String,
    /// The message, as one line.
    pub message: String,
    /// The allowed words, if they are few; empty otherwise.
    pub allowed: Vec<String>,
    /// The allowed word that is most similar to the found one.
    pub nearest: Option<String>,
    /// Further advice.
    pub note: Option<String>,
}

/// A range of a file.
#[derive(Clone)]
pub struct Place {
    /// The path of the file for display.
    pub file: Arc<str>,
    /// Bytes of the text; empty if it concerns the whole file.
    pub span: Range<usize>,
    text: Text,
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Place {
    /// A range of a text; a span outside the text becomes its end.
    pub(crate) fn new(file: &Arc<str>, text: &Text, span: Range<usize>) -> Self {
        let is_inside = text.get(span.clone()).is_some();
        let span = if is_inside { span } else { text.len()..text.len() };
        Self { file: Arc::clone(file), span, text: text.clone() }
    }

    pub(crate) fn file(file: &Arc<str>) -> Self {
        Self { file: Arc::clone(file), span: 0..0, text: "".into() }
    }

    /// A line of a text, from 1; the first line if the text has fewer.
    pub(crate) fn line_of(file: &Arc<str>, text: &Text, line: usize) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1));
        let start = starts.take(line).last().unwrap_or(0);
        let length = text.get(start..).and_then(|rest| rest.lines().next()).map_or(0, str::len);
        Self::new(file, text, start..start + length)
    }

    /// All of a file.
    pub(crate) fn whole(path: &Arc<str>, text: &Text) -> Self {
        Self::new(path, text, 0..text.len())
    }

    /// A part of the value at this place.
    ///
    /// `content` is the value after quotes and escapes are read. Its range is mapped to what the
    /// file has for it; the place stays unchanged if the file has something else.
    pub(crate) fn within(&self, content: &str, range: Range<usize>) -> Self {
        let literal = self.text.get(self.span.clone()).expect("a place is inside its text");
        let end = range.end.max(range.start + 1);
        let span = match literal.find(content) {
            Some(offset) => offset + range.start..offset + end,
            None => match escaped::map(literal, content, range.start..end) {
                Some(span) => span,
                None => return self.clone(),
            },
        };
        let span = self.span.start + span.start..self.span.start + span.end;
        let is_inside = span.end <= self.span.end && self.text.get(span.clone()).is_some();
        if is_inside { Self { span, ..self.clone() } } else { self.clone() }
    }

    /// Line `line`, from 1, of the value at this place; for `content` see [`Place::within`].
    pub(crate) fn line_within(&self, content: &str, line: usize) -> Self {
        let mut start = 0;
        for (number, text) in (1..).zip(content.split_inclusive('\n')) {
            if number == line {
                return self.within(content, start..start + text.trim_end().len());
            }
            start += text.len();
        }
        self.clone()
    }

    /// The first of `needles` that is in this place.
    pub(crate) fn first_of(&self, needles: &[&str]) -> Option<Self> {
        let text = self.text.get(self.span.clone())?;
        let found = |needle: &&str| Some((text.find(*needle)?, needle.len()));
        let (at, length) = needles.iter().find_map(found)?;
        let start = self.span.start + at;
        Some(Self { span: start..start + length, ..self.clone() })
    }

    /// The first occurrence of a name in this place, not as a part of a longer name.
    pub(crate) fn first_name(&self, name: &str) -> Option<Self> {
        let text = self.text.get(self.span.clone())?;
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let is_whole = |at: &usize| {
            let (before, rest) = text.split_at(*at);
            let is_longer = before.ends_with(|c| is_part(c) || c == '.')
                || rest.get(name.len()..).is_some_and(|after| after.starts_with(is_part));
            !is_longer
        };
        let at = text.match_indices(name).map(|(at, _)| at).find(is_whole)?;
        let start = self.span.start + at;
        Some(Self { span: start..start + name.len(), ..self.clone() })
    }

    /// Its text.
    pub fn literal(&self) -> &str {
        self.text.get(self.span.clone()).expect("a place is inside its text")
    }

    /// The line of its beginning, counted from 1.
    pub fn line(&self) -> usize {
        self.before().matches('\n').count() + 1
    }

    /// The column of its beginning in characters, counted from 1.
    pub fn column(&self) -> usize {
        self.before().rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1
    }

    /// The line and the column behind its last character, counted from 1.
    pub fn end(&self) -> (usize, usize) {
        let end = Self { span: self.span.end..self.span.end, ..self.clone() };
        (end.line(), end.column())
    }

    fn before(&self) -> &str {
        self.text.get(..self.span.start).expect("a place is inside its text")
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        (&self.file, &self.span) == (&other.file, &other.span)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line(), self.column())
    }
}

impl Diagnostic {
    /// The finding as one line.
    pub(crate) fn line(&self) -> String {
        format!("{}: {}{}", self.place, self.message, clause(self.nearest.as_ref()))
    }

    /// A finding that makes `key` unusable.
    pub(crate) fn error(place: Place, key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            level: Level::Error,
            lint: None,
            place,
            key: key.into(),
            message: message.into(),
            allowed: Vec::new(),
            nearest: None,
            note: None,
        }
    }

    /// The same, as a warning.
    pub(crate) fn into_warning(self) -> Self {
        Self { level: Level::Warning, ..self }
    }

    /// A finding of a lint, as a warning.
    pub(crate) fn lint(
        name: LintName,
        place: Place,
        key: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self::error(place, key, message).into_lint(name)
    }

    /// The same as a warning of a lint.
    pub(crate) fn into_lint(self, name: LintName) -> Self {
        self.named(name).into_warning()
    }

    /// The same as a finding of a lint.
    pub(crate) fn named(self, name: LintName) -> Self {
        Self { lint: Some(name), ..self }
    }

    /// Adds the allowed words, and the one most similar to `found`.
    pub(crate) fn with_allowed(mut self, found: &str, allowed: &[&str]) -> Self {
        self.nearest = nearest(found, allowed.iter().copied()).map(str::to_owned);
        self.allowed = allowed.iter().map(|word| (*word).to_owned()).collect();
        self
    }

    /// Adds the word that was probably meant.
    pub(crate) fn with_nearest(self, nearest: Option<impl AsRef<str>>) -> Self {
        Self { nearest: nearest.map(|nearest| shown(nearest.as_ref())), ..self }
    }

    pub(crate) fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: Some(note.into()), ..self }
    }

    /// The finding as JSON: `level`, `lint`, `file`, `line`, `column`, `key`, `message`, `allowed`,
    /// `nearest` and `note`.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "level": self.level.as_str(),
            "lint": self.lint.map(LintName::as_str),
            "file": &*self.place.file,
            "line": self.place.line(),
            "column": self.place.column(),
            "key": self.key,
            "message": self.message,
            "allowed": self.allowed,
            "nearest": self.nearest,
            "note": self.note,
        })
    }

    fn snippet(&self) -> Option<Snippet<'_, annotate_snippets::Annotation<'_>>> {
        let text = &*self.place.text;
        let label = self.nearest.as_ref().map(|nearest| format!("did you mean `{nearest}`?"));
        let annotation = AnnotationKind::Primary.span(self.place.span.clone()).label(label);
        (!text.is_empty()).then(|| Snippet::source(text).path(&*self.place.file).annotation(annotation))
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = match self.level {
            Level::Error => Label::ERROR,
            Level::Warning => Label::WARNING,
        };
        let place: Element<'_> = match self.snippet() {
            Some(snippet) => snippet.into(),
            None => annotate_snippets::Origin::path(&*self.place.file).into(),
        };
        let mut notes = Vec::new();
        if !self.key.is_empty() {
            notes.push(Label::NOTE.message(format!("at `{}`", self.key)));
        }
        if !self.allowed.is_empty() {
            notes.push(Label::HELP.message(format!("allowed are {}", self.allowed.join(", "))));
        }
        if let Some(note) = &self.note {
            notes.push(Label::HELP.message(note));
        }
        let title = label.primary_title(&self.message);
        let title = match self.lint {
            Some(lint) => title.id(lint.as_str()),
            None => title,
        };
        let group: Group<'_> = title.element(place).elements(notes);
        f.write_str(&Renderer::plain().render(&[group]))
    }
}

impl Report {
    /// Takes the findings in the order of the files, and moves the errors before the warnings.
    pub(crate) fn new(mut diagnostics: Vec<Diagnostic>) -> Self {
        diagnostics.sort_by_key(|diagnostic| diagnostic.level);
        Self { diagnostics }
    }

    /// This report with additional findings, after the others of their level.
    #[must_use]
    pub fn with(self, more: impl IntoIterator<Item = Diagnostic>) -> Self {
        Self::new(self.diagnostics.into_iter().chain(more).collect())
    }

    /// Only the findings about files for which `is_wanted` holds.
    #[must_use]
    pub fn only(mut self, is_wanted: impl Fn(&str) -> bool) -> Self {
        self.diagnostics.retain(|diagnostic| is_wanted(&diagnostic.place.file));
        self
    }

    /// Only the errors.
    #[must_use]
    pub(crate) fn only_errors(mut self) -> Self {
        self.diagnostics.retain(|diagnostic| diagnostic.level == Level::Error);
        self
    }

    /// All findings: errors before warnings.
    pub(crate) fn into_all(self) -> Vec<Diagnostic> {
        self.diagnostics
    }

    /// The findings that are shown: errors before warnings.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        self.diagnostics.get(..FINDINGS_MAX).unwrap_or(&self.diagnostics)
    }

    /// The number of errors, including those that are not shown.
    pub(crate) fn first_error(&self) -> Option<&Diagnostic> {
        self.diagnostics.iter().find(|one| one.level == Level::Error)
    }

    /// How many errors there are.
    pub fn error_count(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.level == Level::Error).count()
    }

    /// The number of warnings, including those that are not shown.
    pub fn warning_count(&self) -> usize {
        self.diagnostics.len() - self.error_count()
    }

    /// The findings as a JSON array.
    pub fn to_json(&self) -> serde_json::Value {
        self.diagnostics().iter().map(Diagnostic::to_json).collect()
    }
}

impl fmt::Display for Report {
    /// Writes the findings with an empty line between them; writes nothing if there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.diagnostics().iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            writeln!(f, "{separator}{diagnostic}")?;
        }
        match self.diagnostics.len() - self.diagnostics().len() {
            0 => Ok(()),
            left_out => writeln!(f, "\nand {left_out} more"),
        }
    }
}

/// Text of a file for a message: on one line, with invisible characters escaped, at most 64
/// characters.
pub(crate) fn shown(text: &str) -> String {
    spelled_out(text, SHOWN_CHARS_MAX)
}

/// The message for a syntax error; replaces the parser's internal terms.
pub(super) fn syntax_error(path: &Arc<str>, text: &Text, error: &toml::de::Error) -> Diagnostic {
    let span = error.span().unwrap_or(0..0);
    let line_start = text.get(..span.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let control = line.char_indices().find(|(_, c)| c.is_control() && !matches!(c, '\t' | '\r'));
    if let Some((at, c)) = control {
        let span = line_start + at..line_start + at + c.len_utf8();
        let message = format!("invalid TOML: control character U+{:04X}", u32::from(c));
        return Diagnostic::error(Place::new(path, text, span), "", message)
            .with_note(format!("in a string it is written \\u{:04x}", u32::from(c)));
    }
    let place = Place::new(path, text, span);
    let wrong = Diagnostic::error(place, "", format!("invalid TOML: {}", sentence(error.message())));
    match line.split_once(':') {
        Some((key, value)) if is_bare_key(key.trim()) && !value.trim().is_empty() => {
            let meant = format!("{} = {}", key.trim(), value.trim());
            wrong.with_note(format!("a key and its value are joined by `=`: {}", shown(&meant)))
        }
        _ => wrong,
    }
}

/// Whether a key needs no quotes.
pub(super) fn is_bare_key(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Another error's sentence, which may repeat text of a file.
pub(crate) fn sentence(error: impl fmt::Display) -> String {
    spelled_out(&error.to_string(), SENTENCE_CHARS_MAX)
}

fn spelled_out(text: &str, chars_max: usize) -> String {
    let is_unwanted = |c: char| c.is_control() || clean_text(c.encode_utf8(&mut [0; 4])).is_empty();
    let mut shown = String::new();
    for c in text.chars().take(chars_max) {
        if is_unwanted(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    if text.chars().nth(chars_max).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[events]\nwhere = \"payload.n >\"\n";

    fn place(part: &str) -> Place {
        let start = TEXT.find(part).expect("a part of the text");
        Place::new(&"a.toml".into(), &TEXT.into(), start..start + part.len())
    }

    #[test]
    fn a_place_counts_lines_and_columns_from_one() {
        assert_eq!(place("[events]").to_string(), "a.toml:1:1");
        assert_eq!(place("\"payload").to_string(), "a.toml:2:9");
        let outside = Place::new(&"a.toml".into(), &TEXT.into(), 5..900);
        assert_eq!(outside.to_string(), "a.toml:3:1");
    }

    #[test]
    fn range_in_a_string_is_located_with_escapes() {
        let whole = place("\"payload.n >\"");
        assert_eq!(whole.within("payload.n >", 10..11).to_string(), "a.toml:2:20");
        assert_eq!(whole.within("payload.n >", 11..11).to_string(), "a.toml:2:21", "the end is the quote");
        assert_eq!(whole.within("payload.m >", 10..11).span, whole.span, "another text");
        assert_eq!(whole.within("payload.n \t>", 10..11).span, whole.span);
        let text: Text = r#"where = "payload.m == \"\u00e4\" and payload.n|foo""#.into();
        let whole = Place::new(&"a.toml".into(), &text, 8..text.len());
        let content = "payload.m == \"\u{e4}\" and payload.n|foo";
        let at = content.find("foo").expect("its part");
        assert_eq!(whole.within(content, at..at + 3).to_string(), "a.toml:1:48");
    }

    #[test]
    fn quoted_file_text_is_escaped_and_shortened() {
        assert_eq!(shown("a\nb\u{1b}[31mc\u{202e}"), "a\\nb\\u{1b}[31mc\\u{202e}");
        assert_eq!(shown(&"x".repeat(64)), "x".repeat(64));
        assert_eq!(shown(&"x".repeat(65)), format!("{}...", "x".repeat(64)));
    }

    #[test]
    fn findings_over_the_limit_are_counted() {
        let error = Diagnostic::error(place("where"), "events.where", "wrong");
        let mut found = vec![error.clone().into_warning()];
        found.extend(std::iter::repeat_n(error, FINDINGS_MAX + 1));
        let report = Report::new(found);
        assert_eq!((report.error_count(), report.warning_count()), (FINDINGS_MAX + 1, 1));
        assert_eq!(report.diagnostics().len(), FINDINGS_MAX);
        assert!(report.to_string().ends_with("\n\nand 2 more\n"));
        assert!(report.to_string().starts_with("error: "), "errors go first");
    }

    #[test]
    fn diagnostic_text_and_json_agree() {
        let diagnostic = Diagnostic::error(place("where"), "events.where", "unknown key `wher`")
            .with_allowed("wher", &["types", "where"])
            .with_note("it is optional");
        assert_eq!(
            diagnostic.to_string(),
            "error: unknown key `wher`\n \
             --> a.toml:2:1\n  \
             |\n\
             2 | where = \"payload.n >\"\n  \
             | ^^^^^ did you mean `where`?\n  \
             |\n  \
             = note: at `events.where`\n  \
             = help: allowed are types, where\n  \
             = help: it is optional"
        );
        assert_eq!(
            diagnostic.to_json(),
            serde_json::json!({
                "level": "error", "lint": null, "file": "a.toml", "line": 2, "column": 1, "key": "events.where",
                "message": "unknown key `wher`", "allowed": ["types", "where"], "nearest": "where",
                "note": "it is optional",
            })
        );
    }
}
