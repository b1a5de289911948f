//! Splits the body of a publishing request into events, each with its own result.
//!
//! Inputs: the content type, and bytes as they arrive. JSON is one object or an array of them;
//! NDJSON is one object a line and is split as it arrives, in memory bounded by the longest allowed
//! event. Events are not interpreted here.

use serde_json::value::RawValue;

use crate::api::wire::{
    FieldError,
    event::check_size,
    request::{AtMost, kind_of},
};
use engine::event::EVENT_BYTES_MAX;

/// Most events in a body that is read whole; a longer list has to be NDJSON, which is answered
/// while it is sent.
pub const ITEMS_MAX: usize = 10_000;

/// The structure of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyKind {
    /// An event, or an array of events.
    Json,
    /// One event a line.
    Lines,
    /// A CloudEvent in structured mode.
    CloudEvent,
    /// CloudEvents in batch mode.
    CloudEvents,
}

/// The content types of each structure.
const CONTENT_TYPES: [(&str, BodyKind); 7] = [
    ("application/json", BodyKind::Json),
    // The default of curl.
    ("application/x-www-form-urlencoded", BodyKind::Json),
    ("application/x-ndjson", BodyKind::Lines),
    ("application/ndjson", BodyKind::Lines),
    ("application/jsonl", BodyKind::Lines),
    ("application/cloudevents+json", BodyKind::CloudEvent),
    ("application/cloudevents-batch+json", BodyKind::CloudEvents),
];

impl BodyKind {
    /// The structure for a content type; JSON without one.
    ///
    /// Errors: an unknown type.
    pub fn of(content_type: Option<&str>) -> Result<Self, FieldError> {
        let Some(content_type) = content_type else { return Ok(Self::Json) };
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        CONTENT_TYPES.iter().find(|(name, _)| *name == essence).map(|(_, kind)| *kind).ok_or_else(|| {
            let message = format!(
                "`{}` cannot be read; send application/json, application/x-ndjson, application/cloudevents+json or application/cloudevents-batch+json",
                super::excerpt(&essence)
            );
            FieldError::new("content-type", message)
        })
    }
}

/// The events of a body that was read whole.
#[derive(Debug)]
pub enum Items<'a> {
    /// One event without an array.
    One(&'a [u8]),
    /// The items of an array.
    Many(Vec<&'a RawValue>),
}

/// Splits a JSON body: an array into its items, anything else as one event.
///
/// Errors: the array is not JSON or longer than [`ITEMS_MAX`].
pub fn items(body: &[u8]) -> Result<Items<'_>, FieldError> {
    let begins_with_bracket = body.trim_ascii_start().first() == Some(&b'[');
    if begins_with_bracket { many(body).map(Items::Many) } else { Ok(Items::One(body)) }
}

/// Splits a body that must be an array.
///
/// Errors: as [`items`], and the actual type if it is not an array.
pub fn many(body: &[u8]) -> Result<Vec<&RawValue>, FieldError> {
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
pub struct Line<'a> {
    /// Its number in the body, from 1.
    pub number: u64,
    /// Its bytes without the line end, or why they were not kept.
    pub bytes: Result<&'a [u8], FieldError>,
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

    /// The next complete line.
    pub fn next_line(&mut self) -> Option<Line<'_>> {
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
                return Some(self.line(range));
            }
        }
    }

    /// The text after the last line end; to be called at the end of the input, after all complete
    /// lines.
    pub fn last_line(&mut self) -> Option<Line<'_>> {
        let length = self.buffer.len() - self.at;
        self.take(length, length).map(|range| self.line(range))
    }

    /// Makes the last line the next one again. No input may have been added since.
    pub fn repeat(&mut self) {
        (self.at, self.number, self.overlong) = self.before;
    }

    /// Consumes a line; returns its range, or `None` when it is blank.
    fn take(&mut self, length: usize, step: usize) -> Option<std::ops::Range<usize>> {
        let range = self.at..self.at + length;
        self.before = (self.at, self.number, self.overlong);
        self.at += step;
        self.number += 1;
        let is_blank = self.buffer.get(range.clone()).is_none_or(|line| line.trim_ascii().is_empty());
        (!is_blank || self.overlong > 0).then_some(range)
    }

    fn line(&mut self, range: std::ops::Range<usize>) -> Line<'_> {
        let overlong = std::mem::take(&mut self.overlong);
        let bytes = self.buffer.get(range).expect("the range that `take` returned");
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        Line { number: self.number, bytes: check_size(overlong + bytes.len()).map(|()| bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(chunks: &[&str]) -> Vec<(u64, Result<String, String>)> {
        fn owned(line: Line<'_>) -> (u64, Result<String, String>) {
            let text = line.bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            (line.number, text.map_err(|error| error.to_string()))
        }
        let (mut splitter, mut found) = (LineSplitter::default(), Vec::new());
        for chunk in chunks {
            splitter.push(chunk.as_bytes());
            while let Some(line) = splitter.next_line().map(owned) {
                splitter.repeat();
                assert_eq!(splitter.next_line().map(owned).as_ref(), Some(&line), "repeated");
                found.push(line);
            }
        }
        if let Some(line) = splitter.last_line().map(owned) {
            splitter.repeat();
            assert_eq!(splitter.last_line().map(owned).as_ref(), Some(&line), "repeated");
            found.push(line);
        }
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
            assert_eq!(splitter.next_line(), None);
            assert!(splitter.buffer.len() <= EVENT_BYTES_MAX + 10_000);
        }
    }

    #[test]
    fn json_body_is_an_event_or_an_array() {
        assert!(matches!(items(b" {}"), Ok(Items::One(b" {}"))));
        assert!(matches!(items(b" [{}, 1]"), Ok(Items::Many(items)) if items.len() == 2));
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
