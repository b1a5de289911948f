//! Opens the projection's file, or replaces it, and folds the journal apart from the event loop for a
//! file that is behind it.

use std::{io, path::Path, sync::Arc};

use engine::{event::Seq, notes::Notes, sorted::SortedSet};
use journal::{Journal, ReadError, Reader};

use crate::{
    daemon::{
        fold::{Fold, FoldError},
        projector::feed::TRANSACTION_NOTES_MAX,
        rules::RulesStore,
        snapshots::Snapshots,
    },
    history::{ProjectionError, Writer},
};

/// Most records folded between two checks for commands, and two commits.
const FOLD_RECORDS_MAX: u64 = 65_536;
/// Most records per read.
const BATCH_RECORDS_MAX: usize = 1_024;
/// The target position to apply all records of the journal.
pub(super) const JOURNAL_END: Seq = Seq(u64::MAX);

/// Why the projection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ProjectorError {
    /// The file failed.
    #[error(transparent)]
    File(#[from] ProjectionError),
    /// The journal cannot be read.
    #[error("the journal cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The journal's files cannot be listed.
    #[error("the journal's files cannot be listed: {0}")]
    List(#[source] io::Error),
    /// A record cannot be applied.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// The inputs of a separate fold.
#[derive(Debug, Clone)]
pub(in crate::daemon) struct ReplaySource {
    pub(in crate::daemon) journal: Journal,
    pub(in crate::daemon) snapshots: Arc<Snapshots>,
    pub(in crate::daemon) rules: RulesStore,
    /// The last record of ended processes.
    pub(in crate::daemon) ended: Seq,
    /// The records of these processes that are not applied.
    pub(in crate::daemon) skipped: SortedSet<Seq>,
}

/// A separate engine, and the reader at the first record that it has not applied.
pub(super) struct CatchUp {
    pub(super) fold: Fold,
    pub(super) reader: Reader,
}

impl CatchUp {
    /// A fold for the cursor of `writer`; raises the floor of `writer` if records before it are
    /// missing.
    ///
    /// Shape: from the newest snapshot at or before the cursor, else from the journal's first
    /// record. If that was deleted, from the oldest snapshot; earlier records are then not
    /// projected.
    ///
    /// Errors: the journal's files cannot be listed, or the file fails.
    pub(super) fn start(source: &ReplaySource, writer: &mut Writer) -> Result<Self, ProjectorError> {
        let ReplaySource { journal, snapshots, rules, ended, skipped } = source;
        let cursor = writer.cursor();
        let first = journal.stored().map_err(ProjectorError::List)?.first;
        let is_whole = first <= Seq::ZERO.next();
        let fold = snapshots.load_before(cursor, journal, rules);
        let oldest = || snapshots.load_oldest(journal, rules);
        let fold = fold.or_else(|| (!is_whole).then(oldest).flatten());
        let mut fold = fold.unwrap_or_else(|| Fold::new(rules.clone()));
        let reader = || journal.read_from(fold.applied.next().max(first));
        let (reader, ahead) = (reader(), reader());
        fold.look_ahead(ahead, *ended, skipped.clone());
        fold.notes = Some(Notes::after(cursor));
        if reader.position() > cursor.next() {
            writer.raise_floor(reader.position())?;
        }
        Ok(Self { fold, reader })
    }

    /// Applies the next records up to `until` and writes their notes, about a transaction of them;
    /// returns whether there were any.
    ///
    /// Errors: a record cannot be read or applied, or the file fails.
    pub(super) fn advance(&mut self, writer: &mut Writer, until: Seq) -> Result<bool, ProjectorError> {
        let Self { fold, reader } = self;
        let before = fold.applied;
        loop {
            let had = fold.applied;
            let left = usize::try_from(until.0.saturating_sub(had.0)).unwrap_or(usize::MAX);
            if left > 0 {
                for found in reader.next_batch(left.min(BATCH_RECORDS_MAX))?.iter() {
                    fold.apply(&found)?;
                    while fold.poll_output().is_some() {}
                }
            }
            let kept = fold.notes.as_mut().expect("a catch-up takes notes");
            let is_at_end = fold.applied == had;
            if is_at_end || kept.notes().len() >= TRANSACTION_NOTES_MAX || kept.records() >= FOLD_RECORDS_MAX
            {
                if kept.records() > 0 {
                    writer.write(&[kept.hand_over()])?;
                }
                return Ok(fold.applied > before);
            }
        }
    }
}

/// Rebuilds the file at `path`, of at most `bytes_max`; returns the last record.
///
/// Errors: the file or the journal fails.
pub(in crate::daemon) fn rebuild(
    path: &Path,
    bytes_max: u64,
    source: &ReplaySource,
) -> Result<Seq, ProjectorError> {
    let mut writer = replace(path)?;
    writer.set_bytes_max(bytes_max);
    let mut catch_up = CatchUp::start(source, &mut writer)?;
    while catch_up.advance(&mut writer, JOURNAL_END)? {}
    Ok(writer.cursor())
}

/// Opens the file at `path`; deletes a broken one or one of another version first.
///
/// Errors: it cannot be opened or deleted.
pub(in crate::daemon) fn open(path: &Path) -> Result<Writer, ProjectionError> {
    match Writer::open(path) {
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "the projection is rebuilt from the journal");
            replace(path)
        }
        other => other,
    }
}

/// Uses an open file if it belongs to `journal`, else a new one.
///
/// Errors: the file cannot be deleted or opened.
pub(super) fn keep_or_replace(
    opened: Writer,
    journal: &Journal,
    path: &Path,
) -> Result<Writer, ProjectionError> {
    if belongs_to(&opened, journal) {
        return Ok(opened);
    }
    tracing::warn!("the projection has records that the journal does not have; it is rebuilt");
    drop(opened);
    replace(path)
}

/// Deletes the file at `path`, and opens an empty one. No connection may have it open.
///
/// Errors: it cannot be deleted or opened.
pub(super) fn replace(path: &Path) -> Result<Writer, ProjectionError> {
    Writer::delete(path)?;
    Writer::open(path)
}

/// Whether the record at the cursor is the one that was projected. After a power failure the
/// journal may have other records in place of lost, unsynced ones.
fn belongs_to(writer: &Writer, journal: &Journal) -> bool {
    let cursor = writer.cursor();
    if cursor == Seq::ZERO {
        return true;
    }
    match journal.read_at(cursor) {
        Ok(found) => found.is_some_and(|found| found.time == writer.time()),
        Err(ReadError::Gone { .. }) => true,
        // The components that need the journal report its damage.
        Err(ReadError::Io { .. } | ReadError::Damaged { .. }) => true,
    }
}
