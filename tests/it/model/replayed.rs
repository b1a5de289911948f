//! `aside replay` of random timelines: with the rules of their time nothing changes, and with others
//! what is made is what a new engine makes.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use aside::{
    comparison::{Outcome, Row},
    daemon::{
        rerun::{Extent, Request, rerun},
        rules::RulesStore,
    },
};
use engine::{
    Engine, Input, Output, RequestId, exchange::ReleaseRecord, ledger::ConfirmedBy, records, user::OWN_USER,
};
use journal::{AppendBatch, Journal, JournalSettings, Level, RecordKind, files::DirFiles, time::Timestamp};
use proptest::prelude::*;
use tempfile::TempDir;

use super::{Content, Record, STEPS_MAX, Step, recorded};
use crate::{
    model::timeline::{What, timelines},
    support::{generations, random::fixed_cases},
};

const CASES: u32 = 64;

/// The records of a timeline under the rules of one generation, which come first.
fn of_generation(steps: &[Step], generation: usize) -> Vec<Record> {
    let rules = Step { after_ms: 0, what: What::Rules { generation } };
    let others = steps.iter().filter(|step| !matches!(step.what, What::Rules { .. })).cloned();
    recorded(&std::iter::once(rules).chain(others).collect::<Vec<_>>())
}

/// How many notifications an engine makes of the records with these rules, and what it releases.
fn played(records: &[Record], generation: usize) -> (u64, Vec<ReleaseRecord>) {
    let mut engine = Engine::new(generations::rules(0));
    let (mut made, mut releases) = (0, Vec::new());
    for record in records {
        let input = if matches!(record.content, Content::Rules(_)) {
            Input::RulesReplaced(generations::rules(generation))
        } else {
            record.input()
        };
        engine.handle(input, record.at);
        while let Some(output) = engine.poll_output() {
            made += u64::from(matches!(output, Output::Made(_)));
            if let Output::Answer { released: Some(release), .. } = output {
                releases.push(release);
            }
        }
    }
    (made, releases)
}

fn encode(record: &Record) -> (u8, Vec<u8>) {
    let mut body = Vec::new();
    let kind = match &record.content {
        Content::Event(event) => {
            records::encode_event(&event.as_ref(), &mut body);
            records::EVENT
        }
        Content::Exchange(exchange) => {
            records::encode_exchange(RequestId(record.seq.0), exchange, &mut body);
            records::EXCHANGE
        }
        Content::Ack(session, injection) => {
            records::encode_ack(session, injection, ConfirmedBy::Seen, &mut body);
            records::ACK
        }
        Content::Undelivered(session, injection) => {
            records::encode_undelivered(session, injection, &mut body);
            records::UNDELIVERED
        }
        Content::Opened(session, harness) => {
            records::encode_session_opened(session, harness, &mut body);
            records::SESSION_OPENED
        }
        Content::Closed(session, true) => {
            records::encode_session_suspended(session, &mut body);
            records::SESSION_CLOSED
        }
        Content::Closed(session, false) => {
            records::encode_session_ended(session, &mut body);
            records::SESSION_CLOSED
        }
        Content::Rules(generation) => {
            records::encode_rules(&generations::sources(*generation).hash(), &mut body);
            records::RULES
        }
        Content::Silence(silence) => {
            records::encode_silence(silence, &mut body);
            records::SILENCE
        }
        Content::SilenceEnd(id) => {
            records::encode_silence_end(&[*id], &mut body);
            records::SILENCE_END
        }
        Content::Responded(notification, response) => {
            records::encode_response(notification, response, &mut body);
            records::RESPONSE
        }
        Content::Settings(settings) => {
            records::encode_settings(OWN_USER, settings, &mut body);
            records::SETTINGS
        }
        Content::Tick => {
            records::encode_bare(&mut body);
            records::TICK
        }
        Content::ShuttingDown => {
            records::encode_bare(&mut body);
            records::SHUTTING_DOWN
        }
    };
    (kind, body)
}

/// A state folder with these records and, after them, the releases of their exchanges.
fn state(records: &[Record], releases: &[ReleaseRecord]) -> TempDir {
    let state = tempfile::tempdir().expect("a folder");
    for generation in 0..generations::GENERATIONS {
        RulesStore::new(state.path()).keep(&generations::sources(generation)).expect("kept");
    }
    let now = Arc::new(AtomicU64::new(0));
    let read = Arc::clone(&now);
    let clock = Arc::new(move || Timestamp::from_millis(read.load(Ordering::SeqCst)));
    let files = Arc::new(DirFiles::new(&state.path().join("journal")).expect("a folder"));
    let settings = JournalSettings { segment_bytes: 1 << 20, seal: false, ..JournalSettings::default() };
    let journal = Journal::open(files, settings, clock, &|_| None).expect("opened").journal;
    let append = |kind: u8, body: &[u8]| {
        let batch = AppendBatch::of(RecordKind(kind), body, None).expect("small");
        journal.append_blocking(batch, Level::Written).expect("appended");
    };
    for record in records {
        now.store(record.at.as_millis(), Ordering::SeqCst);
        let (kind, body) = encode(record);
        append(kind, &body);
        assert_eq!(*journal.written().borrow(), record.seq);
    }
    for release in releases {
        let mut body = Vec::new();
        records::encode_released(release, &mut body);
        append(records::RELEASED, &body);
    }
    journal.close_blocking().expect("closed");
    state
}

fn replayed(state: &TempDir, generation: usize) -> (Outcome, Extent) {
    let request = Request {
        state: state.path(),
        sources: generations::sources(generation),
        subscribers: &[],
        since: None,
        until: None,
    };
    rerun(&request).expect("it is replayed")
}

proptest! {
    #![proptest_config(fixed_cases(CASES, 3))]

    #[test]
    fn replay_with_the_same_rules_changes_nothing(timeline in timelines(STEPS_MAX), other in 1..generations::GENERATIONS) {
        let records = of_generation(&timeline.0, 0);
        let (made, releases) = played(&records, 0);
        let state = state(&records, &releases);
        let (outcome, extent) = replayed(&state, 0);
        prop_assert!(outcome.rows.iter().all(Row::is_unchanged), "{outcome:#?}");
        prop_assert_eq!(&outcome.differences, &[]);
        prop_assert_eq!((outcome.lost_texts, outcome.gained_texts), (0, 0));
        prop_assert_eq!((outcome.all.then.made, extent.lost.len()), (made, 0));

        let (outcome, extent) = replayed(&state, other);
        prop_assert_eq!(outcome.all.then.made, made);
        prop_assert_eq!(outcome.all.now.made, played(&records, other).0);
        prop_assert_eq!((outcome, extent), replayed(&state, other));
    }
}
