//! What waits in the sessions' queues, for people, and what they decide about it.

use axum::{Json, extract::State, http::StatusCode};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{
    event::SessionId,
    exchange::Decision,
    journal::{AppendBatch, Level, record::RecordKind},
    notification::NotificationId,
    protocol::{FieldError, event::read_name, record, views::WaitingView},
    server::{
        App,
        error::{ApiError, ErrorBody},
        extract::{Params, Segment},
    },
};

/// Whose queue is meant.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct InboxParams {
    /// A session; every session if it is absent.
    session: Option<String>,
}

impl InboxParams {
    fn session(&self) -> Result<Option<SessionId>, ApiError> {
        let id = read_name("session", self.session.as_deref().map(Into::into)).map_err(ApiError::bad)?;
        Ok(id.map(|id| SessionId::new(&id)))
    }
}

/// What waits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct InboxList {
    /// By session, and in each in the order in which it would be told.
    notifications: Vec<WaitingView>,
}

/// Lists what waits, with its text.
#[utoipa::path(
    get, path = "/v1/inbox", tag = "inbox", params(InboxParams),
    responses((status = 200, body = InboxList), (status = 400, body = ErrorBody)),
)]
pub(crate) async fn list(
    State(app): State<App>,
    Params(params): Params<InboxParams>,
) -> Result<Json<InboxList>, ApiError> {
    let notifications = app.engine.waiting(params.session()?).await?;
    Ok(Json(InboxList { notifications }))
}

/// Ends a notification that waits: nobody is told of it.
#[utoipa::path(
    post, path = "/v1/notifications/{id}/dismiss", tag = "inbox",
    params(("id" = String, Path, description = "The notification"), InboxParams),
    responses((status = 204), (status = 404, body = ErrorBody)),
)]
pub(crate) async fn dismiss(
    state: State<App>,
    id: Segment,
    params: Params<InboxParams>,
) -> Result<StatusCode, ApiError> {
    decide(state, id, params, Decision::Dismiss).await
}

/// Lets the agent have a notification that waits for the user's word.
#[utoipa::path(
    post, path = "/v1/notifications/{id}/discuss", tag = "inbox",
    params(("id" = String, Path, description = "The notification"), InboxParams),
    responses((status = 204), (status = 404, body = ErrorBody)),
)]
pub(crate) async fn discuss(
    state: State<App>,
    id: Segment,
    params: Params<InboxParams>,
) -> Result<StatusCode, ApiError> {
    decide(state, id, params, Decision::Discuss).await
}

async fn decide(
    State(app): State<App>,
    Segment(id): Segment,
    Params(params): Params<InboxParams>,
    decision: Decision,
) -> Result<StatusCode, ApiError> {
    let session = params.session()?;
    let waiting = app.engine.waiting(session.clone()).await?;
    if !waiting.iter().any(|waiting| waiting.id == id) {
        return Err(ApiError::not_found("waiting notification", &id));
    }
    let notification = NotificationId::new(&id);
    let mut batch = AppendBatch::new();
    batch
        .push_with(RecordKind(record::DECIDED), None, |body| {
            record::encode_decided(session.as_ref(), &notification, decision, body);
        })
        .map_err(|error| ApiError::bad(FieldError::whole(error.to_string())))?;
    app.bus.append(batch, Level::Written).await.map_err(|error| ApiError::append(&error))?;
    Ok(StatusCode::NO_CONTENT)
}
