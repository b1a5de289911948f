//! Where snapshots are kept: the newest two, each in a file that is whole or not there.
//!
//! A snapshot is what the records up to one position left, so that a start need not read them again. It never holds what the
//! journal does not: it is written after the journal is durable up to its record and up to the events that the engine owed by then.
//! Whatever is wrong with one is a reason to use the one before, or the journal from its beginning, and to say so; never a reason
//! not to start. What is in a file is `file`'s business, what became of the publish keys is `keys`', when one is taken is `keeper`'s.

mod file;
pub(super) mod keeper;
mod keys;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

pub use self::file::{FORMAT_VERSION, Unusable};
use self::{
    file::{Form, HEADER_BYTES, Header, Section},
    keys::KeyLog,
};
use super::{fold::Fold, rules::RulesStore};
use crate::{
    event::Seq,
    journal::{
        KnownRecord, PublishedKey, PublishedKeys, RecordPlace,
        files::{File, Files},
    },
    snapshot::{Damaged, form_3},
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
    /// The newest that was passed over for its publish keys alone.
    keyless: Mutex<Option<Seq>>,
    keys: Mutex<Keys>,
}

/// Where the next publish keys go.
#[derive(Debug, Clone)]
struct Keys {
    /// What the newest usable snapshot relies on.
    log: KeyLog,
    /// The number of the next file.
    next: u64,
}

/// What the engine and its ledger were at one position, written down.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The last record that is in it.
    pub seq: Seq,
    /// The time of that record.
    pub time: Timestamp,
    /// Where in the journal it is, if that is known.
    pub place: Option<RecordPlace>,
    /// As [`Fold::to_state`] writes it.
    pub state: Vec<u8>,
}

/// What a snapshot holds, and what was done while it was read.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The state.
    pub fold: Fold,
    /// The publish keys of the records up to the one that the state has applied.
    pub published: PublishedKeys,
    /// What was done.
    pub done: T,
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
    /// Writes down what `fold` is; its outputs must have been drained. `place` is that of the record it applied last.
    ///
    /// Errors: it cannot be written.
    pub fn of(fold: &Fold, place: Option<RecordPlace>) -> Result<Self, Damaged> {
        Ok(Self { seq: fold.applied, time: fold.applied_at, place, state: fold.to_state()? })
    }
}

impl Snapshots {
    /// The snapshots in a folder; none is read yet.
    ///
    /// Errors: the folder cannot be listed.
    pub fn open(files: Arc<dyn Files>) -> io::Result<Self> {
        let names = files.list()?;
        let mut kept: Vec<Seq> = names.iter().filter_map(|name| seq_of(name)).collect();
        kept.sort_unstable();
        let keys = Keys { log: KeyLog::default(), next: keys::next_number(&names) };
        Ok(Self { files, kept: Mutex::new(kept), keyless: Mutex::default(), keys: Mutex::new(keys) })
    }

