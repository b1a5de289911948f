//! `[[tests]]` of a subscriber: a timeline of steps, and the expected outcome.
//!
//! They are read here, kept with the subscriber, and run in simulated time. Units: every time
//! counts from the beginning of the test.

mod copies;
mod event;
mod expectation;
pub mod fixture;
mod step;

use engine::{budget::BudgetSettings, notification::SubscriberId, sorted::SortedSet};
use jiff::tz::TimeZone;
use journal::time::{Timestamp, zone::Zone};

use crate::config::{
    budget, patterns,
    raw::{Document, Parsed, Value},
    report::{Diagnostic, Place, shown},
    values,
};

pub(crate) use self::fixture::Fixtures;
pub use self::{
    event::{TestEvent, TestScope},
    expectation::{Check, Claim, Delivered, DirectiveWord, Ended, Expectation, Outcome, RegionAt},
    step::{Action, Step, TestExchange, TestSession, TestSessionState, TestSilence},
};

/// Most steps of a test.
const STEPS_MAX: usize = 100_000;
/// Monday, 2026-01-05, 09:00 UTC: the time at which a test begins that does not say another one.
pub const START: Timestamp = Timestamp::from_millis(1_767_603_600_000);

/// One test of a subscriber.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriberTest {
    /// Its name; unique in its file.
    pub name: String,
    /// When it begins.
    pub start: Timestamp,
    /// Its local clock.
    pub zone: Zone,
    /// The other subscribers in its engine, with their places.
    pub with: Vec<(SubscriberId, Place)>,
    /// `[budget]` in force; that of the configuration if `None`.
    pub budget: Option<BudgetSettings>,
    /// The steps, in order.
    pub at: Vec<Step>,
    /// What is expected, in order; empty if nothing is.
    pub expect: Vec<Expectation>,
    /// The position of its name.
    pub place: Place,
}

impl SubscriberTest {
    /// The events that it publishes, with their steps.
    pub fn events(&self) -> impl Iterator<Item = (&Step, &TestEvent)> {
        self.at.iter().filter_map(|step| match &step.action {
            Action::Publish(event) => Some((step, &**event)),
            Action::Exchange(_)
            | Action::Session(_)
            | Action::Silence(_)
            | Action::Settings(_)
            | Action::Respond(..)
            | Action::Expire(_)
            | Action::Restart => None,
        })
    }

    /// Whether it makes exchanges, so that `expect` is about what they release.
    pub fn has_exchanges(&self) -> bool {
        self.at.iter().any(|step| matches!(step.action, Action::Exchange(_)))
    }
}

/// Reads every `[[tests]]` of a file, but those that name a fixture with a mistake.
pub(crate) fn read(document: &Document<'_>, fixtures: &Fixtures) -> (Vec<SubscriberTest>, Vec<Diagnostic>) {
    let Some(value) = document.value("tests") else { return (Vec::new(), Vec::new()) };
    let Some(items) = value.items() else { return (Vec::new(), value.wrong_kind("an array of tables")) };
    let (mut tests, mut found, mut names) = (Vec::new(), Vec::new(), SortedSet::new());
    for item in items {
        match read_test(&item, fixtures) {
            Ok(Some(test)) if !names.insert(test.name.clone()) => {
                found.push(item.error(format!("there are two tests named `{}`", shown(&test.name))));
            }
            Ok(test) => tests.extend(test),
            Err(wrong) => found.extend(wrong),
        }
    }
    (tests, found)
}

/// The findings about the patterns of silences and of settings, in every `[[tests]]` of a file.
pub(crate) fn unknown_types(document: &Document<'_>, known_types: &[&str]) -> Vec<Diagnostic> {
    let tests = document.value("tests").and_then(|tests| tests.items()).unwrap_or_default();
    let steps = tests.iter().filter_map(|test| test.entry("at")?.items()).flatten();
    let found = steps.flat_map(|step| {
        let silence = step.entry("silence").and_then(|silence| silence.entry("types"));
        let mutes = step.entry("settings").and_then(|settings| settings.entry("mute"));
        let silenced = silence.map(|list| patterns::in_list(&list, known_types));
        let muted = mutes.map(|tables| patterns::in_tables(&tables, &["types"], known_types));
        silenced.into_iter().chain(muted).flatten()
    });
    found.collect()
}

fn read_test(value: &Value<'_>, fixtures: &Fixtures) -> Parsed<Option<SubscriberTest>> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let name = section.require("name", values::words);
    let (start, zone) = section.read("start", read_start).unwrap_or_else(|| (START, Zone::default()));
    let with = section.read("with", |value| values::list(value, read_other)).unwrap_or_default();
    let budget = section.read("budget", read_budget);
    let at = section.require("at", |value| values::list(value, |item| step::read(item, fixtures)));
    let at = at.map(|at| at.into_iter().collect::<Option<Vec<_>>>());
    let has_mistake = at == Some(None);
    let at = at.map(|at| at.into_iter().flatten().flatten().collect::<Vec<Step>>());
    let expect = section.require("expect", |value| values::list(value, expectation::read));
    if let Some(at) = &at {
        if !at.is_sorted_by_key(|step| step.at) {
            section.object("at", |value| value.error("the steps are not in the order of their times"));
        }
        if at.len() > STEPS_MAX {
            section.object("at", |value| value.error(format!("a test has at most {STEPS_MAX} steps")));
        }
    }
    let place = section.value("name").map_or_else(|| value.place(), Value::place);
    let found = section.finish();
    match (name, at, expect) {
        (Some(name), Some(at), Some(expect)) if found.is_empty() => {
            let test = SubscriberTest { name: name.to_owned(), start, zone, with, budget, at, expect, place };
            test.check().map(|()| Some(test).filter(|_| !has_mistake))
        }
        _ => Err(found),
    }
}

impl SubscriberTest {
    /// What a test without exchanges cannot claim, and one with exchanges.
    fn check(&self) -> Result<(), Vec<Diagnostic>> {
        let wrong: Vec<_> = self.expect.iter().flat_map(|one| one.misplaced(self.has_exchanges())).collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }
}

/// A time with its zone, such as `2026-03-28T23:30:00[Europe/Berlin]`, or with an offset or `Z`.
fn read_start(value: &Value<'_>) -> Parsed<(Timestamp, Zone)> {
    let text = match value.get().as_datetime() {
        Some(time) => time.to_string(),
        None => values::words(value)?.to_owned(),
    };
    let zoned = text.parse::<jiff::Zoned>();
    let zoned = zoned.or_else(|_| text.parse::<jiff::Timestamp>().map(|time| time.to_zoned(TimeZone::UTC)));
    let start = zoned.ok().and_then(|zoned| {
        let millis = u64::try_from(zoned.timestamp().as_millisecond()).ok()?;
        let start = Timestamp::from_millis(millis);
        Some((start, Zone::new(zoned.time_zone(), start)))
    });
    start.ok_or_else(|| {
        let message = format!("`{}` is not a time with its zone", shown(&text));
        let note =
            "a time is written like \"2026-03-28T23:30:00[Europe/Berlin]\" or \"2026-03-28T22:30:00Z\"";
        vec![value.error(message).with_note(note)]
    })
}

/// The keys of `[budget]` in `aside.toml`, with its defaults.
fn read_budget(value: &Value<'_>) -> Parsed<BudgetSettings> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let budget = budget::read(&mut section);
    let found = section.finish();
    if found.is_empty() { Ok(budget) } else { Err(found) }
}

fn read_other(value: &Value<'_>) -> Parsed<(SubscriberId, Place)> {
    Ok((SubscriberId::new(values::words(value)?), value.place()))
}
