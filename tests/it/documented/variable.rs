//! What differs between two runs of a command: ids and times. Everything else of an output has to be
//! as printed in the page.

use std::{collections::BTreeMap, sync::LazyLock};

use regex::{Captures, Regex};

/// What differs, and the word that replaces it in a comparison. A part in the group `before` stays.
const VARIABLE: [(&str, &str); 13] = [
    ("EVENT", r"\b[0-9a-f]{32}-[0-9]+\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    // The id of an injection has any letters and digits, so it can look like one of a notification.
    ("ID", r#"(?<before>id="|injection |why )[0-9a-z]{6}\b|\b[nuqw][0-9a-f]{5,16}\b|\bs[0-9a-f]{4}\b"#),
    ("TIME", r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"),
    ("TIME", r"\b[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?\b"),
    ("TIME", r"\b(?:yesterday )?[0-9]{2}:[0-9]{2}\b"),
    ("AGO", r"\b[0-9]+ ?(?:ms|s|m|h|d) ago\b"),
    ("TIME", r"(?<before>in )[0-9]+ ms\b"),
    ("TIME", r"(?<before>open for )[0-9.]+ s(?: more)?\b"),
    // The time that remains until an end.
    ("TIME", r"(?<before>\bin )[0-9]+[smhd](?: ?[0-9]+[smhd])?\b"),
    ("HASH", r"(?<before>hash )[0-9a-f]{12}\b"),
    ("PROCESS", r"(?<before>process )[0-9]+\b"),
    ("POSITION", r"(?<before>published as )[0-9]+\b"),
    ("POSITION", r"(?<before>EVENT )\([0-9]+\)"),
];

/// The words of [`VARIABLE`] whose values a later command may name.
const NAMES: [&str; 2] = ["EVENT", "ID"];

static PATTERNS: LazyLock<Vec<(&str, Regex)>> = LazyLock::new(|| {
    VARIABLE.into_iter().map(|(word, pattern)| (word, Regex::new(pattern).expect("a pattern"))).collect()
});

/// What can be an id.
static WORD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[0-9a-z-]+\b").expect("a pattern"));

/// An output without what differs between runs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plain {
    /// Its lines. The blanks of a line that had a variable part, and of a table's header, are single,
    /// as the widths of columns depend on such parts.
    pub(super) lines: Vec<String>,
    /// The ids in it, in the order of their kinds and places.
    ids: Vec<String>,
}

impl Plain {
    pub(super) fn of(text: &str) -> Self {
        let mut ids = Vec::new();
        let lines = text.trim_end().lines().map(|line| plain_line(line, &mut ids)).collect();
        Self { lines, ids }
    }
}

fn plain_line(line: &str, ids: &mut Vec<String>) -> String {
    let mut has_variable = false;
    let plain = PATTERNS.iter().fold(line.to_owned(), |line, (word, pattern)| {
        let replace = |found: &Captures<'_>| {
            has_variable = true;
            let before = found.name("before").map_or("", |before| before.as_str());
            let whole = found.get(0).map_or("", |whole| whole.as_str());
            if NAMES.contains(word) {
                ids.push(whole.trim_start_matches(before).to_owned());
            }
            format!("{before}{word}")
        };
        pattern.replace_all(&line, replace).into_owned()
    });
    let is_header = plain.contains("  ") && plain.chars().all(|c| c.is_ascii_uppercase() || c == ' ');
    match has_variable || is_header {
        true => plain.split_whitespace().collect::<Vec<_>>().join(" "),
        false => plain,
    }
}

/// The ids of a page, and those of this run in their place.
#[derive(Default)]
pub(super) struct Ids(BTreeMap<String, String>);

impl Ids {
    /// Takes the ids of an output and of its counterpart in the page, which are equal but for these.
    ///
    /// # Errors
    ///
    /// An id of the page that replaces two ids of the run, or two of the page that replace one.
    pub(super) fn pair(&mut self, page: &Plain, run: &Plain) -> Result<(), String> {
        for (written, own) in page.ids.iter().zip(&run.ids) {
            let known = self.0.entry(written.clone()).or_insert_with(|| own.clone());
            if known != own {
                return Err(format!("`{written}` is `{known}` before, and `{own}` here"));
            }
            let other = self.0.iter().find(|(other, run)| *run == own && *other != written);
            if let Some((other, _)) = other {
                return Err(format!("`{own}` is `{other}` before, and `{written}` here"));
            }
        }
        Ok(())
    }

    /// The command with the ids of this run.
    pub(super) fn own(&self, command: &str) -> String {
        replaced(command, self.0.iter().map(|(written, own)| (written.as_str(), own.as_str())))
    }

    /// The output with the ids of the page, where it has them.
    pub(super) fn written(&self, output: &str) -> String {
        replaced(output, self.0.iter().map(|(written, own)| (own.as_str(), written.as_str())))
    }
}

/// A text with other words in the place of whole words; what is put in is not replaced again.
fn replaced<'i>(text: &str, words: impl Iterator<Item = (&'i str, &'i str)>) -> String {
    let words: BTreeMap<&str, &str> = words.collect();
    let word = LazyLock::force(&WORD);
    word.replace_all(text, |found: &Captures<'_>| words.get(&found[0]).unwrap_or(&&found[0]).to_string())
        .into_owned()
}

#[test]
fn only_ids_and_times_differ() {
    let same = |one: &str, other: &str| Plain::of(one).lines == Plain::of(other).lines;
    assert!(same("watching wb25a5b for ~/shop", "watching w0000ff for ~/shop"));
    assert!(same("<notifications id=\"7fq2kd\">", "<notifications id=\"nabcde\">"));
    assert!(same("ID       STATE\nq012345  3m ago", "ID      STATE\nq54321f  12s ago"));
    assert!(!same("watching wb25a5b for ~/shop", "watching wb25a5b for  ~/shop/a"));
    assert!(!same("a  b", "a b"));
    assert!(!same("1 of 2", "1 of 3"));
    assert!(!same("one\ntwo", "two\none"));
    assert!(!same("one", "one\n\ntwo"));
}

#[test]
fn later_command_names_an_id_of_this_run() {
    let mut ids = Ids::default();
    let [page, run, other] = ["asked q5f0c2e", "asked q000001", "asked q000002"].map(Plain::of);
    ids.pair(&page, &run).expect("the first");
    assert_eq!(ids.own("aside answer q5f0c2e yes"), "aside answer q000001 yes");
    assert_eq!(ids.written("q000001 is answered"), "q5f0c2e is answered");
    assert!(ids.pair(&page, &other).is_err());
    let second = Plain::of("asked q5f0c2f");
    assert!(ids.pair(&second, &run).is_err(), "two ids of the page are one of the run");
}

#[test]
fn ids_are_replaced_once_and_whole() {
    let mut ids = Ids::default();
    let [page, run] = ["n00001 n00002 n00001aa", "n00002 n00003 n00004"].map(Plain::of);
    ids.pair(&page, &run).expect("different ones");
    assert_eq!(
        ids.own("aside why n00001, n00002; n00001aa n00001b"),
        "aside why n00002, n00003; n00004 n00001b"
    );
    assert_eq!(ids.written("n00003 n00002"), "n00002 n00001");
}
