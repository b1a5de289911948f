//! Mistakes of authors, as they are found by `aside check`: each at its place, with the right word,
//! once, and none is accepted.
//!
//! `tests/fixtures/mistakes.txt` has them. A block begins with `== NAME`, and each of its files with
//! `-- FILE`; without that it is a subscriber's file, of which `+` is the usual head. A line with a
//! caret is a finding: it points at the column of the line above, and says a part of the message,
//! and after ` -> ` the word that was meant. A byte that is not UTF-8 is written `¤`.

use std::fs;

use aside::config::{
    compile::compile,
    layers::LayerKind,
    lints::report::{Denied, report},
    load::read_layers,
};
use engine::event::catalogue;

const MISTAKES: &str = include_str!("../fixtures/mistakes.txt");
/// The least number of mistakes.
const MISTAKES_MIN: usize = 150;
/// The threads that check them.
const THREADS: usize = 4;
/// The file that a block has if it names none.
const SUBSCRIBER: &str = "subscribers/x.toml";
const TEMPLATE: &str = "templates/x.toon.j2";
const HEAD: &str = "[subscriber]\nid = \"x\"\n\n[events]\ntypes = [\"tool.call.failure\"]\n";

/// A finding: file, line, column, a part of its message, and the word that was meant.
type Finding = (String, usize, usize, String, Option<String>);

/// The files of a block with their texts, and what is found in them.
fn read(block: &str) -> (Vec<(String, String)>, Vec<Finding>) {
    let (mut files, mut expected): (Vec<(String, String)>, Vec<Finding>) = (Vec::new(), Vec::new());
    for line in block.lines().skip(1) {
        if let Some(name) = line.strip_prefix("-- ") {
            files.push((name.to_owned(), String::new()));
            continue;
        }
        if files.is_empty() {
            files.push((SUBSCRIBER.to_owned(), String::new()));
        }
        let (name, text) = files.last_mut().expect("a file");
        match line.trim_start().strip_prefix("^ ") {
            Some(finding) => {
                let (message, meant) = finding.split_once(" -> ").unzip();
                let column = line.chars().take_while(|c| *c != '^').count() + 1;
                let message = message.unwrap_or(finding).to_owned();
                let line = text.lines().count();
                expected.push((name.clone(), line, column, message, meant.map(str::to_owned)));
            }
            None if line == "+" => text.push_str(HEAD),
            None => {
                text.push_str(&line.replace("{1001 letters}", &"a".repeat(1001)));
                text.push('\n');
            }
        }
    }
    let has_subscriber = files.iter().any(|(name, _)| name.starts_with("subscribers/"));
    if files.iter().any(|(name, _)| name == TEMPLATE) && !has_subscriber {
        files.push((SUBSCRIBER.to_owned(), HEAD.to_owned()));
    }
    (files, expected)
}

/// What `aside check` finds in these files.
fn found(files: &[(String, String)]) -> Vec<Finding> {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().expect("has one")).expect("made");
        let bytes: Vec<u8> = text
            .chars()
            .flat_map(|c| if c == '¤' { vec![0xe9] } else { c.to_string().into_bytes() })
            .collect();
        fs::write(path, bytes).expect("written");
    }
    let sources = read_layers(&[(LayerKind::User, folder.path().to_owned())]);
    let types: Vec<_> = catalogue::types().map(|entry| entry.event_type.as_str()).collect();
    let report = report(&sources, &compile(&sources, &types), &Denied::default());
    let finding = |one: &aside::config::report::Diagnostic| {
        let file = one.place.file.strip_prefix(&format!("{}/", folder.path().display()));
        let file = file.unwrap_or(&one.place.file).to_owned();
        (file, one.place.line(), one.place.column(), one.message.clone(), one.nearest.clone())
    };
    report.diagnostics().iter().map(finding).collect()
}

#[test]
fn each_mistake_is_found_once_in_place() {
    let blocks: Vec<&str> = MISTAKES.split("\n== ").skip(1).collect();
    let names: std::collections::BTreeSet<_> = blocks.iter().map(|block| block.lines().next()).collect();
    assert_eq!(names.len(), blocks.len(), "two mistakes have one name");
    assert!(blocks.len() >= MISTAKES_MIN, "{} mistakes", blocks.len());
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let parts = blocks.chunks(blocks.len().div_ceil(THREADS));
        let check = |part| move || faults(part);
        let runs: Vec<_> = parts.map(|part| scope.spawn(check(part))).collect();
        runs.into_iter().flat_map(|run| run.join().expect("it ran")).collect()
    });
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n\n"));
}

fn faults(blocks: &[&str]) -> Vec<String> {
    blocks.iter().filter_map(|block| fault(block)).collect()
}

/// What is wrong with the findings of a block.
fn fault(block: &str) -> Option<String> {
    let (files, mut expected) = read(block);
    let mut found = found(&files);
    expected.sort();
    found.sort();
    let is_met = |(found, expected): (&Finding, &Finding)| {
        let (file, line, column, message, meant) = expected;
        (&found.0, found.1, found.2) == (file, *line, *column)
            && found.3.contains(message)
            // The word is in the message, or beside it.
            && meant.as_ref().is_none_or(|meant| {
                found.4.as_ref() == Some(meant) || found.3.contains(&format!("`{meant}`"))
            })
    };
    let is_same = found.len() == expected.len() && found.iter().zip(&expected).all(is_met);
    (!is_same || expected.is_empty())
        .then(|| format!("{block}\n  expected {expected:#?}\n  found {found:#?}"))
}
