//! The list `rows`: events as rows with the same columns; and a column of a table with its sources.
//!
//! Payloads are flattened into one table: nested objects become `a.b` columns, short lists of
//! scalars one text, other lists their JSON text, and missing fields null. The last column is
//! `repeats`, if any row repeated. Payloads are flattened on first use, because most tables need
//! only a few plain fields of each.

use std::{
    borrow::Cow,
    ops::Range,
    sync::{Arc, OnceLock},
};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value as Printed, ValueKind};
use serde_json::{Map, Value};

use super::clean_event::{Cell, CleanEvent, REPEATS, Shown};
use crate::{
    event::cut_text,
    notification::UNTRUSTED_SOURCE,
    pipeline::{
        render::draft::{Kept, free_key},
        sandbox::account::steps_of_text,
    },
    sorted::SortedMap,
};

/// Most scalars of a list that is shown as words in one cell; a longer list is shown as JSON.
const LIST_WORDS_MAX: usize = 8;
/// Most columns of rows, and most fields of one payload that become columns. A table with that many
/// does not fit into a notification; `events` has the other fields.
const COLUMNS_MAX: usize = 256;

/// The list `rows`: flat objects with the same columns in the same order.
#[derive(Debug)]
pub(in crate::pipeline::render) struct Rows {
    events: Shown,
    /// Those that a table keeps if it cannot show all.
    kept: Kept,
    /// The untrusted sources by row, or nothing.
    origins: Arc<[Option<Arc<str>>]>,
    flat: OnceLock<Flat>,
    /// Set once reading the keys of all payloads was paid for.
    are_keys_paid: OnceLock<()>,
}

#[derive(Debug)]
struct Flat {
    columns: Vec<String>,
    /// The index of each column.
    places: SortedMap<String, usize>,
    /// By row, as many cells as columns.
    cells: Vec<Vec<Value>>,
}

impl Rows {
    /// Creates the rows of `events`.
    pub(in crate::pipeline::render) fn new(events: Shown) -> Self {
        Self {
            events,
            kept: Kept::default(),
            origins: Arc::default(),
            flat: OnceLock::new(),
            are_keys_paid: OnceLock::new(),
        }
    }

    /// Lets a table keep other rows than the first if it cannot show all.
    pub(in crate::pipeline::render) fn with_kept(self, kept: Kept) -> Self {
        Self { kept, ..self }
    }

    /// The `count` rows of a table of those at `places`, and the others. Rows in another order than
    /// that of the events are cut at their end, because the author sorted them.
    pub(in crate::pipeline::render) fn cut(&self, mut places: Vec<usize>, count: usize) -> [Vec<usize>; 2] {
        let kept = if places.is_sorted() { self.kept } else { Kept::Oldest };
        let Range { start, end } = kept.places(places.len(), count);
        let mut others = places.split_off(end);
        let shown = places.split_off(start);
        others.extend(places);
        [shown, others]
    }

    /// Lets each row name its untrusted source, which `origins` has by row, or nothing.
    pub(in crate::pipeline::render) fn with_origins(self, origins: &[Option<Arc<str>>]) -> Self {
        Self { origins: origins.into(), ..self }
    }

    /// Whether each row names its untrusted source.
    pub(in crate::pipeline::render) fn names_origins(&self) -> bool {
        !self.origins.is_empty()
    }

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

    /// The name of the column with the count of repeats, if any row repeated.
    pub(in crate::pipeline::render) fn repeats(&self) -> Option<String> {
        let is_taken =
            |name: &str| self.events.iter().any(|event| event.event.payload.value().get(name).is_some());
        let repeated = self.events.iter().any(|event| event.repeats > 1);
        repeated.then(|| free_key(REPEATS, is_taken))
    }

    /// The cells of `columns` in the rows at `places`, by row; each is its column's first non-null
    /// field.
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

    /// The first non-null one of `from` in the row at `at`.
    pub(in crate::pipeline::render) fn first(&self, at: usize, from: &[Origin]) -> Cell<'_> {
        let (Some(event), repeats) = (self.events.get(at), self.repeats()) else { return Cell::NULL };
        Cell::first_of(from.iter().map(|from| self.cell(at, event, from, repeats.as_deref())))
    }

    /// Whether any row has the field, even as null.
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
            Origin::Untrusted => {
                let origin = self.origins.get(at).and_then(Option::as_deref);
                return origin.map_or(Cell::NULL, |origin| Cell::Text(origin.into()));
            }
            Origin::Field(name) => name.as_str(),
        };
        if Some(name) == repeats {
            return Cell::Value(Cow::Owned(event.repeats.into()));
        }
        // If all columns are known, they are faster to read than a long payload.
        if let Some(found) = self.flat.get().and_then(|flat| flat.cell(at, name)) {
            return Cell::Value(Cow::Borrowed(found));
        }
        if let Some(cell) = event.plain_field(name) {
            return cell;
        }
        let found = if event.lacks(name) { None } else { self.flat().cell(at, name) };
        found.map_or(Cell::NULL, |value| Cell::Value(Cow::Borrowed(value)))
    }

    /// The value of `key` in the row at `at` for a template: a column, or a field of the event
    /// itself.
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

    /// Pays once for reading the keys of all payloads.
    fn pay_for_keys(&self) -> Option<Printed> {
        let bytes = || self.events.iter().map(|event| event.event.payload.as_str().len()).sum();
        self.are_keys_paid.set(()).ok().and_then(|()| self.events.pay(2 * steps_of_text(bytes())))
    }

    /// The price of finding all columns; `None` if they are known.
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
        let mut places: SortedMap<String, usize> = SortedMap::new();
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

