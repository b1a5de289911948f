//! The JSON schemas of `aside.toml`, of a subscriber's file and of `events.toml`, for editors, from the
//! tables that the readers of these files use.

#![expect(clippy::indexing_slicing, reason = "an index of a JSON object adds the field")]

mod words;

use engine::{
    event::Severity,
    exchange::Format,
    ledger::Reason,
    notification::{Activation, InjectionPoint, Interrupt, Priority, repeat::Action as RepeatAction},
    settings::{Key, Shape},
    words::Words,
};
use serde_json::{Map, Value, json};

pub use self::words::{joined, limits, plain};
use crate::config::{
    budget,
    case::{DirectiveWord, TestSessionState},
    keys::FileTable,
};

const VERSION: &str = "http://json-schema.org/draft-07/schema#";

/// A kind of file that has a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum SchemaName {
    /// A subscriber's file.
    Subscriber,
    /// `aside.toml`.
    Aside,
    /// `events.toml`.
    Events,
}

engine::words::impl_as_str!(SchemaName);

impl SchemaName {
    /// Its schema; `types` are the known types of events, as suggestions.
    pub fn schema(self, types: &[&str]) -> Value {
        match self {
            Self::Subscriber => subscriber_schema(&crate::config::keys::subscriber(), types),
            Self::Aside => settings_schema(&crate::config::keys::settings()),
            Self::Events => events_schema(),
        }
    }
}

