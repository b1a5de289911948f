//! Appends batches of drafts to the journal, and answers with a verdict for each. The sessions of the
//! process that publishes them are found only for a draft that depends on them.

use std::sync::{Arc, OnceLock};

use axum::http::{HeaderMap, StatusCode};
use engine::{
    draft::{CallerFacts, Intake, TakenBatch, Verdict, Verdicts},
    records::Records,
    request::FieldError,
};
use journal::{
    Appended, Appending, Level, Outcome,
    meter::{self, Meters},
};
use uuid::Uuid;

use crate::{
    api::{
        App,
        error::ApiError,
        extract,
        requester::Requester,
        wire::event::{NumberedError, ResultView, Results, SCOPE_HEADER, SCOPE_OF_CALLER, Summary},
    },
    harness::kind::{Evidence, Native},
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

/// A batch whose records have positions and are on their way to the disk.
#[derive(Debug)]
pub(crate) struct Begun {
    /// `None` when there is nothing to append.
    appending: Option<Appending>,
    batch: Timed,
}

/// A batch whose append is in progress.
#[derive(Debug)]
struct Timed {
    batch: TakenBatch,
    meters: Arc<Meters>,
    stopwatch: meter::Stopwatch,
}

/// Appends the batch of `intake`, waits for the configured durability, and empties the intake.
///
/// Errors: the journal accepts no records; then no event of this batch is acknowledged.
pub(crate) async fn commit(intake: &mut Intake, app: &App) -> Result<Verdicts, ApiError> {
    let (records, batch) = drain(intake, app);
    let appended = match records {
        None => None,
        Some(records) => Some(app.publisher.publish(records).await?),
    };
    Ok(batch.settle(appended.as_ref()))
}

/// The records to append, if any, and their drafts.
fn drain(intake: &mut Intake, app: &App) -> (Option<Records>, Timed) {
    let (meters, stopwatch) = (Arc::clone(&app.meters), app.meters.begin());
    let (records, batch) = intake.drain();
    (records, Timed { batch, meters, stopwatch })
}

impl Begun {
    /// Starts the append of the batch of `intake` and empties the intake.
    ///
    /// Errors: the journal accepts no records; then no event of this batch is acknowledged.
    pub(crate) async fn begin(intake: &mut Intake, app: &App) -> Result<Self, ApiError> {
        let (records, batch) = drain(intake, app);
        let appending = match records {
            None => None,
            Some(records) => Some(app.publisher.begin_publish(records).await?),
        };
        Ok(Self { appending, batch })
    }

    /// Waits for the configured durability.
    ///
    /// Errors: the journal accepts no records; then no event of this batch is acknowledged.
    pub(crate) async fn done(self) -> Result<Verdicts, ApiError> {
        let appended = match self.appending {
            None => None,
            Some(appending) => Some(appending.done().await?),
        };
        Ok(self.batch.settle(appended.as_ref()))
    }
}

impl Timed {
    /// The verdicts for `appended`; `None` when there was nothing to append.
    fn settle(self, appended: Option<&Appended>) -> Verdicts {
        let Self { batch, meters, stopwatch } = self;
        if let Some(appended) = appended {
            let took = meters.since(stopwatch);
            meters.publish.observe(took);
            let (first, last) = (appended.first().map(|seq| seq.0), appended.last().map(|seq| seq.0));
            tracing::debug!(events = batch.len(), first, last, took_us = took.as_micros(), "publish");
        }
        batch.settle(appended)
    }
}

impl Results {
    /// One result for each verdict.
    pub(crate) fn of(verdicts: Verdicts) -> Self {
        let durability = verdicts.level().map(|level| durability_name(level).to_owned());
        let results = verdicts.into_each(|verdict| match verdict {
            Verdict::Published { outcome, id, session } => {
                let (seq, duplicate) = match outcome {
                    Outcome::Appended(seq) => (seq.0, false),
                    Outcome::Duplicate(seq) => (seq.0, true),
                };
                ResultView { seq: Some(seq), id: Some(id.to_owned()), duplicate, session, error: None }
            }
            Verdict::Refused { error } => ResultView { error: Some(error.into()), ..ResultView::default() },
        });
        Self { results, durability }
    }
}

impl Summary {
    /// 200 when no event was refused, 400 when all were, else 207.
    pub(crate) fn status(&self) -> StatusCode {
        status((self.accepted + self.duplicates, self.refused))
    }

    /// Counts the verdicts of one batch.
    pub(crate) fn add(&mut self, verdicts: Verdicts) {
        self.durability =
            verdicts.level().map(|level| durability_name(level).to_owned()).or(self.durability.take());
        let counts = verdicts.into_counts(SUMMARY_ERRORS_MAX.saturating_sub(self.errors.len()));
        self.accepted += counts.accepted;
        self.duplicates += counts.duplicates;
        self.refused += counts.refused;
        self.first = self.first.or(counts.first.map(|seq| seq.0));
        self.last = counts.last.map(|seq| seq.0).or(self.last);
        let numbered = |(number, error): (u64, FieldError)| NumberedError { number, error: error.into() };
        self.errors.extend(counts.errors.into_iter().map(numbered));
    }
}

/// 200 when no event was refused, 400 when all were, else 207; for numbers of published and refused
/// events.
pub(crate) fn status(counts: (u64, u64)) -> StatusCode {
    match counts {
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

/// The process that publishes events.
pub(crate) struct Caller {
    app: App,
    requester: Requester,
    wants_scope: bool,
    facts: OnceLock<CallerFacts>,
}

impl Caller {
    pub(crate) fn new(app: &App, requester: Requester, headers: &HeaderMap) -> Self {
        let wants_scope = extract::header(headers, SCOPE_HEADER) == Some(SCOPE_OF_CALLER);
        Self { app: app.clone(), requester, wants_scope, facts: OnceLock::new() }
    }

    /// Finds the sessions of the publisher.
    ///
    /// Errors: the daemon is stopping.
    pub(crate) async fn find(&self) -> Result<(), ApiError> {
        let found = self.requester.find(&self.app).await?;
        let is_of_ends = |native: &Native| native.evidence == Evidence::End;
        let routes = self.app.registry.wake_routes();
        let session = found.client().and_then(|client| client.sessions.first());
        let folder = session.and_then(|session| routes.client_folder(session));
        let reports_ends = folder.is_some_and(|folder| folder.kind.native.iter().any(is_of_ends));
        self.facts.get_or_init(|| CallerFacts {
            sessions: found.sessions().to_vec(),
            reports_ends,
            wants_scope: self.wants_scope,
        });
        Ok(())
    }

    /// What is known of it; `None` before [`Caller::find`].
    pub(crate) fn facts(&self) -> Option<&CallerFacts> {
        self.facts.get()
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
