//! What the code publishes, the catalogue says, the files of subscribers admit and docs/sources.md lists is the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use aside::{
    config::{
        compile::compile,
        layers::Sources,
        producers::{self, PRODUCERS, Producer},
    },
    event::catalogue,
    notification::SubscriberId,
};

use crate::tidy::read_tree;

/// What the paths of a producer's code begin with, and the types that it reads and does not publish.
const CODE: [(&str, &[&str], &[&str]); 12] = [
    ("files", &["src/probe/files"], &[]),
    ("git", &["src/probe/git"], &[]),
    ("sessions", &["src/probe/others.rs"], &[]),
    ("time", &["src/probe/pause.rs"], &[]),
    ("disk", &["src/probe/disk.rs"], &[]),
    ("context", &["src/probe/context.rs"], &[]),
    ("background", &["src/probe/background.rs"], &["agent.turn.end"]),
    (
        "loop",
        &["src/detector"],
        &["agent.turn.start", "tool.call.failure", "tool.call.success", "tool.call.timeout"],
    ),
    ("claude-code", &["src/harness/claude"], &[]),
    ("watch", &["src/watch.rs", "src/source/watching"], &["agent.turn.end"]),
    ("run", &["src/cli/run"], &[]),
    ("aside", &["src/daemon/", "src/engine/", "src/probe.rs", "src/source.rs"], &[]),
];
/// Code that reads events and publishes none.
const READS_ONLY: [&str; 2] = ["src/probe/memory.rs", "src/probe/world.rs"];
/// Where everything that publishes has its row in [`CODE`].
const COVERED: [&str; 4] = ["src/probe", "src/detector", "src/harness", "src/source"];
/// What stands in the file of a subscriber that waits for others.
const MARK: &str = "[events]\n# Nothing that ships with aside publishes these: others have to.\n";

/// The types of the catalogue that stand in the code of each file, without its tests and comments.
fn literals() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = BTreeMap::new();
    read_tree(root, &root.join("src"), &mut files);
    files.retain(|path, _| !path.contains("tests"));
    let of = |text: &str| {
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        let strings = lines.flat_map(|line| line.split('"').skip(1).step_by(2));
        strings.filter(|text| catalogue::find(text).is_some()).map(str::to_owned).collect()
    };
    files.iter().map(|(path, text)| (path.clone(), of(text))).collect()
}

#[test]
fn the_catalogue_names_as_producers_what_publishes_in_the_code() {
    let literals = literals();
    let rows: BTreeSet<&str> = PRODUCERS.iter().map(|row| row.name).collect();
    assert_eq!(rows, CODE.iter().map(|(name, ..)| *name).collect());
    for (name, places, read) in CODE {
        let own = literals.iter().filter(|(path, _)| places.iter().any(|place| path.starts_with(place)));
        let published: BTreeSet<&str> = own
            .flat_map(|(_, found)| found)
            .map(String::as_str)
            .filter(|found| !read.contains(found))
            .collect();
        assert_eq!(
            types_of(row(name)),
            published,
            "{name}: config/events.toml beside the code of {places:?}"
        );
    }
    let is_covered = |path: &str| {
        READS_ONLY.contains(&path)
            || CODE.iter().any(|(_, places, _)| places.iter().any(|place| path.starts_with(place)))
    };
    for (path, found) in &literals {
        let is_of_a_producer = COVERED.iter().any(|folder| path.starts_with(folder)) && !found.is_empty();
        assert!(!is_of_a_producer || is_covered(path), "{path} has {found:?} and no row in `CODE`");
    }
}

fn row(name: &str) -> &'static Producer {
    PRODUCERS.iter().find(|row| row.name == name).unwrap_or_else(|| panic!("`{name}` is no row"))
}

fn types_of(row: &Producer) -> BTreeSet<&'static str> {
    row.types().map(|entry| entry.event_type.as_str()).collect()
}

/// The shipped subscribers that wait for others, with the types that they ask for.
fn unserved() -> Vec<(SubscriberId, Vec<String>)> {
    let compiled = compile(&Sources::shipped(), &[]);
    let types =
        |rule: &aside::pipeline::rule::Subscriber| rule.types.iter().map(ToString::to_string).collect();
    producers::unserved(&compiled.rules).map(|rule| (rule.id.clone(), types(rule))).collect()
}

#[test]
fn the_file_of_a_subscriber_that_waits_for_others_says_so_and_no_other_file() {
    let unserved: Vec<String> = unserved().iter().map(|(id, _)| format!("subscribers/{id}.toml")).collect();
    let sources = Sources::shipped();
    let marked = sources.files().iter().filter(|file| file.text.contains(MARK));
    assert_eq!(marked.map(|file| &*file.name).collect::<Vec<_>>(), unserved);
}

#[test]
fn the_documentation_lists_every_producer_and_every_subscriber_that_waits_for_others() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/sources.md")).expect("it is there");
    let list = |types: Vec<&str>| types.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let rows = PRODUCERS.iter().map(|row| {
        let types = list(types_of(row).into_iter().collect());
        format!("| `{}` | {} | {} | {} | {types} |\n", row.name, row.kind.as_str(), row.about, row.needs)
    });
    let waiting = unserved();
    let waiting = waiting
        .iter()
        .map(|(id, types)| format!("| `{id}` | {} |\n", list(types.iter().map(String::as_str).collect())));
    for table in [rows.collect::<String>(), waiting.collect::<String>()] {
        assert!(document.contains(&format!("|---|\n{table}\n")), "docs/sources.md has no table\n{table}");
    }
}
