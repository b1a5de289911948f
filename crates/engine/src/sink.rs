//! Notices for the user, from an agent, a subscriber or a person, and their delivery to each sink.
//!
//! A notice is an event (`user.notice`) or a notification with the user as audience. [`Deliveries`]
//! is a fold over events that decides the delivery: the sinks of a notice, the limits, and the
//! retries after a failure. A source carries out due deliveries and reports each with `sink.sent`
//! or `sink.failed`, so a restart continues where it was. A question is a notice with choices;
//! [`Questions`] is the fold of the answers. docs/design/notices.md describes how the parts work
//! together.

mod fold;
mod job;
mod message;
pub mod notice;
pub mod question;
mod settings;
mod text;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::{
    fold::{Deliveries, Verdict},
    job::{ALL_PER_MINUTE_MAX, Answered, FAILED, Job, PER_MINUTE_MAX, SENT, WAITS},
    message::{clean_line, clean_markdown},
    notice::{
        CONTEXT_CHARS_MAX, CONTEXT_DEFAULT, Choices, MESSAGE_CHARS_MAX, NOTICE, NotSent, Notice, Parts,
        Progress, Shown,
    },
    question::{Question, QuestionState, Questions},
    settings::{Common, Filter, Filters, RETRY, Settings, apprise, command, log, ntfy, webhook},
    text::Target,
};
use journal::time::{Timestamp, duration_millis};

use crate::notification::Sink;
use serde::Deserialize;

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

/// The due jobs, and the settings of the sinks.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    /// The settings of the sinks.
    pub settings: Arc<Settings>,
    /// The due jobs, oldest first.
    pub jobs: Arc<[Job]>,
}

/// The time since `then`, such as `40 s ago`.
pub fn seconds_ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} s ago", duration_millis(now.since(then)) / 1_000)
}
