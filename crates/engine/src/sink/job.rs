//! A notice for one sink, and the sink's answer.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Notice, clean_line};
use journal::time::Timestamp;

use crate::{
    event::{Event, Severity},
    notification::Sink,
};

/// The type of the event that a sink accepted a notice.
pub const SENT: &str = "sink.sent";
/// The type of the event that a sink did not accept a notice.
pub const FAILED: &str = "sink.failed";
/// The type of the event that a notice waits for the end of the quiet hours.
pub const WAITS: &str = "sink.waits";
/// Longest kept error and longest kept id of a sink, in characters.
const DETAIL_CHARS_MAX: usize = 200;

/// A notice to deliver to a sink now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The notice.
    pub notice: Arc<Notice>,
    /// The sink.
    pub sink: Sink,
    /// Number of earlier failures.
    pub failures: u32,
}

/// The answer of a sink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It accepted the notice, with this id of its own.
    Took(Option<String>),
    /// It showed a question, and the user chose this.
    Chose(Arc<str>),
    /// It did not accept the notice.
    Refused {
        /// The reason.
        error: String,
        /// Whether a retry is useless.
        is_final: bool,
    },
}

impl Job {
    /// The event of the answer; publishing it twice has no effect, because its id is the same.
    pub fn event(&self, answered: &Answered, now: Timestamp) -> Event {
        let Self { notice, sink, failures } = self;
        let mut payload = Map::new();
        payload.insert("notice".to_owned(), Value::from(&*notice.id));
        payload.insert("sink".to_owned(), sink.as_str().into());
        payload.insert("failures".to_owned(), (*failures).into());
        let (event_type, severity) = match answered {
            Answered::Took(id) => {
                let id = id.as_deref().map(|id| clean_line(id, DETAIL_CHARS_MAX));
                payload.extend(id.map(|id| ("id".to_owned(), id.into())));
                (SENT, Severity::Debug)
            }
            Answered::Chose(_) => (SENT, Severity::Debug),
            Answered::Refused { error, is_final } => {
                payload.insert("error".to_owned(), clean_line(error, DETAIL_CHARS_MAX).into());
                payload.extend(is_final.then(|| ("is_final".to_owned(), json!(true))));
                (FAILED, Severity::Info)
            }
        };
        let id = format!("{}:{}:{failures}", notice.id, sink.as_str());
        Event::own(event_type, id, severity, Value::Object(payload), now)
    }

    /// The event that the job waits `until` the end of the quiet hours.
    pub fn waits_event(&self, until: Timestamp, now: Timestamp) -> Event {
        let Self { notice, sink, failures } = self;
        let payload = json!({
            "notice": &*notice.id, "sink": sink.as_str(), "failures": failures, "until": until,
        });
        // It may wait more than once, because the hours or the clock were changed.
        let id = format!("{}:{}:{failures}:waits:{}", notice.id, sink.as_str(), now.as_millis());
        Event::own(WAITS, id, Severity::Debug, payload, now)
    }
}
