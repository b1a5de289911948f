//! What a template sees of events: cleaned values, and rows that all have the same columns.
//!
//! Every string of a payload is stripped of control characters, has its secrets masked and is cut before a template can look at
//! it. `rows` flattens payloads so that they make one table: nested objects become `a.b` columns, short lists of scalars one text,
//! other lists their JSON text, and what a row does not have is null. A `repeats` column comes last, if any row repeated.
//! Nothing is copied or flattened before it is asked for, as a table mostly needs a few plain fields of each payload.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, OnceLock},
};

use minijinja::value::{Enumerator, Object, ObjectRepr, Serde, Value as Printed};
use serde_json::{Map, Value};

use super::{
    column::{Column, Origin},
    event_view::EventView,
    row_view::RowView,
};
use crate::{
    event::{Event, Field, WithEscape, cut_text, is_harmless, mask_secrets, strip_text},
    pipeline::{
        render::free_key,
        row::Row,
        sandbox::account::{Account, steps_of_text},
    },
    toon,
};

/// A list of at most this many scalars becomes words in one cell; a longer one its JSON text.
const LIST_WORDS_MAX: usize = 8;
/// Most columns that rows have, and most fields of one payload that become columns. A table of so many has no room in a notification;
/// what is beyond is found in `events`.
const COLUMNS_MAX: usize = 256;
/// The column that says how often a row happened.
pub(in crate::pipeline::render) const REPEATS: &str = "repeats";

/// The events that an attempt sees: the first of those that were cleaned. Looking at them is paid for.
#[derive(Debug, Clone)]
pub(in crate::pipeline::render) struct Shown {
    events: Arc<[CleanEvent]>,
    count: usize,
    account: Arc<Account>,
}

impl Shown {
    /// All of `events`.
    pub(in crate::pipeline::render) fn all(events: Arc<[CleanEvent]>, account: &Arc<Account>) -> Self {
        Self { count: events.len(), events, account: Arc::clone(account) }
    }

    /// The first `count` of them at most.
    pub(in crate::pipeline::render) fn first(&self, count: usize) -> Self {
        Self { count: count.min(self.count), ..self.clone() }
    }

    /// Pays for a look at an event's text.
    ///
    /// Shape: what a template gets in place of a value that it cannot pay for.
    pub(in crate::pipeline::render) fn pay(&self, steps: u64) -> Option<Printed> {
        self.account.spend(steps).err().map(Printed::from)
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
pub(in crate::pipeline::render) struct CleanEvent {
    pub(in crate::pipeline::render) event: Arc<Event>,
    /// How often it happened.
    pub(in crate::pipeline::render) repeats: u32,
    /// The longest text that may be shown, in characters.
    pub(in crate::pipeline::render) field_chars: usize,
    payload: OnceLock<Box<CleanPayload>>,
    /// Set once the cost of cleaning the payload was taken.
    is_cost_taken: OnceLock<()>,
    /// Whether the keys of the payload are shown as they are.
    has_clean_keys: OnceLock<bool>,
    /// Whether nothing has to be stripped from the payload as it is written.
    is_printable: OnceLock<bool>,
}

/// A whole payload.
#[derive(Debug)]
struct CleanPayload {
    value: Value,
    /// The same as templates take values.
    printed: OnceLock<Printed>,
    /// The same as JSON, as far as a field may be long.
    json: OnceLock<Box<str>>,
}

impl CleanEvent {
    /// Shows the event of `row`; no text field keeps more than `field_chars` characters.
    pub(in crate::pipeline::render) fn new(row: &Row, field_chars: usize) -> Self {
        Self {
            event: row.event.clone(),
            repeats: row.repeats.max(1),
            field_chars,
            payload: OnceLock::new(),
            is_cost_taken: OnceLock::new(),
            has_clean_keys: OnceLock::new(),
            is_printable: OnceLock::new(),
        }
    }

    /// Its type.
    pub(in crate::pipeline::render) fn event_type(&self) -> &str {
        self.event.event_type.as_str()
    }

    /// Where it comes from.
    pub(in crate::pipeline::render) fn source(&self) -> Cow<'_, str> {
        clean_field(&self.event.source, self.field_chars)
    }

    /// How bad it is.
    pub(in crate::pipeline::render) fn severity(&self) -> &'static str {
        self.event.severity.as_str()
    }

    /// The whole payload, cleaned on first use.
    pub(in crate::pipeline::render) fn payload(&self) -> &Value {
        &self.clean_payload().value
    }

