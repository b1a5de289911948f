//! Finds the fields of one JSON object without building a tree: each value stays unparsed text.
//!
//! A reader lists the fields that it knows; another key, a duplicate key and a value of the wrong
//! type are errors with the field's name. `null` counts as absent.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::wire::{FieldError, excerpt, hint};

/// The handling of unknown keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// An error.
    Refused,
    /// Skipped.
    Ignored,
}

/// The known fields of one object.
///
/// Shape: `values[i]` belongs to `names[i]`.
#[derive(Debug)]
pub(crate) struct Fields<'a, const N: usize> {
    names: &'static [&'static str; N],
    values: [Option<&'a RawValue>; N],
}

impl<'a, const N: usize> Fields<'a, N> {
    /// Finds the fields of the object `text`.
    ///
    /// Errors: not JSON, not an object, a duplicate key, or one that is not in `names` unless
    /// unknown ones are ignored.
    pub(crate) fn read(
        text: &'a str,
        names: &'static [&'static str; N],
        unknown: Unknown,
    ) -> Result<Self, FieldError> {
        let mut problem = None;
        let mut json = serde_json::Deserializer::from_str(text);
        let seed = FieldsSeed { names, unknown, problem: &mut problem };
        let read = seed.deserialize(&mut json).and_then(|values| json.end().map(|()| values));
        match (read, problem) {
            (_, Some(problem)) => Err(problem),
            (Ok(values), None) => Ok(Self { names, values }),
            (Err(error), None) if error.is_data() => {
                Err(FieldError::whole(format!("must be a JSON object, not {}", kind_of(text))))
            }
            (Err(error), None) => Err(FieldError::whole(format!("is not JSON: {error}"))),
        }
    }

    /// The unparsed value of `name`.
    pub(crate) fn raw(&self, name: &str) -> Option<&'a RawValue> {
        let index = self.names.iter().position(|known| *known == name)?;
        self.values.get(index).copied().flatten()
    }

    /// The text of `name`, borrowed unless it has escapes.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, FieldError> {
        self.raw(name).map(|raw| text_of(raw).map_err(|message| FieldError::new(name, message))).transpose()
    }

    /// As [`Fields::text`], for a required field.
    pub(crate) fn required(&self, name: &'static str) -> Result<Cow<'a, str>, FieldError> {
        self.text(name)?.ok_or_else(|| FieldError::new(name, "is missing"))
    }

    /// The integer `name`.
    pub(crate) fn count(&self, name: &'static str) -> Result<Option<u32>, FieldError> {
        let read = |raw: &RawValue| {
            raw.get().parse().map_err(|_| {
                let message = format!("must be a whole number up to {}, not {}", u32::MAX, shown(raw.get()));
                FieldError::new(name, message)
            })
        };
        self.raw(name).map(read).transpose()
    }

    /// The integer `name`, where it may exceed a count.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<u64>, FieldError> {
        let read = |raw: &RawValue| {
            let message = || format!("must be a whole number, not {}", shown(raw.get()));
            raw.get().parse().map_err(|_| FieldError::new(name, message()))
        };
        self.raw(name).map(read).transpose()
    }

    /// The boolean `name`.
    pub(crate) fn flag(&self, name: &'static str) -> Result<Option<bool>, FieldError> {
        let read = |raw: &RawValue| {
            let message = || format!("must be true or false, not {}", kind_of(raw.get()));
            serde_json::from_str(raw.get()).map_err(|_| FieldError::new(name, message()))
        };
        self.raw(name).map(read).transpose()
    }

    /// The items of `name`; none when it is absent.
    pub(crate) fn items(&self, name: &'static str) -> Result<Vec<&'a RawValue>, FieldError> {
        let read = |raw: &'a RawValue| {
            serde_json::from_str(raw.get())
                .map_err(|_| FieldError::new(name, format!("must be an array, not {}", kind_of(raw.get()))))
        };
        self.raw(name).map_or_else(|| Ok(Vec::new()), read)
    }
}

/// The text of a JSON string, borrowed unless it has escapes.
///
/// Errors: the actual type if it is not a string.
pub(crate) fn text_of(raw: &RawValue) -> Result<Cow<'_, str>, String> {
    let json = raw.get();
    let inner = json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match inner {
        None => Err(format!("must be a string, not {}", kind_of(json))),
        Some(plain) if memchr::memchr(b'\\', plain.as_bytes()).is_none() => Ok(Cow::Borrowed(plain)),
        Some(_) => {
            serde_json::from_str(json).map(Cow::Owned).map_err(|error| format!("is not text: {error}"))
        }
    }
}

