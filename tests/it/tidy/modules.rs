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
    "daemon::causes",
    "hash",
    "hex",
    "name",
    "nearest",
    "raw_json",
    "words",
    "settings",
    "sorted",
    "snapshot",
    "daemon::version",
    "call",
    "event",
    "notification",
    "budget",
    "hold",
    "rate",
    "exchange",
    "json",
    "request",
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
    alone("daemon::causes", 0, &[]),
    alone("daemon::version", 0, &[]),
    alone("hash", 0, &[]),
    alone("hex", 0, &[]),
    alone("name", 0, &[]),
    alone("nearest", 0, &[]),
    alone("words", 0, &[]),
    alone("settings", 0, &["journal::time", "sorted", "words"]),
    alone("sorted", 0, &[]),
    alone("snapshot", 0, &["sorted"]),
    module("call", 1, &[]),
    module("event", 1, &[]),
    module("notification", 1, &[]),
    module("budget", 1, &[]),
    module("hold", 1, &[]),
    module("rate", 1, &[]),
    module("exchange", 1, &[]),
    module("json", 1, &[]),
    module("request", 1, &[]),
    alone("raw_json", 1, &[]),
    module("fold", 1, &[]),
    module("ledger", 1, &[]),
    module("session", 1, &[]),
    alone("toon", 0, &[]),
    module("transcript", 1, &[]),
    alone("capability", 0, &[]),
    module("capability::paths", 2, &[]),
    module("pipeline", 2, &[]),
    module("matcher", 2, &[]),
    module("conversation", 2, &[]),
    module("capability::log", 2, &[]),
    module("region", 2, &[]),
    module("format", 2, &["region"]),
    module("detector", 2, &[]),
    module("probe", 2, &[]),
    module("capability::schedule", 2, &[]),
    module("sink", 2, &["watch"]),
    module("throttle", 2, &[]),
    module("watch", 2, &[]),
    module("capability::webhook", 2, &[]),
    module("ci", 2, &[]),
    module("capability::shell", 2, &[]),
    module("capability::problem", 2, &[]),
    module("capability::lsp", 2, &["capability::problem"]),
    module("rules", DECIDING, &[
        "ci", "conversation", "detector", "matcher", "pipeline", "probe", "sink", "throttle",
    ]),
    module("capability::outside", DECIDING, &[
        "capability::log", "capability::lsp", "capability::paths", "capability::schedule",
        "capability::shell", "ci", "rules", "watch",
    ]),
    module("user", DECIDING, &["pipeline"]),
    module("engine", DECIDING, &[
        "ci", "conversation", "detector", "format", "matcher", "pipeline", "probe", "region", "rules",
        "sink", "throttle", "user", "watch",
    ]),
    module("records", DECIDING, &["engine::io", "journal", "pipeline", "user"]),
    module("notes", DECIDING, &["engine::io", "journal", "records"]),
    module("draft", DECIDING, &["journal", "pipeline", "records"]),
    module("comparison", DECIDING, &["engine::io"]),
    module("config", DECIDING, &[
        "capability::outside", "capability::webhook", "conversation", "detector", "draft", "format",
        "harness::kind", "harness::table", "pipeline", "probe", "rules", "sink", "throttle", "user", "watch",
    ]),
    module("api::wire", DECIDING, &["draft", "engine::io", "pipeline", "sink", "user", "watch"]),
    module("harness", DECIDING, &["engine::io", "hook::harness", "records"]),
    module("config::trial", 4, &["config", "draft", "engine", "format", "pipeline", "rules", "sink"]),
    module("config::lints", 4, &["config", "config::trial", "pipeline"]),
    module("config::reference", 4, &["config", "config::lints", "pipeline"]),
    module("config::scaffold", 4, &["config", "config::trial", "pipeline"]),
    alone("journal", 4, &[]),
    alone("daemon::tasks", 4, &[]),
    module("daemon::publisher", 4, &["engine::io", "journal", "records"]),
    alone("daemon::program", 4, &["daemon::regular_file", "sorted"]),
    alone("daemon::regular_file", 4, &[]),
    module("history", 4, &[
        "api::wire", "daemon::tasks", "engine", "format", "journal", "notes", "records",
    ]),
    module("capability::source", 4, &[
        "capability::lsp::source", "capability::outside", "ci", "daemon::causes",
        "daemon::program", "daemon::publisher", "daemon::tasks", "harness", "journal", "records", "sink",
        "watch",
    ]),
    module("capability::ci", 4, &[
        "capability::source", "ci", "daemon::program", "daemon::publisher", "daemon::tasks", "journal",
        "records",
    ]),
    module("capability::notices", 4, &[
        "capability::source", "capability::webhook", "daemon::program", "daemon::regular_file", "daemon::tasks",
        "sink",
    ]),
    module("capability::watch", 4, &["capability::source", "harness", "watch"]),
    module("capability::log::source", 4, &["capability::log", "capability::outside", "capability::source"]),
    module("capability::lsp::source", 4, &[
        "capability::lsp", "capability::outside", "capability::source", "daemon::program", "daemon::tasks",
    ]),
    module("capability::paths::source", 4, &[
        "capability::outside", "capability::paths", "capability::source",
    ]),
    module("capability::schedule::source", 4, &[
        "capability::outside", "capability::schedule", "capability::source",
    ]),
    module("api", 5, &[
        "api::wire", "capability::ci", "capability::lsp", "capability::lsp::source", "capability::notices",
        "capability::outside", "capability::shell", "capability::source", "capability::watch",
        "capability::webhook", "config", "conversation", "daemon::program",
        "daemon::publisher", "daemon::regular_file", "daemon::tasks", "draft", "engine", "format",
        "harness", "history", "hook::harness", "journal", "notes", "pipeline", "probe", "records", "region", "rules",
        "sink", "user", "watch",
    ]),
    module("daemon", 5, &[
        "api", "api::wire", "capability", "capability::outside", "capability::source", "comparison", "config",
        "config::lints", "config::trial", "daemon::program", "daemon::publisher", "daemon::tasks", "engine", "harness",
        "history", "journal", "notes", "pipeline", "records", "rules",
    ]),
    module("cli", 6, &[
        "api", "api::wire", "capability::ci", "capability::problem", "capability::source", "comparison", "config",
        "config::lints", "config::reference", "config::scaffold", "config::trial", "daemon", "daemon::regular_file", "harness", "hook", "journal", "sink",
        "watch",
    ]),
    alone("hook", 4, &[]),
    alone("main", 6, &["cli", "daemon::causes"]),
];

