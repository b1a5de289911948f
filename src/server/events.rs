//! Publishing events, and their outcome.

use std::time::Duration;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::timeout;
use utoipa::IntoParams;

use crate::{
    event::{EVENT_BYTES_MAX, EventRef, Seq, codec},
    journal::{ReadError, Record, RecordBuf},
    ledger::LedgerEntry,
    projection::{ProjectionError, View},
    records,
    server::{
        App,
        auth::{PeerPid, Route},
        caller::Caller,
        error::ApiError,
        extract::{EVENTS_BYTES_MAX, Params, Segment, header, read_body_up_to},
        history,
        intake::{Intake, NewIds},
        lines,
    },
    wire::{
        FieldError,
        body::{self, BodyKind, Items},
        cloudevents,
        error::ErrorBody,
        event::{self, Defaults, EventView, to_masked_json},
        history::{EventWithHistory, LedgerLine, OtherEvent, raw},
        publish::{Results, ResultsKind, Summary},
    },
};

/// Most events of one id that are found.
const SAME_ID_MAX: usize = 16;

/// How long an answer waits for the projection to reach the journal's end; it follows within
/// milliseconds, unless it is being rebuilt.
const PROJECTED_WAIT_MAX: Duration = Duration::from_secs(1);

/// The format of the answer.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct PublishParams {
    /// `full`: a verdict for each event. `summary`: counts, and the first refusals. The default is
    /// `full`; for an NDJSON body that is answered at its end it is `summary`.
    results: Option<ResultsKind>,
}

/// Publishes events.
///
/// The body is one event, an array of them, NDJSON, or CloudEvents 1.0 in structured, batch or
/// binary mode, according to its content type. Each event has its own verdict; (source, id) makes
/// publishing idempotent. An NDJSON body of any length is published as it arrives; with `Accept:
/// application/x-ndjson` each batch is acknowledged by a line as soon as it is published.
#[utoipa::path(
    post, path = "/v1/events", tag = "events",
    params(PublishParams),
    request_body(content(
        (EventView = "application/json"), (String = "application/x-ndjson"),
        (Object = "application/cloudevents+json"), (Vec<Object> = "application/cloudevents-batch+json"),
    )),
    responses(
        (status = 200, description = "All were published", content((Results = "application/json"), (Summary = "application/x-ndjson"))),
        (status = 207, description = "Some were refused", body = Results),
        (status = 400, description = "Nothing was published", body = ErrorBody),
        (status = 413, description = "Too large", body = ErrorBody),
        (status = 415, description = "Unknown content type", body = ErrorBody),
        (status = 503, description = "The journal accepts no records", body = ErrorBody),
    ),
)]
pub(crate) async fn publish(
    State(app): State<App>,
    Params(params): Params<PublishParams>,
    route: Route,
    peer: PeerPid,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let caller = Caller::new(&app, route, peer, &headers);
    let kind = BodyKind::of(header(&headers, header::CONTENT_TYPE.as_str()));
    let is_binary = headers.contains_key("ce-specversion")
        && !matches!(kind, Ok(BodyKind::CloudEvent | BodyKind::CloudEvents));
    let unknown = |error| ApiError::bad(error).with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE);
    // The content type of binary mode is that of its data.
    let kind = if is_binary { None } else { Some(kind.map_err(unknown)?) };
    if kind == Some(BodyKind::Lines) {
        return publish_lines(app, &params, (route, caller), &headers, body).await;
    }
    let body = read_body_up_to(EVENTS_BYTES_MAX, &app.rooms.publishing, body).await?;
    let mut intake = Intake::default();
    let read = || match kind {
        None => take_binary(&app, &mut intake, &headers, &body),
        Some(kind) => take_whole(&app, &mut intake, kind, (route, &caller), &body),
    };
    let is_lone = app.rooms.publishing.work(body.len(), read).await?;
    drop(body);
    let mut verdicts = intake.commit(&app).await?;
    if is_lone {
        verdicts = verdicts.into_lone_refusal()?;
    }
    let status = verdicts.status();
    Ok(match params.results {
        Some(ResultsKind::Summary) => {
            let mut summary = Summary::default();
            summary.add(verdicts);
            (status, Json(summary)).into_response()
        }
        Some(ResultsKind::Full) | None => (status, Json(verdicts.into_results())).into_response(),
    })
}