/// An item of `rows` in a template: a map of its columns, which also has `@type` and similar names.
#[derive(Debug)]
pub(in crate::pipeline::render) struct RowView {
    pub(in crate::pipeline::render) rows: Arc<Rows>,
    pub(in crate::pipeline::render) at: usize,
}

impl RowView {
    /// The rows in `value`, a row list or a list of rows, with their indexes; `None` for other
    /// values.
    pub(in crate::pipeline::render) fn selection(value: &Printed) -> Option<(Arc<Rows>, Vec<usize>)> {
        if let Some(rows) = value.downcast_object::<Rows>() {
            let places = (0..rows.len()).collect();
            return Some((rows, places));
        }
        if value.kind() != ValueKind::Seq {
            return None;
        }
        let mut all: Option<Arc<Rows>> = None;
        let mut places = Vec::new();
        for item in value.try_iter().ok()? {
            let row = item.downcast_object_ref::<Self>()?;
            let rows = all.get_or_insert_with(|| Arc::clone(&row.rows));
            if !Arc::ptr_eq(rows, &row.rows) {
                return None;
            }
            places.push(row.at);
        }
        all.map(|rows| (rows, places))
    }
}

impl Object for RowView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        self.rows.value(self.at, key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.rows.columns().iter().map(|name| Printed::from(name.as_str())).collect())
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
            // A root key that contains a dot takes precedence for its name.
            let is_taken = |key: &str| {
                self.flat.contains_key(key) || (!prefix.is_empty() && self.root.contains_key(key))
            };
            let name = free_key(&name, is_taken);
            self.flat.insert(name, cell);
        }
    }
}

/// A list as the text of one cell: words if it is short and has only scalars, else JSON.
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

/// Fields of the event itself, by the names that columns use.
const TYPE: &str = "@type";
/// The last segment of the type, such as `failed`.
const TYPE_LAST: &str = "@type.last";
const SOURCE: &str = "@source";
const SEVERITY: &str = "@severity";
const TIME: &str = "@time";
/// The payload as one JSON text.
const PAYLOAD: &str = "@payload";

/// The names of the fields of an event that a column can show.
pub const EVENT_COLUMNS: [&str; 6] = [TYPE, TYPE_LAST, SOURCE, SEVERITY, TIME, PAYLOAD];

/// The source of a column's cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline::render) enum Origin {
    Type,
    TypeLast,
    Source,
    Severity,
    Time,
    Payload,
    /// The source of the row, if it is untrusted.
    Untrusted,
    /// A column of the rows.
    Field(String),
}

impl Origin {
    /// The origin that templates call `name`.
    pub(in crate::pipeline::render) fn named(name: &str) -> Self {
        match name {
            TYPE => Self::Type,
            TYPE_LAST => Self::TypeLast,
            SOURCE => Self::Source,
            SEVERITY => Self::Severity,
            TIME => Self::Time,
            PAYLOAD => Self::Payload,
            field => Self::Field(field.to_owned()),
        }
    }

    /// The name in templates.
    pub(in crate::pipeline::render) fn name(&self) -> &str {
        match self {
            Self::Type => TYPE,
            Self::TypeLast => TYPE_LAST,
            Self::Source => SOURCE,
            Self::Severity => SEVERITY,
            Self::Time => TIME,
            Self::Payload => PAYLOAD,
            Self::Untrusted => UNTRUSTED_SOURCE,
            Self::Field(name) => name,
        }
    }
}

/// A column of a table: its name, and the fields of a row from which it shows the first non-null
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    pub(in crate::pipeline::render) name: String,
    pub(in crate::pipeline::render) from: Vec<Origin>,
}

impl Column {
    /// A column `name` with the first non-null one of the fields `from`: columns of `rows`, or
    /// names such as `@type`.
    pub fn new<'n>(name: &str, from: impl IntoIterator<Item = &'n str>) -> Self {
        Self { name: name.to_owned(), from: from.into_iter().map(Origin::named).collect() }
    }

    /// Its name in the table.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(in crate::pipeline::render) fn same(name: &str) -> Self {
        Self { name: name.to_owned(), from: vec![Origin::named(name)] }
    }
}
