//! The events of one run.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use serde_json::{Value, json};
use uuid::Uuid;

use super::child::Ending;
use journal::time::duration_millis;

/// The source of these events.
const SOURCE: &str = "run";

/// Who decides the scope of a run's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TaskScope {
    /// An option.
    Given,
    /// None: they are for the folder, and its end for the session below whose client it runs.
    Default,
}

/// Fields shared by all events of one run.
pub(super) struct Task {
    pub(super) start_id: String,
    pub(super) name: String,
    pub(super) command: String,
    pub(super) session: Option<String>,
    pub(super) scope: TaskScope,
    /// The session below whose client it runs, if no option decides its scope.
    pub(super) own_session: OnceLock<Arc<str>>,
    pub(super) workspace: Option<String>,
    pub(super) is_watch: bool,
}

impl Task {
    pub(super) fn started(&self) -> Value {
        self.event(&self.start_id, "task.started", json!({ "task": self.name, "command": self.command }))
    }

    pub(super) fn ended(&self, ending: &Ending, duration: Duration) -> Value {
        let mut payload = json!({
            "task": self.name,
            "command": self.command,
            "exit_code": ending.exit_code(),
            "duration_ms": duration_millis(duration),
            "tail": ending.last_lines(),
        });
        if let (Some(signal), Some(payload)) = (ending.signal(), payload.as_object_mut()) {
            payload.insert("signal".to_owned(), signal.into());
        }
        let event_type = if ending.exit_code() == 0 { "task.completed" } else { "task.failed" };
        let mut event = self.caused(&Uuid::now_v7().to_string(), event_type, payload);
        if let (Some(session), Some(event)) = (self.own_session.get(), event.as_object_mut()) {
            event.insert("session".to_owned(), session.as_ref().into());
        }
        event
    }

    /// Notes the session below whose client it runs.
    pub(super) fn note_session(&self, session: Arc<str>) {
        // It is asked once.
        self.own_session.set(session).ok();
    }

    /// An event that the start event caused.
    pub(super) fn caused(&self, id: &str, event_type: &str, payload: Value) -> Value {
        let mut event = self.event(id, event_type, payload);
        if let Some(event) = event.as_object_mut() {
            event.insert("cause".to_owned(), self.start_id.as_str().into());
        }
        event
    }

    fn event(&self, id: &str, event_type: &str, payload: Value) -> Value {
        let fields = [
            ("id", Some(id.into())),
            ("type", Some(event_type.into())),
            ("source", Some(SOURCE.into())),
            ("session", self.session.clone().map(Value::from)),
            ("workspace", self.workspace.clone().map(Value::from)),
            ("payload", Some(payload)),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}
