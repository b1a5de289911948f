//! What a template sees of events: cleaned values, and rows that all have the same columns.
//!
//! Every string of a payload is stripped of control characters, has its secrets masked and is cut before a template can look at
//! it. `rows` flattens payloads so that they make one table: nested objects become `a.b` columns, short lists of scalars one text,
//! other lists their JSON text, and what a row does not have is null. A `repeats` column comes last, if any row repeated.
//! Nothing is copied or flattened before it is asked for, as a table mostly needs a few plain fields of each payload.

use std::{
    borrow::Cow,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use minijinja::value::{Enumerator, Object, ObjectRepr, Serde, Value as Printed};
use serde_json::{Map, Value};

use super::table::Column;
use crate::{
    event::{Event, Field, SessionId, WithEscape, cut_text, mask_secrets, strip_text},
    pipeline::row::Row,
    toon,
};

/// A list of at most this many scalars becomes words in one cell; a longer one its JSON text.
const LIST_WORDS_MAX: usize = 8;
/// Fields of the event itself, under the names by which a picked column asks for them.
const TYPE: &str = "@type";
/// The last segment of the type, such as `failed`.
const TYPE_LAST: &str = "@type.last";
const SOURCE: &str = "@source";
const SEVERITY: &str = "@severity";
const TIME: &str = "@time";
/// The column that says how often a row happened.
pub(super) const REPEATS: &str = "repeats";

/// Where a column finds its cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Origin {
    Type,
    TypeLast,
    Source,
    Severity,
    Time,
    /// A column of the rows.
    Field(String),
}

impl Origin {
    /// What a template calls `name`.
    pub(super) fn named(name: &str) -> Self {
        match name {
            TYPE => Self::Type,
            TYPE_LAST => Self::TypeLast,
            SOURCE => Self::Source,
            SEVERITY => Self::Severity,
            TIME => Self::Time,
            field => Self::Field(field.to_owned()),
        }
    }

    /// What a template calls it.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Type => TYPE,
            Self::TypeLast => TYPE_LAST,
            Self::Source => SOURCE,
            Self::Severity => SEVERITY,
            Self::Time => TIME,
            Self::Field(name) => name,
        }
    }
}

/// The events that an attempt shows: the first of those that were cleaned.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    events: Arc<[CleanEvent]>,
    count: usize,
}

impl Shown {
    /// The first `count` of `events`.
    pub(super) fn first(count: usize, events: &Arc<[CleanEvent]>) -> Self {
        Self { events: Arc::clone(events), count }
    }
}

impl Deref for Shown {
    type Target = [CleanEvent];

    fn deref(&self) -> &[CleanEvent] {
        self.events.get(..self.count).unwrap_or(&self.events)
    }
}

/// An event whose every text is safe to show.
#[derive(Debug)]
pub(super) struct CleanEvent {
    event: Arc<Event>,
    /// How often it happened.
    pub(super) repeats: u32,
    /// The longest text that may be shown, in characters.
    pub(super) field_chars: usize,
    payload: OnceLock<Box<CleanPayload>>,
    /// Whether the keys of the payload are shown as they are.
    has_clean_keys: OnceLock<bool>,
}

/// A whole payload.
#[derive(Debug)]
struct CleanPayload {
    value: Value,
    /// The same as templates take values.
    printed: OnceLock<Printed>,
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
        }
    }

    /// Its type.
    pub(super) fn event_type(&self) -> &str {
        self.event.event_type.as_str()
    }

    /// Where it comes from.
    pub(super) fn source(&self) -> Cow<'_, str> {
        clean_field(&self.event.source, self.field_chars)
    }

    /// How bad it is.
    pub(super) fn severity(&self) -> &'static str {
        self.event.severity.as_str()
    }

    /// The whole payload, cleaned on first use.
    pub(super) fn payload(&self) -> &Value {
        &self.clean_payload().value
    }

    fn clean_payload(&self) -> &CleanPayload {
        self.payload.get_or_init(|| {
            let value = clean_value(self.event.payload.value(), self.field_chars);
            Box::new(CleanPayload { value, printed: OnceLock::new() })
        })
    }

    fn printed_payload(&self) -> Printed {
        let payload = self.clean_payload();
        payload.printed.get_or_init(|| Printed::from(Serde(&payload.value))).clone()
    }

    /// A scalar field of the payload; `None` when it needs flattening or is not there.
    fn plain_field(&self, name: &str) -> Option<Cell<'_>> {
        let value = match self.event.payload.field(name) {
            Ok(Some(Field::Text(text))) => return Some(Cell::Text(clean_field(text, self.field_chars))),
            Ok(Some(Field::Json(json))) if json.starts_with(['{', '[']) => return None,
            Ok(Some(field @ Field::Json(json))) => match field.literal() {
                Some(literal) => return Some(Cell::Literal(literal)),
                None => serde_json::from_str(json).unwrap_or(Value::Null),
            },
            Ok(None) => return None,
            Err(WithEscape) => self.event.payload.value().get(name)?.clone(),
        };
        match value {
            Value::String(text) => Some(Cell::Text(clean_field(&text, self.field_chars).into_owned().into())),
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(Cell::Value(Cow::Owned(value))),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Whether flattening the payload cannot give a field of that name either.
    fn lacks(&self, name: &str) -> bool {
        let is_clean = |key: &str| matches!(clean_field(key, self.field_chars), Cow::Borrowed(_));
        let has_clean_keys = || self.event.payload.keys().is_ok_and(|mut keys| keys.all(is_clean));
        !name.contains('.')
            && *self.has_clean_keys.get_or_init(has_clean_keys)
            && self.event.payload.field(name) == Ok(None)
    }
}

