//! Finds a record that ends the process that replays it.
//!
//! A start that ends early is no evidence against a record: it may have been killed from outside,
//! for its memory, for its slowness or by a user. Evidence is only what the process itself does. A
//! panic is caught by the replay. For all else, a start leaves a file, so that the next one notes
//! each record before it applies it. When two starts in a row ended at one record, the next start
//! first has the journal replayed by a child with limits. If two children are ended on the same
//! record by a fault of their own, the record is convicted: the replay skips it, or ends with an
//! error if it is never skipped. A child that is killed proves nothing.

use std::{
    fs, io,
    os::unix::{
        fs::{FileExt, OpenOptionsExt},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::ExitStatus,
};

use bytes::Buf;
use rustix::process::Signal;

use engine::event::Seq;

/// How many starts in a row end at one record before children replay it.
const STARTS_MAX: u64 = 2;
/// The file's name in the state folder.
pub(super) const FILE_NAME: &str = "replaying";
/// The signals that a process sends to itself by what it does, with names for the user. The child's
/// limit of processor time is among them.
const FAULTS: [(Signal, &str); 6] = [
    (Signal::ABORT, "aborts (out of memory, or its stack overflows)"),
    (Signal::SEGV, "accesses invalid memory"),
    (Signal::BUS, "accesses invalid memory"),
    (Signal::ILL, "runs an invalid instruction"),
    (Signal::FPE, "makes an arithmetic error"),
    (Signal::XCPU, "does not end"),
];

/// A record that ended two children which replayed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Convicted {
    /// The record.
    pub seq: Seq,
    /// The children's end.
    pub why: String,
}

/// The file of one start's replay, which the next start reads.
#[derive(Debug)]
pub(super) struct Attempt {
    path: PathBuf,
    file: fs::File,
    /// What the start before left; `None` when it came to its end.
    before: Option<Note>,
}

/// Where unfinished starts ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    /// Zero when unknown.
    seq: Seq,
    /// How many starts in a row ended there.
    starts: u64,
}

impl Attempt {
    /// Begins an attempt in `state`.
    ///
    /// Errors: its file cannot be written.
    pub(super) fn begin(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE_NAME);
        let before = Note::read(&path)?;
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        Ok(Self { path, file, before })
    }

    /// Notes that `seq` is applied next, if the previous start did not finish.
    pub(super) fn applying(&self, seq: Seq) {
        let Some(before) = self.before else { return };
        let starts = if before.seq == seq { before.starts + 1 } else { 1 };
        let note = Note { seq, starts };
        // If the write fails, the next start has the same information as this one.
        self.file.write_all_at(&note.encode(), 0).ok();
    }

    /// Notes that the replay finished.
    ///
    /// Errors: the file cannot be removed.
    pub(super) fn end(self) -> io::Result<()> {
        fs::remove_file(self.path)
    }
}

/// The record on which two children end by themselves; `run` replays the journal in `state` in a
/// child. No child is started unless starts ended at one record again and again.
pub(super) fn convict(
    state: &Path,
    mut run: impl FnMut() -> io::Result<ExitStatus>,
) -> io::Result<Option<Convicted>> {
    let path = state.join(FILE_NAME);
    let suspect = Note::read(&path)?.filter(|note| note.starts >= STARTS_MAX);
    let Some(Note { seq, starts }) = suspect else { return Ok(None) };
    tracing::warn!(%seq, starts, "starts in a row ended at one record; a child tries to replay it");
    let mut ended_at = || -> io::Result<Option<Convicted>> {
        let Some(fault) = fault_of(run()?) else { return Ok(None) };
        let why = format!("a process that replays it {fault}");
        Ok(Note::read(&path)?.map(|Note { seq, .. }| Convicted { seq, why }))
    };
    let Some(first) = ended_at()? else { return Ok(None) };
    Ok(ended_at()?.filter(|second| second.seq == first.seq))
}

/// What a process did that ended itself; `None` for every other end.
fn fault_of(status: ExitStatus) -> Option<&'static str> {
    let signal = status.signal()?;
    FAULTS.iter().find(|(fault, _)| fault.as_raw() == signal).map(|(_, words)| *words)
}

impl Note {
    /// The note at `path`; `None` when there is no file.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(Self::decode(&bytes))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn encode(self) -> Vec<u8> {
        [self.seq.0.to_le_bytes(), self.starts.to_le_bytes()].concat()
    }

    /// A short file only shows that there was an attempt.
    fn decode(mut bytes: &[u8]) -> Self {
        let seq = Seq(bytes.try_get_u64_le().unwrap_or(0));
        Self { seq, starts: bytes.try_get_u64_le().unwrap_or(0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a start that applies records 5 to 9, and ends at `end`, if that is one of them.
    fn start(state: &Path, end: u64) {
        let attempt = Attempt::begin(state).expect("writable");
        for seq in (5..10).map(Seq) {
            attempt.applying(seq);
            if seq.0 == end {
                return;
            }
        }
        attempt.end().expect("removed");
    }

    /// The verdict when children apply records as `start` does and are ended by the signals.
    fn tried(state: &Path, ends: &[(u64, i32)]) -> (Option<u64>, usize) {
        let mut children = 0;
        let verdict = convict(state, || {
            let (end, signal) = ends[children];
            children += 1;
            start(state, end);
            Ok(ExitStatus::from_raw(signal))
        });
        (verdict.expect("readable").map(|convicted| convicted.seq.0), children)
    }

    #[test]
    fn starts_that_end_early_convict_no_record() {
        let state = tempfile::tempdir().expect("a folder");
        for end in [7, 7, 7, 8, 9, 5, 7, 7, 7, 7, 7] {
            start(state.path(), end);
        }
        let killed = (7, Signal::KILL.as_raw());
        assert_eq!(tried(state.path(), &[killed]), (None, 1), "a killed child proves nothing");
        assert_eq!(tried(state.path(), &[(7, Signal::TERM.as_raw())]), (None, 1));
        assert_eq!(tried(state.path(), &[(0, 0)]), (None, 1), "the child came to its end");
        assert!(!state.path().join(FILE_NAME).exists());
    }

    #[test]
    fn a_record_that_ends_two_children_is_convicted() {
        for (signal, _) in FAULTS {
            let state = tempfile::tempdir().expect("a folder");
            let fault = (7, signal.as_raw());
            assert_eq!(tried(state.path(), &[]), (None, 0), "no start ended early");
            start(state.path(), 7);
            start(state.path(), 7);
            assert_eq!(tried(state.path(), &[]), (None, 0), "one start is known to have ended at it");
            start(state.path(), 7);
            assert_eq!(tried(state.path(), &[fault, (7, Signal::KILL.as_raw())]), (None, 2));
            assert_eq!(tried(state.path(), &[fault, (8, signal.as_raw())]), (None, 2), "two records");
            start(state.path(), 7);
            start(state.path(), 7);
            assert_eq!(tried(state.path(), &[fault, fault]), (Some(7), 2), "{signal:?}");
        }
    }

    #[test]
    fn an_empty_file_makes_a_start_look() {
        let state = tempfile::tempdir().expect("a folder");
        fs::write(state.path().join(FILE_NAME), b"x").expect("written");
        start(state.path(), 7);
        start(state.path(), 7);
        let fault = (7, Signal::ABORT.as_raw());
        assert_eq!(tried(state.path(), &[fault, fault]), (Some(7), 2));
    }
}
