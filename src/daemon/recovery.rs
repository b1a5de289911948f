//! Rebuilds the engine's state from the newest snapshot and the journal, with the same fold as live
//! traffic.
//!
//! Every record after the snapshot is applied at its original time. Of the outputs only one kind
//! can still be pending: an event of the engine that was not yet in the journal when the process
//! died. The requests that wait for answers are gone. Their released notifications are leased, and
//! the leases expire as usual.

use std::{
    any::Any,
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
    time::Duration,
};

use super::{
    clock::{Clock, clock_fn},
    fold::{Fold, FoldError},
    lock::{JOURNAL_FOLDER, is_restore_interrupted},
    projector,
    quarantine::Attempt,
    rules::RulesStore,
    skipped::Skipped,
    snapshots::{FOLDER as SNAPSHOTS, Snapshots, Unusable},
};
use crate::{
    causes::with_causes,
    config::daemon::{Durability as Configured, JournalConfig},
    engine::Output,
    event::{
        Event, Seq,
        codec::{self, IdOrigin},
    },
    journal::{
        Clock as JournalClock, Durability, IdempotencyKeys, Journal, JournalSettings, OpenError, Opened,
        ReadError, Reader, Record, RecordKind, RecoveryHint, Retention, SYNC_WITHIN, ScanReport,
        files::{DirFiles, Files},
    },
    projection::{FILE_NAME, Notes, ProjectionError, Writer},
    publisher::{Publisher, Records},
    records,
    time::Timestamp,
};

/// Most records per read.
const BATCH_RECORDS_MAX: usize = 4_096;

/// Largest age, at the journal's end, of an engine event that can still be pending: it is appended
/// with the next slice, or within seconds if the disk is full.
const OUTBOX_AGE_MAX: Duration = Duration::from_secs(60);

/// Most records that one start skips; a larger number is not a set of isolated failures.
const SKIPPED_MAX: usize = 16;

/// Why the state cannot be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The folder of the journal or of the snapshots cannot be created.
    #[error("create the folders of the journal and the snapshots")]
    Folder(#[source] io::Error),
    /// A restore into it was interrupted.
    #[error("use {}: a restore into it did not finish; restore again", .0.display())]
    Unrestored(std::path::PathBuf),
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal cannot be read.
    #[error("read the journal")]
    Read(#[from] ReadError),
    /// A record cannot be applied.
    #[error("replay the journal")]
    Fold(#[from] FoldError),
    /// More records would have to be skipped than allowed.
    #[error(
        "replay the journal: record {seq} cannot be applied ({why}), and {SKIPPED_MAX} before it were skipped; `aside journal verify` lists the damage"
    )]
    Unreadable {
        /// The record.
        seq: Seq,
        /// The reason.
        why: String,
    },
}

/// The recovered state, and the reader at the first record after it.
pub(super) struct Recovered {
    pub(super) fold: Fold,
    pub(super) journal: Journal,
    pub(super) reader: Reader,
    pub(super) clock: Arc<Clock>,
    pub(super) snapshots: Arc<Snapshots>,
    /// The last record of the snapshot that was used.
    pub(super) snapshot: Seq,
    /// The projection's file, if it is usable; `fold` has the notes that it lacks, if they are few.
    pub(super) projected: Option<Writer>,
    /// The skipped records.
    pub(super) skipped: BTreeSet<Seq>,
    /// When the previous daemon was last alive according to the journal; [`Timestamp::ZERO`] if
    /// there was none.
    pub(super) ended_at: Timestamp,
    /// Events of the engine that an earlier process did not append.
    pub(super) outbox: Vec<Event>,
}

