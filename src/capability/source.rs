//! Sources: tasks that wait for something outside and publish it.
//!
//! A source decides nothing about events. A fold (a watch) or the configuration defines its work,
//! and the engine handles the published events like any others. A source that fails or panics is
//! restarted, with longer waits each time, and never ends the daemon. To add one, implement
//! [`Source`] in the folder of its capability, and add a row in `config/producers.rs`.

pub(crate) mod files;
pub mod inputs;
pub mod process;
pub(crate) mod tail;
#[cfg(test)]
mod tests;

use std::{
    any::Any,
    convert::Infallible,
    future::pending,
    io,
    os::fd::OwnedFd,
    panic::{AssertUnwindSafe, resume_unwind},
    path::Path,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use engine::{
    event::{Event, Severity},
    records::Records,
};
use futures_util::FutureExt;
use jiff::tz::TimeZone;
use journal::{
    Clock,
    time::{Timestamp, duration_millis, short_duration},
};
use serde_json::json;
use tokio::{
    io::unix::AsyncFd,
    sync::{
        mpsc::Sender,
        watch::{self, Receiver},
    },
    task::{AbortHandle, JoinError, JoinSet},
};
use tokio_stream::{Stream, StreamExt, wrappers::WatchStream};

use self::inputs::Inputs;
use crate::daemon::{
    causes::with_causes,
    program::Programs,
    publisher::Publisher,
    tasks::{Task, produced},
};

/// The wait before a failed source is restarted; doubled after each further failure.
const BACK_OFF_MIN: Duration = Duration::from_secs(1);
/// The longest wait.
const BACK_OFF_MAX: Duration = Duration::from_secs(5 * 60);
/// A run of this duration resets the wait.
const IS_WELL_AFTER: Duration = Duration::from_secs(10 * 60);

/// Most groups of a source's events that wait to be published, and most that share one write.
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

/// What the sources are made of.
#[derive(Clone, Copy)]
pub struct Parts<'a> {
    /// The newest values from the event loop.
    pub inputs: &'a Inputs,
    /// The programs of the machine.
    pub programs: &'a Arc<Programs>,
    /// The folder of the daemon's state.
    pub state: &'a Path,
    /// When the daemon before this one was alive last.
    pub alive: Timestamp,
    /// The wall clock.
    pub wall: fn() -> Timestamp,
    /// The seconds that the user's clock is ahead of UTC at a time.
    pub utc_offset: fn(Timestamp) -> i32,
    /// The time zone of the user.
    pub zone: fn() -> TimeZone,
}

/// Starts sources.
pub trait Start {
    /// Starts one.
    fn start(&mut self, source: impl Source);
}

/// Where the tasks of a source put its events.
#[derive(Clone)]
pub struct Outlet {
    events: Sender<Vec<Event>>,
    pub(crate) clock: Clock,
    pub(crate) wall: fn() -> Timestamp,
}

impl Outlet {
    /// The time of the wall clock at which the journal's was `at`, in the past.
    pub(crate) fn wall_at(&self, at: Timestamp) -> Timestamp {
        let age = duration_millis((self.clock)().since(at));
        Timestamp::from_millis((self.wall)().as_millis().saturating_sub(age))
    }

    /// Publishes an event; waits while the one before is not taken.
    pub(crate) async fn publish(&self, event: Event) {
        self.publish_all(vec![event]).await;
    }

    /// Publishes several events at once.
    pub(crate) async fn publish_all(&self, events: Vec<Event>) {
        // An error means that the source is being stopped.
        self.events.send(events).await.ok();
    }
}

/// Waits for something, and reports it.
pub trait Source: Send + Sync + 'static {
    /// The name in `config/producers.rs`.
    const NAME: &'static str;

    /// Puts what it reports into `out`, from where it is published at once.
    ///
    /// Errors: why the source ended.
    fn run(self: Arc<Self>, out: Outlet) -> impl Future<Output = Result<Infallible, SourceError>> + Send;
}

