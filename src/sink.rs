//! Word for the user: what an agent, a subscriber or a person wants them to know, and its way to each sink.
//!
//! A notice is an event (`user.notice`) or a notification whose audience the user is. Its way is a fold over events, [`Deliveries`]: which
//! sinks it goes to, what is over a limit, when a sink that failed is tried again. A source carries what is due and reports it with
//! `sink.sent` or `sink.failed`, so a restart goes on where it was. A question is a notice with choices; [`Questions`] is the fold of
//! their answers. docs/design/word.md says how the parts play together.

mod fold;
mod limits;
mod notice;
pub mod progress;
pub mod question;
mod questions;
mod settings;
mod text;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use self::{
    fold::{Deliveries, Verdict},
    limits::{Held, PER_MINUTE_MAX},
    notice::{Choices, Notice, Parts, Shown},
    progress::Progress,
    question::Question,
    questions::{QuestionState, Questions},
    settings::{Apprise, Log, Ntfy, RETRY, Settings, Url, Webhook},
    text::Target,
};
use crate::{
    event::{Event, OWN_SOURCE, Severity, cut_text, mask_secrets, strip_text},
    notification::Sink,
    time::{Timestamp, duration_millis},
};

/// The type of the event that says something to the user; its payload is a [`Notice`].
pub const NOTICE: &str = "user.notice";
/// The type of the event that says that a sink took a notice.
pub const SENT: &str = "sink.sent";
/// The type of the event that says that a sink did not take a notice.
pub const FAILED: &str = "sink.failed";
/// The type of the event that says that a notice waits for the end of the quiet hours.
pub const WAITS: &str = "sink.waits";
/// The source of these events; others say nothing to the user by them.
pub const SOURCE: &str = OWN_SOURCE;

/// Longest message, in characters; what is longer is cut, with a mark.
pub const MESSAGE_CHARS_MAX: usize = 1_000;
/// Longest context, in characters.
pub const CONTEXT_CHARS_MAX: usize = 64;
/// The context of a notice that names none.
pub const CONTEXT_DEFAULT: &str = "llm";
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

/// The payload of a [`SENT`], [`FAILED`] or [`WAITS`] event.
#[derive(Debug, Deserialize)]
struct Report {
    notice: Arc<str>,
    sink: Sink,
    failures: u32,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    is_final: bool,
    #[serde(default)]
    until: Option<Timestamp>,
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

/// What is due, and how the sinks are set.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    /// How the sinks are set.
    pub settings: Arc<Settings>,
    /// What is due, oldest first.
    pub jobs: Arc<[Job]>,
}

/// One line of `text` without escapes, control characters and secrets, of at most `chars_max` characters and a mark.
pub fn clean_line(text: &str, chars_max: usize) -> String {
    let stripped = strip_text(text);
    let masked = mask_secrets(&stripped);
    let line = masked.split_whitespace().collect::<Vec<_>>().join(" ");
    cut_text(line.into(), chars_max).into_owned()
}

/// How long ago `then` was, such as `40 s ago`.
pub(crate) fn seconds_ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} s ago", duration_millis(now.since(then)) / 1_000)
}
