//! Checks a value by a JSON schema: the part of JSON Schema that the generated schemas use. An
//! unknown word of a schema is a panic.

use regex::Regex;
use serde_json::{Map, Value};

/// The faults of a value at `place`, of which each names its place.
pub(super) fn faults(schema: &Value, value: &Value, place: &str) -> Vec<String> {
    let words = schema.as_object().expect("a schema");
    let mut found = Vec::new();
    for (word, rule) in words {
        let is_kept = match word.as_str() {
            "$schema" | "title" | "description" | "default" | "examples" => true,
            // These are checked with the keys and the items of the value.
            "properties" | "additionalProperties" | "additionalItems" => true,
            "type" => is_type(rule.as_str().expect("a type"), value),
            "enum" => rule.as_array().expect("a list").contains(value),
            "const" => rule == value,
            "pattern" => value.as_str().is_none_or(|text| {
                Regex::new(rule.as_str().expect("a pattern")).expect("a pattern").is_match(text)
            }),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= number(rule)),
            "minimum" => value.as_i64().is_none_or(|count| count >= rule.as_i64().expect("a number")),
            "maximum" => value.as_i64().is_none_or(|count| count <= rule.as_i64().expect("a number")),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= number(rule)),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= number(rule)),
            "maxProperties" => value.as_object().is_none_or(|keys| keys.len() as u64 <= number(rule)),
            "required" => {
                let keys = value.as_object();
                let names = rule.as_array().expect("a list").iter().filter_map(Value::as_str);
                let missing = names.filter(|name| keys.is_some_and(|keys| !keys.contains_key(*name)));
                found.extend(missing.map(|name| format!("{place}: {name} is missing")));
                true
            }
            "items" => {
                found.extend(faults_of_items(rule, value, place));
                true
            }
            "anyOf" => {
                let each = rule.as_array().expect("a list").iter();
                let each: Vec<_> = each.map(|schema| faults(schema, value, place)).collect();
                if each.iter().all(|found| !found.is_empty()) {
                    found.extend(each.into_iter().flatten());
                }
                true
            }
            word => panic!("the schema has the unknown word {word}"),
        };
        if !is_kept {
            found.push(format!("{place}: {value} does not fit {word} = {rule}"));
        }
    }
    if let Some(keys) = value.as_object() {
        found.extend(faults_of_keys(words, keys, place));
    }
    found
}

fn faults_of_keys(words: &Map<String, Value>, keys: &Map<String, Value>, place: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (name, value) in keys {
        let place = format!("{place}.{name}");
        match (words.get("properties").and_then(|own| own.get(name)), words.get("additionalProperties")) {
            (Some(schema), _) => found.extend(faults(schema, value, &place)),
            (None, Some(Value::Bool(false))) => found.push(format!("{place}: it is unknown")),
            (None, Some(schema @ Value::Object(_))) => found.extend(faults(schema, value, &place)),
            (None, _) => {}
        }
    }
    found
}

fn faults_of_items(rule: &Value, value: &Value, place: &str) -> Vec<String> {
    let items = value.as_array().into_iter().flatten().enumerate();
    let schema = |index: usize| rule.as_array().map_or(Some(rule), |each| each.get(index));
    let checked = items.map(|(index, item)| match schema(index) {
        Some(schema) => faults(schema, item, &format!("{place}[{index}]")),
        None => vec![format!("{place}[{index}]: there are too many items")],
    });
    checked.flatten().collect()
}

fn number(rule: &Value) -> u64 {
    rule.as_u64().expect("a number")
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        name => panic!("the schema has the unknown type {name}"),
    }
}
