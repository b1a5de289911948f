//! Checks the rules of house style that the compiler cannot check.
//!
//! The tables at the top define the allowed imports. The checks are functions of paths and texts,
//! so they are tested with samples that break them.

mod circles;
mod client_words;
mod glossary;
mod modules;
mod names;
mod rooms;
mod routes;
mod rows;
mod rust_text;
mod tree;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
};

use modules::{DECIDING, MODULES, Module, find_module};
use rooms::is_within;
use rust_text::{Placed, Token, paths, tokens};
use tree::dependencies;
pub(crate) use tree::read_tree;
use tree::{CRATES, DECIDING_CRATE, read_crates};

/// Longest file, tests included.
const LINES_MAX: usize = 600;

/// Names that do not describe their content.
const EMPTY_NAMES: [&str; 7] = ["core", "utils", "util", "common", "helpers", "types", "manager"];

/// Tests that need a program which is not on every machine, so that a script of their own runs
/// them: `scripts/real-client`.
const RUN_BY_A_SCRIPT: &str = "tests/it/real_client";

/// Where an external item may be used.
enum Where {
    /// In these files of `src/`, or in these folders, which end with `/`. `*` is any one folder.
    Only(&'static [&'static str]),
    /// From this layer on, and in these files.
    FromLayer(u8, &'static [&'static str]),
}

const ASYNC: Where = Where::Only(&[
    "journal.rs",
    "journal/",
    "history.rs",
    "history/",
    "capability/ci.rs",
    "capability/ci/",
    "capability/notices.rs",
    "capability/notices/",
    "capability/source.rs",
    "capability/source/",
    "capability/watch.rs",
    "capability/watch/",
    "capability/*/source.rs",
    "capability/*/source/",
    "api.rs",
    "api/",
    "daemon.rs",
    "daemon/",
    "cli/serve.rs",
]);
const MOVING: Where = Where::FromLayer(4, &["config/load.rs"]);
const HASH_TABLES: Where = Where::Only(&[
    "journal/time/",
    "conversation/",
    "matcher.rs",
    "pipeline/",
    "snapshot/",
    "throttle.rs",
    "journal/log/idempotency.rs",
]);
const CLOCK: Where =
    Where::Only(&["daemon/clock.rs", "cli/run.rs", "cli/doctor/hooks.rs", "hook/client.rs", "hook/client/"]);

/// The files that may run programs. Of those of the daemon, only `daemon/program.rs` decides which.
const PROGRAMS: Where = Where::Only(&[
    "daemon/program.rs",
    "daemon/program/",
    "capability/ci.rs",
    "capability/lsp/source/process.rs",
    "capability/notices/apprise.rs",
    "capability/notices/process.rs",
    "api/facts/git_diff.rs",
    "cli/",
    "hook/client.rs",
    // Tests.
    "api/processes.rs",
    "capability/watch/tests.rs",
    "api/probing/tests.rs",
]);

