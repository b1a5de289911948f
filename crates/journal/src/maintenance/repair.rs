//! Rewrites damaged segments from their good records: `aside journal repair`.
//!
//! Every record keeps its position. A tombstone replaces each lost record, with the time of the
//! record before it, so no other code has to handle gaps. The damaged file is kept next to the new
//! one, which takes its name in one rename.

use std::{io, path::PathBuf, sync::Arc};

use crate::{
    Seq,
    log::{
        files::{File, Files},
        record::{Record, RecordKind},
        recover::apply::{copy_part, free_name},
        sealed::SealWriter,
        segment_file::{self, UNFINISHED_NAME},
    },
    maintenance::verify::{
        Durable, Piece, Segment, UNKNOWN_TIME, Verified, VerifyError, Within, examine, verify,
    },
    time::Timestamp,
};

/// The tombstone for a lost record.
#[derive(Debug, Clone, Copy)]
pub struct Tombstone<'a> {
    /// Its kind.
    pub kind: RecordKind,
    /// Its body.
    pub body: &'a [u8],
}

/// The mode of a repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RepairMode {
    /// Only finds the segments to rewrite.
    DryRun,
    /// Rewrites damaged segments.
    Rewrite,
}

/// A segment that was or would be rewritten.
#[derive(Debug)]
pub struct Repaired {
    /// The file.
    pub path: PathBuf,
    /// The path of the damaged original.
    pub kept: PathBuf,
    /// How many good records it has.
    pub records: u64,
    /// How many records are lost.
    pub lost: u64,
}

/// Why a journal cannot be repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// It cannot be read.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// A newer program wrote it; data that this one cannot read is not damage.
    #[error("{} was written by a newer version; repair it with that one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
    },
    /// A file operation failed.
    #[error("rewrite {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Repairs a journal that is not open; changes nothing in a dry run. `known` is the last record
/// that the caller knows to be durable.
///
/// Errors: name a file; the files before it were repaired.
pub fn repair(
    files: &dyn Files,
    tombstone: Tombstone<'_>,
    known: Seq,
    mode: RepairMode,
) -> Result<(Verified, Vec<Repaired>), RepairError> {
    let verified = verify(files, tombstone.kind, known)?;
    if let Some(newer) =
        verified.segments.iter().find(|segment| segment.findings.iter().any(|f| f.is_newer()))
    {
        return Err(RepairError::Newer { path: newer.path.clone() });
    }
    let mut repaired = Vec::new();
    let mut time = UNKNOWN_TIME;
    for segment in &verified.segments {
        if segment.findings.is_empty() {
            time = time.max(segment.last_time);
            continue;
        }
        let failed = |source| RepairError::Io { path: segment.path.clone(), source };
        let kept = free_name(files, &segment.name, "damaged").map_err(failed)?;
        if mode == RepairMode::Rewrite {
            let keep = if segment.is_folder || holds_nothing(segment) { move_away } else { copy };
            keep(files, &segment.name, &kept).map_err(failed)?;
            time = rewrite(files, segment, tombstone, (time, verified.durable)).map_err(failed)?;
        }
        repaired.push(Repaired {
            path: segment.path.clone(),
            kept: files.path(&kept),
            records: segment.records,
            lost: (segment.end.0 - segment.first.0).saturating_sub(segment.records),
        });
    }
    Ok((verified, repaired))
}

fn copy(files: &dyn Files, from: &str, to: &str) -> io::Result<()> {
    let (from, to) = (files.open(from)?, files.create(to)?);
    copy_part(from.as_ref(), (0, from.size()?), to.as_ref(), 0)?;
    to.sync_data()?;
    files.sync_dir()
}

/// Whether a file has neither good nor lost records, so that it needs no replacement.
fn holds_nothing(segment: &Segment) -> bool {
    segment.end == segment.first
}

/// Keeps the original by renaming it: a folder, or a file that needs no replacement.
fn move_away(files: &dyn Files, from: &str, to: &str) -> io::Result<()> {
    files.rename(from, to)?;
    files.sync_dir()
}

