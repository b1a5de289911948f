//! The only connection that writes, and how far it has come.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
};

use engine::{
    event::Seq,
    notes::{Notes, Place},
};
use journal::time::Timestamp;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use tokio::sync::Notify;

use crate::history::{
    Doing, ProjectionError, apply,
    rows::{from_sql, to_sql},
    schema,
};

/// Most kept events; each takes about a kilobyte with its outcome.
pub const EVENTS_MAX: u64 = 250_000;
/// Most kept ledger entries: a notification has several for each session.
const ENTRIES_MAX: u64 = 2_000_000;

/// Most bytes of the file's used pages by default.
pub const BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Entries that one transaction deletes because of the bytes, or twice as many as it writes, so
/// that no transaction takes long and the deletion is faster than the growth.
const STEP_ENTRIES: u64 = 2_000;
/// Free pages that are given back in one transaction.
const STEP_PAGES: u32 = 1_000;
/// The share of the limit that free pages may take; later rows reuse them.
const FREE_SHARE: u64 = 8;

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
    bytes_max: u64,
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
        let path = path.to_owned();
        Ok(Self { connection, path, file, cursor, time, counts: None, limits, bytes_max: BYTES_MAX })
    }

    /// Sets other limits of events and ledger entries.
    #[cfg(test)]
    #[must_use]
    pub fn with_limits(self, events: u64, entries: u64) -> Self {
        Self { limits: (events, entries), ..self }
    }

    /// Sets another limit of the file's used pages, in bytes.
    pub fn set_bytes_max(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
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
        let transaction = begin(&mut self.connection)?;
        let (had_events, had_entries) = self.counts.map_or_else(|| count(&transaction), Ok).doing("read")?;
        let mut wrote = apply::Wrote::default();
        let mut unmatched = 0;
        let mut inserts = apply::Inserts::new(&transaction).doing("written")?;
        for batch in batches {
            for note in batch.notes().iter().filter(|note| note.place.seq() > self.cursor) {
                apply::note(&mut inserts, note, &mut wrote).doing("written")?;
            }
            // A batch that begins before the cursor would count events again.
            if batch.from() >= cursor {
                unmatched += batch.unmatched();
            }
            if batch.upto() > cursor {
                (cursor, time) = (batch.upto(), batch.time());
            }
        }
        drop(inserts);
        transaction
            .prepare_cached("UPDATE cursor SET seq = ?1, at = ?2, unmatched = unmatched + ?3")
            .and_then(|mut statement| {
                statement.execute([to_sql(cursor.0), to_sql(time.as_millis()), to_sql(unmatched)])
            })
            .doing("written")?;
        let (mut events, mut entries) = (had_events + wrote.events, had_entries + wrote.entries);
        let step = STEP_ENTRIES.max(2 * wrote.entries);
        let over = over_limits(&transaction, (events, entries), self.limits).doing("written")?;
        let over_bytes = over_bytes(&transaction, self.bytes_max, step).doing("written")?;
        let floor = over.max(over_bytes);
        if let Some(floor) = floor {
            let gone = forget_before(&transaction, floor).doing("written")?;
            events = events.saturating_sub(gone.events);
            entries = entries.saturating_sub(gone.entries);
        }
        transaction.commit().doing("written")?;
        (self.cursor, self.time, self.counts) = (cursor, time, Some((events, entries)));
        self.give_back().doing("written")
    }

    /// Deletes the oldest rows if the file is over its limit, at most a step of them; returns
    /// whether there is more to do.
    ///
    /// Errors: nothing was deleted.
    pub fn shrink(&mut self) -> Result<bool, ProjectionError> {
        let transaction = begin(&mut self.connection)?;
        let floor = over_bytes(&transaction, self.bytes_max, STEP_ENTRIES).doing("written")?;
        let Some(floor) = floor else { return Ok(false) };
        forget_before(&transaction, floor).doing("written")?;
        transaction.commit().doing("written")?;
        // They are counted again by the next write.
        self.counts = None;
        self.give_back().doing("written")?;
        Ok(true)
    }

    /// Gives some free pages back to the system if there are many.
    fn give_back(&self) -> rusqlite::Result<()> {
        let Pages { free, bytes, .. } = Pages::count(&self.connection)?;
        if free * bytes > self.bytes_max / FREE_SHARE {
            // Each of its rows gives one page back, so all of them are read.
            let mut vacuum = self.connection.prepare(&format!("PRAGMA incremental_vacuum({STEP_PAGES})"))?;
            let mut rows = vacuum.query([])?;
            while rows.next()?.is_some() {}
        }
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
        let transaction = begin(&mut self.connection)?;
        let gone = forget_before(&transaction, seq).doing("written")?;
        transaction.commit().doing("written")?;
        self.counts = self.counts.map(|(events, entries)| {
            (events.saturating_sub(gone.events), entries.saturating_sub(gone.entries))
        });
        Ok(())
    }
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>, ProjectionError> {
    connection.transaction_with_behavior(TransactionBehavior::Immediate).doing("written")
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

/// The pages of the file.
struct Pages {
    all: u64,
    free: u64,
    /// Size of one.
    bytes: u64,
}

impl Pages {
    fn count(connection: &Connection) -> rusqlite::Result<Self> {
        let pragma = |name| connection.pragma_query_value(None, name, |row| row.get(0)).map(from_sql);
        Ok(Self { all: pragma("page_count")?, free: pragma("freelist_count")?, bytes: pragma("page_size")? })
    }
}

/// The new first kept record if the used pages have more than `bytes_max`: the one after the oldest
/// `step` entries, at most after half of them.
fn over_bytes(transaction: &Transaction<'_>, bytes_max: u64, step: u64) -> rusqlite::Result<Option<Seq>> {
    let Pages { all, free, bytes } = Pages::count(transaction)?;
    if all.saturating_sub(free) * bytes <= bytes_max {
        return Ok(None);
    }
    let place_at = |offset: u64| {
        transaction
            .prepare_cached("SELECT place FROM ledger ORDER BY place LIMIT 1 OFFSET ?1")?
            .query_row([to_sql(offset)], |row| row.get(0).map(|place| Place(place).seq()))
            .optional()
    };
    let Some(first) = place_at(0)? else { return Ok(None) };
    // A record's entries go together.
    let kept = match place_at(step)? {
        Some(kept) => kept,
        None => place_at(step / 2)?.unwrap_or(first),
    };
    Ok(Some(kept.max(first.next())))
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

/// The projection's progress, readable without its thread: positions of the event loop and of that
/// thread.
///
/// Most records need no write, and do not wake the thread. So the progress is the last commit, or,
/// if no handed-over notes wait for a commit, the last record that the event loop has applied.
#[derive(Debug)]
pub struct Progress {
    /// The last record applied by the event loop.
    applied: AtomicU64,
    /// The last record of the handed-over notes; `u64::MAX` while there is no feed.
    handed: AtomicU64,
    /// The last committed record.
    committed: AtomicU64,
    /// Wakes waiters: the progress may have advanced.
    changed: Notify,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            applied: AtomicU64::new(0),
            handed: AtomicU64::new(u64::MAX),
            committed: AtomicU64::new(0),
            changed: Notify::new(),
        }
    }
}

