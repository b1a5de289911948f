//! Watches: setting, listing and ending.
//!
//! Each condition is checked before a watch is set; conditions that are already true are the
//! answer. The event that sets a watch has all that is needed to continue it after a restart; from
//! then on the engine decides.

use std::{path::Path, sync::Arc, time::Duration};

use axum::{Json, body::Body, extract::State, http::StatusCode};
use engine::{
    event::SessionId,
    notification::Priority,
    records::Records,
    request::FieldError,
    session::SessionState,
    watch::{
        ALL_MAX, CONDITIONS_MAX, Condition, EXPIRES_DEFAULT, EXPIRES_MAX, Needs, PER_OWNER_MAX, Part, Watch,
        condition::{Terms, parse_list, remote_host},
    },
};
use futures_util::future::try_join_all;
use journal::time::Timestamp;
use serde::Deserialize;
use tokio::time::timeout;

#[cfg(test)]
use crate::api::wire::ErrorBody;

use crate::{
    api::{
        App,
        actor::{Access, Actor},
        error::ApiError,
        extract::{Params, Segment, read_body, read_session},
        naming::{find_session, known_session, session_now, session_of},
        notify::{folder_of, new_id, session_for},
        share::{Bounds, Held},
        wire::watches::{ConditionView, WatchAnswer, WatchList, WatchRequest, WatchView},
    },
    capability::{
        ci,
        watch::{Look, LookError, look},
    },
};

/// The bounds of the table of watches.
const BOUNDS: Bounds = Bounds { what: "watches", per_owner: PER_OWNER_MAX, all: ALL_MAX };
/// Time limit of the checks before a watch is set.
const LOOKS_MAX: Duration = Duration::from_secs(6);
/// How long after its time a watch for a time ends, unless the request sets an end.
const AFTER_TIME: Duration = Duration::from_secs(60);

/// Selects watches.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct WatchParams {
    /// A session; all if it is absent.
    session: Option<String>,
}

/// Lists the open watches; to a process of a session, those of that session and its folder.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/watches", tag = "watches", params(WatchParams),
    responses(
        (status = 200, body = WatchList), (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "`session` is another one than the process's own"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn list(
    State(app): State<App>,
    actor: Actor,
    Params(params): Params<WatchParams>,
) -> Result<Json<WatchList>, ApiError> {
    let named = params.session.as_deref().map(read_session).transpose()?;
    let access = actor.access(&app).await?;
    let mut open = visible(&app, open(&app).await?, &access).await?;
    if let Some(named) = named {
        let session = session_of(&app, named, None).await?;
        access.check(session.as_str())?;
        known_session(&app, &session).await?;
        open.retain(|watch| watch.session.as_ref() == Some(&session));
    }
    open.sort_by_key(|watch| watch.set_at);
    Ok(Json(WatchList { watches: open.iter().map(|watch| WatchView::from(&**watch)).collect() }))
}

/// Ends a watch before it comes true. A process of a session ends those of that session and its
/// folder only.
#[cfg_attr(test, utoipa::path(
    delete, path = "/v1/watches/{id}", tag = "watches",
    params(("id" = String, Path, description = "The watch's id, or a prefix of it")),
    responses(
        (status = 204),
        (status = 403, body = ErrorBody, description = "It is of another session than the process's own"),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody),
    ),
))]
pub(crate) async fn cancel(
    State(app): State<App>,
    Segment(id): Segment,
    actor: Actor,
) -> Result<StatusCode, ApiError> {
    let (access, all) = (actor.access(&app).await?, open(&app).await?);
    let named = all.iter().find(|watch| *watch.id == *id).and_then(|watch| watch.session.clone());
    if let Some(session) = named {
        access.check(session.as_str())?;
    }
    end(&app, &visible(&app, all, &access).await?, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ends the one of the `open` watches whose id is `id` or begins with it.
///
/// Errors: no open watch matches, or more than one does.
pub(crate) async fn end(app: &App, open: &[Arc<Watch>], id: &str) -> Result<Arc<Watch>, ApiError> {
    let watch = BOUNDS.find(open, |watch| &watch.id, id)?;
    let watch = watch.ok_or_else(|| ApiError::not_found("open watch", id))?;
    let event = watch.cancelled_event(app.now());
    app.append(Records::build(|records| records.own_event(&event))).await?;
    Ok(Arc::clone(watch))
}

/// Waits once, until a condition becomes true.
///
/// Shape: without `session` and `workspace` it is for the session whose client is the requesting
/// process or an ancestor of it.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/watches", tag = "watches",
    responses(
        (status = 201, body = WatchAnswer), (status = 200, body = WatchAnswer, description = "It is true already"),
        (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "An agent asks for `critical`, or for another session"),
        (status = 409, body = ErrorBody),
    ),
))]
pub(crate) async fn set(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<(StatusCode, Json<WatchAnswer>), ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let read = || WatchRequest::read(&body);
    let request = app.rooms.exchanges.work(body.len(), read).await.map_err(ApiError::bad)?;
    let session = match (&request.session, &request.workspace) {
        (None, Some(folder)) => folder_for(&app, actor, folder).await.map(|()| None)?,
        (named, _) => session_for(&app, actor, named.as_ref()).await?,
    };
    Ok(match begin(&app, &request, session, actor).await? {
        Begun::Set(watch) => {
            let watch = Some(WatchView::from(&*watch));
            (StatusCode::CREATED, Json(WatchAnswer { watch, already: Vec::new() }))
        }
        Begun::Already(already) => (StatusCode::OK, Json(WatchAnswer { watch: None, already })),
    })
}

