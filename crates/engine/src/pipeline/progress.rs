//! How far an event came in a pipeline, read from what the stages keep: for an explanation.

use std::sync::Arc;

use journal::time::{Timestamp, zone::Zone};

use super::{
    Pipeline,
    condition::Comparison,
    rule::{BatchMode, Subscriber},
    timing,
};
use crate::event::{Event, FieldPath, Pattern, Seq, Severity};

/// What the stages did with an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// The severity that it has for this subscriber, if it is another one than its own.
    pub severity: Option<Severity>,
    /// The comparisons of `where`, those that decide first.
    pub comparisons: Vec<Comparison>,
    /// The key by which it is compared with others, as text; `None` without a dedupe window.
    pub dedupe_key: Option<String>,
    /// Its count; `None` without a threshold.
    pub count: Option<Count>,
    /// The open batch with its row.
    pub batch: Option<Waiting>,
    /// When its absence is reported, if no other event of its key comes before.
    pub missed_at: Option<Timestamp>,
}

/// The state of a threshold after an event.
#[derive(Debug, Clone, PartialEq)]
pub struct Count {
    /// The sum or the number with this event.
    pub total: f64,
    /// The lowest level above it; `None` if it is above all.
    pub next: Option<f64>,
}

/// An open batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// The values of `group_by`, joined; empty without it.
    pub group: String,
    /// Number of its rows.
    pub rows: usize,
    /// When it closes at the latest.
    pub ends_at: Timestamp,
    /// What keeps it open.
    pub by: OpenBy,
}

impl_as_str!(OpenBy);

/// What keeps a batch open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum OpenBy {
    /// Its window.
    Window,
    /// The times of its digest.
    Digest,
    /// Quiet hours.
    Quiet,
}

impl Pipeline {
    /// What the stages did with the event `seq` at `now`; read it before anything else happens.
    pub fn progress(&mut self, seq: Seq, event: &Arc<Event>, zone: &Zone, now: Timestamp) -> Progress {
        let rule = Arc::clone(&self.rule);
        let (seen, _) = rule.as_seen(event);
        let count = rule.threshold.as_ref().and_then(|threshold| {
            let key = self.key.state(&threshold.by, rule.wake.trust_in(&seen), &seen);
            let total = self.thresholds.total(key)?;
            Some(Count { total, next: threshold.at.iter().copied().find(|level| *level > total) })
        });
        let dedupe_key = rule.dedupe.as_ref().map(|dedupe| match &seen.dedupe_key {
            Some(own) => own.to_string(),
            None => joined(&dedupe.key, &seen, ":"),
        });
        Progress {
            severity: Some(seen.severity).filter(|severity| *severity != event.severity),
            comparisons: rule.condition.as_ref().map(|own| own.compare(&seen)).unwrap_or_default(),
            dedupe_key,
            count,
            batch: self.waiting(seq, &rule, zone, now),
            missed_at: rule.absence.as_ref().and_then(|absence| self.absences.missed_at(absence, seq)),
        }
    }

    /// The open batch with the row of an event.
    pub fn waiting(&self, seq: Seq, rule: &Subscriber, zone: &Zone, now: Timestamp) -> Option<Waiting> {
        let (row, rows, ends_at) = self.batcher.find(seq)?;
        let group = joined(&rule.batching.group_by, &row.event, ", ");
        let by = match &rule.batching.mode {
            BatchMode::Digest(_) => OpenBy::Digest,
            BatchMode::Window | BatchMode::Debounce { .. } if timing(rule, zone).is_quiet(now) => {
                OpenBy::Quiet
            }
            BatchMode::Window | BatchMode::Debounce { .. } => OpenBy::Window,
        };
        Some(Waiting { group, rows, ends_at, by })
    }

    /// The types of the events that end what the event `by` inhibits, and until when it inhibits at the
    /// latest.
    pub fn inhibition(&self, by: Seq) -> Option<(&[Pattern], Timestamp)> {
        let (number, found) = self.inhibitions.find_by(by)?;
        Some((self.rule.inhibit.get(number).map_or(&[][..], |rule| &rule.until), found.until))
    }
}

fn joined(fields: &[FieldPath], event: &Event, between: &str) -> String {
    fields.iter().map(|field| field.text(event)).collect::<Vec<_>>().join(between)
}
