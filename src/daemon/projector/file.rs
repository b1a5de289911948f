//! Opens the projection's file, and replaces one that is broken or of another journal.

use std::path::Path;

use engine::event::Seq;
use journal::{Journal, ReadError};

use crate::history::{ProjectionError, Writer};

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
