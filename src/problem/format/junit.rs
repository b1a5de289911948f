//! JUnit XML: the failed test cases.
//!
//! It has no standard. Source: the output of pytest, Surefire, gotestsum, nextest, vitest and
//! jest-junit. They agree on `testcase` with `classname` and `name`, and on its children `failure`
//! and `error`. The elements are read one after the other, in linear time and without a tree. A
//! document type is refused, so no entity can expand.

use quick_xml::{
    Reader,
    escape::{resolve_predefined_entity, unescape},
    events::{BytesRef, BytesStart, Event},
};

use super::document::PROBLEMS_MAX;
use crate::problem::{Level, Problem};

/// Most attributes of an element; a test case has some five.
const ATTRIBUTES_MAX: usize = 100;
/// Most levels of elements.
const DEPTH_MAX: usize = 100;
/// Most bytes that are read of an attribute, and of the text of a failure.
const TEXT_BYTES_MAX: usize = 8 * 1024;

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
            return Ok(document.found);
        }
    }
}

/// Line and column of a byte, from 1.
fn place(text: &str, at: u64) -> String {
    let at = usize::try_from(at).unwrap_or(usize::MAX).min(text.len());
    let before = text.as_bytes().get(..at).unwrap_or_default();
    let line_start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    let column = String::from_utf8_lossy(before.get(line_start..).unwrap_or_default()).chars().count();
    format!("{}:{}", memchr::memchr_iter(b'\n', before).count() + 1, column + 1)
}

/// The document so far.
#[derive(Debug, Default)]
struct Document {
    /// Number of open elements.
    depth: usize,
    has_root: bool,
    /// The open test case, and its depth.
    case: Option<(usize, Case)>,
    found: Vec<Problem>,
}

#[derive(Debug, Default)]
struct Case {
    file: Option<String>,
    class: Option<String>,
    name: Option<String>,
    line: Option<u32>,
    failure: Option<Failure>,
}

/// Its first failure or error.
#[derive(Debug, Default)]
struct Failure {
    message: Option<String>,
    kind: Option<String>,
    text: String,
    is_closed: bool,
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
            Event::Eof if !self.has_root => return Err("there is no element".to_owned()),
            Event::Eof | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
        Ok(())
    }

    fn open(&mut self, tag: &BytesStart<'_>) -> Result<(), String> {
        self.depth += 1;
        self.has_root = true;
        if self.depth > DEPTH_MAX {
            return Err(format!("elements are nested deeper than {DEPTH_MAX} levels"));
        }
        let attributes = Attributes::read(tag)?;
        let local = tag.local_name();
        let name: &str = local.as_ref();
        match &mut self.case {
            None if name == "testcase" => self.case = Some((self.depth, attributes.into_case())),
            Some((depth, case)) if self.depth == *depth + 1 && case.failure.is_none() => {
                if matches!(name, "failure" | "error") {
                    case.failure = Some(attributes.into_failure());
                }
            }
            None | Some(_) => {}
        }
        Ok(())
    }

    fn close(&mut self) {
        if let Some((depth, mut case)) = self.case.take() {
            if depth == self.depth {
                let problem = case.into_problem().filter(|_| self.found.len() < PROBLEMS_MAX);
                self.found.extend(problem);
            } else {
                if let Some(failure) = case.failure.as_mut().filter(|_| self.depth == depth + 1) {
                    failure.is_closed = true;
                }
                self.case = Some((depth, case));
            }
        }
        self.depth = self.depth.saturating_sub(1);
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        if self.depth == 0 && !text.trim_start_matches('\u{feff}').trim().is_empty() {
            return Err("there is text outside of an element".to_owned());
        }
        if let Some((depth, case)) = &mut self.case
            && self.depth == *depth + 1
            && let Some(failure) = case.failure.as_mut().filter(|failure| !failure.is_closed)
        {
            let text = if failure.text.is_empty() { text.trim_start() } else { text };
            let room = TEXT_BYTES_MAX.saturating_sub(failure.text.len());
            failure.text.push_str(begin(text, room));
        }
        Ok(())
    }
}

impl Case {
    fn into_problem(self) -> Option<Problem> {
        let Failure { message, kind, text, .. } = self.failure?;
        let name = self.name.unwrap_or_else(|| "test".to_owned());
        let code = match (&self.file, self.class) {
            (None, Some(class)) => format!("{class}::{name}"),
            (Some(_), _) | (None, None) => name,
        };
        let text = text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned);
        Some(Problem {
            file: self.file,
            line: self.line,
            column: None,
            severity: Level::Error,
            code: Some(code),
            message: message.or(text).or(kind).unwrap_or_else(|| "failed".to_owned()),
        })
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
                "file" => &mut read.file,
                "line" => &mut read.line,
                "classname" => &mut read.classname,
                "name" => &mut read.name,
                "message" => &mut read.message,
                "type" => &mut read.kind,
                _ => continue,
            };
            let raw = begin(&attribute.value, TEXT_BYTES_MAX);
            let value = unescape(raw).map_or_else(|_| raw.to_owned(), std::borrow::Cow::into_owned);
            *slot = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
        }
        Ok(read)
    }

    fn into_case(self) -> Case {
        let Self { file, line, classname: class, name, .. } = self;
        Case { file, class, name, line: line.and_then(|line| line.parse().ok()), failure: None }
    }

    fn into_failure(self) -> Failure {
        let Self { message, kind, .. } = self;
        Failure { message, kind, ..Failure::default() }
    }
}

/// The text of a reference: a character, or one of the five predefined entities.
fn resolve(reference: &BytesRef<'_>) -> Result<String, String> {
    if let Some(character) = reference.resolve_char_ref().map_err(|error| error.to_string())? {
        return Ok(character.to_string());
    }
    let name = reference.xml10_content();
    let known = resolve_predefined_entity(&name).map(str::to_owned);
    known.ok_or_else(|| format!("unknown entity `{}`", begin(&name, 64)))
}

/// The first bytes of a text, at most `bytes_max`.
fn begin(text: &str, bytes_max: usize) -> &str {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=bytes_max.min(text.len())).rev().find(fits).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}
