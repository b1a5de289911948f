//! Holding and resolved conditions, as far as events for all sessions determine them.

use std::{collections::BTreeMap, sync::Arc};

use engine::{
    event::{Event, Scope, Seq},
    notification::SubscriberId,
    rules::CompiledRules,
};
use serde_json::Value;

/// The conditions of events, with their key, and whether an event for all resolved them.
#[derive(Debug, Default)]
pub(super) struct Conditions(BTreeMap<(SubscriberId, Seq), (Option<Value>, bool)>);

impl Conditions {
    pub(super) fn note(&mut self, rules: &Arc<CompiledRules>, seq: Seq, event: &Event) {
        let payload: Value = serde_json::from_str(event.payload.as_str()).expect("JSON");
        let tool = payload.get("tool").cloned();
        for rule in &rules.subscribers {
            let Some(resolve) = &rule.resolve else { continue };
            if !resolve.by.iter().any(|pattern| pattern.matches(&event.event_type)) {
                self.0.insert((rule.id.clone(), seq), (tool.clone(), false));
            } else if event.scope() == Scope::All && tool.is_some() {
                let own = self.0.iter_mut().filter(|((subscriber, _), _)| *subscriber == rule.id);
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

    fn of(&self, subscriber: &SubscriberId, events: &[Seq]) -> impl Iterator<Item = Option<bool>> {
        let resolved =
            |seq: &Seq| self.0.get(&(subscriber.clone(), *seq)).map(|(_, is_resolved)| *is_resolved);
        events.iter().map(resolved)
    }
}
