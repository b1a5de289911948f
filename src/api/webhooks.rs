//! Webhooks and alerts: a sender is verified before its body is parsed, and its events are durable
//! before it is answered.
//!
//! `config/webhooks.toml` defines their events (docs/webhooks.md).

use std::io;

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode},
};
use bytes::Bytes;
use engine::{
    draft::check_size,
    event::{Event, Payload, Provenance, strip_text},
    nearest::nearest,
    records::Records,
    request::{FieldError, names::checked_name},
    words::Words,
};
use journal::Outcome;
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

#[cfg(test)]
use crate::api::wire::ErrorBody;

use crate::{
    api::{
        App,
        auth::MayPublish,
        error::ApiError,
        extract::{self, Segment, read_body},
        tokens::WEBHOOKS_PATH,
        wire::{
            self, ErrorView,
            event::NumberedError,
            views::{SenderList, SenderView},
        },
    },
    capability::webhook::{
        self, EventContent, Kind,
        alerts::{Alert, Refused},
        signature,
    },
    config::webhooks::{Sender, Webhooks},
    daemon::regular_file,
};

/// The outcome of a body.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub(crate) struct Taken {
    /// Number of its new events.
    published: usize,
    /// Number of its events that were published before, by id.
    duplicates: usize,
    /// Number of its alerts that are invalid.
    #[serde(skip_serializing_if = "wire::is_zero")]
    refused: usize,
    /// Why they are; the first 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    errors: Vec<NumberedError>,
}

/// Most errors in an answer.
const ERRORS_MAX: usize = 100;

/// The content of a body: its events, and the parts that are invalid.
#[derive(Debug, Default)]
struct Content {
    reports: Vec<Report>,
    refused: Vec<Refused>,
}

/// An event of a body.
#[derive(Debug)]
struct Report {
    id: String,
    /// The id of the opposite state, if it reports a state.
    opposite: Option<String>,
    said: EventContent,
}

/// Lists the permitted senders of webhooks, and whether their secrets can be read.
#[cfg_attr(test, utoipa::path(get, path = "/v1/webhooks", tag = "admin", responses((status = 200, body = SenderList))))]
pub(crate) async fn list(State(app): State<App>) -> Json<SenderList> {
    let config = app.config.state();
    let view = |(kind, sender): &(Kind, Sender)| SenderView {
        name: kind.as_str().to_owned(),
        path: format!("{WEBHOOKS_PATH}{kind}"),
        is_signed: sender.secret_file.is_some(),
        workspace: sender.workspace.as_deref().map(str::to_owned),
        problem: sender
            .secret_file
            .as_deref()
            .and_then(|file| regular_file::read_secret(file).err())
            .map(|error| error.to_string()),
    };
    let senders = config.webhooks.senders.iter().map(view).collect();
    Json(SenderList { senders, listens_on: app.registry.tcp().map(|address| address.to_string()) })
}

/// Takes a webhook.
///
/// It is signed with the secret of `[webhooks.NAME]`; a sender without one sends a token with the
/// scope `publish`, or uses the Unix socket. A repeated delivery publishes nothing if it is signed
/// and has an id, and a repeated alert publishes nothing.
#[cfg_attr(test, utoipa::path(
    post, path = "/v1/webhooks/{name}", tag = "events",
    params(("name" = String, Path, description = "`github`, `gitlab`, `forgejo`, `standard` or `alertmanager`")),
    request_body(content = Object, content_type = "application/json"),
    responses(
        (status = 202, body = Taken), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn webhook(
    State(app): State<App>,
    Segment(name): Segment,
    MayPublish(may_publish): MayPublish,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Taken>), ApiError> {
    let config = app.config.state();
    let (kind, sender) = expected(&config.webhooks, &name)?;
    let secret = match &sender.secret_file {
        Some(file) => Some(regular_file::read_secret(file).map_err(|error| unusable(kind, &error))?),
        None if may_publish => None,
        None => return Err(unsigned(kind)),
    };
    let header = |name: &str| extract::header(&headers, name).map(str::to_owned);
    let refused = |error: signature::Refused| ApiError::new(StatusCode::UNAUTHORIZED, error.to_string());
    if secret.is_some() {
        signature::sent(kind, &header).map_err(refused)?;
    }
    let body = read_body(&app.rooms.publishing, body).await?;
    let read = || {
        let checked = secret.map(|secret| signature::check(kind, &header, &body, &secret, (app.wall)()));
        let delivery = checked.transpose().map_err(refused)?.flatten();
        if kind == Kind::Alertmanager {
            return read_alerts(&app, &body);
        }
        let said = webhook::said(kind, &header, text_of(&body)?, config.webhooks.rows());
        let said = said.map_err(|error| no_json(&error, &body))?;
        let id = delivery.unwrap_or_else(|| Uuid::now_v7().to_string());
        Ok(Content { reports: vec![Report { id, opposite: None, said }], refused: Vec::new() })
    };
    let content = app.rooms.publishing.work(body.len(), read).await?;
    take(&app, kind, sender, content).await
}

/// Takes alerts as Prometheus posts them to an Alertmanager.
///
/// An array of alerts with `labels`, `annotations`, `startsAt` and `endsAt`, as in version 2 of
/// Alertmanager's API. A repeated alert publishes nothing until it is resolved. Each alert has its
/// own verdict; the body is refused only if all of them are invalid.
#[cfg_attr(test, utoipa::path(
    post, path = "/api/v2/alerts", tag = "events",
    request_body(content = Vec<Object>, content_type = "application/json"),
    responses(
        (status = 200, body = Taken), (status = 400, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody),
    ),
))]
pub(crate) async fn alerts(State(app): State<App>, body: Body) -> Result<Json<Taken>, ApiError> {
    let config = app.config.state();
    let (_, sender) = expected(&config.webhooks, Kind::Alertmanager.as_str())?;
    let body = read_body(&app.rooms.publishing, body).await?;
    let content = app.rooms.publishing.work(body.len(), || read_alerts(&app, &body)).await?;
    take(&app, Kind::Alertmanager, sender, content).await.map(|(_, taken)| taken)
}