/// Why a source ended.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The event loop dropped the sender of an input.
    #[error("the event loop has ended")]
    Ended,
    /// A task of the source panicked; the text says what failed.
    #[error("{0}")]
    Task(&'static str, #[source] JoinError),
    /// A file of the system cannot be used.
    #[error("{0}")]
    System(&'static str, #[source] io::Error),
}

/// Runs a source until the daemon stops, and restarts it after each failure. The groups of events
/// that it handed over before it ended are published.
///
/// Errors: none; a failure is logged, published as `source.failed`, and followed by a wait.
pub fn keep_running<S: Source>(
    source: Arc<S>,
    clocks: Clocks,
    publisher: Publisher,
    stop: watch::Receiver<bool>,
) -> impl Future<Output = Result<(), Infallible>> + Send {
    let begin = move |out| -> Run { Box::pin(Arc::clone(&source).run(out)) };
    keep_reporting(S::NAME, Arc::new(begin), clocks, publisher, stop)
}

/// A run of a source. Every source has this one type.
type Run = Pin<Box<dyn Future<Output = Result<Infallible, SourceError>> + Send>>;

/// The events that a run puts into its outlet, and its error.
type Reports = Pin<Box<dyn Stream<Item = Result<Vec<Event>, Result<Infallible, SourceError>>> + Send>>;

async fn keep_reporting(
    name: &'static str,
    begin: Arc<dyn Fn(Outlet) -> Run + Send + Sync>,
    clocks: Clocks,
    publisher: Publisher,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Infallible> {
    let mut back_off = BACK_OFF_MIN;
    loop {
        let began = (clocks.clock)();
        let mut task = JoinSet::new();
        let (begin, Clocks { clock, wall }) = (Arc::clone(&begin), clocks.clone());
        let run = move |events| begin(Outlet { events, clock, wall });
        let reports = Box::pin(produced(EVENTS_WAITING_MAX, run));
        task.spawn(publish_from(reports, publisher.clone(), stop.clone()));
        let why = match task.join_next().await {
            Some(Ok(Ended::Stopped)) => return Ok(()),
            Some(Ok(Ended::Failed(error))) => with_causes(&error),
            Some(Err(error)) => error.to_string(),
            None => "it ended".to_owned(),
        };
        let now = (clocks.clock)();
        if now.since(began) >= IS_WELL_AFTER {
            back_off = BACK_OFF_MIN;
        }
        tracing::warn!(source = name, error = why, "a source failed; it is restarted in {back_off:?}");
        let failed = failed(name, &why, Some(back_off), now);
        if let Err(error) = publisher.append(Records::build(|records| records.own_event(&failed))).await {
            tracing::error!(%error, "the failure of a source could not be published");
        }
        tokio::select! {
            () = pause(back_off) => {}
            () = stopped(&mut stop) => return Ok(()),
        }
        back_off = (back_off * 2).min(BACK_OFF_MAX);
    }
}

/// Waits until the daemon stops.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the daemon's side was dropped, which also means to stop.
    stop.wait_for(|is_stopping| *is_stopping).await.ok();
}

/// The event that a source failed; `retry_in` is the wait before its restart, `None` if it is not
/// restarted.
pub(crate) fn failed(source: &str, error: &str, retry_in: Option<Duration>, now: Timestamp) -> Event {
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
pub(crate) fn readiness(file: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(file)
}

/// How a run of a source ended.
enum Ended {
    Failed(SourceError),
    /// The daemon stops.
    Stopped,
}

/// What a source does next.
enum Next {
    Made(Vec<Event>),
    Ends(Ended),
    Panics(Box<dyn Any + Send>),
}

/// Publishes the events of a source until it ends or the daemon stops, also those that wait then.
///
/// Panics: with the source, after its events are published.
async fn publish_from(mut reports: Reports, publisher: Publisher, mut stop: watch::Receiver<bool>) -> Ended {
    loop {
        let first = tokio::select! {
            biased;
            () = stopped(&mut stop) => None,
            next = next_of(&mut reports) => Some(next),
        };
        let mut ends = first.is_none().then_some(Next::Ends(Ended::Stopped));
        let mut made = Vec::new();
        // What its tasks made meanwhile shares one write.
        let ready = std::iter::from_fn(|| next_of(&mut reports).now_or_never());
        for next in first.into_iter().chain(ready).take(EVENTS_WAITING_MAX) {
            match next {
                Next::Made(events) => made.extend(events),
                end @ (Next::Ends(_) | Next::Panics(_)) => {
                    ends.get_or_insert(end);
                    break;
                }
            }
        }
        publish(&publisher, &made, &mut stop).await;
        match ends {
            Some(Next::Ends(ended)) => return ended,
            Some(Next::Panics(panic)) => resume_unwind(panic),
            Some(Next::Made(_)) | None => {}
        }
    }
}

/// Cancel-safe.
async fn next_of(reports: &mut Reports) -> Next {
    // After a panic nothing of the source is used any more.
    match AssertUnwindSafe(reports.next()).catch_unwind().await {
        Ok(Some(Ok(made))) => Next::Made(made),
        Ok(Some(Err(Ok(never)))) => match never {},
        Ok(Some(Err(Err(error)))) => Next::Ends(Ended::Failed(error)),
        Ok(None) => Next::Ends(Ended::Failed(SourceError::Ended)),
        Err(panic) => Next::Panics(panic),
    }
}

/// Publishes events; retries on a full disk until the daemon stops.
async fn publish(publisher: &Publisher, made: &[Event], stop: &mut watch::Receiver<bool>) {
    let records = || Records::build(|records| made.iter().for_each(|event| records.own_event(event)));
    while !made.is_empty()
        && let Err(error) = publisher.publish(records()).await
    {
        tracing::warn!(events = made.len(), %error, "events cannot be published yet");
        tokio::select! {
            biased;
            () = stopped(stop) => return,
            () = pause(RETRY_AFTER) => {}
        }
    }
}

/// Waits for a duration; forever without one.
pub(crate) async fn pause_if(duration: Option<Duration>) {
    match duration {
        Some(duration) => pause(duration).await,
        None => pending().await,
    }
}

/// Waits for a duration. Only sources may do so, because they poll.
pub(crate) async fn pause(duration: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a poll interval is not a deadline of the engine")]
    tokio::time::sleep(duration).await;
}

/// The newest value of an input, first and after each change. It ends with the event loop.
pub(crate) fn values<T: Clone + Send + Sync + 'static>(input: &Receiver<T>) -> WatchStream<T> {
    WatchStream::new(input.clone())
}

/// One item for each change of an input, until the event loop ends.
pub(crate) fn changes<T: Clone + Send + Sync + 'static>(
    input: &Receiver<T>,
) -> impl Stream<Item = ()> + Send + Unpin + use<T> {
    let mut input = input.clone();
    // The value before the first change is read by the caller.
    input.mark_unchanged();
    WatchStream::from_changes(input).map(drop)
}

