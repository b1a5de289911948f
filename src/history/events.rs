//! Queries about events.

use rusqlite::OptionalExtension;

use super::{
    Looked, View,
    rows::{self, Conditions, IS_READABLE, to_sql},
};
use engine::{
    event::{Pattern, Seq, Severity},
    notification::{Category, Level},
    session::Readable,
};
use journal::time::Timestamp;

use crate::api::wire::history::{Ended, EventLine, LedgerLine, raw};

/// Selects events.
#[derive(Debug, Clone, Default)]
pub struct EventFilter {
    /// The type matches this pattern.
    pub pattern: Option<Pattern>,
    /// The source is this component.
    pub source: Option<String>,
    /// The severity is at least this.
    pub severity_min: Option<Severity>,
    /// It is a notice or a question for the user, of this kind.
    pub notice: NoticeFilter,
    /// It, or a notification that has it, ended for this reason, by its word.
    pub reason: Option<&'static str>,
    /// The event is addressed to this session.
    pub session: Option<String>,
    /// It is addressed to one of these, or to none.
    pub readable: Readable,
    /// The workspace is this folder or one in it.
    pub workspace: Option<String>,
    /// The time is not before this.
    pub since: Option<Timestamp>,
    /// The time is not after this.
    pub until: Option<Timestamp>,
    /// The position is before this.
    pub before: Option<Seq>,
}

/// Whether an event or a notification that has it ended for a reason.
const ENDED: &str = "(EXISTS (SELECT 1 FROM ledger WHERE event = events.seq AND reason = ?)
    OR EXISTS (SELECT 1 FROM notification_events made JOIN deliveries ended ON ended.notification = made.notification
        WHERE made.event = events.seq AND ended.reason = ?))";

/// Selects notices and questions for the user; all events are selected without a value.
#[derive(Debug, Clone, Default)]
pub struct NoticeFilter {
    /// The types of their events, which hold no quote.
    pub types: &'static [&'static str],
    /// The category.
    pub category: Option<Category>,
    /// The level is at least this.
    pub level_min: Option<Level>,
}

