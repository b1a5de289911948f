//! Another row of a table is written in its own file and in the table.
//!
//! Each row that exists stands for the next one: a file of production code that names it would have
//! to name the next one too.

use std::collections::{BTreeMap, BTreeSet};

use aside::capability::{problem::format::Format as ProblemFormat, webhook};
use engine::{exchange::Format, notification::Sink, probe, words::Words};

use super::{
    Finding, Token, client_words,
    rust_text::{paths, tokens},
};

/// A table of rows.
struct Table {
    /// What the rows are, in the singular.
    what: &'static str,
    /// The end of the paths in code that name a row, before its name.
    path: &'static str,
    /// The names in code of all rows.
    names: fn() -> Vec<String>,
    /// The folder of the rows' own files.
    folder: &'static str,
    /// The files that have a line of each row.
    lines: &'static [&'static str],
    /// Rows that another file names, because they differ from all others: the row, the file.
    special: &'static [(&'static str, &'static str)],
}

const TABLES: &[Table] = &[
    Table {
        what: "sink",
        path: "Sink::",
        names: variants::<Sink>,
        folder: "src/capability/notices/",
        lines: &["src/notification.rs"],
        // A hook shows what is for the harness, as part of its exchange; and the default list.
        special: &[
            ("Harness", "src/engine/dispatch.rs"),
            ("Harness", "src/sink/fold.rs"),
            ("Harness", "src/sink/settings.rs"),
            ("Desktop", "src/sink/settings.rs"),
            ("Log", "src/sink/settings.rs"),
        ],
    },
    Table {
        what: "sender of webhooks",
        path: "Kind::",
        names: variants::<webhook::Kind>,
        folder: "src/capability/webhook/",
        lines: &["src/capability/webhook.rs"],
        // Prometheus sends alerts to a path of its own.
        special: &[("Alertmanager", "src/api/webhooks.rs")],
    },
    Table {
        what: "format of injections",
        path: "Format::",
        names: variants::<Format>,
        folder: "src/format/",
        lines: &["src/exchange.rs", "src/format.rs"],
        // The default, and the choice of a harness.
        special: &[("Xml", "src/conversation/session.rs"), ("Xml", "src/harness/claude/native.rs")],
    },
    Table {
        what: "format of problems",
        path: "Format::",
        names: variants::<ProblemFormat>,
        folder: "src/capability/problem/format/",
        lines: &["src/capability/problem/format.rs", "src/capability/problem/collector.rs"],
        special: &[],
    },
    Table {
        what: "probe",
        path: "probe::",
        names: || probe::Settings::ROWS.iter().map(|row| row.module.to_owned()).collect(),
        folder: "src/probe/",
        lines: &["src/probe.rs"],
        // The end of a pause is found by the event of a prompt; only git needs a repository.
        special: &[("pause", "src/engine/dispatch.rs"), ("git", "src/config/producers.rs")],
    },
];

fn variants<T: Words + std::fmt::Debug>() -> Vec<String> {
    T::VARIANTS.iter().map(|one| format!("{one:?}")).collect()
}

/// The files that name a row and are not its own, and special rows that no file names any more.
pub(super) fn check_tree(files: &BTreeMap<String, String>) -> Vec<Finding> {
    let named = named_in(files);
    TABLES.iter().flat_map(|table| check(table, &named)).collect()
}

/// The paths in the production code of each file, with their lines.
type Named<'f> = Vec<(&'f String, Vec<(usize, String)>)>;

fn named_in(files: &BTreeMap<String, String>) -> Named<'_> {
    let is_code = |path: &&String| {
        path.starts_with("src/") && !path.contains("/tests") && !client_words::is_for_tests(files, path)
    };
    let sources = files.iter().filter(|(path, _)| is_code(path));
    let read = |text: &String| {
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: Vec<_> =
            tokens(code).into_iter().filter(|(_, token)| !matches!(token, Token::Comment(_))).collect();
        paths(&code)
    };
    sources.map(|(path, text)| (path, read(text))).collect()
}

fn check(table: &Table, named: &Named<'_>) -> Vec<Finding> {
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    let names = (table.names)();
    for (path, line, name) in rows_named(table, &names, named) {
        let special = table.special.iter().find(|(row, file)| *row == name && *file == path);
        let is_own = path.starts_with(table.folder) || table.lines.contains(&path);
        if let Some(special) = special {
            seen.insert(special);
        } else if !is_own {
            let rule =
                format!("names the {} `{name}`, so another one has to be written here too", table.what);
            findings.push(Finding { path: path.to_owned(), line, rule });
        }
    }
    let gone = table.special.iter().filter(|special| !seen.contains(special));
    findings.extend(gone.map(|(name, file)| Finding {
        path: (*file).to_owned(),
        line: 1,
        rule: format!("does not name the {} `{name}` any more", table.what),
    }));
    findings
}

/// The rows in each path of code: file, line, name.
fn rows_named<'n>(
    table: &'n Table,
    names: &'n [String],
    named: &'n Named<'_>,
) -> impl Iterator<Item = (&'n str, usize, &'n str)> {
    named.iter().flat_map(move |(file, paths)| {
        paths.iter().filter_map(move |(line, path)| {
            let is_row = |name: &&String| {
                let wanted = format!("{}{name}", table.path);
                let within = |(at, _): (usize, &str)| {
                    let before = path[..at].chars().next_back();
                    let after = path[at + wanted.len()..].chars().next();
                    before.is_none_or(|c| c == ':') && after.is_none_or(|c| c == ':')
                };
                path.match_indices(&wanted).any(within)
            };
            names.iter().find(is_row).map(|name| (file.as_str(), *line, name.as_str()))
        })
    })
}

#[test]
fn row_named_outside_its_table_is_reported() {
    let files = [
        ("src/notification.rs", "fn a() { Sink::Ntfy; }"),
        ("src/capability/notices/ntfy.rs", "fn a() { Sink::Ntfy; }"),
        ("src/engine/dispatch.rs", "fn a() { Sink::Harness; OtherSink::Log; }"),
        (
            "src/sink/fold.rs",
            "\nfn a() { super::Sink::Log; }\n#[cfg(test)]\nmod tests {\nfn b() { Sink::Log; }\n}",
        ),
    ];
    let files: BTreeMap<String, String> = files.map(|(path, text)| (path.to_owned(), text.to_owned())).into();
    let found = check(TABLES.first().expect("the sinks"), &named_in(&files));
    let shown: Vec<String> = found.iter().map(Finding::to_string).collect();
    let expected = [
        "src/sink/fold.rs:2: names the sink `Log`, so another one has to be written here too",
        "src/sink/fold.rs:1: does not name the sink `Harness` any more",
        "src/sink/settings.rs:1: does not name the sink `Harness` any more",
        "src/sink/settings.rs:1: does not name the sink `Desktop` any more",
        "src/sink/settings.rs:1: does not name the sink `Log` any more",
    ];
    assert_eq!(shown, expected);
}
