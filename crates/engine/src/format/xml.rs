//! TOON between tags: one block for all notifications, or one for each.

use std::borrow::Cow;

use super::{Carrier, Item, Overflow, item::count_if_more, part::MORE, toon};

/// The approximate length of the tags.
const TAGS: usize = 80;
/// The source of the block with the counts of what is left out.
const OWN: &str = "aside";

/// Writes `<notifications>` around the document; `count` is the total, `shown` the number inside if
/// it is lower.
pub(super) fn write(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    let shown = items.len();
    let count = match count_if_more(items, overflow) {
        Some(count) => format!("count=\"{count}\" shown=\"{shown}\""),
        None => format!("count=\"{shown}\""),
    };
    carrier.begun(block(carrier, "notifications", &count, &toon::write(items, overflow)))
}

/// The same before the user's own words.
pub(super) fn write_before(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    write(carrier, items, overflow) + "\n\n"
}

/// Writes `<notification>` around each notification, whose source is its subscriber, and around the
/// counts of what is left out.
pub(super) fn write_each(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    let one = |source: &str, document: &str| {
        block(carrier, "notification", &format!("source=\"{}\"", attribute(source)), document)
    };
    let document = |item: Item<'_>| match items.len() {
        1 => toon::write(&[item], &Overflow::default()),
        _ => toon::write_one_of_several(item),
    };
    let each = items.iter().map(|item| one(item.notification.subscriber.as_str(), &document(*item)));
    let more = toon::more(overflow).map(|more| one(OWN, &format!("{MORE}: {more}")));
    carrier.begun(each.chain(more).collect::<Vec<_>>().join("\n"))
}

fn block(carrier: &Carrier<'_>, tag: &str, attributes: &str, document: &str) -> String {
    let id = attribute(carrier.injection.as_str());
    let mut text = String::with_capacity(document.len() + TAGS);
    for part in ["<", tag, " ", attributes, " id=\"", &id, "\">\n", document, "\n</", tag, ">"] {
        text.push_str(part);
    }
    text
}

pub(super) fn attribute(text: &str) -> Cow<'_, str> {
    if memchr::memchr3(b'&', b'"', b'<', text.as_bytes()).is_none() {
        return text.into();
    }
    text.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;").into()
}
