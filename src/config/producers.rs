//! The shipped producers of events: probes, detectors, harnesses, a command, the daemon.
//!
//! Probes, detectors, harnesses and sources have tables of their own, from which their rows here
//! are built; any other producer has a row in `OTHERS`. The `producers` of a type in
//! `config/events.toml` name the rows. The places that show producers (`aside sources`, `aside
//! doctor`, `GET /v1/sources`, docs/sources.md) are built from the rows and the catalogue, or a
//! test compares them. An event of any other source is counted under the name of that source.

use std::{borrow::Cow, sync::LazyLock};

use engine::{
    detector,
    event::catalogue::{self, CatalogueEntry},
    pipeline::{
        activation::TRUSTED_LOCALLY,
        rule::{Activity, Subscriber},
    },
    probe::{self, Facts, git},
    rules::CompiledRules,
    settings::Row,
    words::Words,
};
use strum::VariantArray as _;

use crate::{
    capability::{
        outside::{self, Generation},
        webhook,
    },
    harness::{kind as harness, table::KINDS},
};

/// The `source` of the events that the program publishes about an agent or about itself.
const OWN: &str = "aside";

/// The common name for all senders of webhooks; the `source` of their events is the sender.
const WEBHOOKS: &str = "webhooks";

/// How a producer publishes.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// Asked at an exchange; `[sources.NAME]` switches it.
    Probe(fn(&probe::Settings) -> bool),
    /// Folds the events of harnesses; `[sources.NAME]` switches it.
    Detector(fn(&detector::Settings) -> bool),
    /// Reports the actions of its client, while it has a session open.
    Harness,
    /// Waits for something outside of aside; `[sources.NAME]` switches it.
    Source(fn(&outside::Settings) -> bool),
    /// A source for which `[[sources.NAME]]` lists the things it waits for.
    List(fn(&outside::Settings) -> bool),
    /// Run by a person or a program.
    Command,
    /// Sent by another program; `[webhooks.NAME]` allows it.
    Webhook,
    /// The daemon, about itself.
    Daemon,
}

/// A producer of events.
#[derive(Debug, Clone)]
pub struct Producer {
    /// Its name in `producers` of the catalogue and in `[sources]` of `aside.toml`.
    pub name: &'static str,
    /// How it publishes.
    pub kind: Kind,
    /// The subject of its events, in a few words.
    pub about: &'static str,
    /// Its requirement; without it, it publishes nothing.
    pub needs: Cow<'static, str>,
}

/// All shipped producers, in display order.
pub static PRODUCERS: LazyLock<Vec<Producer>> = LazyLock::new(|| {
    let harnesses = KINDS.into_iter().map(harness_row);
    let probes = probe::Settings::ROWS.iter().map(|row| switched_row(row, Kind::Probe(row.is_on)));
    let detectors = detector::Settings::ROWS.iter().map(|row| switched_row(row, Kind::Detector(row.is_on)));
    let outside = outside::Settings::ROWS.iter().map(|row| {
        let kind = if row.is_list { Kind::List(row.is_on) } else { Kind::Source(row.is_on) };
        switched_row(row, kind)
    });
    probes.chain(detectors).chain(harnesses).chain(outside).chain(OTHERS).collect()
});

fn harness_row(kind: &harness::Kind) -> Producer {
    let needs = format!("`{}`", kind.set_up()).into();
    Producer { name: kind.caps.name, kind: Kind::Harness, about: "calls, turns, sessions", needs }
}

const fn row(name: &'static str, kind: Kind, about: &'static str, needs: &'static str) -> Producer {
    Producer { name, kind, about, needs: Cow::Borrowed(needs) }
}

const fn switched_row<S>(from: &Row<S>, kind: Kind) -> Producer {
    row(from.name, kind, from.about, from.needs)
}

/// The producers with a table in `[sources]`.
pub(super) fn switched() -> impl Iterator<Item = &'static Producer> {
    PRODUCERS.iter().filter(|row| row.kind.is_switched())
}

/// The producers that are not harnesses, probes, detectors or sources.
const OTHERS: [Producer; 4] = [
    row("notify", Kind::Daemon, "notices to the user", "`aside notify MESSAGE`"),
    row("run", Kind::Command, "ended commands and their problems", "`aside run -- COMMAND`"),
    row(WEBHOOKS, Kind::Webhook, "events of other programs", "`enabled = true` in `[webhooks.NAME]`"),
    row(OWN, Kind::Daemon, "its own errors", "nothing"),
];

