//! Estimates the tokens of a text in one pass, without a tokenizer's tables.
//!
//! The weights follow the merges of byte-pair tokenizers: a word with the space before it, three
//! digits, runs of punctuation. For notifications the estimate is within about 10 % of o200k. Other
//! tokenizers differ by a factor; choose a budget accordingly. Weights for scripts other
//! than Latin are rough.

use std::{fmt, num::TryFromIntError};

use serde::{Deserialize, Serialize};

/// A number of language-model tokens; an estimate unless documented otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Tokens(pub u32);

impl fmt::Display for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<i128> for Tokens {
    type Error = TryFromIntError;

    fn try_from(count: i128) -> Result<Self, TryFromIntError> {
        count.try_into().map(Self)
    }
}

/// Weights are in hundredths of a token.
const UNIT: u64 = 100;
const WORD: u64 = 100;
const CAMEL_HUMP: u64 = 80;
const WORD_LETTERS_FREE: u64 = 7;
const LETTER_BEYOND: u64 = 10;
/// Most letters of a run without a hump that count as a word; a longer run is a key or a hash, for
/// example.
const WORD_LETTERS_MAX: u64 = 12;
/// The cost of each further letter.
const LETTER_OF_NO_WORD: u64 = 45;
const DIGITS_PER_TOKEN: u64 = 3;
const SPACE_BEFORE_DIGITS: u64 = 90;
const SPACE_RUN: u64 = 80;
const NEWLINE: u64 = 55;
const PUNCTUATION: u64 = 82;
const PUNCTUATION_RUN: u64 = 75;
const PUNCTUATION_BEYOND: u64 = 33;

/// Bytes of a payload's JSON per token, if only its length is known.
///
/// Source: [`estimate`] counts one token per 2 to 4.7 bytes of compact JSON, so the result is a low
/// estimate.
const RAW_BYTES_PER_TOKEN: u64 = 5;

/// A lower bound for the tokens of payloads of `bytes` bytes, if a language model read their JSON.
pub const fn of_raw_bytes(bytes: u64) -> u64 {
    bytes / RAW_BYTES_PER_TOKEN
}

/// Estimates the tokens of `text`, rounded to whole tokens.
///
/// Shape: a table of steps from byte to byte, because runs are too short for code with a start and
/// an end per run. Each step depends on the previous one, so two halves are processed in parallel;
/// the second half starts after a newline.
pub fn estimate(text: &str) -> Tokens {
    let middle = text.len() / 2;
    let newline = text.as_bytes().get(middle..).and_then(|rest| memchr::memchr(b'\n', rest));
    let end_of_first = newline.map_or(text.len(), |at| middle + at + 1);
    let (first, second) = text.as_bytes().split_at_checked(end_of_first).unwrap_or_default();
    let (together, rest) = first.split_at_checked(second.len()).unwrap_or((first, &[]));
    let (mut front, mut back) = (Sum::START, Sum::START);
    for (one, other) in together.iter().zip(second) {
        front.add(*one);
        back.add(*other);
    }
    rest.iter().for_each(|byte| front.add(*byte));
    let mut hundredths = front.hundredths + back.hundredths;
    if !text.is_ascii() {
        hundredths += text.chars().filter(|c| !c.is_ascii()).map(cost_of_other).sum::<u64>();
    }
    Tokens(u32::try_from((hundredths + UNIT / 2) / UNIT).unwrap_or(u32::MAX))
}

/// The cost of a text's bytes, except characters outside ASCII.
struct Sum {
    /// The index of the steps after the last byte.
    place: usize,
    hundredths: u64,
}

impl Sum {
    const START: Self = Self { place: State::START.place(), hundredths: 0 };

    fn add(&mut self, byte: u8) {
        let class = CLASSES.get(usize::from(byte)).copied().unwrap_or(Class::Other);
        let step = STEPS.get(self.place + class as usize).copied().unwrap_or(Step::NONE);
        self.place = usize::from(step.to);
        self.hundredths += u64::from(step.cost);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Small,
    Capital,
    Digit,
    Space,
    Newline,
    Punctuation,
    /// Not ASCII; such a byte costs nothing, because the characters are counted separately.
    Other,
}

impl Class {
    const ALL: [Self; 7] =
        [Self::Small, Self::Capital, Self::Digit, Self::Space, Self::Newline, Self::Punctuation, Self::Other];

    const fn of(byte: u8) -> Self {
        match byte {
            b'a'..=b'z' => Self::Small,
            b'A'..=b'Z' => Self::Capital,
            b'0'..=b'9' => Self::Digit,
            b' ' | b'\t' => Self::Space,
            b'\n' | b'\r' => Self::Newline,
            0x80.. => Self::Other,
            _ => Self::Punctuation,
        }
    }
}

/// A letter that continues a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Letter {
    /// A capital after a small letter.
    Hump,
    Plain,
}

