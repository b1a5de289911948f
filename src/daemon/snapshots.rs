//! Where snapshots are kept: the newest two, each in a file that is whole or not there.
//!
//! A snapshot is what the records up to one position left, so that a start need not read them again. It never holds what the
//! journal does not: it is written after the journal is durable up to its record and up to the events that the engine owed by then.
//! Whatever is wrong with one is a reason to use the one before, or the journal from its beginning, and to say so; never a reason
//! not to start. What is in a file is `file`'s business, when one is taken is `keeper`'s.

mod file;
pub(super) mod keeper;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use self::file::{FORMAT_VERSION, Unusable};
use self::file::{HEADER_BYTES, Header, Section};
use super::{fold::Fold, rules::RulesStore};
use crate::{
    event::Seq,
    journal::{
        Known, PublishedKeys,
        files::{File, Files},
    },
    time::Timestamp,
};

/// How many are kept: the newest, and one for the case that something is wrong with it.
pub const KEPT: usize = 2;

/// What a snapshot is called while it is written.
const UNFINISHED: &str = "unfinished";
const SUFFIX: &str = ".snap";
/// Digits of a position in a name, so that names sort as positions do.
const SEQ_DIGITS: usize = 20;

/// The snapshots of one state folder; shared by whoever writes them and whoever deletes what they make needless.
#[derive(Debug)]
pub struct Snapshots {
    files: Arc<dyn Files>,
    /// Those that are believed to be usable, oldest first.
    kept: Mutex<Vec<Seq>>,
}

/// What the engine and its ledger were at one position, written down.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The last record that is in it.
    pub seq: Seq,
    /// The time of that record.
    pub time: Timestamp,
    /// As [`Fold::to_state`] writes it.
    pub state: Vec<u8>,
}

/// A snapshot that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}", path.display())]
pub struct WriteError {
    /// What failed.
    pub operation: &'static str,
    /// On which file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl Taken {
    /// Writes down what `fold` is; its outputs must have been drained.
    pub fn of(fold: &Fold) -> Self {
        Self { seq: fold.applied, time: fold.applied_at, state: fold.to_state() }
    }
}

impl Snapshots {
    /// The snapshots in a folder; none is read yet.
    ///
    /// Errors: the folder cannot be listed.
    pub fn open(files: Arc<dyn Files>) -> io::Result<Self> {
        let mut kept: Vec<Seq> = files.list()?.iter().filter_map(|name| seq_of(name)).collect();
        kept.sort_unstable();
        Ok(Self { files, kept: Mutex::new(kept) })
    }

    /// The record up to which the journal is not needed any more: the last one of the older of two snapshots.
    ///
    /// Shape: `None` while there are less than two, as then only the journal's beginning can replace one that is damaged. The
    /// records after it are needed, so the journal may forget what is before the following one.
    pub fn oldest_needed(&self) -> Option<Seq> {
        let kept = self.kept();
        kept.len().checked_sub(KEPT).and_then(|at| kept.get(at)).copied()
    }

    /// The first record that a start may need; with less than two snapshots the journal's first.
    pub fn journal_needed_from(&self) -> Seq {
        self.oldest_needed().unwrap_or(Seq::ZERO).next()
    }

    /// The newest snapshot that can be gone on from, and what it knows of the journal; passes over those that cannot.
    pub fn load(&self, rules: &RulesStore) -> Option<(Fold, Known)> {
        loop {
            let newest = self.kept().last().copied()?;
            match self.read(newest, rules) {
                Ok(loaded) => return Some(loaded),
                Err(reason) => self.pass_over(newest, &reason),
            }
        }
    }

    /// The newest snapshot that holds nothing after `cursor`, if it can be read.
    pub(super) fn load_before(&self, cursor: Seq, rules: &RulesStore) -> Option<Fold> {
        let kept = self.kept().clone();
        kept.into_iter().rev().filter(|seq| *seq <= cursor).find_map(|seq| self.read_fold(seq, rules).ok())
    }

    /// The oldest snapshot that can be read.
    pub(super) fn load_oldest(&self, rules: &RulesStore) -> Option<Fold> {
        let kept = self.kept().clone();
        kept.into_iter().find_map(|seq| self.read_fold(seq, rules).ok())
    }