    fn clean_payload(&self) -> &CleanPayload {
        self.payload.get_or_init(|| {
            let value = clean_value(self.event.payload.value(), self.field_chars);
            Box::new(CleanPayload { value, printed: OnceLock::new(), json: OnceLock::new() })
        })
    }

    /// What cleaning the payload costs, for the first caller, who has to pay it: its items take memory, its text time.
    pub(in crate::pipeline::render) fn take_unpaid_steps(&self) -> Option<u64> {
        let text = self.event.payload.as_str();
        let items = || text.bytes().filter(|byte| matches!(byte, b',' | b'[')).count() as u64;
        let is_unpaid = self.payload.get().is_none() && self.is_cost_taken.set(()).is_ok();
        is_unpaid.then(|| 2 * items() + steps_of_text(text.len()))
    }

    /// The whole payload as templates take values.
    pub(in crate::pipeline::render) fn printed_payload(&self) -> &Printed {
        let payload = self.clean_payload();
        payload.printed.get_or_init(|| Printed::from(Serde(&payload.value)))
    }

    /// One field of the payload as templates take values; a plain one is read where it stands, and the others are not cleaned for it.
    pub(in crate::pipeline::render) fn printed_field(&self, name: &str) -> Option<Printed> {
        if self.payload.get().is_none() && self.has_clean_keys() {
            if let Some(cell) = self.plain_field(name) {
                return Some(cell.printed());
            }
            if self.event.payload.field(name) == Ok(None) {
                return None;
            }
        }
        self.printed_payload().as_object()?.get_value_by_str(name)
    }

    fn payload_json(&self) -> &str {
        let payload = self.clean_payload();
        let cut = || cut_text(payload.value.to_string().into(), self.field_chars).into_owned().into();
        payload.json.get_or_init(cut)
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
        let is_of_no_other_key = || (is_word(name) && self.is_printable()) || self.has_clean_keys();
        !name.contains('.') && self.event.payload.field(name) == Ok(None) && is_of_no_other_key()
    }

    /// Whether a key without escapes is not stripped, and so becomes a word only if it is that word: the marks of masked and of cut
    /// texts are in none.
    fn is_printable(&self) -> bool {
        *self.is_printable.get_or_init(|| self.event.payload.is_printable())
    }

    fn has_clean_keys(&self) -> bool {
        let is_clean = |key: &str| matches!(clean_field(key, self.field_chars), Cow::Borrowed(_));
        *self
            .has_clean_keys
            .get_or_init(|| self.event.payload.keys().is_ok_and(|mut keys| keys.all(is_clean)))
    }
}

/// The content of one cell of a table.
#[derive(Debug)]
pub(in crate::pipeline::render) enum Cell<'r> {
    Text(Cow<'r, str>),
    /// A boolean or number as it is written.
    Literal(&'r str),
    Value(Cow<'r, Value>),
}

impl<'r> Cell<'r> {
    const NULL: Self = Self::Value(Cow::Owned(Value::Null));

    /// The first that is not null.
    fn first_of(cells: impl Iterator<Item = Cell<'r>>) -> Self {
        for cell in cells {
            if !cell.is_null() {
                return cell;
            }
        }
        Self::NULL
    }

    pub(in crate::pipeline::render) fn is_null(&self) -> bool {
        matches!(self, Self::Value(value) if value.is_null())
    }

    /// About how many bytes it takes.
    pub(in crate::pipeline::render) fn length(&self) -> usize {
        const OF_VALUE: usize = 8;
        1 + match self {
            Self::Text(text) => text.len(),
            Self::Literal(literal) => literal.len(),
            Self::Value(_) => OF_VALUE,
        }
    }

    /// It as templates take values.
    fn printed(&self) -> Printed {
        match self {
            Self::Text(text) => Printed::from(text.as_ref()),
            Self::Value(value) => Printed::from(Serde(value.as_ref())),
            Self::Literal(literal) => {
                Printed::from(Serde(serde_json::from_str::<Value>(literal).unwrap_or(Value::Null)))
            }
        }
    }

    /// It as JSON.
    pub(in crate::pipeline::render) fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => text.as_ref().into(),
            Self::Value(value) => value.as_ref().clone(),
            Self::Literal(literal) => serde_json::from_str(literal).unwrap_or(Value::Null),
        }
    }

    /// Appends it as the cell of a row.
    pub(in crate::pipeline::render) fn write(&self, out: &mut String) {
        match self {
            Self::Literal(literal) => out.push_str(literal),
            Self::Text(text) => toon::write_text(out, text),
            Self::Value(value) => toon::write_scalar(out, value),
        }
    }
}

