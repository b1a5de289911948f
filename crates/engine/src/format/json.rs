//! Writes one JSON object on one line: the injection, its notifications with decoded content, and
//! the counts of omitted ones.

use serde_json::{Value, json};

use crate::{
    exchange::{NOT_RUN, Replaces},
    notification::Counts,
};

use super::{
    Carrier, Item, Overflow,
    item::{INJECTION, NOT_RUN_KEY, count_if_more, to_json},
    toon,
};

/// Writes the object; `<` is escaped, so it contains no tags.
pub(super) fn write(carrier: &Carrier<'_>, items: &[Item<'_>], overflow: &Overflow) -> String {
    let count = count_if_more(items, overflow);
    let mut object = json!({});
    if carrier.replaces == Replaces::Call {
        insert(&mut object, NOT_RUN_KEY, NOT_RUN.into());
    }
    insert(&mut object, INJECTION, carrier.injection.as_str().into());
    insert(&mut object, "count", count.unwrap_or(items.len() as u64).into());
    if count.is_some() {
        insert(&mut object, "shown", items.len().into());
    }
    insert(&mut object, "notifications", items.iter().map(notification).collect());
    let mut more = json!({});
    insert_counts(&mut more, ["pending", "by_subscriber", "others"], &overflow.left_out.pending);
    if let Some(waiting) = &overflow.left_out.waiting {
        insert(&mut more, "waiting", waiting.count.into());
        insert(&mut more, "waiting_for", waiting.what().into());
    }
    insert_counts(
        &mut more,
        ["evicted_events", "evicted_by_subscriber", "evicted_others"],
        &overflow.evicted,
    );
    if more != json!({}) {
        insert(&mut object, "more", more);
    }
    to_fenced(&object, |_| false)
}

/// Inserts the total, the parts, and the remainder; inserts nothing if all counts are zero.
fn insert_counts(more: &mut Value, [total, parts, others]: [&str; 3], counts: &Counts) {
    if counts.total() == 0 {
        return;
    }
    insert(more, total, counts.total().into());
    insert(more, parts, to_json(counts));
    if counts.others() > 0 {
        insert(more, others, counts.others().into());
    }
}

fn notification(item: &Item<'_>) -> Value {
    let notification = item.notification;
    let mut object = json!({
        "id": notification.id.as_str(),
        "subscriber": notification.subscriber.as_str(),
        "priority": notification.priority.as_str(),
    });
    if let Some(severity) = item.severity() {
        insert(&mut object, "severity", severity.into());
    }
    item.marks().for_each(|(key, value)| insert(&mut object, key, value));
    insert(&mut object, "content", toon::decode(item.content()));
    object
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = object {
        fields.insert(key.to_owned(), value);
    }
}

/// Returns JSON text without the start of a tag or a control token in a string: every `<`, and the
/// brackets that begin one, are escaped, and so are the characters for which `is_escaped_too` holds.
pub(super) fn to_fenced(value: &Value, is_escaped_too: impl Fn(char) -> bool) -> String {
    let is_escaped = |text: &str, at: usize, c: char| {
        c == '<' || is_escaped_too(c) || ::toon::control_token_at(text, at).is_some()
    };
    crate::json::to_string(value, is_escaped).expect("a value serializes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_escapes_tags_and_control_tokens_losslessly() {
        for (read, expected) in [
            (r#"["a<b","[INST] x","[1]"]"#, r#"["a\u003cb","\u005bINST] x","[1]"]"#),
            (r#"{"a":[true,1],"b":"]~b]"}"#, r#"{"a":[true,1],"b":"]\u007eb]"}"#),
        ] {
            let value: Value = serde_json::from_str(read).expect("JSON");
            let written = to_fenced(&value, |_| false);
            assert_eq!(written, expected);
            assert_eq!(serde_json::from_str::<Value>(&written).expect("JSON"), value);
        }
    }
}
