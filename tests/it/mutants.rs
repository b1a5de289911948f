//! The tests of each shipped subscriber, and of the examples, notice its changes.

use std::{path::Path, thread};

use aside::config::{
    compile::compile,
    layers::{LayerKind, Sources},
    load::read_layers,
    trial::mutants::{Mutated, Unnoticed, mutate},
};
use engine::pipeline::rule::Subscriber;

/// At most one of so many changes of a file is unnoticed.
const UNNOTICED: usize = 10;

/// What the tests of a subscriber do not notice, if it is too much.
fn excess(id: &str, mutated: &Mutated) -> Option<String> {
    let (unnoticed, all) = (mutated.unnoticed.len(), mutated.tried());
    assert!(all > 10 && mutated.untried == 0, "{id}: {all} changes");
    let line = |change: &Unnoticed| format!("  {}: {}", change.place, change.what);
    let lines: Vec<String> = mutated.unnoticed.iter().map(line).collect();
    (unnoticed * UNNOTICED > all)
        .then(|| format!("{id}: {unnoticed} of {all} changes are unnoticed\n{}", lines.join("\n")))
}

/// What is unnoticed in every `step`-th of the wanted subscribers from the `first` on.
fn found(sources: &Sources, is_wanted: fn(&Subscriber) -> bool, first: usize, step: usize) -> Vec<String> {
    let compiled = compile(sources, &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    let rules = compiled.rules.subscribers.iter().filter(|rule| is_wanted(rule)).skip(first).step_by(step);
    let mutated = |id: &str| mutate(sources, &compiled, id, &|| false).expect("a subscriber");
    rules.filter_map(|rule| excess(rule.id.as_str(), &mutated(rule.id.as_str()))).collect()
}

fn assert_noticed(sources: &Sources, is_wanted: fn(&Subscriber) -> bool) {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<String> = thread::scope(|scope| {
        let part = |first| scope.spawn(move || found(sources, is_wanted, first, threads));
        let parts: Vec<_> = (0..threads).map(part).collect();
        parts.into_iter().flat_map(|part| part.join().expect("it ends")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn shipped_tests_notice_nine_of_ten_changes() {
    assert_noticed(&Sources::shipped_with_tests(), |_| true);
}

/// Eight subscribers that people asked for, as files to copy.
#[test]
fn tests_of_examples_notice_nine_of_ten_changes() {
    const EXAMPLES: [&str; 8] = [
        "chat_digest",
        "deploy_state",
        "flaky_tests",
        "graph_nodes",
        "hourly_cost",
        "lint_table",
        "open_question",
        "pager",
    ];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/config");
    let sources = read_layers(&[(LayerKind::User, folder)]);
    assert_noticed(&sources, |rule| EXAMPLES.contains(&rule.id.as_str()));
    let compiled = compile(&sources, &[]);
    let there = |id: &&&str| compiled.rules.subscribers.iter().any(|rule| rule.id.as_str() == **id);
    assert_eq!(EXAMPLES.iter().filter(there).count(), EXAMPLES.len());
}
