//! The JSON on the stdin of a hook or a status line.

use serde::Deserialize;

use crate::{
    causes::shortened,
    harness::{HookError, InputError},
};

/// Parses the wanted fields, and skips the rest without building it.
///
/// Errors: the input is not valid JSON to its end, or a field has another type; with the path of
/// the field.
pub(super) fn read<'a, T: Deserialize<'a>>(stdin: &'a [u8]) -> Result<T, HookError> {
    serde_json::from_slice(stdin).map_err(|error| {
        let source = InputError::new(error.to_string());
        // It quotes a value whole, and so does the next one.
        drop(error);
        // Only a failed input pays for the path, which copies each key.
        let mut json = serde_json::Deserializer::from_slice(stdin);
        let found = serde_path_to_error::deserialize::<_, T>(&mut json).err();
        let field = found.map_or_else(|| ".".to_owned(), |found| found.path().to_string());
        HookError::Input { field: shortened(field), source }
    })
}
