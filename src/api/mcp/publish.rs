//! The tool `publish`: an event of an agent, for its own session or the sessions of its folder.
//!
//! What an agent writes is not trusted, as its messages are not: the provenance of the event says so,
//! and its arguments cannot.

use std::sync::Arc;

use engine::{
    Verdict as EngineVerdict,
    draft::{Defaults, Draft, Intake},
    event::{Provenance, SessionId},
    nearest::clause,
    request::{self, FieldError},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use strum::{IntoStaticStr, VariantArray};

use super::caller::Called;
use crate::api::{
    error::ApiError,
    intake::{NewIds, commit},
    matching::{explained, nearest_type},
    naming::known_session,
    wire::event::Results,
};

/// The source of the events of agents.
const SOURCE: &str = "agent";

/// Whom an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, VariantArray, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub(super) enum For {
    /// The session of the agent.
    #[default]
    Session,
    /// The sessions of its folder.
    Workspace,
}

/// The arguments.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    r#type: String,
    #[serde(default)]
    payload: Map<String, Value>,
    severity: Option<Value>,
    #[serde(default, rename = "for", deserialize_with = "request::optional_word")]
    whom: Option<For>,
    session: Option<String>,
}

/// Publishes an event; returns who takes it.
///
/// Errors: an invalid or unknown argument, a reserved type, no session.
pub(super) async fn publish(call: &Called<'_>) -> Result<String, ApiError> {
    let Arguments { r#type, payload, severity, whom, session } =
        request::read(&call.arguments).map_err(ApiError::bad)?;
    let session = call.session(session.as_deref().map(SessionId::new)).await?;
    let (key, address) = match whom.unwrap_or_default() {
        For::Session => ("session", session.to_string()),
        For::Workspace => ("workspace", folder(call, &session).await?),
    };
    let mut event = json!({ "type": r#type, "source": SOURCE, "payload": payload, key: address });
    if let (Some(severity), Some(fields)) = (severity, event.as_object_mut()) {
        fields.insert("severity".to_owned(), severity);
    }
    let body = event.to_string();
    let config = call.app.config.state();
    let defaults = Defaults::api(call.app.now(), Provenance::Agent, &config.severities);
    let mut ids = NewIds::default();
    let draft = Draft::read(body.as_bytes(), &defaults, &mut || ids.next_id()).map_err(ApiError::bad)?;
    let event = Arc::new(draft.as_event().to_event());
    let mut intake = Intake::default();
    intake.take((1, Ok(draft)), None).expect("only a local event needs its caller");
    let verdicts = commit(&mut intake, call.app).await?.into_lone_refusal().map_err(ApiError::bad)?;
    let seq = Results::of(verdicts).results.first().and_then(|result| result.seq).unwrap_or_default();
    let (explanation, known) = explained(call.app, Arc::clone(&event)).await?;
    let takers = explanation.subscribers.iter().filter(|taker| taker.verdict == EngineVerdict::Takes);
    let takers: Vec<&str> = takers.map(|taker| taker.subscriber.as_str()).collect();
    let who = match takers.as_slice() {
        [] => format!("no subscriber takes it{}", clause(nearest_type(&event, &known))),
        [one] => format!("{one} takes it"),
        several => format!("{} take it", several.join(", ")),
    };
    Ok(format!("published {} as {seq}: {who}", event.event_type))
}

/// The folder of a session.
async fn folder(call: &Called<'_>, session: &SessionId) -> Result<String, ApiError> {
    let own = known_session(call.app, session).await?.harness.workspace;
    let folder = own.or_else(|| call.caller.folder.clone()).map(|folder| folder.to_string());
    folder.ok_or_else(|| ApiError::bad(FieldError::new("for", "`workspace` needs a session with a folder")))
}
