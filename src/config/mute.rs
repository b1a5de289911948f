//! `[[delivery.mute]]`, and the settings of a user in a test.

use std::sync::Arc;

use engine::{
    event::SessionId,
    notification::SubscriberId,
    pipeline::{
        condition::Condition,
        mute::{MUTES_MAX, Mute, Mutes},
    },
    settings::{Key, settings},
    user::{OWN_USER, UserSettings},
};

use crate::config::{
    raw::{Parsed, Section, Value},
    values,
};

settings! {
    /// What is not delivered, for good. The journal and the history stay whole; a core subscriber is
    /// never muted. The settings of a user, by `aside mute`, have such mutes too.
    pub(super) struct Delivery from Section<'_> {
        /// The mutes: a notification that all keys of one match is not delivered, critical ones
        /// included.
        mute: Vec<Mute> = Vec::new(), mutes(MUTES_MAX, mute_keys());
    }
}

/// The keys of a mute.
fn mute_keys() -> Vec<Key> {
    engine::settings::keys! {
        /// The subscriber.
        subscriber: String, line(), else "any";
        /// The types of the events, by pattern.
        types: Vec<String> = Vec::new(), patterns();
        /// The source of the events.
        source: String, line(), else "any";
        /// The tool, as the payload's `tool_name`.
        tool: String, line(), else "any";
        /// An expression over an event, as a subscriber's `where`.
        condition "where": String, line(), else "none";
        /// The lowest priority that passes.
        below: engine::notification::Priority, word(), else "none passes";
        /// The session.
        session: String, line(), else "any";
        /// The folder: its sessions, and those below it.
        workspace: std::path::PathBuf, path(), else "any";
    }
}

impl Section<'_> {
    fn mutes(&mut self, key: &'static str, max: usize, _: Vec<Key>) -> Option<Vec<Mute>> {
        self.read(key, |value| {
            let mutes = values::list(value, read_mute)?;
            values::at_most(value, mutes, max)
        })
    }
}

fn name(section: &mut Section<'_>, key: &'static str) -> Option<Arc<str>> {
    section.read(key, |value| values::words(value).map(Arc::from))
}

fn read_mute(value: &Value<'_>) -> Parsed<Mute> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let [subscriber, source, tool, session] =
        ["subscriber", "source", "tool", "session"].map(|key| name(&mut section, key));
    let mute = Mute {
        subscriber: subscriber.map(|id| SubscriberId::new(&id)),
        types: section.read("types", values::patterns).unwrap_or_default(),
        source,
        tool,
        condition: section.read("where", read_condition),
        below: section.read("below", values::word),
        session: session.map(|id| SessionId::new(&id)),
        workspace: section.read("workspace", values::absolute_path),
    };
    let found = section.finish();
    if !found.is_empty() {
        return Err(found);
    }
    if mute.is_empty() {
        let message =
            "a mute names what it concerns: `subscriber`, `types`, `source`, `tool`, `where` or `below`";
        return Err(vec![value.error(message)]);
    }
    Ok(mute)
}

fn read_condition(value: &Value<'_>) -> Parsed<Arc<str>> {
    let text = values::words(value)?;
    match Condition::compile(text) {
        Ok(_) => Ok(text.into()),
        Err(error) => Err(vec![value.error(format!("`where` is not an expression: {}", error.message))]),
    }
}

/// Reads the settings of a user: `{ disabled = ["pager"], mute = [{ types = ["mcp.*"] }] }`.
pub(super) fn read_settings(value: &Value<'_>) -> Parsed<(Arc<str>, UserSettings)> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let user = name(&mut section, "user").unwrap_or_else(|| OWN_USER.into());
    let id = |value: &Value<'_>| values::words(value).map(SubscriberId::new);
    let disabled = section.read("disabled", |value| values::list(value, id));
    let settings = UserSettings {
        disabled: disabled.unwrap_or_default().into_iter().collect(),
        mute: section.mutes("mute", MUTES_MAX, Vec::new()).unwrap_or_default(),
        quiet: section.read("quiet", values::hours).unwrap_or_default(),
        level: section.read("level", values::word),
    };
    let found = section.finish();
    if found.is_empty() { Ok((user, settings)) } else { Err(found) }
}

/// The mutes of the configuration.
pub(super) fn compiled(delivery: Delivery) -> Arc<Mutes> {
    Arc::new(delivery.mute.into_iter().collect())
}
