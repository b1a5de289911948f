//! The names that authors use, each with its meaning: keys, variables, filters, functions, tests, lints
//! and reasons. The tables are those of the readers; tests compare the hand-written ones with the
//! engine, and run their examples.

mod entry;
mod filters;
mod names;

use std::fmt::Write as _;

use engine::{
    ledger::{Reason, ReasonText},
    nearest::{clause, nearest},
    words::Words,
};

use self::entry::Row;
pub use self::entry::{Entry, Example};
use crate::config::{
    keys,
    lints::LINTS,
    schema::{joined, limits, plain},
};

/// A group of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::VariantArray, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum Topic {
    /// Keys of a subscriber's file.
    Keys,
    /// Variables of texts.
    Variables,
    /// Filters of texts and of `where`.
    Filters,
    /// Functions of texts.
    Functions,
    /// Tests of texts and of `where`, after `is`.
    Tests,
    /// Named findings of `aside check`.
    Lints,
    /// Why an event or a notification ended.
    Reasons,
}

engine::words::impl_as_str!(Topic);

impl Topic {
    /// The topic in words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Keys => "the keys of a subscriber's file",
            Self::Variables => "the variables of texts",
            Self::Filters => "the filters of texts and of `where`",
            Self::Functions => "the functions of texts",
            Self::Tests => "the tests of texts and of `where`, after `is`",
            Self::Lints => "the named findings of `aside check`",
            Self::Reasons => "why an event or a notification ended",
        }
    }

    /// Its entries, in the order of their table.
    pub fn entries(self) -> Vec<Entry> {
        match self {
            Self::Keys => key_entries(),
            Self::Variables => {
                let variable = |(name, says): &(&str, &str)| Entry {
                    name: (*name).to_owned(),
                    says: (*says).to_owned(),
                    more: String::new(),
                    example: None,
                };
                names::VARIABLES.iter().map(variable).collect()
            }
            Self::Filters => filters::FILTERS.iter().map(Row::entry).collect(),
            Self::Functions => names::FUNCTIONS.iter().map(Row::entry).collect(),
            Self::Tests => names::TESTS.iter().map(Row::entry).collect(),
            Self::Lints => LINTS
                .iter()
                .map(|lint| Entry {
                    name: lint.name.as_str().to_owned(),
                    says: format!("{}: {}", lint.level.as_str(), lint.finds),
                    more: lint.to_string().lines().skip(1).map(|line| format!("{line}\n")).collect(),
                    example: None,
                })
                .collect(),
            Self::Reasons => Reason::texts().map(reason_entry).collect(),
        }
    }

    /// The entry with this name; of a key also without its section.
    ///
    /// Errors: there is none; a sentence with the nearest name.
    pub fn entry(self, name: &str) -> Result<Entry, String> {
        let entries = self.entries();
        let is_meant = |entry: &&Entry| entry.name == name || entry.name.rsplit('.').next() == Some(name);
        if let Some(found) = entries.iter().find(is_meant) {
            return Ok(found.clone());
        }
        let names = entries.iter().map(|entry| entry.name.as_str());
        Err(format!("there is no `{name}` among {}{}", self.about(), clause(nearest(name, names))))
    }

    /// The topic with this word.
    ///
    /// Errors: there is none; a sentence with the nearest word.
    pub fn named(word: &str) -> Result<Self, String> {
        Self::of_word(word).ok_or_else(|| {
            let hint = nearest(word, Self::words());
            let hint = hint.map_or_else(
                || format!("they are {}", Self::list()),
                |near| format!("did you mean `{near}`?"),
            );
            format!("there is no topic `{word}`; {hint}")
        })
    }
}

fn reason_entry(text: ReasonText) -> Entry {
    let mut more = String::new();
    let sentences = [("an event", &text.event), ("a notification", &text.notification)];
    for (what, sentence) in sentences {
        if let Some(sentence) = sentence {
            let _ = writeln!(more, "of {what}: {}", sentence.end.replace("{detail}", ".."));
            let _ = writeln!(more, "next: {}", sentence.next.replace("{detail}", ".."));
        }
    }
    let first = text.event.as_ref().or(text.notification.as_ref());
    let says = first.map(|sentence| sentence.end.replace("{detail}", "..")).unwrap_or_default();
    Entry { name: text.word.to_owned(), says, more, example: None }
}

