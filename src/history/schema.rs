//! The tables, and the opening of the file.
//!
//! Times are milliseconds since 1970. Severities and priorities are ranks, so that they can be
//! compared. `place` is the order of occurrence. A file of another version is not migrated: it is
//! rebuilt from the journal.

use std::{fs, os::unix::fs::OpenOptionsExt, path::Path};

use rusqlite::{Connection, OpenFlags};

use super::{Doing, Failed, ProjectionError};

/// The version of the tables, kept in the file's header; incremented with every change of the tables
/// or of their content.
pub(super) const VERSION: i64 = 3;
/// The application of the file, kept in its header: `asid` as a number. Files that builds before the
/// first release wrote have none.
const APPLICATION: i64 = 0x6173_6964;

/// Most bytes that the write-ahead log keeps after a checkpoint.
const WAL_BYTES_KEPT: i64 = 16 * 1024 * 1024;
/// Cache size for prepared statements per connection; more than the number of statements.
const STATEMENTS_MAX: usize = 64;

const TABLES: &str = "
CREATE TABLE cursor (
    -- One row: up to which record everything is in the tables, and that record's time.
    one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL, at INTEGER NOT NULL,
    -- Events that no subscriber asked for, which have no row.
    unmatched INTEGER NOT NULL,
    -- What is before this record was deleted, or is not known.
    floor INTEGER NOT NULL);
INSERT INTO cursor VALUES (1, 0, 0, 0, 0);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, severity INTEGER NOT NULL, timestamp INTEGER NOT NULL, source TEXT NOT NULL, type TEXT NOT NULL,
    id TEXT NOT NULL, session TEXT, workspace TEXT, cause TEXT, dedupe_key TEXT, payload TEXT NOT NULL,
    deliver_after TEXT);
CREATE INDEX events_by_id ON events (id);
CREATE INDEX events_by_session ON events (session) WHERE session IS NOT NULL;
CREATE TABLE ledger (
    place INTEGER PRIMARY KEY, at INTEGER NOT NULL, what TEXT NOT NULL, event INTEGER, subscriber TEXT, notification TEXT,
    session TEXT, injection TEXT, by TEXT, reason TEXT, detail TEXT);
CREATE INDEX ledger_by_event ON ledger (event) WHERE event IS NOT NULL;
CREATE INDEX ledger_by_notification ON ledger (notification) WHERE notification IS NOT NULL;
CREATE INDEX ledger_by_injected_session ON ledger (session) WHERE what = 'injected';
CREATE TABLE notifications (
    place INTEGER PRIMARY KEY, priority INTEGER NOT NULL, severity INTEGER NOT NULL, created_at INTEGER NOT NULL,
    expires_at INTEGER, subscriber TEXT NOT NULL, id TEXT NOT NULL UNIQUE, inject_at TEXT NOT NULL, session TEXT, workspace TEXT,
    tokens INTEGER NOT NULL, content TEXT NOT NULL, sentence TEXT NOT NULL);
CREATE TABLE notification_events (
    event INTEGER NOT NULL, notification TEXT NOT NULL, PRIMARY KEY (event, notification)) WITHOUT ROWID;
CREATE INDEX notification_events_by_notification ON notification_events (notification);
CREATE TABLE deliveries (
    -- An empty session: it is in none of them.
    notification TEXT NOT NULL, session TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, injection TEXT, at INTEGER NOT NULL,
    place INTEGER NOT NULL,
    -- How it was answered there, by whom, and when.
    response TEXT, responded_by TEXT, responded_at INTEGER, PRIMARY KEY (notification, session)) WITHOUT ROWID;
CREATE INDEX deliveries_by_session ON deliveries (session, state);
CREATE INDEX deliveries_by_place ON deliveries (place);
CREATE INDEX deliveries_by_response ON deliveries (response, responded_at) WHERE response IS NOT NULL;
CREATE TABLE injections (
    place INTEGER PRIMARY KEY, at INTEGER NOT NULL, session TEXT NOT NULL, id TEXT NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL,
    starts_turn INTEGER NOT NULL);
CREATE INDEX injections_by_session ON injections (session);
CREATE INDEX injections_by_id ON injections (id);
CREATE TABLE sessions (
    place INTEGER PRIMARY KEY, id TEXT NOT NULL, opened_at INTEGER NOT NULL, closed_place INTEGER, closed_at INTEGER,
    seen_at INTEGER, name TEXT, version TEXT, workspace TEXT, user TEXT, pid INTEGER, parent TEXT);
CREATE INDEX sessions_by_id ON sessions (id);
CREATE INDEX sessions_by_parent ON sessions (parent) WHERE parent IS NOT NULL;
CREATE INDEX sessions_by_closing ON sessions (closed_place) WHERE closed_place IS NOT NULL;
";

/// Opens the file for writing, and creates missing tables.
///
/// Errors: it cannot be opened, or it is not a database of this version (`is_damage`).
pub(super) fn open_for_writing(path: &Path) -> Result<Connection, ProjectionError> {
    let open = || -> Result<Connection, Failed> {
        // SQLite gives its companion files the same mode; payloads are private to this user.
        fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
        // WAL allows readers during a write. A commit need not sync, because data lost in a power
        // failure is still in the journal. NORMAL keeps the file intact, because checkpoints are
        // synced.
        // Has an effect in a new file only, and only before anything is written: free pages at its
        // end can be given back.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT)?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
        let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
        if tables == 0 {
            let header = format!("PRAGMA application_id = {APPLICATION};PRAGMA user_version = {VERSION};");
            connection.execute_batch(&format!("BEGIN;{TABLES}{header}COMMIT;"))?;
        } else if application != APPLICATION {
            return Err(Failed::Content("it is of another program or of an unreleased build of aside"));
        } else if version != VERSION {
            return Err(Failed::Content("it is of another version"));
        }
        Ok(connection)
    };
    open().doing("opened")
}

/// Opens the file for reading; it must exist.
pub(super) fn open_for_reading(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}
