//! The JSON on the stdin of a hook or a status line.

use serde::Deserialize;

use crate::harness::HookError;

/// Parses the wanted fields, and skips the rest without building it.
///
/// Errors: the input is not valid JSON to its end, or a field has another type; with the path of
/// the field.
pub(super) fn read<'a, T: Deserialize<'a>>(stdin: &'a [u8]) -> Result<T, HookError> {
    let mut json = serde_json::Deserializer::from_slice(stdin);
    let value = serde_path_to_error::deserialize(&mut json)
        .map_err(|error| HookError::Input { field: error.path().to_string(), source: error.into_inner() })?;
    json.end().map_err(|source| HookError::Input { field: ".".to_owned(), source })?;
    Ok(value)
}