impl Progress {
    /// Starts the feed: notes after `applied` are handed over; the thread commits the earlier ones
    /// itself.
    pub fn begin_feed(&self, applied: Seq) {
        self.applied.store(applied.0, Ordering::Release);
        self.handed.store(applied.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Ends the feed.
    pub fn end_feed(&self) {
        self.handed.store(u64::MAX, Ordering::Release);
    }

    /// Registers notes up to `upto` for a commit; called before [`Progress::apply`] covers it.
    pub fn hand(&self, upto: Seq) {
        self.handed.store(upto.0, Ordering::Release);
    }

    /// Reports that the event loop has applied everything up to `applied`, and handed over its
    /// notes.
    pub fn apply(&self, applied: Seq) {
        self.applied.store(applied.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// Reports that everything up to `committed` is in the file.
    pub fn commit(&self, committed: Seq) {
        self.committed.store(committed.0, Ordering::Release);
        self.changed.notify_waiters();
    }

    /// The last record up to which everything is in the file or needed no write.
    pub fn projected(&self) -> Seq {
        // The order matters: notes of all records applied at this read were handed over before.
        let applied = self.applied.load(Ordering::Acquire);
        let handed = self.handed.load(Ordering::Acquire);
        let committed = self.committed.load(Ordering::Acquire);
        Seq(if committed >= handed { committed.max(applied) } else { committed })
    }

    /// Waits until everything up to `seq` is projected; without a projection it never returns.
    /// Cancel-safe.
    pub async fn reach(&self, seq: Seq) {
        loop {
            // Subscribes before the check, so that no change is missed.
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if self.projected() >= seq {
                return;
            }
            changed.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_without_notes_are_projected_at_once() {
        let progress = Progress::default();
        progress.commit(Seq(5));
        assert_eq!(progress.projected(), Seq(5));
        progress.begin_feed(Seq(5));
        progress.apply(Seq(9));
        assert_eq!(progress.projected(), Seq(9));
        progress.hand(Seq(12));
        progress.apply(Seq(14));
        assert_eq!(progress.projected(), Seq(5));
        progress.commit(Seq(12));
        assert_eq!(progress.projected(), Seq(14));
        progress.end_feed();
        assert_eq!(progress.projected(), Seq(12));
    }

    async fn is_pending(waiting: &mut (impl Future<Output = ()> + Unpin)) -> bool {
        tokio::select! {
            biased;
            () = waiting => false,
            () = std::future::ready(()) => true,
        }
    }

    #[tokio::test]
    async fn waiter_continues_when_its_record_is_projected() {
        let progress = Progress::default();
        let steps: [(u64, &dyn Fn()); 3] = [
            (5, &|| progress.commit(Seq(5))),
            (9, &|| progress.begin_feed(Seq(9))),
            (14, &|| progress.apply(Seq(14))),
        ];
        progress.commit(Seq(4));
        progress.reach(Seq(4)).await;
        for (seq, step) in steps {
            let mut reached = std::pin::pin!(progress.reach(Seq(seq)));
            assert!(is_pending(&mut reached).await, "{seq}");
            step();
            if seq == 9 {
                // Notes that are handed over from here on are not committed.
                progress.commit(Seq(9));
            }
            assert!(!is_pending(&mut reached).await, "{seq}");
        }
    }
}
