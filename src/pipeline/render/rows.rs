//! What a template sees of events: cleaned values, and rows that all have the same columns.
//!
//! Every string of a payload is stripped of control characters, has its secrets masked and is cut before a template can look at
//! it. `rows` flattens payloads so that they make one table: nested objects become `a.b` columns, short lists of scalars one text,
//! other lists their JSON text, and what a row does not have is null. A `repeats` column comes last, if any row repeated.
//! Nothing is copied or flattened before it is asked for, as a table mostly needs a few plain fields of each payload.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use minijinja::value::{Enumerator, Object, ObjectRepr, Serde, Value as Printed};
use serde_json::{Map, Value};

use crate::{
    event::{Event, SessionId, cut_text, mask_secrets, strip_text},
    pipeline::row::Row,
};

/// A list of at most this many scalars becomes words in one cell; a longer one its JSON text.
const LIST_WORDS_MAX: usize = 8;
/// Fields of the event itself, under the names by which a picked column asks for them.
const TYPE: &str = "@type";
const SOURCE: &str = "@source";
const SEVERITY: &str = "@severity";
const TIME: &str = "@time";
/// The column that says how often a row happened.
pub(super) const REPEATS: &str = "repeats";

/// An event whose every text is safe to show.
#[derive(Debug)]
pub(super) struct CleanEvent {
    event: Arc<Event>,
    /// How often it happened.
    pub(super) repeats: u32,
    /// The longest text that may be shown, in characters.
    pub(super) field_chars: usize,
    payload: OnceLock<Value>,
    /// Whether the keys of the payload are shown as they are.
    has_clean_keys: OnceLock<bool>,
    /// The payload once more, as templates take values.
    printed_payload: OnceLock<Printed>,
}

impl CleanEvent {
    /// Shows the event of `row`; no text field keeps more than `field_chars` characters.
    pub(super) fn new(row: &Row, field_chars: usize) -> Self {
        Self {
            event: row.event.clone(),
            repeats: row.repeats.max(1),
            field_chars,
            payload: OnceLock::new(),
            has_clean_keys: OnceLock::new(),
            printed_payload: OnceLock::new(),
        }
    }

    /// A field of the event itself, by the name that a picked column asks for.
    pub(super) fn envelope(&self, name: &str) -> Option<Value> {
        match name {
            TYPE => Some(self.event.event_type.as_str().into()),
            SOURCE => Some(self.clean(&self.event.source)),
            SEVERITY => Some(self.event.severity.as_str().into()),
            TIME => Some(self.event.timestamp.to_string().into()),
            _ => None,
        }
    }

    /// The whole payload, cleaned on first use.
    pub(super) fn payload(&self) -> &Value {
        self.payload.get_or_init(|| clean_value(self.event.payload.value(), self.field_chars))
    }

    /// A scalar field of the payload; `None` when it needs flattening or is not there.
    fn plain_field(&self, name: &str) -> Option<Cow<'_, Value>> {
        let value = self.event.payload.value().get(name)?;
        match value {
            Value::String(text) => {
                let changed = match clean_field(text, self.field_chars) {
                    Cow::Borrowed(_) => None,
                    Cow::Owned(clean) => Some(Cow::Owned(clean.into())),
                };
                Some(changed.unwrap_or(Cow::Borrowed(value)))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(Cow::Borrowed(value)),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Whether flattening the payload cannot give a field of that name either.
    fn lacks(&self, name: &str) -> bool {
        let has_clean_keys = *self.has_clean_keys.get_or_init(|| {
            let is_clean = |key: &String| matches!(clean_field(key, self.field_chars), Cow::Borrowed(_));
            self.event.payload.value().as_object().is_none_or(|fields| fields.keys().all(is_clean))
        });
        has_clean_keys && !name.contains('.') && self.event.payload.value().get(name).is_none()
    }

    fn clean(&self, text: &str) -> Value {
        clean_field(text, self.field_chars).into_owned().into()
    }
}

/// One of `events`, as a template sees it: a map whose fields are made when they are asked for.
#[derive(Debug)]
struct EventView(Arc<CleanEvent>);

/// The names of its fields, in the order in which they are listed.
const EVENT_FIELDS: [&str; 9] =
    ["id", "type", "source", "severity", "timestamp", "payload", REPEATS, "session", "workspace"];

impl Object for EventView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        let clean = &self.0;
        let text = |text: &str| Printed::from(clean_field(text, clean.field_chars).as_ref());
        let optional = |found: Option<&str>| found.map_or_else(|| Printed::from(()), text);
        Some(match key.as_str()? {
            "id" => text(&clean.event.id),
            "type" => Printed::from(clean.event.event_type.as_str()),
            "source" => text(&clean.event.source),
            "severity" => Printed::from(clean.event.severity.as_str()),
            "timestamp" => Printed::from(clean.event.timestamp.to_string()),
            "payload" => clean.printed_payload.get_or_init(|| Printed::from(Serde(clean.payload()))).clone(),
            REPEATS => Printed::from(clean.repeats),
            "session" => optional(clean.event.session.as_ref().map(SessionId::as_str)),
            "workspace" => optional(clean.event.workspace.as_deref()),
            _ => return None,
        })
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&EVENT_FIELDS)
    }
}

/// Text of a payload as it may be shown; borrowed exactly when nothing had to change.
pub(super) fn clean_field(text: &str, chars_max: usize) -> Cow<'_, str> {
    match strip_text(text) {
        Cow::Borrowed(text) if text.len() <= chars_max => mask_secrets(text),
        Cow::Borrowed(text) => cut_text(mask_secrets(text), chars_max),
        Cow::Owned(text) => cut_text(mask_secrets(&text), chars_max).into_owned().into(),
    }
}

