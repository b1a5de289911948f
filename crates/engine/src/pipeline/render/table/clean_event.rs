//! Events with text that is safe to show, and the list `events` of them.
//!
//! Before a template can read a string of a payload, control characters are stripped, secrets are
//! masked, and it is cut. This is done on first use.

use std::{
    borrow::Cow,
    ops::{Deref, Range},
    sync::{Arc, OnceLock},
};

use minijinja::value::{Enumerator, Object, ObjectRepr, Serde, Value as Printed};
use serde_json::Value;

use crate::{
    event::{
        Event, Field, SessionId, WithEscape, cut_text, is_harmless, is_secret_field, mask_field,
        mask_secrets, strip_text,
    },
    pipeline::{
        row::Row,
        sandbox::account::{Account, steps_of_text},
    },
};

/// The column with the count of repeats.
pub(in crate::pipeline::render) const REPEATS: &str = "repeats";

/// The events visible to an attempt, of the cleaned ones. Reading them is paid for.
#[derive(Debug, Clone)]
pub(in crate::pipeline::render) struct Shown {
    events: Arc<[CleanEvent]>,
    places: Range<usize>,
    account: Arc<Account>,
}

impl Shown {
    /// All of `events`.
    pub(in crate::pipeline::render) fn all(events: Arc<[CleanEvent]>, account: &Arc<Account>) -> Self {
        Self { places: 0..events.len(), events, account: Arc::clone(account) }
    }

    /// Those at `places` among all of them.
    pub(in crate::pipeline::render) fn at(&self, places: Range<usize>) -> Self {
        Self { places, ..self.clone() }
    }

    /// Pays for reading an event's text.
    ///
    /// Shape: an error value for the template if too few steps are left; `None` if paid.
    pub(in crate::pipeline::render) fn pay(&self, steps: u64) -> Option<Printed> {
        self.account.spend(steps).err().map(Printed::from)
    }
}

impl Deref for Shown {
    type Target = [CleanEvent];

    fn deref(&self) -> &[CleanEvent] {
        self.events.get(self.places.clone()).unwrap_or(&self.events)
    }
}

/// An event whose text is safe to show.
#[derive(Debug)]
pub(in crate::pipeline::render) struct CleanEvent {
    pub(in crate::pipeline::render) event: Arc<Event>,
    /// The count of its repeats, from 1.
    pub(in crate::pipeline::render) repeats: u32,
    /// Longest shown text, in characters.
    pub(in crate::pipeline::render) field_chars: usize,
    payload: OnceLock<Box<CleanPayload>>,
    /// Set once the cost of cleaning the payload was returned.
    is_cost_taken: OnceLock<()>,
    /// Whether cleaning changes no key of the payload.
    has_clean_keys: OnceLock<bool>,
    /// Whether the payload's text has nothing to strip.
    is_printable: OnceLock<bool>,
}

/// A whole cleaned payload.
#[derive(Debug)]
struct CleanPayload {
    value: Value,
    /// The payload as a template value.
    printed: OnceLock<Printed>,
    /// The payload as JSON, cut to the length of a field.
    json: OnceLock<Box<str>>,
}

impl CleanEvent {
    /// The event of `row`; text fields are cut to `field_chars` characters.
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

    pub(in crate::pipeline::render) fn event_type(&self) -> &str {
        self.event.event_type.as_str()
    }

