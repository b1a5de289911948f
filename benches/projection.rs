//! What does the history cost per event, and how fast is it rebuilt from the journal?
//!
//! `cargo bench --bench all -- projection`, or with `--quick` for a size that only shows that it works.
//! A journal in memory has events of about 400 bytes of which 1 in 20 matches a subscriber, and an
//! exchange every 1,000. It is folded without notes, with notes, and with notes that are written;
//! the three alternate. Time is the CPU time of this thread.

use std::{path::Path, sync::Arc};

use engine::{
    RequestId,
    event::{EventRef, Seq, SessionId, Severity},
    exchange::Exchange,
    notes::Notes,
    notification::InjectionPoint,
    records,
};

use crate::support::{Size, machine, quantile};
use aside::{
    config::layers::{LayerKind, SourceFile, Sources},
    daemon::{fold::Fold, rules::RulesStore},
    history::Writer,
};
use journal::{
    AppendBatch, Journal, JournalSettings, Level, RecordKind, memory::MemoryFiles, time::Timestamp,
};
use rustix::time::{ClockId, clock_gettime};

const EVENTS: usize = 200_000;
/// One in so many events matches.
const MATCHING: usize = 20;
/// One in so many records is an exchange.
const EXCHANGING: usize = 1_000;
/// Records of a slice, and so of a hand-over and a commit.
const SLICE: usize = 1_000;

const SUBSCRIBER: &str = "[subscriber]\nid = \"hot\"\n[events]\ntypes = [\"bench.hot\"]\n[batching]\nwindow_ms = 2000\nmax_size = 10\n";

/// The use of the notes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    None,
    Taken,
    Written,
}

pub(crate) fn run(size: Size, _: &[String]) {
    let events = size.scale(EVENTS, 50);
    let folder = tempfile::tempdir().expect("a folder");
    let journal = journal(folder.path(), events);
    let rounds = [Kind::None, Kind::Taken, Kind::Written];
    let mut costs: [Vec<f64>; 3] = Default::default();
    for _ in 0..=size.rounds() {
        for (kind, costs) in rounds.iter().zip(&mut costs) {
            costs.push(fold(&journal, folder.path(), *kind) / events as f64);
        }
    }
    println!("{}", machine());
    println!("{} rounds of {events} events, 1 in {MATCHING} matches, medians", size.rounds());
    println!("| | us an event | least | most |");
    println!("|---|---|---|---|");
    for (name, costs) in ["fold", "fold, noting", "fold, noting and writing"].iter().zip(&costs) {
        // The first round warms up.
        let measured = costs.get(1..).unwrap_or_default();
        let [least, middle, most] = [0.0, 0.5, 1.0].map(|at| quantile(measured, at));
        println!("| {name} | {middle:.2} | {least:.2} | {most:.2} |");
    }
}

fn journal(folder: &Path, events: usize) -> Journal {
    let file = SourceFile {
        layer: LayerKind::User,
        name: "subscribers/hot.toml".into(),
        path: "hot.toml".into(),
        text: SUBSCRIBER.into(),
    };
    let sources = Sources::new([file]);
    RulesStore::new(folder).keep(&sources).expect("kept");
    let clock = Arc::new(|| Timestamp::from_millis(1_700_000_000_000));
    let opened = Journal::open(Arc::new(MemoryFiles::new()), JournalSettings::default(), clock, &|_| None)
        .expect("opened");
    let append = |batch| opened.journal.append_blocking(batch, Level::Written).expect("appended");
    let mut batch = AppendBatch::new();
    batch
        .push_with(RecordKind(records::RULES), None, |body| records::encode_rules(&sources.hash(), body))
        .expect("small");
    append(batch);
    for first in (0..events).step_by(SLICE) {
        let mut batch = AppendBatch::new();
        for number in first..(first + SLICE).min(events) {
            if number % EXCHANGING == 0 {
                let exchange =
                    Exchange::new(SessionId::new("s1"), InjectionPoint::TurnStart, &number.to_string());
                let write = |body: &mut Vec<u8>| {
                    records::encode_exchange(RequestId(1), &exchange, body);
                };
                batch.push_with(RecordKind(records::EXCHANGE), None, write).expect("small");
            }
            let (id, payload) = (format!("e{number}"), format!(r#"{{"n":{number},"text":"{:0300}"}}"#, 0));
            let write = |body: &mut Vec<u8>| records::encode_event(&event(number, &id, &payload), body);
            batch.push_with(RecordKind(records::EVENT), None, write).expect("small");
        }
        append(batch);
    }
    opened.journal
}

fn event<'a>(number: usize, id: &'a str, payload: &'a str) -> EventRef<'a> {
    EventRef {
        id,
        event_type: if number.is_multiple_of(MATCHING) { "bench.hot" } else { "bench.cold" },
        source: "bench",
        provenance: engine::event::Provenance::Harness,
        severity: Severity::Warning,
        timestamp: Timestamp::from_millis(1_700_000_000_000),
        payload,
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

/// Folds the journal; returns the microseconds of this thread's CPU time.
fn fold(journal: &Journal, folder: &Path, kind: Kind) -> f64 {
    let path = folder.join("projection.db");
    Writer::delete(&path).expect("deleted");
    let mut writer = Writer::open(&path).expect("opened");
    let begin = cpu_micros();
    let mut fold = Fold::new(RulesStore::new(folder));
    fold.notes = (kind != Kind::None).then(Notes::default);
    let mut reader = journal.read_from(Seq(1));
    loop {
        let before = fold.applied;
        for found in reader.next_batch(SLICE).expect("readable").iter() {
            fold.apply(&found).expect("applied");
            while fold.poll_output().is_some() {}
        }
        if fold.applied == before {
            return cpu_micros() - begin;
        }
        let notes = fold.notes.as_mut().map(Notes::hand_over);
        if kind == Kind::Written {
            writer.write(notes.as_slice()).expect("written");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn cpu_micros() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