fn clean_value(value: &Value, chars_max: usize) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => clean_field(text, chars_max).into_owned().into(),
        Value::Array(items) => items.iter().map(|item| clean_value(item, chars_max)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (clean_field(key, chars_max).into_owned(), clean_value(value, chars_max)))
            .collect(),
    }
}

/// The list `events`.
#[derive(Debug)]
pub(super) struct Events(pub(super) Arc<[Arc<CleanEvent>]>);

impl Object for Events {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.0.get(key.as_usize()?).map(|event| Printed::from_object(EventView(event.clone())))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

/// The list `rows`: flat objects with the same columns in the same order.
#[derive(Debug)]
pub(super) struct Rows {
    events: Arc<[Arc<CleanEvent>]>,
    flat: OnceLock<Flat>,
}

#[derive(Debug)]
struct Flat {
    columns: Vec<String>,
    /// As many cells as columns.
    cells: Vec<Vec<Value>>,
}

impl Rows {
    /// Takes its rows from `events`.
    pub(super) fn new(events: Arc<[Arc<CleanEvent>]>) -> Self {
        Self { events, flat: OnceLock::new() }
    }

    /// How many rows there are.
    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    /// The names of all columns.
    pub(super) fn columns(&self) -> &[String] {
        &self.flat().columns
    }

    /// The name of the column that counts repeats, if any row repeated.
    pub(super) fn repeats(&self) -> Option<String> {
        let is_taken =
            |name: &str| self.events.iter().any(|event| event.event.payload.value().get(name).is_some());
        let repeated = self.events.iter().any(|event| event.repeats > 1);
        repeated.then(|| super::free_key(REPEATS, is_taken))
    }

    /// One cell a row: of the columns that `names` lists, the first that is not null.
    pub(super) fn pick(&self, names: &[String]) -> Vec<Cow<'_, Value>> {
        let repeats = self.repeats();
        let first = |at: usize, event| {
            let mut found = names.iter().map(|name| self.cell(at, event, name, repeats.as_deref()));
            found.find(|cell| !cell.is_null()).unwrap_or(Cow::Owned(Value::Null))
        };
        self.events.iter().enumerate().map(|(at, event)| first(at, event)).collect()
    }

    fn cell<'r>(
        &'r self,
        at: usize,
        event: &'r CleanEvent,
        name: &str,
        repeats: Option<&str>,
    ) -> Cow<'r, Value> {
        if Some(name) == repeats {
            return Cow::Owned(event.repeats.into());
        }
        if let Some(value) = event.envelope(name) {
            return Cow::Owned(value);
        }
        if let Some(value) = event.plain_field(name) {
            return value;
        }
        let found = if event.lacks(name) { None } else { self.flat().cell(at, name) };
        found.map_or(Cow::Owned(Value::Null), Cow::Borrowed)
    }

    fn flat(&self) -> &Flat {
        self.flat.get_or_init(|| Flat::new(&self.events, self.repeats()))
    }
}

impl Flat {
    fn new(events: &[Arc<CleanEvent>], repeats: Option<String>) -> Self {
        let mut flat: Vec<Map<String, Value>> = events.iter().map(|event| flatten(event)).collect();
        let mut columns: Vec<String> = Vec::new();
        for row in &flat {
            columns.extend(row.keys().filter(|name| !columns.contains(name)).cloned().collect::<Vec<_>>());
        }
        if let Some(name) = repeats {
            for (row, event) in flat.iter_mut().zip(events) {
                row.insert(name.clone(), event.repeats.into());
            }
            columns.push(name);
        }
        let take =
            |row: &mut Map<String, Value>, name: &String| row.get_mut(name).map_or(Value::Null, Value::take);
        let cells = flat.iter_mut().map(|row| columns.iter().map(|name| take(row, name)).collect()).collect();
        Self { columns, cells }
    }

    fn cell(&self, at: usize, name: &str) -> Option<&Value> {
        self.cells.get(at)?.get(self.columns.iter().position(|column| column == name)?)
    }
}

impl Object for Rows {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        let flat = self.flat();
        let row = flat.cells.get(key.as_usize()?)?;
        let fields =
            flat.columns.iter().zip(row).map(|(name, cell)| (name.as_str(), Printed::from(Serde(cell))));
        Some(Printed::from_pairs(fields))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.events.len())
    }
}

fn flatten(event: &CleanEvent) -> Map<String, Value> {
    let mut flat = Map::new();
    if let Value::Object(fields) = event.payload() {
        flatten_into(&mut flat, "", fields, event.field_chars);
    }
    flat
}

fn flatten_into(flat: &mut Map<String, Value>, prefix: &str, fields: &Map<String, Value>, chars_max: usize) {
    for (name, value) in fields {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        let cell = match value {
            Value::Object(inner) if !inner.is_empty() => {
                flatten_into(flat, &name, inner, chars_max);
                continue;
            }
            Value::Object(_) => Value::Null,
            Value::Array(items) => cut_text(list_text(items).into(), chars_max).into_owned().into(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        };
        flat.entry(name).or_insert(cell);
    }
}

fn list_text(items: &[Value]) -> String {
    let is_words =
        items.len() <= LIST_WORDS_MAX && items.iter().all(|item| !item.is_array() && !item.is_object());
    if !is_words {
        return Value::from(items.to_vec()).to_string();
    }
    let words: Vec<Cow<'_, str>> = items
        .iter()
        .map(|item| item.as_str().map_or_else(|| item.to_string().into(), Cow::Borrowed))
        .collect();
    words.join(" ")
}