async fn publish_lines(
    app: App,
    params: &PublishParams,
    (route, caller): (Route, Caller),
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let accepts_lines = header(headers, header::ACCEPT.as_str())
        .is_some_and(|accept| accept.split(',').any(|kind| BodyKind::of(Some(kind)) == Ok(BodyKind::Lines)));
    if accepts_lines {
        let results = params.results.unwrap_or(ResultsKind::Full);
        return Ok(lines::publish_streaming(app, (route, caller), body, results));
    }
    if params.results == Some(ResultsKind::Full) {
        // Verdicts for each line of a body of any length would have to be held in memory until its
        // end.
        let message = "`full` for an NDJSON body needs `Accept: application/x-ndjson`";
        return Err(ApiError::bad(FieldError::new("results", message)));
    }
    lines::publish(app, (route, caller), body).await
}

/// Takes a CloudEvent in binary mode; returns that it was a single event.
fn take_binary(app: &App, intake: &mut Intake, headers: &HeaderMap, body: &[u8]) -> Result<bool, ApiError> {
    check_lone(body)?;
    let severities = app.config.severities();
    intake.take(1, cloudevents::binary(|name| header(headers, name), body, app.now(), &severities));
    Ok(true)
}

/// Takes a body that was read whole; returns whether it was a single event.
fn take_whole(
    app: &App,
    intake: &mut Intake,
    kind: BodyKind,
    (route, caller): (Route, &Caller),
    body: &[u8],
) -> Result<bool, ApiError> {
    let severities = app.config.severities();
    let is_cloud = matches!(kind, BodyKind::CloudEvent | BodyKind::CloudEvents);
    let defaults = Defaults::api(app.now(), route.of_events(), &severities);
    let mut ids = NewIds::default();
    let mut take = |number, text| {
        if is_cloud {
            intake.take(number, cloudevents::structured(text, app.now(), &severities));
        } else {
            intake.take_from(caller, number, event::parse(text, &defaults, &mut || ids.next_id()));
        }
    };
    let items = match kind {
        BodyKind::CloudEvents => Items::Many(body::many(body).map_err(ApiError::bad)?),
        BodyKind::CloudEvent => Items::One(body),
        BodyKind::Json | BodyKind::Lines => body::items(body).map_err(ApiError::bad)?,
    };
    match items {
        Items::One(text) => {
            check_lone(text)?;
            take(1, text);
            Ok(true)
        }
        Items::Many(items) => {
            (1..).zip(items).for_each(|(number, item)| take(number, item.get().as_bytes()));
            Ok(false)
        }
    }
}

fn check_lone(body: &[u8]) -> Result<(), ApiError> {
    if body.len() > EVENT_BYTES_MAX {
        let message = format!("an event has at most {EVENT_BYTES_MAX} bytes, this one has {}", body.len());
        return Err(ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message));
    }
    Ok(())
}

/// Selects one of several events with the same id.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventParams {
    /// The event's source; if absent, the newest event of that id, with the others in `others`.
    source: Option<String>,
}

/// Shows an event, by its id or its position, and its outcome.
#[utoipa::path(
    get, path = "/v1/events/{id}", tag = "events",
    params(("id" = String, Path, description = "The event's id, or its position in the journal"), EventParams),
    responses((status = 200, body = EventWithHistory), (status = 404, body = ErrorBody)),
)]
pub(crate) async fn get(
    State(app): State<App>,
    Segment(name): Segment,
    Params(params): Params<EventParams>,
) -> Result<Json<EventWithHistory>, ApiError> {
    let in_journal = find(&app, name.clone(), params.source.clone()).await;
    let Found { event, others } = match in_journal {
        Ok(Some(found)) => found,
        // The history may have an event whose segment was deleted or cannot be read.
        nothing => match look_up(&app, name.clone(), params.source).await {
            Ok(Some(event)) => Found { event, others: Vec::new() },
            Ok(None) | Err(_) => {
                return Err(nothing.err().unwrap_or_else(|| ApiError::not_found("event", &name)));
            }
        },
    };
    let (seq, event) = event;
    let (history, projected) = what_became_of(&app, seq).await;
    Ok(Json(EventWithHistory { event, history, others, projection: history::how_far(&app, projected) }))
}

