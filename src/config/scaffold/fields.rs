//! The fields of events, and what each becomes, by rule.
//!
//! A field with a plain name that holds texts, numbers or flags in at least half of the events is a
//! column, up to [`COLUMNS_MAX`]. A column is a part of the dedupe key if it holds short texts
//! without a digit, of few values, and is not named like an id or a message. A masked secret is
//! none.

use engine::{event::mask_field, sorted::SortedSet};
use serde_json::Value;

use super::literal::expressible;
use crate::config::case::TestEvent;

/// Most columns.
pub const COLUMNS_MAX: usize = 8;
/// Most fields of a dedupe key.
const KEYS_MAX: usize = 3;
/// The longest text of a dedupe key, in characters.
const KEY_CHARS_MAX: usize = 40;
/// Most different values of a dedupe key's field.
const VALUES_MAX: usize = 10;
/// So few events do not show how many values a field has.
const EVENTS_FEW: usize = 3;
/// Names, or last words of names, of fields that differ for each event.
const NO_KEYS: [&str; 5] = ["id", "url", "message", "text", "error"];

/// The fields of some events, in the order of their first event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// Each field.
    pub all: Vec<Field>,
    /// The number of events.
    pub events: usize,
}

/// A field of payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// How many events have it with a value that a file can have.
    pub count: usize,
    /// What it holds.
    pub kind: FieldKind,
    /// The number of its different values, if they are few.
    pub values: Option<usize>,
    /// Whether it is a column.
    pub is_column: bool,
    /// Its part in the dedupe key.
    pub key: KeyPart,
}

/// What a field holds in all events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// Texts.
    Text,
    /// Numbers.
    Number,
    /// True or false.
    Flag,
    /// Lists.
    List,
    /// Maps.
    Map,
    /// Not always the same.
    Mixed,
}

impl FieldKind {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Null => None,
            Value::String(_) => Some(Self::Text),
            Value::Number(_) => Some(Self::Number),
            Value::Bool(_) => Some(Self::Flag),
            Value::Array(_) => Some(Self::List),
            Value::Object(_) => Some(Self::Map),
        }
    }

    /// The word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Flag => "flag",
            Self::List => "list",
            Self::Map => "map",
            Self::Mixed => "mixed",
        }
    }

    const fn is_cell(self) -> bool {
        match self {
            Self::Text | Self::Number | Self::Flag => true,
            Self::List | Self::Map | Self::Mixed => false,
        }
    }
}

/// The part of a field in the dedupe key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPart {
    /// It is one.
    Is,
    /// It is none.
    No,
    /// It would be one, but a secret in it is masked.
    Masked,
}

impl Fields {
    /// The fields of `events`, with what the rules propose.
    pub fn propose(events: &[TestEvent]) -> Self {
        let mut names: Vec<&String> = Vec::new();
        for (name, value) in events.iter().flat_map(payload) {
            if expressible(value).is_some() && !names.contains(&name) {
                names.push(name);
            }
        }
        let (mut columns, mut keys) = (0, 0);
        let field = |name: &String| {
            let mut field = read(name, events);
            field.is_column &= columns < COLUMNS_MAX;
            columns += usize::from(field.is_column);
            if !field.is_column || keys == KEYS_MAX {
                field.key = KeyPart::No;
            }
            keys += usize::from(field.key == KeyPart::Is);
            field
        };
        Self { all: names.into_iter().map(field).collect(), events: events.len() }
    }

    /// The names of the columns.
    pub fn columns(&self) -> Vec<&str> {
        self.all.iter().filter(|field| field.is_column).map(|field| field.name.as_str()).collect()
    }

    /// The names of the dedupe key's fields.
    pub fn keys(&self) -> Vec<&str> {
        self.all.iter().filter(|field| field.key == KeyPart::Is).map(|field| field.name.as_str()).collect()
    }

    /// Whether every event has the field.
    pub(super) fn is_everywhere(&self, name: &str) -> bool {
        self.all.iter().any(|field| field.name == name && field.count == self.events)
    }
}

fn payload(event: &TestEvent) -> impl Iterator<Item = (&String, &Value)> {
    event.payload.as_object().into_iter().flatten()
}

