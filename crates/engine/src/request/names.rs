//! Names and folders in requests: ids, sources, sessions, carriers, absolute paths.

use std::borrow::Cow;

use crate::{
    event::clean_text,
    request::{FieldError, excerpt},
};

/// Longest id, source, session or cause, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest folder, in bytes (`PATH_MAX` of Linux).
pub const WORKSPACE_BYTES_MAX: usize = 4096;

/// Validates a name: printable, not empty, at most [`NAME_BYTES_MAX`] bytes.
pub fn checked_name<'a>(
    field: &'static str,
    text: impl Into<Cow<'a, str>>,
) -> Result<Cow<'a, str>, FieldError> {
    let text = text.into();
    if text.is_empty() {
        return Err(FieldError::new(field, "must not be empty"));
    }
    check_printable(field, &text, NAME_BYTES_MAX)?;
    Ok(text)
}

/// The same for a name that may be absent.
pub fn read_name<'a>(
    field: &'static str,
    text: Option<impl Into<Cow<'a, str>>>,
) -> Result<Option<Cow<'a, str>>, FieldError> {
    text.map(|text| checked_name(field, text)).transpose()
}

/// Parses a folder: an absolute path, because folders are compared by segment.
///
/// Shape: without empty and `.` segments and a trailing slash, none of which changes the target. A
/// name may have every character that the system allows; output code removes unsafe ones. Errors:
/// it is relative, too long, or has a `..`, whose target depends on links.
pub fn read_workspace<'a>(
    field: &'static str,
    text: Option<impl Into<Cow<'a, str>>>,
) -> Result<Option<Cow<'a, str>>, FieldError> {
    let Some(text) = text.map(Into::into) else { return Ok(None) };
    check_length(field, &text, WORKSPACE_BYTES_MAX)?;
    let Some(relative) = text.strip_prefix('/') else {
        return Err(FieldError::new(field, format!("must be an absolute path, not `{}`", excerpt(&text))));
    };
    if text.contains('\0') {
        return Err(FieldError::new(field, "must not contain a NUL, which no path has"));
    }
    if relative.split('/').any(|segment| segment == "..") {
        let message = format!("must be a path without `..`, not `{}`", excerpt(&text));
        return Err(FieldError::new(field, message));
    }
    let is_nothing = |segment: &&str| matches!(*segment, "" | ".");
    if relative.is_empty() || !relative.split('/').any(|segment| is_nothing(&segment)) {
        return Ok(Some(text));
    }
    let segments: Vec<&str> = relative.split('/').filter(|segment| !is_nothing(segment)).collect();
    Ok(Some(Cow::Owned(format!("/{}", segments.join("/")))))
}

fn check_length(field: &'static str, text: &str, bytes_max: usize) -> Result<(), FieldError> {
    if text.len() > bytes_max {
        let message = format!("has {} bytes, at most {bytes_max} are allowed", text.len());
        return Err(FieldError::new(field, message));
    }
    Ok(())
}

/// Refuses a text that is too long or has characters that are not printed on one line.
pub fn check_printable(field: &'static str, text: &str, bytes_max: usize) -> Result<(), FieldError> {
    check_length(field, text, bytes_max)?;
    let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_plain && (text.contains(['\n', '\t']) || clean_text(text) != text) {
        let message = "must be made of printable characters: no line breaks, control or invisible ones";
        return Err(FieldError::new(field, message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_is_normalized_and_accepts_any_name() {
        let cases = [
            ("/", "/"),
            ("/a/b.c/..d", "/a/b.c/..d"),
            ("/a/", "/a"),
            ("//a//b/", "/a/b"),
            ("/./a/./b/.", "/a/b"),
            ("//", "/"),
            ("/.", "/"),
            ("/home/u/\u{645}\u{6cc}\u{200c}\u{62e}", "/home/u/\u{645}\u{6cc}\u{200c}\u{62e}"),
            ("/\u{1f469}\u{200d}\u{1f4bb}/\u{2764}\u{fe0f}", "/\u{1f469}\u{200d}\u{1f4bb}/\u{2764}\u{fe0f}"),
            ("/a\tb\nc\u{1b}[31m", "/a\tb\nc\u{1b}[31m"),
        ];
        for (folder, expected) in cases {
            let read = read_workspace("workspace", Some(Cow::Borrowed(folder))).expect(folder);
            assert_eq!(read.as_deref(), Some(expected));
        }
        for refused in ["a", "", "/a/..", "/a\0b", &"/a".repeat(WORKSPACE_BYTES_MAX)] {
            assert!(read_workspace("workspace", Some(Cow::Borrowed(refused))).is_err(), "{refused}");
        }
    }
}
