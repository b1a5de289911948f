//! Access to the fields of an event by name, for keys, groups and conditions.

use std::borrow::Cow;

use serde_json::Value;

use super::{Event, Field, SessionId};

/// A path to one field of an event, such as `type` or `payload.tool_name`.
///
/// Shape: an envelope field (`id`, `type`, `source`, `severity`, `session`, `workspace`), or
/// `payload`, alone or with the keys below it. Several are separated by `|`: the first that is neither absent
/// nor null counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath {
    segments: Vec<String>,
    or_else: Option<Box<FieldPath>>,
}

impl FieldPath {
    /// The first segments that a path can have.
    pub const ROOTS: [&str; 7] = ["type", "source", "severity", "session", "workspace", "id", "payload"];

    /// Parses a path; `None` for an unknown root or an empty segment.
    pub fn parse(text: &str) -> Option<Self> {
        let (text, or_else) = match text.split_once('|') {
            Some((text, others)) => (text, Some(Box::new(Self::parse(others)?))),
            None => (text, None),
        };
        let segments: Vec<String> = text.split('.').map(str::to_owned).collect();
        let root = segments.first()?;
        let is_envelope_field = root != "payload" && segments.len() == 1;
        let is_payload_field = root == "payload";
        let is_known = Self::ROOTS.contains(&root.as_str()) && (is_envelope_field || is_payload_field);
        (is_known && segments.iter().all(|segment| !segment.is_empty())).then_some(Self { segments, or_else })
    }

    /// Whether the path names a payload field.
    pub fn is_of_payload(&self) -> bool {
        self.segments.first().is_some_and(|root| root == "payload")
            || self.or_else.as_ref().is_some_and(|path| path.is_of_payload())
    }

    /// The names of the payload fields that the path begins with, alternatives included.
    pub fn payload_fields(&self) -> impl Iterator<Item = &str> {
        let paths = std::iter::successors(Some(self), |path| path.or_else.as_deref());
        paths.filter_map(|path| path.segments.get(1)).map(String::as_str)
    }

    /// Whether the path names the whole payload.
    pub fn is_whole_payload(&self) -> bool {
        self.segments == ["payload"]
    }

    /// Removes the payload field that the path names.
    pub fn remove_from(&self, payload: &mut Value) {
        let Some(([_, above @ ..], last)) = self.segments.split_last().map(|(last, above)| (above, last))
        else {
            return;
        };
        let found = above.iter().try_fold(payload, |value, key| value.get_mut(key));
        if let Some(Value::Object(fields)) = found {
            fields.remove(last);
        }
    }

    /// The text of the field in `event`: strings without quotes, other values as JSON, empty if
    /// absent or null.
    pub fn text<'e>(&self, event: &'e Event) -> Cow<'e, str> {
        match self.value(event) {
            FieldValue::Absent | FieldValue::Null => "".into(),
            FieldValue::Text(text) | FieldValue::Json(text) => text,
        }
    }

    /// The field's value in `event`.
    pub fn value<'e>(&self, event: &'e Event) -> FieldValue<'e> {
        let own = self.own_value(event);
        match &self.or_else {
            Some(path) if matches!(own, FieldValue::Absent | FieldValue::Null) => path.value(event),
            Some(_) | None => own,
        }
    }

    fn own_value<'e>(&self, event: &'e Event) -> FieldValue<'e> {
        let text = match self.segments.first().map(String::as_str) {
            Some("type") => event.event_type.as_str(),
            Some("source") => &event.source,
            Some("severity") => event.severity.as_str(),
            Some("id") => &event.id,
            Some("session") => event.session.as_ref().map_or("", SessionId::as_str),
            Some("workspace") => event.workspace.as_deref().unwrap_or(""),
            _ => return self.payload_value(event),
        };
        FieldValue::Text(text.into())
    }

    fn payload_value<'e>(&self, event: &'e Event) -> FieldValue<'e> {
        if let [_, name] = self.segments.as_slice()
            && let Ok(found) = event.payload.field(name)
        {
            return match found {
                None => FieldValue::Absent,
                Some(Field::Text(text)) => FieldValue::Text(text.into()),
                Some(field @ Field::Json(json)) => match field.literal() {
                    Some(literal) => FieldValue::Json(literal.into()),
                    None => FieldValue::new(&serde_json::from_str(json).unwrap_or(Value::Null)).into_owned(),
                },
            };
        }
        let root: &Value = event.payload.value();
        let found = self.segments.iter().skip(1).try_fold(root, |value, key| match value.as_array() {
            Some(items) => key.parse().ok().and_then(|index: usize| items.get(index)),
            None => value.get(key),
        });
        found.map_or(FieldValue::Absent, FieldValue::new)
    }
}

/// The value of an event's field, for comparisons: `1` differs from `"1"`, and null from an absent
/// field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue<'e> {
    /// The event does not have the field.
    Absent,
    /// The field is null.
    Null,
    /// A string.
    Text(Cow<'e, str>),
    /// The JSON of any other value.
    Json(Cow<'e, str>),
}

impl<'e> FieldValue<'e> {
    fn new(value: &'e Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::String(text) => Self::Text(text.as_str().into()),
            Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
                Self::Json(value.to_string().into())
            }
        }
    }

    fn into_owned<'o>(self) -> FieldValue<'o> {
        match self {
            Self::Absent => FieldValue::Absent,
            Self::Null => FieldValue::Null,
            Self::Text(text) => FieldValue::Text(text.into_owned().into()),
            Self::Json(text) => FieldValue::Json(text.into_owned().into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_path_has_a_known_root() {
        assert!(FieldPath::parse("payload.tool_name").is_some());
        assert!(FieldPath::parse("payload.branch|payload.pr|source").is_some());
        for bad in ["tool_name", "type.x", "payload..x", "", "payload.x|", "|payload.x", "payload.x|y"] {
            assert!(FieldPath::parse(bad).is_none(), "{bad}");
        }
    }
}
