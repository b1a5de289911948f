//! The printed values of a template, separate from its text.
//!
//! A printed value goes into [`Placeholders`], and only its index goes into the output, between two
//! control characters. The output never contains the text of a value, so a value cannot be taken
//! for structure. A payload cannot contain a placeholder, because control characters are stripped
//! from it. A template that forges one only repeats a value it has printed.

use serde_json::Value;

use crate::pipeline::render::OUTPUT_BYTES_MAX;

/// Most bytes printed by one run of a template; above the limit of a notification, because omitted
/// rows are printed too.
const PRINTED_BYTES_MAX: usize = 4 * OUTPUT_BYTES_MAX;

/// Begins a placeholder in rendered text.
pub(in crate::pipeline::render) const OPEN: char = '\u{2}';
/// Ends a placeholder in rendered text.
pub(in crate::pipeline::render) const CLOSE: char = '\u{3}';

/// A printed value.
#[derive(Debug)]
pub(in crate::pipeline::render) enum Placeholder {
    /// A null, boolean, number or string, encoded in place.
    Scalar(Value),
    /// A key, already encoded.
    Key(String),
    /// The cells of a row, already encoded.
    Cells(String),
    /// Whole encoded lines; with its key if it is a single table that needs no check.
    Block(String, Option<String>),
    /// The following text is on this line of the template.
    Line(usize),
    /// An absent value that prints nothing.
    Nothing,
}

impl Placeholder {
    /// The bare text of the value, for a cell that also has other text.
    pub(in crate::pipeline::render) fn text(&self) -> String {
        match self {
            Self::Scalar(Value::String(text))
            | Self::Key(text)
            | Self::Cells(text)
            | Self::Block(text, _) => text.clone(),
            Self::Line(_) | Self::Nothing => String::new(),
            Self::Scalar(value) => {
                let mut out = String::new();
                toon::write_scalar(&mut out, value);
                out
            }
        }
    }
}

impl Placeholder {
    /// The approximate length of [`Placeholder::text`], in bytes.
    fn length(&self) -> usize {
        /// No number is longer, except those written in full.
        const OF_SCALAR: usize = 24;
        match self {
            Self::Scalar(Value::String(text))
            | Self::Key(text)
            | Self::Cells(text)
            | Self::Block(text, _) => text.len(),
            Self::Scalar(_) => OF_SCALAR,
            Self::Line(_) | Self::Nothing => 0,
        }
    }
}

/// All printed values of one render.
#[derive(Debug, Default)]
pub(in crate::pipeline::render) struct Placeholders {
    all: Vec<Placeholder>,
    bytes: usize,
    /// The length of the longest placeholder.
    longest: usize,
    /// Number of events of the rows omitted by a filter.
    pub(in crate::pipeline::render) left_out: u64,
    /// Columns that an author named and no row has.
    pub(in crate::pipeline::render) absent: Vec<String>,
}

/// More than [`PRINTED_BYTES_MAX`] was printed.
#[derive(Debug)]
pub(in crate::pipeline::render) struct TooMuch;

impl Placeholders {
    /// Stores `placeholder` and returns its text in the output.
    pub(in crate::pipeline::render) fn push(&mut self, placeholder: Placeholder) -> Result<String, TooMuch> {
        let length = placeholder.length();
        self.count(length)?;
        self.longest = self.longest.max(length);
        let number = self.all.len().to_string();
        self.all.push(placeholder);
        let mut text = String::with_capacity(number.len() + 2);
        text.push(OPEN);
        text.push_str(&number);
        text.push(CLOSE);
        Ok(text)
    }

    /// Counts a printed value of so many bytes.
    pub(in crate::pipeline::render) fn count(&mut self, bytes: usize) -> Result<(), TooMuch> {
        self.bytes += 1 + bytes;
        if self.bytes > PRINTED_BYTES_MAX { Err(TooMuch) } else { Ok(()) }
    }

    /// Whether there is none in the output.
    pub(in crate::pipeline::render) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Splits text into its own parts and the placeholders between them; an invalid placeholder is
    /// dropped.
    pub(in crate::pipeline::render) fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let (before, rest) =
            text.split_once(OPEN).map_or((text, None), |(before, rest)| (before, Some(rest)));
        let after_open = rest.into_iter().flat_map(|rest| rest.split(OPEN)).flat_map(|part| {
            let (index, after) = part.split_once(CLOSE).unwrap_or((part, ""));
            let placeholder =
                index.parse().ok().and_then(|index: usize| self.all.get(index)).map(Piece::Placeholder);
            placeholder.into_iter().chain(std::iter::once(Piece::Text(after)))
        });
        std::iter::once(Piece::Text(before)).chain(after_open)
    }

    /// Whether `text` exceeds the limit once its placeholders are replaced; one may occur
    /// repeatedly.
    pub(in crate::pipeline::render) fn is_too_much(&self, text: &str) -> bool {
        let count = text.matches(OPEN).count();
        if text.len() + count * self.longest <= PRINTED_BYTES_MAX {
            return false;
        }
        let lengths = self.split(text).map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Placeholder(placeholder) => placeholder.length(),
        });
        lengths.sum::<usize>() > PRINTED_BYTES_MAX
    }

    /// Returns the text with its placeholders replaced by their values.
    ///
    /// Errors: the result exceeds the limit.
    pub(in crate::pipeline::render) fn expand(&self, text: &str) -> Result<String, TooMuch> {
        if self.is_too_much(text) {
            return Err(TooMuch);
        }
        Ok(self.expanded(text))
    }

    fn expanded(&self, text: &str) -> String {
        self.split(text)
            .map(|piece| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Placeholder(placeholder) => placeholder.text(),
            })
            .collect()
    }
}

/// A part of a rendered line.
#[derive(Debug, Clone, Copy)]
pub(in crate::pipeline::render) enum Piece<'a> {
    /// The template's own text.
    Text(&'a str),
    /// A printed value.
    Placeholder(&'a Placeholder),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_expand_and_broken_ones_vanish() {
        let mut placeholders = Placeholders::default();
        let first = placeholders.push(Placeholder::Scalar("a".into())).expect("small");
        let second = placeholders.push(Placeholder::Scalar(7.into())).expect("small");
        assert_eq!(placeholders.expanded(&format!("x{first}, {second}{OPEN}9{CLOSE}.{OPEN}1")), "xa, 7.7");
        assert_eq!(placeholders.expanded("plain"), "plain");
    }

    #[test]
    fn more_than_the_output_limit_is_refused() {
        let mut placeholders = Placeholders::default();
        assert!(placeholders.push(Placeholder::Scalar("x".repeat(PRINTED_BYTES_MAX - 1).into())).is_ok());
        assert!(placeholders.push(Placeholder::Scalar("x".into())).is_err());
    }

    #[test]
    fn a_repeated_placeholder_expands_only_within_the_limit() {
        let mut placeholders = Placeholders::default();
        let placeholder = placeholders.push(Placeholder::Scalar("x".repeat(10_000).into())).expect("small");
        assert!(placeholders.expand(&placeholder.repeat(20)).is_ok());
        assert!(placeholders.expand(&placeholder.repeat(40)).is_err());
    }
}