impl View<'_> {
    /// The newest events that match `filter`, at most `limit`, and whether there are more.
    ///
    /// Errors: the file cannot be read.
    pub fn events(&self, filter: &EventFilter, limit: usize) -> rusqlite::Result<(Vec<EventLine>, bool)> {
        let mut conditions = Conditions::default();
        conditions.add("seq < ?", filter.before.map(|before| to_sql(before.0)));
        conditions.add("source = ?", filter.source.clone());
        conditions.add("severity >= ?", filter.severity_min.map(|severity| severity as i64));
        let NoticeFilter { types, category, level_min } = &filter.notice;
        let of_user = format!("type IN ('{}')", types.join("', '"));
        let category = category.map(|category| category.as_str().to_owned());
        conditions.add(&format!("{of_user} AND json_extract(payload, '$.category') = ?"), category);
        let level = level_min.map(|level| level.severity() as i64);
        conditions.add(&format!("{of_user} AND severity >= ?"), level);
        conditions.add(ENDED, filter.reason.map(str::to_owned));
        conditions.add("session = ?", filter.session.clone());
        conditions.add(&format!("(session IS NULL OR {IS_READABLE})"), rows::names(&filter.readable));
        conditions.add("timestamp >= ?", filter.since.map(|time| to_sql(time.as_millis())));
        conditions.add("timestamp <= ?", filter.until.map(|time| to_sql(time.as_millis())));
        let (clause, values) = conditions.finish();
        let sql = format!("SELECT {} FROM events {clause} ORDER BY seq DESC", rows::EVENT_COLUMNS);
        let connection = self.connection();
        let folder = filter.workspace.as_deref().map(|folder| folder.trim_end_matches('/'));
        let (found, has_more) = rows::page(connection, &sql, values, limit, |row| {
            rows::event(row, |event| {
                let is_selected =
                    filter.pattern.as_ref().is_none_or(|pattern| pattern.matches_text(event.event_type));
                let is_in = |folder: &str| {
                    let rest = event.workspace.and_then(|own| own.strip_prefix(folder));
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                is_selected && folder.is_none_or(is_in)
            })
        })?;
        let lines = found.into_iter().map(|(seq, event)| self.event_line(seq, event));
        Ok((lines.collect::<rusqlite::Result<_>>()?, has_more))
    }

    fn event_line(&self, seq: Seq, event: String) -> rusqlite::Result<EventLine> {
        let ended = |row: &rusqlite::Row<'_>| {
            let what: String = row.get(0)?;
            let reason = row.get::<_, Option<String>>(2)?;
            Ok(Ended { subscriber: row.get(1)?, reason: reason.unwrap_or(what), detail: row.get(3)? })
        };
        let mut statement = self.connection().prepare_cached(
            "SELECT replace(what, 'user_sent', 'sent'), coalesce(subscriber, by), reason, detail FROM ledger
             WHERE event = ?1 AND what NOT IN ('batched', 'user_queued')
                AND NOT (what = 'user_failed' AND reason LIKE 'again %') ORDER BY place",
        )?;
        let ended = statement.query_map([to_sql(seq.0)], ended)?.collect::<rusqlite::Result<_>>()?;
        let notifications = self.notifications_of(seq)?;
        Ok(EventLine { event: raw(event), notifications, ended, seq: seq.0 })
    }

    /// The ids of the notifications that contain an event, sorted.
    fn notifications_of(&self, seq: Seq) -> rusqlite::Result<Vec<String>> {
        self.connection()
            .prepare_cached(
                "SELECT notification FROM notification_events WHERE event = ?1 ORDER BY notification",
            )?
            .query_map([to_sql(seq.0)], |row| row.get(0))?
            .collect()
    }

    /// The event with this id: its position and its JSON. Without `source`, the newest readable one.
    ///
    /// Errors: the file cannot be read.
    pub fn event_by_id(
        &self,
        id: &str,
        source: Option<&str>,
        readable: &Readable,
    ) -> rusqlite::Result<Option<Looked<(Seq, String)>>> {
        let sql = format!(
            "SELECT {} FROM events WHERE id = ?1 AND (?2 IS NULL OR source = ?2) ORDER BY seq DESC",
            rows::EVENT_COLUMNS
        );
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut found = statement.query(rusqlite::params![id, source])?;
        let mut withheld = None;
        while let Some(row) = found.next()? {
            let mut session = None;
            let event = rows::event(row, |event| {
                session = event.session.map(str::to_owned);
                readable.contains(event.session)
            })?;
            if let Some(event) = event {
                return Ok(Some(Looked::Found(event)));
            }
            withheld = withheld.or(session);
        }
        Ok(withheld.map(|session| Looked::Withheld { session }))
    }

    /// The readable events at these positions, as JSON; unknown ones are left out.
    ///
    /// Errors: the file cannot be read.
    pub fn events_at(&self, seqs: &[u64], readable: &Readable) -> rusqlite::Result<Vec<String>> {
        let sql = format!("SELECT {} FROM events WHERE seq = ?1", rows::EVENT_COLUMNS);
        let mut statement = self.connection().prepare_cached(&sql)?;
        let mut found = Vec::new();
        for seq in seqs {
            let read = |row: &rusqlite::Row<'_>| rows::event(row, |event| readable.contains(event.session));
            let row = statement.query_row([to_sql(*seq)], read).optional()?;
            found.extend(row.flatten().map(|(_, event)| event));
        }
        Ok(found)
    }

    /// The recorded history of an event and of the notifications that contain it, in readable
    /// sessions, oldest first; empty if unknown.
    ///
    /// Errors: the file cannot be read.
    pub fn history_of_event(&self, seq: Seq, readable: &Readable) -> rusqlite::Result<Vec<LedgerLine>> {
        let connection = self.connection();
        let sql = format!(
            "SELECT {} FROM ledger WHERE event = ?1
                OR notification IN (SELECT notification FROM notification_events WHERE event = ?1) ORDER BY place",
            rows::LINE_COLUMNS
        );
        let lines: rusqlite::Result<Vec<_>> =
            connection.prepare_cached(&sql)?.query_map([to_sql(seq.0)], rows::line)?.collect();
        rows::complete(connection, lines?, readable)
    }
}