const OUTSIDE: &[(&str, Where)] = &[
    ("tokio", ASYNC),
    ("tokio_stream", ASYNC),
    ("axum", Where::Only(&["api.rs", "api/", "daemon.rs", "daemon/"])),
    ("utoipa_axum", Where::Only(&["api.rs", "api/"])),
    ("prometheus_client", Where::Only(&["api/metrics.rs"])),
    ("dashmap", Where::Only(&["api.rs", "api/"])),
    ("rmcp", Where::Only(&["api/mcp.rs", "api/mcp/"])),
    ("rusqlite", Where::Only(&["history.rs", "history/"])),
    (
        "minijinja",
        Where::Only(&[
            "pipeline/render/table/",
            "pipeline/render/template.rs",
            "pipeline/render/template/",
            "pipeline/sandbox.rs",
            "pipeline/sandbox/",
            "pipeline/condition.rs",
            "pipeline/condition/",
            "format.rs",
            "format/",
        ]),
    ),
    ("toon_format", Where::Only(&["toon.rs", "toon/"])),
    ("base64", Where::Only(&["draft/", "capability/webhook/"])),
    ("hmac", Where::Only(&["capability/webhook/"])),
    ("toml", Where::Only(&["config.rs", "config/", "event/catalogue.rs"])),
    ("annotate_snippets", Where::Only(&["config.rs", "config/"])),
    ("anstyle", Where::Only(&["cli/terminal.rs"])),
    ("unicode_width", Where::Only(&["cli/terminal.rs"])),
    ("clap", Where::Only(&["cli.rs", "cli/"])),
    ("clap_complete", Where::Only(&["cli/generated.rs"])),
    ("clap_mangen", Where::Only(&["cli/generated.rs"])),
    ("jsonc_parser", Where::Only(&["cli/install/"])),
    ("shlex", Where::Only(&["api/wire/trust.rs", "cli/help.rs", "cli/install/", "sink/"])),
    ("similar", Where::Only(&["cli/edit.rs", "cli/install/plan.rs", "cli/saves.rs", "probe/files/known.rs"])),
    ("listenfd", Where::Only(&["daemon/listen.rs"])),
    ("sd_notify", Where::Only(&["cli/serve.rs"])),
    ("globset", Where::Only(&["capability/paths.rs"])),
    ("croner", Where::Only(&["capability/schedule.rs"])),
    ("aho_corasick", Where::Only(&["event/secrets.rs"])),
    (
        "regex",
        Where::Only(&[
            "event/secrets/",
            "capability/log.rs",
            "cli/test.rs",
            "probe/ports.rs",
            "probe/waiting.rs",
            "pipeline/sandbox/patterns.rs",
            "capability/problem/",
            "watch/",
            "capability/watch/",
        ]),
    ),
    ("roxmltree", Where::Only(&["capability/problem/format/junit.rs"])),
    ("serde", Where::FromLayer(1, &["name.rs", "toon/", "snapshot.rs", "snapshot/", "sorted.rs"])),
    ("minicbor", Where::Only(&["snapshot/"])),
    ("minicbor_serde", Where::Only(&["snapshot.rs", "snapshot/"])),
    ("serde_json", Where::FromLayer(1, &["toon/"])),
    ("tracing", Where::FromLayer(4, &["engine.rs", "engine/"])),
    ("tracing_subscriber", Where::Only(&["cli.rs", "cli/"])),
    ("mimalloc", Where::Only(&["main.rs"])),
    ("hashbrown", HASH_TABLES),
    ("zstd", Where::Only(&["journal/log/sealed.rs"])),
    ("tar", Where::Only(&["daemon/backup.rs"])),
    ("rustix", Where::FromLayer(4, &[])),
    ("signal_hook", Where::FromLayer(4, &[])),
    ("uuid", Where::FromLayer(4, &[])),
    ("rand", Where::FromLayer(4, &[])),
    ("std::fs", MOVING),
    ("std::env", MOVING),
    ("std::net::TcpListener", MOVING),
    ("std::net::TcpStream", MOVING),
    ("std::net::UdpSocket", MOVING),
    ("std::os", MOVING),
    ("std::process", MOVING),
    ("std::process::Command", PROGRAMS),
    ("tokio::process", PROGRAMS),
    ("std::thread", MOVING),
    ("std::sync::Mutex", MOVING),
    ("std::sync::RwLock", MOVING),
    ("std::sync::mpsc", MOVING),
    ("std::sync::mpsc::channel", Where::Only(&[])),
];

/// The only crate that the hook path may use.
const SYSTEM_CALLS: &str = "rustix";

/// Names that read a clock when a function of theirs is called.
const CLOCK_NAMES: [&str; 3] = ["Instant", "SystemTime", "UNIX_EPOCH"];
const CLOCK_CALLS: [&str; 2] = ["Timestamp::now", "Zoned::now"];

/// A broken rule and its place.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    path: String,
    line: usize,
    rule: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.rule)
    }
}