impl Kind {
    /// The word for this kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Probe(_) => "probe",
            Self::Detector(_) => "detector",
            Self::Harness => "harness",
            Self::Source(_) | Self::List(_) => "source",
            Self::Command => "command",
            Self::Webhook => "webhook",
            Self::Daemon => "daemon",
        }
    }

    /// Whether it is on only with a list of tables of the things it waits for, such as
    /// `[[sources.schedule]]`.
    pub const fn is_list(self) -> bool {
        matches!(self, Self::List(_))
    }

    /// Whether a table of `[sources]` switches it.
    pub const fn is_switched(self) -> bool {
        matches!(self, Self::Probe(_) | Self::Detector(_) | Self::Source(_) | Self::List(_))
    }

    /// Whether the rules and settings in force allow it to publish.
    pub fn is_on(self, in_force: &Generation) -> bool {
        let Generation { rules, outside } = in_force;
        match self {
            Self::Probe(is_on) => is_on(&rules.probes),
            Self::Detector(is_on) => is_on(&rules.detectors),
            Self::Source(is_on) | Self::List(is_on) => is_on(outside),
            Self::Webhook => rules.takes_webhooks,
            Self::Harness | Self::Command | Self::Daemon => true,
        }
    }
}

impl Producer {
    /// The producer of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        PRODUCERS.iter().find(|row| row.name == name)
    }

    /// The producer of an event of this source and type, if there is one.
    pub fn of_event(source: &str, event_type: &str) -> Option<&'static Self> {
        if webhook::Kind::of_word(source).is_some() {
            return Self::find(WEBHOOKS);
        }
        if source != OWN {
            return Self::find(source).filter(|row| row.source() == source);
        }
        let names = catalogue::find(event_type).map(|entry| entry.producers.iter());
        let own =
            names.into_iter().flatten().filter_map(|name| Self::find(name)).find(|row| row.source() == OWN);
        own.or_else(|| Self::find(OWN))
    }

    /// Whether it finds something only in some folders.
    pub fn is_of_folders(&self) -> bool {
        self.name == "git"
    }

    /// The requirement that is missing in `folder`, so that it finds nothing for a session there.
    pub fn missing_in(&self, folder: &str, facts: &dyn Facts) -> Option<&'static str> {
        (self.is_of_folders() && !git::has_repository(folder, facts)).then_some("repository")
    }

    /// The `source` of its events.
    fn source(&self) -> &'static str {
        match self.kind {
            Kind::Probe(_) | Kind::Detector(_) | Kind::Source(_) | Kind::List(_) | Kind::Daemon => OWN,
            Kind::Harness | Kind::Command | Kind::Webhook => self.name,
        }
    }

    /// The types that it publishes, sorted.
    pub fn types(&self) -> impl Iterator<Item = &'static CatalogueEntry> {
        catalogue::types().filter(|entry| entry.producers.iter().any(|name| name == self.name))
    }

    /// The ids of the subscribers to its events, if they are all switched off.
    pub fn switched_off_subscribers<'r>(&self, rules: &'r CompiledRules) -> Vec<&'r str> {
        let asks = |rule: &&Subscriber| self.types().any(|entry| asks_for(rule, entry));
        let asking: Vec<&Subscriber> = subscribers(rules).filter(asks).collect();
        if asking.iter().any(|rule| rule.activity != Activity::Disabled) {
            return Vec::new();
        }
        asking.iter().map(|rule| rule.id.as_str()).collect()
    }
}

/// The sources of the events of what ships: of producers, of the senders of webhooks, and of what the
/// user publishes without a name.
pub(super) fn sources() -> impl Iterator<Item = &'static str> {
    let of_rows = PRODUCERS.iter().map(Producer::source);
    let senders = webhook::Kind::VARIANTS.iter().map(|kind| kind.as_str());
    of_rows.chain(senders).chain(TRUSTED_LOCALLY)
}

/// The subscribers without a shipped producer, by id.
///
/// Shape: a subscriber with a pattern that selects no type of the catalogue is not included; its
/// author knows the producer.
pub fn unserved(rules: &CompiledRules) -> impl Iterator<Item = &Subscriber> {
    subscribers(rules).filter(|rule| {
        let is_known = rule
            .types
            .iter()
            .all(|pattern| catalogue::types().any(|entry| pattern.matches(&entry.event_type)));
        is_known && catalogue::types().all(|entry| entry.producers.is_empty() || !asks_for(rule, entry))
    })
}

fn subscribers(rules: &CompiledRules) -> impl Iterator<Item = &Subscriber> {
    rules.subscribers.iter().map(|rule| &**rule)
}

