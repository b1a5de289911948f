//! Texts of errors.

use std::error::Error;

/// Most characters of a quoted error's text.
const CHARS_MAX: usize = 1_000;
/// Its first characters that are kept; the rest of the bound is for its end.
const BEGIN_CHARS: usize = 600;
/// Stands where the middle was.
const CUT: &str = " [...] ";

/// Shape: `error: its cause: the cause of that`, each the text of one error.
pub fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
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