/// What stands in one cell of a table.
#[derive(Debug)]
pub(super) enum Cell<'r> {
    Text(Cow<'r, str>),
    /// A boolean or number as it is written.
    Literal(&'r str),
    Value(Cow<'r, Value>),
}

impl Cell<'_> {
    const NULL: Self = Self::Value(Cow::Owned(Value::Null));

    pub(super) fn is_null(&self) -> bool {
        matches!(self, Self::Value(value) if value.is_null())
    }

    /// About how many bytes it takes.
    pub(super) fn length(&self) -> usize {
        const OF_VALUE: usize = 8;
        1 + match self {
            Self::Text(text) => text.len(),
            Self::Literal(literal) => literal.len(),
            Self::Value(_) => OF_VALUE,
        }
    }

    /// Appends it as the cell of a row.
    pub(super) fn write(&self, out: &mut String) {
        match self {
            Self::Literal(literal) => out.push_str(literal),
            Self::Text(text) => toon::write_text(out, text),
            Self::Value(value) => toon::write_scalar(out, value),
        }
    }
}

/// One of `events`, as a template sees it: a map whose fields are made when they are asked for.
#[derive(Debug)]
struct EventView {
    events: Shown,
    at: usize,
}

/// The names of its fields, in the order in which they are listed.
const EVENT_FIELDS: [&str; 9] =
    ["id", "type", "source", "severity", "timestamp", "payload", REPEATS, "session", "workspace"];

impl Object for EventView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        let clean = self.events.get(self.at)?;
        let text = |text: &str| Printed::from(clean_field(text, clean.field_chars).as_ref());
        let optional = |found: Option<&str>| found.map_or_else(|| Printed::from(()), text);
        Some(match key.as_str()? {
            "id" => text(&clean.event.id),
            "type" => Printed::from(clean.event.event_type.as_str()),
            "source" => text(&clean.event.source),
            "severity" => Printed::from(clean.event.severity.as_str()),
            "timestamp" => Printed::from(clean.event.timestamp.to_string()),
            "payload" => clean.printed_payload(),
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
pub(super) struct Events(pub(super) Shown);

impl Object for Events {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        let at = key.as_usize().filter(|at| *at < self.0.len())?;
        Some(Printed::from_object(EventView { events: self.0.clone(), at }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

/// The list `rows`: flat objects with the same columns in the same order.
#[derive(Debug)]
pub(super) struct Rows {
    events: Shown,
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
    pub(super) fn new(events: Shown) -> Self {
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

    /// The cells of `columns`, row by row; in each the first that is not null.
    pub(super) fn cells(&self, columns: &[Column]) -> Vec<Cell<'_>> {
        let repeats = self.repeats();
        let mut cells = Vec::with_capacity(self.len() * columns.len());
        for (at, event) in self.events.iter().enumerate() {
            for column in columns {
                let mut found = column.from.iter().map(|from| self.cell(at, event, from, repeats.as_deref()));
                cells.push(found.find(|cell| !cell.is_null()).unwrap_or(Cell::NULL));
            }
        }
        cells
    }

    fn cell<'r>(
        &'r self,
        at: usize,
        event: &'r CleanEvent,
        from: &Origin,
        repeats: Option<&str>,
    ) -> Cell<'r> {
        let name = match from {
            Origin::Type => return Cell::Text(event.event_type().into()),
            Origin::TypeLast => {
                let event_type = event.event_type();
                let last = event_type.rfind('.').and_then(|dot| event_type.get(dot + 1..));
                return Cell::Text(last.unwrap_or(event_type).into());
            }
            Origin::Source => return Cell::Text(event.source()),
            Origin::Severity => return Cell::Text(event.severity().into()),
            Origin::Time => return Cell::Text(event.event.timestamp.to_string().into()),
            Origin::Field(name) => name.as_str(),
        };
        if Some(name) == repeats {
            return Cell::Value(Cow::Owned(event.repeats.into()));
        }
        if let Some(cell) = event.plain_field(name) {
            return cell;
        }
        let found = if event.lacks(name) { None } else { self.flat().cell(at, name) };
        found.map_or(Cell::NULL, |value| Cell::Value(Cow::Borrowed(value)))
    }

    fn flat(&self) -> &Flat {
        self.flat.get_or_init(|| Flat::new(&self.events, self.repeats()))
    }
}

impl Flat {
    fn new(events: &[CleanEvent], repeats: Option<String>) -> Self {
        let mut flat: Vec<Map<String, Value>> = events.iter().map(flatten).collect();
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
