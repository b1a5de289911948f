//! Faults under a real daemon: single system calls that fail, and threads that panic.
//!
//! The daemon goes on, or ends with an error that names the place; it never hangs. What it
//! acknowledged is found and delivered by the next start. `scripts/syscalls` does the same at every
//! place of a longer workload; the rows here are known places.

use std::collections::BTreeSet;

use hook::client::Response;
use serde_json::{Value, json};

use crate::support::{
    daemon::{Ended, Home, PATIENCE, at},
    each::EACH,
    strace::{Change, changed, failed_calls},
};

use Outcome::{Ends, GoesOn};

/// Folders are watched, so that the system is asked for their changes.
const SETTINGS: &str = "[journal]\nsegment_bytes = 1048576\n[[sources.paths]]\nglob = \"HOME/work/*.sql\"\n";
/// The first segment of the journal.
const SEGMENT: &str = "state/journal/00000000000000000001.seg";
/// The file that becomes the next segment.
const NEXT: &str = "state/journal/next.seg";
/// How often a client makes a request that is not answered.
const TRIES: usize = 3;
/// Lines of a body of which a part is published before its end.
const FILL_LINES: usize = 600;
/// Most rounds of work until the call fails of which a later one of a thread is to fail.
const ROUNDS_MAX: usize = 20;
/// Most requests to a daemon that is to end.
const REQUESTS_MAX: usize = 1_000;

