//! Payloads with other texts and numbers, so that copies of an event are events of their own.

use std::mem;

use journal::time::Timestamp;
use serde_json::{Value, json};

/// Changes each text and number of a payload, but times.
///
/// Shape: a text that ends with digits has a larger number, another one a number at its end; booleans
/// and nulls stay, and the order of fields.
pub(super) fn vary(value: &mut Value, number: usize) {
    match value {
        Value::Null | Value::Bool(_) => {}
        Value::Number(own) => {
            let more = own.as_i64().and_then(|own| own.checked_add(i64::try_from(number).ok()?));
            let more = more.map(Value::from).or_else(|| Some(json!(own.as_f64()? + 1.0)));
            *value = more.unwrap_or_else(|| mem::take(value));
        }
        // A time is one of a kind already: any other text in its place is no time.
        Value::String(text) if text.parse::<Timestamp>().is_ok() => {}
        Value::String(text) => {
            let start = text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
            let (word, digits) = text.split_at_checked(start).unwrap_or((text, ""));
            let count = digits.parse::<u64>().ok().and_then(|own| own.checked_add(number as u64));
            *text = match count {
                Some(count) => format!("{word}{count}"),
                None => format!("{text} {}", number + 1),
            };
        }
        Value::Array(items) => items.iter_mut().for_each(|item| vary(item, number)),
        Value::Object(fields) => fields.values_mut().for_each(|field| vary(field, number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_and_number_is_another_one() {
        let mut payload = json!({
            "name": "web7", "n": 1, "x": 0.5, "list": ["a", { "b": true }], "at": "2026-01-05T09:00:00Z", "no": null,
        });
        vary(&mut payload, 2);
        let varied = json!({
            "name": "web9", "n": 3, "x": 1.5, "list": ["a 3", { "b": true }], "at": "2026-01-05T09:00:00Z", "no": null,
        });
        assert_eq!(payload, varied);
    }
}
