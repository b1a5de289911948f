//! The shipped problem matchers find in the real output of tools what `reviewdog/errorformat`
//! finds.
//!
//! The files in tests/fixtures/matchers are from that project, with its licence. A row of an `.ok`
//! file is `FILE|LINE col COLUMN TYPE NUMBER| MESSAGE`; absent parts are left out. File, line and
//! column have to be equal. The text of a row has to consist of message, code and level of the
//! problem, in any order, as errorformat leaves code and level in the message.

use std::{collections::BTreeSet, fs, path::Path};

use aside::capability::problem::{Problem, matcher::Matchers, text::Lines};

/// The file and the matcher.
const TOOLS: [(&str, &str); 38] = [
    ("ansible-lint", "ansible-lint"),
    ("bandit", "bandit"),
    ("buf", "buf"),
    ("cargo-check", "cargo"),
    ("clippy", "cargo"),
    ("dotenv-linter", "dotenv-linter"),
    ("eslint", "eslint"),
    ("eslint-compact", "eslint"),
    ("fasterer", "fasterer"),
    ("flake8", "flake8"),
    ("go-consistent", "go"),
    ("golangci-lint", "golangci-lint"),
    ("golint", "go"),
    ("govet", "go"),
    ("haml-lint", "haml-lint"),
    ("hlint", "hlint"),
    ("isort", "isort"),
    ("luacheck", "luacheck"),
    ("misspell", "misspell"),
    ("mypy", "mypy"),
    ("pep8", "flake8"),
    ("phpstan", "phpstan"),
    ("protolint", "protolint"),
    ("psalm", "psalm"),
    ("puppet-lint", "puppet-lint"),
    ("pydocstyle", "pydocstyle"),
    ("reek", "reek"),
    ("remark-lint", "eslint"),
    ("rubocop", "rubocop"),
    ("slim-lint", "haml-lint"),
    ("standardjs", "standard"),
    ("staticcheck", "staticcheck"),
    ("stylelint", "stylelint"),
    ("tsc", "tsc"),
    ("tslint", "tslint"),
    ("typos", "typos"),
    ("standardrb", "standardrb"),
    ("yamllint", "yamllint"),
];
/// Fewest tools of the corpus that the matchers have to read.
const TOOLS_MIN: usize = 30;
/// Tools of the corpus that are not compared, and why.
const OTHERS: [(&str, &str); 11] = [
    ("black", "no matcher: it says which files it would change, without a place in them"),
    ("brakeman", "no matcher: columns of a table, apart by tabs"),
    ("dotnet", "the name of the project is no part of the message here, and is there"),
    ("erb-lint", "no matcher: column 0 is left out of the row there"),
    ("gosec", "severity and confidence are no part of the message here, and are there"),
    ("msbuild", "as dotnet"),
    ("sbt", "as scalac, behind [error] and [warn]"),
    ("sbt-scalastyle", "no matcher"),
    ("scalac", "the column is where the caret is three lines below, which a matcher cannot say"),
    ("scalastyle", "no matcher"),
    ("sorbet", "no matcher: how to repair it is in the same form, and would be a problem of its own"),
];

/// A row of an `.ok` file.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    file: String,
    line: Option<u32>,
    column: Option<u32>,
    /// The words after the position.
    text: String,
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/matchers").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of an `.ok` file; continuation lines of a message are left out, as a matcher takes one
/// line of it.
fn rows(text: &str) -> Vec<Row> {
    let row = |line: &str| {
        let (file, rest) = line.split_once('|')?;
        let (place, message) = rest.split_once('|')?;
        let mut words = place.split_whitespace().peekable();
        let line =
            words.next_if(|word| word.bytes().all(|b| b.is_ascii_digit())).and_then(|word| word.parse().ok());
        let column = words.next_if_eq(&"col").and_then(|_| words.next()).and_then(|word| word.parse().ok());
        let kind = words.collect::<Vec<_>>().join(" ");
        Some(Row { file: file.to_owned(), line, column, text: format!("{kind} {message}") })
    };
    text.lines().filter_map(row).collect()
}

/// The problems that the matcher finds.
fn found(name: &str, output: &str) -> Vec<Problem> {
    let mut matchers = Matchers::shipped().named(name).expect("it ships");
    let (mut lines, mut problems) = (Lines::default(), Vec::new());
    let mut take = |line: &str| problems.extend(matchers.iter_mut().find_map(|matcher| matcher.line(line)));
    lines.push(output.as_bytes(), &mut take);
    lines.finish(&mut take);
    problems
}

/// The letters and digits of a text as words, sorted.
fn words(text: &str) -> Vec<String> {
    let split = text.to_lowercase();
    let mut words: Vec<String> = split
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    words.sort();
    words
}

/// Words that only state the level, and tools' own names for levels.
const LEVELS: [&str; 17] = [
    "error",
    "warning",
    "info",
    "note",
    "w",
    "e",
    "c",
    "f",
    "r",
    "l",
    "m",
    "h",
    "suggestion",
    "ts",
    "confidence",
    "severity",
    "rule",
];

/// Whether a problem equals a row.
fn is_equal(row: &Row, problem: &Problem) -> bool {
    let place = (problem.file.as_deref().unwrap_or_default(), problem.line, problem.column);
    let (code, of_code) = (problem.code.as_deref().unwrap_or_default(), words(&row.text));
    // For `TS2322` and `F401` errorformat separates the number from the letters, or leaves the
    // letters out.
    let digits = code.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let said = |text: &str| {
        words(text).into_iter().filter(|word| !LEVELS.contains(&word.as_str())).collect::<BTreeSet<_>>()
    };
    let full = said(&format!("{} {code} {digits}", problem.message));
    let expected: BTreeSet<String> =
        of_code.into_iter().filter(|word| !LEVELS.contains(&word.as_str())).collect();
    let is_all = said(&problem.message).is_subset(&expected);
    place == (row.file.as_str(), row.line, row.column) && is_all && expected.is_subset(&full)
}

/// The first difference, if there is one.
fn difference(name: &str, matcher: &str) -> Option<String> {
    let (rows, found) =
        (rows(&fixture(&format!("{name}.ok"))), found(matcher, &fixture(&format!("{name}.in"))));
    let unequal = rows.iter().zip(&found).find(|(row, problem)| !is_equal(row, problem));
    let counts = (rows.len() != found.len())
        .then(|| format!("{name}: {} rows, {} found; first {:?}", rows.len(), found.len(), found.first()));
    unequal.map(|(row, problem)| format!("{name}:\n  {row:?}\n  {problem:?}")).or(counts)
}

#[test]
fn thirty_tools_of_the_corpus_give_its_rows() {
    assert!(TOOLS.len() >= TOOLS_MIN);
    let wrong: Vec<String> = TOOLS.iter().filter_map(|(name, matcher)| difference(name, matcher)).collect();
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), TOOLS.len(), wrong.join("\n"));
}

#[test]
fn every_matcher_fixture_belongs_to_exactly_one_tool() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/matchers");
    let files = fs::read_dir(folder).expect("it is there").flatten();
    let names = files.filter_map(|file| file.file_name().to_str()?.strip_suffix(".in").map(str::to_owned));
    let tools: BTreeSet<String> = TOOLS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!((names.collect::<BTreeSet<_>>(), tools.len()), (tools.clone(), TOOLS.len()));
    assert!(OTHERS.iter().all(|(name, why)| !tools.contains(*name) && !why.is_empty()));
}
