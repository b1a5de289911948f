//! The output of a test of Go: its errors, its logs and its panic.
//!
//! `t.Error` and `t.Log` print alike: `    a_test.go:9: text`, and further lines with a deeper
//! indent. Newer versions mark the lines of errors; without marks the lines that state a reason are
//! taken, else the last one. testify prints a table below an empty text.

use crate::capability::problem::trace::{self, Place};

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
        let begin = (0..=TEXT_BYTES_MAX.min(line.len())).rev().find_map(|end| line.get(..end));
        Self { place, message: begin.expect("an empty beginning, if no other").trim().to_owned() }
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
