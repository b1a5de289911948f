//! The settings of `[[sources.schedule]]`, and the due times. Pure: the result depends only on the
//! given wall clock and time zone.
//!
//! A scheduled time is published once, with an id derived from it. If it passed while no daemon ran
//! or the machine was asleep, it is published late, provided that it is the newest one and at most
//! [`MISSED_MAX`] old.
//!
//! ```
//! use aside::capability::schedule::Schedule;
//! use jiff::tz::TimeZone;
//! use journal::time::Timestamp;
//!
//! let standup = Schedule::new("standup", "0 9 * * 1-5").expect("a pattern");
//! let sunday: Timestamp = "2026-11-22T12:00:00Z".parse()?;
//! assert_eq!(standup.next(sunday, &TimeZone::UTC), "2026-11-23T09:00:00Z".parse().ok());
//! # Ok::<(), journal::time::TimestampError>(())
//! ```

pub mod source;

use std::{sync::Arc, time::Duration};

use croner::{Cron, errors::CronError};
use jiff::{Zoned, tz::TimeZone};
use journal::time::{Timestamp, duration_millis};
use serde_json::json;

use engine::{
    event::{Event, Severity},
    settings::{Entries, Entry, Keys, Table, entry_folder, entry_name, entry_text, settings},
    sorted::SortedMap,
};

/// The greatest age at which a missed time is published late; an older one is no longer useful.
pub const MISSED_MAX: Duration = Duration::from_secs(60 * 60);
/// The time before its end in which a killed daemon may have left due times unpublished. Those that
/// it did publish have the same ids.
const UNPUBLISHED_MAX: Duration = Duration::from_secs(60);
const FIRED: &str = "timer.fired";

/// The entries of `[[sources.schedule]]`.
pub type Settings = Entries<Schedule>;

settings! {
    /// Times at which agents are notified (`timer.fired`). A time that passed while the machine slept
    /// or no daemon ran is notified late, if it is the newest one and at most an hour old.
    struct Written from impl Keys {
        /// The name of the entry.
        name: Arc<str>, needed(entry_name), like "\"standup\"";
        /// Minute, hour, day of the month, month and weekday, by your clock. With six fields, the
        /// first one is the second.
        cron: Cron, needed(read_cron), like "\"0 9 * * 1-5\"";
        /// A text for the agent, besides the name.
        message: Arc<str>, parsed(entry_text), like "\"Write down what was done.\"";
        /// The folder whose sessions are notified; without this key, all sessions are.
        workspace: Arc<str>, parsed(entry_folder), like "\"/home/me/shop\"";
    }
}

/// One entry: a recurring time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    name: Arc<str>,
    cron: Cron,
    message: Option<Arc<str>>,
    workspace: Option<Arc<str>>,
}

/// A scheduled time that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The schedule.
    pub schedule: Schedule,
    /// The scheduled time.
    pub at: Timestamp,
}

/// The result of planning.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The schedules that have become due since the last plan.
    pub due: Vec<Due>,
    /// When to plan again; `None` if nothing more will become due.
    pub next: Option<Timestamp>,
}

/// Tracks the time up to which each schedule has been checked.
#[derive(Debug)]
pub struct Planner {
    /// When the previous daemon was last alive; only the first plan uses it.
    alive: Option<Timestamp>,
    seen: SortedMap<Arc<str>, (Cron, Timestamp)>,
}

impl Schedule {
    /// A schedule for all sessions, without a message.
    ///
    /// Errors: the problem with the pattern, or that no time ever matches it.
    pub fn new(name: &str, cron: &str) -> Result<Self, String> {
        let (name, cron) = (entry_name(name)?, read_cron(cron)?);
        Ok(Self { name, cron, message: None, workspace: None })
    }

    /// The first scheduled time after `after`.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let found = self.cron.find_next_occurrence(&zoned(after, zone)?, false).ok()?;
        u64::try_from(found.timestamp().as_millisecond()).ok().map(Timestamp::from_millis)
    }

    /// The last scheduled time after `after` and up to `now`; the two are at most [`MISSED_MAX`]
    /// apart.
    fn last(&self, after: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let later = |at: &Timestamp| self.next(*at, zone).filter(|next| next <= &now);
        std::iter::successors(later(&after), later).last()
    }
}