/// The JSON type at the start of `text`, with its article.
pub(crate) fn kind_of(text: &str) -> &'static str {
    match text.trim_start().as_bytes().first() {
        None => "nothing",
        Some(b'{') => "an object",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) => "a number",
    }
}

fn shown(text: &str) -> String {
    match text.as_bytes().first() {
        Some(b'{' | b'[' | b'"') => kind_of(text).to_owned(),
        _ => format!("`{}`", excerpt(text)),
    }
}

struct FieldsSeed<'p, const N: usize> {
    names: &'static [&'static str; N],
    unknown: Unknown,
    problem: &'p mut Option<FieldError>,
}

impl<'de, const N: usize> DeserializeSeed<'de> for FieldsSeed<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for FieldsSeed<'_, N> {
    type Value = [Option<&'de RawValue>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let mut values = [None; N];
        let mut seen = [false; N];
        while let Some(Key(key)) = map.next_key()? {
            let value: &'de RawValue = map.next_value()?;
            let index = self.names.iter().position(|name| *name == key).unwrap_or(N);
            let (Some(slot), Some(is_seen)) = (values.get_mut(index), seen.get_mut(index)) else {
                if self.unknown == Unknown::Refused && self.problem.is_none() {
                    let message = format!("unknown field; {}", hint(&key, self.names));
                    *self.problem = Some(FieldError::new(excerpt(&key), message));
                }
                continue;
            };
            if *is_seen && self.problem.is_none() {
                *self.problem = Some(FieldError::new(excerpt(&key), "stands there twice"));
            }
            *is_seen = true;
            *slot = (value.get() != "null").then_some(value);
        }
        Ok(values)
    }
}

struct Key<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl<'de> Visitor<'de> for KeyVisitor {
    type Value = Key<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Borrowed(key)))
    }

    fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
        Ok(Key(Cow::Owned(key.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = ["name", "count", "items"];

    fn read(text: &str) -> Result<Fields<'_, 3>, FieldError> {
        Fields::read(text, &NAMES, Unknown::Refused)
    }

    #[test]
    fn plain_text_is_borrowed_and_escaped_text_is_decoded() {
        let fields = read(r#"{"name":"plain","items":["\u00e4\n"]}"#).expect("an object");
        assert!(matches!(fields.text("name"), Ok(Some(Cow::Borrowed("plain")))));
        let items = fields.items("items").expect("an array");
        assert_eq!(text_of(items[0]).as_deref(), Ok("\u{e4}\n"));
        assert_eq!(fields.count("count"), Ok(None));
    }

    #[test]
    fn a_null_is_absent() {
        let fields = read(r#"{"name":null}"#).expect("an object");
        assert_eq!(fields.text("name"), Ok(None));
        assert_eq!(fields.required("name"), Err(FieldError::new("name", "is missing")));
    }

    #[test]
    fn what_is_no_such_object_is_refused_with_the_place() {
        for (text, expected) in [
            ("[1]", "must be a JSON object, not an array"),
            ("", "is not JSON: EOF while parsing a value at line 1 column 0"),
            ("{} {}", "is not JSON: trailing characters at line 1 column 4"),
            (r#"{"nam":1}"#, "nam: unknown field; did you mean `name`?"),
            (r#"{"color":1}"#, "color: unknown field; there are name, count, items"),
            (r#"{"name":"a","name":"b"}"#, "name: stands there twice"),
        ] {
            assert_eq!(read(text).expect_err(text).to_string(), expected);
        }
    }

    #[test]
    fn values_of_the_wrong_kind_are_named() {
        let fields = read(r#"{"name":7,"count":-1,"items":"x"}"#).expect("an object");
        assert_eq!(
            fields.text("name").expect_err("a number").to_string(),
            "name: must be a string, not a number"
        );
        assert_eq!(
            fields.count("count").expect_err("negative").to_string(),
            "count: must be a whole number up to 4294967295, not `-1`"
        );
        assert_eq!(
            fields.items("items").expect_err("text").to_string(),
            "items: must be an array, not a string"
        );
    }

    #[test]
    fn unknown_fields_can_be_skipped() {
        let fields =
            Fields::read(r#"{"x":{"y":1},"name":"n"}"#, &NAMES, Unknown::Ignored).expect("an object");
        assert_eq!(fields.required("name").as_deref(), Ok("n"));
    }
}