    /// Uses the snapshot at `seq` no more, and says why.
    pub fn pass_over(&self, seq: Seq, reason: &Unusable) {
        let path = self.files.path(&name_of(seq));
        let reason: &dyn std::error::Error = reason;
        tracing::warn!(path = %path.display(), reason, "a snapshot is passed over");
        self.kept().retain(|kept| *kept != seq);
    }

    /// Writes a snapshot with the publish keys of the records up to it, and removes those that are older than the newest two;
    /// returns its length in bytes.
    ///
    /// `published` may hold later keys. The journal must be durable up to the snapshot's record, and up to the events that the
    /// engine owed when it was taken.
    ///
    /// Errors: nothing was changed but the unfinished file, or an old snapshot is still there.
    pub fn write(&self, taken: &Taken, published: &PublishedKeys) -> Result<u64, WriteError> {
        let keys = file::keys_up_to(taken.seq, published);
        let header = Header {
            seq: taken.seq,
            time: taken.time,
            keys: Section::of(&keys),
            state: Section::of(&taken.state),
        };
        let header = header.encode();
        let failed =
            |operation, name: &str, source| WriteError { operation, path: self.files.path(name), source };
        let mut size = 0;
        let file = self.files.create(UNFINISHED).map_err(|source| failed("create", UNFINISHED, source))?;
        for part in [&header, &keys, &taken.state] {
            file.write_at(part, size).map_err(|source| failed("write", UNFINISHED, source))?;
            size += part.len() as u64;
        }
        file.sync_data().map_err(|source| failed("sync", UNFINISHED, source))?;
        let name = name_of(taken.seq);
        self.files.rename(UNFINISHED, &name).map_err(|source| failed("name", &name, source))?;
        self.files.sync_dir().map_err(|source| failed("sync the folder of", &name, source))?;
        self.note_written(taken.seq).map_err(|(name, source)| failed("remove", &name, source))?;
        Ok(size)
    }

    /// Keeps the newest two of those that are usable, and removes every other file.
    fn note_written(&self, seq: Seq) -> Result<(), (String, io::Error)> {
        let kept = {
            let mut kept = self.kept();
            kept.retain(|other| *other < seq);
            kept.push(seq);
            let older = kept.len().saturating_sub(KEPT);
            kept.drain(..older);
            kept.clone()
        };
        let names = self.files.list().map_err(|source| (String::new(), source))?;
        for name in names {
            if seq_of(&name).is_some_and(|seq| !kept.contains(&seq)) {
                self.files.remove(&name).map_err(|source| (name, source))?;
            }
        }
        Ok(())
    }

    fn read(&self, seq: Seq, rules: &RulesStore) -> Result<(Fold, Known), Unusable> {
        let fold = self.read_fold(seq, rules)?;
        let file = self.files.open(&name_of(seq))?;
        let header = read_header(file.as_ref(), seq)?;
        let keys = read_section(file.as_ref(), HEADER_BYTES, header.keys)?;
        Ok((fold, Known { seq, published: file::published(&keys) }))
    }

    fn read_fold(&self, seq: Seq, rules: &RulesStore) -> Result<Fold, Unusable> {
        let file = self.files.open(&name_of(seq))?;
        let header = read_header(file.as_ref(), seq)?;
        let state = read_section(file.as_ref(), HEADER_BYTES + header.keys.length, header.state)?;
        let fold = Fold::from_state(rules.clone(), &state)?;
        if fold.applied != seq {
            return Err(Unusable::Name { named: seq, seq: fold.applied });
        }
        Ok(fold)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Seq>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name_of(seq: Seq) -> String {
    format!("{:0SEQ_DIGITS$}{SUFFIX}", seq.0)
}

fn seq_of(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(SUFFIX)?;
    let is_name = digits.len() == SEQ_DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_name.then(|| digits.parse().ok().map(Seq)).flatten()
}

fn read_header(file: &dyn File, named: Seq) -> Result<Header, Unusable> {
    let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
    let header = Header::decode(&read_at(file, 0, HEADER_BYTES.min(size))?, size)?;
    if header.seq != named {
        return Err(Unusable::Name { named, seq: header.seq });
    }
    Ok(header)
}

fn read_section(file: &dyn File, at: usize, section: Section) -> Result<Vec<u8>, Unusable> {
    let bytes = read_at(file, at, section.length)?;
    section.check(&bytes)?;
    Ok(bytes)
}

fn read_at(file: &dyn File, at: usize, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let count = file.read_at(&mut bytes, at as u64)?;
    bytes.truncate(count);
    Ok(bytes)
}
