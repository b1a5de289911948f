//! Splits the body of a publishing request into drafts, each with its own result.
//!
//! Inputs: the content type, and bytes as they arrive. JSON is one object or an array of them;
//! NDJSON is one object a line and is split as it arrives, in memory bounded by the longest allowed
//! event.

use std::{ops::Range, vec};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::{
    draft::{
        Defaults, Draft, check_size,
        cloud_event::{self, Headers},
    },
    event::EVENT_BYTES_MAX,
    request::{AtMost, FieldError, excerpt, kind_of},
};

/// Most events in a body that is read whole; a longer list has to be NDJSON, which is answered
/// while it is sent.
const ITEMS_MAX: usize = 10_000;

/// The structure of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind<'a> {
    /// An event, or an array of events.
    Json,
    /// One event a line.
    Lines,
    /// A CloudEvent in structured mode.
    CloudEvent,
    /// CloudEvents in batch mode.
    CloudEvents,
    /// The data of a CloudEvent in binary mode, with its headers.
    Binary(&'a Headers<'a>),
}

/// The content types of each structure.
const CONTENT_TYPES: [(&str, BodyKind<'static>); 7] = [
    ("application/json", BodyKind::Json),
    // The default of curl.
    ("application/x-www-form-urlencoded", BodyKind::Json),
    ("application/x-ndjson", BodyKind::Lines),
    ("application/ndjson", BodyKind::Lines),
    ("application/jsonl", BodyKind::Lines),
    ("application/cloudevents+json", BodyKind::CloudEvent),
    ("application/cloudevents-batch+json", BodyKind::CloudEvents),
];

impl BodyKind<'static> {
    /// The structure for a content type; JSON without one.
    ///
    /// Errors: an unknown type.
    pub fn of(content_type: Option<&str>) -> Result<Self, FieldError> {
        let Some(content_type) = content_type else { return Ok(Self::Json) };
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        CONTENT_TYPES.iter().find(|(name, _)| *name == essence).map(|(_, kind)| *kind).ok_or_else(|| {
            let message = format!(
                "`{}` cannot be read; send application/json, application/x-ndjson, application/cloudevents+json or application/cloudevents-batch+json",
                excerpt(&essence)
            );
            FieldError::new("content-type", message)
        })
    }
}

/// A draft, or why it is refused, with its number in the body, from 1.
pub type NumberedDraft<'a> = (u64, Result<Draft<'a>, FieldError>);

/// The drafts of a body that was read whole, in its order; each is parsed when it is taken.
#[derive(Debug)]
pub struct Drafts<'a> {
    items: Items<'a>,
    kind: BodyKind<'a>,
    defaults: &'a Defaults<'a>,
    number: u64,
}

#[derive(Debug)]
enum Items<'a> {
    /// One event without an array, until it is taken.
    One(Option<&'a [u8]>),
    /// The items of an array.
    Many(vec::IntoIter<&'a RawValue>),
}

/// Why a body has no drafts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is one event, and too large.
    #[error("an event has at most {EVENT_BYTES_MAX} bytes, this one has {bytes}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// It is no array, or too long.
    #[error(transparent)]
    Invalid(#[from] FieldError),
}

/// Reads an event, or a CloudEvent in structured mode.
///
/// Errors: as for [`Draft::read`].
pub fn read_any<'a>(
    text: &'a [u8],
    defaults: &Defaults<'a>,
    new_id: &mut dyn FnMut() -> String,
) -> Result<Draft<'a>, FieldError> {
    #[derive(Deserialize)]
    struct Version {
        specversion: Option<IgnoredAny>,
    }
    match serde_json::from_slice(text) {
        Ok(Version { specversion: Some(_) }) => cloud_event::structured(text, defaults),
        Ok(Version { specversion: None }) | Err(_) => Draft::read(text, defaults, new_id),
    }
}

impl<'a> Drafts<'a> {
    /// Splits a body: an array into its items, anything else as one event.
    ///
    /// Errors: one event is too large; the array is not JSON or longer than `ITEMS_MAX`.
    pub fn read(kind: BodyKind<'a>, body: &'a [u8], defaults: &'a Defaults<'a>) -> Result<Self, BodyError> {
        let is_array = match kind {
            BodyKind::Json | BodyKind::Lines => body.trim_ascii_start().first() == Some(&b'['),
            BodyKind::CloudEvents => true,
            BodyKind::CloudEvent | BodyKind::Binary(_) => false,
        };
        let items = match is_array {
            true => Items::Many(many(body)?.into_iter()),
            false if body.len() > EVENT_BYTES_MAX => return Err(BodyError::TooLarge { bytes: body.len() }),
            false => Items::One(Some(body)),
        };
        Ok(Self { items, kind, defaults, number: 0 })
    }

    /// Whether the body is one event without an array.
    pub fn is_lone(&self) -> bool {
        matches!(self.items, Items::One(_))
    }

