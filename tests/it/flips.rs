//! Flips one bit of one file of a state folder: the daemon starts and reports the damage, or
//! refuses with a message whose advice works. It never acknowledges an event and then loses it or
//! dies of the damage.
//!
//! A state folder is made once by a daemon that was stopped and once by one that was killed. Each
//! try copies it, flips a random bit in a file of the next kind, and runs a daemon on the result.
//! `ASIDE_FLIP_TRIES` is the number of tries for each of the two, `ASIDE_FLIP_FIRST` the number of
//! the first try: a number always gives the same try.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Ended, Home, at, eventually, text};

/// Tries for each folder; 500 for a manual run.
const TRIES: u64 = 10;
/// Most steps that the messages may ask of the user.
const REFUSALS_MAX: usize = 3;
/// Events that are pending for the session.
const PENDING: u64 = 8;
/// Events that match no subscriber and fill segments, and the characters of each.
const FILLING: u64 = 200;
const FILLING_CHARS: usize = 20_000;

const SETTINGS: &str = r#"
[http]
listen = "127.0.0.1:0"
[journal]
segment_bytes = 1048576
snapshot_records = 100
[injection]
max_notifications = 100
max_tokens = 20000
max_chars = 100000
"#;
const SUBSCRIBER: &str = r#"
[subscriber]
id = "single"
[events]
types = ["task.started"]
severity_filter = "debug"
[batching]
window_ms = 0
[output]
priority = "high"
"#;

/// Every kind of file in a state folder, by the beginning and the end of its path.
const KINDS: [(&str, &str, &str); 12] = [
    ("open segment", "journal/", ".seg"),
    ("sealed segment", "journal/", ".seg"),
    ("prepared segment", "journal/next.seg", ""),
    ("mark", "journal/durable", ""),
    ("snapshot", "snapshots/", ".snap"),
    ("rules", "rules/", ".json"),
    ("text", "rules/", ".text"),
    ("shipped texts", "rules/", ".pack"),
    ("history", "projection.db", ""),
    ("token", "token", ""),
    ("lock", "daemon.lock", ""),
    ("log", "daemon.log", ""),
];

/// A random generator; the same seed gives the same numbers.
struct Drawn(u64);

impl Drawn {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end.max(1)
    }
}

fn setting(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// The notifications that are delivered to the session, in order.
fn delivered(home: &Home) -> Vec<Value> {
    let answer = home.exchange("s1", &json!({ "point": "turn_start", "carrier": "after" }));
    assert!(matches!(answer.status(), 200 | 204), "{answer:?}");
    let answer = answer.json();
    let notifications = at(&answer, "/notifications").as_array().map(Vec::as_slice).unwrap_or_default();
    notifications.iter().map(|notification| at(notification, "/id").clone()).collect()
}

/// A home whose daemon has stopped, and left a sealed segment, an open one, two snapshots, and
/// pending notifications.
fn filled(signal: Signal) -> Home {
    let home = Home::with(&[("aside.toml", SETTINGS), ("subscribers/single.toml", SUBSCRIBER)]);
    home.print(&["up"]);
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "first" }));
    let mut drawn = Drawn(5);
    for number in 0..FILLING {
        let text: String =
            (0..FILLING_CHARS / 8).map(|_| format!("{:08x}", drawn.below(u64::from(u32::MAX)))).collect();
        home.publish(&json!({ "type": "bulk.made", "source": "test", "payload": { "text": text } }));
        if number % (FILLING / PENDING) == 0 {
            home.publish(&json!({
                "id": format!("before-{number}"), "type": "task.started", "source": "test", "session": "s1",
                "payload": { "n": number },
            }));
        }
    }
    eventually("segments are sealed and the history is whole", || {
        let status = home.get("/v1/status");
        let is_sealed = at(&status, "/journal/sealed").as_u64() >= Some(2);
        let is_whole = at(&status, "/projection/behind").as_u64() == Some(0);
        (is_sealed && is_whole && files_of(&home, 4).len() >= 2).then_some(())
    });
    let pid = Pid::from_raw(
        i32::try_from(at(&home.get("/v1/status"), "/pid").as_i64().expect("a number")).expect("small"),
    );
    kill_process(pid.expect("a process"), signal).expect("it runs");
    eventually("the daemon ends", || home.try_ask("GET", "/healthz", "").is_err().then_some(()));
    eventually("its folder is free", || {
        let daemon = home.try_serve(&["--log", "info"]).ok()?;
        // The last run of the fixture ends like the first one, so that the fixture has the effects
        // of a start after a kill.
        daemon.signal(signal);
        drop_ended(daemon);
        Some(())
    });
    home
}

fn drop_ended(mut daemon: Daemon) {
    daemon.end();
}

