//! Starts that do not come to their end.
//!
//! A start that is killed from outside skips nothing, wherever and however often it is killed. A
//! record on which the program itself fails does not stop a start for ever.

use std::{
    fs,
    ops::ControlFlow,
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, Output, Stdio},
    sync::Arc,
};

use aside::daemon::replay::RecoveryError;
use engine::{
    RequestId,
    event::{Seq, SessionId},
    exchange::Exchange,
    notification::InjectionPoint,
    records,
};
use journal::{Journal, JournalSettings, Level, files::DirFiles, memory::MemoryFiles, time::Timestamp};
use rustix::process::{Pid, Signal};
use serde_json::json;

use crate::support::{
    daemon::{Home, at, eventually, text},
    each::{EACH, event, keep_rules},
    event_loop::{Append, Daemon, Disk},
};

const VARIABLE: &str = "ASIDE_TEST_REPLAY";
const EVENTS: u64 = 4;
/// How often a start is killed at each record.
const KILLS: usize = 3;
/// Most starts until a record on which they fail is skipped.
const STARTS_MAX: usize = 4;
/// Most processor time of a start, as its user's patience bounds it; some tenths are used.
const SECONDS_MAX: u32 = 1;

/// A stopped daemon's folder with a session, an exchange, pending events and, at the end, a reload.
/// Returns the positions of the events.
fn pending_home() -> (Home, Vec<u64>) {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    let daemon = home.serve();
    home.exchange("s", &json!({ "point": "turn_start", "carrier": "c0" }));
    let publish =
        |n| home.publish(&json!({ "type": "test.each", "id": format!("e{n}"), "payload": { "n": n } }));
    let seqs = (1..=EVENTS).flat_map(publish).collect();
    home.configure("subscribers/other.toml", &EACH.replace("each", "other"));
    home.print(&["reload"]);
    daemon.kill();
    (home, seqs)
}

/// The last record of the journal of a stopped daemon.
fn head(home: &Home) -> u64 {
    let said = home.print(&["journal", "verify"]);
    said.split(" valid records")
        .next()
        .and_then(|count| count.split_whitespace().last()?.parse().ok())
        .expect("a count")
}

/// The positions and the kinds of the records of a stopped daemon.
fn kinds(home: &Home) -> Vec<(u64, u8)> {
    let files = Arc::new(DirFiles::new(&home.path("state/journal")).expect("a folder"));
    let clock = Arc::new(|| Timestamp::ZERO);
    let opened = Journal::open(files, JournalSettings::default(), clock, &|_| None).expect("opened");
    let mut reader = opened.journal.read_from(Seq(1));
    let batch = reader.next_batch(1_000).expect("readable");
    let kinds = batch.iter().map(|record| (record.seq.0, record.kind.0)).collect();
    opened.journal.close_blocking().expect("closed");
    kinds
}

fn planted(home: &Home, seq: u64, fault: &str) -> Command {
    let mut command = home.command(&["serve"]);
    command.env(VARIABLE, format!("{seq}:{fault}"));
    command
}

/// Whether the process, or a child of it, is stopped by a signal.
fn is_stopped(pid: Pid) -> bool {
    let pid = pid.as_raw_nonzero().to_string();
    let stats = fs::read_dir("/proc")
        .expect("mounted")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("stat")).ok());
    stats.into_iter().any(|stat| {
        let own = stat.split(' ').next() == Some(&*pid);
        let mut rest = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        rest.next() == Some("T") && (own || rest.next() == Some(&*pid))
    })
}

fn spawn(command: &mut Command) -> Child {
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program runs")
}

/// The events that the session's next exchange delivers, which is the first one with this carrier.
fn delivered(home: &Home, carrier: &str) -> Vec<u64> {
    let answer = home.exchange("s", &json!({ "point": "turn_end", "carrier": carrier })).json();
    let text = at(&answer, "/text").as_str().unwrap_or_default().to_owned();
    (1..=EVENTS).filter(|n| text.contains(&format!("n: {n}"))).collect()
}

