//! Writes one note as rows.
//!
//! Repeated notes (one event for several subscribers, a repeated answer) are stored as one row.

use rusqlite::{CachedStatement, Connection, Result, Statement, params};

use super::rows::to_sql;
use engine::{
    SessionChange,
    event::{EventRef, Seq, SessionId, codec},
    exchange::{Harness, Injection},
    format,
    ledger::LedgerEntry,
    notes::{Note, NoteContent, Place},
    notification::Notification,
};
use journal::time::Timestamp;

use crate::api::wire::history::LedgerLine;

/// Numbers of added rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Wrote {
    pub(super) events: u64,
    pub(super) entries: u64,
}

/// The statements that run for each event of a batch. Looking one up in the connection's cache takes
/// as long as a tenth of its run.
pub(super) struct Inserts<'c> {
    connection: &'c Connection,
    event: CachedStatement<'c>,
    entry: CachedStatement<'c>,
    notification_event: CachedStatement<'c>,
}

impl<'c> Inserts<'c> {
    pub(super) fn new(connection: &'c Connection) -> Result<Self> {
        Ok(Self {
            connection,
            event: connection.prepare_cached(
                "INSERT OR IGNORE INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?,
            entry: connection
                .prepare_cached("INSERT INTO ledger VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)")?,
            notification_event: connection
                .prepare_cached("INSERT OR IGNORE INTO notification_events VALUES (?1, ?2)")?,
        })
    }
}

pub(super) fn note(inserts: &mut Inserts<'_>, note: &Note, wrote: &mut Wrote) -> Result<()> {
    let connection = inserts.connection;
    match &note.what {
        NoteContent::Event(body) => {
            // The engine has already decoded it, so it is valid.
            let Ok(event) = codec::decode(body) else { return Ok(()) };
            wrote.events += write_event(&mut inserts.event, note.place.seq(), &event)?;
        }
        NoteContent::Entry(entry) => {
            write_entry(&mut inserts.entry, note, &LedgerLine::of(entry))?;
            wrote.entries += 1;
            follow(connection, note, entry)?;
        }
        NoteContent::Made(notification) => write_notification(inserts, note.place, notification)?,
        NoteContent::Injection(session, injection) => write_injection(connection, note, session, injection)?,
        NoteContent::Session(session, change) => write_session(connection, note, session, change)?,
    }
    Ok(())
}

fn write_event(insert: &mut Statement<'_>, seq: Seq, event: &EventRef<'_>) -> Result<u64> {
    let written = insert.execute(params![
        to_sql(seq.0),
        event.severity as i64,
        to_sql(event.timestamp.as_millis()),
        event.source,
        event.event_type,
        event.id,
        event.session,
        event.workspace,
        event.cause,
        event.dedupe_key,
        event.payload,
        event.deliver_after,
    ])?;
    Ok(u64::try_from(written).unwrap_or_default())
}

fn write_entry(insert: &mut Statement<'_>, note: &Note, line: &LedgerLine) -> Result<()> {
    // The events of a notification are in a separate table.
    let event = line.events.first().filter(|_| line.notification.is_none()).map(|seq| to_sql(*seq));
    insert.execute(params![
        note.place.0,
        millis(note.at),
        line.what,
        event,
        line.subscriber,
        line.notification,
        line.session,
        line.injection,
        line.by,
        line.reason,
        line.detail,
    ])?;
    Ok(())
}

fn write_notification(inserts: &mut Inserts<'_>, place: Place, notification: &Notification) -> Result<()> {
    let (session, workspace) = notification.scope.address();
    let (session, workspace) = (session.map(SessionId::as_str), workspace.map(|folder| &**folder));
    let written = inserts
        .connection
        .prepare_cached(
            "INSERT OR IGNORE INTO notifications VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
        )?
        .execute(params![
            place.0,
            notification.priority as i64,
            notification.severity as i64,
            millis(notification.created_at),
            notification.expires_at.map(millis),
            notification.subscriber.as_str(),
            notification.id.as_str(),
            notification.inject_at.as_str(),
            session,
            workspace,
            notification.tokens.0,
            &*notification.content,
            format::line_for_user(notification, format::LINE_CHARS_MAX),
        ])?;
    if written == 0 {
        return Ok(());
    }
    for event in &notification.events {
        inserts.notification_event.execute(params![to_sql(event.0), notification.id.as_str()])?;
    }
    Ok(())
}

/// Stores the new state of a notification in a session; the injection that carried it stays.
fn follow(connection: &Connection, note: &Note, entry: &LedgerEntry) -> Result<()> {
    // `why` is the word of the reason for an end, or of the proof of a confirmation.
    let (notification, session, state, why, injection) = match entry {
        LedgerEntry::Unmatched { .. }
        | LedgerEntry::Throttled { .. }
        | LedgerEntry::Skipped { .. }
        | LedgerEntry::Batched { .. }
        | LedgerEntry::EventEnded { .. }
        | LedgerEntry::Created { .. }
        | LedgerEntry::Repeated { .. }
        | LedgerEntry::ForUser { .. } => return Ok(()),
        LedgerEntry::Responded { notification, session, action, by } => {
            connection
                .prepare_cached(
                    "UPDATE deliveries SET response = ?3, responded_by = ?4, responded_at = ?5
                     WHERE notification = ?1 AND session = ?2",
                )?
                .execute(params![
                    notification.as_str(),
                    session.as_str(),
                    action.state(),
                    &**by,
                    millis(note.at)
                ])?;
            return Ok(());
        }
        LedgerEntry::Unclaimed { notification } => (notification, None, "unclaimed", None, None),
        LedgerEntry::Queued { notification, session } => {
            connection
                .prepare_cached("DELETE FROM deliveries WHERE notification = ?1 AND session = ''")?
                .execute([notification.as_str()])?;
            (notification, Some(session), "pending", None, None)
        }
        LedgerEntry::Returned { notification, session } | LedgerEntry::Recalled { notification, session } => {
            (notification, Some(session), "pending", None, None)
        }
        LedgerEntry::Injected { notification, session, injection, .. } => {
            (notification, Some(session), "injected", None, Some(injection.as_str()))
        }
        LedgerEntry::Confirmed { notification, session, by } => {
            (notification, Some(session), "confirmed", Some(by.as_str()), None)
        }
        LedgerEntry::NotificationEnded { notification, session, reason } => {
            (notification, session.as_ref(), "ended", Some(reason.as_str()), None)
        }
    };
    connection
        .prepare_cached(
            "INSERT INTO deliveries (notification, session, state, reason, injection, at, place)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT DO UPDATE SET state = excluded.state, reason = excluded.reason,
                injection = coalesce(excluded.injection, injection), at = excluded.at, place = excluded.place",
        )?
        .execute(params![
            notification.as_str(),
            session.map_or("", SessionId::as_str),
            state,
            why,
            injection,
            millis(note.at),
            note.place.0,
        ])?;
    Ok(())
}

fn write_injection(
    connection: &Connection,
    note: &Note,
    session: &SessionId,
    injection: &Injection,
) -> Result<()> {
    connection.prepare_cached("INSERT INTO injections VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?.execute(
        params![
            note.place.0,
            millis(note.at),
            session.as_str(),
            injection.id.as_str(),
            injection.role.as_str(),
            &*injection.text,
            injection.starts_turn,
        ],
    )?;
    Ok(())
}

fn write_session(
    connection: &Connection,
    note: &Note,
    session: &SessionId,
    change: &SessionChange,
) -> Result<()> {
    match change {
        SessionChange::Opened(harness) => open_session(connection, note, session, harness),
        SessionChange::Updated(harness) => {
            let changed = connection
                .prepare_cached(
                    "UPDATE sessions SET name = ?2, version = ?3, workspace = ?4, user = ?5, pid = ?6, parent = ?7
                     WHERE id = ?1 AND closed_at IS NULL",
                )?
                .execute(params![
                    session.as_str(),
                    harness.name.as_deref(),
                    harness.version.as_deref(),
                    harness.workspace.as_deref(),
                    harness.user.as_deref(),
                    harness.pid,
                    harness.parent.as_ref().map(SessionId::as_str),
                ])?;
            if changed == 0 { open_session(connection, note, session, harness) } else { Ok(()) }
        }
        SessionChange::Closed { last_seen, keeps_pending } => {
            connection
                .prepare_cached(
                    "UPDATE sessions SET closed_place = ?2, closed_at = ?3, seen_at = ?4 WHERE id = ?1 AND closed_at IS NULL",
                )?
                .execute(params![session.as_str(), note.place.0, millis(note.at), millis(*last_seen)])?;
            if *keeps_pending {
                return Ok(());
            }
            // Notifications that are neither confirmed nor ended were moved to the parent or to the
            // session's successor.
            connection
                .prepare_cached(
                    "UPDATE deliveries SET state = 'ended', reason = 'handed_over', at = ?2, place = ?3
                     WHERE session = ?1 AND state = 'pending'",
                )?
                .execute(params![session.as_str(), millis(note.at), note.place.0])?;
            Ok(())
        }
    }
}

fn open_session(connection: &Connection, note: &Note, session: &SessionId, harness: &Harness) -> Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO sessions (place, id, opened_at, name, version, workspace, user, pid, parent)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            note.place.0,
            session.as_str(),
            millis(note.at),
            harness.name.as_deref(),
            harness.version.as_deref(),
            harness.workspace.as_deref(),
            harness.user.as_deref(),
            harness.pid,
            harness.parent.as_ref().map(SessionId::as_str),
        ])?;
    Ok(())
}

fn millis(time: Timestamp) -> i64 {
    to_sql(time.as_millis())
}