    /// The next draft; `new_id` creates an id if its event has none.
    pub fn next_draft(&mut self, new_id: &mut dyn FnMut() -> String) -> Option<NumberedDraft<'a>> {
        let text = match &mut self.items {
            Items::One(text) => text.take()?,
            Items::Many(items) => items.next()?.get().as_bytes(),
        };
        self.number += 1;
        let draft = match self.kind {
            BodyKind::Json | BodyKind::Lines => Draft::read(text, self.defaults, new_id),
            BodyKind::CloudEvent | BodyKind::CloudEvents => cloud_event::structured(text, self.defaults),
            BodyKind::Binary(headers) => cloud_event::binary(headers, text, self.defaults),
        };
        Some((self.number, draft))
    }
}

/// Splits a body that must be an array.
///
/// Errors: it is not JSON, no array, or longer than [`ITEMS_MAX`].
fn many(body: &[u8]) -> Result<Vec<&RawValue>, FieldError> {
    let text =
        std::str::from_utf8(body).map_err(|error| FieldError::whole(format!("is not UTF-8: {error}")))?;
    let AtMost::<&RawValue, ITEMS_MAX> { items, count } = serde_json::from_str(text).map_err(|error| {
        FieldError::whole(match error.is_data() {
            true => format!("must be an array of events, not {}", kind_of(text)),
            false => format!("is not JSON: {error}"),
        })
    })?;
    if count > ITEMS_MAX {
        let message = format!(
            "has {count} events, at most {ITEMS_MAX} are allowed in one array; send more as application/x-ndjson"
        );
        return Err(FieldError::whole(message));
    }
    Ok(items)
}

/// Splits bytes into lines as they arrive.
///
/// Shape: holds lines that were not taken yet, and at most [`EVENT_BYTES_MAX`] bytes of an
/// incomplete line; of a longer one only the length is kept. Blank lines are skipped but numbered.
#[derive(Debug, Default)]
pub struct LineSplitter {
    buffer: Vec<u8>,
    at: usize,
    number: u64,
    overlong: usize,
    /// `at`, `number` and `overlong` before the last line.
    before: (usize, u64, usize),
}

/// One line that is not blank.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    /// Its number in the body, from 1.
    number: u64,
    /// Its bytes without the line end, or why they were not kept.
    bytes: Result<&'a [u8], FieldError>,
}

impl LineSplitter {
    /// Adds received bytes.
    pub fn push(&mut self, chunk: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(chunk);
    }

    /// How many received bytes were not taken yet.
    pub fn bytes_left(&self) -> usize {
        self.buffer.len() - self.at
    }