/// What the daemon does.
#[derive(Debug, Clone, Copy)]
enum Outcome {
    /// It ends by itself with status 1, and these words on stderr.
    Ends(&'static str),
    /// It goes on until it is stopped, with these words on stderr.
    GoesOn(&'static str),
}

/// A call, its error, which calls of a thread fail, the file that it is about, and the outcome.
type Fault = (&'static str, &'static str, &'static str, Option<&'static str>, Outcome);

const WHILE_IT_STARTS: &[Fault] = &[
    ("mkdir", "ENOSPC", "1", Some("state"), Ends("create the state folder HOME/state: No space left")),
    ("mkdir", "ENOSPC", "1", Some("state/journal"), Ends("HOME/state/journal cannot be used: No space left")),
    (
        "openat",
        "EMFILE",
        "1",
        Some("state/daemon.lock"),
        Ends("HOME/state/daemon.lock cannot be used: Too many"),
    ),
    (
        "flock",
        "EIO",
        "1",
        Some("state/daemon.lock"),
        Ends("HOME/state/daemon.lock cannot be used: Input/output"),
    ),
    ("ftruncate", "EIO", "1", Some("state/daemon.lock"), GoesOn("")),
    ("rename", "EIO", "1", None, Ends("without which there are none: the rules bundle HOME/state/rules/")),
    (
        "openat",
        "EIO",
        "1",
        Some("state/snapshots"),
        Ends("use the folder HOME/state/snapshots: Input/output"),
    ),
    ("getdents64", "EIO", "1", Some("state/journal"), Ends("list HOME/state/journal/: Input/output error")),
    ("openat", "ENOSPC", "1", Some(NEXT), Ends("create HOME/SEGMENT: No space left")),
    ("pwrite64", "ENOSPC", "1", Some(NEXT), Ends("create HOME/SEGMENT: No space left")),
    ("fdatasync", "EIO", "1", Some(NEXT), Ends("create HOME/SEGMENT: Input/output error")),
    ("rename", "EIO", "1", Some(NEXT), Ends("create HOME/SEGMENT: Input/output error")),
    ("pwrite64", "EIO", "1", Some(SEGMENT), Ends("failed to write HOME/SEGMENT: Input/output error")),
    (
        "unlink",
        "EACCES",
        "1",
        Some("state/replaying"),
        GoesOn("the file of the replayed record could not be"),
    ),
];

const OF_THE_HISTORY: &[Fault] = &[
    ("openat", "EMFILE", "1", Some("state/projection.db"), GoesOn("the history is rebuilt later")),
    ("mmap", "ENOMEM", "1", Some("state/projection.db-shm"), GoesOn("the history is rebuilt later")),
    ("ftruncate", "EIO", "1", Some("state/projection.db-shm"), GoesOn("the history is rebuilt later")),
    ("unlink", "EACCES", "1", Some("state/projection.db-journal"), GoesOn("the history is rebuilt later")),
    ("pwrite64", "ENOSPC", "2", Some("state/projection.db-wal"), GoesOn("the history is rebuilt later")),
    ("fsync", "EIO", "1", Some("state/projection.db-wal"), GoesOn("the history is rebuilt later")),
];

/// The main thread starts two workers, the journal's four threads and the history's one.
const OF_THREADS: &[Fault] = &[
    ("clone3", "EAGAIN", "1", None, Ends("OS can't spawn worker thread: Resource temporarily unavailable")),
    ("clone3", "EAGAIN", "2", None, Ends("OS can't spawn worker thread: Resource temporarily unavailable")),
    (
        "clone3",
        "EAGAIN",
        "3",
        None,
        Ends("open the journal: start a thread: Resource temporarily unavailable"),
    ),
    (
        "clone3",
        "EAGAIN",
        "4",
        None,
        Ends("open the journal: start a thread: Resource temporarily unavailable"),
    ),
    ("clone3", "EAGAIN", "5", None, GoesOn("the journal seals and deletes nothing")),
    (
        "clone3",
        "EAGAIN",
        "6",
        None,
        Ends("open the journal: start a thread: Resource temporarily unavailable"),
    ),
    ("clone3", "EAGAIN", "7", None, Ends("run the daemon: start a thread: Resource temporarily unavailable")),
];

const WHILE_IT_SERVES: &[Fault] = &[
    ("pwrite64", "ENOSPC", "2", Some(SEGMENT), Ends("failed to write HOME/SEGMENT: No space left")),
    ("fdatasync", "EIO", "1", Some(SEGMENT), Ends("failed to sync HOME/SEGMENT: Input/output error")),
    ("fdatasync", "EIO", "2", Some(SEGMENT), Ends("failed to sync HOME/SEGMENT: Input/output error")),
    ("pread64", "EIO", "1", Some(SEGMENT), Ends("the journal cannot be read: read HOME/SEGMENT from byte")),
    (
        "unlink",
        "EACCES",
        "1",
        Some("socket"),
        GoesOn("the socket could not be removed error=Permission denied"),
    ),
    ("inotify_init1", "EMFILE", "1", None, GoesOn("files are polled error=Too many open files")),
];

const OF_CONNECTIONS: &[Fault] = &[
    ("socket", "EMFILE", "2", None, Ends("create the socket HOME/socket: Too many open files")),
    ("epoll_create1", "EMFILE", "1", None, Ends("create its event queue and threads: Too many open files")),
    ("eventfd2", "EMFILE", "1", None, Ends("create its event queue and threads: Too many open files")),
    ("epoll_ctl", "ENOSPC", "1", None, Ends("create its event queue and threads: No space left on device")),
    ("epoll_ctl", "ENOSPC", "3", None, Ends("create the socket HOME/socket: No space left on device")),
    ("epoll_ctl", "ENOSPC", "4..16", None, GoesOn("no connection can be accepted error=No space left")),
    ("accept4", "EMFILE", "1..3", None, GoesOn("no connection can be accepted error=Too many open files")),
    ("writev", "EIO", "1", None, GoesOn("")),
    ("epoll_wait", "EIO", "2", None, Ends("thread=\"aside-worker\"")),
    ("write", "EIO", "1", Some("anon_inode:[eventfd]"), Ends("failed to wake I/O driver")),
];

/// A client, what was acknowledged, and what was delivered to it.
struct Client<'h> {
    home: &'h Home,
    published: u64,
    acknowledged: BTreeSet<u64>,
    delivered: Vec<u64>,
    carriers: u32,
    /// The exchange that was not answered.
    unanswered: Option<String>,
}

impl<'h> Client<'h> {
    fn of(home: &'h Home) -> Self {
        let (acknowledged, delivered) = (BTreeSet::new(), Vec::new());
        Self { home, published: 0, acknowledged, delivered, carriers: 0, unanswered: None }
    }

