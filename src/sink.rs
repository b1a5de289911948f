//! Word for the user: what an agent, a subscriber or a person wants them to know, and its way to
//! each sink.
//!
//! A notice is an event (`user.notice`) or a notification whose audience the user is. Its way is a
//! fold over events, [`Deliveries`]: which sinks it goes to, what is over a limit, when a sink that
//! failed is tried again. A source carries what is due and reports it with `sink.sent` or
//! `sink.failed`, so a restart goes on where it was. A question is a notice with choices;
//! [`Questions`] is the fold of their answers. docs/design/word.md says how the parts play
//! together.

mod choices;
mod fold;
mod job;
mod limits;
mod not_sent;
mod notice;
pub mod progress;
pub mod question;
mod questions;
mod settings;
mod text;

#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use self::{
    choices::Choices,
    fold::{Deliveries, Verdict},
    job::{Answered, FAILED, Job, SENT, WAITS},
    limits::PER_MINUTE_MAX,
    not_sent::NotSent,
    notice::{CONTEXT_CHARS_MAX, CONTEXT_DEFAULT, MESSAGE_CHARS_MAX, NOTICE, Notice, Parts, Shown},
    progress::Progress,
    question::Question,
    questions::{QuestionState, Questions},
    settings::{Apprise, Log, Ntfy, RETRY, Settings, Url, Webhook},
    text::{Target, clean_line},
};
use crate::{
    event::OWN_SOURCE,
    notification::Sink,
    time::{Timestamp, duration_millis},
};
use serde::Deserialize;

/// The source of these events; others say nothing to the user by them.
pub const SOURCE: &str = OWN_SOURCE;

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

/// What is due, and how the sinks are set.
#[derive(Debug, Clone, Default)]
pub struct Outbound {
    /// How the sinks are set.
    pub settings: Arc<Settings>,
    /// What is due, oldest first.
    pub jobs: Arc<[Job]>,
}

/// How long ago `then` was, such as `40 s ago`.
pub(crate) fn seconds_ago(then: Timestamp, now: Timestamp) -> String {
    format!("{} s ago", duration_millis(now.since(then)) / 1_000)
}
