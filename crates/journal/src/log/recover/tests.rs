//! Tests of starts after every kind of crash and damage.

use super::{apply::apply, *};
use crate::{
    AppendBatch, Level, RepairMode, Tombstone,
    log::{
        files::fill_with_zeros,
        memory::{Faults, MemoryFiles, Operation},
        record,
    },
    repair,
    testing::*,
    verify,
};

const FIRST: &str = "00000000000000000001.seg";

#[test]
fn scan_keeps_newest_keys_within_the_limit() {
    let files = MemoryFiles::new();
    let clock: crate::Clock = Arc::new(|| Timestamp::ZERO);
    let opened = open_with(&files, 1 << 16, crate::Durability::Sync, clock).expect("opened");
    opened.journal.append_blocking(batch_of(1..=9), Level::Synced).expect("appended");
    opened.journal.close_blocking().expect("closed");
    let key_of = |record: Record<'_>| Some(number_of(record.body).into());
    let mut scanner = Scanner::new(&files, &key_of, RecoveryHint::default());
    scanner.keys_left = 3;
    let (_, scan) = scanner.scan_last(Seq(1)).expect("scanned");
    assert_eq!(scan.keys, [7, 8, 9].map(|number| IdempotencyKey::new(number.into(), Seq(number))));
    assert_eq!(scanner.keys_left, 0);
}

#[test]
fn scan_reads_keys_only_past_the_hint() {
    let files = journal_of(30);
    let asked = std::cell::RefCell::new(Vec::new());
    let key_of = |record: Record<'_>| {
        asked.borrow_mut().push(record.seq.0);
        Some(number_of(record.body).into())
    };
    let known = |seq| RecoveryHint { seq: Seq(seq), keys_upto: Seq(seq) };
    let mut keys = IdempotencyKeys::new(8);
    keys.remember(7, Seq(7));
    let report = scan(&files, &key_of, known(27)).expect("sound");
    let recovered = apply(&files, SEGMENT_BYTES, report, keys).expect("opened");
    asked.borrow_mut().sort_unstable();
    assert_eq!(asked.take(), [28, 29, 30]);
    let mut keys = recovered.keys;
    let first_of = |key, keys: &mut IdempotencyKeys| keys.remember(key, Seq(99));
    assert_eq!([7, 28, 8].map(|key| first_of(key, &mut keys)), [Some(Seq(7)), Some(Seq(28)), None]);
    for (files, last) in [(files, 30), (MemoryFiles::new(), 0)] {
        let names = files.list().expect("listed");
        let error = scan(&files, &key_of, known(31)).map(|_| ()).expect_err("refused");
        assert!(
            matches!(error, OpenError::Behind { last: Seq(found), known: Seq(31) } if found == last),
            "{error}"
        );
        assert_eq!(files.list().expect("listed"), names);
    }
}

#[test]
fn start_cuts_last_record_torn_at_any_byte() {
    let whole = journal_killed_at(3);
    let end: u64 = HEADER_BYTES + (1..=3).map(size).sum::<u64>();
    let start = end - size(3);
    for torn_at in start..end {
        let files = whole.after_kill();
        let file = files.open(FIRST).expect("there");
        fill_with_zeros(file.as_ref(), torn_at, end).expect("written");
        let left = segment_file::used_end(file.as_ref(), start).expect("read");
        let opened = open(&files);
        let cut =
            left.map(|left| Cut { path: files.path(FIRST), offset: start, bytes: left - start, kept: None });
        assert_eq!(opened.cuts, Vec::from_iter(cut), "torn at {torn_at}");
        assert_eq!((opened.last_seq, numbers(&opened.journal)), (Seq(2), vec![1, 2]));
        opened.journal.append_blocking(batch(3), Level::Synced).expect("appended");
        opened.journal.close_blocking().expect("closed");
        let again = open(&files);
        assert_eq!((again.cuts, numbers(&again.journal)), (Vec::new(), vec![1, 2, 3]));
    }
}