/// The files of a kind, by their paths in the state folder.
fn files_of(home: &Home, kind: usize) -> Vec<PathBuf> {
    let (name, begin, end) = KINDS[kind];
    let mut found = Vec::new();
    for folder in ["", "journal", "snapshots", "rules"] {
        let Ok(entries) = fs::read_dir(home.state().join(folder)) else { continue };
        let paths = entries.flatten().filter(|entry| entry.path().is_file());
        found.extend(paths.map(|entry| Path::new(folder).join(entry.file_name())));
    }
    found.retain(|path| {
        let path = path.to_str().expect("text");
        path.starts_with(begin) && path.ends_with(end) && (end.is_empty() || path != "journal/next.seg")
    });
    found.sort();
    match (name, found.pop()) {
        ("open segment", last) => last.into_iter().collect(),
        ("sealed segment", _) => found,
        (_, last) => {
            found.extend(last);
            found
        }
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("readable").flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// A flipped bit.
#[derive(Debug)]
struct Flip {
    kind: &'static str,
    path: PathBuf,
    byte: usize,
    bit: u64,
}

impl Flip {
    /// Makes the flip with this number; `None` if the folder has no file of the kind.
    fn make(home: &Home, number: u64) -> Option<Self> {
        let mut drawn = Drawn(number);
        drawn.below(1);
        let kind = usize::try_from(number % KINDS.len() as u64).expect("small");
        let files = files_of(home, kind);
        let index = usize::try_from(drawn.below(files.len() as u64)).expect("small");
        let path = files.into_iter().nth(index)?;
        let whole = home.state().join(&path);
        let mut bytes = fs::read(&whole).expect("readable");
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        // Most of a file is prepared space without data.
        let end = if drawn.below(8) == 0 { bytes.len() } else { used };
        let byte = usize::try_from(drawn.below(end as u64)).expect("small");
        let bit = drawn.below(8);
        *bytes.get_mut(byte)? ^= 1 << bit;
        fs::write(whole, bytes).expect("written");
        Some(Self { kind: KINDS[kind].0, path, byte, bit })
    }
}

/// Runs each command that a message names; returns their output.
fn follow(home: &Home, message: &str) -> String {
    let mut said = String::new();
    for quoted in message.split('`').skip(1).step_by(2) {
        if let Some(args) = quoted.strip_prefix("aside ") {
            let args: Vec<&str> = args.split(' ').collect();
            let output = home.run(&args);
            assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {output:?}");
            said += &format!("{quoted}: {}{}", text(&output.stdout), text(&output.stderr));
        } else if let Some(path) = quoted.strip_prefix("rm ") {
            fs::remove_file(path.trim_matches('\'')).expect("it is there");
            said += &format!("{quoted}\n");
        }
    }
    assert!(!said.is_empty(), "refused without advice: {message}");
    said
}

/// Starts the daemon, and follows the advice of each refusal; returns all messages.
fn start(home: &Home) -> (Daemon, String) {
    let mut said = String::new();
    for _ in 0..=REFUSALS_MAX {
        match home.try_serve(&["--log", "info"]) {
            Ok(daemon) => {
                said += &daemon.said_so_far();
                return (daemon, said);
            }
            Err(Ended { status, log }) => {
                assert_eq!(status.code(), Some(1), "{log}");
                said += &follow(home, &log);
                said += &log;
            }
        }
    }
    panic!("the advice does not help:\n{said}");
}

/// Whether the log or the daemon's status reports damage.
fn is_reported(said: &str, home: &Home) -> bool {
    let is_in_log = said.lines().any(|line| line.contains(" warn ") || line.contains(" error "));
    let health = home.ask("GET", "/healthz", "").json();
    is_in_log || health["status"] != "ok"
}

/// Runs on the state after a flip: pending notifications are there or their loss is reported, and
/// events that are acknowledged from now on stay.
fn live_with(home: &Home, expected: &[Value], flip: &Flip) {
    let verified = home.run(&["journal", "verify"]);
    let is_found = verified.status.code() == Some(1);
    assert!(matches!(verified.status.code(), Some(0 | 1)), "{verified:?}");
    assert!(is_found || flip.kind != "sealed segment", "nothing of it is found: {verified:?}");
    let (daemon, said) = start(home);
    let found = delivered(home);
    assert!(
        found == expected || is_reported(&(said.clone() + &daemon.said_so_far()), home),
        "something else is delivered, and nothing tells of it: {found:?}\n{said}"
    );
    let event = json!({ "id": "after", "type": "task.started", "source": "test", "session": "s1", "payload": { "n": 1 } });
    home.publish(&event);
    // Derived data may be damaged without a check of its own; a request for it must not end the
    // daemon.
    for path in ["/v1/notifications?limit=5", "/v1/status", "/metrics"] {
        let answer = home.ask("GET", path, "");
        assert!(answer.status() == 200 || !answer.0.body.is_empty(), "{path}: {answer:?}");
    }
    daemon.kill();
    let (daemon, _) = start(home);
    let again = home.ask("POST", "/v1/events", &event.to_string()).json();
    assert_eq!(at(&again, "/results/0/duplicate"), &json!(true), "it was acknowledged and is lost: {again}");
    let Ended { status, log } = daemon.stop();
    assert_eq!(status.code(), Some(0), "{log}");
}

fn flip_and_live(signal: Signal) {
    let filled = filled(signal);
    let again = || {
        let home = Home::with(&[("aside.toml", SETTINGS), ("subscribers/single.toml", SUBSCRIBER)]);
        copy(&filled.state(), &home.state());
        home
    };
    let whole = again();
    let (daemon, said) = start(&whole);
    let expected = delivered(&whole);
    assert!(!is_reported(&said, &whole), "{said}");
    assert_eq!(expected.len() as u64, PENDING, "{expected:?}");
    daemon.kill();
    let first = setting("ASIDE_FLIP_FIRST", 0);
    let mut failed = Vec::new();
    for number in first..first + setting("ASIDE_FLIP_TRIES", TRIES) {
        let home = again();
        let Some(flip) = Flip::make(&home, number) else { continue };
        // A failed try names itself; the other tries run all the same.
        if catch_unwind(AssertUnwindSafe(|| live_with(&home, &expected, &flip))).is_err() {
            let Flip { kind, path, byte, bit } = &flip;
            failed.push(format!("try {number}, {kind}: bit {bit} of byte {byte} of {}", path.display()));
        }
    }
    assert!(failed.is_empty(), "{} tries failed: {failed:#?}", failed.len());
}

#[test]
fn flipped_bit_after_stop_is_survived_or_reported() {
    flip_and_live(Signal::TERM);
}

#[test]
fn flipped_bit_after_kill_is_survived_or_reported() {
    flip_and_live(Signal::KILL);
}
