//! The same event types are published by the code, described in the catalogue, admitted by the
//! subscribers' files, and listed in docs/sources.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use aside::{
    capability::outside,
    config::{
        compile::compile,
        layers::Sources,
        producers::{self, PRODUCERS, Producer},
        webhooks::Webhooks,
    },
    harness::table::KINDS,
};
use engine::{detector, event::catalogue, notification::SubscriberId, probe};

use crate::tidy::read_tree;

/// Types that the code of a producer reads and does not publish.
const READS: [(&str, &[&str]); 6] = [
    ("ci", &["tool.call.success"]),
    ("background", &["agent.turn.end"]),
    ("ports", &["agent.turn.end"]),
    ("watch", &["agent.turn.end", "ci.follow.ended"]),
    ("budget", &["agent.turn.end", "agent.turn.failed", "agent.turn.interrupted", "agent.turn.start"]),
    ("loop", &["agent.turn.start", "tool.call.failure", "tool.call.success", "tool.call.timeout"]),
];
/// Code that writes the events of several producers.
const SHARED: [(&str, &[&str]); 1] = [("src/capability/problem.rs", &["lsp", "run"])];
/// Code that reads events and publishes none.
const READS_ONLY: [&str; 4] =
    ["src/engine/echoes.rs", "src/probe/memory.rs", "src/probe/world.rs", "src/region/editor.rs"];
/// The headers of the tables in docs/sources.md; the rows follow.
const TABLES: [&str; 2] = [
    "| source | kind | about | needs | publishes |\n|---|---|---|---|---|\n",
    "| subscriber | events |\n|---|---|\n",
];
/// The marker in the file of a subscriber to events of other programs.
const MARK: &str = "[events]\n# Nothing that ships with aside publishes these: others have to.\n";

/// The catalogue's types in the code of each file, without its tests and comments.
fn literals() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    for root in [root, &root.join("crates/engine")] {
        read_tree(root, &root.join("src"), &mut files);
    }
    files.retain(|path, _| !path.contains("tests"));
    let of = |text: &str| {
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let strings = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
        strings.filter(|text| catalogue::find(text).is_some()).map(str::to_owned).collect()
    };
    files.iter().map(|(path, text)| (path.clone(), of(text))).collect()
}

/// The row of a source with an external cause, by the name of its module.
fn outside_row(module: &str) -> Option<&'static str> {
    outside::Settings::ROWS.iter().find(|row| row.module == module).map(|row| row.name)
}

/// The row of a file with code: a probe, a detector, a source and a harness have a file of their
/// name, and a folder if they need one.
///
/// Panics: for another file in their folders.
fn row_of(path: &str) -> Option<&'static str> {
    let (folder, rest) = path.strip_prefix("src/")?.split_once('/').unwrap_or((path, ""));
    let name = rest.split('/').next().unwrap_or_default().trim_end_matches(".rs");
    let own = match folder {
        "probe" => probe::Settings::ROWS.iter().find(|row| row.module == name).map(|row| row.name),
        "detector" => detector::Settings::ROWS.iter().find(|row| row.module == name).map(|row| row.name),
        "harness" => KINDS.iter().find(|kind| kind.word == name).map(|kind| kind.caps.name),
        "cli" => return (name == "run").then_some("run"),
        "capability" => {
            return match name {
                "watch" => Some("watch"),
                "notices" => Some("notify"),
                "webhook" => Some("webhooks"),
                "source" => Some("aside"),
                name => outside_row(name),
            };
        }
        "sink" | "src/sink.rs" => Some("notify"),
        "conversation" | "daemon" | "engine" | "src/probe.rs" | "src/throttle.rs" => Some("aside"),
        other => return outside_row(other.trim_start_matches("src/").trim_end_matches(".rs")),
    };
    Some(own.unwrap_or_else(|| panic!("{path} publishes and is the code of no row")))
}

#[test]
fn catalogue_producers_match_the_published_event_types() {
    let mut published: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let literals =
        literals().into_iter().filter(|(path, found)| !found.is_empty() && !READS_ONLY.contains(&&**path));
    for (row, found) in literals.filter_map(|(path, found)| Some((row_of(&path)?, found))) {
        let read = READS.iter().find(|(name, _)| *name == row).map_or(&[][..], |(_, read)| read);
        published.entry(row).or_default().extend(found.into_iter().filter(|found| !read.contains(&&**found)));
    }
    let all = self::literals();
    for (path, rows) in SHARED {
        rows.iter().for_each(|row| published.entry(row).or_default().extend(all[path].iter().cloned()));
    }
    // Requests of other programs become events of the types in the shipped rows.
    let known = Webhooks::default();
    // A row may give a body the type that it has without a row; such a type is not in the catalogue.
    let types = known.rows().map(|row| row.event_type.as_str().to_owned());
    let of_rows = types.filter(|event_type| !event_type.starts_with("webhook."));
    published.entry("webhooks").or_default().extend(of_rows);
    let named =
        PRODUCERS.iter().map(|row| (row.name, types_of(row).into_iter().map(str::to_owned).collect()));
    assert_eq!(published, named.collect(), "left what the code has, right what config/events.toml says");
}

fn types_of(row: &Producer) -> BTreeSet<&'static str> {
    row.types().map(|entry| entry.event_type.as_str()).collect()
}

/// The shipped subscribers to events of other programs, with their event types.
fn unserved() -> Vec<(SubscriberId, Vec<String>)> {
    let compiled = compile(&Sources::shipped(), &[]);
    let types =
        |rule: &engine::pipeline::rule::Subscriber| rule.types.iter().map(ToString::to_string).collect();
    producers::unserved(&compiled.rules).map(|rule| (rule.id.clone(), types(rule))).collect()
}

#[test]
fn only_subscribers_without_producer_carry_the_file_note() {
    let unserved: Vec<String> = unserved().iter().map(|(id, _)| format!("subscribers/{id}.toml")).collect();
    let sources = Sources::shipped();
    let marked = sources.files().iter().filter(|file| file.text.contains(MARK));
    assert_eq!(marked.map(|file| &*file.name).collect::<Vec<_>>(), unserved);
}

/// `ASIDE_BLESS=1` rewrites the tables.
#[test]
fn docs_list_producers_and_subscribers_without_a_producer() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/sources.md");
    let document = fs::read_to_string(&path).expect("it is there");
    let list = |types: Vec<&str>| types.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let rows = PRODUCERS.iter().map(|row| {
        let types = list(types_of(row).into_iter().collect());
        format!("| `{}` | {} | {} | {} | {types} |\n", row.name, row.kind.as_str(), row.about, row.needs)
    });
    let waiting = unserved();
    let waiting = waiting
        .iter()
        .map(|(id, types)| format!("| `{id}` | {} |\n", list(types.iter().map(String::as_str).collect())));
    let mut expected = document.clone();
    for (head, rows) in TABLES.into_iter().zip([rows.collect::<String>(), waiting.collect()]) {
        let (before, after) = expected.split_once(head).expect("docs/sources.md has the table");
        let (_, rest) = after.split_once("\n\n").expect("it ends");
        expected = format!("{before}{head}{rows}\n{rest}");
    }
    if env::var_os("ASIDE_BLESS").is_some() {
        fs::write(&path, &expected).expect("written");
    } else {
        assert_eq!(document, expected, "ASIDE_BLESS=1 rewrites the tables of docs/sources.md");
    }
}