#[test]
fn record_behind_torn_one_moves_to_cut_file() {
    let files = journal_killed_at(3);
    let second = HEADER_BYTES + size(1);
    let file = files.open(FIRST).expect("there");
    fill_with_zeros(file.as_ref(), second, second + size(2)).expect("written");
    let opened = open(&files);
    let kept = format!("{FIRST}.cut-1");
    let cuts = opened.cuts.iter().map(|cut| (cut.offset, cut.kept.clone())).collect::<Vec<_>>();
    assert_eq!(cuts, [(second, Some(files.path(&kept)))]);
    let mut good = Vec::new();
    let mut note = |_, found: damaged::Item<'_>| {
        if let damaged::Item::Record(record, _) = found {
            good.push(record.seq);
        }
        Ok(())
    };
    damaged::walk(&files.open(&kept).expect("there"), &mut note).expect("readable");
    assert_eq!(good, [Seq(3)]);
    opened.journal.append_blocking(batch(2), Level::Synced).expect("appended");
    opened.journal.close_blocking().expect("closed");
    assert_eq!(numbers(&open(&files).journal), [1, 2]);
    let kept_again = verify(&files, record::RecordKind(255), Seq::ZERO).expect("readable").kept;
    assert_eq!(kept_again, [files.path(&kept)]);
}

/// All records were synced and answered, so damage is not a torn end, whether or not the journal
/// was closed and whether or not a good record follows.
#[test]
fn damaged_durable_record_refuses_start_until_repair() {
    for (at, is_closed, seals) in [(28, false, false), (28, true, false), (30, true, false), (30, true, true)]
    {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, 1 << 16);
        for number in 1..=30 {
            journal.append_blocking(batch(number), Level::Synced).expect("appended");
        }
        let files = if is_closed {
            journal.close_blocking().expect("closed");
            files
        } else {
            files.after_kill()
        };
        let offset = HEADER_BYTES + (1..at).map(size).sum::<u64>();
        files.open(FIRST).expect("there").write_at(b"!", offset + 31).expect("written");
        let reopen = || {
            let clock: crate::Clock = Arc::new(|| Timestamp::from_millis(5));
            let settings =
                crate::JournalSettings { segment_bytes: 1 << 16, seal: seals, ..Default::default() };
            crate::Journal::open(Arc::new(files.clone()), settings, clock, &|_| None)
        };
        let names = files.list().expect("listed");
        let error = reopen().map(|opened| opened.last_seq).expect_err("refused").to_string();
        let said = format!("the record at byte {offset} of memory/{FIRST} is damaged: its checksum does not");
        assert!(error.contains(&said), "{error}");
        assert_eq!(files.list().expect("listed"), names);
        let tombstone = crate::Tombstone { kind: record::RecordKind(255), body: b"lost" };
        let (verified, repaired) =
            repair(&files, tombstone, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
        assert_eq!((verified.findings(), repaired.len(), repaired[0].lost), (1, 1, 1), "{verified:?}");
        let again = reopen().expect("opened");
        let records = read_all(&again.journal, Seq(1));
        let lost = records.iter().filter(|record| record.kind == tombstone.kind).map(|record| record.seq.0);
        assert_eq!((records.len(), lost.collect::<Vec<_>>()), (30, vec![at]));
    }
}

#[test]
fn recovery_hint_distinguishes_damage_from_torn_end() {
    let files = journal_killed_at(3);
    let third = HEADER_BYTES + size(1) + size(2);
    files.open(FIRST).expect("there").write_at(b"!", third + 31).expect("written");
    let known = |seq| RecoveryHint { seq: Seq(seq), keys_upto: Seq(seq) };
    let error = scan(&files, &|_| None, known(3)).map(|_| ()).expect_err("refused");
    assert!(matches!(error, OpenError::Damaged { offset, .. } if offset == third), "{error}");
    assert_eq!(scan(&files, &|_| None, known(2)).expect("torn").last(), Seq(2));

    // The advice of the refused start needs the same knowledge.
    let tombstone = Tombstone { kind: record::RecordKind(255), body: b"lost" };
    let found = |seq| verify(&files, tombstone.kind, Seq(seq)).expect("readable").findings();
    assert_eq!((found(3), found(2)), (1, 0));
    let repaired = |seq| repair(&files, tombstone, Seq(seq), RepairMode::Rewrite).expect("repaired").1.len();
    assert_eq!((repaired(2), repaired(3), found(3)), (0, 1, 0));
    assert_eq!(scan(&files, &|_| None, known(3)).expect("repaired").last(), Seq(3));
    // A journal that ends cleanly before it is not damaged: its snapshot is not used.
    assert_eq!(found(9), 0);
}

