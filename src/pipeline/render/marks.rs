//! What a template printed, kept apart from its text.
//!
//! A value that is printed goes into [`Marks`], and only its index goes into the output, between two control characters. No value's own text
//! is ever part of the output, so none can be taken for structure; a payload cannot name an index, as control characters are
//! stripped from it, and a template that forges one merely prints again what it has printed.

use serde_json::Value;

use super::OUTPUT_BYTES_MAX;
use crate::toon;

/// Begins a mark in rendered text.
pub(super) const OPEN: char = '\u{2}';
/// Ends a mark in rendered text.
pub(super) const CLOSE: char = '\u{3}';

/// One printed thing.
#[derive(Debug)]
pub(super) enum Mark {
    /// A null, boolean, number or string, to be encoded where it stands.
    Scalar(Value),
    /// A key, already encoded.
    Key(String),
    /// The cells of a row, already encoded.
    Cells(String),
    /// Whole lines, already encoded; with its key if it is a single table that needs no check.
    Block(String, Option<String>),
}

impl Mark {
    /// The bare text of what was printed, for a cell that mixes it with other text.
    pub(super) fn text(&self) -> String {
        match self {
            Self::Scalar(Value::String(text))
            | Self::Key(text)
            | Self::Cells(text)
            | Self::Block(text, _) => text.clone(),
            Self::Scalar(value) => {
                let mut out = String::new();
                toon::write_scalar(&mut out, value);
                out
            }
        }
    }
}

/// Everything that was printed during one render.
#[derive(Debug, Default)]
pub(super) struct Marks {
    all: Vec<Mark>,
    bytes: usize,
}

/// More was printed than [`OUTPUT_BYTES_MAX`].
#[derive(Debug)]
pub(super) struct TooMuch;

impl Marks {
    /// Keeps `mark` and gives the text that stands for it.
    pub(super) fn push(&mut self, mark: Mark) -> Result<String, TooMuch> {
        self.bytes += match &mark {
            Mark::Scalar(Value::String(text))
            | Mark::Key(text)
            | Mark::Cells(text)
            | Mark::Block(text, _) => text.len(),
            Mark::Scalar(_) => 1,
        };
        if self.bytes > OUTPUT_BYTES_MAX {
            return Err(TooMuch);
        }
        self.all.push(mark);
        Ok(format!("{OPEN}{}{CLOSE}", self.all.len() - 1))
    }

    /// Splits text into its own parts and the marks between them; a broken mark is dropped.
    pub(super) fn split<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Piece<'a>> {
        let (before, rest) =
            text.split_once(OPEN).map_or((text, None), |(before, rest)| (before, Some(rest)));
        let marked = rest.into_iter().flat_map(|rest| rest.split(OPEN)).flat_map(|part| {
            let (index, after) = part.split_once(CLOSE).unwrap_or((part, ""));
            let mark = index.parse().ok().and_then(|index: usize| self.all.get(index)).map(Piece::Mark);
            mark.into_iter().chain(std::iter::once(Piece::Text(after)))
        });
        std::iter::once(Piece::Text(before)).chain(marked)
    }

    /// Text with its marks replaced by what they stand for.
    pub(super) fn expand(&self, text: &str) -> String {
        self.split(text)
            .map(|piece| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Mark(mark) => mark.text(),
            })
            .collect()
    }
}

/// A part of a rendered line.
#[derive(Debug, Clone, Copy)]
pub(super) enum Piece<'a> {
    /// The template's own text.
    Text(&'a str),
    /// Something it printed.
    Mark(&'a Mark),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_marks_come_apart_and_broken_marks_vanish() {
        let mut marks = Marks::default();
        let first = marks.push(Mark::Scalar("a".into())).expect("small");
        let second = marks.push(Mark::Scalar(7.into())).expect("small");
        assert_eq!(marks.expand(&format!("x{first}, {second}{OPEN}9{CLOSE}.{OPEN}1")), "xa, 7.7");
        assert_eq!(marks.expand("plain"), "plain");
    }

    #[test]
    fn more_than_the_output_limit_is_refused() {
        let mut marks = Marks::default();
        assert!(marks.push(Mark::Scalar("x".repeat(OUTPUT_BYTES_MAX).into())).is_ok());
        assert!(marks.push(Mark::Scalar("x".into())).is_err());
    }
}
