//! Everything on one line, for a carrier that makes an event of each line.
//!
//! The injection's name comes first, then how many notifications there are, a JSON array of them, and what was left out. JSON has no line breaks
//! but those it escapes; the characters that others take for one are escaped here too.

use serde_json::{Map, Value};

use crate::exchange::InjectionId;

use super::{Item, Overflow, count_if_more, toon};

/// Writes the line, without its end.
pub(super) fn write(injection: &InjectionId, items: &[Item<'_>], overflow: &Overflow) -> String {
    let notifications: Value = items.iter().map(notification).collect();
    let shown = items.len();
    let count =
        count_if_more(items, overflow).map_or(shown.to_string(), |count| format!("{shown} of {count}"));
    let mut line = format!("{injection} {count} {notifications}");
    let more = overflow.in_words().join("; ");
    if !more.is_empty() {
        line.push(' ');
        line.push_str(&more);
    }
    line.chars().fold(String::with_capacity(line.len()), |mut escaped, c| {
        match c {
            '<' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => escaped.push(c),
        }
        escaped
    })
}

fn notification(item: &Item<'_>) -> Value {
    let notification = item.notification;
    let head = [
        ("subscriber", Value::from(notification.subscriber.as_str())),
        ("priority", Value::from(notification.priority.as_str())),
        ("severity", Value::from(notification.severity.as_str())),
    ];
    let content = ("content", toon::decode(item.content()));
    let fields = head.into_iter().chain(item.marks()).chain([content]);
    Value::Object(fields.map(|(key, value)| (key.to_owned(), value)).collect::<Map<String, Value>>())
}
