//! Text of others on one line.

use std::borrow::Cow;

use engine::event::clean_text;

/// `text` without terminal control sequences.
pub(in crate::cli) fn one_line(text: &str) -> String {
    let clean: Cow<'_, str> = clean_text(text);
    clean.replace(['\n', '\t'], " ")
}
