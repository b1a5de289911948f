//! Counts by source and type of event: events, deliveries, and the cost of the deliveries.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};

use super::{
    View,
    rows::{self, from_sql, to_sql},
};
use journal::time::Timestamp;

use crate::api::wire::sources::{DOCTOR_AGENT, DOCTOR_SESSION};

/// Most of the newest events and deliveries that are counted; this takes some 40 ms and 100 ms on a
/// machine with two cores.
pub const COUNTED_MAX: Limits = Limits { events: 20_000, deliveries: 20_000 };

/// Limits of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Events.
    pub events: u32,
    /// Deliveries, including those that did not reach an agent.
    pub deliveries: u32,
}

/// The counts, without those of `aside doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counted {
    /// By source and type.
    ///
    /// Shape: a tree, because as many sources as events are counted may each have a name of its own.
    pub counts: BTreeMap<(String, String), Count>,
    /// Start of the counts.
    pub since: Timestamp,
    /// Whether `since` is later than requested, because there were too many.
    pub is_cut: bool,
}

/// Counts of one type from one source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Events taken by a subscriber, throttled or skipped.
    pub events: u64,
    /// Time of the newest one.
    pub last_at: Option<Timestamp>,
    /// Notifications delivered to an agent, once per session; a notification of several events
    /// counts for the first of them.
    pub delivered: u64,
    /// Estimated tokens of these notifications, without the wrapper.
    pub tokens: u64,
}

impl Count {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.last_at = self.last_at.max(other.last_at);
        self.delivered += other.delivered;
        self.tokens += other.tokens;
    }
}

impl View<'_> {
    /// Counts the events and the deliveries since a time.
    ///
    /// Errors: the file cannot be read.
    pub fn counted(&self, since: Timestamp, limits: Limits) -> rusqlite::Result<Counted> {
        let cut = self.oldest_delivery(limits.deliveries)?.filter(|oldest| *oldest > since);
        let mut counted =
            Counted { is_cut: cut.is_some(), since: cut.unwrap_or(since), ..Counted::default() };
        self.count_events(&mut counted, limits.events)?;
        self.count_deliveries(&mut counted, limits.deliveries)?;
        Ok(counted)
    }

    /// Time of the oldest delivery within the limit; `None` if there are fewer.
    fn oldest_delivery(&self, limit: u32) -> rusqlite::Result<Option<Timestamp>> {
        let sql = "SELECT at FROM deliveries ORDER BY place DESC LIMIT 1 OFFSET ?1";
        let mut statement = self.connection().prepare_cached(sql)?;
        statement.query_row([limit.saturating_sub(1)], |row| row.get(0).map(rows::time)).optional()
    }

    fn count_events(&self, counted: &mut Counted, limit: u32) -> rusqlite::Result<()> {
        let sql = "SELECT source, type, timestamp FROM events WHERE session IS NULL OR session NOT GLOB ?1
             ORDER BY seq DESC LIMIT ?2";
        let mut statement = self.connection().prepare_cached(sql)?;
        let mut found = statement.query(params![of_doctor(), limit])?;
        let (mut read, mut oldest) = (0, counted.since);
        while let Some(row) = found.next()? {
            (read, oldest) = (read + 1, rows::time(row.get(2)?));
            if oldest >= counted.since {
                let count = Count { events: 1, last_at: Some(oldest), ..Count::default() };
                counted.counts.entry((row.get(0)?, row.get(1)?)).or_default().add(&count);
            }
        }
        // An event's own time may be long before its publication.
        if read >= limit && oldest > counted.since {
            (counted.is_cut, counted.since) = (true, oldest);
        }
        Ok(())
    }

    fn count_deliveries(&self, counted: &mut Counted, limit: u32) -> rusqlite::Result<()> {
        let sql = "SELECT e.source, e.type, n.tokens
             FROM (SELECT * FROM deliveries ORDER BY place DESC LIMIT ?3) d
             JOIN notifications n ON n.id = d.notification
             JOIN events e ON e.seq = (SELECT min(event) FROM notification_events WHERE notification = n.id)
             WHERE d.state IN ('injected', 'confirmed') AND d.at >= ?1 AND d.session NOT GLOB ?2";
        let mut statement = self.connection().prepare_cached(sql)?;
        let since = to_sql(counted.since.as_millis());
        let mut found = statement.query(params![since, of_doctor(), limit])?;
        while let Some(row) = found.next()? {
            let count = Count { delivered: 1, tokens: from_sql(row.get(2)?), ..Count::default() };
            counted.counts.entry((row.get(0)?, row.get(1)?)).or_default().add(&count);
        }
        Ok(())
    }
}

