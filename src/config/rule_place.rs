//! The places of rules: the key by which an event or a notification ended, and the line of its file.

use std::cell::OnceCell;

use engine::{
    event::{EventType, Pattern},
    ledger::{Reason, ThrottledBy},
    notification::SubscriberId,
    sorted::SortedMap,
};

use crate::config::{
    compile::Compiled,
    effective::{self, KeyInForce},
    layers::{FileKind, LayerKind, SourceFile, Sources},
    raw::{Document, Value},
    report::Place,
};

/// The keys of a subscriber that end events or notifications for this reason, of which a subscriber has
/// the first; none if no key does.
pub fn keys_of(reason: &Reason) -> &'static [&'static str] {
    match reason {
        Reason::FilteredOut(by) => match by.key() {
            "sources" => &["events.sources"],
            "severity_filter" => &["events.severity_filter"],
            _ => &["events.where"],
        },
        Reason::Duplicate { .. } => &["batching.dedupe_key"],
        Reason::BelowThreshold => &["threshold.at"],
        Reason::BatchOverflow => &["batching.mode", "limits.quiet"],
        Reason::Inhibited { .. } | Reason::Inhibits => &["limits.inhibited_by", INHIBIT],
        Reason::RateLimited { .. } => &["limits.rate"],
        Reason::Expired => &["limits.ttl"],
        Reason::Superseded => &["limits.supersede_key", "absent.by", "absent.after"],
        Reason::Stale => &["limits.order_by", "limits.revision"],
        Reason::Withdrawn | Reason::Resolves => &["limits.resolved_by"],
        Reason::SubscriberOff => &["subscriber.enabled"],
        Reason::Unanswered => &["repeat.after"],
        Reason::InRegion => &["output.region"],
        Reason::Silenced { .. }
        | Reason::Muted { .. }
        | Reason::QueueOverflow
        | Reason::SessionGone
        | Reason::Uncertain
        | Reason::NotRepeated
        | Reason::Dismissed
        | Reason::Summarised { .. }
        | Reason::Watched
        | Reason::SummedUp
        | Reason::Known => &[],
    }
}

const INHIBIT: &str = "limits.inhibit";

/// The places of the rules in force.
pub struct RulePlaces<'c> {
    sources: &'c Sources,
    compiled: &'c Compiled,
    keys: SortedMap<SubscriberId, OnceCell<Vec<KeyInForce>>>,
}

impl<'c> RulePlaces<'c> {
    /// Takes the files, and what they compile to; reads none yet.
    pub fn new(sources: &'c Sources, compiled: &'c Compiled) -> Self {
        let ids = compiled.rules.subscribers.iter().map(|rule| (rule.id.clone(), OnceCell::new()));
        Self { sources, compiled, keys: ids.collect() }
    }

