//! Batches incoming events, appends them to the journal, and returns a verdict for each.

use std::{ops::Range, sync::Arc};

use axum::http::StatusCode;
use engine::{event::codec::IdOrigin, records::Records};
use journal::{
    Appended, Appending, Level, Outcome,
    meter::{self, Meters},
};
use uuid::Uuid;

use crate::api::{
    App,
    caller::{Caller, NotFoundYet},
    error::ApiError,
    wire::{
        FieldError,
        event::ParsedEvent,
        publish::{NumberedError, ResultView, Results, Summary},
    },
};

/// Most refusals that a summary lists; further ones are only counted.
const SUMMARY_ERRORS_MAX: usize = 100;

/// Creates ids for the events of one body.
///
/// Shape: UUIDv7; the first is random, the others increment it, so that a body needs random bits
/// only once.
#[derive(Debug, Default)]
pub(crate) struct NewIds {
    last: Option<Uuid>,
}

impl NewIds {
    /// Mask of the bits after version and variant that are incremented.
    const COUNTED: u128 = (1 << 62) - 1;

    pub(crate) fn next_id(&mut self) -> String {
        let next = self.last.map_or_else(Uuid::now_v7, |last| {
            let counted = last.as_u128().wrapping_add(1) & Self::COUNTED;
            Uuid::from_u128(last.as_u128() & !Self::COUNTED | counted)
        });
        self.last = Some(next);
        next.to_string()
    }
}

/// Events of the next append.
#[derive(Debug, Default)]
pub(crate) struct Intake {
    records: Records,
    drafts: Vec<Draft>,
    ids: Ids,
}

/// The ids of a batch's events, in one string; one allocation per id would be wasted when only
/// counts are returned.
#[derive(Debug, Default)]
struct Ids(String);

/// An event before its append; its number in the body counts from 1.
#[derive(Debug)]
enum Draft {
    Taken { id: Range<usize>, session: Option<Arc<str>> },
    Refused { number: u64, error: FieldError },
}

/// Events with assigned journal positions.
#[derive(Debug)]
pub(crate) struct Begun {
    /// `None` when there is nothing to append.
    appending: Option<Appending>,
    batch: Batch,
}

/// A batch whose append is in progress.
#[derive(Debug)]
struct Batch {
    drafts: Vec<Draft>,
    ids: Ids,
    meters: Arc<Meters>,
    stopwatch: meter::Stopwatch,
}

impl Ids {
    fn add(&mut self, id: &str) -> Range<usize> {
        let start = self.0.len();
        self.0.push_str(id);
        start..self.0.len()
    }

    fn get(&self, id: Range<usize>) -> &str {
        self.0.get(id).expect("a range that `add` gave")
    }
}

impl Intake {
    /// Adds an event of `caller` to the batch, or records its refusal.
    ///
    /// Errors: the event was not added, because its caller has to be found first.
    pub(crate) fn take_from(
        &mut self,
        caller: &Caller,
        number: u64,
        mut event: Result<ParsedEvent<'_>, FieldError>,
    ) -> Result<(), NotFoundYet> {
        let session = match &mut event {
            Ok(event) => caller.complete(event)?,
            Err(_) => None,
        };
        self.add(number, event, session);
        Ok(())
    }

    /// Adds an event of an unknown publisher to the batch, or records its refusal.
    pub(crate) fn take(&mut self, number: u64, event: Result<ParsedEvent<'_>, FieldError>) {
        self.add(number, event, None);
    }

    fn add(&mut self, number: u64, event: Result<ParsedEvent<'_>, FieldError>, session: Option<Arc<str>>) {
        let taken = event.and_then(|event| {
            let (origin, event) = (event.id_origin(), event.as_event());
            let added = match origin {
                IdOrigin::Producer => self.records.event(&event),
                IdOrigin::Daemon => self.records.event_with_new_id(&event),
            };
            added.map_err(|error| FieldError::whole(error.to_string()))?;
            Ok(self.ids.add(event.id))
        });
        self.drafts.push(match taken {
            Ok(id) => Draft::Taken { id, session },
            Err(error) => Draft::Refused { number, error },
        });
    }

    /// Makes room for events of `bytes` bytes together.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.records.reserve(bytes);
    }

    /// Number of taken and refused events.
    pub(crate) fn len(&self) -> usize {
        self.drafts.len()
    }

    /// Appends the batch, waits for the configured durability, and empties the intake.
    ///
    /// Errors: the journal accepts no records; then no event of this batch is acknowledged.
    pub(crate) async fn commit(&mut self, app: &App) -> Result<Verdicts, ApiError> {
        let (records, batch) = self.drain(app);
        let appended = match records {
            None => None,
            Some(records) => {
                Some(app.publisher.publish(records).await.map_err(|error| ApiError::append(&error))?)
            }
        };
        Ok(batch.settle(appended.as_ref()))
    }

    /// Starts the append of the batch and empties the intake.
    ///
    /// Errors: the journal accepts no records; then no event of this batch is acknowledged.
    pub(crate) async fn begin(&mut self, app: &App) -> Result<Begun, ApiError> {
        let (records, batch) = self.drain(app);
        let appending = match records {
            None => None,
            Some(records) => {
                Some(app.publisher.begin_publish(records).await.map_err(|error| ApiError::append(&error))?)
            }
        };
        Ok(Begun { appending, batch })
    }

    /// The records to append, if any, and their events.
    fn drain(&mut self, app: &App) -> (Option<Records>, Batch) {
        let (meters, stopwatch) = (Arc::clone(&app.meters), app.meters.begin());
        let Self { records, drafts, ids } = std::mem::take(self);
        (Some(records).filter(|records| !records.is_empty()), Batch { drafts, ids, meters, stopwatch })
    }
}

