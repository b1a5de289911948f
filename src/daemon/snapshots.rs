//! The stored snapshots: the newest two, each in a file that is complete or absent.
//!
//! A snapshot is the state after all records up to one position, so that a start need not read them
//! again. It never contains more than the journal, because it is written after the journal is
//! durable up to its record and up to the events that were pending then. If one is damaged, the one
//! before is used, or the journal from its beginning, and that is reported; a start never fails
//! because of it. `file` is the format, `writer` decides when to write.

mod file;
#[cfg(test)]
mod tests;
pub(super) mod writer;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use self::file::{FORMAT_VERSION, Unusable};
use self::file::{HEADER_BYTES, Header, LastRecord, Section};
use super::{fold::Fold, rules::RulesStore};
use engine::{event::Seq, snapshot::Damaged};
use journal::{
    IdempotencyKey, IdempotencyKeys, Journal, ReadError, ReadOnly, RecordBuf, RecoveryHint, ScanReport,
    files::{File, Files},
    time::Timestamp,
};

/// Their folder in the state folder.
pub const FOLDER: &str = "snapshots";

/// How many are kept: the newest, and one in case it is damaged.
pub const KEPT: usize = 2;

/// Most snapshots of another journal that are kept, in case a wrong journal was put into the
/// folder.
const SET_ASIDE_MAX: usize = 2 * KEPT;

/// The name of a snapshot while it is written.
const UNFINISHED: &str = "unfinished";
const SUFFIX: &str = ".snap";
/// The end of the name of one that belongs to another journal.
const SET_ASIDE_SUFFIX: &str = ".snap.unmatched";
/// Digits of a position in a name, so that names sort as positions do.
const SEQ_DIGITS: usize = 20;

/// The snapshots of one state folder; shared by the writer and the code that deletes the records
/// that they replace.
#[derive(Debug)]
pub struct Snapshots {
    files: Arc<dyn Files>,
    /// Those considered usable, oldest first.
    kept: Mutex<Vec<Seq>>,
    /// The paths of those that belong to another journal.
    unmatched: Mutex<Vec<PathBuf>>,
}

/// The encoded engine state at one position.
#[derive(Debug, Clone)]
pub struct Capture {
    /// The last record included.
    pub seq: Seq,
    /// The time of that record.
    pub time: Timestamp,
    /// The output of [`Fold::to_state`].
    pub state: Vec<u8>,
}

/// The content of a snapshot.
#[derive(Debug)]
pub struct Loaded {
    /// The state.
    pub fold: Fold,
    /// The newest idempotency keys of the records up to the last one applied; `None` when the
    /// journal has to be scanned for them.
    pub keys: Option<IdempotencyKeys>,
    last: LastRecord,
}

/// A snapshot that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}", path.display())]
pub struct WriteError {
    /// The failed operation.
    pub operation: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

impl Capture {
    /// Captures the state of `fold`; its outputs must have been drained.
    ///
    /// Errors: it cannot be written.
    pub fn new(fold: &Fold) -> Result<Self, Damaged> {
        Ok(Self { seq: fold.applied, time: fold.applied_at, state: fold.to_state()? })
    }
}

impl Loaded {
    /// Its facts about the journal.
    pub fn hint(&self) -> RecoveryHint {
        let keys_upto = if self.keys.is_some() { self.last.seq } else { Seq::ZERO };
        RecoveryHint { seq: self.last.seq, keys_upto }
    }

    /// Compares it with a scanned journal that reaches at least as far.
    ///
    /// Errors: it does not match this journal.
    pub fn check(&self, report: &ScanReport) -> Result<(), Unusable> {
        check(&self.last, report)
    }

