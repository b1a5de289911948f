//! What a silence or a mute of a person names and nothing has: the findings of `types` and `where`, as
//! of a subscriber's file.

use engine::{
    event::{
        Pattern,
        catalogue::{self, CatalogueEntry},
    },
    nearest::{clause, nearest},
    notification::SubscriberId,
    pipeline::condition::Condition,
    sorted::SortedSet,
};

use super::subject::payload_fields;
use crate::config::{
    case::{SubscriberTest, TestEvent},
    compile::Compiled,
    patterns,
    report::shown,
    subscriber::CONSTANT_WHERE,
};

/// What a person means.
#[derive(Debug, Clone, Copy, Default)]
pub struct Matched<'a> {
    /// The subscriber.
    pub subscriber: Option<&'a str>,
    /// The types, as patterns.
    pub types: &'a [String],
    /// The expression over an event.
    pub condition: Option<&'a str>,
}

impl Matched<'_> {
    /// Sentences about what nothing has; none about what is not valid.
    pub fn doubts(&self, compiled: &Compiled) -> Vec<String> {
        let shipped: Vec<&CatalogueEntry> = catalogue::types().collect();
        let catalogue: Vec<&CatalogueEntry> = shipped.into_iter().chain(&compiled.events).collect();
        let known: Vec<&str> = catalogue.iter().map(|entry| entry.event_type.as_str()).collect();
        let types: Vec<Pattern> = self.types.iter().filter_map(|text| text.parse().ok()).collect();
        let rules = compiled.rules.subscribers.iter();
        let taken: Vec<&Pattern> = rules.flat_map(|rule| &rule.types).collect();
        let unknown = types.iter().filter(|pattern| !taken.iter().any(|own| own.meets(pattern)));
        let mut found: Vec<String> = unknown.filter_map(|pattern| patterns::doubt(pattern, &known)).collect();
        let Some(condition) = self.condition.and_then(|text| Condition::compile(text).ok()) else {
            return found;
        };
        if condition.is_constant() {
            found.push(CONSTANT_WHERE.to_owned());
        }
        let Some(fields) = self.fields(&types, &catalogue, compiled) else { return found };
        let unknown = condition.fields().iter().filter(|field| !fields.contains(field.as_str()));
        found.extend(unknown.map(|field| {
            let meant = nearest(field, fields.iter().copied()).map(|meant| format!("payload.{meant}"));
            let (field, meant) = (shown(field), clause(meant));
            format!("no example of these events has a field `{field}` in its payload{meant}")
        }));
        found
    }

    /// The payload fields of its events; `None` if those of some are not known, as of all subscribers.
    fn fields<'c>(
        &self,
        types: &[Pattern],
        catalogue: &[&'c CatalogueEntry],
        compiled: &'c Compiled,
    ) -> Option<SortedSet<&'c str>> {
        let is_its = |id: &SubscriberId| self.subscriber == Some(id.in_file());
        let tests = compiled.tests.iter().filter(|(id, _)| self.subscriber.is_none() || is_its(id));
        let events: Vec<&TestEvent> = tests
            .flat_map(|(_, tests)| tests)
            .flat_map(SubscriberTest::events)
            .map(|(_, event)| event)
            .collect();
        let rules = compiled.rules.subscribers.iter().filter(|rule| is_its(&rule.id));
        let of_rule: Vec<&Pattern> = rules.flat_map(|rule| &rule.types).collect();
        let selected = if types.is_empty() { of_rule } else { types.iter().collect() };
        if selected.is_empty() { None } else { payload_fields(catalogue, &events, selected) }
    }
}
