//! Queries about notifications.

use rusqlite::{OptionalExtension, Row, params, types::Value};

use super::{
    Looked, View,
    rows::{self, Conditions, IS_READABLE, from_sql},
};
use engine::{
    notification::{Priority, repeat::Action},
    session::Readable,
};
use journal::time::Timestamp;

use crate::api::wire::{
    history::{Delivery, LedgerLine, NotificationView},
    inbox::TakenUp,
    respond::Answered,
};

const COLUMNS: &str = "place, priority, severity, created_at, expires_at, subscriber, id, inject_at, session, workspace, tokens, content, sentence";

/// The states of a notification in a session.
pub const STATES: [&str; 5] = ["unclaimed", "pending", "injected", "confirmed", "ended"];

/// Selects notifications.
#[derive(Debug, Clone, Default)]
pub struct NotificationFilter {
    /// The notification is queued for this session.
    pub session: Option<String>,
    /// It was created by this subscriber.
    pub subscriber: Option<String>,
    /// It has this priority.
    pub priority: Option<Priority>,
    /// It has this state, in `session` or in any readable session; one of [`STATES`].
    pub state: Option<String>,
    /// It ended for this reason, by its word, in `session` or in any readable session.
    pub reason: Option<&'static str>,
    /// It is for one of these sessions or for none, or was queued for one of these.
    pub readable: Readable,
    /// It was not created before this time.
    pub since: Option<Timestamp>,
    /// It was created before the notification at this place.
    pub before: Option<i64>,
}

impl View<'_> {
    /// The newest notifications that match `filter`, at most `limit`, each with its place, and
    /// whether there are more.
    ///
    /// Errors: the file cannot be read.
    pub fn notifications(
        &self,
        filter: &NotificationFilter,
        limit: usize,
    ) -> rusqlite::Result<(Vec<(i64, NotificationView)>, bool)> {
        let mut conditions = Conditions::default();
        conditions.add("n.place < ?", filter.before);
        conditions.add("n.subscriber = ?", filter.subscriber.clone());
        conditions.add("n.priority = ?", filter.priority.map(|priority| priority as i64));
        conditions.add("n.created_at >= ?", filter.since.map(|time| super::rows::to_sql(time.as_millis())));
        let names = rows::names(&filter.readable);
        if let Some(names) = &names {
            conditions.add_all(
                &format!(
                    "(n.session IS NULL OR n.{IS_READABLE}
                    OR EXISTS (SELECT 1 FROM deliveries d WHERE d.notification = n.id AND d.{IS_READABLE}))"
                ),
                [names.clone().into(), names.clone().into()],
            );
        }
        // One delivery must match the session, the state and the reason.
        let mut delivery: Vec<(String, Value)> = Vec::new();
        delivery.extend(filter.session.clone().map(|session| ("d.session = ?".to_owned(), session.into())));
        let state = filter.state.clone().map(|state| ("d.state = ?".to_owned(), state.into()));
        let reason = filter.reason.map(|reason| ("d.reason = ?".to_owned(), reason.to_owned().into()));
        let ways: Vec<_> = state.into_iter().chain(reason).collect();
        if !ways.is_empty() {
            delivery.extend(ways);
            delivery
                .extend(names.map(|names| (format!("(d.session = '' OR d.{IS_READABLE})"), names.into())));
        }
        if !delivery.is_empty() {
            let (parts, values): (Vec<String>, Vec<Value>) = delivery.into_iter().unzip();
            let exists = format!(
                "EXISTS (SELECT 1 FROM deliveries d WHERE d.notification = n.id AND {})",
                parts.join(" AND ")
            );
            conditions.add_all(&exists, values);
        }
        let (clause, values) = conditions.finish();
        let sql = format!("SELECT {COLUMNS} FROM notifications n {clause} ORDER BY n.place DESC");
        let (mut found, has_more) =
            rows::page(self.connection(), &sql, values, limit, |row| notification(row).map(Some))?;
        for (_, notification) in &mut found {
            self.complete(notification)?;
            notification.deliveries.retain(|delivery| filter.readable.contains(delivery.session.as_deref()));
        }
        Ok((found, has_more))
    }

    /// One notification, with its state in readable sessions.
    ///
    /// Errors: the file cannot be read.
    pub fn notification(
        &self,
        id: &str,
        readable: &Readable,
    ) -> rusqlite::Result<Option<Looked<NotificationView>>> {
        let sql = format!("SELECT {COLUMNS} FROM notifications WHERE id = ?1");
        let found = self.connection().prepare_cached(&sql)?.query_row([id], notification).optional()?;
        let Some((_, mut notification)) = found else { return Ok(None) };
        self.complete(&mut notification)?;
        let deliveries = &mut notification.deliveries;
        deliveries.retain(|delivery| readable.contains(delivery.session.as_deref()));
        let was_queued = deliveries.iter().any(|delivery| delivery.session.is_some());
        match &notification.session {
            Some(session) if !was_queued && !readable.contains(Some(session)) => {
                Ok(Some(Looked::Withheld { session: session.clone() }))
            }
            Some(_) | None => Ok(Some(Looked::Found(notification))),
        }
    }

    /// The recorded history of a notification in readable sessions, oldest first.
    ///
    /// Errors: the file cannot be read.
    pub fn history_of_notification(
        &self,
        id: &str,
        readable: &Readable,
    ) -> rusqlite::Result<Vec<LedgerLine>> {
        let connection = self.connection();
        let sql = format!("SELECT {} FROM ledger WHERE notification = ?1 ORDER BY place", rows::LINE_COLUMNS);
        let lines: rusqlite::Result<Vec<_>> =
            connection.prepare_cached(&sql)?.query_map([id], rows::line)?.collect();
        rows::complete(connection, lines?, readable)
    }

    /// The notifications that somebody has taken up in a readable session and nobody has answered
    /// otherwise since, the newest first, at most `limit`; none that was taken up before `since`.
    ///
    /// Errors: the file cannot be read.
    pub fn taken_up(
        &self,
        session: Option<&str>,
        readable: &Readable,
        since: Timestamp,
        limit: usize,
    ) -> rusqlite::Result<Vec<TakenUp>> {
        let sql =
            "SELECT n.id, n.subscriber, n.priority, n.sentence, d.responded_by, d.responded_at, d.session
             FROM deliveries d JOIN notifications n ON n.id = d.notification
             WHERE d.response = ?1 AND d.responded_at >= ?2 ORDER BY d.responded_at DESC, n.id, d.session";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut rows =
            statement.query(params![Action::Investigate.state(), rows::to_sql(since.as_millis())])?;
        let mut found: Vec<TakenUp> = Vec::new();
        while let Some(row) = rows.next()?
            && found.len() < limit
        {
            let (id, own): (String, String) = (row.get(0)?, row.get(6)?);
            let is_wanted = session.is_none_or(|session| session == own) && readable.contains(Some(&own));
            if !is_wanted || found.iter().any(|one| one.id == id) {
                continue;
            }
            found.push(TakenUp {
                id,
                subscriber: row.get(1)?,
                priority: rows::priority(row.get(2)?).as_str().to_owned(),
                sentence: row.get(3)?,
                by: row.get(4)?,
                since: rows::time(row.get(5)?).to_string(),
            });
        }
        Ok(found)
    }

    fn complete(&self, notification: &mut NotificationView) -> rusqlite::Result<()> {
        let connection = self.connection();
        notification.events = rows::events_behind(connection, &notification.id)?;
        notification.deliveries = connection
            .prepare_cached(
                "SELECT session, state, reason, injection, at, response, responded_by, responded_at
                 FROM deliveries WHERE notification = ?1 ORDER BY session",
            )?
            .query_map([&notification.id], delivery)?
            .collect::<rusqlite::Result<_>>()?;
        Ok(())
    }
}

