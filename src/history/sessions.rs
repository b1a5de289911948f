//! Queries about sessions: their deliveries, and closed sessions.

use engine::{event::SessionId, notes::Place, session::Readable, sorted::SortedSet};
use rusqlite::{Row, params};

use super::{
    Looked, View,
    notifications::answered,
    rows,
    rows::{Conditions, IS_READABLE},
};
use crate::api::wire::{
    exchange::started_by,
    harness::HarnessView,
    history::{ClosedSession, InjectionLine, Message},
};

/// The notifications of an injection. Their entries are of the injection's own record, so only that
/// record's are read; the `+` keeps SQLite from reading those of the whole session.
pub(super) const INJECTED: &str = "SELECT notification FROM ledger WHERE place >= ?1 AND place < ?2 AND +what = 'injected' AND +session = ?3
    AND injection = ?4 ORDER BY place";

/// The sessions below some, over any number of parents.
pub(super) const SUBAGENTS: &str = "WITH RECURSIVE below(id) AS (
        SELECT s.id FROM json_each(?1) own CROSS JOIN sessions s ON s.parent = own.value
        UNION SELECT s.id FROM below CROSS JOIN sessions s ON s.parent = below.id)
    SELECT id FROM below";

impl View<'_> {
    /// The newest system messages of a session, at most `limit`, each with its place, and whether
    /// there are more.
    ///
    /// Errors: the file cannot be read.
    pub fn messages(
        &self,
        session: &str,
        before: Option<i64>,
        limit: usize,
    ) -> rusqlite::Result<(Vec<(i64, Message)>, bool)> {
        let mut conditions = Conditions::default();
        conditions.add("l.what = 'injected' AND l.session = ?", Some(session.to_owned()));
        conditions.add("l.place < ?", before);
        let (clause, values) = conditions.finish();
        let sql = format!(
            "SELECT l.place, l.at, l.notification, l.injection, l.by, n.content, n.subscriber,
                    CASE WHEN d.injection = l.injection THEN d.state ELSE 'returned' END, d.reason,
                    EXISTS (SELECT 1 FROM injections i WHERE i.id = l.injection AND i.session = l.session AND i.starts_turn),
                    d.response, d.responded_by, d.responded_at
             FROM ledger l JOIN notifications n ON n.id = l.notification
             LEFT JOIN deliveries d ON d.notification = l.notification AND d.session = l.session
             {clause} ORDER BY l.place DESC"
        );
        rows::page(self.connection(), &sql, values, limit, |row| message(row).map(Some))
    }

    /// Whether a session is known to have been open.
    ///
    /// Errors: the file cannot be read.
    pub fn knows_session(&self, session: &str) -> rusqlite::Result<bool> {
        self.connection().prepare_cached("SELECT 1 FROM sessions WHERE id = ?1")?.exists([session])
    }

    /// The newest injections of a session, as written for their carriers, at most `limit`, each
    /// with its place, and whether there are more.
    ///
    /// Errors: the file cannot be read.
    pub fn injections(
        &self,
        session: &str,
        before: Option<i64>,
        limit: usize,
    ) -> rusqlite::Result<(Vec<(i64, InjectionLine)>, bool)> {
        let mut conditions = Conditions::default();
        conditions.add("session = ?", Some(session.to_owned()));
        conditions.add("place < ?", before);
        self.injections_that(conditions, limit)
    }

    /// The newest injections with this short name in readable sessions, at most `limit`: names are
    /// unique only within a session.
    ///
    /// Errors: the file cannot be read.
    pub fn injections_named(
        &self,
        id: &str,
        limit: usize,
        readable: &Readable,
    ) -> rusqlite::Result<Option<Looked<Vec<InjectionLine>>>> {
        let named = || {
            let mut conditions = Conditions::default();
            conditions.add("id = ?", Some(id.to_owned()));
            conditions
        };
        let mut conditions = named();
        conditions.add(IS_READABLE, rows::names(readable));
        let (found, _) = self.injections_that(conditions, limit)?;
        if found.is_empty() {
            let (others, _) = self.injections_that(named(), 1)?;
            let withheld = |(_, other): (i64, InjectionLine)| Looked::Withheld { session: other.session };
            return Ok(others.into_iter().next().map(withheld));
        }
        Ok(Some(Looked::Found(found.into_iter().map(|(_, injection)| injection).collect())))
    }

    /// The subagents of these sessions, and those of the subagents, whether they have ended or not.
    ///
    /// Errors: the file cannot be read.
    pub fn subagents_of(&self, sessions: &SortedSet<SessionId>) -> rusqlite::Result<SortedSet<SessionId>> {
        let mut statement = self.connection().prepare_cached(SUBAGENTS)?;
        let found = statement.query_map([rows::json(sessions)], |row| row.get::<_, String>(0))?;
        found.map(|id| id.map(|id| SessionId::new(&id))).collect()
    }

    fn injections_that(
        &self,
        conditions: Conditions,
        limit: usize,
    ) -> rusqlite::Result<(Vec<(i64, InjectionLine)>, bool)> {
        let (clause, values) = conditions.finish();
        let sql = format!(
            "SELECT place, at, id, role, text, session, starts_turn FROM injections {clause} ORDER BY place DESC"
        );
        let connection = self.connection();
        let (mut found, has_more) =
            rows::page(connection, &sql, values, limit, |row| injection(row).map(Some))?;
        let mut statement = connection.prepare_cached(INJECTED)?;
        for (place, injection) in &mut found {
            let seq = Place(*place).seq();
            let (begin, end) = (Place::first_of(seq).0, Place::first_of(seq.next()).0);
            let named = params![begin, end, injection.session, injection.id];
            let notifications = statement.query_map(named, |row| row.get(0))?;
            injection.notifications = notifications.collect::<rusqlite::Result<_>>()?;
        }
        Ok((found, has_more))
    }

    /// The closed sessions, latest end first, at most `limit`, each with the place of its end, and
    /// whether there are more.
    ///
    /// Errors: the file cannot be read.
    pub fn closed_sessions(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> rusqlite::Result<(Vec<(i64, ClosedSession)>, bool)> {
        let mut conditions = Conditions::default();
        conditions.add("closed_place < ?", Some(before.unwrap_or(i64::MAX)));
        let (clause, values) = conditions.finish();
        let sql = format!(
            "SELECT closed_place, id, opened_at, closed_at, seen_at, name, version, workspace, user, pid, parent
             FROM sessions {clause} ORDER BY closed_place DESC"
        );
        rows::page(self.connection(), &sql, values, limit, |row| closed(row).map(Some))
    }
}