    /// The answer to a request; `None` when there is none, or it is an error.
    ///
    /// # Panics
    /// If the daemon accepts the request and does not answer.
    fn ask(&self, path: &str, kind: &str, body: &str) -> Option<Response> {
        let patience = PATIENCE.as_millis().to_string();
        let headers = [("content-type", kind), ("aside-timeout-ms", &*patience)];
        match self.home.client().request("POST", path, &headers, body.as_bytes()) {
            Ok(response) => (response.status < 300).then_some(response),
            Err(error) => {
                let said = error.to_string();
                assert!(!said.contains("took too long"), "it is alive and does not answer: {path}: {said}");
                None
            }
        }
    }

    /// Publishes an event, or `count` in a body of lines; returns whether they were acknowledged.
    fn publish(&mut self, count: u64) -> bool {
        let numbers = self.published + 1..=self.published + count;
        self.published += count;
        let line = |n| {
            let event =
                json!({ "type": "test.each", "id": format!("e{n}"), "session": "s", "payload": { "n": n } });
            format!("{event}\n")
        };
        let body: String = numbers.clone().map(line).collect();
        let kind = if count == 1 { "application/json" } else { "application/x-ndjson" };
        let Some(response) = self.ask("/v1/events?results=summary", kind, &body) else { return false };
        let answer: Value = serde_json::from_slice(&response.body).expect("JSON");
        assert_eq!(answer["accepted"], json!(count), "{answer}");
        self.acknowledged.extend(numbers);
        true
    }

    /// Publishes events that no subscriber takes, in a body that the journal's thread begins to
    /// write before its end; returns whether they were acknowledged.
    fn fill(&self) -> bool {
        let line = format!("{}\n", json!({ "type": "test.fill", "payload": {} }));
        self.ask("/v1/events", "application/x-ndjson", &line.repeat(FILL_LINES)).is_some()
    }

    /// Makes the next exchange, or again the one without an answer; returns how many events it
    /// delivered.
    fn exchange(&mut self) -> Option<usize> {
        let carrier = self.unanswered.take().unwrap_or_else(|| {
            self.carriers += 1;
            format!("c{}", self.carriers)
        });
        let body = json!({ "point": "turn_start", "carrier": carrier }).to_string();
        let try_it = |_| self.ask("/v1/sessions/s/exchange", "application/json", &body);
        let Some(response) = (0..TRIES).find_map(try_it) else {
            self.unanswered = Some(carrier);
            return None;
        };
        let answer: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        let text = at(&answer, "/text").as_str().unwrap_or_default();
        let number = |line: &str| line.trim().strip_prefix("n: ")?.parse().ok();
        let found: Vec<u64> = text.lines().filter_map(number).collect();
        self.delivered.extend(&found);
        Some(found.len())
    }

    fn work(&mut self) {
        self.exchange();
        self.publish(1);
        self.publish(1);
        self.exchange();
        self.publish(3);
        self.exchange();
        self.publish(1);
    }

