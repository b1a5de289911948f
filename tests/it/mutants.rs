//! The tests of each shipped subscriber notice its changes.

use std::thread;

use aside::config::{
    compile::compile,
    layers::Sources,
    trial::mutants::{Mutated, Unnoticed, mutate},
};

/// At most one of so many changes of a file is unnoticed.
const UNNOTICED: usize = 10;

/// What the tests of a shipped subscriber do not notice, if it is too much.
fn excess(id: &str, mutated: &Mutated) -> Option<String> {
    let (unnoticed, all) = (mutated.unnoticed.len(), mutated.tried());
    assert!(all > 10 && mutated.untried == 0, "{id}: {all} changes");
    let line = |change: &Unnoticed| format!("  {}: {}", change.place, change.what);
    let lines: Vec<String> = mutated.unnoticed.iter().map(line).collect();
    (unnoticed * UNNOTICED > all)
        .then(|| format!("{id}: {unnoticed} of {all} changes are unnoticed\n{}", lines.join("\n")))
}

/// What is unnoticed in every `step`-th subscriber from the `first` on.
fn found(first: usize, step: usize) -> Vec<String> {
    let sources = Sources::shipped_with_tests();
    let compiled = compile(&sources, &[]);
    let rules = compiled.rules.subscribers.iter().skip(first).step_by(step);
    let mutated = |id: &str| mutate(&sources, &compiled, id, &|| false).expect("a subscriber");
    rules.filter_map(|rule| excess(rule.id.as_str(), &mutated(rule.id.as_str()))).collect()
}

#[test]
fn shipped_tests_notice_nine_of_ten_changes() {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let found: Vec<String> = thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|first| scope.spawn(move || found(first, threads))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("it ends")).collect()
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
