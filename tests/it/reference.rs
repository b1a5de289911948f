//! A journal of 100,000 generated events leads to exactly the notifications that a naive reference
//! computes.
//!
//! The reference has no state machine: for each subscriber and scope it scans the list of all
//! events repeatedly, with the rules of dedupe, batches and limits as plain loops.

use std::{collections::BTreeMap, path::Path, time::Duration};

use aside::{
    config::layers::{LayerKind, SourceFile, Sources},
    daemon::rules::RulesStore,
};
use engine::{
    Output,
    event::{EventRef, Seq, Severity},
    ledger::LedgerEntry,
    records,
};
use journal::{Level, memory::MemoryFiles, time::Timestamp};
use tempfile::TempDir;

use crate::support::event_loop::{Append, Disk};

const EVENTS: u64 = 100_000;
/// About a dozen segments, so that reads cross their borders.
const SEGMENT_BYTES: u64 = 1 << 20;

/// Window batches with dedupe, quiet batches by group, and one notification per event with a
/// condition.
const SUBSCRIBERS: [(&str, &str); 3] = [
    (
        "failures",
        r#"
[subscriber]
id = "failures"
[events]
types = ["tool.call.*"]
severity_filter = "warning"
[batching]
window_ms = 2000
max_size = 10
dedupe_key = "type:payload.tool"
dedupe_window_ms = 5000
[output]
priority = "high"
"#,
    ),
    (
        "files",
        r#"
[subscriber]
id = "files"
[events]
types = ["fs.**"]
[batching]
window_ms = 500
max_size = 5
mode = "debounce"
max_wait_ms = 3000
group_by = "payload.tool"
"#,
    ),
    (
        "large",
        r#"
[subscriber]
id = "large"
[events]
types = ["**"]
where = "payload.n > 95"
[batching]
window_ms = 0
"#,
    ),
];

const TYPES: [(&str, Severity); 5] = [
    ("tool.call.failure", Severity::Error),
    ("tool.call.timeout", Severity::Warning),
    ("tool.call.success", Severity::Debug),
    ("fs.file.modified", Severity::Info),
    ("ci.check.passed", Severity::Info),
];
const TOOLS: [&str; 6] = ["grep", "bash", "read", "write", "fetch", "edit"];
const SCOPES: [Option<&str>; 4] = [None, Some("s1"), Some("s2"), Some("s3")];

#[derive(Debug, Clone)]
struct Generated {
    number: u64,
    at: u64,
    id: String,
    event_type: &'static str,
    severity: Severity,
    session: Option<&'static str>,
    tool: &'static str,
    n: u64,
    payload: String,
}

/// A notification in both computations: subscriber, scope, time of creation, and its rows' events.
type Made = (&'static str, Option<&'static str>, u64, Vec<u64>);

/// A small random generator, so that the events are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.below(u64::try_from(all.len()).expect("a short list"));
        *all.get(usize::try_from(index).expect("a short list")).expect("below the length")
    }
}