/// The outcome of a watch request, for callers without JSON.
pub(crate) enum Begun {
    /// The watch was set.
    Set(Box<Watch>),
    /// These conditions are already true.
    Already(Vec<ConditionView>),
}

/// Those of the `open` watches that a requester may see and end: of a process of a session, those of
/// that session and of its folder.
async fn visible(app: &App, mut open: Vec<Arc<Watch>>, access: &Access) -> Result<Vec<Arc<Watch>>, ApiError> {
    if let Some(own) = access.own() {
        let known = folder_of(app, &session_now(app, own).await?).await?;
        open.retain(|watch| match (&watch.session, &watch.workspace) {
            (Some(session), _) => access.allows(session),
            (None, Some(folder)) => {
                known.as_deref().is_some_and(|known| Path::new(&**folder).starts_with(known))
            }
            (None, None) => false,
        });
    }
    Ok(open)
}

/// Checks that `actor` may act for the sessions in `folder`: its own session's folder, if it has a
/// session.
///
/// Errors: 403 otherwise.
async fn folder_for(app: &App, actor: Actor, folder: &str) -> Result<(), ApiError> {
    let Some(own) = actor.session(app).await? else { return Ok(()) };
    let known = folder_of(app, &own).await?;
    if known.is_some_and(|known| Path::new(folder).starts_with(&*known)) {
        return Ok(());
    }
    let message = format!("this process belongs to session {own}, and may not act for sessions in {folder}");
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}