    pub(in crate::pipeline::render) fn source(&self) -> Cow<'_, str> {
        clean_field(&self.event.source, self.field_chars)
    }

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

    /// The price of cleaning the payload; `None` after the first call, whose caller has to pay.
    /// Items cost memory, text costs time.
    pub(in crate::pipeline::render) fn take_unpaid_steps(&self) -> Option<u64> {
        let text = self.event.payload.as_str();
        let items = || text.bytes().filter(|byte| matches!(byte, b',' | b'[')).count() as u64;
        let is_unpaid = self.payload.get().is_none() && self.is_cost_taken.set(()).is_ok();
        is_unpaid.then(|| 2 * items() + steps_of_text(text.len()))
    }

    /// The whole payload as a template value.
    fn printed_payload(&self) -> &Printed {
        let payload = self.clean_payload();
        payload.printed.get_or_init(|| Printed::from(Serde(&payload.value)))
    }

    /// One field of the payload as a template value. A plain one is read in place, without cleaning
    /// the others.
    fn printed_field(&self, name: &str) -> Option<Printed> {
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

    pub(super) fn payload_json(&self) -> &str {
        let payload = self.clean_payload();
        let cut = || cut_text(payload.value.to_string().into(), self.field_chars).into_owned().into();
        payload.json.get_or_init(cut)
    }

    /// A scalar field of the payload; `None` if it needs flattening or is absent.
    pub(super) fn plain_field(&self, name: &str) -> Option<Cell<'_>> {
        let value = match self.event.payload.field(name) {
            Ok(Some(Field::Text(text))) => {
                return Some(Cell::Text(clean_named(name, text, self.field_chars)));
            }
            Ok(Some(Field::Json(json))) if json.starts_with(['{', '[']) => return None,
            Ok(Some(field @ Field::Json(json))) => match field.literal() {
                Some(literal) => return Some(Cell::Literal(literal)),
                None => serde_json::from_str(json).unwrap_or(Value::Null),
            },
            Ok(None) => return None,
            Err(WithEscape) => self.event.payload.value().get(name)?.clone(),
        };
        match value {
            Value::String(text) => {
                Some(Cell::Text(clean_named(name, &text, self.field_chars).into_owned().into()))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => Some(Cell::Value(Cow::Owned(value))),
            Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// Whether the flattened payload has no field of that name either.
    pub(super) fn lacks(&self, name: &str) -> bool {
        let is_of_no_other_key = || (is_word(name) && self.is_printable()) || self.has_clean_keys();
        !name.contains('.') && self.event.payload.field(name) == Ok(None) && is_of_no_other_key()
    }

    /// Whether a key without escapes needs no stripping. It then equals a word after cleaning only
    /// if it did before, because the marks of masked and cut texts are not part of a word.
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
    /// A boolean or number, as in the source text.
    Literal(&'r str),
    Value(Cow<'r, Value>),
}

impl<'r> Cell<'r> {
    pub(super) const NULL: Self = Self::Value(Cow::Owned(Value::Null));

    /// The first non-null cell, or null.
    pub(super) fn first_of(cells: impl Iterator<Item = Cell<'r>>) -> Self {
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

    /// Its approximate length in bytes.
    pub(in crate::pipeline::render) fn length(&self) -> usize {
        const OF_VALUE: usize = 8;
        1 + match self {
            Self::Text(text) => text.len(),
            Self::Literal(literal) => literal.len(),
            Self::Value(_) => OF_VALUE,
        }
    }

    /// The cell as a template value.
    pub(super) fn printed(&self) -> Printed {
        match self {
            Self::Text(text) => Printed::from(text.as_ref()),
            Self::Value(value) => Printed::from(Serde(value.as_ref())),
            Self::Literal(literal) => {
                Printed::from(Serde(serde_json::from_str::<Value>(literal).unwrap_or(Value::Null)))
            }
        }
    }

    /// The cell as JSON.
    pub(in crate::pipeline::render) fn to_json(&self) -> Value {
        match self {
            Self::Text(text) => text.as_ref().into(),
            Self::Value(value) => value.as_ref().clone(),
            Self::Literal(literal) => serde_json::from_str(literal).unwrap_or(Value::Null),
        }
    }

    /// Appends it as a cell of a row.
    pub(in crate::pipeline::render) fn write(&self, out: &mut String) {
        match self {
            Self::Literal(literal) => out.push_str(literal),
            Self::Text(text) => toon::write_text(out, text),
            Self::Value(value) => toon::write_scalar(out, value),
        }
    }
}

/// Whether a text consists of ASCII letters, digits and underscores.
fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A payload's text, safe to show; borrowed exactly if it is unchanged.
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

/// The text of a field, which is masked as a whole if the field's name says that it is a secret.
fn clean_named<'t>(name: &str, text: &'t str, chars_max: usize) -> Cow<'t, str> {
    match is_secret_field(name, text) {
        true => mask_field(name, text).into_owned().into(),
        false => clean_field(text, chars_max),
    }
}

/// A value as a template sees it: without control characters and secrets, its texts cut to
/// `chars_max` characters.
pub fn clean_value(value: &Value, chars_max: usize) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => clean_field(text, chars_max).into_owned().into(),
        Value::Array(items) => items.iter().map(|item| clean_value(item, chars_max)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| {
                let value = match value.as_str() {
                    Some(text) => clean_named(key, text, chars_max).into_owned().into(),
                    None => clean_value(value, chars_max),
                };
                (clean_field(key, chars_max).into_owned(), value)
            })
            .collect(),
    }
}

/// The names of an event's fields in a template, in order.
pub const EVENT_FIELDS: [&str; 9] =
    ["id", "type", "source", "severity", "timestamp", "payload", REPEATS, "session", "workspace"];

/// An item of `events` in a template: a map whose fields are created on use.
#[derive(Debug)]
pub(in crate::pipeline::render) struct EventView {
    events: Shown,
    at: usize,
    payload: OnceLock<Printed>,
}

impl EventView {
    /// The event at `at`.
    pub(in crate::pipeline::render) fn new(events: Shown, at: usize) -> Self {
        Self { events, at, payload: OnceLock::new() }
    }

    fn payload(&self, clean: &CleanEvent) -> Printed {
        let view = || Printed::from_object(PayloadView { events: self.events.clone(), at: self.at });
        let unpaid = clean.take_unpaid_steps().and_then(|steps| self.events.pay(steps));
        unpaid.unwrap_or_else(|| self.payload.get_or_init(view).clone())
    }
}

impl Object for EventView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        let clean = self.events.get(self.at)?;
        let text = |text: &str| {
            let unpaid = self.events.pay(steps_of_text(text.len()));
            unpaid.unwrap_or_else(|| Printed::from(clean_field(text, clean.field_chars).as_ref()))
        };
        let optional = |found: Option<&str>| found.map_or_else(|| Printed::from(()), text);
        Some(match key {
            "id" => text(&clean.event.id),
            "type" => Printed::from(clean.event.event_type.as_str()),
            "source" => text(&clean.event.source),
            "severity" => Printed::from(clean.event.severity.as_str()),
            "timestamp" => Printed::from(clean.event.timestamp.to_string()),
            "payload" => self.payload(clean),
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

/// A payload in a template: a map that is created as a whole only if more than plain fields are
/// read.
#[derive(Debug)]
struct PayloadView {
    events: Shown,
    at: usize,
}

impl Object for PayloadView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        self.events.get(self.at)?.printed_field(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let keys = self.events.get(self.at).and_then(|event| event.printed_payload().try_iter().ok());
        keys.map_or(Enumerator::Empty, |keys| Enumerator::Values(keys.collect()))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::pipeline::{render::tests::row, sandbox::account::Account};

    const CHARS_MAX: usize = 12;
    const SECRET: &str = "ghp_0123456789abcdefghij";

    fn shown(payload: Value) -> Shown {
        Shown::all([CleanEvent::new(&row(payload, 1), CHARS_MAX)].into(), &Account::new(u64::MAX))
    }

    fn as_json(found: Option<Printed>) -> Option<Value> {
        found.map(|found| serde_json::to_value(found).expect("serializes"))
    }

    /// Checks that a field is the same with and without cleaning the whole payload first.
    fn check(payload: &Value) {
        let whole = shown(payload.clone());
        let cleaned = whole[0].printed_payload().as_object().expect("a map").clone();
        let keys = payload.as_object().expect("an object").keys().cloned();
        let shown_keys = cleaned.try_iter().expect("a map").map(|key| key.to_string());
        for key in keys.chain(shown_keys).chain(["no such".to_owned()]) {
            let view = Arc::new(PayloadView { events: shown(payload.clone()), at: 0 });
            let found = as_json(view.get_value_by_str(&key));
            assert_eq!(found, as_json(cleaned.get_value_by_str(&key)), "{key} of {payload}");
        }
        let view = Printed::from_object(PayloadView { events: shown(payload.clone()), at: 0 });
        assert_eq!(as_json(Some(view)), as_json(Some(whole[0].printed_payload().clone())), "{payload}");
    }

    #[test]
    fn a_field_lookup_matches_the_whole_payload() {
        for payload in [
            json!({}),
            json!({"a": null, "b": true, "c": -1, "d": 1.5, "e": 18_446_744_073_709_551_615_u64, "f": [1, {"g": "\u{7}"}]}),
            json!({"text": "longer than twelve", "secret": SECRET, "escape": "a\u{1b}[1mb\"", "o": {"in": SECRET}}),
            json!({"a\u{7}": 1, "a": 2}),
            json!({"a": 2, "a\u{7}": 1}),
            json!({"quote\"d": 1, "b": "x"}),
            json!({SECRET: 1, "ghp_[masked]": 2}),
            json!({"a key that is longer than twelve": 1}),
        ] {
            check(&payload);
        }
    }

    proptest! {
        #[test]
        fn random_field_lookups_match_the_whole_payload(
            fields in prop::collection::btree_map("[ab\u{7}\"\u{e9}]{0,3}", prop_oneof!["[ -~\u{7}\u{e9}]{0,20}".prop_map(Value::from), any::<f64>().prop_map(Value::from), any::<i64>().prop_map(Value::from)], 0..5),
        ) {
            check(&Value::Object(fields.into_iter().collect()));
        }
    }
}