/// Opens the journal in `state` and rebuilds its state, with the rules of each time from `rules`.
pub(super) fn recover(
    state: &Path,
    config: &JournalConfig,
    rules: &RulesStore,
) -> Result<Recovered, RecoveryError> {
    if is_restore_interrupted(state) {
        return Err(RecoveryError::Unrestored(state.to_owned()));
    }
    let clock = Arc::new(Clock::starting_at(Timestamp::ZERO));
    let snapshots = open_snapshots(state)?;
    let journal = closed_journal(state, config, &clock)?;
    let (fold, opened) = open_after(&snapshots, rules, &journal)?;
    let Opened { journal, cuts: _, last_seq, last_time } = opened;
    let ended_at = last_time.max(fold.applied_at);
    clock.go_on_from(ended_at);
    snapshots.unmatched().into_iter().for_each(|path| journal.note_unmatched_snapshot(path));
    let snapshot = fold.applied;
    let projected = or_later(projector::open(&state.join(FILE_NAME)));
    let replayed = Replay { journal: &journal, snapshots: &snapshots, rules, ended: last_seq };
    let mut skipped = Skipped::open(state, &journal);
    let Followed { fold, reader, outbox } = replayed.follow(state, fold, &mut skipped, |fold| {
        projected.as_ref().and_then(|writer| missing(writer, fold.applied, last_seq))
    })?;
    let outbox = newest(outbox, fold.applied_at);
    journal.set_needed_from(snapshots.journal_needed_from());
    let snapshots = Arc::new(snapshots);
    Ok(Recovered {
        fold,
        journal,
        reader,
        clock,
        snapshots,
        snapshot,
        projected,
        skipped: skipped.into_records(),
        ended_at,
        outbox,
    })
}

/// The pending events that a process may not have appended before it died at `end`. Older ones are
/// events that only this version of the program makes.
fn newest(outbox: Vec<Event>, end: Timestamp) -> Vec<Event> {
    let (newest, older): (Vec<Event>, Vec<Event>) =
        outbox.into_iter().partition(|event| end.since(event.timestamp) <= OUTBOX_AGE_MAX);
    if !older.is_empty() {
        tracing::info!(events = older.len(), "events that an earlier version did not make are not published");
    }
    newest
}

/// The snapshots in `state`.
pub(super) fn open_snapshots(state: &Path) -> Result<Snapshots, RecoveryError> {
    let files = DirFiles::new(&state.join(SNAPSHOTS)).map_err(RecoveryError::Folder)?;
    Snapshots::open(Arc::new(files)).map_err(RecoveryError::Folder)
}

/// A journal that is not open yet.
pub struct ClosedJournal {
    /// Its files.
    pub files: Arc<dyn Files>,
    /// Its settings.
    pub settings: JournalSettings,
    /// The clock for its records.
    pub clock: JournalClock,
    /// The idempotency key of a record.
    pub key_of: fn(Record<'_>) -> Option<u128>,
}

impl fmt::Debug for ClosedJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClosedJournal").field("files", &self.files).finish_non_exhaustive()
    }
}

impl ClosedJournal {
    /// Opens it without a hint.
    ///
    /// Errors: those of [`Journal::open`].
    pub fn open(&self) -> Result<Opened, OpenError> {
        self.open_scanned(self.scan(RecoveryHint::default())?, IdempotencyKeys::default())
    }

    fn scan(&self, hint: RecoveryHint) -> Result<ScanReport, OpenError> {
        Journal::scan(self.files.as_ref(), &self.key_of, hint)
    }

    fn open_scanned(&self, report: ScanReport, keys: IdempotencyKeys) -> Result<Opened, OpenError> {
        Journal::open_scanned(Arc::clone(&self.files), self.settings, Arc::clone(&self.clock), report, keys)
    }
}

/// The journal of `state`.
pub(super) fn closed_journal(
    state: &Path,
    config: &JournalConfig,
    clock: &Arc<Clock>,
) -> Result<ClosedJournal, RecoveryError> {
    let files = Arc::new(DirFiles::new(&state.join(JOURNAL_FOLDER)).map_err(RecoveryError::Folder)?);
    let (durability, sync_within) = match config.durability {
        Configured::Sync => (Durability::Sync, SYNC_WITHIN),
        Configured::Interval(interval) => (Durability::Interval, interval),
    };
    let settings = JournalSettings {
        segment_bytes: config.segment_bytes,
        durability,
        sync_within,
        seal: config.seal,
        retention: Retention { age: config.retain_age, bytes: config.retain_bytes },
        preface: Some(RecordKind(records::RULES)),
    };
    Ok(ClosedJournal { files, settings, clock: clock_fn(clock), key_of })
}

/// Opens a journal with the newest snapshot that matches it, or with none.
///
/// Errors: the journal cannot be opened, even with another snapshot.
pub fn open_after(
    snapshots: &Snapshots,
    rules: &RulesStore,
    journal: &ClosedJournal,
) -> Result<(Fold, Opened), OpenError> {
    let had_none = snapshots.is_empty();
    while let Some(loaded) = snapshots.load(rules) {
        let report = match journal.scan(loaded.hint()) {
            Ok(report) => loaded.check(&report).map(|()| report),
            Err(behind @ OpenError::Behind { .. }) => Err(Unusable::Ahead(behind)),
            Err(error) => return Err(error),
        };
        match report {
            Ok(report) => {
                snapshots.check_all(&report);
                let keys = loaded.keys.unwrap_or_default();
                return Ok((loaded.fold, journal.open_scanned(report, keys)?));
            }
            Err(reason) => snapshots.pass_over(loaded.fold.applied, &reason),
        }
    }
    if !had_none {
        tracing::warn!("no snapshot can be used, so the journal is read from its first record");
    }
    Ok((Fold::new(rules.clone()), journal.open()?))
}

