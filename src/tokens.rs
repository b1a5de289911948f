//! How many tokens a text costs, estimated in one pass without a tokenizer's tables.
//!
//! The weights follow what byte-pair tokenizers merge: a word with the space before it, three digits, runs of punctuation. On
//! notifications the estimate is within about 10 % of o200k; other tokenizers differ by a factor that is whoever spends a budget's business.
//! Weights for scripts other than Latin are rough.

use crate::notification::Tokens;

/// Weights are in hundredths of a token.
const UNIT: u64 = 100;
const WORD: u64 = 100;
const CAMEL_HUMP: u64 = 80;
const WORD_LETTERS_FREE: u64 = 7;
const LETTER_BEYOND: u64 = 10;
const DIGITS_PER_TOKEN: u64 = 3;
const SPACE_BEFORE_DIGITS: u64 = 90;
const SPACE_RUN: u64 = 80;
const NEWLINE: u64 = 55;
const PUNCTUATION: u64 = 82;
const PUNCTUATION_RUN: u64 = 75;
const PUNCTUATION_BEYOND: u64 = 33;

/// How many bytes of a payload's JSON are taken for one token where only its length is known.
///
/// Source: [`estimate`] finds a token in every 2 to 4.7 bytes of compact JSON, so this is on the low side.
const RAW_BYTES_PER_TOKEN: u64 = 5;

/// What so many bytes of payloads would cost a language model at the least, if it were given their JSON.
pub const fn of_raw_bytes(bytes: u64) -> u64 {
    bytes / RAW_BYTES_PER_TOKEN
}

/// Estimates what `text` costs a language model, rounded to whole tokens.
pub fn estimate(text: &str) -> Tokens {
    let bytes = text.as_bytes();
    let (mut at, mut spaces) = (0, 0);
    let mut hundredths: u64 = 0;
    while let Some(first) = bytes.get(at) {
        let class = Class::of(*first);
        let rest = bytes.get(at..).unwrap_or_default();
        let length = rest.iter().take_while(|byte| Class::of(**byte) == class).count();
        let run = text.get(at..at + length).unwrap_or_default();
        hundredths += class.cost(run, spaces);
        spaces = if class == Class::Space { length } else { 0 };
        at += length;
    }
    Tokens(u32::try_from((hundredths + UNIT / 2) / UNIT).unwrap_or(u32::MAX))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Letter,
    Digit,
    Space,
    Newline,
    Punctuation,
    Other,
}

/// The class of every byte, because each byte of what is released is asked for twice.
#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 0x80 {
        classes[byte as usize] = Class::of_ascii(byte);
        byte += 1;
    }
    classes
};

impl Class {
    /// The class of the character that `byte` is, or is a part of.
    fn of(byte: u8) -> Self {
        CLASSES.get(usize::from(byte)).copied().unwrap_or(Self::Other)
    }

    const fn of_ascii(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => Self::Letter,
            b'0'..=b'9' => Self::Digit,
            b' ' | b'\t' => Self::Space,
            b'\n' | b'\r' => Self::Newline,
            _ => Self::Punctuation,
        }
    }

    fn cost(self, run: &str, spaces_before: usize) -> u64 {
        let length = u64::try_from(run.len()).unwrap_or(u64::MAX);
        match self {
            Self::Letter => {
                WORD + CAMEL_HUMP * camel_humps(run)
                    + LETTER_BEYOND * length.saturating_sub(WORD_LETTERS_FREE)
            }
            Self::Digit if spaces_before == 1 => {
                SPACE_BEFORE_DIGITS + UNIT * length.div_ceil(DIGITS_PER_TOKEN)
            }
            Self::Digit => UNIT * length.div_ceil(DIGITS_PER_TOKEN),
            Self::Space if length == 1 => 0,
            Self::Space => SPACE_RUN,
            Self::Newline => NEWLINE * length,
            Self::Punctuation if length == 1 => PUNCTUATION,
            Self::Punctuation => PUNCTUATION_RUN + PUNCTUATION_BEYOND * (length - 1),
            Self::Other => run.chars().map(cost_of_other).sum(),
        }
    }
}

fn camel_humps(word: &str) -> u64 {
    let pairs = word.as_bytes().windows(2);
    let humps =
        pairs.filter(|pair| matches!(pair, [a, b] if a.is_ascii_lowercase() && b.is_ascii_uppercase()));
    u64::try_from(humps.count()).unwrap_or(u64::MAX)
}

/// Hundredths of a token for one character outside ASCII, by block.
fn cost_of_other(c: char) -> u64 {
    match c {
        '\u{80}'..='\u{52f}' => 45,
        '\u{530}'..='\u{10ff}' => 60,
        '\u{3040}'..='\u{30ff}' | '\u{ac00}'..='\u{d7af}' => 80,
        '\u{10000}'.. => 200,
        _ => 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates_are_near_what_o200k_counts() {
        for (text, counted) in [("critical:", 2), ("!critical:", 3), ("\"!critical\":", 3)] {
            assert_eq!(estimate(text), Tokens(counted), "{text}");
        }
    }

    #[test]
    fn a_payload_whose_length_alone_is_known_is_not_taken_for_more_than_it_costs() {
        for payload in [
            r#"{"tool_name":"grep","error_type":"timeout","error_message":"took 30 s","call_id":"toolu_01HxV9"}"#,
            r#"{"path":"/home/u/shop/src/cart/checkout.rs","change":"modified","lines_added":12,"lines_removed":3}"#,
            r#"{"message":"The nightly build of the documentation has failed because a link in it leads nowhere."}"#,
            r#"{"used":181234,"limit":200000,"percent":90.6}"#,
        ] {
            let low = of_raw_bytes(payload.len() as u64);
            let Tokens(estimated) = estimate(payload);
            assert!(
                low <= u64::from(estimated) && low * 4 > u64::from(estimated),
                "{low} of {estimated}: {payload}"
            );
        }
    }

    #[test]
    fn each_class_has_its_weight() {
        for (text, expected) in [
            ("", 0),
            ("word another word", 3),
            ("camelCaseName", 3),
            ("123456789", 3),
            ("a 1", 3),
            (&"\n".repeat(20), 11),
            (&"=".repeat(10), 4),
            ("\u{1f600}", 2),
            (&"\u{4e2d}".repeat(10), 10),
        ] {
            assert_eq!(estimate(text), Tokens(expected), "{text:?}");
        }
    }

    #[test]
    fn more_text_never_costs_less() {
        let text = "tool_fails[2]{tool,error}:\n  grep,\"timeout: 30 s\"\n  fetch,null";
        let costs: Vec<_> = (0..=text.len()).map(|end| estimate(&text[..end])).collect();
        assert!(costs.windows(2).all(|pair| pair[0] <= Tokens(pair[1].0 + 1)), "{costs:?}");
    }
}