fn generate() -> Vec<Generated> {
    let mut numbers = Numbers(7);
    let mut at = 1_000_000;
    (1..=EVENTS)
        .map(|number| {
            at += if numbers.below(50) == 0 { numbers.below(6_000) } else { numbers.below(120) };
            let (event_type, severity) = numbers.one_of(&TYPES);
            let (tool, n) = (numbers.one_of(&TOOLS), numbers.below(100));
            Generated {
                number,
                at,
                id: format!("e{number}"),
                event_type,
                severity,
                session: numbers.one_of(&SCOPES),
                tool,
                n,
                payload: format!(r#"{{"tool":"{tool}","n":{n}}}"#),
            }
        })
        .collect()
}

impl Generated {
    fn as_event(&self) -> EventRef<'_> {
        EventRef {
            id: &self.id,
            event_type: self.event_type,
            source: "generator",
            provenance: engine::event::Provenance::Harness,
            severity: self.severity,
            timestamp: Timestamp::from_millis(self.at),
            payload: &self.payload,
            dedupe_key: None,
            session: self.session,
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }
}

/// The engine's notifications for a journal with these events, and the number of repeats that it
/// counted.
///
/// The journal is written, closed, and read again from its first record, as a start after a crash
/// does.
fn by_journal(events: &[Generated]) -> (Vec<Made>, u64) {
    let sources = Sources::new(SUBSCRIBERS.iter().map(|(id, text)| SourceFile {
        layer: LayerKind::User,
        name: format!("subscribers/{id}.toml").into(),
        path: format!("{id}.toml").into(),
        text: (*text).into(),
    }));
    let state = TempDir::new().expect("a temporary folder");
    RulesStore::new(state.path()).keep(&sources).expect("kept");
    let files = MemoryFiles::new();
    write_journal(&files, &sources, events, state.path());

    let (disk, mut fold) =
        Disk::open(&files.after_kill(), SEGMENT_BYTES, state.path()).expect("opened again");
    let mut reader = disk.journal.read_from(Seq(1));
    let mut made = Vec::new();
    while reader.position() <= *disk.journal.written().borrow() {
        for found in reader.next_batch(1_024).expect("readable").iter() {
            fold.apply(&found).expect("applied");
            while let Some(output) = fold.engine.poll_output() {
                made.extend(as_made(output, events));
            }
        }
    }
    let ended = fold.engine.tally().subscribers.values();
    let repeats = ended.filter_map(|counts| counts.events_ended.get("duplicate")).sum();
    made.sort();
    (made, repeats)
}

/// The rules are the first record, so an event's position is its number plus one; a tick long after
/// the last event closes all open batches.
fn write_journal(files: &MemoryFiles, sources: &Sources, events: &[Generated], state: &Path) {
    let (disk, _) = Disk::open(files, SEGMENT_BYTES, state).expect("opened");
    let append = |kind, at, write: &dyn Fn(&mut Vec<u8>)| {
        disk.append(&Append::of(kind, Level::Written, at, write)).expect("appended");
    };
    append(records::RULES, Timestamp::ZERO, &|body| records::encode_rules(&sources.hash(), body));
    for event in events {
        let at = Timestamp::from_millis(event.at);
        append(records::EVENT, at, &|body| records::encode_event(&event.as_event(), body));
    }
    let last = Timestamp::from_millis(events.last().expect("there are events").at);
    append(records::TICK, last + Duration::from_secs(60), &records::encode_bare);
    disk.journal.close_blocking().expect("closed");
}

fn as_made(output: Output, events: &[Generated]) -> Option<Made> {
    let Output::Record(LedgerEntry::Created { subscriber, events: rows, created_at, .. }) = output else {
        return None;
    };
    let id = SUBSCRIBERS.iter().find(|(id, _)| *id == subscriber.as_str()).expect("one of ours").0;
    let rows: Vec<u64> = rows.iter().map(|seq| seq.0 - 1).collect();
    let first = rows.first().and_then(|number| events.get(usize::try_from(number - 1).ok()?));
    let session = first.expect("a notification has rows, and they are of our events").session;
    Some((id, session, created_at.as_millis(), rows))
}

/// The same as [`by_journal`], by scanning.
fn by_reference(events: &[Generated]) -> (Vec<Made>, u64) {
    let mut made = Vec::new();
    let mut repeats = 0;
    for session in SCOPES {
        let own: Vec<&Generated> = events.iter().filter(|event| event.session == session).collect();
        let failing: Vec<_> = own
            .iter()
            .copied()
            .filter(|event| event.event_type.starts_with("tool.call.") && event.severity >= Severity::Warning)
            .collect();
        let firsts = firsts(&failing);
        repeats += u64::try_from(failing.len() - firsts.len()).expect("a small number");
        made.extend(windows(&firsts).into_iter().map(|(at, rows)| ("failures", session, at, rows)));

        let mut groups: BTreeMap<&str, Vec<&Generated>> = BTreeMap::new();
        for event in own.iter().filter(|event| event.event_type.starts_with("fs.")) {
            groups.entry(event.tool).or_default().push(event);
        }
        for group in groups.values() {
            made.extend(quiet_batches(group).into_iter().map(|(at, rows)| ("files", session, at, rows)));
        }

        let large = own.iter().filter(|event| event.n > 95);
        made.extend(large.map(|event| ("large", session, event.at, vec![event.number])));
    }
    made.sort();
    (made, repeats)
}

/// The events that are not repeats: no earlier event in the result has the same key and is less
/// than five seconds older.
fn firsts<'e>(events: &[&'e Generated]) -> Vec<&'e Generated> {
    let mut firsts: Vec<&Generated> = Vec::new();
    for event in events {
        let is_repeat = firsts
            .iter()
            .rev()
            .take_while(|first| event.at - first.at < 5_000)
            .any(|first| (first.event_type, first.tool) == (event.event_type, event.tool));
        if !is_repeat {
            firsts.push(event);
        }
    }
    firsts
}

fn windows(events: &[&Generated]) -> Vec<(u64, Vec<u64>)> {
    let mut batches = Vec::new();
    let mut rest = events;
    while let Some(first) = rest.first() {
        let end = first.at + 2_000;
        let inside = rest.iter().take(10).take_while(|event| event.at < end).count();
        let (batch, later) = rest.split_at(inside);
        let closed_at = batch.get(9).map_or(end, |last| last.at);
        batches.push((closed_at, batch.iter().map(|event| event.number).collect()));
        rest = later;
    }
    batches
}

fn quiet_batches(events: &[&Generated]) -> Vec<(u64, Vec<u64>)> {
    let mut batches = Vec::new();
    let mut rest = events;
    while let Some(first) = rest.first() {
        let latest = first.at + 3_000;
        let (mut inside, mut end) = (1, (first.at + 500).min(latest));
        while inside < 5
            && let Some(event) = rest.get(inside).filter(|event| event.at < end)
        {
            end = (event.at + 500).min(latest);
            inside += 1;
        }
        let (batch, later) = rest.split_at(inside);
        let closed_at = batch.get(4).map_or(end, |last| last.at);
        batches.push((closed_at, batch.iter().map(|event| event.number).collect()));
        rest = later;
    }
    batches
}

#[test]
fn journal_outcome_matches_naive_reference_for_100000_events() {
    let events = generate();
    let (made, repeats) = by_journal(&events);
    let (expected, expected_repeats) = by_reference(&events);
    assert!(expected.len() > 10_000, "{} notifications are too few to mean much", expected.len());
    assert_eq!(made.len(), expected.len());
    for (made, expected) in made.iter().zip(&expected) {
        assert_eq!(made, expected);
    }
    assert_eq!(repeats, expected_repeats);
}