/// Whether a text consists of letters, digits and underscores of ASCII.
fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Text of a payload as it may be shown; borrowed exactly when nothing had to change.
pub(in crate::pipeline::render) fn clean_field(text: &str, chars_max: usize) -> Cow<'_, str> {
    if text.len() <= chars_max && is_harmless(text) {
        return text.into();
    }
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
pub(in crate::pipeline::render) struct Events(pub(in crate::pipeline::render) Shown);

impl Object for Events {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        let at = key.as_usize().filter(|at| *at < self.0.len())?;
        Some(Printed::from_object(EventView::new(self.0.clone(), at)))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

/// The list `rows`: flat objects with the same columns in the same order.
#[derive(Debug)]
pub(in crate::pipeline::render) struct Rows {
    events: Shown,
    flat: OnceLock<Flat>,
    /// Set when a look at the keys of all payloads was paid for.
    are_keys_paid: OnceLock<()>,
}

#[derive(Debug)]
struct Flat {
    columns: Vec<String>,
    /// Where each column is.
    places: BTreeMap<String, usize>,
    /// As many cells as columns.
    cells: Vec<Vec<Value>>,
}

impl Rows {
    /// Takes its rows from `events`.
    pub(in crate::pipeline::render) fn new(events: Shown) -> Self {
        Self { events, flat: OnceLock::new(), are_keys_paid: OnceLock::new() }
    }

    /// How many rows there are.
    pub(in crate::pipeline::render) fn len(&self) -> usize {
        self.events.len()
    }

    /// The names of all columns.
    pub(in crate::pipeline::render) fn columns(&self) -> &[String] {
        &self.flat().columns
    }

    /// Number of events of the rows at `places`.
    pub(in crate::pipeline::render) fn occurrences(&self, places: &[usize]) -> u64 {
        places.iter().filter_map(|at| self.events.get(*at)).map(|event| u64::from(event.repeats)).sum()
    }

    /// The name of the column that counts repeats, if any row repeated.
    pub(in crate::pipeline::render) fn repeats(&self) -> Option<String> {
        let is_taken =
            |name: &str| self.events.iter().any(|event| event.event.payload.value().get(name).is_some());
        let repeated = self.events.iter().any(|event| event.repeats > 1);
        repeated.then(|| free_key(REPEATS, is_taken))
    }

    /// The cells of `columns` in the rows at `places`, row by row; in each the first that is not null.
    pub(in crate::pipeline::render) fn cells(&self, columns: &[Column], places: &[usize]) -> Vec<Cell<'_>> {
        let repeats = self.repeats();
        let mut cells = Vec::with_capacity(places.len() * columns.len());
        for at in places {
            let Some(event) = self.events.get(*at) else { continue };
            for column in columns {
                let found = column.from.iter().map(|from| self.cell(*at, event, from, repeats.as_deref()));
                cells.push(Cell::first_of(found));
            }
        }
        cells
    }

