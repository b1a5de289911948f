//! The connection of a run to the daemon, and the warnings about it.

use std::{
    io::Write,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hook::client::{Client, ClientError};
use serde_json::Value;

use super::task::{Task, TaskScope};
use crate::{
    api::wire::{
        ErrorView,
        event::{Results, SCOPE_HEADER, SCOPE_OF_CALLER},
    },
    cli::{error::refusal, terminal::one_line},
};

/// Time limit of a publish, which waits for the disk; a command that has ended should not keep its
/// caller longer. After one in vain a run tries no other for some seconds.
pub(super) const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Why an event of the run is not published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("{0}")]
    Client(ClientError),
    #[error("{0}")]
    Refused(ErrorView),
}

/// The connection to the daemon, which warns once when it fails.
pub(super) struct Publishing<'a> {
    client: Client,
    task: &'a Task,
    /// The output for warnings, and the error of the first failed event until it is reported.
    state: Mutex<(&'a mut (dyn Write + Send), Failure)>,
}

/// Whether a publish has failed.
enum Failure {
    None,
    Unreported(PublishError),
    Reported,
}

impl<'a> Publishing<'a> {
    pub(super) fn new(client: &Client, task: &'a Task, warnings: &'a mut (dyn Write + Send)) -> Self {
        Self { client: client.impatient(PUBLISH_TIMEOUT), task, state: Mutex::new((warnings, Failure::None)) }
    }

    /// Publishes the start of the task. If it is one of a session's own, its end is for that session.
    pub(super) fn publish_start(&self) {
        let wants_session = self.task.scope == TaskScope::Default;
        let scope = wants_session.then_some((SCOPE_HEADER, SCOPE_OF_CALLER));
        match publish(&self.client, &self.task.started(), scope.as_slice()) {
            Ok(Some(session)) => self.task.note_session(session),
            Ok(None) => {}
            Err(error) => self.failed(error),
        }
    }

    /// Whether the daemon accepted the event, or each of a list.
    pub(super) fn publish(&self, events: &Value) -> bool {
        match publish(&self.client, events, &[]) {
            Ok(_) => true,
            Err(error) => {
                self.failed(error);
                false
            }
        }
    }

    fn failed(&self, error: PublishError) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(state.1, Failure::None) {
            state.1 = Failure::Unreported(error);
        }
        drop(state);
        // A watched command has no end at which the error could be reported.
        if self.task.is_watch {
            self.finish();
        }
    }

    pub(super) fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    pub(super) fn say(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a stderr nobody reads it.
        writeln!(state.0, "aside: {}", one_line(text)).ok();
    }

    /// Reports the failure, unless it was reported.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Failure::Unreported(error) = &state.1 {
            let text = format!("aside: warning: {:?} is not published: {error}", self.task.name);
            writeln!(state.0, "{}", one_line(&text)).ok();
            state.1 = Failure::Reported;
        }
    }
}

/// Publishes events; returns the session to which the daemon addressed the first.
fn publish(
    client: &Client,
    events: &Value,
    scope: &[(&str, &str)],
) -> Result<Option<Arc<str>>, PublishError> {
    let headers: Vec<_> =
        [("content-type", "application/json")].into_iter().chain(scope.iter().copied()).collect();
    let response = client
        .request("POST", "/v1/events", &headers, events.to_string().as_bytes())
        .map_err(PublishError::Client)?;
    let answer = serde_json::from_slice::<Results>(&response.body).unwrap_or_default();
    let session = answer.results.first().and_then(|verdict| verdict.session.clone());
    let refused = answer.results.into_iter().find_map(|verdict| verdict.error);
    match (response.status, refused) {
        (_, Some(error)) => Err(PublishError::Refused(error)),
        (200..=299, None) => Ok(session),
        (status, None) => Err(PublishError::Refused(refusal(status, &response.body))),
    }
}
