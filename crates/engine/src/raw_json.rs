//! Walks JSON in place: an object's entries and an array's items one after the other, each as its
//! text. Nothing is built, so memory is that of the text, whatever the text holds.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{Deserializer, Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Result, value::RawValue};

/// Checks that `text` is JSON.
///
/// Errors: it is not.
pub fn json(text: &str) -> Result<&RawValue> {
    serde_json::from_str(text)
}

/// Whether a value is an object.
pub fn is_object(value: &RawValue) -> bool {
    value.get().starts_with('{')
}

/// Whether a value is an array.
pub fn is_array(value: &RawValue) -> bool {
    value.get().starts_with('[')
}

/// Calls `take` with each entry of `object`; equal keys come as often as they stand there.
///
/// Errors: it is not an object, a key is not text, or `take` fails.
pub fn each_entry<'b>(
    object: &'b RawValue,
    take: impl FnMut(&str, &'b RawValue) -> Result<()>,
) -> Result<()> {
    serde_json::Deserializer::from_str(object.get()).deserialize_map(Entries(take))
}

/// Calls `take` with each item of `array` and its index.
///
/// Errors: it is not an array, or `take` fails.
pub fn each_item<'b>(array: &'b RawValue, take: impl FnMut(usize, &'b RawValue) -> Result<()>) -> Result<()> {
    serde_json::Deserializer::from_str(array.get()).deserialize_seq(Items(take))
}

struct Entries<F>(F);

impl<'b, F: FnMut(&str, &'b RawValue) -> Result<()>> Visitor<'b> for Entries<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'b>>(mut self, mut entries: A) -> std::result::Result<(), A::Error> {
        while let Some((Key(key), value)) = entries.next_entry()? {
            (self.0)(&key, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

struct Items<F>(F);

impl<'b, F: FnMut(usize, &'b RawValue) -> Result<()>> Visitor<'b> for Items<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'b>>(mut self, mut items: A) -> std::result::Result<(), A::Error> {
        let mut index = 0;
        while let Some(value) = items.next_element()? {
            (self.0)(index, value).map_err(A::Error::custom)?;
            index += 1;
        }
        Ok(())
    }
}

/// A key, borrowed unless it has escapes.
#[derive(Deserialize)]
struct Key<'b>(#[serde(borrow)] Cow<'b, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_items_come_as_they_stand() {
        let mut seen = Vec::new();
        let object = json(r#" {"a":1,"\u0062":[{}, "x"],"a":null} "#).expect("JSON");
        each_entry(object, |key, value| {
            seen.push(format!("{key}={value}"));
            if is_array(value) {
                each_item(value, |index, item| {
                    seen.push(format!("{index}={item}"));
                    Ok(())
                })?;
            }
            Ok(())
        })
        .expect("an object");
        assert_eq!(seen, ["a=1", r#"b=[{}, "x"]"#, "0={}", r#"1="x""#, "a=null"]);
        let failed = each_item(json("[1,2]").expect("JSON"), |_, _| Err(serde_json::Error::custom("no")));
        assert!(failed.expect_err("it fails").to_string().starts_with("no"));
        assert!(each_entry(json("[]").expect("JSON"), |_, _| Ok(())).is_err());
    }
}
