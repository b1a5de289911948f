//! The outputs of a pipeline, among them reports of faults in the parts that an author writes,
//! without repetition.
//!
//! A faulty part fails for every event, and the report is itself an event that may match the
//! subscriber that failed. So a place is reported once, and again only after it has succeeded in
//! between, at most once per [`REPORT_INTERVAL`].

use std::{collections::VecDeque, mem::discriminant, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, Scope, Seq},
    hold::Hold,
    ledger::Reason,
    notification::{Notification, NotificationId, Resolution, SubscriberId, TemplateNotice, Unseen},
    pipeline::sandbox::account::{ENDLESS, OVER_BUDGET},
    sorted::SortedMap,
};

/// An outcome of events, or a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PipelineOutput {
    /// What was missed has come: withdraw its conditions.
    Resolved(Resolution),
    /// An event ended that nobody gets: end what is older about its state.
    Unseen(Unseen),
    /// A batch closed and was rendered.
    Notification(Arc<Notification>),
    /// The events of the next notification, and what holds it from its beginning.
    Events {
        /// The notification.
        notification: NotificationId,
        /// The events of its rows.
        events: RowEvents,
        /// What suppresses it.
        hold: Option<Box<Hold>>,
    },
    /// What is pending is held, or no longer.
    Holds(HoldChange),
    /// The template of the preceding notification has a notice for the user.
    Said {
        /// The notification.
        notification: Arc<Notification>,
        /// The number of the notice, from 1.
        number: usize,
        /// The notice.
        word: TemplateNotice,
    },
    /// The event is a row of an open batch. An event whose batch closes at once is only in the
    /// notification.
    Batched {
        /// The event.
        seq: Seq,
    },
    /// The event has no row and will get none.
    Ended {
        /// The event.
        seq: Seq,
        /// The reason.
        reason: Reason,
    },
    /// A part that the author wrote failed; publish it as `subscriber.failed`. A place is reported
    /// once, and again only after it succeeded, at most once a minute.
    Failed(Failure),
}

/// The events of a notification's rows; two of them are equal if their ids are.
#[derive(Debug, Clone)]
pub struct RowEvents(pub VecDeque<Arc<Event>>);

impl PartialEq for RowEvents {
    fn eq(&self, other: &Self) -> bool {
        self.0.iter().map(|event| &event.id).eq(other.0.iter().map(|event| &event.id))
    }
}

impl Eq for RowEvents {}

/// What holds the pending notifications of a subscriber, or no longer does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldChange {
    /// Quiet hours have begun.
    QuietBegan {
        /// When.
        since: Timestamp,
        /// When they end.
        until: Timestamp,
    },
    /// Quiet hours have ended.
    QuietEnded,
    /// An event has begun to inhibit; so many rows of open batches were suppressed.
    SuppressionBegan {
        /// The sessions in which it inhibits.
        scope: Scope,
        /// Number of rows.
        rows: usize,
    },
    /// These events no longer inhibit.
    InhibitionsEnded(Vec<Seq>),
}

/// Shortest time between two reports of a place that fails intermittently.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Most reported places of one subscriber: a template seldom has more lines that fail. Further
/// places are not reported until the rules change.
const PLACES_MAX: usize = 16;

/// A failure of a part of a subscriber. If its template or `[output]` failed, the generic table
/// shows the events; if its `sentence` failed, the first values of the content are shown; if its
/// `where` failed, the event is filtered out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What failed.
    pub part: FailedPart,
    /// The line in it, from 1, if known.
    pub line: Option<usize>,
    /// What is wrong, as a lowercase fragment.
    pub message: String,
}

impl Failure {
    /// Whether a message of a failure says that the text or condition ran for too long: each further
    /// run takes as long.
    pub fn is_endless(message: &str) -> bool {
        [ENDLESS, OVER_BUDGET].iter().any(|begin| message.contains(begin))
    }
}

/// A part of a subscriber that its author writes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailedPart {
    /// The `where` of its file.
    Condition,
    /// `severity_when` of its file.
    SeverityWhen,
    /// `close_when` of its file.
    CloseWhen,
    /// `open_when` of its file.
    OpenWhen,
    /// `sum` in the `[threshold]` of its file.
    Threshold,
    /// The template of this name.
    Template(Arc<str>),
    /// `one` or `table` in the `[output]` of its file.
    Output,
    /// `many` in the `[output]` of its file.
    Many,
    /// `sentence` in the `[output]` of its file.
    Sentence,
}