fn key_entries() -> Vec<Entry> {
    let tables = keys::subscriber();
    let of_table = |table: keys::FileTable| {
        let name = table.name;
        table.keys.into_iter().map(move |key| {
            let mut more = String::new();
            let allowed = limits(&key.shape, "\"");
            if !allowed.is_empty() {
                let _ = writeln!(more, "allowed   {}", plain(&allowed));
            }
            let default = key.default.clone().or_else(|| key.without.map(plain));
            if let Some(default) = default {
                let _ = writeln!(more, "default   {default}");
            }
            if let Some(example) = key.example {
                let _ = writeln!(more, "example   {} = {example}", key.name);
            }
            if key.is_required {
                more.push_str("required\n");
            }
            Entry { name: format!("{name}.{}", key.name), says: plain(&joined(key.doc)), more, example: None }
        })
    };
    tables.into_iter().flat_map(of_table).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use engine::{
        event::{Event, Payload, Seq},
        notification::{SubscriberId, Tokens},
        pipeline::{
            render::{RenderInput, Templates, vocabulary},
            row::Row as BatchRow,
        },
    };
    use serde_json::json;

    use super::*;

    /// What a template writes for two failed tool calls.
    fn written(text: &str) -> String {
        let payload = |tool: &str, n: u32| {
            Payload::from(
                json!({ "tool": tool, "ms": 91_000, "n": n, "at": { "file": "/w/src/a.rs", "line": 7 }, "tags": ["b", "a"] }),
            )
        };
        let row = |(seq, tool, n): (u64, &str, u32)| BatchRow {
            seq: Seq(seq),
            event: std::sync::Arc::new(Event {
                workspace: Some("/w".into()),
                ..Event::example("tool.call.failure".parse().expect("a type"), payload(tool, n))
            }),
            repeats: 1,
            threshold: None,
            suppressed: None,
        };
        let rows: Vec<BatchRow> = [(1, "grep", 1), (2, "fetch", 2)].map(row).into();
        let mut templates = Templates::default();
        templates.add("x.toon.j2", text).unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let id = SubscriberId::new("x");
        let input = RenderInput {
            now: "2026-01-05T09:11:00Z".parse().expect("a time"),
            ..RenderInput::new(&id, &rows, Tokens(400))
        };
        let rendered = templates.render("x.toon.j2", &input);
        assert_eq!(rendered.failure, None, "{text}");
        rendered.content
    }

    #[test]
    fn every_name_of_the_engine_is_described() {
        let known = vocabulary();
        let names =
            |topic: Topic| topic.entries().into_iter().map(|entry| entry.name).collect::<BTreeSet<_>>();
        let set = |names: Vec<&'static str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
        assert_eq!(names(Topic::Filters), set(known.filters));
        assert_eq!(names(Topic::Functions), set(known.functions));
        assert_eq!(names(Topic::Tests), set(known.tests));
        assert_eq!(names(Topic::Variables), set(known.variables));
    }

    #[test]
    fn every_example_writes_what_it_says() {
        let mut wrong = Vec::new();
        let tables = [filters::FILTERS, names::FUNCTIONS, names::TESTS];
        for Row { name, example, .. } in tables.into_iter().flatten() {
            assert!(example.text.contains(name), "{name}: {}", example.text);
            let written = written(&format!("{}\n", example.text));
            // The counts that the example does not print.
            if written != example.writes {
                wrong.push(format!("{name}: {:?} writes {written:?}", example.text));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn wrong_names_have_the_nearest_one() {
        assert_eq!(
            Topic::named("filtrs"),
            Err("there is no topic `filtrs`; did you mean `filters`?".to_owned())
        );
        let wrong = Topic::Filters.entry("truncat").expect_err("no filter");
        assert!(wrong.ends_with("did you mean `truncate`?"), "{wrong}");
        let key = Topic::Keys.entry("window_ms").expect("a key");
        assert_eq!(key.name, "batching.window_ms");
        assert!(key.more.contains("default   2000"), "{}", key.more);
        assert!(Topic::Lints.entry("unused-file").expect("a lint").more.contains("wrong: "));
        assert!(Topic::Reasons.entries().len() > 15);
    }
}