/// An event, and the others of its id.
struct Found {
    event: (Seq, Box<RawValue>),
    others: Vec<OtherEvent>,
}

async fn look_up(
    app: &App,
    name: String,
    source: Option<String>,
) -> Result<Option<(Seq, Box<RawValue>)>, ProjectionError> {
    let look = move |view: &View<'_>| view.event_by_id(&name, source.as_deref());
    Ok(app.projection.read(look).await?.map(|(seq, event)| (seq, raw(event))))
}

/// The outcome of an event, and the progress of the projection. Waits until the projection has
/// reached the end that the journal had at the call, at most [`PROJECTED_WAIT_MAX`]. Empty while
/// the projection cannot be read.
async fn what_became_of(app: &App, seq: Seq) -> (Vec<LedgerLine>, Seq) {
    let (head, progress) = (*app.journal.written().borrow(), app.projection.progress());
    if app.projection.failed().is_none() {
        // The answer states its progress.
        timeout(PROJECTED_WAIT_MAX, progress.reach(head)).await.ok();
    }
    let read = app.projection.read(move |view| {
        let mut lines = view.history_of_event(seq)?;
        if lines.is_empty() && view.covers(seq) {
            lines.push(LedgerLine::of(&LedgerEntry::Unmatched { seq }));
        }
        Ok((lines, view.projected))
    });
    read.await.unwrap_or_else(|_| (Vec::new(), progress.projected()))
}

/// Searches the journal for the newest event of the id `name`, then for the one at this position.
///
/// A number may be a producer's id or a position; the id goes first, because an event can also be
/// found by its id.
async fn find(app: &App, name: String, source: Option<String>) -> Result<Option<Found>, ApiError> {
    let journal = app.journal.clone();
    let search = move || -> Result<Option<Found>, ReadError> {
        let is_wanted =
            |found: &RecordBuf| as_event(&found.as_record()).is_some_and(|event| event.id == name);
        let mut all = journal.find_named(records::name_of_id(&name), SAME_ID_MAX, is_wanted)?;
        let source_of = |found: &RecordBuf| as_event(&found.as_record()).map(|event| event.source.to_owned());
        let of_source = |found: &RecordBuf| source.is_none() || source_of(found) == source;
        let place = all.iter().position(of_source);
        let event = match place.map(|place| all.remove(place)) {
            None if source.is_none() => {
                let position = name.parse().ok().map(|seq| journal.read_at(Seq(seq))).transpose()?;
                position.flatten().and_then(|found| shown(&found.as_record()))
            }
            found => found.and_then(|found| shown(&found.as_record())),
        };
        let others =
            all.iter().filter_map(|found| Some(OtherEvent { source: source_of(found)?, seq: found.seq.0 }));
        Ok(event.map(|event| Found { event, others: others.collect() }))
    };
    let searched = tokio::task::spawn_blocking(search).await;
    let failed = |error: &dyn std::error::Error| {
        let message = format!("the journal cannot be read: {error}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
    };
    searched.map_err(|error| failed(&error))?.map_err(|error| failed(&error))
}

fn shown(found: &Record<'_>) -> Option<(Seq, Box<RawValue>)> {
    as_event(found).map(|event| (found.seq, raw(to_masked_json(&event, Some(found.seq)))))
}

fn as_event<'a>(found: &Record<'a>) -> Option<EventRef<'a>> {
    (found.kind.0 == records::EVENT).then(|| codec::decode(found.body).ok()).flatten()
}
