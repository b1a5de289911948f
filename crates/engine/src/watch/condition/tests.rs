use journal::time::Timestamp;

use super::*;
use crate::watch::condition::{Terms, parse, parse_list};

/// A zone one hour ahead of UTC that is set back at 2026-11-25T22:00Z.
fn offset(at: Timestamp) -> i32 {
    if at < time("2026-11-25T22:00:00Z") { 3_600 } else { 0 }
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("valid")
}

fn read(text: &str) -> Result<Condition, String> {
    let terms = Terms { now: time("2026-11-25T12:00:00Z"), utc_offset: &offset, folder: Some("/w") };
    parse(text, &terms).map_err(|error| error.to_string())
}

#[test]
fn a_list_has_a_condition_in_each_part() {
    let terms = Terms { now: time("2026-11-25T12:00:00Z"), utc_offset: &offset, folder: Some("/w") };
    let texts = |text: &str| {
        let list = parse_list(text, &terms).map_err(|error| error.to_string())?;
        Ok::<_, String>(list.into_iter().map(|(text, _)| text.to_owned()).collect::<Vec<_>>())
    };
    for (text, expected) in [
        ("tool:Bash or 10m", Ok(vec!["tool:Bash", "10m"])),
        (" file a.lock or in 3 turns or port 3000", Ok(vec!["file a.lock", "in 3 turns", "port 3000"])),
        ("line a.log /one or two/", Ok(vec!["line a.log /one or two/"])),
        ("file this or that", Ok(vec!["file this or that"])),
        ("tool:Bash or prot 3000", Err("did you mean `port [HOST:]PORT`?")),
        ("tool:Bash or 10", Err("`10` is not a condition")),
        ("now or never", Err("`now or never` is not a condition")),
    ] {
        match (texts(text), expected) {
            (Ok(read), Ok(expected)) => assert_eq!(read, expected, "{text}"),
            (Err(error), Err(expected)) => assert!(error.contains(expected), "{text}: {error}"),
            (read, expected) => panic!("{text}: {read:?} and not {expected:?}"),
        }
    }
}

#[test]
fn every_form_is_read() {
    let port = |host: &str, port, open| Condition::Port { host: host.to_owned(), port, open };
    let http = |url: &str, status| Condition::Http { url: url.to_owned(), status };
    let file = |path: &str, exists| Condition::File { path: path.to_owned(), exists };
    let line = |path: &str, pattern: &str| Condition::Line {
        path: path.to_owned(),
        pattern: pattern.to_owned(),
        from: None,
    };
    let at = |text: &str| Condition::At { time: time(text) };
    for (text, expected) in [
        ("exit 4711", Condition::Exit { pid: 4711, started: None }),
        ("port 3000", port("localhost", 3000, true)),
        ("  no  port   db:5432 ", port("db", 5432, false)),
        ("port [::1]:80", port("::1", 80, true)),
        ("http localhost:3000/health", http("http://localhost:3000/health", None)),
        ("http http://127.0.0.1:8080 503", http("http://127.0.0.1:8080", Some(503))),
        ("file dist/app.js", file("/w/dist/app.js", true)),
        ("no file /tmp/my lock", file("/tmp/my lock", false)),
        ("change ./Cargo.lock", Condition::Change { path: "/w/Cargo.lock".to_owned(), since: None }),
        ("line /var/log/a /b /c/", line("/var/log/a", "b /c")),
        ("line dev.log /ERROR|panicked/", line("/w/dev.log", "ERROR|panicked")),
        ("ci", Condition::Ci { reference: None, folder: "/w".to_owned() }),
        ("ci fix/cart", Condition::Ci { reference: Some("fix/cart".to_owned()), folder: "/w".to_owned() }),
        ("ci refs/heads/main", Condition::Ci { reference: Some("main".to_owned()), folder: "/w".to_owned() }),
        ("event ci.**", Condition::Event { pattern: "ci.**".to_owned() }),
        ("in 1h30m", at("2026-11-25T13:30:00Z")),
        ("in 1 turn", Condition::Turns { left: 1 }),
        ("in 3 turns", Condition::Turns { left: 3 }),
        ("at 14:30", at("2026-11-25T13:30:00Z")),
        ("at 13:00", at("2026-11-26T13:00:00Z")),
        ("at 2026-11-26 08:00", at("2026-11-26T08:00:00Z")),
        ("at 2026-11-25T21:00:00+01:00", at("2026-11-25T20:00:00Z")),
        ("idle b1c2", Condition::Idle { session: SessionId::new("b1c2") }),
        ("1h30m", at("2026-11-25T13:30:00Z")),
        ("3 turns", Condition::Turns { left: 3 }),
        ("14:30", at("2026-11-25T13:30:00Z")),
        ("2026-11-25T21:00:00+01:00", at("2026-11-25T20:00:00Z")),
        ("event:ci.**", Condition::Event { pattern: "ci.**".to_owned() }),
        ("tool:mcp__*", Condition::Tool { name: "mcp__*".to_owned() }),
        ("context:80%", Condition::Context { share: 80 }),
    ] {
        assert_eq!(read(text), Ok(expected), "{text}");
    }
}

