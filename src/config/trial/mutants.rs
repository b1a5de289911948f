//! The changes of a subscriber's files that its tests should notice.
//!
//! Each mutant is the subscriber's file, or the template that writes its text, with one change. The
//! rows of the tables of keys say which changes a value has (`change`), so a new key has its own
//! without more code. A mutant is compiled with the files that its tests need, and is tested by the
//! subscriber's tests in the engine that every test has. None is a change that the reader of the file
//! refuses, or that compiles to the same rules as the file or as an earlier mutant.

mod change;

use std::sync::Arc;

use engine::{
    notification::SubscriberId,
    pipeline::{
        render::Layout,
        rule::{BatchMode, Subscriber},
    },
    sorted::SortedSet,
};

use self::change::Change;
use super::tests::Cases;
use crate::config::{
    case::SubscriberTest,
    compile::{Compiled, compile},
    keys,
    layers::{FileKind, SourceFile, Sources},
    raw::Document,
    report::Place,
};

/// Most changes of one subscriber that are tried.
const MUTANTS_MAX: usize = 1_000;

/// What the tests of a subscriber say to the changes of its files.
#[derive(Debug, Default)]
pub struct Mutated {
    /// The number of changes that a test notices.
    pub noticed: usize,
    /// The changes that none notices, in the order of the files.
    pub unnoticed: Vec<Unnoticed>,
    /// The number of changes that were not tried, because the time was over or there are too many.
    pub untried: usize,
}

/// A change that no test notices.
#[derive(Debug, Clone, PartialEq)]
pub struct Unnoticed {
    /// The change, such as "`max_size` 10 -> 5".
    pub what: String,
    /// The position of what is changed.
    pub place: Place,
}

impl Mutated {
    /// The number of changes that were tried.
    pub fn tried(&self) -> usize {
        self.noticed + self.unnoticed.len()
    }
}

/// Runs the tests of the subscriber `id` on each change of its latest file and of the template that
/// writes its text, until `is_over`; `None` if there is no such subscriber.
///
/// Shape: `sources` are the files of `compiled`, with the tests of shipped ones.
pub fn mutate(
    sources: &Sources,
    compiled: &Compiled,
    id: &str,
    is_over: &dyn Fn() -> bool,
) -> Option<Mutated> {
    let rule = compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == id)?;
    let tests = compiled.tests.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
    let file = compiled.files.get(&rule.id)?.last()?;
    let needed = needed(sources, compiled, &rule.id, tests);
    let subject = Subject { needed: &needed, id: &rule.id, tests };
    let mut changes = changes_of(file);
    if let Some(template) = rule.output.layout.template().and_then(|name| file_of_template(sources, name)) {
        changes.extend(change::of_template(template));
    }
    let mut known = SortedSet::new();
    known.insert(subject.compiled(&Change::none(file))?.1);
    let mut mutated = Mutated::default();
    for (index, change) in changes.into_iter().enumerate() {
        if index >= MUTANTS_MAX || is_over() {
            mutated.untried += 1;
            continue;
        }
        let Some((compiled, form)) = subject.compiled(&change) else { continue };
        // The rules name a template, and do not contain it.
        if *change.path() == file.path && !known.insert(form) {
            continue;
        }
        match subject.notices(&compiled) {
            true => mutated.noticed += 1,
            false => mutated.unnoticed.push(Unnoticed { what: change.what, place: change.place }),
        }
    }
    Some(mutated)
}

/// The changes of a subscriber's file, in its order.
fn changes_of(file: &SourceFile) -> Vec<Change> {
    let Ok(document) = Document::parse(file) else { return Vec::new() };
    let tables = keys::subscriber();
    let of_table = |table: &keys::FileTable| {
        let section = document.value(&table.name);
        section.map(|section| change::of_keys(&section, &table.keys)).unwrap_or_default()
    };
    let mut changes: Vec<Change> = tables.iter().flat_map(of_table).collect();
    changes.sort_by_key(|change| change.place.span.start);
    changes
}

/// The file of a template, of the latest layer.
fn file_of_template<'s>(sources: &'s Sources, name: &str) -> Option<&'s SourceFile> {
    sources
        .of_kind(FileKind::Template)
        .filter(|file| file.name.strip_prefix("templates/") == Some(name))
        .last()
}

