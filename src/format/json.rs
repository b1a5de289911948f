//! One JSON object on one line: the injection, its notifications with their decoded content, and what was left out.

use serde_json::{Map, Value, json};

use crate::exchange::InjectionId;

use super::{Item, Overflow, toon};

/// Writes the object; `<` is escaped, so no tag stands in it.
pub(super) fn write(injection: &InjectionId, items: &[Item<'_>], overflow: &Overflow) -> String {
    let notifications: Vec<Value> = items.iter().map(notification).collect();
    let mut object = json!({ "injection": injection.as_str(), "notifications": notifications });
    if overflow.total() > 0 {
        let by_subscriber: Map<String, Value> = overflow
            .by_subscriber
            .iter()
            .map(|(subscriber, count)| (subscriber.as_str().to_owned(), Value::from(*count)))
            .collect();
        insert(&mut object, "more", json!({ "pending": overflow.total(), "by_subscriber": by_subscriber }));
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