/// Sets the requested watch for `session`, else for the requested folder, unless it is already true.
///
/// Errors: a field is wrong, too many watches are open, or the waiting session is unknown.
pub(crate) async fn begin(
    app: &App,
    request: &WatchRequest,
    session: Option<SessionId>,
    actor: Actor,
) -> Result<Begun, ApiError> {
    let is_critical = request.priority == Some(Priority::Critical);
    if is_critical && actor.session(app).await?.is_some() {
        let message = "`critical` is for the user: an agent asks for `high` at most";
        return Err(ApiError::bad(FieldError::new("priority", message)).with_status(StatusCode::FORBIDDEN));
    }
    let owner = Owner::find(app, request, session).await?;
    let mut watch = Watch { caller: Some(actor.share(app).await?), ..read(app, request, owner).await? };
    let looks = watch.parts.iter().enumerate().map(|(index, part)| look_at(app, &watch, index, part));
    let late = |_| ApiError::new(StatusCode::GATEWAY_TIMEOUT, "the target of a condition does not answer");
    watch.parts = timeout(LOOKS_MAX, try_join_all(looks)).await.map_err(late)??;
    let met = watch.parts.iter().filter(|part| part.met.is_some());
    let already: Vec<ConditionView> =
        met.map(|part| ConditionView { text: part.text.clone(), state: part.met.clone() }).collect();
    let is_done = match watch.needs {
        Needs::Any => !already.is_empty(),
        Needs::All => already.len() == watch.parts.len(),
    };
    if is_done {
        return Ok(Begun::Already(already));
    }
    // Two concurrent requests could both count as the last one within the bound.
    let _lock = app.registry.creation_lock().await;
    let open = open(app).await?;
    BOUNDS.check(open.iter().map(|open| Held::from(&**open)), &Held::from(&watch))?;
    let set = Records::build(|records| records.own_event(&watch.set_event()));
    app.publisher.publish(set).await?;
    Ok(Begun::Set(Box::new(watch)))
}

/// The open watches, up to the end of the journal.
pub(crate) async fn open(app: &App) -> Result<Vec<Arc<Watch>>, ApiError> {
    app.engine.caught_up().await?;
    Ok(app.registry.sources().watches.borrow().to_vec())
}

/// The owner of a watch.
struct Owner {
    session: Option<SessionId>,
    workspace: Option<Arc<str>>,
    /// Base of relative paths.
    folder: Option<Arc<str>>,
}

impl Owner {
    async fn find(app: &App, request: &WatchRequest, session: Option<SessionId>) -> Result<Self, ApiError> {
        let WatchRequest { workspace, cwd, .. } = request;
        let Some(session) = session else {
            let Some(workspace) = workspace.clone().or_else(|| cwd.clone()) else {
                let message =
                    "is missing, and the request is not from a session's client: name a session or a folder";
                return Err(ApiError::bad(FieldError::new("session", message)));
            };
            let folder = Some(cwd.clone().unwrap_or_else(|| Arc::clone(&workspace)));
            return Ok(Self { session: None, workspace: Some(workspace), folder });
        };
        let known = known_session(app, &session).await?;
        let own = known.harness.workspace.as_deref().map(Into::into);
        let workspace = workspace.clone().or(own);
        Ok(Self { session: Some(session), folder: cwd.clone().or_else(|| workspace.clone()), workspace })
    }
}

/// Parses the requested watch, before its conditions are checked.
async fn read(app: &App, request: &WatchRequest, owner: Owner) -> Result<Watch, ApiError> {
    let now = app.now();
    let offset = |at: Timestamp| (app.utc_offset)(at);
    let terms = Terms { now, utc_offset: &offset, folder: owner.folder.as_deref() };
    let in_force = app.registry.sources().settings();
    let (settings, is_asking) = (&in_force.watch, in_force.ci.is_on());
    if !settings.enabled {
        let message = "watches are disabled: [sources.watch] enabled = false";
        return Err(ApiError::new(StatusCode::CONFLICT, message));
    }
    let mut parts = Vec::with_capacity(request.conditions.len());
    for (index, text) in request.conditions.iter().enumerate() {
        let wrong = |message: String| ApiError::bad(FieldError::new(field(index), message));
        let list = parse_list(text, &terms).map_err(|error| wrong(error.to_string()))?;
        if list.len() > 1 && request.needs == Needs::All {
            return Err(wrong("is a list of which one is enough, and `all` was requested".to_owned()));
        }
        for (text, condition) in list {
            if let Some(host) = remote_host(&condition).filter(|_| !settings.remote) {
                let message =
                    format!("`{host}` is another machine, which needs `remote = true` in [sources.watch]");
                return Err(wrong(message));
            }
            if matches!(condition, Condition::Ci { .. }) && !is_asking {
                return Err(wrong("checks are disabled: [sources.ci] enabled = false".to_owned()));
            }
            if let Some(what) = condition.of_session().filter(|_| owner.session.is_none()) {
                return Err(wrong(format!("{what} a session, and none is named")));
            }
            let condition = resolved(app, condition).await.map_err(|error| wrong(error.to_string()))?;
            parts.push(Part { text: text.to_owned(), condition, met: None });
        }
    }
    if parts.len() > CONDITIONS_MAX {
        let message = format!("has at most {CONDITIONS_MAX}, not {}", parts.len());
        return Err(ApiError::bad(FieldError::new("conditions", message)));
    }
    Ok(Watch {
        id: new_id('w').into(),
        expires_at: expires_at(request, &parts, now)?,
        parts,
        needs: request.needs,
        note: request.note.clone(),
        kind: request.kind,
        priority: request.priority,
        set_at: now,
        session: owner.session,
        workspace: owner.workspace,
        caller: None,
    })
}