/// Tasks by key; all are aborted when this is dropped.
#[derive(Debug)]
pub(crate) struct Running<K> {
    tasks: JoinSet<()>,
    handles: Vec<(K, AbortHandle)>,
}

impl<K> Default for Running<K> {
    fn default() -> Self {
        Self { tasks: JoinSet::new(), handles: Vec::new() }
    }
}

impl<K: PartialEq + Clone> Running<K> {
    /// Aborts the tasks whose keys are not in `wanted`, and starts a task for each new key.
    pub(crate) fn renew<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        wanted: &[K],
        run: impl Fn(K) -> F,
    ) {
        self.keep(|key| wanted.contains(key));
        wanted.iter().for_each(|key| self.start(key.clone(), || run(key.clone())));
    }

    /// The keys that were started and kept; their tasks may have ended.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.handles.iter().map(|(key, _)| key)
    }

    /// Aborts the tasks whose keys are not wanted.
    pub(crate) fn keep(&mut self, is_wanted: impl Fn(&K) -> bool) {
        let gone = self.handles.extract_if(.., |(key, _)| !is_wanted(key));
        gone.for_each(|(_, task)| task.abort());
    }

    /// Starts a task, unless its key has one.
    pub(crate) fn start<F: Future<Output = ()> + Send + 'static>(&mut self, key: K, run: impl FnOnce() -> F) {
        if !self.keys().any(|known| *known == key) {
            let task: Task<()> = Box::pin(run());
            self.handles.push((key, self.tasks.spawn(task)));
        }
    }

    /// Waits until a task has ended; forever if there is none.
    ///
    /// Errors: the task panicked; `what` says what failed.
    pub(crate) async fn ended(&mut self, what: &'static str) -> Result<(), SourceError> {
        match self.tasks.join_next().await {
            Some(Err(error)) if error.is_panic() => Err(SourceError::Task(what, error)),
            Some(Ok(()) | Err(_)) => Ok(()),
            None => pending().await,
        }
    }
}