/// The state on which the cost of the next byte depends: the class of the previous byte, and its
/// run's length so far. Small letters and capitals form one run. One number encodes its two
/// lengths: all its letters, and those since the last hump. Counts stop where the cost no longer
/// changes; digits are counted in groups of three.
#[derive(Clone, Copy)]
struct State {
    class: Class,
    count: u64,
}

impl State {
    /// The state after a newline, which does not affect the next cost.
    const START: Self = Self { class: Class::Newline, count: 1 };
    const RUN_MAX: u64 = WORD_LETTERS_FREE + 1;
    const SINCE_HUMP_MAX: u64 = WORD_LETTERS_MAX + 1;
    const COUNT_MAX: u64 = Self::RUN_MAX * Self::SINCE_HUMP_MAX;

    /// Encodes the numbers of letters in a run and since its last hump.
    const fn letters(run: u64, since_hump: u64) -> u64 {
        let run = if run > Self::RUN_MAX { Self::RUN_MAX } else { run };
        let since_hump = if since_hump > Self::SINCE_HUMP_MAX { Self::SINCE_HUMP_MAX } else { since_hump };
        (since_hump - 1) * Self::RUN_MAX + run
    }

    /// The index of the steps from this state in [`STEPS`], one per class.
    const fn place(self) -> usize {
        (self.class as usize * Self::COUNT_MAX as usize + self.count as usize - 1) * Class::ALL.len()
    }

    /// Returns the state after a byte of `class`, and the cost of that byte.
    const fn step(self, class: Class) -> (Self, u64) {
        use Class::{Capital, Digit, Newline, Other, Punctuation, Small, Space};
        let goes_on = self.class as usize == class as usize
            || matches!((self.class, class), (Small, Capital) | (Capital, Small));
        let count = if goes_on { self.count + 1 } else { 1 };
        let (count, cost) = match (class, count) {
            (Small | Capital, _) if goes_on => {
                let letter = if matches!((self.class, class), (Small, Capital)) {
                    Letter::Hump
                } else {
                    Letter::Plain
                };
                self.next_letter(letter)
            }
            (Small | Capital, _) => (Self::letters(1, 1), WORD),
            (Digit, 2..=DIGITS_PER_TOKEN) => (count, 0),
            (Digit, _) if matches!(self, Self { class: Space, count: 1 }) => (1, UNIT + SPACE_BEFORE_DIGITS),
            (Digit, _) => (1, UNIT),
            (Space, 1) => (1, 0),
            (Space, 2) => (2, SPACE_RUN),
            (Space, _) => (3, 0),
            (Newline, _) => (1, NEWLINE),
            (Punctuation, 1) => (1, PUNCTUATION),
            (Punctuation, 2) => (2, PUNCTUATION_RUN + PUNCTUATION_BEYOND - PUNCTUATION),
            (Punctuation, _) => (3, PUNCTUATION_BEYOND),
            (Other, _) => (1, 0),
        };
        (Self { class, count }, cost)
    }

    /// Returns the count after one more letter of a run, and its cost.
    const fn next_letter(self, letter: Letter) -> (u64, u64) {
        let run = (self.count - 1) % Self::RUN_MAX + 2;
        let (since_hump, more) = match letter {
            Letter::Hump => (1, CAMEL_HUMP),
            Letter::Plain => ((self.count - 1) / Self::RUN_MAX + 2, 0),
        };
        let cost = match (run, since_hump) {
            (_, since_hump) if since_hump > WORD_LETTERS_MAX => LETTER_OF_NO_WORD,
            (..=WORD_LETTERS_FREE, _) => 0,
            (_, _) => LETTER_BEYOND,
        };
        (Self::letters(run, since_hump), cost + more)
    }
}

/// A step for one byte: the index of the next steps, and the byte's cost.
#[derive(Clone, Copy)]
struct Step {
    to: u16,
    cost: u16,
}

impl Step {
    const NONE: Self = Self { to: 0, cost: 0 };
}

/// The class of every byte.
#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < classes.len() {
        classes[byte] = Class::of(byte as u8);
        byte += 1;
    }
    classes
};

