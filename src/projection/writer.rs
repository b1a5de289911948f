//! The only connection that writes.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::{
    Doing, Notes, Place, ProjectionError, apply, schema,
    sql::{from_sql, to_sql},
};
use crate::{event::Seq, time::Timestamp};

/// Most kept events; each takes about a kilobyte with its outcome.
pub const EVENTS_MAX: u64 = 250_000;
/// Most kept ledger entries: a notification has several for each session.
const ENTRIES_MAX: u64 = 2_000_000;

/// Writes notes into the file.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    /// Device and inode of the opened file.
    file: (u64, u64),
    cursor: Seq,
    time: Timestamp,
    /// Numbers of events and ledger entries; counted at the first write, because counting reads an
    /// index of each.
    counts: Option<(u64, u64)>,
    limits: (u64, u64),
}

impl Writer {
    /// Opens the file at `path`, or creates it.
    ///
    /// Errors: it cannot be opened, or it is corrupt or of another version (then `is_damage`).
    pub fn open(path: &Path) -> Result<Self, ProjectionError> {
        let connection = schema::open_for_writing(path)?;
        let (cursor, time) = connection
            .query_row("SELECT seq, at FROM cursor", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .doing("read")?;
        let file = identity(path).doing("opened")?;
        let (cursor, time) = (Seq(from_sql(cursor)), Timestamp::from_millis(from_sql(time)));
        let limits = (EVENTS_MAX, ENTRIES_MAX);
        Ok(Self { connection, path: path.to_owned(), file, cursor, time, counts: None, limits })
    }

    /// Sets other limits of events and ledger entries.
    #[cfg(test)]
    #[must_use]
    pub fn with_limits(self, events: u64, entries: u64) -> Self {
        Self { limits: (events, entries), ..self }
    }

    /// Deletes the file at `path`; no connection may have it open.
    ///
    /// Errors: it exists and cannot be removed.
    pub fn delete(path: &Path) -> Result<(), ProjectionError> {
        for suffix in ["", "-wal", "-shm"] {
            let mut name = path.as_os_str().to_owned();
            name.push(suffix);
            match fs::remove_file(&name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).doing("deleted"),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// The last record whose notes are in the file.
    pub fn cursor(&self) -> Seq {
        self.cursor
    }

    /// The time of that record.
    pub fn time(&self) -> Timestamp {
        self.time
    }

    /// Tests whether writing works, without changing the content.
    ///
    /// Errors: writing fails, for example on a full disk.
    pub fn probe(&self) -> Result<(), ProjectionError> {
        self.connection.execute("UPDATE cursor SET seq = seq", []).map(|_| ()).doing("written")
    }

    /// Whether the path still refers to the opened file.
    pub fn is_in_place(&self) -> bool {
        identity(&self.path).is_ok_and(|file| file == self.file)
    }

    /// Writes notes and advances the cursor, in one transaction; notes at or before the cursor are
    /// skipped.
    ///
    /// Errors: nothing was written.
    pub fn write(&mut self, batches: &[Notes]) -> Result<(), ProjectionError> {
        let (mut cursor, mut time) = (self.cursor, self.time);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).doing("written")?;
        let (had_events, had_entries) = self.counts.map_or_else(|| count(&transaction), Ok).doing("read")?;
        let mut wrote = apply::Wrote::default();
        let mut unmatched = 0;
        for batch in batches {
            for note in batch.notes().iter().filter(|note| note.place.seq() > self.cursor) {
                apply::note(&transaction, note, &mut wrote).doing("written")?;
            }
            // A batch that begins before the cursor would count events again.
            if batch.from() >= cursor {
                unmatched += batch.unmatched();
            }
            if batch.upto() > cursor {
                (cursor, time) = (batch.upto(), batch.time());
            }
        }
        transaction
            .prepare_cached("UPDATE cursor SET seq = ?1, at = ?2, unmatched = unmatched + ?3")
            .and_then(|mut statement| {
                statement.execute([to_sql(cursor.0), to_sql(time.as_millis()), to_sql(unmatched)])
            })
            .doing("written")?;
        let (mut events, mut entries) = (had_events + wrote.events, had_entries + wrote.entries);
        let floor = over_limits(&transaction, (events, entries), self.limits).doing("written")?;
        if let Some(floor) = floor {
            let gone = forget_before(&transaction, floor).doing("written")?;
            events = events.saturating_sub(gone.events);
            entries = entries.saturating_sub(gone.entries);
        }
        transaction.commit().doing("written")?;
        (self.cursor, self.time, self.counts) = (cursor, time, Some((events, entries)));
        Ok(())
    }

    /// Marks the outcomes of some records before `seq` as unknown, because the journal has deleted
    /// them.
    ///
    /// Errors: nothing was written.
    pub fn raise_floor(&mut self, seq: Seq) -> Result<(), ProjectionError> {
        let update = "UPDATE cursor SET floor = max(floor, ?1)";
        self.connection.execute(update, [to_sql(seq.0)]).map(|_| ()).doing("written")
    }

    /// Deletes the data before `seq`, because the journal has deleted it.
    ///
    /// Errors: nothing was deleted.
    pub fn forget_before(&mut self, seq: Seq) -> Result<(), ProjectionError> {
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).doing("written")?;
        let gone = forget_before(&transaction, seq).doing("written")?;
        transaction.commit().doing("written")?;
        self.counts = self.counts.map(|(events, entries)| {
            (events.saturating_sub(gone.events), entries.saturating_sub(gone.entries))
        });
        Ok(())
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Numbers of events and ledger entries.
fn count(transaction: &Transaction<'_>) -> rusqlite::Result<(u64, u64)> {
    let count = |table: &str| {
        let sql = format!("SELECT count(*) FROM {table}");
        transaction.query_row(&sql, [], |row| row.get(0)).map(from_sql)
    };
    Ok((count("events")?, count("ledger")?))
}

/// The new first kept record, if a limit is exceeded; else `None`.
fn over_limits(
    transaction: &Transaction<'_>,
    (events, entries): (u64, u64),
    (events_max, entries_max): (u64, u64),
) -> rusqlite::Result<Option<Seq>> {
    let mut floor = None;
    if events > events_max {
        let kept: Option<i64> = transaction
            .prepare_cached("SELECT seq FROM events ORDER BY seq LIMIT 1 OFFSET ?1")?
            .query_row([to_sql(events - events_max)], |row| row.get(0))
            .optional()?;
        floor = floor.max(kept.map(|seq| Seq(from_sql(seq))));
    }
    if entries > entries_max {
        let kept: Option<i64> = transaction
            .prepare_cached("SELECT place FROM ledger ORDER BY place LIMIT 1 OFFSET ?1")?
            .query_row([to_sql(entries - entries_max)], |row| row.get(0))
            .optional()?;
        floor = floor.max(kept.map(|place| Place(place).seq()));
    }
    Ok(floor)
}

fn forget_before(transaction: &Transaction<'_>, seq: Seq) -> rusqlite::Result<apply::Wrote> {
    let place = Place::first_of(seq).0;
    let delete = |sql: &str, before: i64| -> rusqlite::Result<u64> {
        let deleted = transaction.prepare_cached(sql)?.execute([before])?;
        Ok(u64::try_from(deleted).unwrap_or(u64::MAX))
    };
    let seq = to_sql(seq.0);
    let events = delete("DELETE FROM events WHERE seq < ?1", seq)?;
    let entries = delete("DELETE FROM ledger WHERE place < ?1", place)?;
    delete("DELETE FROM notification_events WHERE event < ?1", seq)?;
    delete("DELETE FROM notifications WHERE place < ?1", place)?;
    delete("DELETE FROM deliveries WHERE place < ?1", place)?;
    delete("DELETE FROM injections WHERE place < ?1", place)?;
    delete("DELETE FROM sessions WHERE closed_place < ?1", place)?;
    transaction.execute("UPDATE cursor SET floor = max(floor, ?1)", params![seq])?;
    Ok(apply::Wrote { events, entries })
}