/// The module that a file of `src/` belongs to; `None` for `lib.rs` and for modules that are not in
/// the table.
pub(super) fn find_module(inner: &str) -> Option<&'static Module> {
    module_of(&inner.strip_suffix(".rs").unwrap_or(inner).replace('/', "::"))
}

/// The innermost module of the table that has `path`, a path from the crate's root.
fn module_of(path: &str) -> Option<&'static Module> {
    let outer = MODULES.iter().filter(|module| is_within(path, module.name));
    outer.max_by_key(|module| module.name.len())
}

impl Module {
    /// Whether files of this module may use `own`, a path from the crate's root. A module inside of
    /// another one is in the table by itself, and so a permission of its own.
    pub(super) fn may_use(&self, own: &str) -> bool {
        let data = if self.uses_data { DATA } else { &[] };
        let innermost = module_of(own).map_or("", |module| module.name);
        let covers = |allowed: &&&str| is_within(own, allowed) && allowed.len() >= innermost.len();
        [self.name].iter().chain(self.uses).chain(data).any(|allowed| covers(&allowed))
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
    let one = (
        "src/capability/lsp.rs".to_owned(),
        "use crate::{capability::problem::Problem, event::Event};".to_owned(),
    );
    let rules: Vec<String> = check_tree(&[one].into()).into_iter().map(|finding| finding.rule).collect();
    assert!(!rules.iter().any(|rule| rule.starts_with("`capability::lsp`")), "{rules:?}");
    let without: Vec<String> = check_tree(&BTreeMap::new()).into_iter().map(|finding| finding.rule).collect();
    assert!(
        without.contains(&"`capability::lsp` does not use `capability::problem`".to_owned()),
        "{without:?}"
    );
}