    /// The draft of the next complete line, and the size of that line; at the end of the input also
    /// that of the text after the last line end. `new_id` creates an id if the event has none.
    pub fn next_draft<'a>(
        &'a mut self,
        is_ended: bool,
        defaults: &Defaults<'a>,
        new_id: &mut dyn FnMut() -> String,
    ) -> Option<(NumberedDraft<'a>, usize)> {
        let Line { number, bytes } = self.next_line(is_ended)?;
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len());
        Some(((number, bytes.and_then(|bytes| Draft::read(bytes, defaults, new_id))), length))
    }

    fn next_line(&mut self, is_ended: bool) -> Option<Line<'_>> {
        let range = self.complete().or_else(|| if is_ended { self.incomplete() } else { None })?;
        Some(self.line(range))
    }

    /// The range of the next complete line.
    fn complete(&mut self) -> Option<Range<usize>> {
        loop {
            let rest = self.buffer.get(self.at..).expect("a position in the buffer");
            let Some(length) = memchr::memchr(b'\n', rest) else {
                if rest.len() > EVENT_BYTES_MAX {
                    self.overlong += rest.len();
                    self.at = self.buffer.len();
                }
                return None;
            };
            if let Some(range) = self.take(length, length + 1) {
                return Some(range);
            }
        }
    }

    /// The range of the text after the last line end, after all complete lines.
    fn incomplete(&mut self) -> Option<Range<usize>> {
        let length = self.buffer.len() - self.at;
        self.take(length, length)
    }

    /// Makes the last line the next one again. No input may have been added since.
    pub fn repeat(&mut self) {
        (self.at, self.number, self.overlong) = self.before;
    }

    /// Consumes a line; returns its range, or `None` when it is blank.
    fn take(&mut self, length: usize, step: usize) -> Option<Range<usize>> {
        let range = self.at..self.at + length;
        self.before = (self.at, self.number, self.overlong);
        self.at += step;
        self.number += 1;
        let is_blank = self.buffer.get(range.clone()).is_none_or(|line| line.trim_ascii().is_empty());
        (!is_blank || self.overlong > 0).then_some(range)
    }

    fn line(&mut self, range: Range<usize>) -> Line<'_> {
        let overlong = std::mem::take(&mut self.overlong);
        let bytes = self.buffer.get(range).expect("the range that `take` returned");
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        Line { number: self.number, bytes: check_size(overlong + bytes.len()).map(|()| bytes) }
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::*;
    use crate::event::{Provenance, catalogue::OwnSeverities};

    type Found = (u64, Result<String, String>);

    fn take(splitter: &mut LineSplitter, is_ended: bool, found: &mut Vec<Found>) {
        fn owned(line: Line<'_>) -> Found {
            let text = line.bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            (line.number, text.map_err(|error| error.to_string()))
        }
        while let Some(line) = splitter.next_line(is_ended).map(owned) {
            splitter.repeat();
            assert_eq!(splitter.next_line(is_ended).map(owned).as_ref(), Some(&line), "repeated");
            found.push(line);
        }
    }

    fn lines(chunks: &[&str]) -> Vec<Found> {
        let (mut splitter, mut found) = (LineSplitter::default(), Vec::new());
        for chunk in chunks {
            splitter.push(chunk.as_bytes());
            take(&mut splitter, false, &mut found);
        }
        take(&mut splitter, true, &mut found);
        found
    }

    #[test]
    fn lines_are_independent_of_chunk_boundaries() {
        let body = "one\n\ntwo\r\n  \nthree";
        let expected =
            vec![(1, Ok("one".to_owned())), (3, Ok("two".to_owned())), (5, Ok("three".to_owned()))];
        for at in 0..=body.len() {
            let (first, second) = body.split_at(at);
            assert_eq!(lines(&[first, second]), expected, "cut at {at}");
        }
        assert_eq!(lines(&["one\n", "", "\n"]), vec![(1, Ok("one".to_owned()))]);
    }

    #[test]
    fn oversized_line_is_refused_and_reading_continues() {
        let long = "x".repeat(EVENT_BYTES_MAX + 5);
        let message = "an event has at most 65536 bytes of JSON, this one has 65541".to_owned();
        let expected = vec![(1, Err(message.clone())), (2, Ok("next".to_owned()))];
        assert_eq!(lines(&[&long, "\nnext\n"]), expected);
        assert_eq!(lines(&[&format!("{long}\nnext")]), expected);
        assert_eq!(lines(&[&long]), vec![(1, Err(message))]);
    }

    #[test]
    fn an_unfinished_line_is_held_in_bounded_memory() {
        let mut splitter = LineSplitter::default();
        for _ in 0..100 {
            splitter.push(&[b'x'; 10_000]);
            assert_eq!(splitter.next_line(false), None);
            assert!(splitter.buffer.len() <= EVENT_BYTES_MAX + 10_000);
        }
    }

    #[test]
    fn json_body_is_an_event_or_an_array() {
        let none = OwnSeverities::default();
        let defaults = Defaults::api(Timestamp::ZERO, Provenance::Local, &none);
        let of = |kind: BodyKind<'static>, body: &str| {
            let mut drafts = Drafts::read(kind, body.as_bytes(), &defaults).expect("split");
            let is_lone = drafts.is_lone();
            let next = || drafts.next_draft(&mut || "e".to_owned());
            let found = std::iter::from_fn(next).map(|(number, draft)| (number, draft.is_ok()));
            (is_lone, found.collect::<Vec<_>>())
        };
        let event = r#"{"type":"a.b"}"#;
        assert_eq!(of(BodyKind::Json, &format!(" {event}")), (true, vec![(1, true)]));
        assert_eq!(of(BodyKind::Json, &format!(" [{event}, 1]")), (false, vec![(1, true), (2, false)]));
        assert_eq!(of(BodyKind::CloudEvent, "[]"), (true, vec![(1, false)]));
        let long = " ".repeat(EVENT_BYTES_MAX + 1);
        let error = Drafts::read(BodyKind::Json, long.as_bytes(), &defaults).expect_err("too large");
        assert_eq!(error.to_string(), "an event has at most 65536 bytes, this one has 65537");
        for (body, expected) in [
            ("[1,", "is not JSON: EOF while parsing a value at line 1 column 3"),
            ("{}", "must be an array of events, not an object"),
        ] {
            assert_eq!(many(body.as_bytes()).expect_err(body).to_string(), expected);
        }
        let long = format!("[{}1]", "1,".repeat(ITEMS_MAX));
        assert_eq!(
            many(long.as_bytes()).expect_err("too long").to_string(),
            "has 10001 events, at most 10000 are allowed in one array; send more as application/x-ndjson"
        );
    }

    #[test]
    fn the_content_type_says_what_a_body_is() {
        for (content_type, expected) in [
            (None, BodyKind::Json),
            (Some("application/json; charset=utf-8"), BodyKind::Json),
            (Some("Application/X-NDJSON"), BodyKind::Lines),
            (Some("application/cloudevents+json"), BodyKind::CloudEvent),
            (Some("application/cloudevents-batch+json"), BodyKind::CloudEvents),
        ] {
            assert_eq!(BodyKind::of(content_type), Ok(expected));
        }
        let error = BodyKind::of(Some("text/xml")).expect_err("not known");
        assert!(error.to_string().starts_with("content-type: `text/xml` cannot be read; send "), "{error}");
    }
}
