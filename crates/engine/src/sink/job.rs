//! A notice for one sink, the sink's answer, and the limits per speaker.
//!
//! The limits: six notices a minute, and equal ones once a minute. A second limit counts
//! all speakers together, because a folder is a speaker, and anybody can name folders. Notices over
//! a limit are not sent, only counted.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{NotSent, Notice, clean_line, notice::Keys};
use crate::{
    event::{Event, Severity},
    ledger::Suppressed,
    notification::{Level, Sink},
    sorted::SortedMap,
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

/// Most notices of one speaker that are sent within a minute: more than a person reads.
pub const PER_MINUTE_MAX: usize = 6;
/// Most notices of all speakers together that are sent within a minute.
pub const ALL_PER_MINUTE_MAX: usize = 60;
/// The time window of the limits.
pub(super) const WINDOW: Duration = Duration::from_secs(60);
/// Most remembered speakers; beyond that the least recently active one is evicted.
pub(super) const SPEAKERS_MAX: usize = 256;

/// A notice that is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Passed {
    /// The counts of notices that were not sent before it.
    pub(super) held: NotSent,
    /// When it is sent.
    pub(super) at: Timestamp,
}

/// The recent notices of each speaker.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Limits {
    speakers: SortedMap<Arc<str>, Speaker>,
    /// The times of all sent notices, oldest first; at most [`ALL_PER_MINUTE_MAX`].
    sent: VecDeque<Timestamp>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Speaker {
    /// Sent notices, oldest first; at most [`PER_MINUTE_MAX`].
    sent: VecDeque<Sent>,
    held: NotSent,
    keys: Keys,
    /// The time of the last notice, sent or not.
    last: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    at: Timestamp,
    level: Level,
    context: Arc<str>,
    message: Arc<str>,
    link: Option<Arc<str>>,
}

impl Limits {
    /// Accepts a notice of `speaker`, with the counts of those not sent before it, or counts it as
    /// not sent. A percentage of a known key is limited only by [`PACE`](super::notice::PACE).
    pub(super) fn pass(
        &mut self,
        speaker: &str,
        notice: &Notice,
        now: Timestamp,
    ) -> Result<Passed, Suppressed> {
        if !self.speakers.contains_key(speaker) && self.speakers.len() >= SPEAKERS_MAX {
            self.speakers.pop_least(|known| known.last);
        }
        while self.sent.front().is_some_and(|sent| now.since(*sent) >= WINDOW) {
            self.sent.pop_front();
        }
        let known = self.speakers.get_or_default(speaker.into());
        known.last = now;
        if let Some(at) = notice.progress.as_ref().and_then(|progress| known.keys.next(progress, now)) {
            return Ok(Passed { held: NotSent::default(), at });
        }
        while known.sent.front().is_some_and(|sent| now.since(sent.at) >= WINDOW) {
            known.sent.pop_front();
        }
        let is_equal = |sent: &&Sent| {
            (sent.level, &sent.context, &sent.message, &sent.link)
                == (notice.level, &notice.context, &notice.message, &notice.link)
        };
        // A question that is asked again needs an answer of its own.
        let is_always_new =
            notice.choices.is_some() || notice.progress.as_ref().is_some_and(|of| of.percent.is_some());
        let equal = known.sent.iter().find(is_equal).filter(|_| !is_always_new);
        if let Some(equal) = equal {
            known.held.repeats += 1;
            return Err(Suppressed::Repeat { sent_at: equal.at });
        }
        if let Some(oldest) = known.sent.front().filter(|_| known.sent.len() >= PER_MINUTE_MAX) {
            known.held.rate_limited += 1;
            return Err(Suppressed::RateLimited { retry_at: oldest.at + WINDOW });
        }
        if let Some(oldest) = self.sent.front().filter(|_| self.sent.len() >= ALL_PER_MINUTE_MAX) {
            known.held.rate_limited += 1;
            return Err(Suppressed::RateLimited { retry_at: *oldest + WINDOW });
        }
        self.sent.push_back(now);
        let Notice { level, context, message, link, .. } = notice.clone();
        known.sent.push_back(Sent { at: now, level, context, message, link });
        // A notice that may be replaced must not carry the counts.
        let held = match &notice.progress {
            Some(progress) => {
                known.keys.note(progress, now);
                NotSent::default()
            }
            None => std::mem::take(&mut known.held),
        };
        Ok(Passed { held, at: now })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.speakers.len()
    }
}