/// No repair can help, because the file that is dropped has no record. The caller uses an older
/// snapshot.
#[test]
fn half_written_next_file_leaves_journal_behind_snapshot() {
    let files = journal_ahead_of_the_disk(12);
    let next = files.open(NEXT_NAME).expect("there");
    fill_with_zeros(next.as_ref(), HEADER_BYTES + 10, SEGMENT_BYTES).expect("written");
    let known = RecoveryHint { seq: Seq(20), keys_upto: Seq(20) };
    let error = scan(&files, &|_| None, known).map(|_| ()).expect_err("refused");
    assert!(matches!(error, OpenError::Behind { last: Seq(7), known: Seq(20) }), "{error}");
    assert_eq!(verify(&files, record::RecordKind(255), Seq(20)).expect("readable").findings(), 0);
    assert_eq!(numbers(&open(&files).journal), (1..=7).collect::<Vec<_>>());
}

type Damaging = fn(&MemoryFiles);

/// What is not known to be durable, and how it is damaged. A start cuts it, so it is no damage for
/// `verify`, and `repair` changes nothing.
const TORN: &[(&str, u64, Damaging)] = &[
    ("a record before a good one", 3, |files| {
        let second = HEADER_BYTES + size(1);
        let file = files.open(FIRST).expect("there");
        fill_with_zeros(file.as_ref(), second, second + size(2)).expect("written");
    }),
    ("the first record", 3, |files| {
        files.open(FIRST).expect("there").write_at(b"!", HEADER_BYTES + 31).expect("written");
    }),
    ("the end of a segment before a prepared file with records", 12, |files| {
        let fifth = HEADER_BYTES + (1..=4).map(size).sum::<u64>();
        fill_with_zeros(files.open(FIRST).expect("there").as_ref(), fifth, SEGMENT_BYTES).expect("written");
    }),
    ("a record of a segment before a prepared file with records", 12, |files| {
        let second = HEADER_BYTES + size(1);
        files.open(FIRST).expect("there").write_at(b"!", second + 31).expect("written");
    }),
    ("the header of a prepared file with records", 12, |files| {
        files.open(NEXT_NAME).expect("there").write_at(b"X", 0).expect("written");
    }),
];

/// What is damaged, but not as by a crash. A start is refused, and `repair` helps.
const OUT_OF_ORDER: &[(&str, u64, Damaging)] = &[("a record directly after another one", 3, |files| {
    let file = files.open(FIRST).expect("there");
    let (second, third) = (HEADER_BYTES + size(1), HEADER_BYTES + size(1) + size(2));
    let mut bytes = vec![0; usize::try_from(size(3)).expect("small")];
    file.read_at(&mut bytes, third).expect("read");
    fill_with_zeros(file.as_ref(), second, third + size(3)).expect("written");
    file.write_at(&bytes, second).expect("written");
})];

fn killed_with(count: u64, damage: Damaging) -> MemoryFiles {
    let files = if count > 3 { journal_ahead_of_the_disk(count) } else { journal_killed_at(count) };
    damage(&files);
    files
}

#[test]
fn torn_ends_are_not_damage_for_repair() {
    let tombstone = Tombstone { kind: record::RecordKind(255), body: b"lost" };
    for (case, count, damage) in TORN {
        let files = killed_with(*count, *damage);
        let (verified, repaired) =
            repair(&files, tombstone, Seq::ZERO, RepairMode::Rewrite).expect("readable");
        assert_eq!((verified.findings(), repaired.len()), (0, 0), "{case}: {verified:?}");
        let place = |cut: &Cut| (cut.path.clone(), cut.offset, cut.bytes);
        let mut torn = verified.torn.iter().map(place).collect::<Vec<_>>();
        let mut cuts = open(&files).cuts.iter().map(place).collect::<Vec<_>>();
        torn.sort();
        cuts.sort();
        assert!(torn == cuts && !cuts.is_empty(), "{case}: {torn:?}, {cuts:?}");
    }
}