/// The session names of `aside doctor`, as a pattern for SQLite.
fn of_doctor() -> String {
    format!("{DOCTOR_SESSION}*/{DOCTOR_AGENT}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{FILE_NAME, Projection, Writer, dump::execute};

    /// Events: second, source, type, session; then notifications: event, state.
    fn counted(
        events: &[(u64, &str, &str, &str)],
        notifications: &[(usize, &str)],
        since: u64,
        limits: Limits,
    ) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(FILE_NAME);
        drop(Writer::open(&path).expect("made"));
        for ((at, source, event_type, session), seq) in events.iter().zip(1..) {
            execute(
                &path,
                &format!(
                    "INSERT INTO events VALUES ({seq}, 1, {at}000, '{source}', '{event_type}', 'e{seq}', nullif('{session}', ''),
                        NULL, NULL, NULL, '{{}}', NULL)"
                ),
            );
        }
        for ((event, state), place) in notifications.iter().zip(1..) {
            let (at, _, _, session) = events[event - 1];
            execute(
                &path,
                &format!(
                    "INSERT INTO notifications VALUES ({place}, 1, 1, {at}000, NULL, 's', 'n{place}', 'after_tool', NULL, NULL, 10, 'c', 's');
                     INSERT INTO notification_events VALUES ({event}, 'n{place}'), ({event} + 1, 'n{place}');
                     INSERT INTO deliveries (notification, session, state, reason, injection, at, place) VALUES ('n{place}', '{session}', '{state}', NULL, 'i', {at}000, {place})"
                ),
            );
        }
        let (projection, _orders) = Projection::new(&path);
        let counted = projection
            .read_blocking(|view| view.counted(Timestamp::from_millis(since * 1_000), limits))
            .expect("readable");
        let mut text = format!(
            "since {}{}",
            counted.since.as_millis() / 1_000,
            if counted.is_cut { ", cut" } else { "" }
        );
        for ((source, event_type), count) in counted.counts {
            let last = count.last_at.map_or(0, |at| at.as_millis() / 1_000);
            let Count { events, delivered, tokens, .. } = count;
            text.push_str(&format!(
                "; {source} {event_type}: {events}, last {last}, {delivered} for {tokens}"
            ));
        }
        text
    }

    #[test]
    fn counts_by_source_and_type_exclude_doctor_events() {
        let events = [
            (1, "aside", "git.head.moved", "s1"),
            (5, "aside", "git.head.moved", "s1"),
            (6, "ci", "ci.check.failed", ""),
            (7, "aside", "git.head.moved", "s2"),
            (8, "aside", "git.head.moved", "doctor-1/doctor"),
            // It is older than events published before it.
            (2, "ci", "ci.check.failed", ""),
        ];
        let notifications =
            [(1, "confirmed"), (2, "confirmed"), (3, "pending"), (4, "injected"), (5, "injected")];
        let all = Limits { events: 100, deliveries: 100 };
        let cut_events = Limits { events: 2, ..all };
        let cut_deliveries = Limits { deliveries: 3, ..all };
        for (since, limits, expected) in [
            (
                0,
                all,
                "since 0; aside git.head.moved: 3, last 7, 3 for 30; ci ci.check.failed: 2, last 6, 0 for 0",
            ),
            (
                3,
                all,
                "since 3; aside git.head.moved: 2, last 7, 2 for 20; ci ci.check.failed: 1, last 6, 0 for 0",
            ),
            (9, all, "since 9"),
            (
                0,
                cut_events,
                "since 7, cut; aside git.head.moved: 1, last 7, 1 for 10; ci ci.check.failed: 1, last 2, 0 for 0",
            ),
            (
                0,
                cut_deliveries,
                "since 6, cut; aside git.head.moved: 1, last 7, 1 for 10; ci ci.check.failed: 1, last 6, 0 for 0",
            ),
        ] {
            assert_eq!(counted(&events, &notifications, since, limits), expected, "{since} {limits:?}");
        }
    }
}
