//! Server-sent events: the journal's events as they are written, and the state of one session's
//! queue.
//!
//! An event stream reads the journal from its own cursor, so a slow client loses no events and
//! delays no other client. Both streams end when the daemon stops.

use std::{borrow::Cow, collections::VecDeque, convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    http::HeaderMap,
    response::{
        IntoResponse, Response,
        sse::{Event as SseEvent, KeepAlive, Sse},
    },
};
use engine::{
    event::{Pattern, Seq, SessionId, Severity, codec},
    exchange::Harness,
    io::Pending,
    records,
    request::{
        FieldError,
        names::{read_name, read_workspace},
    },
    sorted::SortedSet,
};
use futures_util::stream;
use journal::{ReadError, Reader, record::Record};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_stream::{Stream, StreamExt};

#[cfg(test)]
use crate::api::wire::{ErrorBody, event::EventView};
use crate::{
    api::{
        App,
        actor::{Access, Actor, History},
        auth::PeerPid,
        clients::FollowerClient,
        error::ApiError,
        extract::{IdSegment, Params, header},
        history::parsed,
        naming::{known_session, session_now, session_of},
        region::{self, RegionParams, read_form},
        region_texts::{Form, RegionText},
        registry::Watcher,
        sessions::pending_now,
        wake_routes::{Attached, ClientFolder, ForFollower},
        wire::{
            event::to_json,
            region::RegionTagView,
            views::{PendingView, WakeView},
        },
    },
    harness::kind::Kind,
};

/// Most records per read.
const READ_RECORDS_MAX: usize = 256;
/// Most bytes of encoded events that wait for the client; no further event is encoded beyond it.
const READY_BYTES_MAX: usize = 32 * 1024;

/// Selects events to stream.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamParams {
    /// Only types that match this pattern, such as `tool.**`.
    pattern: Option<String>,
    /// Only events at least this severe.
    severity: Option<String>,
    /// The first position; new events only if absent. `Last-Event-ID` takes precedence.
    from: Option<u64>,
    /// The last position, after which the stream ends; it follows the journal if absent.
    until: Option<u64>,
}

/// Streams events as they are journaled; to a process of a session, those addressed to that session
/// or to none.
///
/// Each has its position as the id, so a client that reconnects with `Last-Event-ID` continues
/// without a gap.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/events/stream", tag = "events",
    params(
        StreamParams,
        ("Last-Event-ID" = Option<u64>, Header, description = "The position of the last event that was received"),
    ),
    responses((status = 200, content_type = "text/event-stream", body = EventView), (status = 400, body = ErrorBody)),
))]
pub(crate) async fn events(
    State(app): State<App>,
    actor: Actor,
    Params(params): Params<StreamParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let place = app.registry.follow()?;
    let filter = Filter::read(&params)?;
    let access = actor.access(&app).await?;
    let end = app.journal.written().borrow().next();
    let from = match header(&headers, "last-event-id").filter(|id| !id.is_empty()) {
        // After a power failure, a lost position is assigned to another event, which the client
        // never saw.
        Some(id) => id.parse().map(|seq| Seq(seq).next().min(end)).map_err(|_| {
            ApiError::bad(FieldError::new("last-event-id", "must be the position of an event"))
        })?,
        None => params.from.map_or(end, Seq),
    };
    // Positions begin with 1.
    let next = from.max(Seq::ZERO.next());
    let reader = app.journal.read_from(next);
    let tail = Tail {
        app,
        next,
        until: params.until.map(Seq),
        reader,
        filter,
        ready: VecDeque::new(),
        access,
        withheld: SortedSet::new(),
        history: History::Unread,
        _place: place,
    };
    Ok(respond(stream::unfold(tail, |mut tail| async move { Some((tail.next().await?, tail)) })))
}

fn respond(events: impl Stream<Item = SseEvent> + Send + 'static) -> Response {
    // Comment lines every 15 seconds (the default) allow either side to detect a lost connection.
    Sse::new(events.map(Ok::<_, Infallible>)).keep_alive(KeepAlive::default()).into_response()
}