fn asks_for(rule: &Subscriber, entry: &CatalogueEntry) -> bool {
    rule.types.iter().any(|pattern| pattern.matches(&entry.event_type))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    };

    fn in_force(files: &[(&str, &str)]) -> Generation {
        let file = |(name, text): &(&str, &str)| SourceFile {
            layer: LayerKind::User,
            name: (*name).into(),
            path: (*name).into(),
            text: (*text).into(),
        };
        let compiled = compile(&Sources::shipped().with(files.iter().map(file), []), &[]);
        assert_eq!(compiled.report.to_string(), "");
        compiled.into_generation()
    }

    #[test]
    fn each_source_is_switched_by_its_own_table() {
        let shipped = in_force(&[]);
        for row in switched().filter(|row| !row.kind.is_list()) {
            let was_on = row.kind.is_on(&shipped);
            let turned = in_force(&[(
                "aside.toml",
                &format!(
                    "[sources.{}]
enabled = {}
",
                    row.name, !was_on
                ),
            )]);
            for other in switched() {
                let is_same = other.kind.is_on(&turned) == other.kind.is_on(&shipped);
                assert_eq!(is_same, other.name != row.name, "{} {}", row.name, other.name);
            }
        }
    }

    #[test]
    fn list_entry_switches_on_only_its_source() {
        let examples = [
            ("log", "path = \"dev.log\"\nmatch = \"ERROR\"\n"),
            ("paths", "glob = \"schemas/*.sql\"\n"),
            ("schedule", "name = \"standup\"\ncron = \"0 9 * * *\"\n"),
        ];
        let lists: BTreeSet<&str> = switched().filter(|row| row.kind.is_list()).map(|row| row.name).collect();
        assert_eq!(examples.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(), lists);
        for (name, keys) in examples {
            let on = in_force(&[("aside.toml", &format!("[[sources.{name}]]\n{keys}"))]);
            let found = switched().filter(|row| row.kind.is_list() && row.kind.is_on(&on));
            assert_eq!(found.map(|row| row.name).collect::<Vec<_>>(), [name]);
        }
    }

    #[test]
    fn harness_row_names_what_connects_it() {
        let needs = ["trial-client", "trial-proxy"].map(|name| {
            let kind = harness::Kind::of_name(name).expect("a row for tests");
            harness_row(kind).needs.into_owned()
        });
        assert_eq!(needs, ["`aside install trial-client`", "`aside relay -- AGENT`"]);
    }

    #[test]
    fn catalogue_producers_and_rows_match_exactly() {
        let rows: BTreeSet<&str> = PRODUCERS.iter().map(|row| row.name).collect();
        let named: BTreeSet<&str> =
            catalogue::types().flat_map(|entry| &entry.producers).map(String::as_str).collect();
        assert_eq!((rows.len(), rows), (PRODUCERS.len(), named));
        // With two producers of aside for one type, the producer of an event would be ambiguous.
        for entry in catalogue::types() {
            let own = PRODUCERS
                .iter()
                .filter(|row| row.source() == OWN && entry.producers.iter().any(|name| name == row.name));
            assert!(own.count() <= 1, "{}", entry.event_type);
        }
    }

    #[test]
    fn producer_is_found_by_source_and_type() {
        for (source, event_type, expected) in [
            ("aside", "fs.known.modified", Some("files")),
            ("cli", "fs.known.modified", None),
            ("files", "fs.known.modified", None),
            ("aside", "config.reload.failed", Some("aside")),
            ("aside", "some.other.type", Some("aside")),
            ("claude-code", "some.other.type", Some("claude-code")),
            ("run", "task.failed", Some("run")),
            ("ci", "ci.check.failed", None),
        ] {
            let found = Producer::of_event(source, event_type).map(|row| row.name);
            assert_eq!(found, expected, "{source} {event_type}");
        }
    }

    #[test]
    fn source_names_its_switched_off_subscribers() {
        let git = Producer::find("git").expect("a row");
        assert_eq!(git.switched_off_subscribers(&in_force(&[]).rules), Vec::<&str>::new());
        let text = "[subscriber]\nid = \"git_change\"\nenabled = false\n[events]\ntypes = [\"git.**\"]\n";
        let off = [("subscribers/git_change.toml", text)];
        assert_eq!(git.switched_off_subscribers(&in_force(&off).rules), ["git_change"]);
    }

    #[test]
    fn subscriber_of_types_without_producer_is_unserved() {
        let own =
            |id: &str, types: &str| format!("[subscriber]\nid = \"{id}\"\n[events]\ntypes = [{types}]\n");
        let Generation { rules, .. } = in_force(&[
            ("subscribers/checks.toml", &own("checks", "\"ide.**\"")),
            ("subscribers/deploys.toml", &own("deploys", "\"ide.**\", \"deploy.*\"")),
            ("subscribers/handles.toml", &own("handles", "\"tool.**\"")),
        ]);
        let waiting: Vec<&str> = unserved(&rules).map(|rule| rule.id.as_str()).collect();
        assert!(waiting.contains(&"checks") && waiting.contains(&"ide_diagnostics"), "{waiting:?}");
        let served = ["background_task", "changed_file", "deploys", "handles", "tool_failure"];
        assert!(served.iter().all(|id| !waiting.contains(id)), "{waiting:?}");
    }
}
