//! A subscriber as the lints see it: its rule, the places of its keys, and the payload fields that
//! its events are known to have.

use std::sync::Arc;

use engine::{
    event::{
        Event, Pattern, Provenance, Severity, Trust,
        catalogue::{CatalogueEntry, OwnSeverities},
    },
    pipeline::rule::{Activity, Subscriber},
    sorted::SortedSet,
};

use crate::config::{
    case::{SubscriberTest, TestEvent},
    compile::{Compiled, template_name},
    effective::{self, KeyInForce},
    layers::{FileKind, LayerKind, SourceFile, Sources},
    layout::DeclaredPlaces,
    producers,
    raw::Value,
    report::Place,
    trial,
};

/// Whether the history has an event of a source.
pub(super) type HasPublished<'a> = dyn Fn(&str) -> bool + 'a;

/// A subscriber that is enabled.
pub(super) struct Subject<'a> {
    pub(super) rule: &'a Subscriber,
    pub(super) compiled: &'a Compiled,
    pub(super) catalogue: &'a [&'a CatalogueEntry],
    /// The file of its template.
    pub(super) template: Option<&'a SourceFile>,
    severities: &'a OwnSeverities,
    has_published: &'a HasPublished<'a>,
    keys: Vec<KeyInForce>,
}

impl<'a> Subject<'a> {
    /// All subscribers, without the remainders of replaced ones.
    pub(super) fn all(
        sources: &'a Sources,
        compiled: &'a Compiled,
        catalogue: &'a [&'a CatalogueEntry],
        severities: &'a OwnSeverities,
        has_published: &'a HasPublished<'a>,
    ) -> Vec<Self> {
        let rules = compiled.rules.subscribers.iter();
        let rules = rules.filter(|rule| rule.activity != Activity::Disabled && rule.later.is_empty());
        let subject = |rule: &'a Arc<Subscriber>| {
            let files = compiled.files.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
            let is_template = |file: &&SourceFile| rule.output.layout.template() == Some(template_name(file));
            Self {
                rule,
                compiled,
                catalogue,
                severities,
                has_published,
                template: sources.of_kind(FileKind::Template).filter(is_template).last(),
                keys: effective::keys(files),
            }
        };
        rules.map(subject).collect()
    }

    fn files(&self) -> &'a [SourceFile] {
        self.compiled.files.get(&self.rule.id).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether all of its files are shipped.
    pub(super) fn is_shipped(&self) -> bool {
        self.files().iter().all(|file| file.layer == LayerKind::Shipped)
    }

    /// The place of the value of a key, such as `events.where`; `None` if no file has it.
    pub(super) fn place(&self, key: &str) -> Option<&Place> {
        self.keys.iter().find(|one| one.key == key).map(|one| &one.value_place)
    }

    /// The places of the value of `name` in each table of the list `key` of a section, such as
    /// `[[limits.inhibit]]`; `None` for a table without it.
    pub(super) fn places_in_list(&self, section: &str, key: &str, name: &str) -> Vec<Option<Place>> {
        let place = |table: &Value<'_>| table.entry(name).map(|value| value.place());
        let places = |tables: &[Value<'_>]| Some(tables.iter().map(place).collect());
        effective::in_list(self.files(), section, key, places).unwrap_or_default()
    }

    /// Whether a source is known: what ships publishes as it, the settings name it, a test has an event
    /// of it, or the history does.
    pub(super) fn is_source_known(&self, source: &str) -> bool {
        let (wake, budget) = (&self.compiled.rules.wake, &self.compiled.rules.budget);
        producers::sources().any(|own| own == source)
            || wake.trust(source, Provenance::Remote) == Trust::Trusted
            || wake.sources.iter().any(|(name, _)| name == source)
            || budget.sources.iter().any(|(name, _)| name == source)
            || self.test_events().any(|event| event.source.as_deref() == Some(source))
            || (self.has_published)(source)
    }

    /// The places of the text that its file declares.
    pub(super) fn declared(&self) -> Option<&'a DeclaredPlaces> {
        self.compiled.declared.get(&self.rule.id)
    }

    /// The tests of its files.
    pub(super) fn tests(&self) -> &'a [SubscriberTest] {
        self.compiled.tests.get(&self.rule.id).map(Vec::as_slice).unwrap_or_default()
    }

    /// The events of its tests.
    pub(super) fn test_events(&self) -> impl Iterator<Item = &'a TestEvent> {
        self.tests().iter().flat_map(SubscriberTest::events).map(|(_, event)| event)
    }

    /// The types of the catalogue that `patterns` select.
    pub(super) fn entries(&self, patterns: &[Pattern]) -> impl Iterator<Item = &'a CatalogueEntry> {
        let is_selected =
            |entry: &&CatalogueEntry| patterns.iter().any(|pattern| pattern.matches(&entry.event_type));
        self.catalogue.iter().copied().filter(is_selected)
    }

    /// The severity of an event of a type without one.
    pub(super) fn default_severity(&self, event_type: &str) -> Severity {
        self.severities.default_severity(event_type)
    }

    /// The examples that pass its filter.
    pub(super) fn examples(&self) -> Vec<Arc<Event>> {
        trial::examples(self.rule, self.compiled, self.catalogue)
    }

    /// The payload fields of all examples and tests of its types and of the types that resolve it;
    /// `None` if a pattern has neither, so that other fields are possible.
    pub(super) fn payload_fields(&self) -> Option<SortedSet<&'a str>> {
        let resolved_by = self.rule.resolve.iter().flat_map(|resolve| &resolve.by);
        self.fields_of(self.rule.types.iter().chain(resolved_by))
    }

    /// The same of the types that `patterns` select.
    pub(super) fn fields_of<'p>(
        &self,
        patterns: impl IntoIterator<Item = &'p Pattern>,
    ) -> Option<SortedSet<&'a str>> {
        payload_fields(self.catalogue, &self.test_events().collect::<Vec<_>>(), patterns)
    }
}

/// The payload fields of the examples of the catalogue and of the events of tests whose types `patterns`
/// select; `None` if a pattern has neither.
pub(super) fn payload_fields<'a, 'p>(
    catalogue: &[&'a CatalogueEntry],
    tests: &[&'a TestEvent],
    patterns: impl IntoIterator<Item = &'p Pattern>,
) -> Option<SortedSet<&'a str>> {
    let mut fields = SortedSet::new();
    for pattern in patterns {
        let has_example =
            |entry: &&&CatalogueEntry| pattern.matches(&entry.event_type) && entry.example.as_str() != "{}";
        let mut is_known = false;
        for entry in catalogue.iter().filter(has_example) {
            is_known = true;
            let named = entry.example.value().as_object().into_iter().flatten();
            fields.extend(named.map(|(name, _)| name.as_str()));
            fields.extend(entry.aliases.keys().map(String::as_str));
        }
        for event in tests.iter().filter(|event| pattern.matches(&event.event_type)) {
            is_known = true;
            fields.extend(event.payload.as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
        }
        if !is_known {
            return None;
        }
    }
    Some(fields)
}