#[test]
fn the_tree_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    for folder in ["src", "tests", "benches"] {
        read_tree(root, &root.join(folder), &mut files);
    }
    read_crates(root, &mut files);
    assert!(files.contains_key("src/lib.rs") && files.contains_key("tests/it/tidy.rs"), "nothing was read");
    let cargo = fs::read_to_string(root.join("Cargo.toml")).expect("Cargo.toml is next to src");
    let mut findings = check(&files, &dependencies(&cargo));
    findings.extend(client_words::check_tree(&files));
    findings.extend(circles::check_tree(&files));
    findings.extend(glossary::check_tree(root));
    findings.extend(modules::check_tree(&files));
    findings.extend(names::check_tree(&files, root));
    findings.extend(routes::check_tree(&files, root));
    findings.extend(rows::check_tree(&files));
    let list: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(list.is_empty(), "{} broken rules:\n{}", list.len(), list.join("\n"));
}

/// Every broken rule of every file, sorted.
fn check(files: &BTreeMap<String, String>, dependencies: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = check_orphans(files);
    for (path, text) in files {
        findings.extend(check_file(path, text, dependencies));
    }
    findings.sort();
    findings
}

/// The broken rules within one file.
fn check_file(path: &str, text: &str, dependencies: &BTreeSet<String>) -> Vec<Finding> {
    let (comments, code): (Vec<Placed>, Vec<Placed>) =
        tokens(text).into_iter().partition(|(_, token)| matches!(token, Token::Comment(_)));
    let mut broken = check_shape(path, text);
    broken.extend(comments.iter().filter_map(|(line, token)| check_comment(*line, token)));
    broken.extend(check_words(path, &code));
    if let Some(inner) = path.strip_prefix("src/") {
        broken.extend(check_imports(inner, &code, dependencies));
    }
    broken.into_iter().map(|(line, rule)| Finding { path: path.to_owned(), line, rule }).collect()
}

type Broken = Vec<(usize, String)>;

fn check_shape(path: &str, text: &str) -> Broken {
    let mut broken = Broken::new();
    let lines = text.lines().count();
    if lines > LINES_MAX {
        broken.push((
            lines,
            format!("{lines} lines, at most {LINES_MAX}: the file holds two ideas, name the second"),
        ));
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    if name == "mod.rs" {
        broken.push((1, "a parent file is next to its folder: `x.rs`, not `x/mod.rs`".to_owned()));
    }
    if name.strip_suffix(".rs").is_some_and(|name| EMPTY_NAMES.contains(&name)) {
        broken.push((1, format!("`{name}` does not say what is inside")));
    }
    if path.starts_with("src/") {
        let foreign = text.lines().enumerate().filter(|(_, line)| !line.is_ascii());
        broken.extend(foreign.map(|(index, _)| (index + 1, "not ASCII: write \\u{..}".to_owned())));
    }
    broken
}

fn check_comment(line: usize, token: &Token) -> Option<(usize, String)> {
    let Token::Comment(text) = token else { return None };
    let is_open = ["TODO", "FIXME", "XXX"].into_iter().any(|mark| text.contains(mark));
    let has_issue = text.split('#').skip(1).any(|after| after.starts_with(|c: char| c.is_ascii_digit()));
    (is_open && !has_issue).then(|| (line, "unfinished work without the number of its issue".to_owned()))
}

fn check_words(path: &str, code: &[Placed]) -> Broken {
    let mut broken = Broken::new();
    for window in code.windows(2) {
        let [(_, before), (line, token)] = window else { continue };
        let rule = match token.word() {
            Some("allow") if *before == Token::Mark('[') => {
                "`#[expect(lint, reason = ..)]` instead of `allow`: it says why, and when it is needless"
            }
            Some("ignore") if *before == Token::Mark('[') && !path.starts_with(RUN_BY_A_SCRIPT) => {
                "a test that is ignored tests nothing"
            }
            Some("unbounded_channel") => "every channel has a bound and says what happens when it is full",
            Some("async" | "await") if is_deciding(path) => "what decides is synchronous",
            Some(_) | None => continue,
        };
        broken.push((*line, rule.to_owned()));
    }
    broken
}

fn is_deciding(path: &str) -> bool {
    path.strip_prefix("src/").and_then(find_module).is_some_and(|module| module.layer <= DECIDING)
}

fn check_imports(inner: &str, code: &[Placed], dependencies: &BTreeSet<String>) -> Broken {
    if inner == "lib.rs" {
        return Broken::new();
    }
    let Some(module) = find_module(inner) else {
        return vec![(1, "the module has no layer: give it one in tests/it/tidy.rs".to_owned())];
    };
    let is_top = !inner.contains('/');
    let mut broken = Broken::new();
    for (line, path) in paths(code) {
        let own = own_path(&path, module, is_top);
        let verdict = match own {
            Some(own) => check_own(module, own).or_else(|| rooms::check(inner, own)),
            None => check_outside(inner, module, &path, dependencies),
        };
        broken.extend(verdict.map(|rule| (line, rule)));
    }
    broken
}

/// `path` relative to the crate's root, if it leads there.
fn own_path<'p>(path: &'p str, module: &Module, is_top: bool) -> Option<&'p str> {
    if let Some(rest) = path.strip_prefix("crate::") {
        return Some(rest);
    }
    if module.name == "main" {
        return path.strip_prefix("aside::");
    }
    let first = path.split("::").next()?;
    if first == DECIDING_CRATE {
        let rest = path.strip_prefix(first)?.trim_start_matches("::");
        return Some(if is_in_module(rest) { rest } else { path });
    }
    if CRATES.contains(&first) {
        return Some(path);
    }
    // Two steps lead to the root from a file below the top, one step from a file at the top. An
    // inline module adds a step, so a path that does not begin with a module's name counts as the
    // file's own.
    let steps = if is_top { "super::" } else { "super::super::" };
    path.strip_prefix(steps).filter(|rest| is_in_module(rest))
}

