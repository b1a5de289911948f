use std::sync::atomic::Ordering;

use super::*;
use crate::testing::*;
use crate::{
    Journal, Outcome,
    log::{
        files::Files,
        memory::{Faults, MemoryFiles},
    },
};

#[test]
fn rotated_segments_are_named_by_their_first_record() {
    let files = MemoryFiles::new();
    let journal = open(&files).journal;
    for number in 1..=40 {
        journal.append_blocking(batch(number), Level::Synced).expect("appended");
    }
    journal.close_blocking().expect("closed");
    let firsts: Vec<u64> = files.list().expect("listed").iter().filter_map(|name| first_of(name)).collect();
    assert!(firsts.len() > 4, "{firsts:?}");
    for first in firsts {
        let file = files.open(&format!("{first:020}.seg")).expect("there");
        let mut head = [0; 26];
        file.read_at(&mut head, HEADER_BYTES).expect("read");
        assert_eq!(u64::from_le_bytes(head[10..18].try_into().expect("eight bytes")), first);
        assert_eq!(file.size().expect("sized"), SEGMENT_BYTES);
    }
    assert_eq!(numbers(&open(&files).journal), (1..=40).collect::<Vec<_>>());
}

#[test]
fn oversized_record_gets_its_own_segment() {
    let files = MemoryFiles::new();
    let journal = open(&files).journal;
    let large = vec![b'x'; 2 * usize::try_from(SEGMENT_BYTES).expect("small")];
    let batch_with = |body: &[u8]| AppendBatch::of(RecordKind(2), body, None).expect("small");
    for body in [b"a".as_slice(), &large, b"b", &large, &large, b"c"] {
        journal.append_blocking(batch_with(body), Level::Synced).expect("appended");
    }
    let lengths = |journal: &Journal| {
        read_all(journal, Seq(1)).iter().map(|record| record.body.len()).collect::<Vec<_>>()
    };
    assert_eq!(lengths(&journal), [1, 800, 1, 800, 800, 1]);
    journal.close_blocking().expect("closed");
    let settings = crate::JournalSettings { segment_bytes: SEGMENT_BYTES, ..Default::default() };
    let again =
        Journal::open(Arc::new(files), settings, Arc::new(|| Timestamp::ZERO), &|_| None).expect("opened");
    assert_eq!(lengths(&again.journal), [1, 800, 1, 800, 800, 1]);
}

#[test]
fn batch_larger_than_a_group_keeps_record_order() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, 16 << 20);
    let mut batch = AppendBatch::new();
    for at in 0..9 {
        batch.push(RecordKind(at), &vec![at; record::BODY_BYTES_MAX], None).expect("fits");
    }
    let appended = journal.append_blocking(batch, Level::Written).expect("appended");
    assert_eq!((appended.first(), appended.last()), (Some(Seq(1)), Some(Seq(9))));
    let kinds: Vec<u8> = read_all(&journal, Seq(1)).iter().map(|record| record.kind.0).collect();
    assert_eq!(kinds, (0..9).collect::<Vec<_>>());
}

#[test]
fn time_never_steps_back_also_over_a_restart() {
    let files = MemoryFiles::new();
    let (millis, clock) = set_clock();
    let times_at = |readings: &[u64]| {
        let opened = open_with(&files, SEGMENT_BYTES, Durability::Sync, Arc::clone(&clock)).expect("opened");
        for reading in readings {
            millis.store(*reading, Ordering::SeqCst);
            let number = opened.journal.written().borrow().0 + 1;
            opened.journal.append_blocking(batch(number), Level::Written).expect("appended");
        }
        opened.journal.close_blocking().expect("closed");
        let records = read_all(&opened.journal, Seq(1));
        (
            opened.last_time.as_millis(),
            records.iter().map(|record| record.time.as_millis()).collect::<Vec<_>>(),
        )
    };
    assert_eq!(times_at(&[100, 50, 200]), (0, vec![100, 100, 200]));
    assert_eq!(times_at(&[10, 201]), (200, vec![100, 100, 200, 200, 201]));
}

#[test]
fn duplicate_publish_returns_first_position_after_a_restart() {
    use Outcome::{Appended, Duplicate};

    let files = MemoryFiles::new();
    let outcomes = |journal: &Journal, numbers: &[u64]| {
        let batch = batch_of(numbers.iter().copied());
        journal.append_blocking(batch, Level::Synced).expect("appended").outcomes().collect::<Vec<_>>()
    };
    let journal = open(&files).journal;
    assert_eq!(outcomes(&journal, &[7, 8, 7]), [Appended(Seq(1)), Appended(Seq(2)), Duplicate(Seq(1))]);
    assert_eq!(outcomes(&journal, &[8, 9]), [Duplicate(Seq(2)), Appended(Seq(3))]);
    assert_eq!(outcomes(&journal, &(10..40).collect::<Vec<_>>()).len(), 30);
    journal.close_blocking().expect("closed");
    let again = open(&files).journal;
    assert_eq!(outcomes(&again, &[9, 41, 39]), [Duplicate(Seq(3)), Appended(Seq(34)), Duplicate(Seq(33))]);
    assert_eq!(outcomes(&again, &[]), []);
}

