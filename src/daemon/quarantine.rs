//! Handles a record that crashes the process during a start.
//!
//! A panic is caught, and the record being applied is known. A crash that cannot be caught (an
//! abort, a process killed for its memory) leaves a file, so the next start knows that the previous
//! one did not finish. That start notes each record before it is applied. A single crash on a
//! record may be a coincidence; a record that crashed two starts is skipped from then on.

use std::{
    fs, io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use crate::event::Seq;

/// How many starts crash on one record before it is skipped.
const DEATHS_MAX: u64 = 2;
/// The file's name in the state folder.
pub(super) const FILE_NAME: &str = "replaying";

/// The file of one start's replay, which the next start reads.
#[derive(Debug)]
pub(super) struct Attempt {
    path: PathBuf,
    file: fs::File,
    /// The record on which earlier starts crashed, and how many of them; `None` when the last one
    /// finished.
    suspect: Option<Suspect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suspect {
    /// Zero when unknown.
    seq: Seq,
    deaths: u64,
}

impl Attempt {
    /// Begins an attempt in `state`.
    ///
    /// Errors: its file cannot be written.
    pub(super) fn begin(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE_NAME);
        let suspect = match fs::read(&path) {
            Ok(bytes) => Some(Suspect::decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        Ok(Self { path, file, suspect })
    }

    /// The record that crashed [`DEATHS_MAX`] starts, which is skipped.
    pub(super) fn culprit(&self) -> Option<Seq> {
        self.suspect.filter(|suspect| suspect.deaths >= DEATHS_MAX).map(|suspect| suspect.seq)
    }

    /// Notes that `seq` is applied next, if the previous start did not finish.
    pub(super) fn applying(&self, seq: Seq) {
        let Some(suspect) = self.suspect else { return };
        let deaths = if suspect.seq == seq { suspect.deaths + 1 } else { 1 };
        // If the write fails, the next start has the same information as this one.
        self.file.write_all_at(&Suspect { seq, deaths }.encode(), 0).ok();
    }

    /// Notes that the replay finished.
    ///
    /// Errors: the file cannot be removed.
    pub(super) fn end(self) -> io::Result<()> {
        fs::remove_file(self.path)
    }
}

impl Suspect {
    fn encode(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let (seq, deaths) = bytes.split_at_mut(8);
        seq.copy_from_slice(&self.seq.0.to_le_bytes());
        deaths.copy_from_slice(&self.deaths.to_le_bytes());
        bytes
    }

    /// A short file only shows that there was an attempt.
    fn decode(bytes: &[u8]) -> Self {
        let number = |at: usize| {
            bytes
                .get(at..)
                .and_then(|bytes| bytes.first_chunk())
                .map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        Self { seq: Seq(number(0)), deaths: number(8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a start that applies records 5 to 9 and crashes on `fatal`, if that is one of
    /// them; returns the skipped record.
    fn start(state: &Path, fatal: u64) -> Option<Seq> {
        let attempt = Attempt::begin(state).expect("writable");
        let culprit = attempt.culprit();
        for seq in (5..10).map(Seq).filter(|seq| Some(*seq) != culprit) {
            attempt.applying(seq);
            if seq.0 == fatal {
                return culprit;
            }
        }
        attempt.end().expect("removed");
        culprit
    }

    #[test]
    fn the_record_that_three_starts_died_of_is_skipped_and_the_start_comes_to_its_end() {
        let state = tempfile::tempdir().expect("a folder");
        assert_eq!(start(state.path(), 7), None, "it knows nothing");
        assert_eq!(start(state.path(), 7), None, "it looks");
        assert_eq!(start(state.path(), 7), None, "it may have been chance");
        assert_eq!(start(state.path(), 7), Some(Seq(7)));
        assert!(!state.path().join(FILE_NAME).exists());
        assert_eq!(start(state.path(), 0), None);
    }

    #[test]
    fn starts_that_are_killed_at_different_records_skip_nothing() {
        let state = tempfile::tempdir().expect("a folder");
        for killed_at in [6, 8, 6, 8, 9, 5] {
            assert_eq!(start(state.path(), killed_at), None, "{killed_at}");
        }
        assert_eq!(start(state.path(), 0), None);
    }

    #[test]
    fn a_file_that_says_nothing_makes_a_start_look() {
        let state = tempfile::tempdir().expect("a folder");
        fs::write(state.path().join(FILE_NAME), b"x").expect("written");
        assert_eq!(start(state.path(), 7), None);
        assert_eq!(start(state.path(), 7), None);
        assert_eq!(start(state.path(), 7), Some(Seq(7)));
    }
}
