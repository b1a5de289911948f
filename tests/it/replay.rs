//! `aside replay`: what a daemon's journal would have led to with other rules.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use aside::{
    comparison::Row,
    config::layers::Sources,
    daemon::{
        rerun::{Request, rerun},
        rules::RulesStore,
    },
};
use engine::{
    RequestId,
    event::{Event, Payload, Provenance, Seq, SessionId, Severity},
    exchange::Exchange,
    notification::InjectionPoint,
    records,
};
use journal::{
    AppendBatch, Journal, JournalSettings, Level, RecordKind,
    files::{DirFiles, Files},
    memory::MemoryFiles,
    time::Timestamp,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{
    daemon::{Home, eventually, text},
    event_loop::{Append, Daemon, Disk},
};

/// A subscriber of `plant.ID.*` without batches; `more` is the rest of its file.
fn subscriber(id: &str, one: &str, more: &str) -> (String, String) {
    let text = format!(
        "[subscriber]\nid = \"{id}\"\n[events]\ntypes = [\"plant.{id}.*\"]\n{more}[batching]\nwindow_ms = 0\n\
         [output]\none = \"{one}\"\npriority = \"high\"\ninject_at = \"after_tool\"\n"
    );
    (format!("subscribers/{id}.toml"), text)
}

fn before() -> Vec<(String, String)> {
    vec![
        subscriber("less", "less: {{ payload.n }}", ""),
        subscriber("more", "more: {{ payload.n }}", "where = \"false\"\n"),
        subscriber("other", "other: {{ payload.n }}", ""),
        subscriber("same", "same: {{ payload.n }}", ""),
    ]
}

fn after() -> Vec<(String, String)> {
    vec![
        subscriber("less", "less: {{ payload.n }}", "where = \"payload.n > 2\"\n"),
        subscriber("more", "more: {{ payload.n }}", ""),
        subscriber("other", "number: {{ payload.n }}", ""),
        subscriber("same", "same: {{ payload.n }}", ""),
    ]
}

fn home(files: &[(String, String)]) -> Home {
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    Home::with(&files)
}

/// A folder with the settings of `home` and other files.
fn folder(home: &Home, files: &[(String, String)]) -> PathBuf {
    let folder = home.path("new");
    fs::create_dir_all(folder.join("subscribers")).expect("a folder");
    fs::copy(home.path("config").join("aside.toml"), folder.join("aside.toml")).expect("copied");
    for (name, text) in files {
        fs::write(folder.join(name), text).expect("written");
    }
    folder
}

fn publish(home: &Home, subscriber: &str, n: u32) {
    let (kind, number) = (format!("plant.{subscriber}.a"), format!("n={n}"));
    home.print(&["publish", &kind, &number, "--everywhere"]);
}

/// Events and exchanges of one session.
fn play(home: &Home) {
    home.print(&["exchange", "demo", "turn_start"]);
    for n in 1..=3 {
        ["less", "more", "other", "same"].iter().for_each(|subscriber| publish(home, subscriber, n));
        home.print(&["exchange", "demo", "after_tool"]);
    }
    publish(home, "less", 1);
    home.print(&["exchange", "demo", "after_tool"]);
}

/// The comparison as JSON.
fn compared(home: &Home, args: &[&str]) -> Value {
    let args = [&["replay", "--format", "json"], args].concat();
    serde_json::from_str(&home.print(&args)).expect("JSON")
}

/// What each subscriber of the tests made, delivered and cost on one side.
fn numbers(compared: &Value, side: &str) -> BTreeMap<String, [u64; 3]> {
    let rows = compared["subscribers"].as_array().expect("a list").iter();
    let rows = rows.map(|row| {
        let of = |field: &str| row[side][field].as_u64().expect("a number");
        (row["subscriber"].as_str().expect("an id").to_owned(), ["made", "delivered", "tokens"].map(of))
    });
    let own = |id: &str| ["less", "more", "other", "same"].contains(&id);
    rows.filter(|(id, numbers)| own(id) && *numbers != [0; 3]).collect()
}

/// The content of every file below a folder.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("listed").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            found.extend(content(&entry));
        } else if entry.is_file() {
            let bytes = fs::read(&entry).expect("read");
            found.insert(entry, bytes);
        }
    }
    found
}