#[test]
fn failed_write_stops_appends_but_not_reads() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, SEGMENT_BYTES);
    journal.append_blocking(batch(1), Level::Synced).expect("appended");
    files.set_faults(Faults { fail_write: Some(files.operations().writes + 1), ..Faults::default() });
    for _ in 0..2 {
        let error = journal.append_blocking(batch(2), Level::Written).expect_err("refused");
        let said = "the journal accepts no records since it failed to write memory/00000000000000000001.seg";
        assert_eq!(error.to_string(), said);
    }
    assert_eq!(numbers(&journal), [1]);
    assert!(journal.close_blocking().is_err());
    let again = open(&files.after_kill()).journal;
    again.append_blocking(batch(2), Level::Synced).expect("appended");
    assert_eq!(numbers(&again), [1, 2]);
}

#[test]
fn full_disk_refuses_publishing_first_and_later_recovers() {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, 4_096);
    files.set_space(Some(100));
    let fill = |from: u64, uses_reserve: bool| {
        (from..)
            .find_map(|number| {
                let batch = if uses_reserve { batch(number).with_reserve() } else { batch(number) };
                journal.append_blocking(batch, Level::Synced).err().map(|error| (number, error))
            })
            .expect("refused at last")
    };
    // Enough for the prepared segment; there is no space for the one after it.
    journal.append_blocking(batch_of(1..=100), Level::Synced).expect("appended");
    while journal.disk_full().is_none() {
        std::thread::yield_now();
    }
    let (refused, error) = fill(101, false);
    let said = "the disk is full: the journal needs 4096 bytes in memory/ for its next file; until there is space, the remaining room is for exchanges";
    assert_eq!((error.to_string().as_str(), journal.disk_full().is_some()), (said, true));
    let (refused_at_last, _) = fill(refused, true);
    assert!(refused_at_last > refused + 10, "{refused} {refused_at_last}");
    assert!(journal.poisoned().is_none());
    assert_eq!(numbers(&journal), (1..refused_at_last).collect::<Vec<_>>());
    for seed in 0..4 {
        let opened = open_with(&files.after_power_loss(seed), 4_096, Durability::Sync, set_clock().1);
        assert_eq!(opened.expect("opened").last_seq, Seq(refused_at_last - 1));
    }
    files.set_space(None);
    while journal.disk_full().is_some() {
        std::thread::yield_now();
    }
    journal.append_blocking(batch_of(refused_at_last..=500), Level::Synced).expect("appended");
    journal.close_blocking().expect("closed");
    assert_eq!(numbers(&open(&files).journal), (1..=500).collect::<Vec<_>>());
}

#[test]
fn full_disk_is_detected_early_and_allows_closing() {
    let files = MemoryFiles::new();
    open(&files).journal.close_blocking().expect("closed");
    files.set_space(Some(0));
    let journal = open(&files).journal;
    journal.append_blocking(batch_of(1..=5), Level::Synced).expect("there is room in the first segment");
    let left = files.after_kill();
    left.set_space(Some(0));
    for journal in [journal, open(&left).journal] {
        journal.prepare_next_file();
        while journal.disk_full().is_none() {
            std::thread::yield_now();
        }
        journal.close_blocking().expect("closed");
    }
    assert_eq!(files.list().expect("listed"), ["00000000000000000001.seg"]);
}

#[test]
fn closing_refuses_new_appends_and_syncs_earlier_ones() {
    let files = MemoryFiles::new();
    let journal = open(&files).journal;
    journal.append_blocking(batch(1), Level::Written).expect("appended");
    journal.close_blocking().expect("closed");
    journal.close_blocking().expect("closed already");
    let refused = journal.append_blocking(batch(2), Level::Written);
    assert!(matches!(refused, Err(AppendError::Closed)), "{refused:?}");
    assert_eq!(*journal.synced().borrow(), Seq(1));
    assert!((0..20).all(|seed| numbers(&open(&files.after_power_loss(seed)).journal) == [1]));
}

#[test]
fn the_last_handle_takes_the_threads_with_it() {
    let files = MemoryFiles::new();
    let journal = open(&files).journal;
    let mut reader = journal.read_from(Seq(1));
    drop(journal);
    let closed = crate::block_on(reader.wait());
    assert_eq!(closed, Err(crate::Closed));
}

