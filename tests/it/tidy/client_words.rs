//! A client's words are only in its harness's folder, so that the code for a change of the client
//! is in one place.
//!
//! The words come from the harness table: the name of a harness in commands, and the prefixes of
//! its variables. [`TERMS`] are names that one client has for what every client may have. Tests may
//! use both, as they need a client.

use std::collections::BTreeMap;

use aside::harness::{kind::Kind, table::KINDS};

use super::Finding;

/// Where they are allowed, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("src/harness.rs", "the parent of the harnesses"),
    ("src/harness/", "their folder"),
    ("src/hook/harness.rs", "the variables that hooks forward"),
];

/// Names of one client for an extension, its distribution and a follower; see `docs/glossary.md`.
const TERMS: &[&str] = &["marketplace", "monitor", "plugin"];

/// Where [`TERMS`] are allowed, and why.
const TERM_EXCEPTIONS: &[(&str, &str)] = &[
    ("src/capability/lsp.rs", "plugins of a project's build"),
    ("src/capability/problem/trace.rs", "a package of Go"),
    ("src/daemon/program.rs", "a variable of a sink's program"),
    ("src/harness/claude", "the client that has these names"),
];

/// A client's word that is the name of a provider's API too, for which formats write.
const API: &str = "anthropic";

/// Where [`API`] is allowed.
const API_EXCEPTIONS: &[(&str, &str)] = &[
    ("src/exchange.rs", "the formats and APIs"),
    ("src/format", "the formats"),
    ("src/api/wire/exchange.rs", "the fields that choose them"),
];

/// The line before a module that only tests use.
const FOR_TESTS: &str = "#[cfg(test)]\n";

/// The words of all clients, in lower case.
fn words() -> Vec<String> {
    let prefixes = |kind: &&Kind| kind.client().map_or(&[][..], |client| client.variables.prefixes);
    let words =
        KINDS.iter().flat_map(|kind| std::iter::once(kind.word).chain(prefixes(kind).iter().copied()));
    words.map(str::to_lowercase).collect()
}

fn terms() -> Vec<String> {
    TERMS.iter().map(|&term| term.to_owned()).collect()
}

/// Every line with a word of a client at a place where it is not allowed.
pub(super) fn check_tree(files: &BTreeMap<String, String>) -> Vec<Finding> {
    let (api, words): (Vec<_>, Vec<_>) = words().into_iter().partition(|word| word.starts_with(API));
    let mut findings = check(files, &words, EXCEPTIONS);
    findings.extend(check(files, &api, &[EXCEPTIONS, API_EXCEPTIONS].concat()));
    findings.extend(check(files, &terms(), TERM_EXCEPTIONS));
    findings
}

/// Every line of `src/` outside of `exceptions` with a word that begins with one of `words`.
fn check(files: &BTreeMap<String, String>, words: &[String], exceptions: &[(&str, &str)]) -> Vec<Finding> {
    let is_excepted = |path: &str| exceptions.iter().any(|(place, _)| path.starts_with(place));
    let sources = files.iter().filter(|(path, _)| path.starts_with("src/"));
    let mut findings = Vec::new();
    for (path, text) in sources.filter(|(path, _)| !is_excepted(path) && !is_for_tests(files, path)) {
        let used = text.split(&format!("{FOR_TESTS}mod tests {{")).next().unwrap_or_default();
        let found =
            used.lines().enumerate().filter_map(|(index, line)| Some((index + 1, word_in(line, words)?)));
        findings.extend(found.map(|(line, word)| Finding {
            path: path.clone(),
            line,
            rule: format!("`{word}` is a client's word: it belongs to the harness's row"),
        }));
    }
    findings
}

fn word_in<'w>(line: &str, words: &'w [String]) -> Option<&'w str> {
    let line = line.to_lowercase();
    let mut parts = line.split(|c: char| !c.is_alphanumeric());
    parts.find_map(|part| words.iter().find(|word| part.starts_with(word.as_str())).map(String::as_str))
}

/// Whether the file, or a folder around it, is a module that only tests use.
pub(super) fn is_for_tests(files: &BTreeMap<String, String>, path: &str) -> bool {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let Some((folder, name)) = stem.rsplit_once('/') else { return false };
    let parent = format!("{folder}.rs");
    let parents = [&parent, "src/lib.rs"];
    let declares = |text: &String| {
        ["mod", "pub(crate) mod"].iter().any(|word| text.contains(&format!("{FOR_TESTS}{word} {name};")))
    };
    let is_declared = parents.into_iter().filter_map(|parent| files.get(parent)).any(declares);
    is_declared || files.contains_key(&parent) && is_for_tests(files, &parent)
}

#[cfg(test)]
mod tests {
    use super::{
        super::tree::{read_crates, read_tree},
        *,
    };

    #[test]
    fn client_word_outside_its_folder_is_reported() {
        let files: BTreeMap<String, String> = [
            ("src/cli.rs", "a\nlet x = \"~/.vim/rc\";\n#[cfg(test)]\nmod tests {\nlet y = \"vim\";"),
            ("src/cli/up.rs", "fn is_neovim() {}\n/// As VimLeave does.\nconst A: &str = \"VIM_PID\";"),
            ("src/harness/vim.rs", "vim"),
            ("src/client.rs", "#[cfg(test)]\npub(crate) mod fake;\nmod real;"),
            ("src/client/fake.rs", "mod deeper;"),
            ("src/client/fake/deeper.rs", "vim"),
            ("src/client/real.rs", "vim"),
            ("tests/it/any.rs", "vim"),
        ]
        .map(|(path, text)| (path.to_owned(), text.to_owned()))
        .into();
        let found: Vec<String> =
            check(&files, &["vim".to_owned()], EXCEPTIONS).iter().map(Finding::to_string).collect();
        let rule = "`vim` is a client's word: it belongs to the harness's row";
        let places = ["src/cli.rs:2", "src/cli/up.rs:2", "src/cli/up.rs:3", "src/client/real.rs:1"];
        assert_eq!(found, places.map(|place| format!("{place}: {rule}")));
    }

    #[test]
    fn every_exception_is_needed() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = BTreeMap::new();
        read_crates(root, &mut files);
        read_tree(root, &root.join("src"), &mut files);
        for (exceptions, words) in [(EXCEPTIONS, words()), (TERM_EXCEPTIONS, terms())] {
            for (place, why) in exceptions.iter().filter(|(place, _)| !place.starts_with("src/harness")) {
                let text = files.get(*place).expect("it is there");
                assert!(
                    text.lines().any(|line| word_in(line, &words).is_some()),
                    "{place} needs none: {why}"
                );
            }
        }
    }
}