/// A reader of the records that `fold` has not applied. Without a snapshot, a journal whose
/// beginning was deleted is read from its oldest record.
fn first_reader(journal: &Journal, fold: &Fold) -> Result<Reader, ReadError> {
    let is_without_snapshot = fold.applied == Seq::ZERO;
    match journal.read_at(fold.applied.next()) {
        Err(ReadError::Gone { oldest, .. }) if is_without_snapshot => {
            tracing::warn!(
                %oldest,
                "the beginning of the journal was deleted and no snapshot replaces it: what was pending then is lost"
            );
            Ok(journal.read_from(oldest))
        }
        Err(error) => Err(error),
        Ok(_) => Ok(journal.read_from(fold.applied.next())),
    }
}

/// A buffer for the notes that the projection lacks, if a replay from `begin` to `head` covers them
/// and they are few.
fn missing(projected: &Writer, begin: Seq, head: Seq) -> Option<Notes> {
    let cursor = projected.cursor();
    let is_near = head.0.saturating_sub(cursor.0) <= projector::REPLAY_RECORDS_MAX;
    (begin <= cursor && is_near).then(|| Notes::after(cursor))
}

/// On an error the start continues, and the projection's own thread tries again.
fn or_later<T>(outcome: Result<T, ProjectionError>) -> Option<T> {
    outcome.inspect_err(|error| tracing::error!(%error, "the history is rebuilt later")).ok()
}

/// The idempotency key of a record, so that duplicates are detected after a restart.
fn key_of(found: Record<'_>) -> Option<u128> {
    // An id made by the daemon cannot repeat, so its event needs no key.
    let is_producers = found.kind.0 == records::EVENT && codec::id_origin(found.body) == IdOrigin::Producer;
    let event = is_producers.then(|| codec::decode(found.body).ok()).flatten()?;
    Some(event.idempotency_key())
}

/// The records of ended processes.
struct Replay<'a> {
    journal: &'a Journal,
    snapshots: &'a Snapshots,
    rules: &'a RulesStore,
    /// Their last record.
    ended: Seq,
}

/// The state at the journal's head.
struct Followed {
    fold: Fold,
    reader: Reader,
    outbox: Vec<Event>,
}

/// Why the replay stopped.
enum Stopped {
    /// At this record: it is skipped, and the replay starts again.
    At(Seq, String),
    /// The journal failed.
    Error(RecoveryError),
}

