//! Delivers notices to the sinks: one at a time to each sink, in their order (docs/design/notices.md).
//!
//! The engine decides which are due. The result of an attempt is published as `sink.sent` or
//! `sink.failed`, and the engine decides what follows. An attempt that takes too long is ended,
//! with the process that it started.

mod apprise;
mod command;
mod desktop;
mod harness;
mod http;
mod kind;
mod log;
mod ntfy;
mod process;
#[cfg(feature = "https")]
mod secure;
mod webhook;

use std::{collections::HashSet, convert::Infallible, path::PathBuf, sync::Arc};

use tokio::{sync::watch, time::timeout};
use tokio_stream::StreamExt;

use self::kind::{Attempt, Kind, failed};
use crate::{
    capability::source::{Outlet, Parts, Running, Source, SourceError, values},
    daemon::program::Programs,
};
use engine::{
    notification::Sink,
    sink::{Answered, Job, Outbound, Settings, question::Chosen},
};
use journal::time::Timestamp;

/// The table of sinks, in the order of their words. To add one, add its file and a row.
const KINDS: &[&Kind] = &[
    &harness::KIND,
    &desktop::KIND,
    &log::KIND,
    &ntfy::KIND,
    &webhook::KIND,
    &apprise::KIND,
    &command::KIND,
];

/// The row of a sink.
fn kind(sink: Sink) -> &'static Kind {
    KINDS.iter().find(|kind| kind.sink == sink).expect("each sink has a row")
}

/// Most questions that wait on the desktop for a choice; the next one is shown when one of them has
/// ended.
const ASKED_MAX: usize = 8;

/// An attempt: the notice, the sink, and the number of earlier failures; and its lane.
type Key = (Arc<str>, Sink, u32, Lane);

/// The attempts that compete: a lane runs a limited number of them at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Lane {
    /// All attempts at this sink, except questions on the desktop: one at once.
    Sink(Sink),
    /// Questions on the desktop, which wait for a choice: at most [`ASKED_MAX`] at once.
    Asked,
}

impl Lane {
    fn of(job: &Job) -> Self {
        let is_asked = job.notice.choices.is_some() && kind(job.sink).waits_for_choice;
        if is_asked { Self::Asked } else { Self::Sink(job.sink) }
    }

    const fn tries_max(self) -> usize {
        match self {
            Self::Sink(_) => 1,
            Self::Asked => ASKED_MAX,
        }
    }
}

/// The source.
#[derive(Debug)]
pub struct Sinks {
    outbound: watch::Receiver<Outbound>,
    /// The folder of the daemon's state.
    state: PathBuf,
    /// Returns the seconds that the user's clock is ahead of UTC.
    utc_offset: fn(Timestamp) -> i32,
    programs: Arc<Programs>,
}

impl Sinks {
    /// Delivers the notices that are due.
    pub fn new(parts: &Parts<'_>) -> Self {
        Self {
            outbound: parts.inputs.outbound.subscribe(),
            state: parts.state.to_path_buf(),
            utc_offset: parts.utc_offset,
            programs: Arc::clone(parts.programs),
        }
    }
}

impl Source for Sinks {
    const NAME: &'static str = "notify";

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        let mut values = values(&self.outbound);
        let mut outbound = values.next().await.ok_or(SourceError::Ended)?;
        let mut running: Running<Key> = Running::default();
        loop {
            let Outbound { settings, jobs } = &outbound;
            let due: HashSet<Key> = jobs.iter().map(key).collect();
            running.keep(|key| due.contains(key));
            for job in jobs.iter() {
                // A finished job stays in the list until the engine has read its result.
                let lane = Lane::of(job);
                if running.keys().filter(|(.., other)| *other == lane).count() < lane.tries_max() {
                    let (settings, sinks, out) = (Arc::clone(settings), Arc::clone(&self), out.clone());
                    running.start(key(job), || deliver(job.clone(), settings, sinks, out));
                }
            }
            outbound = loop {
                tokio::select! {
                    newest = values.next() => break newest.ok_or(SourceError::Ended)?,
                    ended = running.ended("a sink could not be called") => ended?,
                }
            };
        }
    }
}

fn key(job: &Job) -> Key {
    (Arc::clone(&job.notice.id), job.sink, job.failures, Lane::of(job))
}

/// Passes a notice to a sink and publishes the result; in quiet hours publishes until when it
/// waits.
async fn deliver(job: Job, settings: Arc<Settings>, sinks: Arc<Sinks>, out: Outlet) {
    let (now, wall) = ((out.clock)(), (out.wall)());
    // The quiet hours are the user's, and their end is a time of the journal.
    if let Some(until) = settings.waits_until(&job, wall, sinks.utc_offset) {
        return out.publish(job.waits_event(now + until.since(wall), now)).await;
    }
    let kind = kind(job.sink);
    let attempt = Attempt {
        notice: &job.notice,
        settings: &settings,
        programs: &sinks.programs,
        state: &sinks.state,
        out: &out,
    };
    let limit = (kind.limit)(&job.notice, &settings, now);
    let answered = timeout(limit, (kind.send)(&attempt)).await;
    let answered = answered.unwrap_or_else(|_| failed(format!("it took longer than {} s", limit.as_secs())));
    if let Answered::Refused { error, is_final } = &answered {
        let (notice, sink) = (&job.notice.id, job.sink.as_str());
        tracing::debug!(%notice, sink, error, is_final, "a sink did not accept a notice");
    }
    let now = (out.clock)();
    let mut events = vec![job.event(&answered, now)];
    if let Answered::Chose(answer) = answered {
        let by = job.sink.as_str();
        events.push(Chosen { question: Arc::clone(&job.notice.id), answer, by: by.into() }.event(by, now));
    }
    out.publish_all(events).await;
}

/// The destination of a sink, as far as it can be checked without a notice.
///
/// Errors: the reason that it cannot take one.
pub async fn check(sink: Sink, settings: &Settings, programs: &Programs) -> Result<String, String> {
    (kind(sink).check)(settings, programs).await
}

#[cfg(test)]
mod tests;
