//! Shared parts of statements: conditions, columns and numbers.

use engine::{
    event::{EventRef, Provenance, Seq, SessionId, Severity},
    notification::{InjectionPoint, Priority},
    session::Readable,
    sorted::SortedSet,
};
use journal::time::Timestamp;
use rusqlite::{Connection, Row, types::Value};
use strum::VariantArray;

use crate::api::wire::{event::to_masked_json, history::LedgerLine};

/// A condition that `session` is one of the readable ones, with `?` for their [`names`]; unset, it
/// is of all.
pub(super) const IS_READABLE: &str = "session IN (SELECT value FROM json_each(?))";

/// The readable sessions, as the value in [`IS_READABLE`]; `None` if all are.
pub(super) fn names(readable: &Readable) -> Option<String> {
    match readable {
        Readable::All => None,
        Readable::Of(sessions) => Some(json(sessions)),
    }
}

/// A list of sessions as a value.
pub(super) fn json(sessions: &SortedSet<SessionId>) -> String {
    serde_json::to_string(sessions).expect("texts always serialize")
}

/// The columns of an event, in the order that [`event`] reads.
pub(super) const EVENT_COLUMNS: &str = "seq, severity, timestamp, source, type, id, session, workspace, cause, dedupe_key, payload, deliver_after";

/// The columns of a ledger entry, in the order that [`line`] reads.
pub(super) const LINE_COLUMNS: &str =
    "at, what, event, subscriber, notification, session, injection, by, reason, detail";

/// A conjunction of conditions, with their values.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    conditions: Vec<String>,
    values: Vec<Value>,
}

impl Conditions {
    /// Adds a condition with `?` for the value, if there is one.
    pub(super) fn add(&mut self, condition: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.values.push(value.into());
            self.conditions.push(condition.replace('?', &format!("?{}", self.values.len())));
        }
    }

    /// Adds a condition with `?` for each of `values`.
    pub(super) fn add_all(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        let mut parts = condition.split('?');
        let mut numbered = parts.next().unwrap_or_default().to_owned();
        for (part, value) in parts.zip(values) {
            self.values.push(value);
            numbered.push_str(&format!("?{}{part}", self.values.len()));
        }
        self.conditions.push(numbered);
    }

    /// `WHERE` and the conditions, and the values; an empty text if there are none.
    pub(super) fn finish(self) -> (String, Vec<Value>) {
        let clause = if self.conditions.is_empty() {
            String::new()
        } else {
            format!("WHERE {}", self.conditions.join(" AND "))
        };
        (clause, self.values)
    }
}

/// A page of a query's results: at most `limit`, and whether there are more.
///
/// Shape: `read` returns `None` for a row that does not belong to the answer.
pub(super) fn page<T>(
    connection: &Connection,
    sql: &str,
    values: Vec<Value>,
    limit: usize,
    mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<Option<T>>,
) -> rusqlite::Result<(Vec<T>, bool)> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let Some(item) = read(row)? else { continue };
        if found.len() == limit {
            return Ok((found, true));
        }
        found.push(item);
    }
    Ok((found, false))
}

/// Reads the columns of an event into its JSON, if `is_wanted`.
pub(super) fn event(
    row: &Row<'_>,
    is_wanted: impl FnOnce(&EventRef<'_>) -> bool,
) -> rusqlite::Result<Option<(Seq, String)>> {
    let optional = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str_or_null()?));
    let text = |index: usize| row.get_ref(index).and_then(|value| Ok(value.as_str()?));
    let seq = Seq(from_sql(row.get(0)?));
    let event = EventRef {
        id: text(5)?,
        event_type: text(4)?,
        source: text(3)?,
        // The displayed event does not include it.
        provenance: Provenance::default(),
        severity: severity(row.get(1)?),
        timestamp: time(row.get(2)?),
        payload: text(10)?,
        dedupe_key: optional(9)?,
        session: optional(6)?,
        workspace: optional(7)?,
        cause: optional(8)?,
        deliver_after: optional(11)?,
    };
    Ok(is_wanted(&event).then(|| (seq, to_masked_json(&event, Some(seq)))))
}

/// Reads the columns of a ledger entry; the caller adds the events of a notification.
pub(super) fn line(row: &Row<'_>) -> rusqlite::Result<LedgerLine> {
    let event: Option<i64> = row.get(2)?;
    let text = |index: usize| row.get::<_, Option<String>>(index);
    Ok(LedgerLine {
        at: Some(time(row.get(0)?).to_string()),
        what: row.get::<_, String>(1)?.into(),
        subscriber: text(3)?,
        notification: text(4)?,
        session: text(5)?,
        injection: text(6)?,
        by: text(7)?.map(Into::into),
        reason: text(8)?.map(Into::into),
        detail: text(9)?,
        events: event.map(from_sql).into_iter().collect(),
    })
}

/// The events of a notification, oldest first.
pub(super) fn events_behind(connection: &Connection, notification: &str) -> rusqlite::Result<Vec<u64>> {
    connection
        .prepare_cached("SELECT event FROM notification_events WHERE notification = ?1 ORDER BY event")?
        .query_map([notification], |row| row.get(0).map(from_sql))?
        .collect()
}

/// The lines of readable sessions and of none, with the events of created notifications.
pub(super) fn complete(
    connection: &Connection,
    mut lines: Vec<LedgerLine>,
    readable: &Readable,
) -> rusqlite::Result<Vec<LedgerLine>> {
    lines.retain(|line| readable.contains(line.session.as_deref()));
    for line in lines.iter_mut().filter(|line| line.what == "created") {
        if let Some(notification) = &line.notification {
            line.events = events_behind(connection, notification)?;
        }
    }
    Ok(lines)
}

pub(super) fn time(millis: i64) -> Timestamp {
    Timestamp::from_millis(from_sql(millis))
}

pub(super) fn severity(rank: i64) -> Severity {
    ranked(Severity::VARIANTS, rank).unwrap_or(Severity::Info)
}

pub(super) fn priority(rank: i64) -> Priority {
    ranked(Priority::VARIANTS, rank).unwrap_or(Priority::Normal)
}

/// The name of a point, as it was written.
pub(super) fn point(text: &str) -> &'static str {
    text.parse::<InjectionPoint>().map_or("", InjectionPoint::as_str)
}

fn ranked<T: Copy>(all: &[T], rank: i64) -> Option<T> {
    usize::try_from(rank).ok().and_then(|rank| all.get(rank)).copied()
}

/// Converts a position or a time to SQLite's signed integer.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
