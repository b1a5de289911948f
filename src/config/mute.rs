//! `[[delivery.mute]]`, and the settings of a user in a test.

use std::sync::Arc;

use engine::{
    event::SessionId,
    nearest::nearest,
    notification::SubscriberId,
    pipeline::{
        condition::Condition,
        mute::{MUTES_MAX, Mute, Mutes},
        rule::{Activity, Subscriber},
    },
    settings::{Key, settings},
    user::{OWN_USER, UserSettings},
};

use crate::config::{
    lint_name::LintName,
    patterns,
    raw::{Parsed, Section, Value},
    report::{Diagnostic, shown},
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

/// Reads the settings of a user: `{ disabled = ["pager"], mute = [{ types = ["mcp.**"] }] }`.
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

/// What the mutes name and nothing has: types of events, and subscribers that can be muted.
pub(super) fn doubts(
    mutes: &Value<'_>,
    known_types: &[&str],
    subscribers: &[Arc<Subscriber>],
) -> Vec<Diagnostic> {
    let items = mutes.items().unwrap_or_default();
    let named = items.iter().filter_map(|mute| mute.entry("subscriber"));
    let unknown = named.filter_map(|id| doubt_of_subscriber(&id, subscribers));
    patterns::in_tables(mutes, &["types"], known_types).into_iter().chain(unknown).collect()
}

fn doubt_of_subscriber(value: &Value<'_>, subscribers: &[Arc<Subscriber>]) -> Option<Diagnostic> {
    let id = value.get().as_str()?;
    let found = subscribers.iter().find(|rule| rule.id.as_str() == id || rule.id.in_file() == id);
    match found.map(|rule| rule.activity) {
        Some(Activity::Enabled | Activity::Disabled) => None,
        Some(Activity::Core) => {
            let message = format!("`{id}` is a core subscriber, which is never muted");
            Some(value.error(message).into_lint(LintName::NoEffect))
        }
        None => {
            let ids = subscribers.iter().map(|rule| rule.id.in_file());
            let wrong = value.error(format!("there is no subscriber `{}`", shown(id)));
            Some(wrong.with_nearest(nearest(id, ids)).into_lint(LintName::UnknownSubscriber))
        }
    }
}

/// The mutes of the configuration.
pub(super) fn compiled(delivery: Delivery) -> Arc<Mutes> {
    Arc::new(delivery.mute.into_iter().collect())
}