/// Writes the segment again, sealed, with tombstones. `time` is the time of the record before the
/// segment; returns the time of its last record.
fn rewrite(
    files: &dyn Files,
    segment: &Segment,
    tombstone: Tombstone<'_>,
    (time, durable): (Timestamp, Durable),
) -> io::Result<Timestamp> {
    if holds_nothing(segment) {
        return Ok(time);
    }
    let id = segment_file::for_new_segment(files)?;
    let mut seal_writer = SealWriter::new(files.create(UNFINISHED_NAME)?, segment.first, id)?;
    let mut time = time;
    let mut write = |piece: Piece<'_>| {
        match piece {
            Piece::Good(record) => {
                time = time.max(record.time);
                seal_writer.push(record)?;
            }
            Piece::Lost(first, end) => {
                for seq in (first.0..end.0).map(Seq) {
                    seal_writer.push(Record { kind: tombstone.kind, seq, time, body: tombstone.body })?;
                }
            }
        }
        Ok(())
    };
    if segment.is_folder || segment.is_foreign() {
        write(Piece::Lost(segment.first, segment.end))?;
    } else {
        let file: Arc<dyn File> = files.open(&segment.name)?;
        let within = Within { first: segment.first, following: segment.following, durable };
        examine(&file, within, &mut write)?;
    }
    seal_writer.finish()?;
    files.rename(UNFINISHED_NAME, &crate::log::segment_file::name_of(segment.first))?;
    if segment.name == crate::log::segment_file::NEXT_NAME && !segment.is_folder {
        files.remove(&segment.name)?;
    }
    files.sync_dir()?;
    Ok(time)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::{
        Journal, Level,
        log::{
            files::DirFiles,
            memory::{Faults, MemoryFiles},
            record, segment_file,
        },
        settings::JournalSettings,
    };

    const TOMBSTONE: Tombstone<'static> = Tombstone { kind: RecordKind(255), body: b"lost" };

    type Damaging = fn(&MemoryFiles, &[String]);

    fn write(files: &MemoryFiles, name: &str, offset: u64, bytes: &[u8]) {
        files.open(name).expect("there").write_at(bytes, offset).expect("written");
    }

    /// Ways to damage a journal of 40 records, whether they apply to plain or sealed segments, and
    /// how many records they lose.
    const DAMAGES: &[(&str, bool, bool, Damaging, usize)] = &[
        ("nothing", true, true, |_, _| {}, 0),
        ("a record", true, false, |files, names| write(files, &names[1], 50, b"!"), 1),
        (
            "two places",
            true,
            false,
            |files, names| {
                write(files, &names[1], 50, b"!");
                write(files, &names[1], 230, b"!");
            },
            2,
        ),
        ("zeros over records", true, false, |files, names| write(files, &names[0], 16, &[0; 100]), 3),
        (
            "the last record of a segment",
            true,
            false,
            |files, names| write(files, &names[0], 330, &[9; 40]),
            1,
        ),
        ("the header", true, true, |files, names| write(files, &names[1], 0, b"XXXX"), 0),
        (
            "a record of the last segment",
            true,
            true,
            |files, names| {
                write(files, &names[names.len() - 1], 20, b"!");
            },
            1,
        ),
        (
            "a segment that is missing",
            true,
            true,
            |files, names| files.remove(&names[2]).expect("removed"),
            0,
        ),
        ("a block", false, true, |files, names| write(files, &names[1], 30, b"!"), 0),
        (
            "a seal",
            false,
            true,
            |files, names| {
                let file = files.open(&names[1]).expect("there");
                write(files, &names[1], file.size().expect("sized") - 9, b"!");
            },
            0,
        ),
        (
            "an index",
            false,
            true,
            |files, names| {
                let file = files.open(&names[1]).expect("there");
                write(files, &names[1], file.size().expect("sized") - 70, b"!");
            },
            0,
        ),
    ];

    fn segments(files: &MemoryFiles) -> Vec<String> {
        let names = files.list().expect("listed");
        names.into_iter().filter(|name| segment_file::first_of(name).is_some()).collect()
    }

    /// Checks that every record is good or a tombstone, and that the journal accepts appends;
    /// returns the number of tombstones.
    fn check(files: &MemoryFiles, case: &str) -> usize {
        let opened = try_open_plainly(files).unwrap_or_else(|error| panic!("{case}: {error}"));
        assert_eq!(opened.last_seq, Seq(40), "{case}");
        let records = read_all(&opened.journal, Seq(1));
        assert_eq!(records.len(), 40, "{case}");
        for record in &records {
            let is_tombstone = record.kind == TOMBSTONE.kind && record.body == TOMBSTONE.body;
            assert!(is_tombstone || number_of(&record.body) == record.seq.0, "{case}: {record:?}");
        }
        let times: Vec<_> = records.iter().map(|record| record.time).collect();
        assert!(times.is_sorted(), "{case}: {times:?}");
        opened.journal.append_blocking(batch(41), Level::Synced).expect("appended");
        opened.journal.close_blocking().expect("closed");
        let again = try_open_plainly(files).expect("opened");
        assert_eq!((again.last_seq, again.cuts.len()), (Seq(41), 0), "{case}");
        records.iter().filter(|record| record.kind == TOMBSTONE.kind).count()
    }

    #[test]
    fn repair_keeps_valid_records_and_adds_tombstones() {
        for (case, plain, sealed, damage, lost) in DAMAGES {
            for seals in [false, true] {
                if !(if seals { *sealed } else { *plain }) {
                    continue;
                }
                let files = filled(40, seals);
                damage(&files, &segments(&files));
                let before = files.operations();
                let (verified, planned) =
                    repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::DryRun).expect("looked at");
                assert_eq!(files.operations(), before, "{case}");
                assert_eq!(planned.is_empty(), *case == "nothing", "{case}: {verified:?}");
                let (_, repaired) =
                    repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
                let names = |repaired: &[Repaired]| {
                    repaired.iter().map(|one| (one.path.clone(), one.lost)).collect::<Vec<_>>()
                };
                assert_eq!(names(&repaired), names(&planned), "{case}");
                let kept =
                    files.list().expect("listed").iter().filter(|name| name.contains(".damaged-1")).count();
                assert_eq!(kept, repaired.len(), "{case}");
                let (after, nothing) =
                    repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("looked at");
                assert!(nothing.is_empty(), "{case}: {after:?}");
                let filled = check(&files, case);
                let lost_in_all: u64 = repaired.iter().map(|one| one.lost).sum();
                assert_eq!(filled as u64, lost_in_all, "{case}");
                let expected = match *case {
                    // How many records a segment has does not matter here.
                    "a segment that is missing" | "a block" => filled.max(1),
                    _ => *lost,
                };
                assert_eq!(filled, expected, "{case}, sealed: {seals}");
                let counted: u64 = after.segments.iter().map(|segment| segment.tombstones).sum();
                assert_eq!(counted, lost_in_all, "{case}");
            }
        }
    }

    #[test]
    fn repair_finishes_after_any_power_loss() {
        let damaged = filled(40, false);
        write(&damaged, &segments(&damaged)[1], 50, b"!");
        let total = {
            let files = damaged.after_kill();
            repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
            files.operations()
        };
        let writes = (1..=total.writes).map(|at| Faults { cut_after_write: Some(at), ..Faults::default() });
        let syncs = (1..=total.syncs).map(|at| Faults { cut_after_sync: Some(at), ..Faults::default() });
        for faults in writes.chain(syncs) {
            for seed in 0..4 {
                let files = damaged.after_kill();
                files.set_faults(faults);
                // The power loss may also come after the last step.
                repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).ok();
                let left = files.after_power_loss(seed);
                repair(&left, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
                assert_eq!(check(&left, &format!("{faults:?}, seed {seed}")), 1);
            }
        }
    }

    #[test]
    fn repair_moves_away_folder_at_a_segment_path() {
        let open = |dir: &std::path::Path| {
            let files = Arc::new(DirFiles::new(dir).expect("a folder"));
            let settings =
                JournalSettings { segment_bytes: SEGMENT_BYTES, seal: false, ..JournalSettings::default() };
            Journal::open(files, settings, Arc::new(|| Timestamp::from_millis(5)), &|_| None)
        };
        for at in 0..3 {
            let dir = tempfile::tempdir().expect("a folder");
            let journal = open(dir.path()).expect("opened").journal;
            journal.append_blocking(batch_of(1..=40), Level::Synced).expect("appended");
            journal.close_blocking().expect("closed");
            let files = DirFiles::new(dir.path()).expect("a folder");
            let mut names = files.list().expect("listed");
            names.sort();
            names.retain(|name| name != crate::log::mark::MARK_NAME);
            // The second segment, the last one, and the file after it.
            let place = [1, names.len() - 2, names.len() - 1][at];
            let path = dir.path().join(&names[place]);
            std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("replaced");
            std::fs::write(path.join("inside"), b"kept").expect("written");
            let refused = open(dir.path()).map(|_| ()).expect_err("refused").to_string();
            assert!(
                refused.contains(&names[place]) && refused.contains("`aside journal repair`"),
                "{refused}"
            );
            let (verified, repaired) =
                repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
            assert_eq!((verified.findings(), repaired.len()), (1, 1), "{verified:?}");
            assert!(repaired[0].kept.join("inside").exists());
            let opened = open(dir.path()).expect("opened");
            assert_eq!(opened.last_seq, Seq(40));
            let records = read_all(&opened.journal, Seq(1));
            let lost = records.iter().filter(|record| record.kind == TOMBSTONE.kind).count();
            assert_eq!((records.len(), lost as u64, lost > 0), (40, repaired[0].lost, at < 2));
        }
    }

    #[test]
    fn a_damaged_version_field_is_no_newer_format() {
        for seals in [false, true] {
            let files = filled(40, seals);
            write(&files, &segments(&files)[1], 8, &[9]);
            let refused = try_open_plainly(&files).map(|_| ()).expect_err("refused").to_string();
            assert!(refused.contains("is not a segment; `aside journal verify`"), "{refused}");
            let (verified, repaired) =
                repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
            assert_eq!((verified.findings(), repaired[0].lost), (1, 0), "{verified:?}");
            assert_eq!(check(&files, "a version field"), 0);
        }
    }

    #[test]
    fn repair_moves_away_empty_segment_with_damaged_header() {
        for at in [0, 8, 9] {
            let files = MemoryFiles::new();
            open(&files).journal.close_blocking().expect("closed");
            write(&files, &segments(&files)[0], at, &[9]);
            let refused = try_open_plainly(&files).map(|_| ()).expect_err("refused").to_string();
            assert!(refused.contains("is not a segment; `aside journal verify`"), "{refused}");
            let (verified, repaired) =
                repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired");
            assert_eq!((verified.findings(), repaired[0].lost), (1, 0), "{verified:?}");
            assert_eq!(segments(&files), Vec::<String>::new());
            assert_eq!(try_open_plainly(&files).expect("opened").last_seq, Seq::ZERO);
        }
    }

    #[test]
    fn repair_refuses_files_of_a_newer_version() {
        let newer_record = |seq: u64| {
            let mut bytes = Vec::new();
            let newer = Record {
                kind: RecordKind(1),
                seq: Seq(seq),
                time: Timestamp::from_millis(5),
                body: b"newer",
            };
            record::encode(newer, Seq(40), &mut bytes);
            bytes[9] = record::RECORD_VERSION + 1;
            let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &bytes[8..]);
            bytes[4..8].copy_from_slice(&crc.to_le_bytes());
            bytes
        };
        let mut old_record = Vec::new();
        let body = body(41);
        let old = Record {
            kind: RecordKind(1),
            seq: Seq(41),
            time: Timestamp::from_millis(5),
            body: body.as_bytes(),
        };
        record::encode(old, Seq(40), &mut old_record);
        let filled = filled(40, false);
        let first = filled.open(&segments(&filled)[0]).expect("there");
        let id = segment_file::id_of(first.as_ref()).expect("read").expect("valid");
        let header = segment_file::header(9, id);
        // The number of the segment or the prepared file, and its content from an offset on.
        let cases = [
            (1, 0, header.to_vec()),
            (usize::MAX, 0, [header.as_slice(), b"newer"].concat()),
            (usize::MAX, 16, newer_record(41)),
            (usize::MAX, 16, [old_record, newer_record(42)].concat()),
        ];
        for (at, offset, bytes) in cases {
            let files = filled.after_kill();
            let name = segments(&files).get(at).cloned().unwrap_or(segment_file::NEXT_NAME.to_owned());
            write(&files, &name, offset, &bytes);
            let before = files.operations();
            let refused = try_open_plainly(&files).map(|_| ()).expect_err("refused").to_string();
            assert!(
                refused.contains(&name) && refused.contains("start the newer program again"),
                "{refused}"
            );
            let error = repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite)
                .map(|_| ())
                .expect_err("refused")
                .to_string();
            assert!(error.contains(&name) && error.contains("was written by a newer version"), "{error}");
            assert_eq!(files.operations(), before);
            let said = verify(&files, TOMBSTONE.kind, Seq::ZERO).expect("readable");
            let findings = said.segments.iter().flat_map(|segment| &segment.findings);
            let said: Vec<String> = findings.map(ToString::to_string).collect();
            assert!(said.len() == 1 && said[0].contains("; it is not read, "), "{said:?}");
        }
    }
}
