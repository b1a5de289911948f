//! Dotted event types, and the patterns that select them.
//!
//! A type such as `tool.call.failure` has 2 to 8 segments of `[A-Za-z0-9_-]+`. A pattern is a type
//! in which `*` matches exactly one segment and a final `**` one or more. Both are validated once,
//! on entry; afterwards they cannot be invalid. `matcher` indexes patterns.
//!
//! ```
//! use aside_engine::event::{EventType, Pattern};
//!
//! let failure: EventType = "tool.call.failure".parse()?;
//! let pattern: Pattern = "tool.**".parse()?;
//! assert!(pattern.matches(&failure));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

/// Longest type or pattern, in bytes.
pub const TYPE_BYTES_MAX: usize = 128;
/// Fewest segments of a type.
pub const SEGMENTS_MIN: usize = 2;
/// Most segments of a type.
pub const SEGMENTS_MAX: usize = 8;

/// A valid event type, cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Arc<str>);

impl EventType {
    /// The dotted text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Checks that `text` is a type, without keeping it.
    ///
    /// Errors: the first rule of types that `text` breaks.
    pub fn check(text: &str) -> Result<(), EventTypeError> {
        if is_type(text) {
            return Ok(());
        }
        check_shape(text, |_, segment| !segment.bytes().all(is_segment_byte))
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EventType {
    type Err = EventTypeError;

    fn from_str(text: &str) -> Result<Self, EventTypeError> {
        Self::check(text)?;
        Ok(Self(text.into()))
    }
}

/// A selection of event types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    text: Arc<str>,
}

/// The segments that one segment of a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternSegment<'a> {
    /// Exactly this segment.
    Exact(&'a str),
    /// `*`: any one segment.
    One,
    /// A final `**`: one or more segments.
    Rest,
}

impl Pattern {
    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The segments, in order; `Rest` occurs only as the last one.
    pub fn segments(&self) -> impl Iterator<Item = PatternSegment<'_>> {
        self.text.split('.').map(|segment| match segment {
            "*" => PatternSegment::One,
            "**" => PatternSegment::Rest,
            exact => PatternSegment::Exact(exact),
        })
    }

    /// Whether this pattern selects `event_type`.
    pub fn matches(&self, event_type: &EventType) -> bool {
        self.matches_text(event_type.as_str())
    }

    /// Like [`Pattern::matches`], for text that is a valid type.
    pub fn matches_text(&self, event_type: &str) -> bool {
        let mut rest = event_type.split('.');
        for segment in self.segments() {
            let found = rest.next();
            match (segment, found) {
                (PatternSegment::Rest, Some(_)) => return true,
                (PatternSegment::One, Some(_)) => {}
                (PatternSegment::Exact(wanted), Some(found)) if wanted == found => {}
                (PatternSegment::Exact(_), Some(_)) | (_, None) => return false,
            }
        }
        rest.next().is_none()
    }
}

impl Pattern {
    /// Whether some type is selected by both.
    pub fn meets(&self, other: &Self) -> bool {
        let (mut own, mut others) = (self.segments(), other.segments());
        loop {
            match (own.next(), others.next()) {
                (None, None)
                | (Some(PatternSegment::Rest), Some(_))
                | (Some(_), Some(PatternSegment::Rest)) => {
                    return true;
                }
                (Some(PatternSegment::Exact(own)), Some(PatternSegment::Exact(other))) if own != other => {
                    return false;
                }
                (Some(_), Some(_)) => {}
                (None, Some(_)) | (Some(_), None) => return false,
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<String> for Pattern {
    type Error = EventTypeError;

    fn try_from(text: String) -> Result<Self, EventTypeError> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.as_str().to_owned()
    }
}

impl FromStr for Pattern {
    type Err = EventTypeError;

    /// Parses a pattern; `**` alone selects every type.
    fn from_str(text: &str) -> Result<Self, EventTypeError> {
        let last = text.split('.').count().saturating_sub(1);
        let is_bad = |index: usize, segment: &str| match segment {
            "*" => false,
            "**" => index != last,
            exact => !exact.bytes().all(is_segment_byte),
        };
        if text == "**" {
            return Ok(Self { text: text.into() });
        }
        check_shape(text, is_bad)?;
        Ok(Self { text: text.into() })
    }
}

/// Error: a rule that a type or pattern breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EventTypeError {
    /// Longer than [`TYPE_BYTES_MAX`].
    #[error("an event type has at most {TYPE_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// Too few or too many segments.
    #[error(
        "an event type has {SEGMENTS_MIN} to {SEGMENTS_MAX} segments separated by dots, `{text}` has {segments}"
    )]
    Segments {
        /// The type as written.
        text: String,
        /// The number of its segments.
        segments: usize,
    },
    /// An empty segment, or one with an invalid character.
    #[error(
        "segment `{segment}` of event type `{text}` is not made of letters, digits, `_` and `-` (in a pattern `*` is one segment, a final `**` the rest)"
    )]
    Segment {
        /// The type as written.
        text: String,
        /// The invalid segment.
        segment: String,
    },
}