    /// The first of `from` that is not null in the row at `at`.
    pub(in crate::pipeline::render) fn first(&self, at: usize, from: &[Origin]) -> Cell<'_> {
        let (Some(event), repeats) = (self.events.get(at), self.repeats()) else { return Cell::NULL };
        Cell::first_of(from.iter().map(|from| self.cell(at, event, from, repeats.as_deref())))
    }

    /// Whether any row has the field, be it null.
    pub(in crate::pipeline::render) fn has(&self, from: &Origin) -> bool {
        let Origin::Field(name) = from else { return true };
        self.events.iter().any(|event| !event.lacks(name)) && self.flat().places.contains_key(name)
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
            Origin::Payload => return Cell::Text(event.payload_json().into()),
            Origin::Field(name) => name.as_str(),
        };
        if Some(name) == repeats {
            return Cell::Value(Cow::Owned(event.repeats.into()));
        }
        // Once all columns are known they are quicker to ask than a long payload.
        if let Some(found) = self.flat.get().and_then(|flat| flat.cell(at, name)) {
            return Cell::Value(Cow::Borrowed(found));
        }
        if let Some(cell) = event.plain_field(name) {
            return cell;
        }
        let found = if event.lacks(name) { None } else { self.flat().cell(at, name) };
        found.map_or(Cell::NULL, |value| Cell::Value(Cow::Borrowed(value)))
    }

    /// What a template finds under `key` in the row at `at`: a column, or a field of the event itself.
    pub(in crate::pipeline::render) fn value(&self, at: usize, key: &str) -> Option<Printed> {
        let from = Origin::named(key);
        let is_of_payload =
            matches!(&from, Origin::Field(name) if self.repeats().as_deref() != Some(name.as_str()));
        if let Some(unpaid) = self.pay_for_keys() {
            return Some(unpaid);
        }
        if is_of_payload && self.events.iter().all(|event| event.lacks(key)) {
            return None;
        }
        let unpaid_json = || {
            self.events
                .get(at)
                .and_then(CleanEvent::take_unpaid_steps)
                .and_then(|steps| self.events.pay(steps))
        };
        if from == Origin::Payload
            && let Some(unpaid) = unpaid_json()
        {
            return Some(unpaid);
        }
        let is_plain = self.events.get(at).is_some_and(|event| event.plain_field(key).is_some());
        if is_of_payload && !is_plain {
            if let Some(unpaid) = self.take_unpaid_steps().and_then(|steps| self.events.pay(steps)) {
                return Some(unpaid);
            }
            self.flat().places.get(key)?;
        }
        let cell = self.first(at, &[from]);
        let unpaid = self.events.pay(steps_of_text(cell.length()));
        Some(unpaid.unwrap_or_else(|| cell.printed()))
    }

    /// Pays once for a look at the keys of all payloads.
    fn pay_for_keys(&self) -> Option<Printed> {
        let bytes = || self.events.iter().map(|event| event.event.payload.as_str().len()).sum();
        self.are_keys_paid.set(()).ok().and_then(|()| self.events.pay(2 * steps_of_text(bytes())))
    }

    /// What finding all columns costs, if they were not found yet.
    fn take_unpaid_steps(&self) -> Option<u64> {
        self.flat.get().is_none().then(|| self.events.iter().filter_map(CleanEvent::take_unpaid_steps).sum())
    }

    fn flat(&self) -> &Flat {
        self.flat.get_or_init(|| Flat::new(&self.events, self.repeats()))
    }
}

impl Flat {
    fn new(events: &[CleanEvent], repeats: Option<String>) -> Self {
        let mut flat: Vec<Map<String, Value>> = events.iter().map(flatten).collect();
        let mut columns: Vec<String> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for name in flat.iter().flat_map(Map::keys) {
            if columns.len() < COLUMNS_MAX && !places.contains_key(name) {
                places.insert(name.clone(), columns.len());
                columns.push(name.clone());
            }
        }
        if let Some(name) = repeats {
            for (row, event) in flat.iter_mut().zip(events) {
                row.insert(name.clone(), event.repeats.into());
            }
            places.insert(name.clone(), columns.len());
            columns.push(name);
        }
        let take =
            |row: &mut Map<String, Value>, name: &String| row.get_mut(name).map_or(Value::Null, Value::take);
        let cells = flat.iter_mut().map(|row| columns.iter().map(|name| take(row, name)).collect()).collect();
        Self { columns, places, cells }
    }

    fn cell(&self, at: usize, name: &str) -> Option<&Value> {
        self.cells.get(at)?.get(*self.places.get(name)?)
    }
}

impl Object for Rows {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        let at = key.as_usize().filter(|at| *at < self.len())?;
        Some(Printed::from_object(RowView { rows: Arc::clone(self), at }))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.events.len())
    }
}

fn flatten(event: &CleanEvent) -> Map<String, Value> {
    let mut flat = Map::new();
    if let Value::Object(fields) = event.payload() {
        Flattening { flat: &mut flat, root: fields, chars_max: event.field_chars }.add("", fields);
    }
    flat
}

struct Flattening<'f> {
    flat: &'f mut Map<String, Value>,
    root: &'f Map<String, Value>,
    chars_max: usize,
}

impl Flattening<'_> {
    fn add(&mut self, prefix: &str, fields: &Map<String, Value>) {
        for (name, value) in fields {
            if self.flat.len() >= COLUMNS_MAX {
                return;
            }
            let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            let cell = match value {
                Value::Object(inner) if !inner.is_empty() => {
                    self.add(&name, inner);
                    continue;
                }
                Value::Object(_) => Value::Null,
                Value::Array(items) => cut_text(list_text(items).into(), self.chars_max).into_owned().into(),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
            };
            // A key with a dot at the top has the first right to its name.
            let is_taken = |key: &str| {
                self.flat.contains_key(key) || (!prefix.is_empty() && self.root.contains_key(key))
            };
            let name = free_key(&name, is_taken);
            self.flat.insert(name, cell);
        }
    }
}

/// A list as the text of one cell: words if it is short and has nothing but scalars, else JSON.
pub(in crate::pipeline::render) fn list_text(items: &[Value]) -> String {
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