impl FailedPart {
    /// The name of the file or template to correct, for a subscriber `id`.
    pub fn file(&self, id: &SubscriberId) -> String {
        match self {
            Self::Condition => format!("where of {id}"),
            Self::SeverityWhen => format!("severity_when of {id}"),
            Self::CloseWhen => format!("close_when of {id}"),
            Self::OpenWhen => format!("open_when of {id}"),
            Self::Threshold => format!("threshold of {id}"),
            Self::Template(name) => format!("templates/{name}"),
            Self::Output => format!("output of {id}"),
            Self::Many => format!("many of {id}"),
            Self::Sentence => format!("sentence of {id}"),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Reported {
    at: Timestamp,
    has_succeeded: bool,
}

/// How a part of a subscriber failed under its current rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failing {
    /// Number of failures.
    pub times: u64,
    /// Time of the last failure.
    pub last_at: Timestamp,
    /// The line of the last failure, from 1, if known.
    pub line: Option<usize>,
    /// The message of the last failure, as a lowercase fragment.
    pub message: String,
}

/// The reported places, and the failed parts.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Failures {
    places: SortedMap<(FailedPart, Option<usize>), Reported>,
    failing: SortedMap<FailedPart, Failing>,
}

impl Failures {
    /// The failed parts, each once.
    pub(crate) fn failing(&self) -> impl Iterator<Item = &(FailedPart, Failing)> {
        self.failing.iter()
    }

    /// Counts `failure`; returns whether to report it, and then notes it as reported.
    pub(crate) fn should_report(&mut self, failure: &Failure, now: Timestamp) -> bool {
        let times = self.failing.get(&failure.part).map_or(0, |failing| failing.times) + 1;
        let Failure { part, line, message } = failure.clone();
        self.failing.insert(part, Failing { times, last_at: now, line, message });
        let is_full = self.places.len() >= PLACES_MAX;
        let place = (failure.part.clone(), failure.line);
        match self.places.get_mut(&place) {
            Some(reported) => {
                let is_new = reported.has_succeeded && now.since(reported.at) >= REPORT_INTERVAL;
                if is_new {
                    *reported = Reported { at: now, has_succeeded: false };
                }
                is_new
            }
            None if is_full => false,
            None => {
                self.places.insert(place, Reported { at: now, has_succeeded: false });
                true
            }
        }
    }

    /// Notes that a part succeeded. A subscriber has one template at a time, so the template's name
    /// is ignored.
    pub(crate) fn succeeded(&mut self, part: &FailedPart) {
        for ((reported_part, _), reported) in self.places.iter_mut() {
            reported.has_succeeded |= discriminant(reported_part) == discriminant(part);
        }
    }

    /// Removes everything, because the parts were replaced.
    pub(crate) fn clear(&mut self) {
        self.places.clear();
        self.failing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(line: usize) -> Failure {
        Failure { part: FailedPart::Template("a".into()), line: Some(line), message: "bad".into() }
    }

    #[test]
    fn a_failure_is_reported_again_only_after_success() {
        let mut failures = Failures::default();
        let mut ask = |line, ms, succeeds| {
            let is_reported = failures.should_report(&failure(line), Timestamp::from_millis(ms));
            if succeeds {
                failures.succeeded(&FailedPart::Template("a".into()));
            }
            is_reported
        };
        for (line, ms, succeeds, expected) in [
            (1, 0, false, true),
            (1, 1, false, false),
            (2, 2, false, true),
            (1, 90_000, true, false),
            (1, 90_001, false, true),
            (1, 90_002, true, false),
            (1, 90_003, false, false),
            (1, 150_001, false, true),
        ] {
            assert_eq!(ask(line, ms, succeeds), expected, "line {line} at {ms}");
        }
    }

    #[test]
    fn every_failure_is_counted_until_new_rules_come() {
        let mut failures = Failures::default();
        for at in 1..=3 {
            failures.should_report(&failure(at), Timestamp::from_millis(at as u64));
            failures.succeeded(&FailedPart::Template("a".into()));
        }
        let shown: Vec<_> = failures.failing().map(|(_, failing)| (failing.times, failing.line)).collect();
        assert_eq!(shown, [(3, Some(3))]);
        failures.clear();
        assert_eq!(failures.failing().count(), 0);
    }

    #[test]
    fn success_of_another_part_clears_no_failure() {
        let mut failures = Failures::default();
        assert!(failures.should_report(&failure(1), Timestamp::from_millis(0)));
        failures.succeeded(&FailedPart::Condition);
        assert!(!failures.should_report(&failure(1), Timestamp::from_millis(100_000)));
    }

    #[test]
    fn the_number_of_places_is_bounded() {
        let mut failures = Failures::default();
        let now = Timestamp::from_millis(0);
        let reported = (0..100).filter(|line| failures.should_report(&failure(*line), now)).count();
        assert_eq!(reported, PLACES_MAX);
    }
}
