//! Commands that the user runs in a terminal: the shell reports them, and the pure half decides
//! whether each is an event.

use axum::{Json, body::Body, extract::State};
use serde::Serialize;
use uuid::Uuid;

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::{
    api::{App, actor::Actor, error::ApiError, extract::read_body},
    capability::shell::Ran,
};
use engine::{records::Records, request};

/// The outcome of a report.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Reported {
    /// Whether it was published as an event.
    published: bool,
    /// The reason if it was not published: `off`, `short`, `no_session`, or `agent`, whose commands
    /// its harness reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// Takes a command that the user's shell has run.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/shell", tag = "events",
    responses((status = 200, body = Reported), (status = 400, body = ErrorBody)),
))]
pub(crate) async fn report(
    State(app): State<App>,
    actor: Actor,
    body: Body,
) -> Result<Json<Reported>, ApiError> {
    let body = read_body(&app.rooms.exchanges, body).await?;
    let read = || request::read_body(&body);
    let ran: Ran = app.rooms.exchanges.work(body.len(), read).await.map_err(ApiError::bad)?;
    if actor.session(&app).await?.is_some() {
        return Ok(Json(Reported { published: false, reason: Some("agent") }));
    }
    let sources = app.registry.sources();
    let (settings, folders) = (sources.settings.borrow().clone(), sources.folders.borrow().clone());
    let folders = folders.iter().map(|folder| &**folder);
    match ran.event(Uuid::now_v7().to_string(), &settings.shell, folders, app.now()) {
        Err(left) => Ok(Json(Reported { published: false, reason: Some(left.as_str()) })),
        Ok(event) => {
            let records = Records::build(|records| records.own_event(&event));
            app.publisher.publish(records).await?;
            Ok(Json(Reported { published: true, reason: None }))
        }
    }
}