impl Replay<'_> {
    /// Brings `fold` to the journal's head. A record that cannot be read, or that crashed this
    /// process or earlier ones, is skipped from then on.
    fn follow(
        &self,
        state: &Path,
        fold: Fold,
        skipped: &mut Skipped,
        notes_of: impl Fn(&Fold) -> Option<Notes>,
    ) -> Result<Followed, RecoveryError> {
        let attempt = Attempt::begin(state)
            .inspect_err(|error| tracing::warn!(%error, "if this start crashes, the next one cannot identify the record"))
            .ok();
        let mut left = SKIPPED_MAX;
        if let Some(seq) = attempt.as_ref().and_then(Attempt::culprit) {
            self.skip(seq, "starts of the daemon crashed on it".to_owned(), skipped);
            left -= 1;
        }
        let mut fold = Some(fold);
        loop {
            let loaded = || self.snapshots.load(self.rules).map(|loaded| loaded.fold);
            let fold = fold.take().or_else(loaded);
            let mut fold = fold.unwrap_or_else(|| Fold::new(self.rules.clone()));
            fold.notes = notes_of(&fold);
            match self.try_follow(fold, skipped.records(), attempt.as_ref()) {
                Ok(followed) => {
                    let ended = attempt.map_or(Ok(()), Attempt::end);
                    if let Err(error) = ended {
                        tracing::warn!(%error, "the file of the replayed record could not be removed; the next start notes each record");
                    }
                    return Ok(followed);
                }
                Err(Stopped::At(seq, why)) if left > 0 && !skipped.records().contains(&seq) => {
                    self.skip(seq, why, skipped);
                    left -= 1;
                }
                Err(Stopped::At(seq, why)) => return Err(RecoveryError::Unreadable { seq, why }),
                Err(Stopped::Error(error)) => return Err(error),
            }
        }
    }

    fn try_follow(
        &self,
        mut fold: Fold,
        skipped: &BTreeSet<Seq>,
        attempt: Option<&Attempt>,
    ) -> Result<Followed, Stopped> {
        let mut reader = first_reader(self.journal, &fold).map_err(|error| Stopped::Error(error.into()))?;
        fold.look_ahead(self.journal.read_from(reader.position()), self.ended, skipped.clone());
        let applying = Cell::new(Seq::ZERO);
        let begin = |seq| {
            applying.set(seq);
            if let Some(attempt) = attempt {
                attempt.applying(seq);
            }
        };
        // After a panic the fold is dropped.
        let replayed = catch_unwind(AssertUnwindSafe(|| replay_saying(&mut reader, &mut fold, begin)));
        let outbox = match replayed {
            Ok(Ok(outbox)) => outbox,
            Ok(Err(RecoveryError::Fold(FoldError::Record { seq, source }))) if source.is_damage() => {
                return Err(Stopped::At(seq, with_causes(&source)));
            }
            Ok(Err(error)) => return Err(Stopped::Error(error)),
            Err(panic) => return Err(Stopped::At(applying.get(), words_of(panic.as_ref()))),
        };
        fold.go_live();
        Ok(Followed { fold, reader, outbox })
    }

    /// Records in the journal that a record is skipped, so that it stays skipped.
    fn skip(&self, seq: Seq, why: String, skipped: &mut Skipped) {
        tracing::error!(%seq, why, "a record of the journal is skipped; it has no effect");
        let publisher = Publisher::new(self.journal.clone());
        let appended = publisher.append_synced_blocking(Records::build(|records| records.skipped(seq)));
        let appended = appended.inspect_err(
            |error| tracing::error!(%error, "the skip could not be recorded; it applies to this start only"),
        );
        skipped.add(seq, appended.ok().and_then(|appended| appended.first()));
        self.journal.note_skipped(seq, why);
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the program failed on it: {}", words.unwrap_or_else(|| "without a message".to_owned()))
}

/// Applies all records from `reader` to `fold`; returns the events that are still to be published.
pub fn replay(reader: &mut Reader, fold: &mut Fold) -> Result<Vec<Event>, RecoveryError> {
    replay_saying(reader, fold, |_| ())
}

/// Does the same, and calls `begin` with each record before it is applied.
fn replay_saying(
    reader: &mut Reader,
    fold: &mut Fold,
    begin: impl Fn(Seq),
) -> Result<Vec<Event>, RecoveryError> {
    let mut outbox: BTreeMap<Arc<str>, Event> = BTreeMap::new();
    loop {
        let before = fold.applied;
        for record in reader.next_batch(BATCH_RECORDS_MAX)?.iter() {
            begin(record.seq);
            fold.apply(&record)?;
            if record.kind.0 == records::EVENT && !outbox.is_empty() {
                remove_published(&mut outbox, record.body);
            }
            while let Some(output) = fold.poll_output() {
                if let Output::Publish(event) = output {
                    outbox.insert(event.id.clone(), event);
                }
            }
        }
        if fold.applied == before {
            return Ok(outbox.into_values().collect());
        }
    }
}

fn remove_published(outbox: &mut BTreeMap<Arc<str>, Event>, body: &[u8]) {
    if let Ok(event) = codec::decode(body)
        && outbox.get(event.id).is_some_and(|own| *own.source == *event.source)
    {
        outbox.remove(event.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Payload, Provenance, Severity};

    #[test]
    fn an_event_of_the_outbox_from_long_before_the_end_is_not_published() {
        let event = |id: &str, second: u64| Event {
            id: id.into(),
            event_type: "source.throttled".parse().expect("a type"),
            source: "aside".into(),
            provenance: Provenance::Local,
            severity: Severity::Warning,
            timestamp: Timestamp::from_millis(second * 1_000),
            payload: Payload::from(serde_json::json!({})),
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
        };
        let all = vec![event("old", 39), event("edge", 40), event("new", 100)];
        let kept = newest(all, Timestamp::from_millis(100_000));
        let ids: Vec<&str> = kept.iter().map(|event| &*event.id).collect();
        assert_eq!(ids, ["edge", "new"]);
    }
}