fn first_of(name: &str) -> Option<u64> {
    crate::log::segment_file::first_of(name).map(|seq| seq.0)
}

mod preface {
    use std::sync::Arc;

    use crate::{
        AppendBatch, Journal, Level, Outcome, RecordBuf, Seq,
        log::{memory::MemoryFiles, record::RecordKind},
        settings::JournalSettings,
        time::Timestamp,
    };

    const RULES: RecordKind = RecordKind(7);
    const OTHER: RecordKind = RecordKind(1);

    fn open(files: &MemoryFiles) -> Journal {
        let settings = JournalSettings {
            segment_bytes: 4_096,
            seal: false,
            preface: Some(RULES),
            ..JournalSettings::default()
        };
        let clock = Arc::new(|| Timestamp::from_millis(7));
        Journal::open(Arc::new(files.clone()), settings, clock, &|_| None).expect("opened").journal
    }

    fn batch(kind: RecordKind, bodies: &[Vec<u8>]) -> AppendBatch {
        let mut batch = AppendBatch::new();
        for body in bodies {
            batch.push(kind, body, None).expect("small");
        }
        batch
    }

    fn records(journal: &Journal) -> Vec<RecordBuf> {
        let mut reader = journal.read_from(Seq(1));
        std::iter::from_fn(|| {
            let batch: Vec<_> =
                reader.next_batch(1_000).expect("readable").iter().map(RecordBuf::from).collect();
            (!batch.is_empty()).then_some(batch)
        })
        .flatten()
        .collect()
    }

    /// The kind and body of the first record of each segment except the first.
    fn beginnings(files: &MemoryFiles, journal: &Journal) -> Vec<(RecordKind, String)> {
        let records = records(journal);
        let mut firsts: Vec<u64> = crate::log::files::Files::list(files)
            .expect("listed")
            .iter()
            .filter_map(|name| name.strip_suffix(".seg")?.parse().ok())
            .collect();
        firsts.sort_unstable();
        let of = |first: &u64| {
            let record = records.iter().find(|record| record.seq == Seq(*first))?;
            Some((record.kind, String::from_utf8_lossy(&record.body).into_owned()))
        };
        firsts.iter().skip(1).filter_map(of).collect()
    }

    #[test]
    fn each_segment_starts_with_the_newest_preface_record() {
        let files = MemoryFiles::new();
        let journal = open(&files);
        let large = |text: &str| vec![text.repeat(1_000).into_bytes()];
        let append = |kind, bodies: &[Vec<u8>]| {
            journal.append_blocking(batch(kind, bodies), Level::Synced).expect("appended")
        };
        for _ in 0..5 {
            append(OTHER, &large("a"));
        }
        assert!(beginnings(&files, &journal).iter().all(|(kind, _)| *kind == OTHER), "there is none yet");
        append(RULES, &[b"first".to_vec()]);
        for _ in 0..5 {
            append(OTHER, &large("b"));
        }
        append(RULES, &[b"second".to_vec()]);
        for _ in 0..8 {
            append(OTHER, &large("c"));
        }
        let begun = beginnings(&files, &journal);
        let of_rules: Vec<&str> =
            begun.iter().filter(|(kind, _)| *kind == RULES).map(|(_, body)| body.as_str()).collect();
        assert!(of_rules.starts_with(&["first"]) && of_rules.ends_with(&["second", "second"]), "{begun:?}");
        let from_first = begun.iter().position(|(kind, _)| *kind == RULES).expect("one");
        assert!(begun.iter().skip(from_first).all(|(kind, _)| *kind == RULES), "{begun:?}");
    }

    #[test]
    fn a_multi_segment_batch_reports_its_record_positions() {
        let files = MemoryFiles::new();
        let journal = open(&files);
        journal.append_blocking(batch(RULES, &[b"rules".to_vec()]), Level::Synced).expect("appended");
        let bodies: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![b'a' + n; 900]).collect();
        let appended = journal.append_blocking(batch(OTHER, &bodies), Level::Synced).expect("appended");
        let all = records(&journal);
        let positions: Vec<Seq> =
            all.iter().filter(|record| record.kind == OTHER).map(|record| record.seq).collect();
        let answered: Vec<Seq> = appended
            .outcomes()
            .map(|outcome| match outcome {
                Outcome::Appended(seq) | Outcome::Duplicate(seq) => seq,
            })
            .collect();
        assert_eq!(answered, positions);
        assert_eq!(
            (appended.first(), appended.last()),
            (positions.first().copied(), positions.last().copied())
        );
        assert!(all.len() > 22, "several segments were begun: {}", all.len());
    }
}
