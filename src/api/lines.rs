//! Publishes NDJSON as it arrives: complete lines are appended and acknowledged without waiting for
//! further ones.

use std::{convert::Infallible, time::Duration};

use axum::{
    Json,
    body::{Body, BodyDataStream, HttpBody},
    http::header,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use futures_util::FutureExt;
use serde::Serialize;
use tokio_stream::StreamExt;

use crate::{
    api::{
        App,
        auth::Route,
        error::ApiError,
        extract::{broken_off, lazy_timeout, too_slow},
        intake::{Begun, Caller, NewIds, commit},
        room::Reservation,
        wire::event::{Results, ResultsKind, Summary},
    },
    daemon::tasks::produced,
};
use engine::draft::{CallerNeeded, Defaults, Intake, LineSplitter, Verdicts};

/// Most lines of one batch. Twice as many would be 5 % cheaper, but an exchange waits behind whole
/// batches.
const BATCH_LINES_MAX: usize = 500;
/// Lines after which a batch ends if an exchange is waiting. Always using this length costs a tenth
/// more.
const BATCH_LINES_AWAITED: usize = 250;
/// Most bytes of one batch.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Bytes after which other tasks run: lines that are as long as an event may be take some
/// milliseconds a megabyte.
const PAUSE_BYTES: usize = 64 * 1024;
/// Memory reserved for lines: the batch being published and the next one.
const ROOM_BYTES: usize = 2 * BATCH_BYTES_MAX;
/// How long a client may send nothing before its body counts as aborted.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Publishes the lines and answers with one summary at the end.
///
/// Errors: the journal accepts no records, or the body was aborted. Earlier batches stay published;
/// sending them again is harmless if their events have ids.
pub(crate) async fn publish(
    app: App,
    (route, caller): (Route, Caller),
    body: Body,
) -> Result<Response, ApiError> {
    let mut summary = Summary::default();
    let mut lines = Lines::new(app, route, caller, body);
    // The disk works on one batch while the next is read.
    let mut ahead: Option<Begun> = None;
    while lines.gather().await? {
        let Lines { app, intake, is_ended, .. } = &mut lines;
        let before = if *is_ended { ahead.take() } else { ahead.replace(Begun::begin(intake, app).await?) };
        if let Some(before) = before {
            summary.add(before.done().await?);
        }
        if *is_ended {
            summary.add(commit(intake, app).await?);
        }
    }
    if let Some(last) = ahead {
        summary.add(last.done().await?);
    }
    Ok((summary.status(), Json(summary)).into_response())
}

/// Publishes the lines and answers with one line of JSON per batch, as soon as it is published.
///
/// Errors: none; an error is the last line.
pub(crate) fn publish_streaming(
    app: App,
    (route, caller): (Route, Caller),
    body: Body,
    results: ResultsKind,
) -> Response {
    let mut lines = Lines::new(app, route, caller, body);
    let reports = produced(1, move |reports| async move {
        while let Some(batch) = lines.next_batch().await {
            let is_last = batch.is_err();
            let report = match batch {
                Ok(verdicts) => report(verdicts, results),
                Err(error) => json_line(&error.into_body()),
            };
            if reports.send(report).await.is_err() || is_last {
                return;
            }
        }
    });
    let body = Body::from_stream(reports.map_while(Result::ok).map(Ok::<_, Infallible>));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}

fn report(verdicts: Verdicts, results: ResultsKind) -> Bytes {
    match results {
        ResultsKind::Full => json_line(&Results::of(verdicts)),
        ResultsKind::Summary => {
            let mut summary = Summary::default();
            summary.add(verdicts);
            json_line(&summary)
        }
    }
}

fn json_line(value: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(value).expect("text and numbers always serialize");
    line.push(b'\n');
    line.into()
}

/// The state of a body that is being published.
struct Lines {
    app: App,
    route: Route,
    caller: Caller,
    body: BodyDataStream,
    splitter: LineSplitter,
    intake: Intake,
    ids: NewIds,
    /// Bytes of the lines in the intake.
    bytes: usize,
    /// Memory reserved for the current lines; taken with the first of them.
    room: Option<Reservation>,
    is_ended: bool,
}

impl Lines {
    fn new(app: App, route: Route, caller: Caller, body: Body) -> Self {
        let body = body.into_data_stream();
        Self {
            app,
            route,
            caller,
            body,
            splitter: LineSplitter::default(),
            intake: Intake::default(),
            ids: NewIds::default(),
            bytes: 0,
            room: None,
            is_ended: false,
        }
    }

    /// Publishes the received lines, at most one batch, and waits for it; `None` at the end of the
    /// body.
    async fn next_batch(&mut self) -> Option<Result<Verdicts, ApiError>> {
        match self.gather().await {
            Ok(true) => Some(commit(&mut self.intake, &self.app).await),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Adds the received lines, at most one batch, to the intake; returns false at the end of the
    /// body.
    async fn gather(&mut self) -> Result<bool, ApiError> {
        self.bytes = 0;
        loop {
            match self.take_lines() {
                Taken::Pause => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Taken::CallerNeeded => {
                    self.caller.find().await?;
                    continue;
                }
                Taken::Batch => return Ok(true),
                Taken::All if self.is_ended => return Ok(!self.intake.is_empty()),
                Taken::All => {}
            }
            let Some(arrived) = self.arrived().await? else { return Ok(true) };
            match arrived.transpose().map_err(|error| broken_off(&error))? {
                Some(chunk) => {
                    if self.room.is_none() {
                        self.room = Some(self.app.rooms.publishing.take(ROOM_BYTES).await?);
                    }
                    self.splitter.push(&chunk);
                }
                None => self.is_ended = true,
            }
        }
    }

    /// The next item of the body. Does not wait if the intake has events: `None` then means that
    /// nothing has arrived yet.
    ///
    /// Errors: the client has sent nothing for [`SILENCE_MAX`], or the daemon stops.
    async fn arrived(&mut self) -> Result<Option<Option<Result<Bytes, axum::Error>>>, ApiError> {
        if self.intake.is_empty() {
            self.room = None;
            // A body without an end must not keep the daemon from stopping.
            return tokio::select! {
                arrived = lazy_timeout(SILENCE_MAX, self.body.next()) => arrived.map(Some).ok_or_else(too_slow),
                () = self.app.stopped() => Err(ApiError::stopping()),
            };
        }
        if let Some(arrived) = self.body.next().now_or_never() {
            return Ok(Some(arrived));
        }
        // The task that runs this handler also reads the connection, so it must yield to see new
        // input.
        tokio::task::yield_now().await;
        Ok(self.body.next().now_or_never())
    }

    /// Takes complete lines, and returns why it stopped.
    fn take_lines(&mut self) -> Taken {
        let config = self.app.config.state();
        let defaults = Defaults::api(self.app.now(), self.route.of_events(), &config.severities);
        let mut new_id = || self.ids.next_id();
        let pause = self.bytes + PAUSE_BYTES;
        if self.intake.is_empty() && self.room.is_some() {
            // A record takes up about as much as its line. Growing step by step would copy it twice.
            let to_come = self.body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
            let bytes = self.splitter.bytes_left().saturating_add(to_come.unwrap_or_default());
            self.intake.reserve(bytes.min(BATCH_BYTES_MAX));
        }
        while !is_full(&self.intake, self.bytes, &self.app) {
            let Some((draft, bytes)) = self.splitter.next_draft(self.is_ended, &defaults, &mut new_id) else {
                return Taken::All;
            };
            if self.intake.take(draft, self.caller.facts()) == Err(CallerNeeded) {
                self.splitter.repeat();
                return Taken::CallerNeeded;
            }
            self.bytes += bytes;
            if self.bytes >= pause {
                return Taken::Pause;
            }
        }
        Taken::Batch
    }
}

/// Why no more lines were taken.
enum Taken {
    /// There are no more complete ones.
    All,
    /// The batch ends here.
    Batch,
    /// Other tasks have to run first.
    Pause,
    /// The caller has to be found first.
    CallerNeeded,
}

/// Whether a batch of these lines ends here.
fn is_full(intake: &Intake, bytes: usize, app: &App) -> bool {
    let lines = intake.len();
    let is_long = lines >= BATCH_LINES_MAX || lines >= BATCH_LINES_AWAITED && app.registry.is_awaited();
    is_long || bytes >= BATCH_BYTES_MAX
}