/// A field, as if it were the only one.
fn read(name: &str, events: &[TestEvent]) -> Field {
    let found = events.iter().filter_map(|event| event.payload.get(name));
    let found: Vec<&Value> = found.filter(|value| expressible(value).is_some()).collect();
    let mut kinds = found.iter().filter_map(|value| FieldKind::of(value));
    let first = kinds.next().unwrap_or(FieldKind::Mixed);
    let kind = if kinds.all(|kind| kind == first) { first } else { FieldKind::Mixed };
    let texts: Vec<&str> = found.iter().filter_map(|value| value.as_str()).collect();
    let values = texts.iter().copied().collect::<SortedSet<&str>>().iter().count();
    let is_few = events.len() < EVENTS_FEW || (values <= VALUES_MAX && values * 2 <= events.len());
    let is_often = found.len() * 2 >= events.len();
    let is_short =
        |text: &&str| text.chars().count() <= KEY_CHARS_MAX && !text.chars().any(|c| c.is_ascii_digit());
    let is_key = kind == FieldKind::Text
        && is_few
        && is_often
        && !NO_KEYS.contains(&last_word(name))
        && !texts.is_empty();
    let is_masked = texts.iter().any(|text| mask_field(name, text) != *text);
    let key = match is_key && texts.iter().all(|text| is_short(text) || is_masked) {
        true if is_masked => KeyPart::Masked,
        true => KeyPart::Is,
        false => KeyPart::No,
    };
    Field {
        name: name.to_owned(),
        count: found.len(),
        kind,
        values: Some(values).filter(|_| kind == FieldKind::Text && is_few && events.len() >= EVENTS_FEW),
        is_column: kind.is_cell() && is_often && is_plain(name),
        key,
    }
}

/// The last word of a name such as `error_message`.
fn last_word(name: &str) -> &str {
    name.rsplit('_').next().unwrap_or(name)
}

/// Whether a template can name the field as `payload.NAME`.
fn is_plain(name: &str) -> bool {
    let mut bytes = name.bytes();
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    bytes.next().is_some_and(is_first) && bytes.all(|byte| is_first(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn events(count: usize, payload: impl Fn(usize) -> Value) -> Vec<TestEvent> {
        let event = |number| TestEvent::new("deploy.web.finished".parse().expect("a type"), payload(number));
        (0..count).map(event).collect()
    }

    #[test]
    fn fields_become_columns_and_keys_by_rule() {
        let services = ["web", "api", "jobs", "mail"];
        let fields = Fields::propose(&events(20, |number| {
            let mut payload = json!({
                "service": services[number % 4], "version": format!("1.{number}"), "seconds": number, "error": "none",
                "zone": format!("eu{}", number % 2), "nothing": null, "labels": ["a"], "a-b": "x", "rare": "x",
                "error_message": "gone",
            });
            if number < 2 {
                payload["url"] = Value::Null;
            } else {
                payload["url"] = format!("https://h/{number}").into();
            }
            if number > 8 {
                payload["rare"] = Value::Null;
            }
            payload
        }));
        let row = |name: &str| fields.all.iter().find(|field| field.name == name).expect(name);
        let shown = |name: &str| {
            let Field { count, kind, values, is_column, key, .. } = row(name);
            (*count, kind.as_str(), *values, *is_column, *key)
        };
        for (name, expected) in [
            ("service", (20, "text", Some(4), true, KeyPart::Is)),
            ("version", (20, "text", None, true, KeyPart::No)),
            ("url", (18, "text", None, true, KeyPart::No)),
            ("seconds", (20, "number", None, true, KeyPart::No)),
            ("error", (20, "text", Some(1), true, KeyPart::No)),
            ("error_message", (20, "text", Some(1), true, KeyPart::No)),
            ("zone", (20, "text", Some(2), true, KeyPart::No)),
            ("labels", (20, "list", None, false, KeyPart::No)),
            ("a-b", (20, "text", Some(1), false, KeyPart::No)),
            ("rare", (9, "text", Some(1), false, KeyPart::No)),
        ] {
            assert_eq!(shown(name), expected, "{name}");
        }
        assert!(fields.all.iter().all(|field| field.name != "nothing"));
    }

    #[test]
    fn masked_fields_are_no_keys() {
        let fields = Fields::propose(&events(4, |_| json!({ "password": "hunter", "zone": "eu" })));
        assert_eq!(
            fields.all.iter().map(|field| field.key).collect::<Vec<_>>(),
            [KeyPart::Masked, KeyPart::Is]
        );
        assert_eq!((fields.keys(), fields.columns()), (vec!["zone"], vec!["password", "zone"]));
    }

    #[test]
    fn columns_and_keys_are_bounded() {
        let wide = |_| Value::Object((0..20).map(|n| (format!("f{n}"), json!("x"))).collect());
        let fields = Fields::propose(&events(2, wide));
        assert_eq!((fields.columns().len(), fields.keys().len()), (COLUMNS_MAX, KEYS_MAX));
    }
}