impl Begun {
    /// Waits for the configured durability.
    ///
    /// Errors: the journal accepts no records; then no event of this batch is acknowledged.
    pub(crate) async fn done(self) -> Result<Verdicts, ApiError> {
        let appended = match self.appending {
            None => None,
            Some(appending) => Some(appending.done().await.map_err(|error| ApiError::append(&error))?),
        };
        Ok(self.batch.settle(appended.as_ref()))
    }
}

impl Batch {
    /// The verdicts for `appended`; `None` when there was nothing to append.
    fn settle(self, appended: Option<&Appended>) -> Verdicts {
        let Self { drafts, ids, meters, stopwatch } = self;
        if let Some(appended) = appended {
            let took = meters.since(stopwatch);
            meters.publish.observe(took);
            let (first, last) = (appended.first().map(|seq| seq.0), appended.last().map(|seq| seq.0));
            tracing::debug!(events = drafts.len(), first, last, took_us = took.as_micros(), "publish");
        }
        let level = appended.map(|appended| appended.level);
        let mut outcomes = appended.into_iter().flat_map(Appended::outcomes);
        let settle = |draft| match draft {
            Draft::Refused { number, error } => Some(Verdict::Refused { number, error }),
            Draft::Taken { id, session } => outcomes.next().map(|outcome| {
                let (seq, is_duplicate) = match outcome {
                    Outcome::Appended(seq) => (seq.0, false),
                    Outcome::Duplicate(seq) => (seq.0, true),
                };
                Verdict::Published { seq, id, is_duplicate, session }
            }),
        };
        Verdicts { verdicts: drafts.into_iter().filter_map(settle).collect(), ids, level }
    }
}

/// The verdicts of one batch, in its order.
#[derive(Debug)]
pub(crate) struct Verdicts {
    verdicts: Vec<Verdict>,
    ids: Ids,
    /// The durability of the published events; `None` when there are none.
    level: Option<Level>,
}

#[derive(Debug)]
enum Verdict {
    Published { seq: u64, id: Range<usize>, is_duplicate: bool, session: Option<Arc<str>> },
    Refused { number: u64, error: FieldError },
}

impl Verdicts {
    /// 200 when no event was refused, 400 when all were, else 207.
    pub(crate) fn status(&self) -> StatusCode {
        let is_refused = |verdict: &&Verdict| matches!(verdict, Verdict::Refused { .. });
        let refused = self.verdicts.iter().filter(is_refused).count();
        status((self.verdicts.len() - refused) as u64, refused as u64)
    }

    /// The error, if the request was a single event that was refused.
    pub(crate) fn into_lone_refusal(mut self) -> Result<Self, ApiError> {
        match self.verdicts.pop() {
            Some(Verdict::Refused { error, .. }) if self.verdicts.is_empty() => Err(ApiError::bad(error)),
            last => {
                self.verdicts.extend(last);
                Ok(self)
            }
        }
    }

    /// Converts to one result per event.
    pub(crate) fn into_results(self) -> Results {
        let ids = self.ids;
        let show = |verdict| match verdict {
            Verdict::Published { seq, id, is_duplicate, session } => {
                let id = Some(ids.get(id).to_owned());
                ResultView { seq: Some(seq), id, duplicate: is_duplicate, session, error: None }
            }
            Verdict::Refused { error, .. } => {
                ResultView { error: Some(error.into()), ..ResultView::default() }
            }
        };
        let durability = self.level.map(|level| durability_name(level).to_owned());
        Results { results: self.verdicts.into_iter().map(show).collect(), durability }
    }
}

impl Summary {
    /// 200 when no event was refused, 400 when all were, else 207.
    pub(crate) fn status(&self) -> StatusCode {
        status(self.accepted + self.duplicates, self.refused)
    }

    /// Counts the verdicts of one batch.
    pub(crate) fn add(&mut self, verdicts: Verdicts) {
        self.durability =
            verdicts.level.map(|level| durability_name(level).to_owned()).or(self.durability.take());
        for verdict in verdicts.verdicts {
            match verdict {
                Verdict::Published { is_duplicate: true, .. } => self.duplicates += 1,
                Verdict::Published { seq, .. } => {
                    self.accepted += 1;
                    self.first = self.first.or(Some(seq));
                    self.last = Some(seq);
                }
                Verdict::Refused { number, error } => {
                    self.refused += 1;
                    if self.errors.len() < SUMMARY_ERRORS_MAX {
                        self.errors.push(NumberedError { number, error: error.into() });
                    }
                }
            }
        }
    }
}

fn status(published: u64, refused: u64) -> StatusCode {
    match (published, refused) {
        (_, 0) => StatusCode::OK,
        (0, _) => StatusCode::BAD_REQUEST,
        (_, _) => StatusCode::MULTI_STATUS,
    }
}

/// Name of a durability level.
const fn durability_name(level: Level) -> &'static str {
    match level {
        Level::Synced => "sync",
        Level::Written => "interval",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_are_distinct_version_7_uuids() {
        let last = Uuid::from_u128(Uuid::now_v7().as_u128() | NewIds::COUNTED);
        for mut ids in [NewIds::default(), NewIds { last: Some(last) }] {
            let made: Vec<String> = (0..3).map(|_| ids.next_id()).collect();
            let parsed: std::collections::BTreeSet<Uuid> =
                made.iter().map(|id| id.parse().expect("a UUID")).collect();
            assert_eq!(parsed.len(), 3, "{made:?}");
            let is_7 = |id: &Uuid| id.get_version_num() == 7 && id.get_variant() == uuid::Variant::RFC4122;
            assert!(parsed.iter().all(is_7), "{made:?}");
        }
    }
}
