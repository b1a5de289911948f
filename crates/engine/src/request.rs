//! Parses a request in JSON into its derived type, with an error for the user if it does not fit.
//!
//! A valid request is parsed once; only an error costs more. `null` counts as absent where a field
//! is optional.
//!
//! An error has the field, and a sentence with the valid values.

pub mod names;

#[cfg(test)]
mod tests;

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{Error, IgnoredAny, IntoDeserializer, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};
use serde_path_to_error::Segment;

use crate::nearest::nearest;

/// A text of a request, borrowed unless it has escapes.
///
/// A plain `Option<Cow>` would copy the text: `borrow` has no effect inside an `Option`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl<'a> From<Text<'a>> for Cow<'a, str> {
    fn from(text: Text<'a>) -> Self {
        text.0
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The first `MAX` items of an array, and the number of all; further ones are skipped without being
/// built.
#[derive(Debug)]
pub struct AtMost<T, const MAX: usize> {
    /// The first `MAX` items at most.
    pub items: Vec<T>,
    /// Number of all items, also the skipped ones.
    pub count: usize,
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(AtMostVisitor(PhantomData))
    }
}

struct AtMostVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for AtMostVisitor<T, MAX> {
    type Value = AtMost<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while items.len() < MAX {
            let Some(item) = array.next_element()? else { break };
            items.push(item);
        }
        let mut count = items.len();
        if count == MAX {
            while array.next_element::<IgnoredAny>()?.is_some() {
                count += 1;
            }
        }
        Ok(AtMost { items, count })
    }
}

/// The expected types that serde reports for an object, and for one or more texts.
const OBJECT: &str = "a JSON object";
const ONE_OR_MANY: &str = "a string or an array of strings";
const TEXT_OR_NUMBER: &str = "a string or a whole number";
/// The message of serde for JSON with too many levels, whose path is long.
const TOO_DEEP: &str = "recursion limit exceeded";

/// Reads an object inside a request.
///
/// Without this, serde also accepts an array, whose items are the fields by position.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Object<T>>::deserialize(from)?.map(|object| object.0))
}

struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(OBJECT)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(fields)).map(Object)
    }
}

/// Reads a word of an enum.
///
/// Without this, serde also accepts an object that has the word as its only field.
pub fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    T::deserialize(Text::deserialize(from)?.0.into_deserializer())
}

/// Reads a word of an enum that may be absent, like [`word`].
pub fn optional_word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let word: Option<Text<'de>> = Deserialize::deserialize(from)?;
    word.map(|word| T::deserialize(word.0.into_deserializer())).transpose()
}

/// The same without the white space around the word, for what a model writes.
pub fn trimmed_word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    let word: Option<Text<'de>> = Deserialize::deserialize(from)?;
    word.map(|word| T::deserialize(word.trim().into_deserializer())).transpose()
}

/// Reads an array of texts; a single one may be given without brackets, as models often write it.
pub fn one_or_many<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    from.deserialize_any(OneOrMany)
}

struct OneOrMany;

impl<'de> Visitor<'de> for OneOrMany {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ONE_OR_MANY)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(vec![text.to_owned()])
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        few(items)
    }
}

/// Reads an array of texts, or nothing.
pub fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Text<'de>>>, D::Error> {
    from.deserialize_any(Texts)
}

struct Texts;

impl<'de> Visitor<'de> for Texts {
    type Value = Option<Vec<Text<'de>>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        few(items).map(Some)
    }
}

/// Most texts of an array that are read, far above what any field accepts: short texts take many
/// times the memory of their JSON.
const TEXTS_MAX: usize = 1_000;

/// Reads an array of at most [`TEXTS_MAX`] texts.
fn few<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(mut items: A) -> Result<Vec<T>, A::Error> {
    let mut read = Vec::new();
    while let Some(item) = items.next_element()? {
        if read.len() == TEXTS_MAX {
            return Err(A::Error::custom(format_args!("must be at most {TEXTS_MAX} texts")));
        }
        read.push(item);
    }
    Ok(read)
}

/// Reads a text, or a whole number as its digits; `null` is absent.
pub fn text_or_number<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Text<'de>>, D::Error> {
    from.deserialize_any(TextOrNumber)
}