/// The files that the tests of a subscriber need: no other subscribers and templates than those in its
/// engine.
fn needed(sources: &Sources, compiled: &Compiled, id: &SubscriberId, tests: &[SubscriberTest]) -> Sources {
    let others = tests.iter().flat_map(|test| test.with.iter().map(|(other, _)| other));
    let ids: SortedSet<&SubscriberId> = others.chain([id]).collect();
    let rules = || {
        let all = compiled.rules.subscribers.iter();
        all.filter(|rule| ids.iter().any(|id| rule.is_part_of(id)))
    };
    let files = rules().filter_map(|rule| compiled.files.get(&rule.id)).flatten();
    let paths: SortedSet<&Arc<str>> = files.map(|file| &file.path).collect();
    let rules = rules();
    let texts = rules.filter_map(|rule| rule.output.layout.template().map(str::to_owned));
    let own = ids.iter().map(|id| format!("{id}.toon.j2"));
    let templates: SortedSet<String> = texts.chain(own).map(|name| format!("templates/{name}")).collect();
    sources.clone().only(|file| match FileKind::of(&file.name) {
        Some(FileKind::Subscriber) => paths.contains(&file.path),
        Some(FileKind::Template) => templates.contains(&*file.name),
        Some(
            FileKind::Settings
            | FileKind::Events
            | FileKind::Library
            | FileKind::Fixture
            | FileKind::Webhooks,
        )
        | None => true,
    })
}

/// A subscriber whose files are changed.
struct Subject<'s> {
    needed: &'s Sources,
    id: &'s SubscriberId,
    tests: &'s [SubscriberTest],
}

impl Subject<'_> {
    /// The rules with a change, and the subscriber as text; `None` if the file is refused.
    fn compiled(&self, change: &Change) -> Option<(Compiled, String)> {
        let sources = self.needed.clone().replacing(vec![change.applied()]);
        let compiled = compile(&sources, &[]);
        let rule = compiled.rules.subscribers.iter().find(|rule| rule.id == *self.id)?;
        let is_refused = compiled.left_out.contains(change.path());
        let form = form(rule);
        (!is_refused).then_some((compiled, form))
    }

    /// Whether a test fails with these rules.
    fn notices(&self, compiled: &Compiled) -> bool {
        let cases = Cases::new(compiled);
        let mut cases = self.tests.iter().map(|test| cases.case(self.id, test));
        cases.any(|case| case.is_none_or(|case| case.run().is_err()))
    }
}