impl Entry for Schedule {
    fn read(keys: &mut impl Keys) -> Option<Self> {
        let Written { name, cron, message, workspace } = Written::read(keys);
        Some(Self { name: name?, cron: cron?, message, workspace })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn table() -> Table {
        Written::table()
    }
}

impl Due {
    /// Builds the event. Its id derives from the scheduled time, so a second one is a duplicate.
    pub fn event(&self, now: Timestamp) -> Event {
        let Schedule { name, message, workspace, .. } = &self.schedule;
        let mut payload = json!({ "name": name, "scheduled_at": self.at.to_string() });
        if let (Some(message), Some(fields)) = (message, payload.as_object_mut()) {
            fields.insert("message".to_owned(), json!(message));
        }
        let id = format!("timer:{name}:{}", self.at);
        Event { workspace: workspace.clone(), ..Event::own(FIRED, id, Severity::Info, payload, now) }
    }
}

impl Planner {
    /// Starts after a daemon that was last alive at `alive`; [`Timestamp::ZERO`] if there was none.
    pub fn new(alive: Timestamp) -> Self {
        Self { alive: (alive > Timestamp::ZERO).then_some(alive), seen: SortedMap::new() }
    }

    /// The times that are due at `now`, by the wall clock, which may have been set in either
    /// direction.
    ///
    /// Shape: a new schedule starts at `now`. In the first plan, it starts where the previous
    /// daemon ended. If the clock was set back by at most [`MISSED_MAX`], nothing is published
    /// twice; if by more, the schedule starts again at `now`.
    pub fn plan(&mut self, schedules: &[Schedule], now: Timestamp, zone: &TimeZone) -> Plan {
        let begins = self.alive.take().map_or(now, |alive| earlier(alive, UNPUBLISHED_MAX));
        let mut before = std::mem::take(&mut self.seen);
        let mut plan = Plan::default();
        for schedule in schedules {
            let known = before.remove(&schedule.name).filter(|(cron, _)| *cron == schedule.cron);
            let since = known.map_or(begins.min(now), |(_, since)| since);
            let since = if since.since(now) > MISSED_MAX { now } else { since };
            let after = since.max(earlier(now, MISSED_MAX));
            plan.due.extend(schedule.last(after, now, zone).map(|at| Due { schedule: schedule.clone(), at }));
            let next = schedule.next(since.max(now), zone);
            plan.next = [plan.next, next].into_iter().flatten().min();
            self.seen.insert(Arc::clone(&schedule.name), (schedule.cron.clone(), since.max(now)));
        }
        plan
    }
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_millis(at.as_millis().saturating_sub(duration_millis(by)))
}

fn zoned(at: Timestamp, zone: &TimeZone) -> Option<Zoned> {
    let millis = i64::try_from(at.as_millis()).ok()?;
    Some(jiff::Timestamp::from_millisecond(millis).ok()?.to_zoned(zone.clone()))
}

fn read_cron(text: &str) -> Result<Cron, String> {
    const FORM: &str = "five fields, minute, hour, day, month and weekday, and one for seconds before them if \
                        need be: \"0 9 * * 1-5\"";
    let cron: Cron = text.parse().map_err(|error| format!("{}; it has {FORM}", why(&error)))?;
    // This search also rejects a day that occurs in no year, such as the 30th of February.
    let epoch = zoned(Timestamp::ZERO, &TimeZone::UTC).ok_or("no time")?;
    match cron.find_next_occurrence(&epoch, true) {
        Ok(_) => Ok(cron),
        Err(_) => Err("that time never comes".to_owned()),
    }
}

/// The cause, without the library's names for its parts.
fn why(error: &CronError) -> String {
    match error {
        CronError::InvalidPattern(why)
        | CronError::IllegalCharacters(why)
        | CronError::ComponentError(why) => why.trim_end_matches('.').to_lowercase(),
        CronError::EmptyPattern => "it is empty".to_owned(),
        CronError::InvalidDate | CronError::InvalidTime | CronError::TimeSearchLimitExceeded => {
            "that time never comes".to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
