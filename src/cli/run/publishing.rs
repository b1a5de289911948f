//! The connection of a run to the daemon, and the warnings about it.

use std::{
    io::Write,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;

use super::task::Task;
use crate::{
    cli::error::refusal,
    client::{Client, ClientError},
    wire::{error::ErrorView, publish::Results},
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

    /// Whether the daemon accepted the event, or each of a list.
    pub(super) fn publish(&self, events: &Value) -> bool {
        let Err(error) = publish(&self.client, events) else { return true };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(state.1, Failure::None) {
            state.1 = Failure::Unreported(error);
        }
        drop(state);
        // A watched command has no end at which the error could be reported.
        if self.task.is_watch {
            self.finish();
        }
        false
    }

    pub(super) fn warn(&self, text: &str) {
        self.say(&format!("warning: {text}"));
    }

    pub(super) fn say(&self, text: &str) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a stderr nobody reads it.
        writeln!(state.0, "aside: {text}").ok();
    }

    /// Reports the failure, unless it was reported.
    pub(super) fn finish(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Failure::Unreported(error) = &state.1 {
            let text = format!("aside: warning: {:?} is not published: {error}", self.task.name);
            writeln!(state.0, "{text}").ok();
            state.1 = Failure::Reported;
        }
    }
}

fn publish(client: &Client, events: &Value) -> Result<(), PublishError> {
    let headers = [("content-type", "application/json")];
    let response = client
        .request("POST", "/v1/events", &headers, events.to_string().as_bytes())
        .map_err(PublishError::Client)?;
    let answer = serde_json::from_slice::<Results>(&response.body).ok();
    let refused = answer.and_then(|answer| answer.results.into_iter().find_map(|verdict| verdict.error));
    match (response.status, refused) {
        (_, Some(error)) => Err(PublishError::Refused(error)),
        (200..=299, None) => Ok(()),
        (status, None) => Err(PublishError::Refused(refusal(status, &response.body))),
    }
}