/// A subscriber as text, in which only what can have an effect differs: where no event waits for
/// another one, the size of a batch and the text of several events have none.
fn form(rule: &Subscriber) -> String {
    let form = format!("{rule:?}");
    let batching = &rule.batching;
    let is_by_time = matches!(batching.mode, BatchMode::Digest(_)) || !rule.quiet.is_empty();
    if batching.collects() || is_by_time {
        return form;
    }
    let form = form.replacen(&format!("{batching:?}"), "no batch", 1);
    match &rule.output.layout {
        Layout::Declared(declared) if declared.one().is_some() => {
            form.replacen(&format!("{declared:?}"), &format!("{:?}", declared.one()), 1)
        }
        Layout::Declared(_) | Layout::Template(_) => form,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::LayerKind;

    const HEAD: &str = "[subscriber]\nid = \"x\"\nname = \"X\"\ndescription = \"d\"\nversion = \"1.0.0\"\n[events]\ntypes = [\"a.b\"]\n";

    fn file(name: &str, text: &str) -> SourceFile {
        SourceFile { layer: LayerKind::User, name: name.into(), path: name.into(), text: text.into() }
    }

    /// The changes of a subscriber without tests, with their lines below the head.
    fn changes(rest: &str) -> Vec<(String, usize)> {
        let files = [
            file("subscribers/x.toml", &format!("{HEAD}{rest}")),
            file("templates/own.toon.j2", "{#\n  c\n#}\n{% if count %}\na: 1\n{% endif %}\nb: 2\n"),
        ];
        let sources = Sources::shipped().with(files, []);
        let compiled = compile(&sources, &[]);
        assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
        let mutated = mutate(&sources, &compiled, "x", &|| false).expect("a subscriber");
        assert_eq!((mutated.noticed, mutated.untried), (0, 0));
        let head = HEAD.lines().count();
        let line =
            |place: &Place| place.line().saturating_sub(if place.file.starts_with("sub") { head } else { 0 });
        mutated.unnoticed.iter().map(|change| (change.what.clone(), line(&change.place))).collect()
    }

    fn words(rest: &str) -> Vec<String> {
        changes(rest).into_iter().map(|(what, _)| what).collect()
    }

    #[test]
    fn each_shape_of_value_has_its_changes() {
        for (rest, expected) in [
            (
                "[batching]\nmax_size = 8\n",
                &["`max_size` removed", "`max_size` 8 -> 4", "`max_size` 8 -> 16"][..],
            ),
            // What the reader refuses is no change, and neither is what has no effect.
            ("[batching]\nmax_size = 1\nwindow_ms = 10000\n", &["`max_size` removed", "`max_size` 1 -> 2"]),
            ("[batching]\nmax_size = 10\n", &["`max_size` 10 -> 5", "`max_size` 10 -> 20"]),
            ("[limits]\nttl = \"90s\"\n", &["`ttl` removed", "`ttl` 90s -> 45s", "`ttl` 90s -> 3m"]),
            (
                "[limits]\nrate = \"10/min\"\n",
                &["`rate` removed", "`rate` 10/min -> 5/min", "`rate` 10/min -> 20/min"],
            ),
            (
                "[limits]\ndeliver_after = [\"3 turns\", \"1h\"]\n",
                &[
                    "`deliver_after` removed",
                    "`deliver_after` without `3 turns`",
                    "`deliver_after` 3 turns -> 1 turns",
                    "`deliver_after` 3 turns -> 6 turns",
                    "`deliver_after` without `1h`",
                    "`deliver_after` 1h -> 2h",
                ],
            ),
            (
                "[limits]\nsupersede_key = \"payload.a:payload.b\"\n",
                &[
                    "`supersede_key` removed",
                    "`supersede_key` without `payload.a`",
                    "`supersede_key` without `payload.b`",
                ],
            ),
            ("[output]\npriority = \"high\"\n", &["`priority` removed", "`priority` high -> critical"]),
            ("[output]\nrequires_response = true\n", &["`requires_response` removed"]),
        ] {
            assert_eq!(words(rest), expected, "{rest}");
        }
        let negated = words("where = \"payload.n > 1\"\n[batching]\nwindow_ms = 0\n");
        assert_eq!(negated, ["`where` removed", "`where` negated", "`window_ms` removed"]);
    }

    #[test]
    fn parts_of_tables_and_lists_are_removed() {
        for (rest, expected) in [
            (
                "[output.table]\nkey = \"k\"\ncolumns.a = [\"p\", \"q\"]\ncolumns.b = \"b\"\n",
                &[
                    "`table` removed",
                    "`columns` removed",
                    "column `a` removed",
                    "`a` without `p`",
                    "`a` without `q`",
                    "column `b` removed",
                ][..],
            ),
            (
                "[output]\ntable = { key = \"k\", columns = { a = \"a\", b = \"b\" }, repeats = false }\n",
                &[
                    "`table` removed",
                    "`columns` removed",
                    "column `a` removed",
                    "column `b` removed",
                    "`repeats` removed",
                ],
            ),
            (
                "[[limits.inhibit]]\nby = [\"a.c\"]\nequal = \"\"\nfor = \"1h\"\n[[limits.inhibit]]\nby = [\"a.d\"]\nequal = \"\"\nfor = \"1h\"\n",
                &[
                    "item 1 of `inhibit` removed",
                    "`inhibit` removed",
                    "`for` 1h -> 30m",
                    "`for` 1h -> 2h",
                    "item 2 of `inhibit` removed",
                    "`for` 1h -> 30m",
                    "`for` 1h -> 2h",
                ],
            ),
        ] {
            assert_eq!(words(rest), expected, "{rest}");
        }
    }

    #[test]
    fn each_line_of_a_text_is_removed() {
        let one = "[output]\none = \"\"\"\na: 1\n{# c #}\nb: 2\n\"\"\"\n";
        let expected = [("`one` removed", 2), ("`one` without `a: 1`", 3), ("`one` without `b: 2`", 5)];
        assert_eq!(changes(one), expected.map(|(what, line)| (what.to_owned(), line)));
        let template = "[output]\ntemplate = \"own\"\n";
        let expected = [("`template` removed", 2), ("line `a: 1` removed", 5), ("line `b: 2` removed", 7)];
        assert_eq!(changes(template), expected.map(|(what, line)| (what.to_owned(), line)));
    }

    #[test]
    fn a_failing_test_notices_a_change() {
        let test = "[batching]\nwindow_ms = 0\n[output]\none = \"n: {{ payload.n }}\"\npriority = \"high\"\n\
                    [[tests]]\nname = \"t\"\nat = [[\"0s\", \"a.b\", { n = 1 }]]\n\
                    expect = [{ at = \"0s\", decoded = { n = 1 } }]\n";
        let sources = Sources::shipped().with([file("subscribers/x.toml", &format!("{HEAD}{test}"))], []);
        let compiled = compile(&sources, &[]);
        let mutated = mutate(&sources, &compiled, "x", &|| false).expect("a subscriber");
        let unnoticed: Vec<_> = mutated.unnoticed.iter().map(|change| change.what.as_str()).collect();
        let expected = ["`one` removed", "`priority` removed", "`priority` high -> critical"];
        assert_eq!((mutated.noticed, unnoticed.as_slice()), (1, &expected[..]));
        let over = mutate(&sources, &compiled, "x", &|| true).expect("a subscriber");
        assert_eq!((over.tried(), over.untried > 3), (0, true));
        assert!(mutate(&sources, &compiled, "y", &|| false).is_none());
    }
}