#[test]
fn an_invalid_condition_names_the_nearest_form() {
    for (text, expected) in [
        ("exit", "`exit`: something is missing; it is written `exit PID`"),
        ("exit cargo", "`exit cargo`: a process is named by its number; it is written `exit PID`"),
        ("port 99999", "a port is a number from 1 to 65535"),
        ("http https://x.org", "only http:// is supported"),
        ("http u:p@localhost", "the URL names no host"),
        ("http localhost 20", "a status is a number from 100 to 599"),
        ("line a.log ERROR", "a regular expression between slashes"),
        ("line a.log /(/", "unclosed group; it is written `line FILE /REGEX/`"),
        ("ci --all", "a branch or a commit is one name; it is written `ci [REF]`"),
        ("ci a b", "a branch or a commit is one name"),
        ("event ci", "an event type has 2 to 8 segments"),
        ("in soon", "a duration has its unit"),
        ("in 0 turns", "a count of turns is a number from 1 to 1000"),
        ("at 25:00", "a time is written 14:30"),
        ("at 2026-11-25T11:00:00Z", "that time has passed"),
        ("2026-11-25T11:00:00Z", "that time has passed"),
        ("tool: Bash", "nothing may stand between its parts; it is written `tool:NAME`"),
        ("context:", "something is missing; it is written `context:80%`"),
        ("contxt: 80%", "did you mean `context:80%`?"),
        ("exti 4711", "`exti 4711` is not a condition; did you mean `exit PID`?"),
        ("Port 3000", "did you mean `port [HOST:]PORT`?"),
        ("pid 4711", "`pid 4711` is not a condition; the conditions are `exit PID`, `port"),
        ("", "`` is not a condition"),
    ] {
        let error = read(text).expect_err(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
    let long = format!("file {}", "x".repeat(TEXT_BYTES_MAX));
    assert!(read(&long).expect_err("long").contains("at most 512 bytes"));
}

#[test]
fn a_relative_path_needs_a_folder() {
    let terms = Terms { now: Timestamp::ZERO, utc_offset: &|_| 0, folder: None };
    let error = parse("file x", &terms).expect_err("no folder");
    assert!(error.to_string().contains("begin with `/`"), "{error}");
    let error = parse("ci", &terms).expect_err("no folder");
    assert!(error.to_string().contains("no folder is known"), "{error}");
}

#[test]
fn only_another_machine_is_remote() {
    let terms = Terms { now: Timestamp::ZERO, utc_offset: &|_| 0, folder: None };
    for (text, expected) in [
        ("port 3000", None),
        ("port localhost:3000", None),
        ("port [::1]:3000", None),
        ("port LocalHost.:3000", None),
        ("port 0.0.0.0:3000", None),
        ("http http://[::]:3000", None),
        ("http app.localhost:3000", None),
        ("port localhost.example.org:3000", Some("localhost.example.org")),
        ("http http://127.1.2.3/x", None),
        ("port db:3000", Some("db")),
        ("http http://example.org:80/x", Some("example.org")),
        ("file /x", None),
    ] {
        let condition = parse(text, &terms).expect("a condition");
        assert_eq!(remote_host(&condition).as_deref(), expected, "{text}");
    }
}