struct Filter {
    pattern: Option<Pattern>,
    severity_min: Severity,
}

impl Filter {
    fn read(params: &StreamParams) -> Result<Self, ApiError> {
        let severity_min = parsed("severity", params.severity.as_deref())?.unwrap_or(Severity::Debug);
        Ok(Self { pattern: parsed("pattern", params.pattern.as_deref())?, severity_min })
    }

    /// The record as a stream event, if it is an event that matches.
    fn show(&self, found: &Record<'_>) -> Option<Ready> {
        if found.kind.0 != records::EVENT {
            return None;
        }
        let event = codec::decode(found.body)
            .inspect_err(|error| tracing::error!(seq = found.seq.0, %error, "an event record cannot be read"))
            .ok()?;
        let is_selected = self.pattern.as_ref().is_none_or(|pattern| pattern.matches_text(event.event_type));
        let is_shown = is_selected && event.severity >= self.severity_min;
        is_shown.then(|| Ready {
            seq: found.seq,
            session: event.session.map(SessionId::new),
            event: to_json(&event, Some(found.seq)),
        })
    }
}

/// An encoded event.
struct Ready {
    seq: Seq,
    session: Option<SessionId>,
    event: String,
}

/// A client that follows the journal.
///
/// Shape: between two reads it holds a position, at most [`READY_BYTES_MAX`] and one event; a
/// client that does not read costs no more.
struct Tail {
    app: App,
    /// The position of the next record.
    next: Seq,
    /// The position after which it ends.
    until: Option<Seq>,
    /// Released between two reads, because it holds a large buffer.
    reader: Reader,
    filter: Filter,
    ready: VecDeque<Ready>,
    access: Access,
    /// The sessions of events in `ready` that the client may not read.
    withheld: SortedSet<SessionId>,
    /// Whether it was read for the events in `ready`.
    history: History,
    _place: OwnedSemaphorePermit,
}