/// The schema of `events.toml`.
pub fn events_schema() -> Value {
    let entry = object(
        &["type"],
        &json!({
            "type": {
                "type": "string",
                "pattern": "^[A-Za-z0-9_-]+(\\.[A-Za-z0-9_-]+){1,7}$",
                "description": "The type: 2 to 8 segments.",
            },
            "severity": described(severity(), "The severity of an event that has none."),
            "description": described(text(), "When it is published, in one sentence."),
            "example": described(json!({ "type": "object" }), "A payload as producers send it."),
        }),
    );
    json!({
        "$schema": VERSION,
        "title": "events.toml",
        "description": "Types of events that are not in the catalogue of aside.",
        "type": "object",
        "additionalProperties": false,
        "properties": { "event": { "type": "array", "items": entry } },
    })
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

/// The schema of `aside.toml`.
pub fn settings_schema(tables: &[FileTable]) -> Value {
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

/// The schema of a subscriber's file; `types` are suggestions for the patterns of its types.
pub fn subscriber_schema(tables: &[FileTable], types: &[&str]) -> Value {
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
    if !types.is_empty() {
        let patterns = &mut root["properties"]["events"]["properties"]["types"]["items"];
        *patterns = json!({ "anyOf": [{ "enum": types }, patterns.clone()] });
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
        Shape::Decimal => json!({ "type": "number" }),
        Shape::Duration(_) => json!({ "type": "string", "pattern": "[0-9] *[A-Za-z]" }),
        Shape::Words(words) => json!({ "enum": words }),
        Shape::Text(_) | Shape::Form(..) => json!({ "type": "string" }),
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
    }
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn words<T: Words>() -> Value {
    json!({ "enum": T::words().collect::<Vec<_>>() })
}

fn severity() -> Value {
    json!({ "enum": Severity::words().chain(["warn"]).collect::<Vec<_>>() })
}

fn object(required: &[&str], properties: &Value) -> Value {
    let mut object = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    if !required.is_empty() {
        object["required"] = json!(required);
    }
    object
}

/// The steps of a test.
fn steps() -> Value {
    let flag = json!({ "type": "boolean" });
    let attributes = object(
        &[],
        &json!({
            "severity": severity(), "source": text(), "trusted": flag, "dedupe_key": text(), "session": text(),
            "deliver_after": text(), "workspace": text(), "everywhere": flag, "copies": count(),
        }),
    );
    let event = json!({
        "type": "array",
        "minItems": 3,
        "items": [text(), text(), { "type": "object" }, attributes],
        "additionalItems": false,
    });
    let fixture = json!({
        "type": "array",
        "minItems": 2,
        "items": [text(), { "type": "string", "pattern": "^@" }],
        "additionalItems": false,
    });
    let budget = json!({ "max_notifications": count(), "max_tokens": count(), "max_chars": count() });
    let exchange = object(
        &["at", "exchange"],
        &json!({
            "at": text(), "exchange": words::<InjectionPoint>(), "session": text(),
            "workspace": text(), "tool": text(), "turn": text(), "step": text(),
            "format": words::<Format>(), "budget": object(&[], &budget),
            "context": { "enum": ["unchanged", "compacted", "resumed", "cleared", "forked"] }, "from": text(),
        }),
    );
    let state = object(
        &["at", "state"],
        &json!({
            "at": text(), "state": words::<TestSessionState>(), "session": text(),
            "workspace": text(), "parent": text(),
        }),
    );
    let restart = object(&["at", "restart"], &json!({ "at": text(), "restart": { "const": true } }));
    let silence = json!({
        "name": text(), "subscriber": text(), "types": { "type": "array", "items": text() }, "source": text(), "where": text(),
        "session": text(), "workspace": text(), "critical": flag, "for": text(),
    });
    let silence = object(&["at", "silence"], &json!({ "at": text(), "silence": object(&[], &silence) }));
    let expire = object(&["at", "expire"], &json!({ "at": text(), "expire": text() }));
    let respond = json!({ "at": text(), "respond": words::<RepeatAction>(), "for": text() });
    let respond = object(&["at", "respond"], &respond);
    let settings = object(&["at", "settings"], &json!({ "at": text(), "settings": { "type": "object" } }));
    json!({ "anyOf": [event, fixture, exchange, state, silence, expire, respond, settings, restart] })
}

/// What a test expects.
fn expectations() -> Value {
    let texts = || json!({ "anyOf": [text(), { "type": "array", "items": text() }] });
    let notice = ["message", "level", "category", "link"].map(|name| (name.to_owned(), text()));
    let notice = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": Map::from_iter(notice),
    });
    let delivered = json!({ "type": "array", "items": { "anyOf": [text(), { "type": "object" }] } });
    let outcome = object(
        &["at"],
        &json!({
            "at": { "type": "string", "description": "When the batch closes, or the exchange is made." },
            "decoded": { "type": "object", "description": "The least that the content decodes to." },
            "text": { "type": "string", "description": "The whole content." },
            "contains": texts(), "lacks": texts(),
            "sentence": { "type": "string", "description": "The line for a person." },
            "delivered": delivered,
            "point": words::<InjectionPoint>(), "priority": words::<Priority>(),
            "severity": severity(), "activation": words::<Activation>(),
            "interrupt": words::<Interrupt>(), "requires_response": { "type": "boolean" },
            "format": words::<Format>(),
            "max_tokens": count(), "directive": words::<DirectiveWord>(),
            "more": { "type": "string", "description": "The line of a release about what stays pending." },
            "notices": { "type": "array", "items": { "anyOf": [text(), notice] } },
        }),
    );
    let reasons: Vec<_> = Reason::texts().map(|text| text.word).collect();
    let ended = object(
        &["ended"],
        &json!({ "ended": { "enum": reasons }, "count": count(), "by": text(), "at": text() }),
    );
    let region = object(
        &["region", "at"],
        &json!({
            "region": { "type": "string", "description": "The session whose region is read." },
            "at": { "type": "string", "description": "When it is read, after the steps of that time." },
            "decoded": { "type": "object", "description": "The least that the region decodes to." },
            "text": { "type": "string", "description": "The whole region, as TOON." },
            "contains": texts(), "lacks": texts(), "max_tokens": count(),
        }),
    );
    json!({ "anyOf": [outcome, ended, region] })
}

/// `[[tests]]`, which `config::case` reads.
fn tests() -> Value {
    json!({
        "type": "array",
        "description": "The behaviour of the subscriber on a timeline that begins at zero.",
        "items": {
            "type": "object",
            "additionalProperties": false,
            "required": ["name", "at", "expect"],
            "properties": {
                "name": { "type": "string", "description": "A name, unique in the file." },
                "start": { "type": "string", "description": "When the timeline begins, with a zone." },
                "with": {
                    "type": "array",
                    "description": "Ids of other subscribers in the engine.",
                    "items": text(),
                },
                "budget": described(keys(&budget::Written::table().keys), "`[budget]` in force, as in `aside.toml`."),
                "at": {
                    "type": "array",
                    "description": "The steps in order; an array is an event: time, type, payload, attributes; or a time and `@FIXTURE`.",
                    "items": steps(),
                },
                "expect": {
                    "type": "array",
                    "description": "What happens, in order.",
                    "items": expectations(),
                },
            },
        },
    })
}
