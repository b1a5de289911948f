//! Words for which the project has another one, in its pages, settings, scripts and code.

use std::{fs, path::Path};

use super::Finding;

/// A word and the one that is written in its place.
const RETIRED: [(&str, &str); 6] = [
    ("afresh", "again"),
    ("anew", "again"),
    ("heir", "successor"),
    ("owed", "pending"),
    ("told", "delivered"),
    ("whoever", "all who"),
];
/// The folders and pages that people read and write.
const READ: [&str; 13] = [
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "README.md",
    "benches",
    "config",
    "crates",
    "docs",
    "examples",
    "scripts",
    "src",
    "subscribers",
    "tests/it",
    "tests/scenarios",
];
/// This list, which has to name them.
const LIST: &str = "tests/it/tidy/glossary.rs";

/// The retired words of all files. What is no text has none.
pub(super) fn check_tree(root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    READ.iter().for_each(|one| check_path(root, &root.join(one), &mut findings));
    findings.sort();
    findings
}

fn check_path(root: &Path, path: &Path, findings: &mut Vec<Finding>) {
    if path.is_dir() {
        let entries = fs::read_dir(path).expect("a folder lists its entries");
        entries.for_each(|entry| check_path(root, &entry.expect("an entry").path(), findings));
        return;
    }
    let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
    if name == LIST {
        return;
    }
    let Ok(text) = fs::read_to_string(path) else { return };
    findings.extend(text_findings(&name, &name).chain(text_findings(&name, &text)));
}

fn text_findings(path: &str, text: &str) -> impl Iterator<Item = Finding> {
    (1..).zip(text.lines()).flat_map(move |(line, words)| {
        let words = words.split(|c: char| !c.is_ascii_alphabetic()).map(str::to_ascii_lowercase);
        let retired = words.filter_map(|word| RETIRED.into_iter().find(|(retired, _)| *retired == word));
        let rules = retired.map(|(word, other)| format!("`{word}`: write `{other}`, or what happens"));
        rules.map(|rule| Finding { path: path.to_owned(), line, rule }).collect::<Vec<_>>()
    })
}

#[test]
fn retired_words_are_found_in_names_too() {
    let text = "A turn begins Anew.\nThe renewal is retold.\nfn is_told_once() {}\n";
    let found: Vec<String> = text_findings("x.md", text).map(|finding| finding.to_string()).collect();
    assert_eq!(
        found,
        [
            "x.md:1: `anew`: write `again`, or what happens",
            "x.md:3: `told`: write `delivered`, or what happens",
        ]
    );
}
