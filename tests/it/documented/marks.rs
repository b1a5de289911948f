//! Why a block is not run, and what a block without a command shows.

use crate::docs::Block;

/// Words of `not-run=WORD`.
const NOT_RUN: [(&str, &str); 4] = [
    ("manager", "needs a service manager of the user"),
    ("program", "needs a program of others, or a machine with it"),
    ("client", "needs an agent's client"),
    ("days", "shows what came of days"),
];

/// The mark of an answer that is compared.
pub(super) const ANSWERS: &str = "answers";
/// The page whose blocks of JSON are compared, or say what they show.
const API: &str = "docs/api.md";

/// Words of `shows=WORD`.
const SHOWS: [(&str, &str); 7] = [
    ("agent", "what an agent reads"),
    ("log", "lines of a log"),
    ("answer", "an answer of the API"),
    ("days", "what came of days"),
    ("file", "a file that only a command reads"),
    ("request", "a body that a client sends"),
    ("part", "the form of an answer, with a part of its values"),
];

/// Beginnings of commands in `sh` blocks that are not run, with the reason.
pub(super) const LEFT_OUT: [(&str, &str); 3] = [
    ("cargo ", "builds the program"),
    ("scripts/test", "runs this test"),
    ("aside demo", "`demo` runs it, and it takes seconds"),
];

/// Parts of what the commands of `sh` blocks print.
pub(super) const PRINTED: [(&str, &str); 4] = [
    ("aside exchange demo after_tool", "</notifications>"),
    ("aside check && aside reload", "in force: "),
    ("aside run -- cargo test", "ran cargo test"),
    ("aside run --report junit=out.xml -- pytest --junitxml=out.xml", "ran pytest"),
];

/// What is wrong with the marks of a block.
pub(super) fn unknown_mark(block: &Block) -> Option<String> {
    let value = |name: &str| block.marks.split(' ').find_map(|mark| mark.strip_prefix(name));
    let is_one_of = |words: &[(&str, &str)], word: &str| words.iter().any(|(known, _)| *known == word);
    match &*block.language {
        "" => Some("has no language".to_owned()),
        "json" if block.marks == ANSWERS => None,
        "json" if !block.place.starts_with(API) => None,
        "text" | "json" => match value("shows=") {
            Some(word) if is_one_of(&SHOWS, word) => None,
            Some(word) => Some(format!("shows={word} is not known")),
            None => Some("is not run: it is a `console` block, or has shows=WORD".to_owned()),
        },
        "sh" | "console" => match value("not-run=") {
            Some(word) if !is_one_of(&NOT_RUN, word) => Some(format!("not-run={word} is not known")),
            Some(_) => None,
            None if block.marks.is_empty() || block.marks == "fails" => None,
            None => Some(format!("the mark `{}` is not known", block.marks)),
        },
        _ => None,
    }
}
