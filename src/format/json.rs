//! One JSON object on one line: the injection, its notifications with their decoded content, and what was left out.

use serde_json::{Value, json};

use crate::exchange::InjectionId;

use super::{Item, Overflow, toon};

/// Writes the object; `<` is escaped, so no tag stands in it.
pub(super) fn write(injection: &InjectionId, items: &[Item<'_>], overflow: &Overflow) -> String {
    let notifications: Vec<Value> = items.iter().map(notification).collect();
    let mut object = json!({ "injection": injection.as_str(), "notifications": notifications });
    let (pending, dropped) = (overflow.pending(), overflow.dropped());
    if pending.is_some() || dropped.is_some() {
        let mut more = json!({});
        if let Some(pending) = pending {
            insert(&mut more, "pending", pending.total.into());
            insert(&mut more, "by_subscriber", pending.to_json());
        }
        if let Some(dropped) = dropped {
            insert(&mut more, "dropped", dropped.total.into());
            insert(&mut more, "dropped_by_subscriber", dropped.to_json());
        }
        insert(&mut object, "more", more);
    }
    object.to_string().replace('<', "\\u003c")
}

fn notification(item: &Item<'_>) -> Value {
    let notification = item.notification;
    let mut object = json!({
        "id": notification.id.as_str(),
        "subscriber": notification.subscriber.as_str(),
        "priority": notification.priority.as_str(),
        "severity": notification.severity.as_str(),
    });
    if item.redelivered {
        insert(&mut object, "redelivered", Value::Bool(true));
    }
    insert(&mut object, "content", toon::decode(&notification.content));
    object
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = object {
        fields.insert(key.to_owned(), value);
    }
}
