//! Makes facts of an engine's outputs.

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use engine::{
    event::{Seq, first_bytes},
    exchange::Answer,
    io::Output,
    notification::{NotificationId, SubscriberId},
};
use journal::time::Timestamp;

use super::{Delivered, Fact, Made};

/// Longest beginning of a content that is kept, in bytes.
const LINE_BYTES_MAX: usize = 120;
/// Most records whose times are kept, 8 bytes each; of an older event the delay is not known.
const TIMES_MAX: usize = 2_000_000;

/// The state between the outputs of one engine.
#[derive(Debug)]
pub struct Observer {
    /// The times of the newest records without gaps, in milliseconds; the first one is of `first`.
    times: VecDeque<u64>,
    first: Seq,
}

impl Observer {
    /// Before the record `first`.
    pub fn new(first: Seq) -> Self {
        Self { times: VecDeque::new(), first }
    }

    /// Takes the next record, of any kind, before the outputs that it leads to.
    pub fn begin(&mut self, time: Timestamp) {
        if self.times.len() == TIMES_MAX {
            self.times.pop_front();
            self.first = self.first.next();
        }
        self.times.push_back(time.as_millis());
    }

    /// The facts of an output of the record `seq`, whose time is `at`.
    pub fn facts(&self, seq: Seq, at: Timestamp, output: &Output, mut take: impl FnMut(Fact)) {
        match output {
            Output::Made(notification) => take(Fact::Made(made(
                notification.id,
                &notification.subscriber,
                notification.created_at,
                &notification.content,
            ))),
            Output::Answer { answer, released, .. } => {
                take(Fact::Answered { exchange: seq, at, has_text: answer.injection.is_some() });
                if released.is_some() {
                    self.delivered(at, answer).for_each(|one| take(Fact::Delivered(one)));
                }
            }
            Output::Refuse { .. } => take(Fact::Answered { exchange: seq, at, has_text: false }),
            Output::Record(_)
            | Output::Said(_)
            | Output::Session(..)
            | Output::Publish(_)
            | Output::Wake(_) => {}
        }
    }

    fn delivered(&self, at: Timestamp, answer: &Answer) -> impl Iterator<Item = Delivered> {
        let released = answer.injection.iter().flat_map(|injection| &injection.notifications);
        released.filter(|one| !one.redelivered).map(move |one| Delivered {
            id: one.id,
            subscriber: one.subscriber.clone(),
            at,
            tokens: one.tokens,
            delay: one.first_event.and_then(|event| self.delay(event, at)),
        })
    }

    /// The time from an event to `at`; `None` if that of the event is not known.
    pub fn delay(&self, event: Seq, at: Timestamp) -> Option<Duration> {
        let index = usize::try_from(event.0.checked_sub(self.first.0)?).ok()?;
        self.times.get(index).map(|time| at.since(Timestamp::from_millis(*time)))
    }
}

/// A notification with this content.
pub fn made(id: NotificationId, subscriber: &SubscriberId, at: Timestamp, content: &str) -> Made {
    let mut digest = DefaultHasher::new();
    content.hash(&mut digest);
    let line = content.lines().next().unwrap_or_default();
    let line = first_bytes(line, LINE_BYTES_MAX).into();
    Made { id, subscriber: subscriber.clone(), at, digest: digest.finish(), line }
}
