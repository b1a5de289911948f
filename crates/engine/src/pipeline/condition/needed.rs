//! What an event must have for a condition to be true, found without evaluating it: a condition of the
//! form `payload.zone == 'eu' and ..` is false for all events with another zone.

use crate::{
    event::{Event, FieldPath, FieldValue},
    pipeline::sandbox::{Compares, Joined, joined},
};

/// A field of an event, and the text that it must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::pipeline) struct Needed {
    pub(in crate::pipeline) field: FieldPath,
    pub(in crate::pipeline) text: String,
}

impl Needed {
    /// What the condition with this text needs, if that is a field with a text.
    pub(super) fn find(source: &str) -> Option<Self> {
        Self::of(source, &joined(source).ok()?)
    }

    /// What a part of a condition needs, if it is a comparison of a field with a text, or has one that
    /// must be true.
    fn of(source: &str, joined: &Joined) -> Option<Self> {
        match joined {
            Joined::Both(both) => both.iter().find_map(|part| Self::of(source, part)),
            Joined::One(part) if part.compares == Compares::Equal => {
                let (left, right) = source.get(part.range.clone())?.split_once("==")?;
                let [left, right] = [left.trim(), right.trim()];
                let of_sides = |field, text| Some(Self { field: field_of(field)?, text: text_of(text)? });
                of_sides(left, right).or_else(|| of_sides(right, left))
            }
            Joined::One(_) | Joined::Either(_) | Joined::Not(_) => None,
        }
    }
}

fn field_of(text: &str) -> Option<FieldPath> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.';
    FieldPath::parse(text).filter(|_| text.bytes().all(is_plain))
}

/// The text in quotes, if it has none inside and nothing that the language replaces.
fn text_of(quoted: &str) -> Option<String> {
    let within = |quote: char| quoted.strip_prefix(quote)?.strip_suffix(quote);
    let text = within('\'').or_else(|| within('"'))?;
    (!text.contains(['\'', '"', '\\', '\n'])).then(|| text.to_owned())
}

/// The values of an event's fields that several conditions need, each read once.
#[derive(Debug)]
pub(in crate::pipeline) struct NeededValues<'e> {
    event: &'e Event,
    /// The fields of the conditions so far.
    known: Vec<(FieldPath, FieldValue<'e>)>,
}

impl<'e> NeededValues<'e> {
    pub(in crate::pipeline) fn new(event: &'e Event) -> Self {
        Self { event, known: Vec::new() }
    }

    /// Whether the event has what a condition needs. If not, the condition is false.
    pub(in crate::pipeline) fn allow(&mut self, needed: Option<&Needed>) -> bool {
        let Some(Needed { field, text }) = needed else { return true };
        let known = self.known.iter().position(|(own, _)| own == field);
        let at = known.unwrap_or_else(|| {
            self.known.push((field.clone(), field.value(self.event)));
            self.known.len() - 1
        });
        let value = self.known.get(at).map(|(_, value)| value);
        value.is_some_and(|value| matches!(value, FieldValue::Text(own) if *own == **text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pipeline::{condition::Condition, tests::event};

    #[test]
    fn a_comparison_with_a_text_is_needed() {
        for (source, expected) in [
            ("payload.zone == 'eu'", Some(("payload.zone", "eu"))),
            ("\"eu\"==payload.zone", Some(("payload.zone", "eu"))),
            ("payload.n > 1 and (payload.a.b == 'x y' and true)", Some(("payload.a.b", "x y"))),
            ("source == 'ci'", Some(("source", "ci"))),
            ("payload.zone == 'eu' or payload.n > 1", None),
            ("not payload.zone == 'eu'", None),
            ("payload.zone != 'eu'", None),
            ("payload.zone == 5", None),
            ("payload.zone == 'a\\'b'", None),
            ("payload.zone|upper == 'EU'", None),
            ("payload.zone == payload.other", None),
            ("payload['zone'] == 'eu'", None),
            ("payload.zone == 'eu' == true", None),
        ] {
            let found = Needed::find(source);
            let expected =
                expected.map(|(field, text)| (FieldPath::parse(field).expect("a field"), text.to_owned()));
            assert_eq!(found.map(|needed| (needed.field, needed.text)), expected, "{source}");
        }
    }

    #[test]
    fn conditions_without_their_need_are_false() {
        let conditions: Vec<Condition> = [
            "payload.zone == 'eu'",
            "payload.zone == ''",
            "payload.zone == '5'",
            "'true' == payload.zone and payload.n == 1",
            "payload.zone.name == 'eu'",
            "source == 'test'",
            "severity == 'info'",
            "type == 'x.y'",
            "session == 's'",
        ]
        .map(Condition::deferred)
        .into();
        for fields in [
            r#""zone":"eu""#,
            r#""zone":"e\u0075""#,
            r#""zone":"""#,
            r#""zone":5"#,
            r#""zone":"5""#,
            r#""zone":true"#,
            r#""zone":"true","n":1"#,
            r#""zone":null"#,
            r#""zone":{"name":"eu"}"#,
            r#""zone":["eu"]"#,
            r#""n":1"#,
        ] {
            let event: Arc<Event> = event(fields);
            let mut values = NeededValues::new(&event);
            for condition in &conditions {
                let is_true = condition.test(&event).unwrap_or(false);
                let is_allowed = values.allow(condition.needed());
                assert!(is_allowed || !is_true, "{} of {fields}", condition.source());
                if condition.needed().is_some_and(|needed| needed.field.is_of_payload()) && is_allowed {
                    assert!(
                        is_true || condition.source().contains("and"),
                        "{} of {fields}",
                        condition.source()
                    );
                }
            }
        }
    }
}
