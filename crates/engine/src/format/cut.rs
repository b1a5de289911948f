//! Cuts a notification's content to the available room.
//!
//! Rows are removed first, from the end, then long texts are cut. If that is not enough, the start
//! of the content becomes a single text. The result is always TOON, with a mark that describes the
//! cut and explains how to read the whole content.

use serde_json::Value;
use toon::Document;

use crate::notification::{Cut, NotificationId};

use super::toon::decode;

/// The last character of a cut text.
pub(super) const ELLIPSIS: char = '\u{2026}';
/// No text is cut below this length while others are longer, because a few words keep some meaning.
const TEXT_CHARS_MIN: usize = 24;

/// As much of `content` as fits in `chars_max` characters; at least an ellipsis.
pub fn shorten(id: &NotificationId, content: &Document, chars_max: usize) -> Cut {
    let whole = decode(content);
    let fits = |value: &Value| toon::encode(value).chars().count() <= chars_max;
    let mark = |what: &str| format!("{what}; aside why {id} shows all").into();
    let cut = |value: &Value, what: &str| Cut {
        content: toon::encode(value).into(),
        is_text: false,
        mark: mark(what),
    };

    let rows = longest_list(&whole);
    if let Some(kept) = largest(1, rows.saturating_sub(1), |kept| fits(&with_rows(&whole, kept))) {
        return cut(&with_rows(&whole, kept), &format!("{kept} of {rows} rows"));
    }
    let first = with_rows(&whole, 1);
    let longest = longest_text(&first);
    let texts = largest(TEXT_CHARS_MIN, longest.saturating_sub(1), |kept| fits(&with_texts(&first, kept)));
    if let Some(kept) = texts {
        let what =
            if rows > 1 { format!("1 of {rows} rows, long texts cut") } else { "long texts cut".to_owned() };
        return cut(&with_texts(&first, kept), &what);
    }
    let beginning = |kept| Value::from(shortened(content, kept));
    let kept = largest(0, content.chars().count().saturating_sub(1), |kept| fits(&beginning(kept)));
    Cut { is_text: true, ..cut(&beginning(kept.unwrap_or(0)), "the beginning") }
}

/// The largest number in `least..=most` for which `is_enough` holds; the predicate must be
/// monotonic.
fn largest(least: usize, most: usize, is_enough: impl Fn(usize) -> bool) -> Option<usize> {
    if least > most || !is_enough(least) {
        return None;
    }
    let (mut enough, mut most) = (least, most);
    while enough < most {
        let middle = enough + (most - enough).div_ceil(2);
        if is_enough(middle) {
            enough = middle;
        } else {
            most = middle - 1;
        }
    }
    Some(enough)
}

/// The length of the longest list in `value`.
fn longest_list(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(longest_list).fold(items.len(), usize::max),
        Value::Object(fields) => fields.values().map(longest_list).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// The length of the longest text in `value`, in characters.
fn longest_text(value: &Value) -> usize {
    match value {
        Value::String(text) => text.chars().count(),
        Value::Array(items) => items.iter().map(longest_text).max().unwrap_or(0),
        Value::Object(fields) => fields.values().map(longest_text).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Returns the value with at most `kept` items per list.
fn with_rows(value: &Value, kept: usize) -> Value {
    match value {
        Value::Array(items) => items.iter().take(kept).map(|item| with_rows(item, kept)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), with_rows(value, kept))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

/// Returns the value with at most `kept` characters per text.
fn with_texts(value: &Value, kept: usize) -> Value {
    match value {
        Value::String(text) => shortened(text, kept).into(),
        Value::Array(items) => items.iter().map(|item| with_texts(item, kept)).collect(),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(key, value)| (key.clone(), with_texts(value, kept))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn shortened(text: &str, kept: usize) -> String {
    match text.char_indices().nth(kept).and_then(|(end, _)| text.get(..end)) {
        Some(beginning) => format!("{beginning}{ELLIPSIS}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(content: &str, chars_max: usize) -> (String, String) {
        let Cut { content, is_text, mark } = shorten(&NotificationId::new("n1"), &content.into(), chars_max);
        assert_eq!(is_text, mark.starts_with("the beginning"), "{mark}");
        (content.to_string(), mark.to_string())
    }

    #[test]
    fn cutting_removes_rows_before_texts_before_structure() {
        let table = "fails[3]{tool,error}:\n  grep,a long sentence that says what happened\n  ls,b\n  cat,c";
        for (chars_max, content, mark) in [
            (
                80,
                "fails[2]{tool,error}:\n  grep,a long sentence that says what happened\n  ls,b",
                "2 of 3 rows",
            ),
            (
                60,
                "fails[1]{tool,error}:\n  grep,a long sentence that says what\u{2026}",
                "1 of 3 rows, long texts cut",
            ),
            (20, "\"fails[3]{tool,err\u{2026}\"", "the beginning"),
            (0, "\u{2026}", "the beginning"),
        ] {
            let expected = (content.to_owned(), format!("{mark}; aside why n1 shows all"));
            assert_eq!(cut(table, chars_max), expected, "{chars_max}");
        }
    }

    proptest! {
        #[test]
        fn cut_content_stays_valid_toon_within_the_limit(
            rows in proptest::collection::vec(("\\PC{0,40}", -5_i64..5), 0..20),
            note in "\\PC{0,200}",
            chars_max in 1_usize..600,
        ) {
            let rows: Vec<Value> = rows.iter().map(|(a, b)| serde_json::json!({ "a": a, "b": b })).collect();
            let content = toon::encode(&serde_json::json!({ "rows": rows, "note": note }));
            let (left, _) = cut(&content, chars_max);
            prop_assert!(toon::decode(&left).is_ok(), "{}", left);
            prop_assert!(left.chars().count() <= chars_max.max(3), "{}", left);
        }
    }
}
