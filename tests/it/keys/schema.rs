//! The JSON schemas of `aside.toml` and of a subscriber's file, for editors.

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

/// The schema of a subscriber's file.
pub(super) fn subscriber_schema(tables: &[FileTable]) -> Value {
    let mut root = json!({
        "$schema": VERSION,
        "title": "A subscriber of aside",
        "type": "object",
        "additionalProperties": false,
        "required": ["subscriber"],
        "properties": { "tests": tests() },
        // A file that inherits has the events of the earlier file.
        "anyOf": [
            { "required": ["events"] },
            { "properties": { "subscriber": { "required": ["inherit"], "properties": { "inherit": { "const": true } } } } },
        ],
    });
    for table in tables {
        let mut own = keys(&table.keys);
        if table.name == "events" {
            let own = own.as_object_mut().expect("a schema");
            let required = own.remove("required").expect("the types");
            root["anyOf"][0]["properties"] = json!({ "events": { "required": required } });
        }
        own["description"] = about(table).into();
        root["properties"][table.name.as_str()] = own;
    }
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

/// `[[tests]]`, which `config::case` reads.
fn tests() -> Value {
    let text = || json!({ "type": "string" });
    let notice = ["message", "level", "category", "link"].map(|name| (name.to_owned(), text()));
    let notice = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": Map::from_iter(notice),
    });
    let attributes = ["severity", "source", "dedupe_key"].map(|name| (name.to_owned(), text()));
    let attributes = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": Map::from_iter(attributes),
    });
    let expectation = json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["at", "decoded"],
        "properties": {
            "at": { "type": "string", "description": "When the batch closes." },
            "decoded": { "type": "object", "description": "The least that the content decodes to." },
            "sentence": { "type": "string", "description": "The line for a person." },
            "notices": { "type": "array", "items": { "anyOf": [text(), notice] } },
        },
    });
    json!({
        "type": "array",
        "description": "The behaviour of the subscriber on a timeline that begins at zero.",
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["name", "at", "expect"],
            "properties": {
                "name": { "type": "string", "description": "A name, unique in the file." },
                "at": {
                    "type": "array",
                    "description": "Events in order: time, type, payload, and attributes.",
                    "items": {
                        "type": "array",
                        "minItems": 3,
                        "items": [text(), text(), { "type": "object" }, attributes],
                        "additionalItems": false,
                    },
                },
                "expect": {
                    "type": "array",
                    "description": "Every resulting notification, in order.",
                    "items": expectation,
                },
            },
        },
    })
}