/// Whether `text` is valid, in one pass, because it is called twice per event. `check_shape` then
/// finds the reason.
fn is_type(text: &str) -> bool {
    let (mut dots, mut before, mut is_bad) = (0, DOT, false);
    for byte in text.bytes() {
        let class = class(byte);
        // Two dots in a row, or one at the beginning, enclose an empty segment.
        is_bad |= class & (before | OTHER) != 0;
        dots += usize::from(class);
        before = class;
    }
    let is_short = text.len() <= TYPE_BYTES_MAX;
    is_short && !is_bad && before != DOT && (SEGMENTS_MIN..=SEGMENTS_MAX).contains(&(dots + 1))
}

fn check_shape(text: &str, is_bad: impl Fn(usize, &str) -> bool) -> Result<(), EventTypeError> {
    if text.len() > TYPE_BYTES_MAX {
        return Err(EventTypeError::TooLong(text.len()));
    }
    let mut segments = 0;
    for (index, segment) in text.split('.').enumerate() {
        if segment.is_empty() || is_bad(index, segment) {
            return Err(EventTypeError::Segment { text: text.into(), segment: segment.into() });
        }
        segments += 1;
    }
    if !(SEGMENTS_MIN..=SEGMENTS_MAX).contains(&segments) {
        return Err(EventTypeError::Segments { text: text.into(), segments });
    }
    Ok(())
}

/// The class of a byte that a segment may have.
const IN_SEGMENT: u8 = 0;
const DOT: u8 = 1;
/// The class of all other bytes.
const OTHER: u8 = 2;

/// The class of each byte, as a table, because every byte of a type is checked twice.
#[expect(clippy::indexing_slicing, reason = "a byte is an index of 256, and a constant has no `get_mut`")]
const CLASSES: [u8; 256] = {
    let mut table = [OTHER; 256];
    let mut rest = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-".as_slice();
    while let [byte, after @ ..] = rest {
        table[*byte as usize] = IN_SEGMENT;
        rest = after;
    }
    table[b'.' as usize] = DOT;
    table
};

#[expect(clippy::indexing_slicing, reason = "a byte is an index of 256")]
fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

fn is_segment_byte(byte: u8) -> bool {
    class(byte) == IN_SEGMENT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn double_star_matches_one_or_more_segments() {
        let cases = [
            ("tool.call.failure", "tool.call.failure", true),
            ("tool.*.failure", "tool.call.failure", true),
            ("tool.*", "tool.call.failure", false),
            ("tool.**", "tool.call.failure", true),
            ("tool.**", "tool.call", true),
            ("tool.call.failure.**", "tool.call.failure", false),
            ("**", "tool.call", true),
            ("*.call", "tool.call", true),
            ("tool.call.failure", "tool.call", false),
        ];
        for (pattern, event_type, expected) in cases {
            let pattern: Pattern = pattern.parse().expect("valid pattern");
            let event_type: EventType = event_type.parse().expect("valid type");
            assert_eq!(pattern.matches(&event_type), expected, "{pattern} against {event_type}");
        }
    }

    #[test]
    fn patterns_meet_if_both_select_a_type() {
        for (one, other, expected) in [
            ("tool.call.failure", "tool.call.failure", true),
            ("tool.*.failure", "tool.call.*", true),
            ("tool.*", "tool.call.failure", false),
            ("tool.**", "tool.call.failure", true),
            ("tool.**", "*.call.*", true),
            ("tool.call.**", "tool.call", false),
            ("tool.**", "ci.**", false),
            ("**", "ci.check", true),
            ("*.call", "tool.failure", false),
        ] {
            let pattern = |text: &str| text.parse::<Pattern>().expect("valid pattern");
            let (own, others) = (pattern(one), pattern(other));
            assert_eq!((own.meets(&others), others.meets(&own)), (expected, expected), "{one} and {other}");
        }
    }

    #[test]
    fn bad_types_say_what_is_wrong_with_them() {
        for (text, part) in [
            ("tool", "has 1"),
            ("a.b.c.d.e.f.g.h.i", "has 9"),
            ("tool..call", "segment ``"),
            ("tool.ca ll", "segment `ca ll`"),
            ("tool.*", "segment `*`"),
            (&"x.".repeat(100), "at most 128"),
        ] {
            let error = text.parse::<EventType>().expect_err(text);
            assert!(error.to_string().contains(part), "{error}");
        }
        assert!("tool.**.failure".parse::<Pattern>().is_err());
        for bad in [".", "a.", ".a.b", "a..b", "a.b.", "a.\u{e4}", ""] {
            assert!(EventType::check(bad).is_err(), "{bad}");
        }
        for good in ["a.b", "A_0.b-1", "a.b.c.d.e.f.g.h", &format!("a.{}", "x".repeat(126))] {
            assert_eq!(EventType::check(good), Ok(()), "{good}");
        }
    }
}
