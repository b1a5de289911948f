//! The TOON document between one opening and one closing `<notifications>` tag.

use std::borrow::Cow;

use crate::exchange::InjectionId;

use super::{Item, Overflow, item::count_if_more, toon};

/// The approximate length of the tags.
const TAGS: usize = 80;

/// Writes the tags around the document; `count` is the total, `shown` the number inside if it is
/// lower.
pub(super) fn write(injection: &InjectionId, items: &[Item<'_>], overflow: &Overflow) -> String {
    let id = attribute(injection.as_str());
    let shown = items.len();
    let count = match count_if_more(items, overflow) {
        Some(count) => format!("count=\"{count}\" shown=\"{shown}\""),
        None => format!("count=\"{shown}\""),
    };
    let document = toon::write(items, overflow);
    let mut text = String::with_capacity(document.len() + TAGS);
    for part in ["<notifications ", &count, " id=\"", &id, "\">\n", &document, "\n</notifications>"] {
        text.push_str(part);
    }
    text
}

fn attribute(text: &str) -> Cow<'_, str> {
    if memchr::memchr3(b'&', b'"', b'<', text.as_bytes()).is_none() {
        return text.into();
    }
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").into()
}
