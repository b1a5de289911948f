//! The TOON document between one opening and one closing `<notifications>` tag.

use crate::exchange::InjectionId;

use super::{Item, Overflow, count_if_more, toon};

/// Writes the tags around the document; `count` is how many there are, `shown` how many of them are inside when that is fewer.
pub(super) fn write(injection: &InjectionId, items: &[Item<'_>], overflow: &Overflow) -> String {
    let id = attribute(injection.as_str());
    let shown = items.len();
    let count = match count_if_more(items, overflow) {
        Some(count) => format!("count=\"{count}\" shown=\"{shown}\""),
        None => format!("count=\"{shown}\""),
    };
    let document = toon::write(items, overflow);
    format!("<notifications {count} id=\"{id}\">\n{document}\n</notifications>")
}

fn attribute(text: &str) -> String {
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;")
}
