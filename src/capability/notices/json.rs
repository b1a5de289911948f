//! A notice as JSON.

use serde_json::{Map, Value, json};

use engine::{
    event::SessionId,
    sink::{Choices, Notice, Progress, Target},
};

/// A notice as a JSON object: its message without markup, and with it if it is markdown.
pub(super) fn fields(notice: &Notice) -> Value {
    let mut fields = Map::new();
    let mut insert = |name: &str, text: Option<&str>| {
        fields.extend(text.map(|text| (name.to_owned(), Value::from(text))));
    };
    insert("id", Some(&notice.id));
    insert("at", Some(&notice.at.to_string()));
    insert("level", Some(notice.level.as_str()));
    insert("context", Some(&notice.context));
    insert("category", notice.category.map(|category| category.as_str()));
    insert("message", Some(&notice.message_for(Target::Plain)));
    insert("markdown", notice.is_markdown.then(|| notice.message_for(Target::Markdown)).as_deref());
    insert("link", notice.link.as_deref());
    insert("session", notice.session.as_ref().map(SessionId::as_str));
    insert("workspace", notice.workspace.as_deref());
    if let Some(Choices { words, expires_at }) = &notice.choices {
        fields.insert("choices".to_owned(), json!(words));
        fields.insert("expires_at".to_owned(), expires_at.to_string().into());
    }
    if let Some(Progress { key, percent, .. }) = &notice.progress {
        fields.insert("key".to_owned(), json!(key));
        fields.extend(percent.map(|percent| ("progress".to_owned(), percent.into())));
    }
    if !notice.held.is_nothing() {
        fields.insert("not_sent_before".to_owned(), json!(notice.held));
    }
    Value::Object(fields)
}

/// A notice as a line of JSON.
pub(super) fn line(notice: &Notice) -> String {
    format!("{}\n", fields(notice))
}
