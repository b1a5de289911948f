//! The TOON document between one opening and one closing `<notifications>` tag.

use crate::exchange::InjectionId;

use super::{Item, Overflow, toon};

/// Writes the tags around the document; the count is that of the notifications inside.
pub(super) fn write(injection: &InjectionId, items: &[Item<'_>], overflow: &Overflow) -> String {
    let id = attribute(injection.as_str());
    let count = items.len();
    let document = toon::write(items, overflow);
    format!("<notifications count=\"{count}\" id=\"{id}\">\n{document}\n</notifications>")
}

fn attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}
