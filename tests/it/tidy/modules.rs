//! The modules, their layers, and the other modules that each may use.
//!
//! A module that could use another one and does not is a broken rule too, so the table is no more
//! than the truth.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Token, own_path, rooms::is_within, rust_text::paths, rust_text::tokens};

/// Where a finding about the table is shown.
const TABLE: &str = "tests/it/tidy/modules.rs";

/// Layers 0 and 1; every `module` may use them, an `alone` may not.
const DATA: &[&str] = &[
    "journal::Seq",
    "journal::time",
    "causes",
    "hash",
    "hex",
    "name",
    "nearest",
    "raw_json",
    "words",
    "settings",
    "snapshot",
    "version",
    "call",
    "event",
    "notification",
    "rate",
    "exchange",
    "json",
    "fold",
    "ledger",
    "session",
    "toon",
    "transcript",
];
/// A module, its layer, and the other parts of this crate that it may use.
pub(super) struct Module {
    pub(super) name: &'static str,
    pub(super) layer: u8,
    uses_data: bool,
    uses: &'static [&'static str],
}

const fn module(name: &'static str, layer: u8, uses: &'static [&'static str]) -> Module {
    Module { name, layer, uses_data: true, uses }
}

const fn alone(name: &'static str, layer: u8, uses: &'static [&'static str]) -> Module {
    Module { name, layer, uses_data: false, uses }
}

/// The highest layer that decides: synchronous, with time as data.
pub(super) const DECIDING: u8 = 3;

#[rustfmt::skip]
pub(super) const MODULES: &[Module] = &[
    alone("causes", 0, &[]),
    alone("version", 0, &[]),
    alone("hash", 0, &[]),
    alone("hex", 0, &[]),
    alone("name", 0, &[]),
    alone("nearest", 0, &[]),
    alone("words", 0, &[]),
    alone("settings", 0, &["words"]),
    alone("snapshot", 0, &[]),
    module("call", 1, &[]),
    module("event", 1, &[]),
    module("notification", 1, &[]),
    module("rate", 1, &[]),
    module("exchange", 1, &[]),
    module("json", 1, &[]),
    alone("raw_json", 1, &[]),
    module("fold", 1, &[]),
    module("ledger", 1, &[]),
    module("session", 1, &[]),
    alone("toon", 0, &[]),
    module("transcript", 1, &[]),
    module("paths", 2, &[]),
    module("pipeline", 2, &[]),
    module("matcher", 2, &[]),
    module("conversation", 2, &[]),
    module("log", 2, &[]),
    module("format", 2, &[]),
    module("detector", 2, &[]),
    module("probe", 2, &[]),
    module("schedule", 2, &[]),
    module("sink", 2, &[]),
    module("throttle", 2, &[]),
    module("watch", 2, &[]),
    module("webhook", 2, &[]),
    module("ci", 2, &[]),
    module("shell", 2, &[]),
    module("problem", 2, &[]),
    module("lsp", 2, &["problem"]),
    module("rules", DECIDING, &[
        "ci", "conversation", "detector", "matcher", "pipeline", "probe", "sink", "throttle",
    ]),
    module("outside", DECIDING, &["ci", "log", "lsp", "paths", "rules", "schedule", "shell", "watch"]),
    module("engine", DECIDING, &[
        "ci", "conversation", "detector", "format", "matcher", "pipeline", "probe", "rules", "sink",
        "throttle", "watch",
    ]),
    module("config", DECIDING, &[
        "conversation", "detector", "format", "harness::table", "outside", "pipeline", "probe", "rules", "sink", "throttle",
        "watch", "webhook",
    ]),
    module("wire", DECIDING, &["engine::io", "sink", "watch"]),
    module("records", DECIDING, &["engine::io", "wire"]),
    module("harness", DECIDING, &["engine::io", "hook::harness", "records", "wire"]),
    module("trial", 4, &["config", "engine", "format", "pipeline", "rules", "sink"]),
    alone("journal", 4, &[]),
    alone("produced", 4, &[]),
    module("publisher", 4, &["engine::io", "journal", "records"]),
    alone("program", 4, &[]),
    alone("regular_file", 4, &[]),
    module("projection", 4, &["engine", "format", "journal", "records", "wire"]),
    module("source", 4, &[
        "ci", "harness", "journal", "log", "lsp", "outside", "paths", "produced", "program", "publisher", "records", "schedule",
        "sink", "watch", "webhook",
    ]),
    module("server", 5, &[
        "config", "conversation", "engine", "format", "harness", "hook::harness", "journal", "lsp", "outside", "pipeline", "probe",
        "produced", "program", "projection", "publisher", "records", "regular_file", "rules", "shell", "sink",
        "source", "watch", "webhook", "wire",
    ]),
    module("daemon", 5, &[
        "config", "conversation", "engine", "harness", "journal", "outside", "pipeline",
        "program", "projection", "publisher", "records", "rules", "server", "source", "trial", "wire",
    ]),
    module("cli", 6, &[
        "config", "daemon", "harness", "hook", "journal", "problem", "regular_file", "server", "sink",
        "source", "trial", "watch", "wire",
    ]),
    alone("hook", 4, &[]),
    alone("main", 6, &["causes", "cli"]),
];

/// The module that a file of `src/` belongs to; `None` for `lib.rs` and for modules that are not in
/// the table.
pub(super) fn find_module(inner: &str) -> Option<&'static Module> {
    let name = inner.split('/').next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    MODULES.iter().find(|module| module.name == name)
}

impl Module {
    /// Whether files of this module may use `own`, a path from the crate's root.
    pub(super) fn may_use(&self, own: &str) -> bool {
        let data = if self.uses_data { DATA } else { &[] };
        is_within(own, self.name) || self.uses.iter().chain(data).any(|allowed| is_within(own, allowed))
    }
}

/// What the table allows and no file uses.
pub(super) fn check_tree(files: &BTreeMap<String, String>) -> Vec<Finding> {
    let mut used: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files {
        let Some(inner) = path.strip_prefix("src/") else { continue };
        let Some(module) = find_module(inner) else { continue };
        let code: Vec<_> =
            tokens(text).into_iter().filter(|(_, token)| !matches!(token, Token::Comment(_))).collect();
        let own = paths(&code);
        let own = own.iter().filter_map(|(_, path)| own_path(path, module, !inner.contains('/')));
        used.entry(module.name).or_default().extend(own.map(str::to_owned));
    }
    let unused = |module: &Module| {
        let own = used.get(module.name);
        let is_used = |name: &str| own.is_some_and(|own| own.iter().any(|path| is_within(path, name)));
        let unused = module.uses.iter().filter(|name| !is_used(name));
        let rules = unused.map(|name| format!("`{}` does not use `{name}`", module.name));
        rules.map(|rule| Finding { path: TABLE.to_owned(), line: 1, rule }).collect::<Vec<_>>()
    };
    MODULES.iter().flat_map(unused).collect()
}

#[test]
fn unused_permission_in_module_table_is_reported() {
    let one = ("src/lsp.rs".to_owned(), "use crate::{event::Event, problem::Problem};".to_owned());
    let rules: Vec<String> = check_tree(&[one].into()).into_iter().map(|finding| finding.rule).collect();
    assert!(!rules.iter().any(|rule| rule.starts_with("`lsp`")), "{rules:?}");
    let without: Vec<String> = check_tree(&BTreeMap::new()).into_iter().map(|finding| finding.rule).collect();
    assert!(without.contains(&"`lsp` does not use `problem`".to_owned()), "{without:?}");
}
