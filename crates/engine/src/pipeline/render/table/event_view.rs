//! The list `events`, its items, and their payloads.

use std::sync::{Arc, OnceLock};

use minijinja::value::{Enumerator, Object, ObjectRepr, Value as Printed};

use super::clean_event::{CleanEvent, REPEATS, Shown, clean_field};
use crate::{event::SessionId, pipeline::sandbox::account::steps_of_text};

/// The names of an event's fields, in order.
const EVENT_FIELDS: [&str; 9] =
    ["id", "type", "source", "severity", "timestamp", "payload", REPEATS, "session", "workspace"];

/// An item of `events` in a template: a map whose fields are created on use.
#[derive(Debug)]
pub(in crate::pipeline::render) struct EventView {
    events: Shown,
    at: usize,
    payload: OnceLock<Printed>,
}

impl EventView {
    /// The event at `at`.
    pub(in crate::pipeline::render) fn new(events: Shown, at: usize) -> Self {
        Self { events, at, payload: OnceLock::new() }
    }

    fn payload(&self, clean: &CleanEvent) -> Printed {
        let view = || Printed::from_object(PayloadView { events: self.events.clone(), at: self.at });
        let unpaid = clean.take_unpaid_steps().and_then(|steps| self.events.pay(steps));
        unpaid.unwrap_or_else(|| self.payload.get_or_init(view).clone())
    }
}

impl Object for EventView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        let clean = self.events.get(self.at)?;
        let text = |text: &str| {
            let unpaid = self.events.pay(steps_of_text(text.len()));
            unpaid.unwrap_or_else(|| Printed::from(clean_field(text, clean.field_chars).as_ref()))
        };
        let optional = |found: Option<&str>| found.map_or_else(|| Printed::from(()), text);
        Some(match key {
            "id" => text(&clean.event.id),
            "type" => Printed::from(clean.event.event_type.as_str()),
            "source" => text(&clean.event.source),
            "severity" => Printed::from(clean.event.severity.as_str()),
            "timestamp" => Printed::from(clean.event.timestamp.to_string()),
            "payload" => self.payload(clean),
            REPEATS => Printed::from(clean.repeats),
            "session" => optional(clean.event.session.as_ref().map(SessionId::as_str)),
            "workspace" => optional(clean.event.workspace.as_deref()),
            _ => return None,
        })
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Str(&EVENT_FIELDS)
    }
}

/// A payload in a template: a map that is created as a whole only if more than plain fields are
/// read.
#[derive(Debug)]
struct PayloadView {
    events: Shown,
    at: usize,
}

impl Object for PayloadView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        self.events.get(self.at)?.printed_field(key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let keys = self.events.get(self.at).and_then(|event| event.printed_payload().try_iter().ok());
        keys.map_or(Enumerator::Empty, |keys| Enumerator::Values(keys.collect()))
    }
}

/// The list `events`.
#[derive(Debug)]
pub(in crate::pipeline::render) struct Events(pub(in crate::pipeline::render) Shown);

impl Object for Events {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        let at = key.as_usize().filter(|at| *at < self.0.len())?;
        Some(Printed::from_object(EventView::new(self.0.clone(), at)))
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::pipeline::{render::tests::row, sandbox::account::Account};

    const CHARS_MAX: usize = 12;
    const SECRET: &str = "ghp_0123456789abcdefghij";

    fn shown(payload: Value) -> Shown {
        Shown::all([CleanEvent::new(&row(payload, 1), CHARS_MAX)].into(), &Account::new(u64::MAX))
    }

    fn as_json(found: Option<Printed>) -> Option<Value> {
        found.map(|found| serde_json::to_value(found).expect("serializes"))
    }

    /// Checks that a field is the same with and without cleaning the whole payload first.
    fn check(payload: &Value) {
        let whole = shown(payload.clone());
        let cleaned = whole[0].printed_payload().as_object().expect("a map").clone();
        let keys = payload.as_object().expect("an object").keys().cloned();
        let shown_keys = cleaned.try_iter().expect("a map").map(|key| key.to_string());
        for key in keys.chain(shown_keys).chain(["no such".to_owned()]) {
            let view = Arc::new(PayloadView { events: shown(payload.clone()), at: 0 });
            let found = as_json(view.get_value_by_str(&key));
            assert_eq!(found, as_json(cleaned.get_value_by_str(&key)), "{key} of {payload}");
        }
        let view = Printed::from_object(PayloadView { events: shown(payload.clone()), at: 0 });
        assert_eq!(as_json(Some(view)), as_json(Some(whole[0].printed_payload().clone())), "{payload}");
    }

    #[test]
    fn a_field_lookup_matches_the_whole_payload() {
        for payload in [
            json!({}),
            json!({"a": null, "b": true, "c": -1, "d": 1.5, "e": 18_446_744_073_709_551_615_u64, "f": [1, {"g": "\u{7}"}]}),
            json!({"text": "longer than twelve", "secret": SECRET, "escape": "a\u{1b}[1mb\"", "o": {"in": SECRET}}),
            json!({"a\u{7}": 1, "a": 2}),
            json!({"a": 2, "a\u{7}": 1}),
            json!({"quote\"d": 1, "b": "x"}),
            json!({SECRET: 1, "ghp_[masked]": 2}),
            json!({"a key that is longer than twelve": 1}),
        ] {
            check(&payload);
        }
    }

    proptest! {
        #[test]
        fn random_field_lookups_match_the_whole_payload(
            fields in prop::collection::btree_map("[ab\u{7}\"\u{e9}]{0,3}", prop_oneof!["[ -~\u{7}\u{e9}]{0,20}".prop_map(Value::from), any::<f64>().prop_map(Value::from), any::<i64>().prop_map(Value::from)], 0..5),
        ) {
            check(&Value::Object(fields.into_iter().collect()));
        }
    }
}