/// [`State::step`] for every state and class.
#[expect(clippy::indexing_slicing, reason = "evaluated when it is compiled")]
static STEPS: [Step; Class::ALL.len() * State::COUNT_MAX as usize * Class::ALL.len()] = {
    let mut steps = [Step::NONE; _];
    let mut at = 0;
    while at < steps.len() {
        let (state, next) = (at / Class::ALL.len(), Class::ALL[at % Class::ALL.len()]);
        let class = Class::ALL[state / State::COUNT_MAX as usize];
        let from = State { class, count: state as u64 % State::COUNT_MAX + 1 };
        let (to, cost) = from.step(next);
        steps[at] = Step { to: to.place() as u16, cost: cost as u16 };
        at += 1;
    }
    steps
};

/// Hundredths of a token for one character outside ASCII, by Unicode block.
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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn estimates_are_near_what_o200k_counts() {
        for (text, counted) in [("critical:", 2), ("!critical:", 3), ("\"!critical\":", 3)] {
            assert_eq!(estimate(text), Tokens(counted), "{text}");
        }
    }

    #[test]
    fn estimate_from_raw_length_is_a_lower_bound() {
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

    /// Lower-case letters without words: a multiplication generates each from the previous one.
    fn random_letters(count: u32) -> String {
        let mut state = 1_u32;
        let letter = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            char::from(b'a' + u8::try_from(state >> 24).expect("eight bits") % 26)
        };
        (0..count).map(letter).collect()
    }

    #[test]
    fn random_letters_cost_more_than_long_words() {
        let Tokens(estimated) = estimate(&random_letters(1_900));
        assert!((800..=1_000).contains(&estimated), "{estimated}");
        for word in ["internationalize", "getUserAccountInformation", "incomprehensibilities"] {
            let Tokens(estimated) = estimate(word);
            assert!(estimated <= 6, "{word}: {estimated}");
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

    /// The sum of the weights, run by run.
    fn by_runs(text: &str) -> Tokens {
        let class = |c: char| match c {
            'a'..='z' | 'A'..='Z' => 'a',
            '0'..='9' => '0',
            ' ' | '\t' => ' ',
            '\n' | '\r' => '\n',
            c if c.is_ascii() => '.',
            _ => 'x',
        };
        let chars: Vec<char> = text.chars().collect();
        let (mut hundredths, mut spaces) = (0, 0);
        for run in chars.chunk_by(|a, b| class(*a) == class(*b)) {
            let length = run.len() as u64;
            let is_hump = |pair: &&[char]| pair[0].is_ascii_lowercase() && pair[1].is_ascii_uppercase();
            let first = class(run[0]);
            hundredths += match (first, length) {
                ('a', _) => {
                    let humps = run.windows(2).filter(is_hump).count() as u64;
                    let words = run.chunk_by(|a, b| !is_hump(&[*a, *b].as_slice()));
                    let of_no_word = words.map(|word| (word.len() as u64).saturating_sub(WORD_LETTERS_MAX));
                    WORD + CAMEL_HUMP * humps
                        + LETTER_BEYOND * length.saturating_sub(WORD_LETTERS_FREE)
                        + (LETTER_OF_NO_WORD - LETTER_BEYOND) * of_no_word.sum::<u64>()
                }
                ('0', _) => {
                    let before = if spaces == 1 { SPACE_BEFORE_DIGITS } else { 0 };
                    before + UNIT * length.div_ceil(DIGITS_PER_TOKEN)
                }
                (' ', 1) => 0,
                (' ', _) => SPACE_RUN,
                ('\n', _) => NEWLINE * length,
                ('.', 1) => PUNCTUATION,
                ('.', _) => PUNCTUATION_RUN + PUNCTUATION_BEYOND * (length - 1),
                _ => run.iter().copied().map(cost_of_other).sum(),
            };
            spaces = if first == ' ' { length } else { 0 };
        }
        Tokens(u32::try_from((hundredths + UNIT / 2) / UNIT).expect("small"))
    }

    proptest! {
        #[test]
        fn bytewise_estimate_equals_estimate_by_runs(
            text in r"([a-z]{1,9}|[a-z]{10,30}|[A-Z]{1,3}|[0-9]{1,8}| {1,4}|\n{1,2}|[.,:=-]{1,4}|\PC{1,2}|[\t\r\x00-\x7f])*",
        ) {
            prop_assert_eq!(estimate(&text), by_runs(&text), "{:?}", text);
        }
    }

    #[test]
    fn more_text_never_costs_less() {
        let text = "tool_fails[2]{tool,error}:\n  grep,\"timeout: 30 s\"\n  fetch,null";
        let costs: Vec<_> = (0..=text.len()).map(|end| estimate(&text[..end])).collect();
        assert!(costs.windows(2).all(|pair| pair[0] <= Tokens(pair[1].0 + 1)), "{costs:?}");
    }
}