#[test]
fn repair_fixes_damage_that_refuses_a_start() {
    let tombstone = Tombstone { kind: record::RecordKind(255), body: b"lost" };
    for (case, count, damage) in OUT_OF_ORDER {
        let files = killed_with(*count, *damage);
        assert!(try_open(&files).is_err(), "{case}");
        let (verified, repaired) =
            repair(&files, tombstone, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
        assert_eq!((verified.findings(), repaired.len()), (1, 1), "{case}: {verified:?}");
        assert_eq!(try_open_plainly(&files).expect("repaired").last_seq, Seq(*count), "{case}");
    }
}

#[test]
fn scan_report_reads_every_record_before_opening() {
    // Sealed or not, and with records in the prepared file.
    for (files, last) in
        [(filled(30, true), 30), (filled(30, false), 30), (journal_ahead_of_the_disk(12), 12)]
    {
        let found = scan(&files, &|_| None, RecoveryHint::default()).expect("sound");
        assert_eq!((found.first(), found.last()), (Seq(1), Seq(last)));
        let number = |seq| found.record(Seq(seq)).expect("readable").map(|record| number_of(&record.body));
        let numbers: Vec<_> = (0..=last + 1).map(number).collect();
        let expected = [None].into_iter().chain((1..=last).map(Some)).chain([None]);
        assert_eq!(numbers, expected.collect::<Vec<_>>());
    }
    let found = scan(&MemoryFiles::new(), &|_| None, RecoveryHint::default()).expect("nothing");
    assert_eq!((found.first(), found.record(Seq(1)).expect("readable")), (Seq(1), None));
}

/// Linux marks pages clean when their sync fails, so a later successful sync proves nothing.
#[test]
fn restart_makes_records_of_failed_sync_durable() {
    for seed in 0..8 {
        for count in [2, 12] {
            let files = MemoryFiles::new();
            let journal = open_prepared(&files, SEGMENT_BYTES);
            journal.append_blocking(batch(1), Level::Synced).expect("appended");
            files.fail(Operation::Sync, "", 1, io::ErrorKind::Other);
            for number in 2..=count {
                if journal.append_blocking(batch(number), Level::Written).is_err() {
                    break;
                }
            }
            assert!(journal.append_blocking(batch(99), Level::Synced).is_err());
            let killed = files.after_kill();
            let opened = open(&killed);
            let found = numbers(&opened.journal);
            assert!(found.len() > 1, "{found:?}");
            opened.journal.append_blocking(batch(50), Level::Synced).expect("appended");
            let expected: Vec<u64> = found.into_iter().chain([50]).collect();
            let left = killed.after_power_loss(seed);
            assert_eq!(numbers(&open(&left).journal), expected, "seed {seed}, {count} records");
        }
    }
}

#[test]
fn next_file_with_damaged_header_is_kept_aside() {
    let files = journal_ahead_of_the_disk(12);
    files.open(NEXT_NAME).expect("there").write_at(b"X", 0).expect("written");
    let opened = open(&files);
    let kept = opened.cuts.iter().filter_map(|cut| cut.kept.clone()).collect::<Vec<_>>();
    assert_eq!(kept, [files.path("next.seg.cut-1")]);
    assert_eq!(numbers(&opened.journal), (1..=7).collect::<Vec<_>>());
}

#[test]
fn start_makes_written_records_of_killed_process_durable() {
    for count in [2, 12] {
        let files = journal_ahead_of_the_disk(count);
        let opened = open(&files);
        assert_eq!(opened.last_seq, Seq(count));
        for seed in 0..20 {
            assert_eq!(open(&files.after_power_loss(seed)).last_seq, Seq(count), "seed {seed}");
        }
    }
}

#[test]
fn start_cuts_next_file_after_a_lost_record() {
    let files = journal_ahead_of_the_disk(12);
    let file = files.open(FIRST).expect("there");
    let fifth = HEADER_BYTES + (1..=4).map(size).sum::<u64>();
    fill_with_zeros(file.as_ref(), fifth, SEGMENT_BYTES).expect("written");
    let next = files.open(NEXT_NAME).expect("there");
    let end = segment_file::used_end(next.as_ref(), HEADER_BYTES).expect("read").expect("used");
    let opened = open(&files);
    let kept = Some(files.path("next.seg.cut-1"));
    let cut = Cut { path: files.path(NEXT_NAME), offset: HEADER_BYTES, bytes: end - HEADER_BYTES, kept };
    assert_eq!((opened.cuts, numbers(&opened.journal)), (vec![cut], vec![1, 2, 3, 4]));
}

#[test]
fn damage_before_last_segment_refuses_the_start() {
    let files = journal_of(30);
    let second = HEADER_BYTES + size(1);
    files.open(FIRST).expect("there").write_at(b"!", second + 30).expect("written");
    assert_eq!(
        error(&files),
        format!(
            "open the journal: the record at byte {second} of memory/{FIRST} is damaged: its checksum does not match; \
             `aside journal verify` lists the damage, `aside journal repair` keeps the valid records"
        )
    );
    assert_eq!(files.list().expect("listed"), journal_of(30).list().expect("listed"));
}

/// The segments of large records have their last one in the last read of the file, or do not.
#[test]
fn hinted_start_reads_only_ends_of_full_segments() {
    const KNOWN: u64 = 1 << 20;
    for (body_bytes, reads_all) in [(500, false), (READ_BYTES / 2, false), (READ_BYTES * 2, true)] {
        let files = journal_of_bodies(4 << 20, body_bytes, 12 << 20);
        let count = scan(&files, &|_| None, RecoveryHint::default()).expect("sound").last();
        let read_by = |seq| {
            let before = files.read_bytes();
            let hint = RecoveryHint { seq, keys_upto: seq };
            let report = scan(&files, &|_| None, hint).expect("sound");
            let read = files.read_bytes() - before;
            for seq in [Seq(1), Seq(2), Seq(count.0 / 2), count] {
                assert_eq!(report.record(seq).expect("read").expect("there").seq, seq);
            }
            read
        };
        let (all, known) = (read_by(Seq::ZERO), read_by(count));
        assert!(all > 12 << 20, "{all}");
        assert_eq!(known > all - KNOWN, reads_all, "{body_bytes}: {known} of {all}");
        assert!(reads_all || known < 6 << 20, "{body_bytes}: {known} of {all}");
    }
}

#[test]
fn reader_finds_damage_that_a_hinted_start_skips() {
    let files = journal_of(30);
    let second = HEADER_BYTES + size(1);
    files.open(FIRST).expect("there").write_at(b"!", second + 30).expect("written");
    let opened_with = |hint| {
        let report = scan(&files, &|_| None, hint)?;
        let keys = IdempotencyKeys::default();
        let settings = crate::JournalSettings { seal: false, ..Default::default() };
        let clock = Arc::new(|| Timestamp::ZERO);
        crate::Journal::open_scanned(Arc::new(files.clone()), settings, clock, report, keys)
    };
    for not_enough in
        [RecoveryHint { seq: Seq(2), keys_upto: Seq(30) }, RecoveryHint { seq: Seq(30), keys_upto: Seq(2) }]
    {
        assert!(matches!(opened_with(not_enough), Err(OpenError::Damaged { .. })), "{not_enough:?}");
    }
    let known = RecoveryHint { seq: Seq(30), keys_upto: Seq(30) };
    let journal = opened_with(known).expect("opened").journal;
    let read = |number| journal.read_at(Seq(number)).map(|found| number_of(&found.expect("there").body)).ok();
    assert_eq!((read(1), read(2), read(30)), (Some(1), None, Some(30)));
    let found = journal.find(|record| number_of(record.body) == 3).expect("readable").expect("there");
    assert_eq!(found.seq, Seq(3), "only the damaged record is lost");
    assert_eq!(journal.health().damaged.len(), 1);
}

#[test]
fn missing_segment_is_reported_by_its_first_record() {
    let files = journal_of(30);
    let names: Vec<String> = files.list().expect("listed");
    let second = segment_file::first_of(&names[1]).expect("a segment");
    files.remove(&names[1]).expect("removed");
    let error = error(&files);
    assert!(error.contains(FIRST) && error.contains(&format!("record {second} is missing")), "{error}");
}

#[test]
fn newer_segment_format_and_record_version_are_refused() {
    let files = journal_of(1);
    let file = files.open(FIRST).expect("there");
    file.write_at(&[3], 8).expect("written");
    let found = error(&files);
    assert!(found.contains(&format!("memory/{FIRST} is not a segment")), "{found}");
    file.write_at(&segment_file::header(3, segment_file::JournalId::EXAMPLE), 0).expect("written");
    let found = error(&files);
    assert!(found.contains("has format 3, this program reads up to 2"), "{found}");

    let files = journal_of(1);
    let mut bytes = Vec::new();
    let newer = Record { kind: record::RecordKind(1), seq: Seq(2), time: Timestamp::ZERO, body: b"" };
    record::encode(newer, Seq(1), &mut bytes);
    bytes[9] = record::RECORD_VERSION + 1;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &bytes[8..]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
    files.open(FIRST).expect("there").write_at(&bytes, HEADER_BYTES + size(1)).expect("written");
    let found = error(&files);
    let said =
        "cannot be read: its version 2 is newer than 1, the newest this program reads; start the newer";
    assert!(found.contains(said), "{found}");
}

#[test]
fn file_with_invalid_segment_header_is_refused() {
    let files = journal_of(1);
    files.open(FIRST).expect("there").write_at(b"X", 0).expect("written");
    let error = error(&files);
    assert!(error.contains(&format!("memory/{FIRST} is not a segment")), "{error}");
}

#[test]
fn answered_records_survive_every_power_loss() {
    let uncut = MemoryFiles::new();
    let promised = workload(&uncut);
    assert_eq!(promised, WORKLOAD_LEN);
    let total = uncut.operations();
    let write_cuts = (1..=total.writes).map(|at| Faults { cut_after_write: Some(at), ..Faults::default() });
    let sync_cuts = (1..=total.syncs).map(|at| Faults { cut_after_sync: Some(at), ..Faults::default() });
    for faults in write_cuts.chain(sync_cuts) {
        let files = MemoryFiles::new();
        files.set_faults(faults);
        let promised = workload(&files);
        let operations = files.operations();
        for seed in 0..3 {
            // Different seeds at every cut, for more kinds of torn ends.
            let seed = seed + 3 * (operations.writes + operations.syncs);
            let case = format!("{faults:?}, seed {seed}");
            check_image(&files.after_power_loss(seed), promised, &case);
            check_image(&cut_again(&files.after_power_loss(seed), seed), promised, &case);
        }
        check_image(&files.after_kill(), promised, &format!("{faults:?}, killed"));
        for seed in 0..4 {
            let (cut, promised_since) = cut_later(&files.after_kill(), seed + 4 * operations.writes);
            check_image(
                &cut,
                promised.max(promised_since),
                &format!("{faults:?}, killed, then cut, seed {seed}"),
            );
        }
    }
}

const WORKLOAD_LEN: u64 = 30;

/// Appends one by one, most of them synced, until an append fails; returns the last promised
/// record.
fn workload(files: &MemoryFiles) -> u64 {
    let Ok(opened) = try_open(files) else { return 0 };
    let mut promised = 0;
    for number in 1..=WORKLOAD_LEN {
        let level = if number % 3 == 0 { Level::Written } else { Level::Synced };
        match opened.journal.append_blocking(batch(number), level) {
            Ok(_) if level == Level::Synced => promised = number,
            Ok(_) => {}
            Err(_) => break,
        }
    }
    if opened.journal.close_blocking().is_ok() { WORKLOAD_LEN } else { promised }
}

/// The files after another power loss while the journal is being opened.
fn cut_again(files: &MemoryFiles, seed: u64) -> MemoryFiles {
    let at = Some(1 + seed % 3);
    files.set_faults(match seed % 2 {
        0 => Faults { cut_after_write: at, ..Faults::default() },
        _ => Faults { cut_after_sync: at, ..Faults::default() },
    });
    if let Ok(opened) = try_open(files) {
        // The threads end in any case, even if they could not sync.
        let _ = opened.journal.close_blocking();
    }
    files.after_power_loss(seed + 1)
}

/// The files after a power loss some time after a start, and the last record promised before it.
fn cut_later(files: &MemoryFiles, seed: u64) -> (MemoryFiles, u64) {
    let at = Some(1 + seed % 23);
    files.set_faults(match seed % 2 {
        0 => Faults { cut_after_write: at, ..Faults::default() },
        _ => Faults { cut_after_sync: at, ..Faults::default() },
    });
    let promised = workload(files);
    (files.after_power_loss(seed + 1), promised)
}

/// Checks that every promised record exists once, that there is no other record, and that
/// publishing all of them again completes the journal.
fn check_image(files: &MemoryFiles, promised: u64, case: &str) {
    let opened = try_open(files).unwrap_or_else(|error| panic!("{case}: {error}"));
    let found = numbers(&opened.journal);
    assert!(found.len() as u64 >= promised, "{case}: {promised} promised, {found:?} found");
    assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "{case}");
    assert_eq!(opened.last_seq, Seq(found.len() as u64), "{case}");
    opened.journal.append_blocking(batch_of(1..=WORKLOAD_LEN), Level::Synced).expect("appended");
    opened.journal.close_blocking().expect("closed");
    let again = open(&files.after_power_loss(1));
    assert_eq!(numbers(&again.journal), (1..=WORKLOAD_LEN).collect::<Vec<_>>(), "{case}");
    assert_eq!(again.cuts, [], "{case}");
    again.journal.close_blocking().expect("closed");
}