/// The sender of this name, if permitted.
fn expected<'w>(known: &'w Webhooks, name: &str) -> Result<(Kind, &'w Sender), ApiError> {
    let Some(kind) = Kind::of_word(name) else {
        let meant = nearest(name, Kind::words()).map_or_else(
            || format!("known senders: {}", Kind::list()),
            |meant| format!("did you mean `{meant}`?"),
        );
        let message = format!("unknown sender `{}`; {meant}", strip_text(name));
        return Err(ApiError::new(StatusCode::NOT_FOUND, message));
    };
    let missing = || {
        let message = format!(
            "webhooks of `{kind}` are disabled: set `enabled = true` in [webhooks.{kind}] of aside.toml"
        );
        ApiError::new(StatusCode::NOT_FOUND, message)
    };
    known.senders.get(&kind).map(|sender| (kind, sender)).ok_or_else(missing)
}

fn unsigned(kind: Kind) -> ApiError {
    let message = format!(
        "send a token with the scope `publish`, or sign with the secret of `secret_file` in [webhooks.{kind}]"
    );
    ApiError::new(StatusCode::UNAUTHORIZED, message)
}

/// Logs the reason, and answers without it: the caller must not see the path.
fn unusable(kind: Kind, error: &io::Error) -> ApiError {
    tracing::error!(%kind, %error, "the secret of a webhook sender cannot be read, so its webhooks are refused");
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "the secret cannot be read; the log has the reason")
}

fn text_of(body: &Bytes) -> Result<&str, ApiError> {
    let text = std::str::from_utf8(body);
    text.map_err(|error| ApiError::bad(FieldError::whole(format!("is not UTF-8: {error}"))))
}

fn no_json(error: &serde_json::Error, body: &[u8]) -> ApiError {
    let hint = if body.starts_with(b"payload=") { "; have it sent as application/json" } else { "" };
    ApiError::bad(FieldError::whole(format!("is not JSON: {error}{hint}")))
}

/// Errors: the body is no list of alerts, or all of them are invalid.
fn read_alerts(app: &App, body: &Bytes) -> Result<Content, ApiError> {
    let alerts = webhook::alerts::read(text_of(body)?, (app.wall)());
    let alerts = alerts.map_err(|error| ApiError::bad(FieldError::whole(error.to_string())))?;
    let mut content = Content::default();
    for alert in alerts {
        match alert {
            Ok(Alert { id, opposite, said }) => {
                content.reports.push(Report { id, opposite: Some(opposite), said });
            }
            Err(refused) => content.refused.push(refused),
        }
    }
    match content.refused.first().filter(|_| content.reports.is_empty()) {
        Some(first) => Err(ApiError::bad(FieldError::whole(first.to_string()))),
        None => Ok(content),
    }
}

fn numbered(refused: Refused) -> NumberedError {
    let Refused { index, field, message } = refused;
    let error = ErrorView { field: Some(format!("alerts[{index}].{field}")), message };
    NumberedError { number: index as u64 + 1, error }
}

/// Publishes the events, each with its id.
async fn take(
    app: &App,
    kind: Kind,
    sender: &Sender,
    content: Content,
) -> Result<(StatusCode, Json<Taken>), ApiError> {
    let config = app.config.state();
    let event = |id: String, said: EventContent| Event {
        id: id.into(),
        severity: said
            .severity
            .unwrap_or_else(|| config.severities.default_severity(said.event_type.as_str())),
        event_type: said.event_type,
        source: kind.as_str().into(),
        provenance: Provenance::Remote,
        timestamp: app.now(),
        payload: Payload::from(Value::Object(said.payload)),
        dedupe_key: said.dedupe_key.map(Into::into),
        session: None,
        workspace: sender.workspace.clone(),
        cause: None,
        deliver_after: None,
    };
    let (mut records, reported) = (Records::new(), content.reports.len());
    for Report { id, opposite, said } in content.reports {
        let event = event(id, said);
        checked_name("id", &*event.id).map_err(ApiError::bad)?;
        check_size(event.payload.as_str().len()).map_err(ApiError::bad)?;
        let added = match opposite {
            Some(opposite) => records.change(&event.as_ref(), &opposite),
            None => records.event(&event.as_ref()),
        };
        added?;
    }
    let refused = content.refused.len();
    let errors = content.refused.into_iter().take(ERRORS_MAX).map(numbered).collect();
    let mut taken = Taken { published: 0, duplicates: 0, refused, errors };
    if reported > 0 {
        let appended = app.publisher.publish(records).await?;
        let is_duplicate = |outcome: &Outcome| matches!(outcome, Outcome::Duplicate(_));
        taken.duplicates = appended.outcomes().filter(is_duplicate).count();
        taken.published = reported - taken.duplicates;
    }
    Ok((StatusCode::ACCEPTED, Json(taken)))
}
