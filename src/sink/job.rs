//! A notice for one sink, and how the sink answered.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Notice, clean_line};
use crate::{
    event::{Event, Severity},
    notification::Sink,
    time::Timestamp,
};

/// The type of the event that says that a sink took a notice.
pub const SENT: &str = "sink.sent";
/// The type of the event that says that a sink did not take a notice.
pub const FAILED: &str = "sink.failed";
/// The type of the event that says that a notice waits for the end of the quiet hours.
pub const WAITS: &str = "sink.waits";
/// Longest error and longest id of a sink that are kept, in characters.
const DETAIL_CHARS_MAX: usize = 200;

/// Something for a sink to do now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// What it is to take.
    pub notice: Arc<Notice>,
    /// Which sink.
    pub sink: Sink,
    /// How often it failed before.
    pub failures: u32,
}

/// How a sink answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answered {
    /// It took the notice, and calls it so.
    Took(Option<String>),
    /// It showed a question, and its user chose this.
    Chose(Arc<str>),
    /// It did not take it.
    Refused {
        /// Why.
        error: String,
        /// Whether it never will.
        is_final: bool,
    },
}

impl Job {
    /// The event that says how the sink answered; published twice, it is known.
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

    /// The event that says that it waits `until` the quiet hours end.
    pub fn waits_event(&self, until: Timestamp, now: Timestamp) -> Event {
        let Self { notice, sink, failures } = self;
        let payload = json!({
            "notice": &*notice.id, "sink": sink.as_str(), "failures": failures, "until": until,
        });
        // It may wait more than once: the hours were changed, or the clock.
        let id = format!("{}:{}:{failures}:waits:{}", notice.id, sink.as_str(), now.as_millis());
        Event::own(WAITS, id, Severity::Debug, payload, now)
    }
}
