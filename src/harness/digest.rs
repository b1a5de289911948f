//! Digests of arguments and results of tool calls: equal for equal calls, without keeping their
//! content.

use std::{collections::BTreeMap, fmt};

use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use engine::hex::hex;

/// Most arguments that are sorted; more are digested in their order.
const ARGUMENTS_MAX: usize = 1_000;
/// Digested bytes of each end of a long result: an error is at one of them.
const END_BYTES: usize = 8 * 1024;
/// Numbers with at least this many digits are identifiers (a process, a port, a time), not counts
/// or shares.
const NAME_DIGITS: usize = 5;
/// Hexadecimal words with at least this many characters are ids.
const ID_CHARS: usize = 7;
/// Replaces a word that differs from run to run.
const BLANK: &[u8] = b"0";
/// The units of a duration.
const UNITS: [&str; 6] = ["ns", "us", "ms", "s", "m", "h"];

/// The digest of a call's arguments, independent of the order of keys.
///
/// Shape: 16 lower-case hexadecimal digits, the first 64 bits of a SHA-256.
pub(crate) fn of_arguments(arguments: &RawValue) -> String {
    let mut hash = Sha256::new();
    match serde_json::Deserializer::from_str(arguments.get()).deserialize_map(Sorted) {
        Ok(fields) => {
            for (name, value) in fields {
                for part in [name, value.get()] {
                    hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
                    hash.update(part);
                }
            }
        }
        Err(_) => hash.update(arguments.get()),
    }
    name(hash)
}

/// Reads at most [`ARGUMENTS_MAX`] arguments.
struct Sorted;

impl<'a> Visitor<'a> for Sorted {
    type Value = BTreeMap<&'a str, &'a RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at most {ARGUMENTS_MAX} arguments")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut fields = BTreeMap::new();
        while let Some((name, value)) = entries.next_entry()? {
            fields.insert(name, value);
            if fields.len() > ARGUMENTS_MAX {
                return Err(A::Error::invalid_length(fields.len(), &self));
            }
        }
        Ok(fields)
    }
}

/// The digest of a call's result, text or JSON, without parts that differ from run to run:
/// durations, times of day, long numbers and ids. Of a long result both ends are digested. Short
/// numbers are kept: the number of failed tests, or a percentage, shows progress.
///
/// Shape: as [`of_arguments`].
pub(crate) fn of_result(result: &str) -> String {
    let bytes = result.as_bytes();
    let mut hash = Sha256::new();
    match (bytes.get(..END_BYTES), bytes.get(bytes.len().saturating_sub(END_BYTES)..)) {
        (Some(begin), Some(end)) if bytes.len() > 2 * END_BYTES => {
            hash_words(&mut hash, begin);
            hash_words(&mut hash, end);
        }
        _ => hash_words(&mut hash, bytes),
    }
    name(hash)
}

fn name(hash: Sha256) -> String {
    hex(hash.finalize().iter().take(8))
}

fn hash_words(hash: &mut Sha256, bytes: &[u8]) {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'-');
    for words in bytes.chunk_by(|a, b| is_of_word(a) == is_of_word(b)) {
        let is_word = words.first().is_some_and(is_of_word);
        hash.update(if is_word && differs_from_run_to_run(words) { BLANK } else { words });
    }
}

fn differs_from_run_to_run(word: &[u8]) -> bool {
    let Ok(word) = std::str::from_utf8(word) else { return false };
    let word = word.trim_end_matches(['.', ':', '-']);
    if !word.starts_with(|c: char| c.is_ascii_hexdigit()) {
        return false;
    }
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits == word.len();
    let is_long_number = is_number && digits >= NAME_DIGITS;
    let is_hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let is_id = word.len() >= ID_CHARS && digits > 0 && is_hex(word);
    is_long_number || is_id || is_duration(word) || is_time(word)
}

/// Such as `0.52s`, `12ms` and `1m`.
fn is_duration(word: &str) -> bool {
    let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    word.strip_prefix(number).is_some_and(|unit| UNITS.contains(&unit)) && number.parse::<f64>().is_ok()
}

/// Such as `14:02:07` and `2026-11-22T14:02:07.123Z`.
fn is_time(word: &str) -> bool {
    let is_of_time = |byte: u8| byte.is_ascii_digit() || matches!(byte, b':' | b'-' | b'.' | b'T' | b'Z');
    word.matches(':').count() == 2 && word.bytes().all(is_of_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argument_digest_ignores_order_but_not_values() {
        let of = |json: &str| of_arguments(&RawValue::from_string(json.to_owned()).expect("JSON"));
        let first = of(r#"{"path":"a","offset":1}"#);
        assert_eq!(first.len(), 16);
        assert_eq!(first, of(r#"{ "offset":1, "path":"a" }"#));
        for other in
            [r#"{"path":"a","offset":2}"#, r#"{"path":"a"}"#, r#"{"path":"a","offset":"1"}"#, "[]", "7"]
        {
            assert_ne!(first, of(other), "{other}");
        }
    }

    #[test]
    fn result_digest_ignores_times_and_ids() {
        for (a, b) in [
            ("test result: ok. finished in 0.52s", "test result: ok. finished in 11.8s"),
            ("Took 41 ms at 14:02:07", "Took 41 ms at 14:02:09"),
            ("2026-11-22T14:02:07.123Z error", "2026-11-23T01:12:00Z error"),
            ("pid 123456 ended", "pid 99812 ended"),
            ("commit 1f0c2ab9", "commit 77aa012e"),
            ("id 0b22b073-9966-419d-aab8-4d409fbb534c.", "id 77e7b829-647f-4714-bc7b-808f2cb6a596."),
        ] {
            assert_eq!(of_result(a), of_result(b), "{a}");
        }
        for (a, b) in [
            ("3 failed", "2 failed"),
            ("45% done", "46% done"),
            ("src/cart.rs:41: error", "src/cart.rs:42: error"),
            ("feedback", "cabbage"),
            ("version 1.2.3", "version 1.2.4"),
            ("", "a"),
        ] {
            assert_ne!(of_result(a), of_result(b), "{a}");
        }
    }

    #[test]
    fn digest_of_long_result_covers_both_ends() {
        let long = |begin: &str, end: &str| format!("{begin}{}{end}", "x ".repeat(END_BYTES));
        let first = of_result(&long("a", "b"));
        assert_ne!(first, of_result(&long("c", "b")));
        assert_ne!(first, of_result(&long("a", "c")));
        assert_eq!(first, of_result(&format!("{}y", long("a", "b")).replace("y", "")));
        let odd = "\u{e9}".repeat(3 * END_BYTES) + "x";
        assert_ne!(of_result(&odd), of_result("x"));
    }
}