    /// Whether the snapshot matches an open journal.
    fn belongs_to(&self, journal: &Journal) -> bool {
        match journal.read_at(self.last.seq) {
            Ok(Some(record)) => self.last.check(Some(record.as_record())).is_ok(),
            Ok(None) => false,
            Err(ReadError::Gone { oldest, .. }) => oldest <= self.last.seq.next(),
            Err(ReadError::Io { .. } | ReadError::Damaged { .. }) => true,
        }
    }
}

impl Snapshots {
    /// The snapshots in a folder; none is read yet.
    ///
    /// Errors: the folder cannot be listed.
    pub fn open(files: Arc<dyn Files>) -> io::Result<Self> {
        let mut kept: Vec<Seq> = files.list()?.iter().filter_map(|name| seq_of(name)).collect();
        kept.sort_unstable();
        Ok(Self { files, kept: Mutex::new(kept), unmatched: Mutex::default() })
    }

    /// The paths of those that belong to another journal.
    pub fn unmatched(&self) -> Vec<PathBuf> {
        self.unmatched.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether no snapshot is considered usable.
    pub fn is_empty(&self) -> bool {
        self.kept().is_empty()
    }

    /// The record up to which the journal is not needed: the last one of the older of two
    /// snapshots.
    ///
    /// Shape: `None` while there are fewer than two, because then only the journal's beginning can
    /// replace a damaged one. Later records are needed, so the journal may delete the records up to
    /// this one.
    pub fn oldest_needed(&self) -> Option<Seq> {
        let kept = self.kept();
        kept.len().checked_sub(KEPT).and_then(|at| kept.get(at)).copied()
    }

    /// The first record that a start may need; with fewer than two snapshots the journal's first.
    pub fn journal_needed_from(&self) -> Seq {
        self.oldest_needed().unwrap_or(Seq::ZERO).next()
    }

    /// The newest complete snapshot; skips damaged ones. The caller checks with [`Loaded::check`]
    /// whether it belongs to the journal.
    pub fn load(&self, rules: &RulesStore) -> Option<Loaded> {
        loop {
            let newest = self.kept().last().copied()?;
            match self.read(newest, rules) {
                Ok(loaded) => return Some(loaded),
                Err(reason) => self.pass_over(newest, &reason),
            }
        }
    }

    /// The last record of the newest one with a valid header; [`Seq::ZERO`] when there is none.
    pub fn newest(&self) -> Seq {
        let kept = self.kept().clone();
        let mut newest_first = kept.into_iter().rev().filter_map(|seq| self.read_header(seq).ok());
        newest_first.next().map_or(Seq::ZERO, |header| header.last.seq)
    }

    /// Drops those whose headers do not match the scanned journal: they cannot replace records of
    /// this journal, so no records may be deleted because of them.
    pub fn check_all(&self, report: &ScanReport) {
        let kept = self.kept().clone();
        for seq in kept {
            if let Err(reason) = self.read_header(seq).and_then(|header| check(&header.last, report)) {
                self.pass_over(seq, &reason);
            }
        }
    }

    /// The newest snapshot of `journal` that ends at or before `cursor`, if it can be read.
    pub(super) fn load_before(&self, cursor: Seq, journal: &Journal, rules: &RulesStore) -> Option<Fold> {
        let kept = self.kept().clone();
        self.find_in(journal, rules, kept.into_iter().rev().filter(|seq| *seq <= cursor))
    }

    /// The oldest snapshot of `journal` that can be read.
    pub(super) fn load_oldest(&self, journal: &Journal, rules: &RulesStore) -> Option<Fold> {
        let kept = self.kept().clone();
        self.find_in(journal, rules, kept.into_iter())
    }

    /// The newest snapshot of `journal` that was made at or before `time`, if it can be read. Nothing
    /// is reported or renamed: the snapshots are a daemon's.
    pub(super) fn load_as_of(&self, time: Timestamp, journal: &ReadOnly, rules: &RulesStore) -> Option<Fold> {
        let kept = self.kept().clone();
        kept.into_iter().rev().find_map(|seq| {
            let header = self.read_header(seq).ok()?;
            let has_next = seq.next() >= journal.first() && seq <= journal.last();
            let found = journal.read_at(seq).ok().flatten();
            let is_usable = header.last.time <= time && has_next;
            if !is_usable || header.last.check(found.as_ref().map(RecordBuf::as_record)).is_err() {
                return None;
            }
            self.read(seq, rules).ok().map(|loaded| loaded.fold)
        })
    }

    fn find_in(
        &self,
        journal: &Journal,
        rules: &RulesStore,
        mut seqs: impl Iterator<Item = Seq>,
    ) -> Option<Fold> {
        seqs.find_map(|seq| {
            let loaded = self.read(seq, rules).ok()?;
            loaded.belongs_to(journal).then_some(loaded.fold)
        })
    }

    /// Stops using the snapshot at `seq`, and reports why. One of another journal is renamed, so
    /// that no later start uses it when the journal has grown beyond it.
    pub fn pass_over(&self, seq: Seq, reason: &Unusable) {
        let name = name_of(seq);
        let path = self.files.path(&name);
        let path = path.display();
        self.kept().retain(|kept| *kept != seq);
        let is_set_aside = reason.is_of_another_journal();
        let reason: &dyn std::error::Error = reason;
        if !is_set_aside {
            tracing::warn!(%path, reason, "a snapshot is skipped");
            return;
        }
        tracing::error!(
            %path,
            reason,
            "a snapshot is not one of this journal: the journal was cut, replaced or lost its end; the snapshot is no \
             longer used and is kept as `*{SET_ASIDE_SUFFIX}`"
        );
        let renamed = self.set_aside(&name).unwrap_or_else(|error| {
            let error: &dyn std::error::Error = &error;
            tracing::warn!(%path, error, "the snapshot cannot be renamed; it is compared again at the next start");
            name
        });
        let renamed = self.files.path(&renamed);
        self.unmatched.lock().unwrap_or_else(PoisonError::into_inner).push(renamed);
    }

    /// Renames the snapshot `name`, and removes older ones of its kind beyond the maximum; returns
    /// its new name.
    fn set_aside(&self, name: &str) -> io::Result<String> {
        let is_other = |other: &String| other.ends_with(SET_ASIDE_SUFFIX);
        let mut others: Vec<String> = self.files.list()?.into_iter().filter(is_other).collect();
        others.sort_unstable();
        let too_many = (others.len() + 1).saturating_sub(SET_ASIDE_MAX);
        for other in others.iter().take(too_many) {
            self.files.remove(other)?;
        }
        let renamed = name.strip_suffix(SUFFIX).unwrap_or(name).to_owned() + SET_ASIDE_SUFFIX;
        self.files.rename(name, &renamed)?;
        self.files.sync_dir()?;
        Ok(renamed)
    }

    /// Writes a snapshot and removes the files that the newest two do not need; returns how many
    /// bytes were written.
    ///
    /// `record_checksum` is that of the capture's last record, see
    /// [`Record::checksum`](journal::Record::checksum). `keys` are the remembered
    /// idempotency keys, in order; those of later records are left out. The journal must be durable
    /// up to the capture's record, and up to the events that were pending when it was made.
    ///
    /// Errors: a file operation failed. Then the kept ones are unchanged, or an unneeded file
    /// remains.
    pub fn write(
        &self,
        capture: &Capture,
        record_checksum: u32,
        keys: &[IdempotencyKey],
    ) -> Result<u64, WriteError> {
        let Capture { seq, time, ref state } = *capture;
        let (keys, _) = keys.split_at(keys.partition_point(|key| key.seq <= seq));
        let keys = file::encode_keys(keys);
        let last = LastRecord { seq, time, checksum: record_checksum };
        let head = [Header::encode(last, Section::new(&keys), Section::new(state)), keys].concat();
        let written = self.write_named(&name_of(seq), &head, state);
        if written.is_err() {
            // On a full disk other writers need this space. The first error matters more than a
            // failure here.
            self.files.remove(UNFINISHED).ok();
        }
        written?;
        self.note_written(seq)?;
        Ok((head.len() + state.len()) as u64)
    }

    /// Writes a file that is durable before it gets its name.
    fn write_named(&self, name: &str, head: &[u8], state: &[u8]) -> Result<(), WriteError> {
        let file = self.files.create(UNFINISHED).map_err(self.failed("create", UNFINISHED))?;
        file.write_at(head, 0).map_err(self.failed("write", UNFINISHED))?;
        file.write_at(state, head.len() as u64).map_err(self.failed("write", UNFINISHED))?;
        file.sync_data().map_err(self.failed("sync", UNFINISHED))?;
        self.files.rename(UNFINISHED, name).map_err(self.failed("name", name))?;
        self.files.sync_dir().map_err(self.failed("sync the folder of", name))
    }

    /// Keeps the newest two usable ones, and removes the others.
    fn note_written(&self, written: Seq) -> Result<(), WriteError> {
        let older: Vec<Seq> = self.kept().iter().copied().filter(|other| *other < written).collect();
        let mut kept = vec![written];
        for seq in older.into_iter().rev() {
            match self.read_header(seq) {
                Ok(_) if kept.len() == KEPT => break,
                Ok(_) => kept.push(seq),
                Err(reason) => self.pass_over(seq, &reason),
            }
        }
        kept.reverse();
        self.kept().clone_from(&kept);
        for name in self.files.list().map_err(self.failed("list", ""))? {
            if seq_of(&name).is_some_and(|seq| !kept.contains(&seq)) {
                self.files.remove(&name).map_err(self.failed("remove", &name))?;
            }
        }
        Ok(())
    }

    fn read(&self, seq: Seq, rules: &RulesStore) -> Result<Loaded, Unusable> {
        let file = self.files.open(&name_of(seq))?;
        let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        let bytes = read_begin(file.as_ref(), size)?;
        let Header { last, keys, state } = header_of(&bytes, size, seq)?;
        let (_, content) = bytes.split_at_checked(HEADER_BYTES).unwrap_or_default();
        let (key_bytes, state_bytes) = content.split_at_checked(keys.length).unwrap_or_default();
        state.check(state_bytes)?;
        let fold = Fold::from_state(rules.clone(), state_bytes)?;
        if fold.applied != seq {
            return Err(Unusable::Name { named: seq, seq: fold.applied });
        }
        let keys = if keys.check(key_bytes).is_ok() {
            let mut known = IdempotencyKeys::default();
            known.remember_all(file::decode_keys(key_bytes));
            Some(known)
        } else {
            let path = self.files.path(&name_of(seq));
            let path = path.display();
            tracing::warn!(%path, "the idempotency keys of a snapshot are damaged; the journal's are used");
            None
        };
        Ok(Loaded { fold, keys, last })
    }

    fn read_header(&self, seq: Seq) -> Result<Header, Unusable> {
        let file = self.files.open(&name_of(seq))?;
        let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        header_of(&read_begin(file.as_ref(), HEADER_BYTES.min(size))?, size, seq)
    }

    fn failed(&self, operation: &'static str, name: &str) -> impl FnOnce(io::Error) -> WriteError + use<> {
        let path = self.files.path(name);
        move |source| WriteError { operation, path, source }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Seq>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Compares the last record of a snapshot with a scanned journal that reaches as far.
fn check(last: &LastRecord, report: &ScanReport) -> Result<(), Unusable> {
    if last.seq.next() < report.first() {
        return Err(Unusable::BeforeJournal { first: report.first() });
    }
    // An unreadable record is not a mismatch; its readers report the damage.
    let record = report.record(last.seq).ok().flatten();
    last.check(record.as_ref().map(|record| record.as_record()))
}

fn name_of(seq: Seq) -> String {
    format!("{:0SEQ_DIGITS$}{SUFFIX}", seq.0)
}

fn seq_of(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(SUFFIX)?;
    let is_name = digits.len() == SEQ_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_name.then(|| digits.parse().ok().map(Seq)).flatten()
}

fn header_of(bytes: &[u8], size: usize, named: Seq) -> Result<Header, Unusable> {
    let header = Header::decode(bytes, size)?;
    let LastRecord { seq, .. } = header.last;
    if seq == named { Ok(header) } else { Err(Unusable::Name { named, seq }) }
}

fn read_begin(file: &dyn File, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let count = file.read_at(&mut bytes, 0)?;
    bytes.truncate(count);
    Ok(bytes)
}
