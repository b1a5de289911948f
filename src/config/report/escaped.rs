//! Maps a part of a string of TOML to the file's text with its quotes and escapes.

use std::ops::Range;

/// The bytes of `literal`, a basic string with its quotes, for a range of its `content`; `None` if it
/// is not the text of that string.
pub(super) fn map(literal: &str, content: &str, range: Range<usize>) -> Option<Range<usize>> {
    let quotes = if literal.starts_with("\"\"\"") { "\"\"\"" } else { "\"" };
    let inner = literal.strip_prefix(quotes)?.strip_suffix(quotes)?;
    let first_line = if quotes.len() == 3 && inner.starts_with('\n') { 1 } else { 0 };
    let (mut at, mut read) = (quotes.len() + first_line, 0);
    let (mut start, mut end) = (None, None);
    let mut wanted = content.chars();
    while let Some(rest) = literal.get(at..literal.len() - quotes.len()).filter(|rest| !rest.is_empty()) {
        if read == range.start {
            start = start.or(Some(at));
        }
        let length = length_of_first(rest)?;
        if !is_line_break(rest) {
            let next = wanted.next()?;
            if !rest.starts_with(['\\', next]) {
                return None;
            }
            read += next.len_utf8();
        }
        at += length;
        if read >= range.end && end.is_none() {
            end = Some(at);
        }
    }
    (wanted.next().is_none()).then_some(())?;
    let start = start.unwrap_or(at);
    Some(start..end.unwrap_or(at).max(start + 1))
}

/// Whether a text begins with a backslash at the end of a line, which TOML leaves out.
fn is_line_break(text: &str) -> bool {
    let escaped = text.strip_prefix('\\').map(|rest| rest.trim_start_matches([' ', '\t', '\r']));
    escaped.is_some_and(|rest| rest.starts_with('\n'))
}

/// The bytes of the first character of a text, or of its escape.
fn length_of_first(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    if is_line_break(text) {
        let rest = text.get(1..)?;
        return Some(text.len() - rest.trim_start().len());
    }
    Some(match (first, text.chars().nth(1)) {
        ('\\', Some('x')) => 4,
        ('\\', Some('u')) => 6,
        ('\\', Some('U')) => 10,
        ('\\', Some(_)) => 2,
        _ => first.len_utf8(),
    })
}
