//! Timelines of `tests/scenarios/`: inputs with their times, and the engine's outputs.
//!
//! A file is a comment, files of a user's layer if it needs any, the timeline, `---`, and the
//! outputs, in this form:
//!
//! ```text
//! # Three equal failures are one row with a count of 3.
//! @0        open         s1
//! @100      emit         tool.call.failure --session=s1 tool_name=grep error_type=timeout
//! @700      exchange     s1 after_tool
//! ---
//! @700      notification n1 tool_failure events=1
//! @700      inject       s1 after_tool i1 role=tool pending=0 notifications=n1
//!           | ..
//! ```
//!
//! `ASIDE_BLESS=1` rewrites the second half of every file; review the diff.

mod timeline;
mod transcript;

use std::{
    env, fs,
    path::{Path, PathBuf},
};

const SEPARATOR: &str = "---\n";

#[test]
fn every_scenario_gives_what_its_file_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let entries = fs::read_dir(folder).expect("tests/scenarios is a folder");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    assert!(!files.is_empty(), "no scenario was read");
    let failures: Vec<String> = files.iter().filter_map(|path| check(path).err()).collect();
    assert!(failures.is_empty(), "{} of {} scenarios:\n{}", failures.len(), files.len(), failures.join("\n"));
}

/// Runs one file; compares its second half, or writes it.
fn check(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let (input, expected) = text.split_once(SEPARATOR).unwrap_or((&text, ""));
    let scenario = timeline::parse(input).map_err(|error| format!("{name}:{error}"))?;
    let found = transcript::run(&scenario);
    if let Some(difference) = difference(&found, &transcript::run_restarted(&scenario), 1) {
        return Err(format!("{name}: with a restart before every input, line {difference}"));
    }
    if env::var_os("ASIDE_BLESS").is_some() {
        let blessed = format!("{}\n{SEPARATOR}{found}", input.trim_end());
        return if blessed == text { Ok(()) } else { fs::write(path, blessed).map_err(|e| e.to_string()) };
    }
    if expected.is_empty() {
        return Err(format!("{name}: no second half; ASIDE_BLESS=1 writes one, for you to read"));
    }
    let first_line = input.lines().count() + 2;
    difference(expected, &found, first_line).map_or(Ok(()), |difference| Err(format!("{name}:{difference}")))
}

/// The first line that differs between two transcripts, and the second transcript whole; `None` if
/// they are equal.
fn difference(expected: &str, found: &str, first_line: usize) -> Option<String> {
    if expected == found {
        return None;
    }
    let pairs = expected.lines().zip(found.lines());
    let equal = pairs.take_while(|(expected, found)| expected == found).count();
    let line = |text: &str| text.lines().nth(equal).unwrap_or("the end").to_owned();
    let (wanted, got) = (line(expected), line(found));
    Some(format!("{}: expected\n  {wanted}\nfound\n  {got}\nwhole:\n{found}", first_line + equal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_the_first_line_that_differs() {
        assert_eq!(difference("a\nb\n", "a\nb\n", 5), None);
        let found = difference("a\nb\n", "a\nc\n", 5).expect("they differ");
        assert!(found.starts_with("6: expected\n  b\nfound\n  c\n"), "{found}");
        let found = difference("", "a\n", 5).expect("they differ");
        assert!(found.starts_with("5: expected\n  the end\nfound\n  a\n"), "{found}");
    }
}