/// How a delivery was answered: the response, by whom, and when, from the column `at`.
pub(super) fn answered(row: &Row<'_>, at: usize) -> rusqlite::Result<Answered> {
    let responded_at: Option<i64> = row.get(at + 2)?;
    Ok(Answered {
        response: row.get(at)?,
        responded_by: row.get(at + 1)?,
        responded_at: responded_at.map(|at| rows::time(at).to_string()),
    })
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let (session, state): (String, String) = (row.get(0)?, row.get(1)?);
    let why: Option<String> = row.get(2)?;
    let (proof, reason) = if state == "confirmed" { (why, None) } else { (None, why) };
    Ok(Delivery {
        session: Some(session).filter(|session| !session.is_empty()),
        state,
        proof,
        reason,
        injection: row.get(3)?,
        at: rows::time(row.get(4)?).to_string(),
        answered: answered(row, 5)?,
    })
}

/// Reads [`COLUMNS`]; events and deliveries are in other tables.
fn notification(row: &Row<'_>) -> rusqlite::Result<(i64, NotificationView)> {
    let expires_at: Option<i64> = row.get(4)?;
    let view = NotificationView {
        id: row.get(6)?,
        subscriber: row.get(5)?,
        priority: rows::priority(row.get(1)?).as_str().to_owned(),
        severity: rows::severity(row.get(2)?).as_str().to_owned(),
        inject_at: rows::point(&row.get::<_, String>(7)?).to_owned(),
        session: row.get(8)?,
        workspace: row.get(9)?,
        content: row.get(11)?,
        sentence: row.get(12)?,
        tokens: from_sql(row.get(10)?),
        created_at: rows::time(row.get(3)?).to_string(),
        expires_at: expires_at.map(|at| rows::time(at).to_string()),
        events: Vec::new(),
        deliveries: Vec::new(),
    };
    Ok((row.get(0)?, view))
}
