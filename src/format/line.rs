//! Everything on one line, for a carrier that makes an event of each line.
//!
//! The injection's name comes first, then a JSON array of the notifications, then what was left out. JSON has no line breaks
//! but those it escapes; the characters that others take for one are escaped here too.

use serde_json::{Value, json};

use crate::exchange::InjectionId;

use super::{Item, Overflow, toon};

/// Writes the line, without its end.
pub(super) fn write(injection: &InjectionId, items: &[Item<'_>], overflow: &Overflow) -> String {
    let notifications: Value = items.iter().map(notification).collect();
    let mut line = format!("{injection} {notifications}");
    if let Some(pending) = overflow.pending() {
        line.push_str(&format!(" {} more pending: {pending}", pending.total));
    }
    if let Some(dropped) = overflow.dropped() {
        line.push_str(&format!(" {} dropped from a full queue: {dropped}", dropped.total));
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
    let mut object = json!({
        "subscriber": notification.subscriber.as_str(),
        "priority": notification.priority.as_str(),
    });
    if let Value::Object(fields) = &mut object {
        if item.redelivered {
            fields.insert("redelivered".to_owned(), Value::Bool(true));
        }
        fields.insert("content".to_owned(), toon::decode(&notification.content));
    }
    object
}
