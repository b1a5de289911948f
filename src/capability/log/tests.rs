use std::collections::BTreeMap;

use super::*;

fn log(wanted: &str, ignored: Option<&str>) -> Log {
    let pattern = |text: &str| Pattern::read(text).expect("a pattern");
    Log {
        name: "dev".into(),
        path: "log/dev.log".into(),
        wanted: pattern(wanted),
        ignored: ignored.map(pattern),
        workspace: None,
    }
}

fn place() -> LogFile {
    LogFile { path: "/w/log/dev.log".into(), workspace: Some("/w".into()) }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// The reported lines, each with the number of further ones, if lines arrive at these times and are
/// polled every millisecond.
fn said(arrivals: &[(u64, &str)]) -> Vec<String> {
    let (log, mut lines) = (log("E", None), Lines::default());
    let mut by_time: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    arrivals.iter().for_each(|(at, line)| by_time.entry(*at).or_default().push(line));
    let mut said = Vec::new();
    for now in 0..10_000 {
        for line in by_time.remove(&now).into_iter().flatten() {
            log.pick(line.as_bytes()).into_iter().for_each(|matched| lines.push(matched));
        }
        if let Some(event) = lines.poll(&log, &place(), at(now)) {
            let field = |name: &str| {
                let payload: Value = serde_json::from_str(event.payload.as_str()).expect("JSON");
                payload.get(name).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            said.push(format!("{now} {} +{}", field("line").unwrap(), field("further").unwrap_or_default()));
        }
    }
    assert_eq!(lines.deadline(), None, "nothing is left");
    said
}

#[test]
fn log_lines_are_limited_to_one_per_second() {
    for (what, arrivals, expected) in [
        ("one", &[(5, "E1")][..], &["5 E1 +"][..]),
        ("what is not wanted", &[(5, "ok")], &[]),
        ("far apart", &[(5, "E1"), (2_000, "E2")], &["5 E1 +", "2000 E2 +"]),
        ("a burst", &[(5, "E1"), (6, "E2"), (7, "E3"), (900, "E4")], &["5 E1 +", "1005 E4 +2"]),
        ("a burst at once", &[(5, "E1"), (5, "E2"), (5, "E3")], &["5 E3 +2"]),
        ("again and again", &[(5, "E1"), (6, "E1"), (7, "E1")], &["5 E1 +", "1005 E1 +1"]),
        ("again after another one", &[(5, "E1"), (6, "E2"), (7, "E1")], &["5 E1 +", "1005 E2 +1"]),
    ] {
        assert_eq!(said(arrivals), expected, "{what}");
    }
}

#[test]
fn a_line_is_cleaned_cut_and_not_trusted() {
    let log = log("ERROR (\\w+)", Some("ignore me"));
    assert_eq!(log.pick(b"ERROR db ignore me"), None);
    let line =
        format!("\u{1b}[31mERROR db token=ghp_abcdefghijklmnopqrstuvwxyz0123456789 {}", "x".repeat(700));
    let mut lines = Lines::default();
    lines.push(log.pick(line.as_bytes()).expect("wanted"));
    let event = lines.poll(&log, &place(), at(9)).expect("due");
    assert_eq!((event.provenance, event.workspace.as_deref()), (Provenance::Quoted, Some("/w")));
    let payload: Value = serde_json::from_str(event.payload.as_str()).expect("JSON");
    let said = payload["line"].as_str().expect("text");
    assert!(said.starts_with("ERROR db token=") && !said.contains("abcdefghij"), "{said}");
    assert!(said.chars().count() < LINE_CHARS_MAX + 40, "{said}");
    assert_eq!((&payload["match"], &payload["name"]), (&json!("db"), &json!("dev")));
}

#[test]
fn line_matches_as_a_terminal_shows_it() {
    for (wanted, ignored, line, expected) in [
        ("^ERROR", None, "\u{1b}[31mERROR\u{1b}[0m pool exhausted", Some("ERROR pool exhausted")),
        (
            "^ERROR pool$",
            None,
            "\u{1b}[2m\u{1b}[1;31mERROR\u{1b}[m \u{1b}[4mpool\u{1b}[0m\r",
            Some("ERROR pool"),
        ),
        (
            "^at src/a.ts:3$",
            None,
            "at \u{1b}]8;;file:///w/src/a.ts\u{7}src/a.ts:3\u{1b}]8;;\u{7}",
            Some("at src/a.ts:3"),
        ),
        ("file:///", None, "at \u{1b}]8;;file:///w/src/a.ts\u{7}src/a.ts:3\u{1b}]8;;\u{7}", None),
        ("ERROR", None, "ERROR: 1 of 9\r\u{1b}[Kdone", None),
        ("^E$", None, "| \u{8}\u{8}/ \u{8}\u{8}E\u{1b}[K", Some("E")),
        ("ERROR", Some("^ERROR retry"), "\u{1b}[31mERROR\u{1b}[0m retry 1", None),
    ] {
        let found = log(wanted, ignored).pick(line.as_bytes()).map(|matched| matched.line);
        assert_eq!(found.as_deref(), expected, "{line:?}");
    }
}

#[test]
fn relative_path_applies_to_each_open_folder() {
    let folders: [Arc<str>; 2] = ["/a".into(), "/b/".into()];
    let paths =
        |log: &Log| log.places(&folders).iter().map(|place| place.path.to_string()).collect::<Vec<_>>();
    let relative = log("E", None);
    assert_eq!(paths(&relative), ["/a/log/dev.log", "/b/log/dev.log"]);
    assert_eq!(paths(&Log { workspace: Some("/c".into()), ..relative.clone() }), ["/c/log/dev.log"]);
    let absolute = Log { path: "/var/log/x".into(), ..relative };
    assert_eq!(absolute.places(&folders), [LogFile { path: "/var/log/x".into(), workspace: None }]);
}

#[test]
fn invalid_pattern_is_refused_with_reason() {
    for (text, expected) in [("(ERR", "unclosed group"), ("a{1000}{1000}", "size limit")] {
        let error = Pattern::read(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}