fn is_in_module(path: &str) -> bool {
    MODULES.iter().any(|module| is_within(path, module.name))
}

fn check_own(module: &Module, own: &str) -> Option<String> {
    let message = || format!("`{}` (layer {}) may not use `{own}`", module.name, module.layer);
    (!module.may_use(own)).then(message)
}

fn check_outside(
    inner: &str,
    module: &Module,
    path: &str,
    dependencies: &BTreeSet<String>,
) -> Option<String> {
    let mut segments = path.split("::");
    let root = segments.next().unwrap_or(path);
    if module.name == "hook" && root != SYSTEM_CALLS && dependencies.contains(root) {
        return Some(format!("`hook` uses std and system calls only, not `{root}`"));
    }
    let reads_clock = path.split("::").any(|segment| CLOCK_NAMES.contains(&segment))
        || CLOCK_CALLS.into_iter().any(|call| path.ends_with(call));
    if reads_clock && !is_allowed(&CLOCK, inner, module) {
        return Some(format!("`{path}`: time is data, `daemon/clock.rs` reads the clock"));
    }
    OUTSIDE
        .iter()
        .find(|(outside, allowed)| is_within(path, outside) && !is_allowed(allowed, inner, module))
        .map(|(outside, _)| format!("`{outside}` may not be used here"))
}

fn is_allowed(allowed: &Where, inner: &str, module: &Module) -> bool {
    let is_listed = |places: &[&str]| places.iter().any(|place| is_at(place, inner));
    match allowed {
        Where::Only(places) => is_listed(places),
        Where::FromLayer(layer, places) => module.layer >= *layer || is_listed(places),
    }
}

fn is_at(place: &str, inner: &str) -> bool {
    match place.split_once("*/") {
        Some((before, after)) => {
            let below = inner.strip_prefix(before).and_then(|rest| rest.split_once('/'));
            below.is_some_and(|(_, rest)| is_at(after, rest))
        }
        None => inner == place || place.ends_with('/') && inner.starts_with(place),
    }
}