fn message(row: &Row<'_>) -> rusqlite::Result<(i64, Message)> {
    let place: i64 = row.get(0)?;
    let state: String = row.get(7)?;
    let why: Option<String> = row.get(8)?;
    // It is in the queue again, because that delivery did not arrive.
    let state = if state == "pending" { "returned".to_owned() } else { state };
    let message = Message {
        id: format!("m{place:x}"),
        role: "system".to_owned(),
        content: row.get(5)?,
        timestamp: rows::time(row.get(1)?).to_string(),
        source: row.get(6)?,
        notification_id: row.get(2)?,
        injection: row.get(3)?,
        point: rows::point(&row.get::<_, String>(4)?).to_owned(),
        started_by: started_by(row.get(9)?).map(str::to_owned),
        proof: why.clone().filter(|_| state == "confirmed"),
        reason: why.filter(|_| state == "ended"),
        state,
        answered: answered(row, 10)?,
    };
    Ok((place, message))
}

fn injection(row: &Row<'_>) -> rusqlite::Result<(i64, InjectionLine)> {
    let injection = InjectionLine {
        id: row.get(2)?,
        session: row.get(5)?,
        timestamp: rows::time(row.get(1)?).to_string(),
        role: row.get(3)?,
        text: row.get(4)?,
        started_by: started_by(row.get(6)?).map(str::to_owned),
        notifications: Vec::new(),
    };
    Ok((row.get(0)?, injection))
}

fn closed(row: &Row<'_>) -> rusqlite::Result<(i64, ClosedSession)> {
    let text = |index: usize| row.get::<_, Option<String>>(index).map(|text| text.map(Into::into));
    let session = ClosedSession {
        id: row.get(1)?,
        is_open: false,
        opened_at: rows::time(row.get(2)?).to_string(),
        closed_at: rows::time(row.get(3)?).to_string(),
        seen_at: rows::time(row.get(4)?).to_string(),
        harness: HarnessView {
            name: text(5)?,
            version: text(6)?,
            workspace: text(7)?,
            user: text(8)?,
            pid: row.get(9)?,
            pid_started: None,
            conversations: None,
            parent: text(10)?,
        },
    };
    Ok((row.get(0)?, session))
}