    /// Whether there is none that is believed to be usable.
    pub fn is_empty(&self) -> bool {
        self.kept().is_empty()
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

    /// The newest snapshot that can be gone on from; passes over those that cannot.
    pub fn load(&self, rules: &RulesStore) -> Option<Fold> {
        self.load_meanwhile(rules, |_| ()).map(|loaded| loaded.fold)
    }

    /// Does what [`Snapshots::load`] does, and something with the snapshot's last record while its publish keys are read.
    ///
    /// Shape: what is done may change nothing, as the snapshot may turn out not to be usable, and another one is tried.
    pub fn load_meanwhile<T>(
        &self,
        rules: &RulesStore,
        mut meanwhile: impl FnMut(KnownRecord) -> T,
    ) -> Option<Loaded<T>> {
        loop {
            let newest = self.kept().last().copied()?;
            match self.read(newest, rules, &mut meanwhile) {
                Ok((loaded, log)) => {
                    self.keys().log = log;
                    return Some(loaded);
                }
                Err(reason) => {
                    self.pass_over(newest, &reason);
                    if matches!(reason, Unusable::Keys { .. } | Unusable::KeysUnread { .. }) {
                        self.keyless().get_or_insert(newest);
                    }
                }
            }
        }
    }

    /// The state of the newest snapshot that was passed over for its publish keys alone; for a start that has no other, as it is worth more
    /// than the records it was made of, if these were deleted.
    pub fn load_without_keys(&self, rules: &RulesStore) -> Option<Fold> {
        let seq = *self.keyless();
        let fold = self.read_fold(seq?, rules).ok()?;
        let seq = fold.applied;
        tracing::warn!(%seq, "the state of a snapshot that was passed over is used, with the publish keys that the journal has");
        Some(fold)
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

    /// The last record whose publish key need not be handed over any more.
    pub fn keys_upto(&self) -> Seq {
        self.keys().log.upto
    }

    /// Writes a snapshot, and the publish keys of the records up to it that were not written yet; removes what the newest two do not
    /// need. Returns how many bytes were written.
    ///
    /// `published` has the keys of all records after [`Snapshots::keys_upto`], in order, and may have earlier and later ones. The
    /// journal must be durable up to the snapshot's record, and up to the events that the engine owed when it was taken.
    ///
    /// Errors: what is kept is as it was, or something needless is still there.
    pub fn write(&self, taken: &Taken, published: &[PublishedKey]) -> Result<u64, WriteError> {
        let failed = |operation, name: &str| {
            let path = self.files.path(name);
            move |source| WriteError { operation, path, source }
        };
        let Keys { log, mut next } = self.keys().clone();
        let extended = log.extended(self.files.as_ref(), published, taken.seq, &mut next);
        // A file that was begun in vain is not used again.
        self.keys().next = next;
        let (log, key_bytes) = extended?;
        let list = log.encode();
        let header = Header {
            form: Form::Named,
            seq: taken.seq,
            time: taken.time,
            place: taken.place,
            keys: Section::of(&list),
            state: Section::of(&taken.state),
        };
        let head = [header.encode(), list].concat();
        let file = self.files.create(UNFINISHED).map_err(failed("create", UNFINISHED))?;
        file.write_at(&head, 0).map_err(failed("write", UNFINISHED))?;
        file.write_at(&taken.state, head.len() as u64).map_err(failed("write", UNFINISHED))?;
        file.sync_data().map_err(failed("sync", UNFINISHED))?;
        let name = name_of(taken.seq);
        self.files.rename(UNFINISHED, &name).map_err(failed("name", &name))?;
        self.files.sync_dir().map_err(failed("sync the folder of", &name))?;
        self.note_written(taken.seq, log)?;
        Ok(key_bytes + (head.len() + taken.state.len()) as u64)
    }

    /// Keeps the newest two of those that are usable and what they rely on, and removes every other file.
    fn note_written(&self, seq: Seq, log: KeyLog) -> Result<(), WriteError> {
        let older: Vec<Seq> = self.kept().iter().copied().filter(|other| *other < seq).collect();
        let mut logs = vec![log.clone()];
        for seq in older.into_iter().rev() {
            match self.read_log(seq) {
                Ok(_) if logs.len() == KEPT => break,
                Ok(log) => logs.push(log),
                Err(reason) => self.pass_over(seq, &reason),
            }
        }
        self.keys().log = log;
        *self.kept() = logs.iter().rev().map(|log| log.upto).collect();
        let failed = |operation, name: &str| {
            let path = self.files.path(name);
            move |source| WriteError { operation, path, source }
        };
        for name in self.files.list().map_err(failed("list", ""))? {
            let is_kept = match seq_of(&name) {
                Some(seq) => logs.iter().any(|log| log.upto == seq),
                None => !keys::is_keys(&name) || logs.iter().any(|log| log.has(&name)),
            };
            if !is_kept {
                self.files.remove(&name).map_err(failed("remove", &name))?;
            }
        }
        Ok(())
    }

    /// Reads the state, and beside it the publish keys.
    fn read<T>(
        &self,
        seq: Seq,
        rules: &RulesStore,
        meanwhile: impl FnOnce(KnownRecord) -> T,
    ) -> Result<(Loaded<T>, KeyLog), Unusable> {
        let content = self.read_content(seq)?;
        let log = content.log()?;
        let own = || {
            let fold = content.fold(rules)?;
            let done = meanwhile(KnownRecord { seq, place: content.header.place });
            Ok::<_, Unusable>((fold, done))
        };
        let (own, published) = beside(|| log.read(self.files.as_ref()), own);
        let (fold, done) = own?;
        Ok((Loaded { fold, published: published?, done }, log))
    }

    fn read_fold(&self, seq: Seq, rules: &RulesStore) -> Result<Fold, Unusable> {
        self.read_content(seq)?.fold(rules)
    }

    fn read_content(&self, seq: Seq) -> Result<Content, Unusable> {
        let file = self.files.open(&name_of(seq))?;
        let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        let bytes = read_at(file.as_ref(), 0, size)?;
        let header = header_of(&bytes, size, seq)?;
        Ok(Content { header, bytes })
    }

    /// What a snapshot relies on, without its state.
    fn read_log(&self, seq: Seq) -> Result<KeyLog, Unusable> {
        let file = self.files.open(&name_of(seq))?;
        let size = usize::try_from(file.size()?).unwrap_or(usize::MAX);
        let header = header_of(&read_at(file.as_ref(), 0, HEADER_BYTES.min(size))?, size, seq)?;
        let list = read_at(file.as_ref(), HEADER_BYTES, header.keys.length)?;
        log_of(&header, &list)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Seq>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keyless(&self) -> MutexGuard<'_, Option<Seq>> {
        self.keyless.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A snapshot's file.
struct Content {
    header: Header,
    bytes: Vec<u8>,
}

impl Content {
    fn log(&self) -> Result<KeyLog, Unusable> {
        log_of(&self.header, self.section(HEADER_BYTES, self.header.keys))
    }

    fn fold(&self, rules: &RulesStore) -> Result<Fold, Unusable> {
        let Header { form, seq, keys, state, .. } = self.header;
        let bytes = self.section(HEADER_BYTES + keys.length, state);
        state.check(bytes)?;
        let fold = match form {
            Form::Named => Fold::from_state(rules.clone(), bytes)?,
            Form::Nameless => Fold::from_state(rules.clone(), &form_3::to_present(bytes)?)?,
        };
        if fold.applied == seq { Ok(fold) } else { Err(Unusable::Name { named: seq, seq: fold.applied }) }
    }

    fn section(&self, at: usize, section: Section) -> &[u8] {
        self.bytes.get(at..).and_then(|bytes| bytes.get(..section.length)).unwrap_or_default()
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

fn header_of(bytes: &[u8], size: usize, named: Seq) -> Result<Header, Unusable> {
    let header = Header::decode(bytes.get(..HEADER_BYTES).unwrap_or(bytes), size)?;
    if header.seq == named { Ok(header) } else { Err(Unusable::Name { named, seq: header.seq }) }
}

fn log_of(header: &Header, list: &[u8]) -> Result<KeyLog, Unusable> {
    header.keys.check(list)?;
    KeyLog::decode(header.seq, list).ok_or(Unusable::KeyList)
}

/// Does `other` on a thread of its own, if one can be had, while this one does `own`.
fn beside<A, B: Send>(other: impl Fn() -> B + Sync, own: impl FnOnce() -> A) -> (A, B) {
    thread::scope(|scope| {
        let begun = thread::Builder::new().name("snapshot-keys".to_owned()).spawn_scoped(scope, &other);
        let done = own();
        let other = match begun {
            Ok(begun) => begun.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
            Err(_) => other(),
        };
        (done, other)
    })
}

fn read_at(file: &dyn File, at: usize, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    let count = file.read_at(&mut bytes, at as u64)?;
    bytes.truncate(count);
    Ok(bytes)
}