#[test]
fn starts_killed_at_each_record_skip_nothing() {
    let (home, _) = pending_home();
    for seq in 1..=head(&home) {
        for _ in 0..KILLS {
            let mut child = spawn(&mut planted(&home, seq, "stop"));
            eventually("the start stops at the record", || is_stopped(Pid::from_child(&child)).then_some(()));
            child.kill().expect("it runs");
            assert_eq!(child.wait().expect("it ends").signal(), Some(Signal::KILL.as_raw()));
        }
    }
    let daemon = home.serve();
    let status = home.get("/v1/status");
    assert!(at(&status, "/journal/problems").is_null(), "{status}");
    assert_eq!(*at(&status, "/events/skipped"), json!(0));
    assert_eq!(delivered(&home, "c1"), [1, 2, 3, 4]);
    assert!(!daemon.stop().log.contains("skipped"));
}

/// Starts the daemon until it is ready; returns how many starts that took, and what they said.
fn start_again_and_again(home: &mut Home, seq: u64, fault: &str) -> (usize, String) {
    home.set(VARIABLE, format!("{seq}:{fault}"));
    for starts in 1..=STARTS_MAX {
        match home.try_serve(&["--log", "info"]) {
            Ok(daemon) => {
                let status = home.get("/v1/status");
                assert_eq!(*at(&status, "/events/skipped"), json!(1), "{fault}: {status}");
                assert_eq!(delivered(home, "c1"), [1, 3, 4], "{fault}");
                let why = home.print(&["why", "e2"]);
                assert!(why.contains("skipped"), "{fault}: {why}");
                return (starts, daemon.stop().log);
            }
            Err(ended) => assert!(!ended.status.success(), "{fault}"),
        }
    }
    panic!("{fault}: no start comes to its end");
}

#[test]
fn an_event_that_crashes_starts_is_skipped() {
    for (fault, starts) in [("panic", 1), ("abort", 4), ("overflow", 4), ("allocation", 4)] {
        let (mut home, seqs) = pending_home();
        let (taken, log) = start_again_and_again(&mut home, seqs[1], fault);
        assert_eq!(taken, starts, "{fault}: {log}");
        assert!(log.contains("a record of the journal is skipped; it has no effect"), "{fault}: {log}");
        let verified = home.print(&["journal", "verify"]);
        let said = format!("record {}: a start skipped it", seqs[1]);
        assert!(verified.contains(&said) && verified.contains("no damage"), "{verified}");
    }
}

#[test]
fn another_build_applies_a_skipped_event() {
    let (mut home, seqs) = pending_home();
    start_again_and_again(&mut home, seqs[1], "panic");
    let program = home.path("aside");
    fs::copy(env!("CARGO_BIN_EXE_aside"), &program).expect("copied");
    home.set(VARIABLE, "0:panic");
    let daemon = home.serve_program(&program);
    daemon.said("a record that another build of the program skipped is applied again");
    assert_eq!(delivered(&home, "c2"), [2]);
    assert_eq!(*at(&home.get("/v1/status"), "/events/skipped"), json!(0));
    daemon.stop();
    assert!(!home.print(&["journal", "verify"]).contains("skipped"));
    // Neither build leaves it out from now on.
    let daemon = home.serve();
    assert_eq!(*at(&home.get("/v1/status"), "/events/skipped"), json!(0));
    assert!(!daemon.stop().log.contains("skipped"));
}

#[test]
fn records_of_rules_and_exchanges_are_never_skipped() {
    let (home, _) = pending_home();
    let last = head(&home);
    let kept = [records::RULES, records::EXCHANGE, records::SESSION_OPENED, records::RELEASED];
    let seqs: Vec<u64> =
        kinds(&home).into_iter().filter(|(_, kind)| kept.contains(kind)).map(|(seq, _)| seq).collect();
    assert!(seqs.len() >= 3, "{seqs:?}");
    for seq in seqs {
        let output = planted(&home, seq, "panic").output().expect("the program runs");
        assert_refused(&home, seq, &output);
    }
    assert_eq!(head(&home), last, "nothing is appended");
    let daemon = home.serve();
    assert_eq!(delivered(&home, "c1"), [1, 2, 3, 4]);
    drop(daemon);
}

/// The last line of a start that refuses the record, which names it.
fn assert_refused(home: &Home, seq: u64, output: &Output) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{seq}: {said}");
    let line = said.lines().last().unwrap_or_default();
    let file = home.path("state/journal/00000000000000000001.seg");
    let place = format!(" of {}) cannot be applied (", file.display());
    for part in [&*format!("record {seq} ("), ", byte ", &place, "never skipped", "another build", "verify"] {
        assert!(line.contains(part), "{seq}: no `{part}`: {said}");
    }
}