    /// After a start without a fault: each acknowledged event is there, and delivered once.
    fn check(&mut self, case: &str) {
        let daemon = self.home.serve();
        for n in &self.acknowledged {
            let found = self.home.get(&format!("/v1/events/e{n}"));
            assert_eq!(*at(&found, "/event/payload/n"), json!(n), "{case}");
        }
        while self.exchange().expect("it answers") > 0 {}
        self.delivered.sort_unstable();
        let once: BTreeSet<u64> = self.delivered.iter().copied().collect();
        assert_eq!(once.len(), self.delivered.len(), "{case}: delivered twice: {:?}", self.delivered);
        let lost: Vec<&u64> = self.acknowledged.difference(&once).collect();
        assert!(lost.is_empty(), "{case}: acknowledged and lost: {lost:?}");
        let ended = daemon.stop();
        assert!(ended.status.success(), "{case}: {ended:?}");
    }
}

fn home() -> Home {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    home.configure("aside.toml", &SETTINGS.replace("HOME", &home.path("").display().to_string()));
    home
}

/// Runs a daemon with these faults one after the other.
fn run(faults: &[Fault]) {
    for fault @ (call, error, when, file, outcome) in faults {
        let (home, case) = (home(), format!("{fault:?}"));
        let mut client = Client::of(&home);
        let change = format!("error={error}:when={when}");
        let change = Change { calls: call, change: &change, file: *file };
        let mut command = changed(&home, &home.command(&["serve", "--log", "info"]), change);
        let started = Home::try_start(&mut command);
        let (ended, words) = match (started, outcome) {
            (Err(ended), Ends(words)) => (ended, words),
            (Err(ended), GoesOn(_)) => panic!("{case}: {ended:?}"),
            (Ok(mut daemon), Ends(words)) => {
                (0..ROUNDS_MAX).take_while(|_| !daemon.has_ended()).for_each(|_| client.work());
                (daemon.end(), words)
            }
            (Ok(mut daemon), GoesOn(words)) => {
                // A call is counted in each thread, and which one accepts a connection varies.
                let mut log = String::new();
                for _ in 0..ROUNDS_MAX {
                    client.work();
                    log.push_str(&daemon.said_so_far());
                    if !client.acknowledged.is_empty() && log.contains(words) {
                        break;
                    }
                }
                assert!(!daemon.has_ended(), "{case}: {log} {:?}", daemon.end());
                assert!(!client.acknowledged.is_empty(), "{case}: nothing is accepted");
                let ended = daemon.stop();
                (Ended { log: log + &ended.log, ..ended }, words)
            }
        };
        let status = if matches!(outcome, Ends(_)) { 1 } else { 0 };
        assert_said(&home, &ended, status, words, &case);
        assert!(!failed_calls(&home).is_empty(), "{case}: no call failed");
        client.check(&case);
    }
}

fn assert_said(home: &Home, ended: &Ended, status: i32, words: &str, case: &str) {
    let root = home.path("").display().to_string();
    let log = ended.log.replace(root.trim_end_matches('/'), "HOME").replace(SEGMENT, "SEGMENT");
    assert_eq!(ended.status.code(), Some(status), "{case}: {log}");
    assert!(log.contains(words), "{case}: {log}");
}

#[test]
fn a_failed_call_of_a_start_loses_nothing() {
    run(WHILE_IT_STARTS);
}

#[test]
fn a_call_that_fails_while_serving_loses_nothing() {
    run(WHILE_IT_SERVES);
}

#[test]
fn a_failed_call_of_a_connection_loses_nothing() {
    run(OF_CONNECTIONS);
}

#[test]
fn a_history_that_fails_is_rebuilt() {
    run(OF_THE_HISTORY);
}

#[test]
fn a_thread_that_cannot_start_is_named() {
    run(OF_THREADS);
}

#[test]
fn a_panic_without_a_waiter_ends_the_daemon() {
    for (thread, count) in [("aside-worker", 60), ("journal-writer", 2)] {
        let home = home();
        let mut client = Client::of(&home);
        let mut command = home.command(&["serve", "--log", "info"]);
        let mut daemon = Home::try_start(command.env("ASIDE_TEST_PANIC", format!("{count}:{thread}")))
            .unwrap_or_else(|ended| panic!("{thread}: {ended:?}"));
        let goes_on = (0..REQUESTS_MAX).take_while(|_| client.publish(1) && client.fill()).count();
        assert!((1..REQUESTS_MAX).contains(&goes_on), "{thread}: it does not panic in time");
        let ended = daemon.end();
        assert_said(&home, &ended, 1, &format!("it stops thread=\"{thread}\" panic="), thread);
        assert!(ended.log.contains("planted"), "{thread}: {}", ended.log);
        client.check(thread);
    }
}