struct TextOrNumber;

impl<'de> Visitor<'de> for TextOrNumber {
    type Value = Option<Text<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TEXT_OR_NUMBER)
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Some(Text(Cow::Borrowed(text))))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Some(Text(Cow::Owned(number.to_string()))))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Some(Text(Cow::Owned(number.to_string()))))
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }
}

/// Reads the object `text`.
///
/// Errors: it is not a JSON object; or the path of a field that is unknown, missing, given twice or
/// of the wrong type, with the nearest valid word or the allowed ones.
pub fn read<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, FieldError> {
    if !text.trim_ascii_start().starts_with('{') {
        return Err(no_json(text)
            .unwrap_or_else(|| FieldError::whole(format!("must be a JSON object, not {}", kind_of(text)))));
    }
    serde_json::from_str(text).map_err(|error| no_json(text).unwrap_or_else(|| explain::<T>(text, &error)))
}

/// Reads the object in the bytes of a body.
///
/// Errors: as [`read`], or it is not UTF-8.
pub fn read_body<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, FieldError> {
    let text = std::str::from_utf8(body);
    read(text.map_err(|error| FieldError::whole(format!("is not UTF-8: {error}")))?)
}

fn no_json(text: &str) -> Option<FieldError> {
    let error = serde_json::from_str::<IgnoredAny>(text).err()?;
    Some(FieldError::whole(format!("is not JSON: {error}")))
}

/// Parses again to find the path of `error`.
fn explain<'a, T: Deserialize<'a>>(text: &'a str, error: &serde_json::Error) -> FieldError {
    let mut json = serde_json::Deserializer::from_str(text);
    let found = serde_path_to_error::deserialize::<_, T>(&mut json).err();
    let last = found.as_ref().and_then(|error| error.path().iter().next_back());
    let said = error.to_string();
    let said = said.rsplit_once(" at line ").map_or(&*said, |(said, _)| said);
    let place = found.as_ref().filter(|_| last.is_some()).map(|error| match error.path().iter().next() {
        Some(field) if said == TOO_DEEP => field.to_string(),
        Some(_) | None => error.path().to_string(),
    });
    let path = excerpt(&place.unwrap_or_default());
    let is_item = matches!(last, Some(Segment::Seq { .. }));
    let (field, message) = match said {
        _ if said.starts_with("invalid type: null") && !is_item => (None, "is missing".to_owned()),
        _ => phrase(said),
    };
    let field = match (&*path, field) {
        (_, None) => path,
        ("", Some(name)) => name.to_owned(),
        (outer, Some(name)) => format!("{outer}.{name}"),
    };
    FieldError::new(field, message)
}

/// The sentence for an error of serde, and the field that it names if its path ends at the object.
fn phrase(said: &str) -> (Option<&str>, String) {
    if let Some(name) = said.strip_prefix("missing field ") {
        return (Some(name.trim_matches('`')), "is missing".to_owned());
    }
    if let Some(name) = said.strip_prefix("duplicate field ") {
        return (Some(name.trim_matches('`')), "is given twice".to_owned());
    }
    let Some((found, expected)) = said.rsplit_once(", expected ") else { return (None, unreadable(said)) };
    if found.starts_with("unknown field ") {
        return (None, format!("unknown field; {}", hint(quoted(found), &words(expected))));
    }
    if found.starts_with("unknown variant ") {
        let word = quoted(found);
        return (None, format!("`{}` is not allowed; {}", excerpt(word), hint(word, &words(expected))));
    }
    let found = found.strip_prefix("invalid type: ").or_else(|| found.strip_prefix("invalid value: "));
    let found = found.map(|found| format!(", not {}", shown(found, expected))).unwrap_or_default();
    (None, format!("must be {}{found}", wanted(expected)))
}

/// The sentence for JSON that cannot be represented: half of a surrogate, a number out of range,
/// too many levels.
fn unreadable(said: &str) -> String {
    match said {
        "number out of range" => "is too large a number".to_owned(),
        TOO_DEEP => "is nested too deeply".to_owned(),
        _ if ["escape", "surrogate", "unicode"].iter().any(|part| said.contains(part)) => {
            format!("is not text: {said}")
        }
        _ => format!("is invalid: {said}"),
    }
}

