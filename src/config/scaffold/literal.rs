//! JSON as a value of TOML, on one line.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use crate::config::report::is_bare_key;

/// The value without what TOML cannot express: nulls, and integers beyond its range; `None` if nothing
/// is left of it.
pub(super) fn expressible(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Number(number) if number.is_u64() && !number.is_i64() => None,
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
        Value::Array(items) => Some(items.iter().filter_map(expressible).collect()),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| Some((name.clone(), expressible(value)?));
            Some(Value::Object(fields.iter().filter_map(field).collect::<Map<_, _>>()))
        }
    }
}

/// An [`expressible`] value as TOML.
pub(super) fn inline(value: &Value) -> String {
    match value {
        // An expressible value has none.
        Value::Null => "\"\"".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => of_number(number),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(inline).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| format!("{} = {}", key(name), inline(value));
            format!("{{ {} }}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
    }
}

fn of_number(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(integer), _) => integer.to_string(),
        (None, Some(float)) => format!("{float:?}"),
        (None, None) => "0".to_owned(),
    }
}

/// A key, in quotes unless it is a bare one.
pub(super) fn key(name: &str) -> String {
    if is_bare_key(name) { name.to_owned() } else { quoted(name) }
}

/// A basic string.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// A text, of several lines as a literal string with a line for each.
pub(super) fn text(text: &str) -> String {
    match text.contains('\n') && !text.contains("'''") {
        true => format!("'''\n{text}'''"),
        false => quoted(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_back_as_they_were() {
        let value = json!({
            "a b": "x \"y\" \\ \n\t\u{7f}\u{1}", "n": -3, "f": 1.5, "big": 1e300, "whole": 2.0, "l": [1, { "k": true }],
            "empty": {}, "": "blank",
        });
        let text = format!("value = {}", inline(&expressible(&value).expect("a value")));
        let read: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
        assert_eq!(serde_json::to_value(&read["value"]).expect("JSON"), value);
        assert!(!text.contains('\n'), "{text}");
    }

    #[test]
    fn values_beyond_toml_are_left_out() {
        let value = json!({ "a": null, "b": [null, 1], "c": u64::MAX, "d": { "e": null } });
        assert_eq!(expressible(&value), Some(json!({ "b": [1], "d": {} })));
        assert_eq!(expressible(&Value::Null), None);
    }
}
