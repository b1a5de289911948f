//! Sources: tasks that wait for something outside and publish it.
//!
//! A source decides nothing about events. A fold (a watch) or the configuration defines its work,
//! and the engine handles the published events like any others. A source that fails or panics is
//! restarted, with longer waits each time, and never ends the daemon. To add one, add a file here
//! that implements [`Source`], and a row in `config/producers.rs`.

pub mod ci;
mod folders;
pub mod inputs;
pub mod log;
mod look;
pub mod lsp;
pub mod paths;
pub mod process;
mod running;
pub mod schedule;
pub mod secret;
pub mod sinks;
mod tail;
pub mod troubles;
mod values;
pub mod watching;

use std::{
    convert::Infallible, error::Error, future::pending, io, os::fd::OwnedFd, pin::pin, sync::Arc,
    time::Duration,
};

use futures_util::FutureExt;
use serde_json::json;
use tokio::{
    io::unix::AsyncFd,
    sync::{mpsc::Sender, watch},
    task::JoinSet,
};
use tokio_stream::{Stream, StreamExt};

use crate::{
    causes::with_causes,
    event::{Event, Severity},
    journal::Clock,
    produced::produced,
    publisher::{Publisher, Records},
    time::{Timestamp, duration_millis, short_duration},
};

/// The wait before a failed source is restarted; doubled after each further failure.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// The longest wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(5 * 60);
/// A run of this duration resets the wait.
const IS_WELL_AFTER: Duration = Duration::from_secs(10 * 60);

/// Most events of a source that wait for its earlier ones, or groups of events.
const EVENTS_WAITING_MAX: usize = 32;
/// The wait between two attempts to publish on a full disk.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The clocks of a source.
#[derive(Clone)]
pub struct Clocks {
    /// The journal's, which never steps back.
    pub clock: Clock,
    /// The wall clock, for times that others read.
    pub wall: fn() -> Timestamp,
}

/// Where the tasks of a source put its events.
#[derive(Clone)]
pub(crate) struct Outlet {
    events: Sender<Vec<Event>>,
    clock: Clock,
    wall: fn() -> Timestamp,
}

impl Outlet {
    /// The time of the wall clock at which the journal's was `at`, in the past.
    fn wall_at(&self, at: Timestamp) -> Timestamp {
        let age = duration_millis((self.clock)().since(at));
        Timestamp::from_millis((self.wall)().as_millis().saturating_sub(age))
    }

    /// Publishes an event; waits while the one before is not taken.
    async fn publish(&self, event: Event) {
        self.publish_all(vec![event]).await;
    }

    /// Publishes several events at once.
    async fn publish_all(&self, events: Vec<Event>) {
        // An error means that the source is being stopped.
        self.events.send(events).await.ok();
    }
}

/// Waits for something, and reports it.
pub trait Source: Send + Sync + 'static {
    /// The name in `config/producers.rs`.
    const NAME: &'static str;
    /// Why the source ended.
    type Error: Error + Send + Sync + 'static;

    /// What it reports: events that are published at once. It ends with an error.
    fn events(self: Arc<Self>, clocks: Clocks) -> impl Stream<Item = Result<Vec<Event>, Self::Error>> + Send;
}

/// The events that the tasks of a source put into its outlet, and its error.
fn events_of<E, W: Future<Output = Result<Infallible, E>>>(
    Clocks { clock, wall }: Clocks,
    run: impl FnOnce(Outlet) -> W,
) -> impl Stream<Item = Result<Vec<Event>, E>> {
    produced(EVENTS_WAITING_MAX, move |events| run(Outlet { events, clock, wall })).map(|made| {
        made.map_err(|ended| match ended {
            Ok(never) => match never {},
            Err(error) => error,
        })
    })
}

/// Runs a source until the daemon stops, and restarts it after each failure.
///
/// Errors: none; a failure is logged, published as `source.failed`, and followed by a wait.
pub async fn keep_running<S: Source>(
    source: Arc<S>,
    clocks: Clocks,
    publisher: Publisher,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Infallible> {
    let mut back_off = BACK_OFF_MIN;
    loop {
        let began = (clocks.clock)();
        let mut task = JoinSet::new();
        task.spawn(publish_from(Arc::clone(&source), clocks.clone(), publisher.clone()));
        let ended = tokio::select! {
            ended = task.join_next() => ended,
            // An error means that the daemon's side was dropped, which also means to stop.
            _ = stop.wait_for(|is_stopping| *is_stopping) => return Ok(()),
        };
        let why = match ended {
            Some(Ok(Some(error))) => with_causes(&error),
            Some(Err(error)) => error.to_string(),
            Some(Ok(None)) | None => "it ended".to_owned(),
        };
        let now = (clocks.clock)();
        if now.since(began) >= IS_WELL_AFTER {
            back_off = BACK_OFF_MIN;
        }
        tracing::warn!(source = S::NAME, error = why, "a source failed; it is restarted in {back_off:?}");
        let failed = failed(S::NAME, &why, Some(back_off), now);
        if let Err(error) = publisher.append(Records::build(|records| records.own_event(&failed))).await {
            tracing::error!(%error, "the failure of a source could not be published");
        }
        tokio::select! {
            () = pause(back_off) => {}
            _ = stop.wait_for(|is_stopping| *is_stopping) => return Ok(()),
        }
        back_off = (back_off * 2).min(BACK_OFF_MAX);
    }
}

/// The event that a source failed; `retry_in` is the wait before its restart, `None` if it is not
/// restarted.
fn failed(source: &str, error: &str, retry_in: Option<Duration>, now: Timestamp) -> Event {
    let mut payload = json!({ "source": source, "error": error });
    if let (Some(retry_in), Some(fields)) = (retry_in, payload.as_object_mut()) {
        fields.insert("retry_in".to_owned(), short_duration(retry_in).into());
    }
    let id = format!("failed-{source}-{}", now.as_millis());
    Event::own("source.failed", id, Severity::Warning, payload, now)
}

/// Registers a file for notifications that it is readable.
#[expect(
    deprecated,
    reason = "the form without unsafe code; the file is owned and not replaced, as the other one asks"
)]
fn readiness(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(file)
}

/// Publishes the events of a source, and returns its error; retries on a full disk.
async fn publish_from<S: Source>(source: Arc<S>, clocks: Clocks, publisher: Publisher) -> Option<S::Error> {
    let mut events = pin!(source.events(clocks));
    let mut ended = None;
    while let Some(first) = events.next().await {
        let mut made = Vec::new();
        // What its tasks made meanwhile shares one write.
        let ready = std::iter::from_fn(|| events.next().now_or_never().flatten());
        for next in std::iter::once(first).chain(ready).take(EVENTS_WAITING_MAX) {
            match next {
                Ok(next) => made.extend(next),
                Err(error) => ended = Some(error),
            }
        }
        let records = || Records::build(|records| made.iter().for_each(|event| records.own_event(event)));
        while !made.is_empty()
            && let Err(error) = publisher.publish(records()).await
        {
            tracing::warn!(events = made.len(), %error, "events cannot be published yet");
            pause(RETRY_AFTER).await;
        }
        if ended.is_some() {
            break;
        }
    }
    ended
}

/// Waits for a duration; forever without one.
async fn pause_if(duration: Option<Duration>) {
    match duration {
        Some(duration) => pause(duration).await,
        None => pending().await,
    }
}

/// Waits for a duration. Only sources may do so, because they poll.
async fn pause(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a poll interval is not a deadline of the engine")]
    tokio::time::sleep(duration).await;
}

#[cfg(test)]
mod tests;