/// The text between the first and the last backtick.
fn quoted(text: &str) -> &str {
    let inner = text.split_once('`').and_then(|(_, rest)| rest.rsplit_once('`'));
    inner.map_or(text, |(inner, _)| inner)
}

/// The texts in backticks.
fn words(list: &str) -> Vec<&str> {
    list.split('`').skip(1).step_by(2).collect()
}

/// The type that serde expected, as a JSON term.
fn wanted(expected: &str) -> String {
    match expected {
        "a boolean" => "true or false".to_owned(),
        "a sequence" => "an array".to_owned(),
        "u32" => format!("a whole number up to {}", u32::MAX),
        "u64" => "a whole number".to_owned(),
        "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        OBJECT | ONE_OR_MANY | TEXT_OR_NUMBER => expected.to_owned(),
        _ => "a string".to_owned(),
    }
}

/// The value that serde found: the number itself if another number is valid, else the type.
fn shown(found: &str, expected: &str) -> String {
    let number = found.strip_prefix("integer ").or_else(|| found.strip_prefix("floating point "));
    match number {
        Some(number) if matches!(expected, "u32" | "u64" | "i32" | TEXT_OR_NUMBER) => excerpt(number),
        Some(_) => "a number".to_owned(),
        None if found.starts_with("string") => "a string".to_owned(),
        None if found.starts_with("boolean") => "a boolean".to_owned(),
        None if found.starts_with("sequence") => "an array".to_owned(),
        None if found.starts_with("map") => "an object".to_owned(),
        None => excerpt(found),
    }
}

/// The JSON type at the start of `text`, with its article.
pub fn kind_of(text: &str) -> &'static str {
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

/// Longest excerpt of client input in an error, in characters.
const EXCERPT_CHARS_MAX: usize = 64;
/// Most characters of a quoted error's text.
const CHARS_MAX: usize = 1_000;
/// Its first characters that are kept; the rest of the bound is for its end.
const BEGIN_CHARS: usize = 600;
/// Stands where the middle was.
const CUT: &str = " [...] ";

/// An error in the input.
///
/// Shape: `field` is a path such as `budget.max_tokens` or `observe[2].severity`; `None` when the
/// whole is unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}", field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
pub struct FieldError {
    /// The field.
    pub field: Option<Cow<'static, str>>,
    /// The error, and the valid values.
    pub message: String,
}

impl FieldError {
    /// An error in one field.
    pub fn new(field: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), message: shortened(message.into()) }
    }

    /// An error in the whole input.
    pub fn whole(message: impl Into<String>) -> Self {
        Self { field: None, message: shortened(message.into()) }
    }

    /// Prepends the path of the enclosing object.
    #[must_use]
    pub fn within(self, outer: &str) -> Self {
        let field = self.field.map_or_else(|| outer.to_owned(), |inner| format!("{outer}.{inner}"));
        Self { field: Some(field.into()), message: self.message }
    }
}

/// The part of `text` that an error may contain.
pub fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let mut kept: String = chars.by_ref().take(EXCERPT_CHARS_MAX).collect();
    if chars.next().is_some() {
        kept.push_str("...");
    }
    kept
}

/// The end of a sentence about an invalid word: the nearest valid one, or all of them.
pub fn hint(found: &str, allowed: &[&str]) -> String {
    nearest(found, allowed.iter().copied()).map_or_else(
        || format!("use one of {}", allowed.join(", ")),
        |word| format!("did you mean `{word}`?"),
    )
}

/// Returns an error's text without its middle, if it is long: a parser's error quotes the whole
/// value that it refuses, and names the place at its end.
pub fn shortened(text: String) -> String {
    let chars = if text.len() <= CHARS_MAX { 0 } else { text.chars().count() };
    if chars <= CHARS_MAX {
        return text;
    }
    let end_chars = CHARS_MAX - BEGIN_CHARS - CUT.len();
    let byte_at = |char: usize| text.char_indices().nth(char).map_or(text.len(), |(byte, _)| byte);
    let (begin, _) = text.split_at(byte_at(BEGIN_CHARS));
    let (_, end) = text.split_at(byte_at(chars - end_chars));
    [begin, CUT, end].concat()
}