impl Tail {
    /// The next event; `None` after the last position, when the daemon stops or the journal cannot be read.
    async fn next(&mut self) -> Option<SseEvent> {
        loop {
            while let Some(Ready { seq, session, event }) = self.ready.pop_front() {
                if self.may_send(session.as_ref()).await? {
                    return Some(SseEvent::default().id(seq.to_string()).data(event));
                }
            }
            if *self.app.shutdown.borrow() || self.until.is_some_and(|until| self.next > until) {
                return None;
            }
            let before = self.next;
            self.read().inspect_err(|error| tracing::warn!(%error, "a stream of events ends")).ok()?;
            if self.next == before {
                let next = self.next;
                let mut written = self.app.journal.written();
                tokio::select! {
                    waited = written.wait_for(|written| *written >= next) => drop(waited.ok()?),
                    () = self.app.stopped() => return None,
                }
            } else if self.ready.is_empty() {
                // A long journal without matches must not block the thread for other tasks.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Whether the client may read an event that is addressed to `session`; `None` when the daemon
    /// stops. Decided once for all events of a session in `ready`.
    async fn may_send(&mut self, session: Option<&SessionId>) -> Option<bool> {
        let Some(session) = session else { return Some(true) };
        if self.withheld.contains(session) {
            return Some(false);
        }
        let is_allowed = self.access.allows_now(&self.app, session, &mut self.history).await.ok()?;
        if !is_allowed {
            self.withheld.insert(session.clone());
        }
        Some(is_allowed)
    }

    /// Encodes the next events, if there are any.
    fn read(&mut self) -> Result<(), ReadError> {
        (self.withheld, self.history) = (SortedSet::new(), History::Unread);
        let mut bytes = 0;
        for found in self.reader.next_batch(READ_RECORDS_MAX)?.iter() {
            if bytes > READY_BYTES_MAX {
                break;
            }
            self.next = found.seq.next();
            if self.until.is_some_and(|until| found.seq > until) {
                break;
            }
            if let Some(ready) = self.filter.show(&found) {
                bytes += ready.event.len();
                self.ready.push_back(ready);
            }
        }
        if self.next < self.reader.position() {
            // The client has enough buffered.
            self.reader = self.app.journal.read_from(self.next);
        } else {
            self.reader.rest();
        }
        Ok(())
    }
}

/// Parameters of a session's stream.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct QueueParams {
    /// `follower`: the caller wakes the session: it prints the `sentence` of each event `wake`, or makes
    /// the exchange itself. The newest such caller is active; the streams of earlier ones end with an
    /// event `replaced`. An event `closed` reports the end of the session. If its process continues
    /// in another session, so does the stream, and each `pending` names its session.
    wake_route: Option<RouteParam>,
    /// The harness of the client that started the caller; with `wake_route=follower`. The client's
    /// data opens a session that is not open.
    harness: Option<String>,
    /// The client's process.
    pid: Option<u32>,
    /// The session's working folder.
    workspace: Option<String>,
    /// The folder of the client's files.
    client_folder: Option<String>,
    /// The most tokens of the region whose `ETag` is sent; not for a follower.
    max_tokens: Option<u32>,
    /// The format of that region.
    format: Option<String>,
}

impl QueueParams {
    /// The follower's data about its client.
    fn client(&self) -> Result<FollowerClient, FieldError> {
        let borrowed = |text: &Option<String>| text.clone().map(Cow::Owned);
        let name = read_name("harness", borrowed(&self.harness))?.map(Arc::from);
        let workspace = read_workspace("workspace", borrowed(&self.workspace))?.map(Arc::from);
        let folder = read_workspace("client_folder", borrowed(&self.client_folder))?;
        let kind = self.harness.as_deref().and_then(Kind::of_name);
        let folder =
            kind.zip(folder).map(|(kind, path)| ClientFolder { kind, path: path.into_owned().into() });
        Ok(FollowerClient {
            harness: Harness { name, workspace, pid: self.pid, ..Harness::default() },
            folder,
        })
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
enum RouteParam {
    Follower,
}

/// Streams the number of pending notifications of the session (`pending`), and the `ETag` of its region
/// (`region`), at once and after each change, without text. A follower gets no `region`.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/sessions/{id}/stream", tag = "sessions",
    params(("id" = String, Path, description = "The session"), QueueParams),
    responses(
        (status = 200, content_type = "text/event-stream", body = PendingView),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn session(
    State(app): State<App>,
    IdSegment(id): IdSegment,
    PeerPid(peer): PeerPid,
    actor: Actor,
    Params(params): Params<QueueParams>,
) -> Result<Response, ApiError> {
    let place = app.registry.follow()?;
    let queue = match params.wake_route {
        Some(RouteParam::Follower) => {
            let client = params.client().map_err(ApiError::bad)?;
            let session = session_of(&app, id, client.harness.name.as_deref()).await?;
            client.attach(&app, &session, actor, peer).await?;
            let mut queue = Queue::follow(app, session.clone(), place).await?;
            queue.attach(session).await?;
            queue
        }
        None => {
            let session = session_of(&app, id, None).await?;
            actor.check(&app, &session).await?;
            known_session(&app, &session).await?;
            let region = RegionParams { max_tokens: params.max_tokens, format: params.format };
            let form = read_form(session.clone(), &region)?;
            let mut queue = Queue::follow(app, session, place).await?;
            queue.region = Some(FollowedRegion::new(&queue.app, form));
            queue
        }
    };
    Ok(respond(stream::unfold(queue, |mut queue| async move { Some((queue.next().await?, queue)) })))
}

/// The current queue state; empty for a session that a follower's client has not opened yet.
async fn pending_or_nothing(app: &App, session: &SessionId) -> Result<PendingView, ApiError> {
    let now = pending_now(app, session.clone()).await?;
    Ok(now.unwrap_or_else(|| PendingView::of(&Pending::nothing(session.clone()))))
}

/// A client that follows one session's queue.
struct Queue {
    /// Set if this client wakes the session. Dropped first, so that another route is used from then
    /// on.
    attached: Option<Attached>,
    app: App,
    watcher: Watcher,
    first: Option<PendingView>,
    /// The region of a session that is not followed by the one who wakes it.
    region: Option<FollowedRegion>,
    has_ended: bool,
    _place: OwnedSemaphorePermit,
}

impl Queue {
    async fn follow(app: App, session: SessionId, place: OwnedSemaphorePermit) -> Result<Self, ApiError> {
        // Watched before the query, so that a change in between is seen.
        let watcher = app.registry.watch(&session);
        let first = pending_or_nothing(&app, &session).await?;
        let first = Some(first);
        Ok(Self { attached: None, app, watcher, first, region: None, has_ended: false, _place: place })
    }

    /// Continues as the follower of the session that now runs in the process of `session`.
    async fn attach(&mut self, mut session: SessionId) -> Result<(), ApiError> {
        self.attached = None;
        loop {
            self.watcher = self.app.registry.watch(&session);
            let now = session_now(&self.app, &session).await?;
            if now == session {
                break;
            }
            session = now;
        }
        self.attached = Some(self.app.registry.wake_routes().attach(&session));
        self.first = Some(pending_or_nothing(&self.app, &session).await?);
        Ok(())
    }

    async fn next(&mut self) -> Option<SseEvent> {
        if self.has_ended {
            return None;
        }
        if let Some(first) = self.first.take() {
            return Some(queue_event("pending", &first));
        }
        let is_attached = self.attached.is_some();
        let for_follower = async {
            match &mut self.attached {
                Some(attached) => attached.next().await,
                None => std::future::pending().await,
            }
        };
        let app = &self.app;
        let region = async {
            match &mut self.region {
                Some(region) => region.changed(app).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            instruction = for_follower => Some(match instruction {
                ForFollower::Replaced => {
                    self.has_ended = true;
                    SseEvent::default().event("replaced").data("{}")
                }
                ForFollower::Sentence(sentence) => {
                    queue_event("wake", &WakeView { sentence: sentence.to_string() })
                }
            }),
            pending = self.watcher.changed() => {
                let pending = pending?;
                match &pending.moved_to {
                    Some(to) if is_attached => {
                        self.attach(to.clone()).await.ok()?;
                        self.first.take().map(|first| queue_event("pending", &first))
                    }
                    Some(_) | None if is_attached && pending.is_closed => {
                        Some(SseEvent::default().event("closed").data("{}"))
                    }
                    Some(_) | None => Some(queue_event("pending", &PendingView::of(&pending))),
                }
            }
            text = region => Some(queue_event("region", &RegionTagView { etag: &text?.etag })),
            () = self.app.stopped() => None,
        }
    }
}

/// The region of a session, as a client follows it.
struct FollowedRegion {
    form: Form,
    changes: watch::Receiver<u64>,
    /// Whether something may have changed since the last text.
    is_due: bool,
    /// The tag that was sent last.
    sent: Option<String>,
}

impl FollowedRegion {
    fn new(app: &App, form: Form) -> Self {
        Self { form, changes: app.registry.regions().follow(), is_due: true, sent: None }
    }

    /// Waits until the region has another tag than the one that was sent last; `None` when the daemon
    /// stops. Cancel-safe.
    async fn changed(&mut self, app: &App) -> Option<Arc<RegionText>> {
        loop {
            if !self.is_due {
                self.changes.changed().await.ok()?;
                self.is_due = true;
            }
            // A session that has ended has no region until it is opened again.
            let text = region::written(app, self.form.clone()).await.ok();
            self.is_due = false;
            if let Some(text) = text.filter(|text| self.sent.as_ref() != Some(&text.etag)) {
                self.sent = Some(text.etag.clone());
                return Some(text);
            }
        }
    }
}

fn queue_event(name: &str, content: &impl Serialize) -> SseEvent {
    let json = serde_json::to_string(content).expect("text and numbers always serialize");
    SseEvent::default().event(name).data(json)
}
