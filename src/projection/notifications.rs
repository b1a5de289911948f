//! Queries about notifications.

use rusqlite::{OptionalExtension, Row};

use super::{View, rows, rows::Conditions, sql::from_sql};
use crate::{
    notification::Priority,
    time::Timestamp,
    wire::history::{Delivery, LedgerLine, NotificationView},
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
    /// It has this state, in `session` or in any session; one of [`STATES`].
    pub state: Option<String>,
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
        conditions.add("n.created_at >= ?", filter.since.map(|time| super::sql::to_sql(time.as_millis())));
        // One delivery must match both the session and the state.
        let mut delivery = vec!["d.notification = n.id"];
        if filter.session.is_some() {
            delivery.push("d.session = ?1");
        }
        if filter.state.is_some() {
            delivery.push("d.state = ?2");
        }
        let mut sql = format!("SELECT {COLUMNS} FROM notifications n ");
        let (clause, mut values) = conditions.finish();
        sql.push_str(&clause);
        if delivery.len() > 1 {
            let offset = values.len();
            let exists = delivery
                .join(" AND ")
                .replace("?1", &format!("?{}", offset + 1))
                .replace("?2", &format!("?{}", offset + 1 + usize::from(filter.session.is_some())));
            sql.push_str(if clause.is_empty() { "WHERE " } else { " AND " });
            sql.push_str(&format!("EXISTS (SELECT 1 FROM deliveries d WHERE {exists})"));
            values.extend(filter.session.clone().map(Into::into));
            values.extend(filter.state.clone().map(Into::into));
        }
        sql.push_str(" ORDER BY n.place DESC");
        let (mut found, has_more) =
            rows::page(self.connection(), &sql, values, limit, |row| notification(row).map(Some))?;
        for (_, notification) in &mut found {
            self.complete(notification)?;
        }
        Ok((found, has_more))
    }

    /// One notification.
    ///
    /// Errors: the file cannot be read.
    pub fn notification(&self, id: &str) -> rusqlite::Result<Option<NotificationView>> {
        let sql = format!("SELECT {COLUMNS} FROM notifications WHERE id = ?1");
        let found = self.connection().prepare_cached(&sql)?.query_row([id], notification).optional()?;
        found
            .map(|(_, mut notification)| {
                self.complete(&mut notification)?;
                Ok(notification)
            })
            .transpose()
    }

    /// The recorded history of a notification, oldest first.
    ///
    /// Errors: the file cannot be read.
    pub fn history_of_notification(&self, id: &str) -> rusqlite::Result<Vec<LedgerLine>> {
        let connection = self.connection();
        let sql = format!("SELECT {} FROM ledger WHERE notification = ?1 ORDER BY place", rows::LINE_COLUMNS);
        let lines: rusqlite::Result<Vec<_>> =
            connection.prepare_cached(&sql)?.query_map([id], rows::line)?.collect();
        rows::with_events(connection, lines?)
    }

    fn complete(&self, notification: &mut NotificationView) -> rusqlite::Result<()> {
        let connection = self.connection();
        notification.events = rows::events_behind(connection, &notification.id)?;
        notification.deliveries = connection
            .prepare_cached(
                "SELECT session, state, reason, injection, at FROM deliveries WHERE notification = ?1 ORDER BY session",
            )?
            .query_map([&notification.id], delivery)?
            .collect::<rusqlite::Result<_>>()?;
        Ok(())
    }
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
