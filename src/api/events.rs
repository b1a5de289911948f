//! Publishing events, and their outcome.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
};
use engine::{
    draft::{BodyError, BodyKind, CallerNeeded, Defaults, Drafts, Headers, Intake},
    event::{Event, EventRef, Seq, codec},
    ledger::LedgerEntry,
    records,
    request::FieldError,
    session::Readable,
};
use journal::{ReadError, Record, RecordBuf};
use serde::Deserialize;
use serde_json::value::RawValue;

#[cfg(test)]
use crate::api::wire::{ErrorBody, event::EventView};

use crate::{
    api::{
        App,
        actor::Actor,
        auth::Route,
        error::ApiError,
        extract::{EVENTS_BYTES_MAX, Params, Segment, header, read_body_up_to},
        history,
        intake::{Caller, NewIds, commit, status},
        lines,
        requester::Requester,
        wire::{
            event::{Results, ResultsKind, Summary, to_masked_json},
            history::{EventWithHistory, LedgerLine, OtherEvent, raw},
        },
    },
    daemon::tasks::run_blocking,
    history::{Looked, ProjectionError, View},
};

/// Most events of one id that are found.
const SAME_ID_MAX: usize = 16;

/// The format of the answer.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
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
#[cfg_attr(test, utoipa::path(
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
))]
pub(crate) async fn publish(
    State(app): State<App>,
    Params(params): Params<PublishParams>,
    route: Route,
    requester: Requester,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let caller = Caller::new(&app, requester, &headers);
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
    let mut intake;
    let is_lone = loop {
        intake = Intake::default();
        let read = || take_whole(&app, &mut intake, (kind, &headers), (route, &caller), &body);
        match app.rooms.publishing.work(body.len(), read).await? {
            Ok(is_lone) => break is_lone,
            Err(CallerNeeded) => caller.find().await?,
        }
    };
    drop(body);
    let mut verdicts = commit(&mut intake, &app).await?;
    if is_lone {
        verdicts = verdicts.into_lone_refusal().map_err(ApiError::bad)?;
    }
    let status = status(verdicts.split());
    Ok(match params.results {
        Some(ResultsKind::Summary) => {
            let mut summary = Summary::default();
            summary.add(verdicts);
            (status, Json(summary)).into_response()
        }
        Some(ResultsKind::Full) | None => (status, Json(Results::of(verdicts))).into_response(),
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

/// Takes a body that was read whole; returns whether it was a single event, unless the caller has
/// to be found first. Without a kind it is a CloudEvent in binary mode.
fn take_whole(
    app: &App,
    intake: &mut Intake,
    (kind, headers): (Option<BodyKind<'static>>, &HeaderMap),
    (route, caller): (Route, &Caller),
    body: &[u8],
) -> Result<Result<bool, CallerNeeded>, ApiError> {
    let config = app.config.state();
    let defaults = Defaults::api(app.now(), route.of_events(), &config.severities);
    let headers = || Headers::of(headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
    let binary = kind.is_none().then(headers);
    let kind = binary.as_ref().map(BodyKind::Binary).or(kind).unwrap_or(BodyKind::Json);
    let mut drafts = Drafts::read(kind, body, &defaults).map_err(|error| match error {
        BodyError::TooLarge { .. } => ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
        BodyError::Invalid(error) => ApiError::bad(error),
    })?;
    let mut ids = NewIds::default();
    while let Some(draft) = drafts.next_draft(&mut || ids.next_id()) {
        if intake.take(draft, caller.facts()) == Err(CallerNeeded) {
            return Ok(Err(CallerNeeded));
        }
    }
    Ok(Ok(drafts.is_lone()))
}

/// Selects one of several events with the same id.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct EventParams {
    /// The event's source; if absent, the newest event of that id, with the others in `others`.
    source: Option<String>,
}

/// Shows an event, by its id or its position, and its outcome; to a process of a session, what is of
/// that session or of none.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/events/{id}", tag = "events",
    params(("id" = String, Path, description = "The event's id, or its position in the journal"), EventParams),
    responses(
        (status = 200, body = EventWithHistory),
        (status = 403, body = ErrorBody, description = "It is addressed to another session than the process's own"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn get(
    State(app): State<App>,
    actor: Actor,
    Segment(name): Segment,
    Params(params): Params<EventParams>,
) -> Result<Json<EventWithHistory>, ApiError> {
    let mut access = actor.access(&app).await?;
    let FoundEvent { event: (seq, event), others } = loop {
        let (source, readable) = (params.source.clone(), access.readable().clone());
        match find(&app, Wanted { name: name.clone(), source, readable }).await? {
            Looked::Found(found) => break found,
            Looked::Withheld { session } => access.check_again(&app, &session).await?,
        }
    };
    let (history, projected) = what_became_of(&app, seq, access.into_readable()).await;
    Ok(Json(EventWithHistory { event, history, others, projection: history::how_far(&app, projected) }))
}

/// An event of the journal, by its id or its position, whole.
///
/// Errors: 403 if it is addressed to another session than a process's own, 404 if the journal does not
/// have it (any more).
pub(crate) async fn stored(app: &App, actor: Actor, name: String) -> Result<Event, ApiError> {
    let mut access = actor.access(app).await?;
    let FoundEvent { event: (seq, _), .. } = loop {
        let readable = access.readable().clone();
        match find(app, Wanted { name: name.clone(), source: None, readable }).await? {
            Looked::Found(found) => break found,
            Looked::Withheld { session } => access.check_again(app, &session).await?,
        }
    };
    let journal = app.journal.clone();
    let read = run_blocking(move || journal.read_at(seq)).await;
    let record = read.ok().and_then(Result::ok).flatten();
    let event = record.and_then(|record| as_event(&record.as_record()).map(|event| event.to_event()));
    event.ok_or_else(|| ApiError::not_found("event in the journal", &name))
}

/// An event, and the others of its id.
struct FoundEvent {
    event: (Seq, Box<RawValue>),
    others: Vec<OtherEvent>,
}

/// The event with this id or at this position, from this source if it is given.
///
/// Errors: there is none, or the journal cannot be read.
async fn find(app: &App, wanted: Wanted) -> Result<Looked<FoundEvent>, ApiError> {
    let name = wanted.name.clone();
    match find_in_journal(app, wanted.clone()).await {
        Ok(Some(looked)) => Ok(looked),
        // The history may have an event whose segment was deleted or cannot be read.
        nothing => match find_in_history(app, wanted).await {
            Ok(Some(looked)) => Ok(looked),
            Ok(None) | Err(_) => Err(nothing.err().unwrap_or_else(|| ApiError::not_found("event", &name))),
        },
    }
}

/// The event that a request is for.
#[derive(Debug, Clone)]
struct Wanted {
    /// Its id or its position.
    name: String,
    source: Option<String>,
    readable: Readable,
}

async fn find_in_history(app: &App, wanted: Wanted) -> Result<Option<Looked<FoundEvent>>, ProjectionError> {
    let Wanted { name, source, readable } = wanted;
    let look = move |view: &View<'_>| view.event_by_id(&name, source.as_deref(), &readable);
    Ok(app.projection.read(look).await?.map(|looked| match looked {
        Looked::Found((seq, event)) => {
            Looked::Found(FoundEvent { event: (seq, raw(event)), others: Vec::new() })
        }
        Looked::Withheld { session } => Looked::Withheld { session },
    }))
}

/// The outcome of an event, and the progress of the projection. Waits until that has
/// [caught up](App::history_caught_up). Empty while the projection cannot be read.
async fn what_became_of(app: &App, seq: Seq, readable: Readable) -> (Vec<LedgerLine>, Seq) {
    app.history_caught_up().await;
    let read = app.projection.read(move |view| {
        let mut lines = view.history_of_event(seq, &readable)?;
        if lines.is_empty() && view.covers(seq) {
            lines.push(LedgerLine::of(&LedgerEntry::Unmatched { seq }));
        }
        Ok((lines, view.projected))
    });
    read.await.unwrap_or_else(|_| (Vec::new(), app.projection.progress().projected()))
}

/// Searches the journal for the newest readable event of the id, then for the one at this position.
///
/// A number may be a producer's id or a position; the id goes first, because an event can also be
/// found by its id.
async fn find_in_journal(app: &App, wanted: Wanted) -> Result<Option<Looked<FoundEvent>>, ApiError> {
    let journal = app.journal.clone();
    let search = move || -> Result<Option<Looked<FoundEvent>>, ReadError> {
        let Wanted { name, source, readable } = wanted;
        let is_named = |found: &RecordBuf| as_event(&found.as_record()).is_some_and(|event| event.id == name);
        let mut all = journal.find_named(name.as_bytes(), SAME_ID_MAX, is_named)?;
        let source_of = |found: &RecordBuf| as_event(&found.as_record()).map(|event| event.source.to_owned());
        let of_source = |found: &RecordBuf| source.is_none() || source_of(found) == source;
        if !all.iter().any(of_source) && source.is_none() {
            all = name.parse().map_or(Ok(None), |seq| journal.read_at(Seq(seq)))?.into_iter().collect();
        }
        let mut withheld = None;
        all.retain(|found| {
            let session = as_event(&found.as_record()).and_then(|event| event.session.map(str::to_owned));
            let is_readable = readable.contains(session.as_deref());
            if !is_readable && of_source(found) {
                withheld = withheld.take().or(session);
            }
            is_readable
        });
        let wanted = all.iter().position(of_source).map(|place| all.remove(place));
        let Some(event) = wanted.and_then(|found| shown(&found.as_record())) else {
            return Ok(withheld.map(|session| Looked::Withheld { session }));
        };
        let others =
            all.iter().filter_map(|found| Some(OtherEvent { source: source_of(found)?, seq: found.seq.0 }));
        Ok(Some(Looked::Found(FoundEvent { event, others: others.collect() })))
    };
    let searched = run_blocking(search).await;
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
