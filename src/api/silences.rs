//! Silences: what a person suppresses for a time. An agent cannot.

use axum::{
    Json,
    body::Bytes,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use engine::{
    conversation::Sessions,
    hash::first_64_bits,
    hold::SilenceId,
    nearest::{clause, nearest},
    pipeline::silence::{Kept, SILENCES_MAX, Silences},
    records::Records,
    request::FieldError,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

#[cfg(test)]
use crate::api::wire::ErrorBody;

use crate::api::{
    App,
    actor::Actor,
    engine_handle::EngineView,
    error::ApiError,
    extract::{Params, Segment},
    naming::known_session,
    wire::silences::{self, SilenceList, SilenceRequest, SilenceView},
};

/// Which silences are listed.
#[derive(Debug, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct ListParams {
    /// `true`: those too that ended in the last 7 days.
    #[serde(default)]
    all: bool,
}

fn view(sessions: &Sessions, kept: &Kept) -> SilenceView {
    SilenceView::new(kept, sessions.held_by(kept.silence.id))
}

/// Lists silences; to a process of a session, none of another session.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/silences", tag = "inbox", params(ListParams),
    responses((status = 200, body = SilenceList), (status = 400, body = ErrorBody)),
))]
pub(crate) async fn list(
    State(app): State<App>,
    actor: Actor,
    Params(params): Params<ListParams>,
) -> Result<Json<SilenceList>, ApiError> {
    let access = actor.access(&app).await?;
    let list = move |own: &EngineView<'_>| {
        let (all, sessions) = (own.engine.silences(), own.engine.sessions());
        let mut in_force: Vec<&Kept> = all.in_force().collect();
        in_force.sort_by_key(|kept| kept.silence.until);
        let ended = all.ended().collect::<Vec<_>>().into_iter().rev().filter(|_| params.all);
        in_force.into_iter().chain(ended).map(|kept| view(sessions, kept)).collect()
    };
    let mut silences: Vec<SilenceView> = app.engine.read(list).await?;
    silences.retain(|one| one.matchers.session.as_ref().is_none_or(|id| access.check(id.as_str()).is_ok()));
    Ok(Json(SilenceList { silences }))
}

/// Silences something, or changes when the silence with this id ends.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/silences", tag = "inbox",
    request_body = silences::SilenceBody<'static>,
    responses(
        (status = 201, body = SilenceView),
        (status = 400, body = ErrorBody),
        (status = 403, body = ErrorBody, description = "The requester is a process of a session"),
        (status = 404, body = ErrorBody, description = "The session or the subscriber is not known"),
        (status = 409, body = ErrorBody, description = "Another silence with this id, or 256, are in force"),
    ),
))]
pub(crate) async fn add(State(app): State<App>, actor: Actor, body: Bytes) -> Result<Response, ApiError> {
    refuse_agent(&app, actor, "add").await?;
    let now = app.now();
    let new_id = || {
        let hash = first_64_bits(Sha256::new_with_prefix(&body).chain_update(now.as_millis().to_le_bytes()));
        SilenceId::new(&format!("s{:04x}", hash & 0xffff))
    };
    let request = silences::read(&body, now, new_id).map_err(ApiError::bad)?;
    let silence = &request.silence;
    if let Some(session) = &silence.matchers.session {
        known_session(&app, session).await?;
    }
    let (id, subscriber) = (silence.id, silence.matchers.subscriber.clone());
    let check = move |own: &EngineView<'_>| {
        let silences: &Silences = own.engine.silences();
        let is_full = silences.in_force().count() >= SILENCES_MAX && !silences.is_in_force(id);
        let subscribers = own.engine.rules().subscribers.iter().map(|rule| rule.id.as_str());
        let unknown = subscriber.filter(|id| {
            id.as_str() != engine::pipeline::silence::ALL_SUBSCRIBERS
                && !own.engine.rules().subscribers.iter().any(|rule| rule.id == *id)
        });
        let nearest = unknown.as_ref().and_then(|id| nearest(id.as_str(), subscribers));
        (is_full, unknown.as_ref().map(|id| (id.to_string(), nearest.map(str::to_owned))))
    };
    let (is_full, unknown) = app.engine.read(check).await?;
    if let Some((id, nearest)) = unknown {
        let message = format!("`{id}` is no subscriber{}", clause(nearest));
        return Err(ApiError::bad(FieldError::new("subscriber", message)));
    }
    if is_full {
        let message = format!("{SILENCES_MAX} silences are in force; end one first: aside silence expire ID");
        return Err(ApiError::new(StatusCode::CONFLICT, message));
    }
    match known(&app, &request).await? {
        Known::New => {
            app.append(Records::build(|records| records.silence(silence))).await?;
        }
        Known::Same => {}
        Known::Absent => return Err(ApiError::not_found("silence in force", id.as_str())),
        Known::Other => {
            let message = format!(
                "another silence `{id}` is in force; `extend` changes its end, or end it first: \
                 aside silence expire {id}"
            );
            return Err(ApiError::new(StatusCode::CONFLICT, message));
        }
    }
    let made = app.engine.read(move |own: &EngineView<'_>| {
        own.engine.silences().get(id).map(|kept| view(own.engine.sessions(), kept))
    });
    let made = made.await?.unwrap_or_default();
    Ok((StatusCode::CREATED, Json(made)).into_response())
}

/// A requested silence, compared with the one in force that has its id.
enum Known {
    /// There is none, or its end is to change.
    New,
    /// It is what is requested.
    Same,
    /// It is another one.
    Other,
    /// There is none whose end could change.
    Absent,
}

async fn known(app: &App, request: &SilenceRequest) -> Result<Known, ApiError> {
    let request = request.clone();
    let compare = move |own: &EngineView<'_>| {
        let silences: &Silences = own.engine.silences();
        let kept = silences.in_force().find(|kept| kept.silence.id == request.silence.id);
        match kept.map(|kept| request.is_accepted_by(kept)) {
            None if request.is_extension => Known::Absent,
            None => Known::New,
            Some(true) if request.is_extension => Known::New,
            Some(true) => Known::Same,
            Some(false) => Known::Other,
        }
    };
    app.engine.read(compare).await
}

/// Ends a silence at once: what it holds is released.
#[cfg_attr(test, utoipa::path(
    delete, path = "/v1/silences/{id}", tag = "inbox",
    params(("id" = String, Path, description = "The silence")),
    responses(
        (status = 204),
        (status = 403, body = ErrorBody, description = "The requester is a process of a session"),
        (status = 404, body = ErrorBody),
    ),
))]
pub(crate) async fn expire(
    State(app): State<App>,
    Segment(id): Segment,
    actor: Actor,
) -> Result<StatusCode, ApiError> {
    refuse_agent(&app, actor, &format!("expire {id}")).await?;
    let silence = SilenceId::new(&id);
    if !app.engine.read(move |own: &EngineView<'_>| own.engine.silences().is_in_force(silence)).await? {
        return Err(ApiError::not_found("silence in force", &id));
    }
    app.append(Records::build(|records| records.silence_end(&[silence]))).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Errors: 403 to a process of a session, with the command for its user.
async fn refuse_agent(app: &App, actor: Actor, command: &str) -> Result<(), ApiError> {
    if actor.session(app).await?.is_none() {
        return Ok(());
    }
    let message =
        format!("an agent cannot silence; its user can, in a terminal of their own: aside silence {command}");
    Err(ApiError::new(StatusCode::FORBIDDEN, message))
}
