//! Rebuilds the engine's state from the newest snapshot and the journal, with the same fold as live
//! traffic.
//!
//! Every record after the snapshot is applied at its original time. Of the outputs only one kind
//! can still be pending: an event of the engine that was not yet in the journal when the process
//! died. The requests that wait for answers are gone. Their released notifications are leased, and
//! the leases expire as usual.

use std::{cell::Cell, fmt, ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use super::{
    clock::{Clock, clock_fn, monotonic_now},
    fold::Fold,
    lock::{JOURNAL_FOLDER, is_restore_interrupted},
    planted::{Planted, PlantedPanic},
    projector,
    quarantine::Convicted,
    replay::{Followed, RecoveryError, Replay},
    rules::RulesStore,
    snapshots::{FOLDER as SNAPSHOTS, Snapshots, Unusable},
};
use engine::{
    event::{Event, Seq},
    notes::Notes,
    records,
    sorted::SortedSet,
};
use journal::time::Timestamp;
use journal::{
    Clock as JournalClock, Durability, IdempotencyKeys, Journal, JournalSettings, OpenError, Opened, Reader,
    Record, RecordKind, RecoveryHint, Retention, SYNC_WITHIN, ScanReport,
    files::{DirFiles, Files},
};

use crate::{
    config::daemon::{Durability as Configured, JournalConfig},
    history::{FILE_NAME, ProjectionError, Writer},
};

/// How often a replay tells the service manager that it goes on, at most.
const SAY_EVERY: Duration = Duration::from_secs(5);
/// The clock is read after this many records, and before each one that compiles rules.
const SAY_RECORDS: u64 = 256;

/// Largest age, at the journal's end, of an engine event that can still be pending: it is appended
/// with the next slice, or within seconds if the disk is full.
const OUTBOX_AGE_MAX: Duration = Duration::from_secs(60);

/// How a start replays the journal.
#[derive(Debug, Clone, Default)]
pub struct Replaying {
    /// The build of this program.
    pub build: String,
    /// A record that ended children of this process, see [`convict`](super::convict).
    pub convicted: Option<Convicted>,
    /// Tells the service manager that the start goes on.
    pub say: Option<fn()>,
    /// A fault on a record, for tests.
    pub planted: Option<Planted>,
    /// A panic on a thread, for tests.
    pub planted_panic: Option<PlantedPanic>,
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
    pub(super) skipped: SortedSet<Seq>,
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
    replaying: &Replaying,
) -> Result<Recovered, RecoveryError> {
    if is_restore_interrupted(state) {
        return Err(RecoveryError::Unrestored(state.to_owned()));
    }
    let clock = Arc::new(Clock::starting_at(Timestamp::ZERO));
    let snapshots = open_snapshots(state)?;
    let mut journal = closed_journal(state, config, &clock)?;
    if let Some(planted) = &replaying.planted_panic {
        journal.clock = planted.clone().in_clock(journal.clock);
    }
    let (fold, opened) = open_after(&snapshots, rules, &journal)?;
    let Opened { journal, cuts: _, last_seq, last_time } = opened;
    let ended_at = last_time.max(fold.applied_at);
    clock.go_on_from(ended_at);
    snapshots.unmatched().into_iter().for_each(|path| journal.note_unmatched_snapshot(path));
    let snapshot = fold.applied;
    let projected = or_later(projector::open(&state.join(FILE_NAME)));
    let replay = Replay {
        journal: &journal,
        snapshots: &snapshots,
        rules,
        ended: last_seq,
        state,
        build: &replaying.build,
        convicted: replaying.convicted.as_ref(),
        before: &replaying.before_each(),
    };
    let Followed { fold, reader, outbox, skipped } = replay
        .follow(fold, |fold| projected.as_ref().and_then(|writer| missing(writer, fold.applied, last_seq)))?;
    let outbox = newest(outbox, fold.applied_at);
    journal.set_needed_from(snapshots.journal_needed_from());
    let snapshots = Arc::new(snapshots);
    Ok(Recovered { fold, journal, reader, clock, snapshots, snapshot, projected, skipped, ended_at, outbox })
}

impl Replaying {
    /// Called before each record.
    fn before_each(&self) -> impl Fn(Seq, u8) -> ControlFlow<()> {
        let said = Cell::new(monotonic_now());
        move |seq, kind| {
            if let Some(planted) = self.planted {
                planted.strike(seq);
            }
            if let Some(say) = self.say
                && (kind == records::RULES || seq.0.is_multiple_of(SAY_RECORDS))
                && monotonic_now().saturating_sub(said.get()) >= SAY_EVERY
            {
                said.set(monotonic_now());
                say();
            }
            ControlFlow::Continue(())
        }
    }
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
    let path = state.join(SNAPSHOTS);
    let opened = DirFiles::new(&path).and_then(|files| Snapshots::open(Arc::new(files)));
    opened.map_err(|source| RecoveryError::Folder { path, source })
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
    let path = state.join(JOURNAL_FOLDER);
    let files = DirFiles::new(&path).map_err(|source| RecoveryError::Folder { path, source })?;
    let files = Arc::new(files);
    let (durability, sync_within) = match config.durability {
        Configured::Sync => (Durability::Sync, SYNC_WITHIN),
        Configured::Interval => (Durability::Interval, config.interval),
    };
    let settings = JournalSettings {
        segment_bytes: config.segment_bytes,
        durability,
        sync_within,
        seal: config.seal,
        retention: Retention { age: config.retain_age, bytes: config.retain_bytes },
        preface: Some(RecordKind(records::RULES)),
        names: Some(|found| records::name_of_record(found.kind.0, found.body)),
    };
    let key_of = |found: Record<'_>| records::idempotency_key(found.kind.0, found.body);
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

#[cfg(test)]
mod tests {
    use super::*;
    use engine::event::{Payload, Provenance, Severity};

    #[test]
    fn old_outbox_events_are_not_published_on_recovery() {
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
            deliver_after: None,
        };
        let all = vec![event("old", 39), event("edge", 40), event("new", 100)];
        let kept = newest(all, Timestamp::from_millis(100_000));
        let ids: Vec<&str> = kept.iter().map(|event| &*event.id).collect();
        assert_eq!(ids, ["edge", "new"]);
    }
}