    /// The files of a subscriber: the whole one, then those that inherit from it.
    pub fn files(&self, subscriber: &str) -> &'c [SourceFile] {
        self.compiled.files.get(&SubscriberId::new(subscriber)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The latest layer of a subscriber's files.
    pub fn layer(&self, subscriber: &str) -> Option<LayerKind> {
        self.files(subscriber).last().map(|file| file.layer)
    }

    /// Where a subscriber has the first of `keys` that it has; `None` if all have their defaults.
    pub fn of_keys(&self, subscriber: &str, keys: &[&str]) -> Option<Place> {
        let read = || effective::keys(self.files(subscriber));
        let own = self.keys.get(&SubscriberId::new(subscriber))?.get_or_init(read);
        let place = |key: &&str| own.iter().find(|one| one.key == **key).map(|one| one.place.clone());
        keys.iter().find_map(place)
    }

    /// The rule that ended an event or a notification. `inhibitor`: the type of the event that inhibits.
    pub fn of_reason(
        &self,
        subscriber: &str,
        reason: &Reason,
        inhibitor: Option<&EventType>,
    ) -> Option<Place> {
        let entry = inhibitor.and_then(|event_type| inhibit_entry(self.files(subscriber), event_type));
        let place = || self.of_keys(subscriber, keys_of(reason));
        if matches!(reason, Reason::Summarised { .. }) {
            self.of_setting(&["budget", "summarise_after"])
        } else if matches!(reason, Reason::Inhibited { .. } | Reason::Inhibits) {
            entry.or_else(place)
        } else {
            place()
        }
    }

    /// The rule that holds a notification. `cause`: the key of a subscriber or of `[budget]`, or anything
    /// else, which has no place; `inhibitor`: the type of the event that inhibits.
    pub fn of_hold(&self, subscriber: &str, cause: &str, inhibitor: Option<&EventType>) -> Option<Place> {
        if inhibitor.is_some() {
            return self.of_reason(subscriber, &Reason::Inhibits, inhibitor);
        }
        match cause.split_once('.') {
            // The name of a source may have dots.
            Some(("budget", _)) => self.of_setting(&cause.splitn(3, '.').collect::<Vec<&str>>()),
            Some(("limits" | "repeat" | "output", _)) => self.of_keys(subscriber, &[cause]),
            Some(_) | None => None,
        }
    }

    /// Where an `aside.toml` sets a key; `None` if it has its default.
    fn of_setting(&self, path: &[&str]) -> Option<Place> {
        let settings = self.sources.files().iter().rev().filter(|file| *file.name == *"aside.toml");
        settings.into_iter().find_map(|file| entry(&Document::parse(file).ok()?, path))
    }

    /// The rate by which a source is throttled; `None` if it is the default, or another rule throttles.
    pub fn of_throttled(&self, by: ThrottledBy) -> Option<Place> {
        let key = match by {
            ThrottledBy::SourceRate => "rate",
            ThrottledBy::Causes => return None,
        };
        self.of_setting(&["sources", key])
    }

    /// Where an `events.toml` gives the severity of a type.
    pub fn of_severity(&self, event_type: &str) -> Option<Place> {
        let files: Vec<&SourceFile> = self.sources.of_kind(FileKind::Events).collect();
        files.into_iter().rev().find_map(|file| {
            let document = Document::parse(file).ok()?;
            let entries = document.value("event")?.items()?;
            entries.iter().find_map(|one| {
                let is_it = text_of(&one.entry("type")?) == Some(event_type);
                is_it.then(|| one.entry("severity").map(|value| value.key_place())).flatten()
            })
        })
    }

    /// A place as people read it: the file below its layer's folder, and the line. A shipped file is
    /// marked.
    pub fn shown(&self, place: &Place) -> String {
        let is_shipped = self.sources.layer_of(&place.file) == Some(LayerKind::Shipped);
        let name = self.sources.name_of(&place.file).filter(|_| !is_shipped).unwrap_or(&place.file);
        if place.span.is_empty() { name.to_owned() } else { format!("{name}:{}", place.line()) }
    }
}

/// The entry of `[[limits.inhibit]]` in which a subscriber names a type, in `by` or in `until`.
fn inhibit_entry(files: &[SourceFile], event_type: &EventType) -> Option<Place> {
    let selects = |value: &Value<'_>| {
        let items = value.items().unwrap_or_else(|| vec![value.clone()]);
        let patterns = items.iter().filter_map(|item| text_of(item)?.parse::<Pattern>().ok());
        patterns.into_iter().any(|pattern| pattern.matches(event_type))
    };
    effective::in_list(files, "limits", "inhibit", |items| {
        let named = items.iter().flat_map(|one| ["by", "until"].into_iter().filter_map(|key| one.entry(key)));
        named.into_iter().find(selects).map(|value| value.key_place())
    })
}

/// The place of the key at the end of a path of tables.
fn entry(document: &Document<'_>, path: &[&str]) -> Option<Place> {
    let (table, keys) = path.split_first()?;
    keys.iter().try_fold(document.value(table)?, |table, key| table.entry(key)).map(|value| value.key_place())
}

fn text_of<'s>(value: &Value<'s>) -> Option<&'s str> {
    value.get().as_str()
}