fn journal_of(count: u64) -> MemoryFiles {
    let files = MemoryFiles::new();
    let journal = open(&files).journal;
    journal.append_blocking(batch_of(1..=count), Level::Synced).expect("appended");
    journal.close_blocking().expect("closed");
    files
}

/// A closed journal of at least `total` bytes, with bodies of one size.
fn journal_of_bodies(segment_bytes: u64, body_bytes: usize, total: usize) -> MemoryFiles {
    let files = MemoryFiles::new();
    let clock: crate::Clock = Arc::new(|| Timestamp::ZERO);
    let opened = open_with(&files, segment_bytes, crate::Durability::Sync, clock).expect("opened");
    let body = vec![b'x'; body_bytes];
    for _ in 0..=total / (16 * body_bytes) {
        let mut batch = AppendBatch::new();
        for _ in 0..16 {
            batch.push(record::RecordKind(1), &body, None).expect("small");
        }
        opened.journal.append_blocking(batch, Level::Written).expect("appended");
    }
    opened.journal.close_blocking().expect("closed");
    files
}

/// The files of a process killed after it appended records in one batch; no record reports the last
/// sync.
fn journal_killed_at(count: u64) -> MemoryFiles {
    let files = MemoryFiles::new();
    let journal = open(&files).journal;
    journal.append_blocking(batch_of(1..=count), Level::Synced).expect("appended");
    files.after_kill()
}

/// The files of a process killed while syncs hang; twelve records are too many for one segment.
fn journal_ahead_of_the_disk(count: u64) -> MemoryFiles {
    let files = MemoryFiles::new();
    let journal = open_prepared(&files, SEGMENT_BYTES);
    files.close_gate();
    journal.append_blocking(batch_of(1..=count), Level::Written).expect("appended");
    let killed = files.after_kill();
    files.open_gate();
    killed
}

fn size(number: u64) -> u64 {
    record::size_of(body(number).len()) as u64
}

fn error(files: &MemoryFiles) -> String {
    try_open(files).map(|opened| opened.last_seq).expect_err("refused").to_string()
}