#[test]
fn replay_tells_what_a_fresh_daemon_would_do() {
    let old = home(&before());
    let daemon = old.serve();
    play(&old);
    let unchanged = old.print(&["replay"]);
    for part in ["14 events and 5 exchanges", "subscribers unchanged", "next: aside reload"] {
        assert!(unchanged.contains(part), "{part}: {unchanged}");
    }
    let new = folder(&old, &after()).display().to_string();
    let tried = compared(&old, &["--config", &new]);
    let fresh = home(&after());
    let other = fresh.serve();
    play(&fresh);
    assert_eq!(numbers(&tried, "now"), numbers(&compared(&fresh, &[]), "then"));
    assert_eq!(numbers(&tried, "then"), numbers(&compared(&old, &[]), "now"));

    let shown = old.print(&["replay", "--config", &new]);
    for part in [
        "exchanges: 0 with text that had none, 1 without text that had some",
        "3 notifications of less are gone: --show gone",
        "3 notifications of more are added: --show added",
        "3 notifications of other are changed: --show changed",
        "not known: what agents do",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let listed = old.print(&["replay", "--config", &new, "--show", "changed"]);
    for part in ["3 notifications changed\n", "- other: 1\n", "+ number: 1\n"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    // The daemon goes on.
    publish(&old, "same", 9);
    daemon.stop();
    other.stop();
    let (before, again) = (content(&old.state()), compared(&old, &["--config", &new]));
    assert_eq!(again, compared(&old, &["--config", &new]), "the same bytes for the same journal");
    assert!(content(&old.state()) == before, "nothing is written");
}

#[test]
fn other_subscribers_keep_the_rules_of_their_time() {
    let home = home(&before());
    let daemon = home.serve();
    play(&home);
    daemon.stop();
    let new = folder(&home, &after()).display().to_string();
    let whole = numbers(&compared(&home, &["--config", &new]), "now");
    let then = numbers(&compared(&home, &[]), "then");
    let one = compared(&home, &["--config", &new, "--subscriber", "less"]);
    let now = numbers(&one, "now");
    assert_eq!((now.get("less"), now.get("more")), (whole.get("less"), None));
    assert_eq!((now.get("other"), now.get("same")), (then.get("other"), then.get("same")));
    let unknown = home.run(&["replay", "--subscriber", "lees"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("did you mean `less`?"), "{unknown:?}");
}

#[test]
fn expectations_pass_or_fail_the_command() {
    let home = home(&before());
    let daemon = home.serve();
    play(&home);
    daemon.stop();
    let new = folder(&home, &after()).display().to_string();
    let file = home.path("expect.toml").display().to_string();
    let run = |expected: &str, args: &[&str]| {
        fs::write(home.path("expect.toml"), expected).expect("written");
        home.run(&[&["replay", "--config", &new, "--expect", &file], args].concat())
    };
    let all = "[[expect]]\nsubscriber = \"less\"\nmade = \"0..1\"\ngone = 3\n\
               [[expect]]\nsubscriber = \"more\"\nmade = 3\ndelay_p99 = \"1h\"\n\
               [[expect]]\nsubscriber = \"other\"\nchanged = \"..3\"\n";
    let met = run(all, &[]);
    assert!(met.status.success(), "{met:?}");
    for part in
        ["ok    less\n", "without an expectation, unchanged: same\n", "3 expectations: 3 ok, 0 failed\n"]
    {
        assert!(text(&met.stdout).contains(part), "{part}: {met:?}");
    }

    let unmet = run(&all.replace("made = 3", "made = \"..2\""), &[]);
    assert_eq!(unmet.status.code(), Some(1));
    let line = format!("made is 3, expected at most 2  {file}:7\n");
    assert!(text(&unmet.stdout).contains(&line), "{unmet:?}");
    assert!(text(&unmet.stderr).contains("meet the expectations: 1 of 3 failed"), "{unmet:?}");

    let junit = run("[[expect]]\nsubscriber = \"less\"\nmade = 1\n", &["--format", "junit"]);
    assert_eq!(junit.status.code(), Some(1));
    for part in [
        "<testcase classname=\"less\" name=\"replay\" file=",
        "line=\"1\"/>",
        "<failure message=\"made 3, then 0; it has no expectation\">",
        "<testsuite name=\"other\" tests=\"1\" failures=\"1\">",
    ] {
        assert!(text(&junit.stdout).contains(part), "{part}: {junit:?}");
    }

    let wrong = run("[[expect]]\nsubscriber = \"lesss\"\nmad = 1\n", &[]);
    assert_eq!(wrong.status.code(), Some(1));
    for part in ["expect.toml:2:14", "did you mean `less`?", "expect.toml:3:1", "did you mean `made`?"] {
        assert!(text(&wrong.stdout).contains(part), "{part}: {wrong:?}");
    }
    let alone = home.run(&["replay", "--format", "junit"]);
    assert_eq!(alone.status.code(), Some(2), "{alone:?}");
}

#[test]
fn an_endless_text_stops_its_subscriber_alone() {
    let home = home(&before());
    let daemon = home.serve();
    play(&home);
    daemon.stop();
    let endless = "{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}";
    let new =
        folder(&home, &[subscriber("other", endless, ""), subscriber("same", "same: {{ payload.n }}", "")]);
    let new = new.display().to_string();
    let shown = home.print(&["replay", "--config", &new]);
    assert!(shown.contains("other was stopped at record "), "{shown}");
    let tried = compared(&home, &["--config", &new]);
    assert_eq!(tried["stopped"][0]["subscriber"], "other");
    let now = numbers(&tried, "now");
    assert_eq!((now["other"][0], now["same"][0]), (1, 3), "{tried}");
}

#[test]
fn damage_is_named_with_its_file_and_offset() {
    let home = home(&before());
    let daemon = home.serve();
    play(&home);
    daemon.stop();
    let file = home.state().join("journal/00000000000000000001.seg");
    let mut bytes = fs::read(&file).expect("read");
    let at = bytes.windows(9).position(|part| part == b"plant.oth").expect("an event");
    bytes[at] ^= 1;
    fs::write(&file, bytes).expect("written");
    let failed = home.run(&["replay"]);
    assert_eq!(failed.status.code(), Some(1));
    for part in ["the record at byte ", "00000000000000000001.seg", "`aside journal verify`"] {
        assert!(text(&failed.stderr).contains(part), "{part}: {failed:?}");
    }
    let empty = Home::new().run(&["replay"]);
    assert!(text(&empty.stderr).contains("find a journal in"), "{empty:?}");
}

#[test]
fn without_rules_the_ledger_says_what_was_then() {
    let home = home(&before());
    let daemon = home.serve();
    play(&home);
    let rules = home.state().join("rules");
    let hash = fs::read_to_string(rules.join("current.hash")).expect("the hash of the rules in force");
    after().iter().for_each(|(name, text)| home.configure(name, text));
    home.print(&["reload"]);
    play(&home);
    let whole = compared(&home, &[]);
    eventually("the history has it all", || {
        let shown = home.print(&["history", "--notifications", "--limit", "1000", "--json"]);
        let page: Value = serde_json::from_str(&shown).ok()?;
        let made = page["notifications"].as_array()?.len();
        (u64::try_from(made).ok() == whole["all"]["then"]["made"].as_u64()).then_some(())
    });
    daemon.stop();
    let whole = compared(&home, &[]);
    fs::remove_file(rules.join(format!("{hash}.json"))).expect("removed");
    let before = content(&home.state());
    let lost = compared(&home, &[]);
    assert!(content(&home.state()) == before, "nothing is written");
    assert_eq!(lost["lost_rules"][0]["hash"], hash.as_str());
    assert_eq!((&lost["subscribers"], &lost["texts"]), (&whole["subscribers"], &whole["texts"]));
    let shown = home.print(&["replay"]);
    assert!(shown.contains("are gone: then is from the ledger alone"), "{shown}");
}

fn at(second: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + second * 1_000)
}

fn event(number: u64) -> Event {
    Event {
        id: format!("e{number}").into(),
        event_type: "task.failed".parse().expect("a type"),
        source: "tests".into(),
        provenance: Provenance::Local,
        severity: Severity::Error,
        timestamp: at(number),
        payload: Payload::from(json!({ "task": format!("t{number}") })),
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

fn replayed(
    state: &Path,
    since: Option<Timestamp>,
) -> (aside::comparison::Outcome, aside::daemon::rerun::Extent) {
    let (sources, subscribers) = (Sources::shipped(), &[][..]);
    rerun(&Request { state, sources, subscribers, since, until: None }).expect("it is replayed")
}

#[test]
fn end_of_retention_is_named() {
    let home = Home::new();
    let hash = RulesStore::new(&home.state()).keep(&Sources::shipped()).expect("kept");
    let files = Arc::new(DirFiles::new(&home.state().join("journal")).expect("a folder"));
    let preface = Some(RecordKind(records::RULES));
    let settings =
        JournalSettings { segment_bytes: 4_096, seal: false, preface, ..JournalSettings::default() };
    let journal = Journal::open(files, settings, Arc::new(|| at(0)), &|_| None).expect("opened").journal;
    let append = |kind: u8, write: &dyn Fn(&mut Vec<u8>)| {
        let mut body = Vec::new();
        write(&mut body);
        let batch = AppendBatch::of(RecordKind(kind), &body, None).expect("small");
        journal.append_blocking(batch, Level::Synced).expect("appended");
    };
    append(records::RULES, &|body| records::encode_rules(&hash, body));
    for number in 0..90 {
        append(records::EVENT, &|body| records::encode_event(&event(number).as_ref(), body));
    }
    assert!(journal.forget_before(Seq(40)).expect("deleted") > 0);
    journal.close_blocking().expect("closed");
    let (outcome, extent) = replayed(&home.state(), None);
    assert!(extent.first > Seq(1) && outcome.rows.iter().all(Row::is_unchanged), "{extent:?}");
    let shown = home.print(&["replay"]);
    let note = format!("the journal begins with record {}, ", extent.first);
    assert!(
        shown.contains(&note) && shown.contains("conditions and batches of before are unknown"),
        "{shown}"
    );
}

/// Copies what a test kept in memory into a state folder.
fn write_state(files: &MemoryFiles, state: &TempDir) {
    for name in files.list().expect("listed") {
        let folder = state.path().join(if name.ends_with(".snap") { "snapshots" } else { "journal" });
        fs::create_dir_all(&folder).expect("a folder");
        let file = files.open(&name).expect("there");
        let mut bytes = vec![0; usize::try_from(file.size().expect("sized")).expect("small")];
        file.read_at(&mut bytes, 0).expect("read");
        fs::write(folder.join(name), bytes).expect("written");
    }
}

#[test]
fn a_replay_begins_with_the_snapshot_before_it() {
    let state = tempfile::tempdir().expect("a folder");
    let hash = RulesStore::new(state.path()).keep(&Sources::shipped()).expect("kept");
    let files = MemoryFiles::new();
    let (disk, fold) = Disk::open(&files, 1 << 20, state.path()).expect("opened");
    let mut daemon = Daemon::start(disk, fold, at(0)).expect("started");
    let rules = Append::of(records::RULES, Level::Synced, at(0), |body| records::encode_rules(&hash, body));
    daemon.append(rules).expect("appended");
    let exchange = |number: u64, second: u64| {
        let carrier = format!("c{number}");
        let exchange = Exchange::new(SessionId::new("s"), InjectionPoint::TurnStart, &carrier);
        let body = |body: &mut Vec<u8>| records::encode_exchange(RequestId(number), &exchange, body);
        Append::of(records::EXCHANGE, Level::Synced, at(second), body)
    };
    let publish = |daemon: &mut Daemon, number: u64| {
        daemon.append(Append::events([&event(number)], Level::Synced, at(number))).expect("appended");
        daemon.pass(at(number + 5), |_, _| {}).expect("appended");
    };
    publish(&mut daemon, 10);
    daemon.take_snapshot(at(20), |_, _| {}).expect("appended");
    let snapshot = daemon.fold.applied;
    publish(&mut daemon, 30);
    // The process ends before it answers this one.
    daemon.append(exchange(1, 40)).expect("appended");
    daemon.disk().journal.close_blocking().expect("closed");
    let (disk, fold) = Disk::open(&files, 1 << 20, state.path()).expect("opened");
    let mut daemon = Daemon::start(disk, fold, at(41)).expect("started");
    daemon.append(exchange(2, 50)).expect("appended");
    daemon.catch_up(at(50), |_, _| {}).expect("appended");
    daemon.disk().journal.close_blocking().expect("closed");
    write_state(&files, &state);

    let (whole, extent) = replayed(state.path(), None);
    assert_eq!((extent.snapshot, extent.exchanges), (None, 2));
    assert!(whole.rows.iter().all(Row::is_unchanged), "{whole:#?}");
    assert_eq!((whole.all.then.made, whole.all.then.delivered), (2, 2), "{whole:#?}");
    assert_eq!((whole.lost_texts, whole.gained_texts), (0, 0));
    let (later, extent) = replayed(state.path(), Some(at(25)));
    assert_eq!((extent.snapshot, extent.events), (Some(snapshot), 1));
    assert!(later.rows.iter().all(Row::is_unchanged), "{later:#?}");
    assert_eq!((later.all.then.made, later.all.then.delivered), (1, 2), "{later:#?}");
    let (earlier, extent) = replayed(state.path(), Some(at(5)));
    assert_eq!((extent.snapshot, earlier.all), (None, whole.all));
}
