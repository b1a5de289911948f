//! Subscribers drawn at random: of each key of a file, values that its reader accepts.
//!
//! Each key is drawn by itself. Keys that exclude each other are found by the reader: what it refuses
//! is left out, until it accepts the file.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use aside::config::{
    compile::{Compiled, compile},
    layers::{LayerKind, SourceFile, Sources},
    report::Level,
};

use crate::support::random::Random;

/// The types that drawn subscribers take, and those of the events that act on them.
pub(crate) const TYPES: [&str; 6] = [
    "plant.thing.fired",
    "plant.thing.noted",
    "plant.thing.gone",
    "plant.zone.down",
    "plant.zone.up",
    "plant.other.came",
];
/// What a drawn subscriber takes: the first two of [`TYPES`].
const TAKEN: &str = r#"["plant.thing.fired", "plant.thing.noted"]"#;

/// Keys with their section, and how many of 100 files have one; the other values are drawn equally.
type Key = (&'static str, &'static str, u64, &'static [&'static str]);

/// The keys of each section in the order of the documentation. `id` and `types` are in every file.
pub(crate) const KEYS: &[Key] = &[
    ("subscriber", "name", 10, &[r#""A plant""#]),
    ("subscriber", "description", 10, &[r#""Grows""#]),
    ("subscriber", "version", 10, &[r#""1.2.3""#]),
    ("subscriber", "inherit", 5, &["false"]),
    ("subscriber", "enabled", 10, &["true", "true", "true", "false"]),
    ("events", "sources", 15, &[r#"["test", "meter"]"#]),
    (
        "events",
        "severity_when",
        20,
        &[
            r#"[{ is = "critical", where = "payload.n > 90" }]"#,
            r#"[{ is = "error", where = "payload.tag == 'a'" }, { is = "debug", where = "payload.n < 1" }]"#,
        ],
    ),
    ("events", "severity_filter", 20, &[r#""info""#, r#""warning""#, r#""debug""#]),
    ("events", "where", 20, &[r#""payload.n >= 0""#, r#""payload.tag != 'c' or severity == 'critical'""#]),
    ("batching", "window_ms", 60, &["0", "0", "300", "2000", "10000"]),
    ("batching", "max_size", 40, &["1", "2", "5", "100"]),
    ("batching", "mode", 40, &[r#""window""#, r#""debounce""#, r#""digest""#, r#""digest""#]),
    ("batching", "max_wait_ms", 30, &["10000", "60000"]),
    ("batching", "every", 60, &[r#""1m""#, r#""1h""#]),
    ("batching", "at", 40, &[r#"["09:00", "22:30"]"#]),
    ("batching", "group_by", 20, &[r#""payload.zone""#, r#""payload.tag:type""#]),
    ("batching", "close_when", 15, &[r#""payload.last""#]),
    ("batching", "open_when", 15, &[r#""payload.tag == 'b'""#]),
    ("batching", "dedupe_key", 40, &[r#""type""#, r#""payload""#, r#""type:payload.n""#, r#""payload.tag""#]),
    ("batching", "dedupe_window_ms", 30, &["0", "1000", "60000"]),
    ("batching", "dedupe_window", 20, &[r#""1h""#, r#""24h""#]),
    ("batching", "dedupe_ignore", 30, &[r#""payload.n""#]),
    ("batching", "dedupe_keep", 20, &[r#""first""#, r#""newest""#]),
    ("threshold", "by", 15, &[r#""payload.zone""#]),
    ("threshold", "count", 10, &["true"]),
    ("threshold", "sum", 15, &[r#""payload.n""#]),
    ("threshold", "at", 25, &["[2]", "[1, 3, 10]"]),
    ("threshold", "within", 35, &[r#""1m""#, r#""24h""#, r#""day""#]),
    ("absent", "after", 12, &[r#""30s""#, r#""1h""#]),
    ("absent", "by", 8, &[r#""payload.zone""#]),
    ("absent", "forget", 8, &[r#""2h""#]),
    ("limits", "rate", 20, &[r#""1/h""#, r#""10/min""#]),
    ("limits", "rate_by", 15, &[r#""payload.zone""#]),
    ("limits", "rate_of", 15, &[r#""events""#, r#""notifications""#]),
    ("limits", "tokens", 20, &[r#""20/h""#, r#""300/h""#]),
    ("limits", "ttl", 20, &[r#""1h""#, r#""2h""#]),
    ("limits", "quiet", 30, &[r#""22:00-07:00""#, r#"["20:00-23:30", "sat", "mon"]"#]),
    ("limits", "retain", 15, &["true", "false", r#""12h""#]),
    (
        "limits",
        "deliver_after",
        20,
        &[
            r#""3 turns""#,
            r#""10m""#,
            r#""18:00""#,
            r#"["tool:Bash", "event:plant.other.*", "context:80%", "2h"]"#,
        ],
    ),
    ("limits", "supersede_key", 15, &[r#""payload.zone""#, r#""payload.tag""#]),
    ("limits", "resolved_by", 30, &[r#"["plant.thing.gone"]"#]),
    ("limits", "equal", 60, &[r#""payload.zone""#, r#""""#]),
    ("limits", "revision", 5, &[r#""payload.tag""#]),
    ("limits", "order_by", 5, &[r#""payload.n""#]),
    ("limits", "inhibited_by", 25, &[r#"["plant.zone.down"]"#]),
    (
        "limits",
        "inhibit_equal",
        60,
        &[r#""payload.zone""#, r#""""#, r#"{ "payload.zone" = "payload.zone" }"#],
    ),
    (
        "limits",
        "inhibit",
        15,
        &[r#"[{ by = ["plant.zone.down"], equal = "payload.zone", until = ["plant.zone.up"], for = "2h" }]"#],
    ),
    ("repeat", "until", 5, &[r#""answered""#, r#""resolved""#]),
    ("repeat", "after", 15, &[r#"["10m", "2 turns"]"#]),
    ("repeat", "raise", 10, &[r#"["high", "critical"]"#]),
    ("repeat", "endless", 10, &["true", "false"]),
    ("output", "priority", 70, &[r#""low""#, r#""normal""#, r#""high""#, r#""critical""#]),
    ("output", "inject_at", 40, &[r#""immediate""#, r#""turn_start""#, r#""after_tool""#, r#""turn_end""#]),
    ("output", "activation", 40, &[r#""passive""#, r#""prompt""#, r#""active""#]),
    ("output", "active_for", 15, &[r#""any""#, r#""session""#]),
    (
        "output",
        "interrupt",
        30,
        &[r#""inject_and_continue""#, r#""cancel_and_restart""#, r#""queue_for_next""#],
    ),
    ("output", "escalate_at", 30, &[r#""error""#, r#""critical""#, r#""never""#]),
    ("output", "max_tokens", 20, &["20", "200", "2000"]),
    ("output", "audience", 25, &[r#""agent""#, r#""both""#, r#""user""#]),
    ("output", "requires_response", 15, &["true", "false"]),
    ("output", "priority_by", 15, &[r#""payload.tag""#, r#""payload.priority""#]),
    ("output", "region", 25, &[r#""never""#, r#""also""#, r#""only""#]),
    ("output", "template", 15, &[r#""generic""#]),
    (
        "output",
        "one",
        40,
        &[r#""thing: {{ payload.tag }} {{ payload.n }}""#, r#""n: {{ payload.n }}\nrepeats: {{ repeats }}""#],
    ),
    (
        "output",
        "many",
        15,
        &[r#""all: {{ count }}\n{{ rows|toon(key=\"things\") }}\nlater: {{ suppressed }}""#],
    ),
    (
        "output",
        "table",
        30,
        &[
            r#"{ key = "things", columns = ["tag", "n"] }"#,
            r#"{ key = "things", columns = { what = "{{ payload.tag }}", at = "zone" }, repeats = false }"#,
        ],
    ),
    ("output", "sentence", 15, &[r#""{{ payload.tag }} came""#]),
    ("output", "core", 30, &["true", "false"]),
];

/// A subscriber that the reader accepts.
#[derive(Debug, Clone)]
pub(crate) struct Drawn {
    id: String,
    values: BTreeMap<(&'static str, &'static str), &'static str>,
}

impl Drawn {
    /// Draws the keys, and leaves out those that the reader refuses. `fixed` are in the file in any case,
    /// and the sections `without` are not.
    ///
    /// # Panics
    /// If the reader refuses a file for something that is not one of its drawn keys.
    pub(crate) fn new(
        id: &str,
        random: &mut Random,
        fixed: &[(&'static str, &'static str, &'static str)],
        without: &[&str],
    ) -> Self {
        let mut values = BTreeMap::new();
        for (section, key, share, all) in KEYS {
            if random.percent(*share) && !without.contains(section) {
                values.insert((*section, *key), random.one_of(all));
            }
        }
        values.extend(fixed.iter().map(|(section, key, value)| ((*section, *key), *value)));
        let mut drawn = Self { id: id.to_owned(), values };
        while let Some(refused) = drawn.refused(fixed) {
            assert!(drawn.values.remove(&refused).is_some(), "{refused:?} is refused:\n{}", drawn.text());
        }
        drawn
    }

    /// A key that the reader refuses; one that is not fixed, if there is one in the section of the error.
    fn refused(
        &self,
        fixed: &[(&'static str, &'static str, &'static str)],
    ) -> Option<(&'static str, &'static str)> {
        let compiled = compiled([self], "");
        let errors = compiled.report.diagnostics().iter().filter(|found| found.level == Level::Error);
        let named = errors.map(|error| error.key.clone()).next()?;
        let is_fixed = |own: &(&str, &str)| fixed.iter().any(|(section, key, _)| *own == (*section, *key));
        let mut own = self.values.keys().filter(|own| !is_fixed(own));
        let is_named = |own: &&(&str, &str)| named.starts_with(&format!("{}.{}", own.0, own.1));
        let in_section = |own: &&(&str, &str)| named.split('.').next() == Some(own.0);
        let found =
            own.clone().find(is_named).or_else(|| own.clone().find(in_section)).or_else(|| own.next());
        Some(*found.unwrap_or_else(|| panic!("{}", compiled.report)))
    }

    /// The value of a key as the file has it.
    pub(crate) fn value(&self, section: &'static str, key: &'static str) -> Option<&'static str> {
        self.values.get(&(section, key)).copied()
    }

    /// The keys that it has.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.values.keys().copied()
    }

    /// Its id.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Its file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for section in
            ["subscriber", "events", "batching", "threshold", "absent", "limits", "repeat", "output"]
        {
            let own = self.values.iter().filter(|((of, _), _)| *of == section);
            let lines: Vec<String> = own.map(|((_, key), value)| format!("{key} = {value}\n")).collect();
            let always = match section {
                "subscriber" => format!("id = \"{}\"\n", self.id),
                "events" => format!("types = {TAKEN}\n"),
                _ if lines.is_empty() => continue,
                _ => String::new(),
            };
            write!(text, "[{section}]\n{always}{}", lines.concat()).expect("a String");
        }
        text
    }
}

/// The files of drawn subscribers, with a text of `aside.toml`.
pub(crate) fn sources<'d>(drawn: impl IntoIterator<Item = &'d Drawn>, settings: &str) -> Sources {
    let file = |name: String, text: String| SourceFile {
        layer: LayerKind::User,
        path: name.as_str().into(),
        name: name.into(),
        text: text.into(),
    };
    let settings = (!settings.is_empty()).then(|| file("aside.toml".into(), settings.to_owned()));
    let drawn = drawn.into_iter().map(|one| file(format!("subscribers/{}.toml", one.id), one.text()));
    Sources::new(drawn.chain(settings))
}

/// What the reader makes of them.
pub(crate) fn compiled<'d>(drawn: impl IntoIterator<Item = &'d Drawn>, settings: &str) -> Compiled {
    compile(&sources(drawn, settings), &[])
}

/// Their rules.
///
/// # Panics
/// If the reader refuses a file, with the report.
pub(crate) fn rules<'d>(
    drawn: impl IntoIterator<Item = &'d Drawn>,
    settings: &str,
) -> Arc<engine::rules::CompiledRules> {
    let compiled = compiled(drawn, settings);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    Arc::new(compiled.rules)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_of_a_file_is_drawn() {
        let tables = aside::config::keys::subscriber();
        let known: BTreeSet<(String, String)> = tables
            .iter()
            .flat_map(|table| table.keys.iter().map(|key| (table.name.to_string(), key.name.to_string())))
            .filter(|(_, key)| key != "id" && key != "types")
            .collect();
        let mut drawn = BTreeSet::new();
        for seed in 0..400 {
            let one = Drawn::new("plant", &mut Random::new(seed), &[], &[]);
            drawn.extend(one.keys().map(|(section, key)| (section.to_owned(), key.to_owned())));
        }
        assert_eq!(drawn, known);
    }
}