/// A condition with the whole id of its session, which must be known.
async fn resolved(app: &App, condition: Condition) -> Result<Condition, ApiError> {
    let Condition::Idle { session } = condition else { return Ok(condition) };
    let session = session_of(app, session, None).await?;
    known_session(app, &session).await?;
    Ok(Condition::Idle { session })
}

fn field(index: usize) -> String {
    format!("conditions[{index}]")
}

/// When a watch ends at the latest: as requested, else in an hour, and after the last time in its
/// conditions.
fn expires_at(request: &WatchRequest, parts: &[Part], now: Timestamp) -> Result<Timestamp, ApiError> {
    let last = parts.iter().filter_map(|part| part.condition.time()).max();
    if last.is_some_and(|last| last.since(now) > EXPIRES_MAX) {
        let message = "waits for a time more than 7 days away";
        return Err(ApiError::bad(FieldError::new("conditions", message)));
    }
    Ok(match (request.expires, last) {
        (Some(expires), _) => now + expires,
        (None, Some(last)) => (last + AFTER_TIME).max(now + EXPIRES_DEFAULT),
        (None, None) => now + EXPIRES_DEFAULT,
    })
}

/// Whether a session with the state `state` is in a turn.
fn is_in_turn(state: &str) -> bool {
    state != SessionState::Idle.as_str() && state != SessionState::Interrupted.as_str()
}

/// Checks a condition before it is waited for.
async fn look_at(app: &App, watch: &Watch, index: usize, part: &Part) -> Result<Part, ApiError> {
    if let Condition::Ci { reference, folder } = &part.condition {
        let (session, workspace) = (watch.session.as_ref(), watch.workspace.as_deref());
        let is_followed = app.registry.sources().ci.borrow().has(session, workspace, reference.as_deref());
        if !is_followed {
            let checked = ci::check(app.registry.programs(), folder, reference.as_deref()).await;
            let wrong =
                |error: ci::CheckError| ApiError::bad(FieldError::new(field(index), error.to_string()));
            checked.map_err(wrong)?;
        }
    }
    if let Condition::Idle { session } = &part.condition {
        let now = find_session(app, &session_now(app, session).await?).await?;
        let is_idle = now.is_none_or(|session| !session.is_open || !is_in_turn(&session.state));
        let met = is_idle.then(|| "no turn is under way".to_owned());
        return Ok(Part { met, ..part.clone() });
    }
    let wrong = |error: LookError| ApiError::bad(FieldError::new(field(index), error.to_string()));
    Ok(match look(&part.condition).await.map_err(wrong)? {
        Look::Met(state) => Part { met: Some(state), ..part.clone() },
        Look::Open(condition) => Part { condition, ..part.clone() },
    })
}
