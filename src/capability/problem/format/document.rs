//! The bound of a document, and items of JSON documents, which are parsed one at a time.

use serde::Deserialize;
use serde_json::value::RawValue;

/// Most problems that are read from one document.
pub(super) const PROBLEMS_MAX: usize = 2_000;

/// Parses one item of a document; `place` is its path in it.
///
/// Errors: the path of what is wrong, and line and column in the item.
pub(super) fn item<'a, T: Deserialize<'a>>(item: &'a RawValue, place: &str) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_str(item.get());
    serde_path_to_error::deserialize(&mut json).map_err(|error| match error.path().to_string().as_str() {
        "." | "?" => field(place, error.inner()),
        path if place.is_empty() => field(path, error.inner()),
        path => field(&format!("{place}.{path}"), error.inner()),
    })
}

/// The error at `place`, a path; empty for the whole.
pub(super) fn field(place: &str, error: &serde_json::Error) -> String {
    if place.is_empty() { error.to_string() } else { format!("{place}: {error}") }
}
