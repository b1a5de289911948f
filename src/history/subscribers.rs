//! Counts by subscriber: events, notifications, deliveries, and their cost.

use std::collections::BTreeMap;

use journal::time::Timestamp;
use rusqlite::{Row, params};

use super::{
    View,
    rows::{self, from_sql, to_sql},
};

/// Most of the newest entries of each kind that are counted.
pub const COUNTED_MAX: u32 = 20_000;

/// Counts of one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SubscriberCount {
    /// Events that it took, also those that it ended.
    pub events: u64,
    /// Notifications that it made.
    pub made: u64,
    /// Their deliveries to sessions.
    pub sent: u64,
    /// Estimated tokens of these, without wrappers.
    pub tokens: u64,
    /// When the newest notification was made, also before the counts begin.
    pub last_at: Option<Timestamp>,
}

/// An event that its filter rejected is not taken.
const EVENTS: &str = "SELECT subscriber, count(*) FROM (
    SELECT l.subscriber AS subscriber, l.event AS event
        FROM (SELECT * FROM ledger ORDER BY place DESC LIMIT ?2) l
        WHERE l.subscriber IS NOT NULL AND l.event IS NOT NULL AND l.at >= ?1
            AND coalesce(l.reason, '') != 'filtered'
    UNION
    SELECT n.subscriber, e.event
        FROM (SELECT * FROM notifications ORDER BY place DESC LIMIT ?2) n
        JOIN notification_events e ON e.notification = n.id WHERE n.created_at >= ?1)
    GROUP BY subscriber";
const MADE: &str = "SELECT subscriber, sum(created_at >= ?1), max(created_at)
    FROM (SELECT * FROM notifications ORDER BY place DESC LIMIT ?2) GROUP BY subscriber";
const SENT: &str = "SELECT n.subscriber, count(*), sum(n.tokens)
    FROM (SELECT * FROM deliveries ORDER BY place DESC LIMIT ?2) d
    JOIN notifications n ON n.id = d.notification
    WHERE d.state IN ('injected', 'confirmed') AND d.at >= ?1 GROUP BY n.subscriber";

impl View<'_> {
    /// Counts by subscriber since a time, among the newest [`COUNTED_MAX`] entries.
    ///
    /// Errors: the file cannot be read.
    pub fn counted_by_subscriber(
        &self,
        since: Timestamp,
    ) -> rusqlite::Result<BTreeMap<String, SubscriberCount>> {
        let mut counts = BTreeMap::new();
        self.each_count(EVENTS, since, &mut counts, |count, row| {
            count.events = from_sql(row.get(1)?);
            Ok(())
        })?;
        self.each_count(MADE, since, &mut counts, |count, row| {
            (count.made, count.last_at) = (from_sql(row.get(1)?), Some(rows::time(row.get(2)?)));
            Ok(())
        })?;
        self.each_count(SENT, since, &mut counts, |count, row| {
            (count.sent, count.tokens) = (from_sql(row.get(1)?), from_sql(row.get(2)?));
            Ok(())
        })?;
        Ok(counts)
    }

    fn each_count(
        &self,
        sql: &str,
        since: Timestamp,
        counts: &mut BTreeMap<String, SubscriberCount>,
        set: impl Fn(&mut SubscriberCount, &Row<'_>) -> rusqlite::Result<()>,
    ) -> rusqlite::Result<()> {
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut found = statement.query(params![to_sql(since.as_millis()), COUNTED_MAX])?;
        while let Some(row) = found.next()? {
            set(counts.entry(row.get(0)?).or_default(), row)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{FILE_NAME, Projection, Writer, dump::execute};

    #[test]
    fn each_subscriber_has_its_own_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        drop(Writer::open(&path).expect("a file"));
        let notification = |place: u32, at: u32, subscriber: &str| {
            format!(
                "INSERT INTO notifications VALUES ({place}, 1, 1, {at}, NULL, '{subscriber}', 'n{place}', 'after_tool', NULL, NULL, 7, '', '');"
            )
        };
        let ledger = |place: u32, at: u32, event: u32, reason: &str| {
            format!(
                "INSERT INTO ledger (place, at, what, event, subscriber, reason) VALUES ({place}, {at}, 'x', {event}, 'a', {reason});"
            )
        };
        let delivery = |place: u32, state: &str| {
            format!(
                "INSERT INTO deliveries (notification, session, state, at, place) VALUES ('n1', 's{place}', '{state}', 2000, {place});"
            )
        };
        execute(
            &path,
            &[
                notification(1, 2_000, "a"),
                notification(2, 500, "b"),
                ledger(1, 2_000, 1, "NULL"),
                ledger(2, 2_000, 2, "'duplicate'"),
                ledger(3, 2_000, 3, "'filtered'"),
                ledger(4, 500, 4, "NULL"),
                "INSERT INTO notification_events VALUES (1, 'n1'), (9, 'n1');".to_owned(),
                delivery(1, "confirmed"),
                delivery(2, "injected"),
                delivery(3, "ended"),
            ]
            .concat(),
        );
        let (projection, _commands) = Projection::new(&path);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let read = projection.read(|view| view.counted_by_subscriber(Timestamp::from_millis(1_000)));
        let counts = runtime.block_on(read).expect("it is read");
        let last = |at| Some(Timestamp::from_millis(at));
        let a = SubscriberCount { events: 3, made: 1, sent: 2, tokens: 14, last_at: last(2_000) };
        let b = SubscriberCount { last_at: last(500), ..SubscriberCount::default() };
        assert_eq!(counts, BTreeMap::from([("a".to_owned(), a), ("b".to_owned(), b)]));
    }
}
