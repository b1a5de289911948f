//! The JSON schema of `aside.toml`, for editors.

use aside::config::keys::FileTable;
use engine::settings::{Key, Shape};
use serde_json::{Map, Value, json};

use super::text::{joined, limits, plain};

const VERSION: &str = "http://json-schema.org/draft-07/schema#";

/// The schema of `aside.toml`.
pub(super) fn settings_schema(tables: &[FileTable]) -> Value {
    let mut root = json!({
        "$schema": VERSION,
        "title": "aside.toml",
        "description": "The settings of aside.",
        "type": "object",
        "additionalProperties": false,
        "properties": {},
    });
    for table in tables {
        let mut at = &mut root;
        for part in table.name.split('.') {
            at = &mut at["properties"][part];
        }
        *at = if table.is_list {
            json!({ "type": "array", "maxItems": 32, "items": keys(&table.keys), "description": about(table) })
        } else {
            let mut keys = keys(&table.keys);
            if !table.about.is_empty() {
                keys["description"] = about(table).into();
            }
            keys
        };
    }
    // The senders have no table of their own above them.
    root["properties"]["webhooks"]["type"] = "object".into();
    root["properties"]["webhooks"]["additionalProperties"] = false.into();
    root
}

fn about(table: &FileTable) -> String {
    plain(&joined(table.about))
}

/// A table with these keys.
fn keys(keys: &[Key]) -> Value {
    let properties: Map<String, Value> =
        keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> = keys.iter().filter(|key| key.is_required).map(|key| key.name).collect();
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        schema["required"] = required.into();
    }
    schema
}

fn property(key: &Key) -> Value {
    let mut schema = value(&key.shape);
    let limits = limits(&key.shape, "\"");
    let limits = if limits.is_empty() { limits } else { format!(" Allowed: {}.", plain(&limits)) };
    schema["description"] = format!("{}{limits}", plain(&joined(key.doc))).into();
    if let (Some(default), false) = (&key.default, matches!(key.shape, Shape::Named(..))) {
        schema["default"] = parsed(default);
    }
    if let Some(example) = key.example {
        schema["examples"] = json!([parsed(example)]);
    }
    schema
}

/// A value that is written as TOML.
fn parsed(literal: &str) -> Value {
    let table: toml::Table = format!("value = {literal}").parse().expect("a value of TOML");
    serde_json::to_value(table.get("value")).expect("TOML without dates is JSON")
}

fn value(shape: &Shape) -> Value {
    match shape {
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Number(limits) | Shape::Bytes(limits) => {
            json!({ "type": "integer", "minimum": limits.start(), "maximum": limits.end() })
        }
        Shape::Duration(_) => json!({ "type": "string", "pattern": "[0-9] *[A-Za-z]" }),
        Shape::Words(words) => json!({ "enum": words }),
        Shape::Text(_) => json!({ "type": "string" }),
        Shape::List(of, counts) => {
            let mut list = json!({ "type": "array", "items": value(of) });
            if *counts.start() > 0 {
                list["minItems"] = (*counts.start()).into();
            }
            if *counts.end() < usize::MAX {
                list["maxItems"] = (*counts.end()).into();
            }
            list
        }
        Shape::Map(of) => json!({ "type": "object", "additionalProperties": value(of) }),
        Shape::Keys(own) => keys(own),
        Shape::Named(own, max) => {
            json!({ "type": "object", "maxProperties": max, "additionalProperties": keys(own) })
        }
        Shape::Either(shapes) => json!({ "anyOf": shapes.iter().map(value).collect::<Vec<_>>() }),
        Shape::Only(literal) => json!({ "const": parsed(literal) }),
    }
}