/// Files that no parent declares, so that they are never compiled or run.
fn check_orphans(files: &BTreeMap<String, String>) -> Vec<Finding> {
    let is_root = |path: &str| {
        path == "src/lib.rs"
            || path == "src/main.rs"
            || path == "src/hook/main.rs"
            || path == "tests/it/main.rs"
            || path.starts_with("benches/")
            || CRATES.iter().any(|name| path == format!("src/{name}.rs"))
    };
    let mut findings = Vec::new();
    for path in files.keys().filter(|path| !is_root(path)) {
        let stem = path.strip_suffix(".rs").unwrap_or(path);
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let parents: &[String] = match folder {
            "src" => &["src/lib.rs".to_owned(), "src/main.rs".to_owned()],
            "tests/it" => &["tests/it/main.rs".to_owned()],
            other => &[format!("{other}.rs")],
        };
        if !parents.iter().any(|parent| files.get(parent).is_some_and(|text| declares(text, name))) {
            let rule =
                format!("nobody reads this file: `mod {name};` is missing in {}", parents.join(" or "));
            findings.push(Finding { path: path.clone(), line: 1, rule });
        }
    }
    findings
}

fn declares(text: &str, name: &str) -> bool {
    let code = tokens(text);
    code.windows(3).any(|window| {
        let [(_, first), (_, second), (_, third)] = window else { return false };
        first.is_word("mod") && second.is_word(name) && matches!(third, Token::Mark(';'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules_broken(path: &str, text: &str) -> Vec<String> {
        let dependencies =
            dependencies("[dependencies]\nserde_json.workspace = true\ntokio-stream = \"1\"\n[lints]\nx = 1");
        check_file(path, text, &dependencies).iter().map(Finding::to_string).collect()
    }

    #[test]
    fn disallowed_import_between_layers_is_reported() {
        let cases = [
            ("src/hash.rs", "use crate::event::Seq;", "`hash` (layer 0) may not use `event::Seq`"),
            (
                "src/event/codec.rs",
                "use crate::{words, engine::io}; use toon::x;",
                "may not use `engine::io`",
            ),
            ("src/pipeline/batch.rs", "fn f(x: crate::matcher::M) {}", "may not use `matcher::M`"),
            ("src/pipeline/batch.rs", "use super::super::format;", "may not use `format`"),
            ("src/matcher.rs", "use super::pipeline::rule;", "may not use `pipeline::rule`"),
            ("src/config/compile.rs", "use crate::engine::Engine;", "may not use `engine::Engine`"),
            ("src/config/compile.rs", "use crate::engine;", "may not use `engine`"),
            ("src/api/wire.rs", "use crate::harness::x;", "may not use `harness::x`"),
            (
                "src/journal/commit/writer.rs",
                "use crate::daemon::publisher;",
                "may not use `daemon::publisher`",
            ),
            ("src/daemon/publisher.rs", "use crate::rules;", "may not use `rules`"),
            ("src/api/router.rs", "use crate::daemon::x;", "may not use `daemon::x`"),
            ("src/daemon.rs", "use crate::cli::x;", "may not use `cli::x`"),
            ("src/hook/client.rs", "use crate::time;", "may not use `time`"),
            ("src/config/compile.rs", "use engine::Engine;", "may not use `engine::Engine`"),
            ("src/config/compile.rs", "use engine::matcher::x;", "may not use `matcher::x`"),
            ("src/main.rs", "use aside::daemon;", "may not use `daemon`"),
            ("src/surprise.rs", "", "has no layer"),
        ];
        for (path, text, part) in cases {
            let broken = rules_broken(path, text);
            assert!(broken.len() == 1 && broken[0].contains(part), "{path} {text}: {broken:?}");
        }
    }

    #[test]
    fn crates_from_outside_stay_in_their_places() {
        let cases = [
            ("src/engine.rs", "use tokio::sync::watch;", "`tokio` may not"),
            ("src/cli/status.rs", "fn f() { tokio::main() }", "`tokio` may not"),
            ("src/journal.rs", "use axum::Router;", "`axum` may not"),
            ("src/hash.rs", "use serde::Serialize;", "`serde` may not"),
            ("src/pipeline/batch.rs", "use minijinja::Value;", "`minijinja` may not"),
            ("src/config/layers.rs", "use std::{fmt, fs};", "`std::fs` may not"),
            ("src/conversation/injector.rs", "use std::sync::{Arc, Mutex};", "`std::sync::Mutex` may not"),
            (
                "src/daemon/publisher.rs",
                "use std::sync::mpsc::channel;",
                "`std::sync::mpsc::channel` may not",
            ),
            ("src/daemon.rs", "use dashmap::DashMap;", "`dashmap` may not"),
            ("src/hook/client.rs", "use serde_json::Value;", "uses std and"),
            ("src/hook/client.rs", "use tokio_stream::Stream;", "uses std and"),
            ("src/daemon/publisher.rs", "use std::time::{Duration, Instant};", "time is data"),
            ("src/cli/tail.rs", "let t = jiff::Timestamp::now();", "time is data"),
            ("src/engine.rs", "fn f() { async {} }", "synchronous"),
        ];
        for (path, text, part) in cases {
            let broken = rules_broken(path, text);
            assert!(broken.len() == 1 && broken[0].contains(part), "{path} {text}: {broken:?}");
        }
    }

    #[test]
    fn allowed_imports_break_no_rule() {
        for (path, text) in [
            ("src/event/catalogue.rs", "use crate::event::Pattern;\n/// `tokio::x`\nuse serde::Deserialize;"),
            ("src/pipeline/render/template.rs", "use minijinja::Value; use crate::words; use toon::tokens;"),
            ("src/config/load.rs", "use std::{env, fs};"),
            ("src/config.rs", "use engine::{pipeline::rule, rules::CompiledRules};"),
            ("src/harness/claude.rs", "use crate::{engine::io::Input, records};"),
            ("src/hook/client.rs", "use std::time::Instant;"),
            ("src/daemon/clock.rs", "use std::time::{Instant, SystemTime};"),
            ("src/cli/serve.rs", "use tokio::runtime; use crate::daemon;"),
            ("src/pipeline.rs", "mod filter; use self::filter::x; mod tests { use super::filter::y; }"),
            ("src/main.rs", "use aside::cli;"),
            ("tests/it/any.rs", "use tokio::net; async fn f() {}"),
        ] {
            assert_eq!(rules_broken(path, text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn style_violations_are_reported_with_their_line() {
        let long = "\n".repeat(LINES_MAX + 1);
        let cases = [
            ("src/engine.rs", long.as_str(), "src/engine.rs:601: 601 lines"),
            ("src/engine/mod.rs", "", "src/engine/mod.rs:1: a parent file"),
            ("tests/it/utils.rs", "", "does not say"),
            ("src/engine.rs", "\nlet x = \"\u{2026}\";", "src/engine.rs:2: not ASCII"),
            ("src/engine.rs", "\n\n#[allow(dead_code)]", "src/engine.rs:3: `#[expect"),
            ("src/engine.rs", "#![allow(dead_code)]", "instead of `allow`"),
            ("tests/it/any.rs", "#[test]\n#[ignore = \"slow\"]", "tests/it/any.rs:2: a test"),
            ("src/engine.rs", "fn f() {\n/* x\n// TODO later */ }", "src/engine.rs:3: unfinished"),
            ("src/engine.rs", "/// FIXME see #", "unfinished"),
            ("src/daemon.rs", "let c = mpsc::unbounded_channel();", "has a bound"),
        ];
        for (path, text, part) in cases {
            let broken = rules_broken(path, text);
            assert!(broken.len() == 1 && broken[0].contains(part), "{path}: {broken:?}");
        }
        assert_eq!(
            rules_broken("src/engine.rs", "// TODO(#12): later\nlet s = \"TODO\";"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn undeclared_source_file_is_reported_as_orphan() {
        let files: BTreeMap<String, String> = [
            ("src/lib.rs", "pub mod event; // mod time;"),
            ("src/event.rs", "mod codec;"),
            ("src/event/codec.rs", ""),
            ("src/event/lost.rs", ""),
            ("src/hash.rs", ""),
            ("tests/it/main.rs", "mod tidy;"),
            ("tests/it/tidy.rs", ""),
            ("tests/it/forgotten.rs", ""),
        ]
        .map(|(path, text)| (path.to_owned(), text.to_owned()))
        .into();
        let orphans: Vec<String> = check_orphans(&files).into_iter().map(|finding| finding.path).collect();
        assert_eq!(orphans, ["src/event/lost.rs", "src/hash.rs", "tests/it/forgotten.rs"]);
    }
}