#[test]
fn crashes_on_other_records_end_with_an_error() {
    let (home, _) = pending_home();
    let kinds = kinds(&home);
    for (kind, fault, refusals) in [(records::RULES, "abort", 2), (records::EXCHANGE, "endless", 1)] {
        let (seq, _) = *kinds.iter().find(|(_, found)| *found == kind).expect("there is one");
        let start = || {
            let mut command = Command::new("sh");
            let limited = format!("ulimit -S -t {SECONDS_MAX}; exec \"$0\" serve");
            command.args(["-c", &limited, env!("CARGO_BIN_EXE_aside")]).env_clear();
            let given = planted(&home, seq, fault);
            command.envs(given.get_envs().filter_map(|(name, value)| Some((name, value?))));
            command.output().expect("it runs")
        };
        for _ in 1..STARTS_MAX {
            let crashed = start();
            assert!(crashed.status.signal().is_some(), "{fault}: {crashed:?}");
        }
        (0..refusals).for_each(|_| assert_refused(&home, seq, &start()));
        // A start without the fault ends the suspicion.
        let daemon = home.serve();
        assert!(at(&home.get("/v1/status"), "/journal/problems").is_null(), "{fault}");
        daemon.kill();
    }
    let daemon = home.serve();
    assert_eq!(delivered(&home, "c1"), [1, 2, 3, 4]);
    drop(daemon);
}

/// A journal in memory with rules, a session, events and exchanges.
fn journal_in_memory(rules: &Path) -> MemoryFiles {
    let hash = keep_rules(rules);
    let files = MemoryFiles::new();
    let (disk, fold) = Disk::open(&files, 1 << 12, rules).expect("opened");
    let mut daemon = Daemon::start(disk, fold, Timestamp::ZERO).expect("started");
    let body = |body: &mut Vec<u8>| records::encode_rules(&hash, body);
    daemon.append(Append::of(records::RULES, Level::Synced, Timestamp::ZERO, body)).expect("appended");
    for n in 0..12 {
        let now = Timestamp::from_millis(n);
        daemon.append(Append::events([&event(n)], Level::Synced, now)).expect("appended");
        if n % 4 == 0 {
            let exchange = Exchange::new(SessionId::new("s"), InjectionPoint::TurnEnd, &format!("c{n}"));
            let body = |body: &mut Vec<u8>| records::encode_exchange(RequestId(1), &exchange, body);
            daemon.append(Append::of(records::EXCHANGE, Level::Synced, now, body)).expect("appended");
        }
        daemon.catch_up(now, |_, _| ()).expect("followed");
        if n == 5 {
            daemon.take_snapshot(now, |_, _| ()).expect("taken");
        }
    }
    daemon.disk().journal.close_blocking().expect("closed");
    files
}

#[test]
fn ended_starts_change_no_state() {
    let (rules, state) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mut files = journal_in_memory(rules.path());
    let whole = |files: &MemoryFiles| {
        let (disk, fold) = Disk::open(files, 1 << 12, rules.path()).expect("opened");
        let goes_on = |_, _| ControlFlow::Continue(());
        let started = Daemon::start_in(state.path(), disk, fold, Timestamp::from_millis(20), &goes_on);
        let (daemon, skipped) = started.expect("it comes to its end");
        assert!(skipped.is_empty(), "{skipped:?}");
        let state = daemon.fold.to_state().expect("written");
        (state, daemon.disk().records().len(), daemon)
    };
    let (expected, records, daemon) = whole(&files.after_kill());
    drop(daemon);
    for seq in 1..=records as u64 {
        for kill in 0..5 {
            let (disk, fold) = Disk::open(&files, 1 << 12, rules.path()).expect("opened");
            let until =
                |at, _| if at == Seq(seq) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let ended = Daemon::start_in(state.path(), disk, fold, Timestamp::from_millis(20), &until);
            // A record that the snapshot has is not replayed.
            assert!(matches!(ended, Ok(_) | Err(RecoveryError::Interrupted(_))), "{seq}");
            files = if kill % 2 == 0 { files.after_kill() } else { files.after_power_loss(seq) };
        }
        let (found, left, daemon) = whole(&files.after_kill());
        assert!(found == expected && left == records, "{seq}");
        drop(daemon);
    }
}
