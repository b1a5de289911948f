//! Limits per speaker: six notices a minute, and equal ones once a minute. A second limit counts
//! all speakers together, because a folder is a speaker, and anybody can name folders. Notices over
//! a limit are not sent, only counted.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use super::{NotSent, Notice, progress::Keys};
use journal::time::Timestamp;

use crate::{ledger::Suppressed, notification::Level, sorted::SortedMap};

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
    /// not sent. A percentage of a known key is limited only by [`PACE`](super::progress::PACE).
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
