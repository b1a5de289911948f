//! Holding and resolved conditions, as far as events for all sessions determine them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use engine::{
    event::{Event, Scope, Seq},
    notification::SubscriberId,
    rules::CompiledRules,
};
use serde_json::Value;

/// The conditions of events.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// The key of each, and whether an event for all resolved it.
    of: BTreeMap<(SubscriberId, Seq), (Option<String>, bool)>,
    /// Those that were dismissed, by their key, until an event for all resolved them.
    dismissed: BTreeSet<(SubscriberId, Option<String>)>,
}

impl Conditions {
    pub(super) fn note(&mut self, rules: &Arc<CompiledRules>, seq: Seq, event: &Event) {
        let payload: Value = serde_json::from_str(event.payload.as_str()).expect("JSON");
        let tool = payload.get("tool").map(Value::to_string);
        for rule in &rules.subscribers {
            let Some(resolve) = &rule.resolve else { continue };
            if !resolve.by.iter().any(|pattern| pattern.matches(&event.event_type)) {
                self.of.insert((rule.id.clone(), seq), (tool.clone(), false));
            } else if event.scope() == Scope::All && tool.is_some() {
                self.dismissed.remove(&(rule.id.clone(), tool.clone()));
                let own = self.of.iter_mut().filter(|((subscriber, _), _)| *subscriber == rule.id);
                let ended = own.filter(|(_, (other, _))| *other == tool);
                ended.for_each(|(_, (_, is_resolved))| *is_resolved = true);
            }
        }
    }

    /// Whether all of these events are conditions that are resolved everywhere.
    pub(super) fn are_resolved(&self, subscriber: &SubscriberId, events: &[Seq]) -> bool {
        self.of(subscriber, events).all(|is_resolved| is_resolved == Some(true))
    }

    /// Whether one of these events is a condition that holds somewhere.
    pub(super) fn hold(&self, subscriber: &SubscriberId, events: &[Seq]) -> bool {
        self.of(subscriber, events).any(|is_resolved| is_resolved == Some(false))
    }

    /// Notes that a notification with these events was dismissed.
    pub(super) fn dismiss(&mut self, subscriber: &SubscriberId, events: &[Seq]) {
        let keys = self.keys(subscriber, events).into_iter().flatten();
        self.dismissed.extend(keys.map(|key| (subscriber.clone(), key)));
    }

    /// Whether each of these events is a condition that was dismissed, and not resolved everywhere since.
    pub(super) fn are_dismissed(&self, subscriber: &SubscriberId, events: &[Seq]) -> bool {
        let is_dismissed = |key: Option<Option<String>>| {
            key.is_some_and(|key| self.dismissed.contains(&(subscriber.clone(), key)))
        };
        self.keys(subscriber, events).into_iter().all(is_dismissed)
    }

    fn keys(&self, subscriber: &SubscriberId, events: &[Seq]) -> Vec<Option<Option<String>>> {
        let key = |seq: &Seq| self.of.get(&(subscriber.clone(), *seq)).map(|(key, _)| key.clone());
        events.iter().map(key).collect()
    }

    fn of(&self, subscriber: &SubscriberId, events: &[Seq]) -> impl Iterator<Item = Option<bool>> {
        let resolved =
            |seq: &Seq| self.of.get(&(subscriber.clone(), *seq)).map(|(_, is_resolved)| *is_resolved);
        events.iter().map(resolved)
    }
}
