//! The names of tests and scenarios: a sentence of at most eight words, subject first.

use std::{collections::BTreeMap, fs, path::Path};

use super::Finding;

/// Most words of a name.
const WORDS_MAX: usize = 8;
/// Words that begin a clause and no subject.
const BEGINNINGS: [&str; 4] = ["what", "who", "one", "of"];

/// The names that break a rule, in Rust files by their text and in `scenarios` by their paths.
pub(super) fn check_tree(files: &BTreeMap<String, String>, root: &Path) -> Vec<Finding> {
    let of_tests = files.iter().flat_map(|(path, text)| {
        test_names(text).filter_map(|(line, name)| finding(path, line, name)).collect::<Vec<_>>()
    });
    let folder = fs::read_dir(root.join("tests/scenarios")).expect("the scenarios");
    let scenarios = folder.map(|entry| entry.expect("an entry").file_name().into_string().expect("ASCII"));
    let of_scenarios = scenarios.filter_map(|file| {
        let name = file.strip_suffix(".txt").unwrap_or(&file);
        finding(&format!("tests/scenarios/{file}"), 1, name)
    });
    of_tests.chain(of_scenarios).collect()
}

/// The functions that follow an attribute of a test, with their lines.
fn test_names(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_test = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim_start();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let name = line.trim_start_matches("async ").strip_prefix("fn ")?.split(['(', '<']).next()?;
        std::mem::take(&mut is_test).then_some((index + 1, name))
    })
}

fn finding(path: &str, line: usize, name: &str) -> Option<Finding> {
    let words: Vec<&str> = name.split('_').collect();
    let rule = match words.first() {
        Some(first) if BEGINNINGS.contains(first) => {
            format!("`{name}` begins with `{first}`, not with a subject")
        }
        _ if words.len() > WORDS_MAX => format!("`{name}` has {} words, at most {WORDS_MAX}", words.len()),
        _ => return None,
    };
    Some(Finding { path: path.to_owned(), line, rule })
}

#[test]
fn long_names_and_clauses_are_found() {
    let text = "#[test]\nfn what_is_off_says_why() {}\nfn one_helper() {}\n    #[tokio::test(start_paused = true)]\n    async fn \
        a_b_c_d_e_f_g_h_i() {}\n#[test]\n#[ignore = \"slow\"]\nfn an_answered_rekey_resets_the_distress_count() {}\n";
    let names: Vec<(usize, &str)> = test_names(text).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let found: Vec<String> =
        names.iter().filter_map(|(line, name)| finding("x.rs", *line, name)).map(|f| f.to_string()).collect();
    assert_eq!(
        found,
        [
            "x.rs:2: `what_is_off_says_why` begins with `what`, not with a subject",
            "x.rs:5: `a_b_c_d_e_f_g_h_i` has 9 words, at most 8",
        ]
    );
}
