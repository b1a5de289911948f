//! Errors in what a client sends: the field, and a sentence with the valid values.

use std::borrow::Cow;

use crate::nearest::nearest;

/// Longest excerpt of client input in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 64;
/// Most characters of a quoted error's text.
const CHARS_MAX: usize = 1_000;
/// Its first characters that are kept; the rest of the bound is for its end.
const BEGIN_CHARS: usize = 600;
/// Stands where the middle was.
const CUT: &str = " [...] ";

/// An error in the input.
///
/// Shape: `field` is a path such as `budget.max_tokens` or `observe[2].severity`; `None` when the
/// whole is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct FieldError {
    /// The field.
    pub field: Option<Cow<'static, str>>,
    /// The error, and the valid values.
    pub message: String,
}

impl FieldError {
    /// An error in one field.
    pub fn new(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: shortened(message.into()) }
    }

    /// An error in the whole input.
    pub fn whole(message: impl Into<String>) -> Self {
        Self { field: None, message: shortened(message.into()) }
    }

    /// Prepends the path of the enclosing object.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let field = self.field.map_or_else(|| outer.to_owned(), |inner| format!("{outer}.{inner}"));
        Self { field: Some(field.into()), message: self.message }
    }
}

/// The part of `text` that an error may contain.
pub fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut kept: String = chars.by_ref().take(EXCERPT_CHARS_MAX).collect();
    if chars.next().is_some() {
        kept.push_str("...");
    }
    kept
}

/// The end of a sentence about an invalid word: the nearest valid one, or all of them.
pub fn hint(found: &str, allowed: &[&str]) -> String {
    nearest(found, allowed.iter().copied()).map_or_else(
        || format!("use one of {}", allowed.join(", ")),
        |word| format!("did you mean `{word}`?"),
    )
}

/// Returns an error's text without its middle, if it is long: a parser's error quotes the whole
/// value that it refuses, and names the place at its end.
pub fn shortened(text: String) -> String {
    let chars = if text.len() <= CHARS_MAX { 0 } else { text.chars().count() };
    if chars <= CHARS_MAX {
        return text;
    }
    let end_chars = CHARS_MAX - BEGIN_CHARS - CUT.len();
    let byte_at = |char: usize| text.char_indices().nth(char).map_or(text.len(), |(byte, _)| byte);
    let (begin, _) = text.split_at(byte_at(BEGIN_CHARS));
    let (_, end) = text.split_at(byte_at(chars - end_chars));
    [begin, CUT, end].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_keeps_both_ends() {
        for (long, unit) in [("a".repeat(9_000_000), 'a'), ("\u{e4}".repeat(1_001), '\u{e4}')] {
            let error =
                shortened(format!("invalid type: string \"{long}\", expected a map at line 1 column 5"));
            assert_eq!(error.chars().count(), CHARS_MAX);
            assert!(error.starts_with(&format!("invalid type: string \"{unit}")), "{error}");
            assert!(error.ends_with(&format!("{unit}\", expected a map at line 1 column 5")), "{error}");
        }
        let fits = "\u{e4}".repeat(CHARS_MAX);
        assert_eq!(shortened(fits.clone()), fits);
    }
}
