//! The task that owns the engine: reads the journal in order, executes the engine's outputs, and
//! wakes it at its deadlines.
//!
//! The loop decides nothing. Every input that changes the engine is appended to the journal and
//! read from there; queries are answered between two slices. A slice is bounded in time, so a query
//! or a deadline never waits for a long backlog.
#![expect(clippy::disallowed_methods, reason = "the one timer of the program is armed here")]

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::{
    clock::Clock,
    fold::{Fold, FoldError},
    projector::Feed,
    snapshots::{Capture, writer::Schedule},
    supervisor::Watchdog,
};
use engine::{
    Engine, Output, RequestId, SUBSCRIBER_FAILED,
    event::{Event, Seq, SessionId},
    exchange::{Answer, InjectionId, ReleaseRecord},
    io::SessionChange,
    records::Records,
};
use jiff::tz::TimeZone;
use journal::{
    AppendError, Closed, Journal, Pace, ReadError, Reader,
    time::{Timestamp, zone::Zone},
};

use crate::{
    api::{EngineView, Pulse, Query, Registry},
    daemon::publisher::Publisher,
};

/// Duration of a slice, independent of the cost of its records. Queries, deadlines and waiting
/// publishers run after it.
const SLICE: Duration = Duration::from_millis(2);
/// Records between two reads of the clock. A read takes 40 ns. A record takes some microseconds, or
/// a millisecond if four templates reach their bounds.
const STEP_RECORDS: usize = 2;
/// The sleep when there is no deadline, because the timer needs a value.
const FAR: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest sleep towards a deadline. The timer does not count while the machine sleeps and does not
/// follow a clock that is set, so the clock is read again.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// Interval of the records that keep a silent session with an attached client open; shorter if
/// sessions close sooner.
const SEEN_EVERY: Duration = Duration::from_secs(60 * 60);
/// How often the time zone of the machine is read: as long as its reader keeps an answer.
const ZONE_READ_EVERY: Duration = Duration::from_secs(5 * 60);
/// How long due work waits for the timer before it is done between two slices: the timer does not
/// fire while records keep arriving.
const TICK_LATE_MAX: Duration = Duration::from_millis(2);
/// Time between two tries to append on a full disk.
pub(super) const FULL_RETRY: Duration = Duration::from_secs(1);

/// Owns the engine and the journal's cursor.
pub(super) struct EventLoop {
    pub(super) fold: Fold,
    pub(super) journal: Journal,
    pub(super) publisher: Publisher,
    pub(super) reader: Reader,
    pub(super) clock: Arc<Clock>,
    /// Reads the monotonic clock, for durations only.
    pub(super) monotonic: fn() -> Duration,
    pub(super) registry: Arc<Registry>,
    pub(super) queries: mpsc::Receiver<Query>,
    /// Records that the loop is running.
    pub(super) pulse: Arc<Pulse>,
    pub(super) feed: Feed,
    pub(super) pace: Pace,
    pub(super) watchdog: Watchdog,
    /// Becomes true when no new input is accepted.
    pub(super) drain: watch::Receiver<bool>,
    /// Records to append, in order. They wait here only while the disk is full; no new input is
    /// accepted then.
    pub(super) outbox: VecDeque<Outgoing>,
    /// When to take snapshots.
    pub(super) schedule: Schedule,
    /// The time zone of the machine.
    pub(super) zone: fn() -> TimeZone,
    /// When the time zone was read last.
    pub(super) zone_read_at: Timestamp,
}

/// Why the loop cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The journal cannot be read.
    #[error("the journal cannot be read")]
    Read(#[from] ReadError),
    /// The journal was closed while the loop followed it.
    #[error("the journal was closed")]
    Closed(#[from] Closed),
    /// The journal accepts no more records.
    #[error("the journal cannot be written")]
    Append(#[from] AppendError),
    /// A record cannot be applied.
    #[error("a record cannot be applied")]
    Fold(#[from] FoldError),
}

impl EventLoop {
    /// Runs until the daemon drains, then brings the engine to the journal's head.
    pub(super) async fn run(mut self) -> Result<(), LoopError> {
        let mut ticked = Seq::ZERO;
        self.publish_all();
        self.queue_zone();
        let (mut is_full, mut due_since) = (self.flush().await?, None);
        while !*self.drain.borrow() {
            let deadline = self.deadline().filter(|_| self.fold.applied >= ticked);
            let now = self.clock.now();
            let is_due = deadline.is_some_and(|at| at <= now);
            due_since = is_due.then(|| due_since.unwrap_or(now));
            if !is_full && due_since.is_some_and(|since| now.since(since) >= TICK_LATE_MAX) {
                is_full = self.tick(&mut ticked).await?;
                due_since = None;
                continue;
            }
            let until_deadline = deadline.map(|at| self.clock.until(at).min(LOOK_AGAIN));
            let wait = if is_full { Some(FULL_RETRY) } else { until_deadline };
            let awake_at = (self.monotonic)();
            self.watchdog.say(awake_at);
            let wait = self.watchdog.until_next(wait, awake_at);
            self.pulse.wait();
            tokio::select! {
                _ = self.drain.changed() => {}
                Some(query) = self.queries.recv() => {
                    self.pulse.begin();
                    // A client that makes a decision and then queries must see its effect.
                    is_full |= self.catch_up().await?;
                    let (applied, now) = (self.fold.applied, self.clock.now());
                    query(&EngineView { engine: &self.fold.engine, applied, now });
                    give_way_to_answered().await;
                }
                Some(subscription) = self.feed.subscription() => self.feed.start(subscription, &mut self.fold),
                lost = self.registry.lost() => {
                    self.pulse.begin();
                    self.queue_lost(lost);
                    is_full = self.flush().await?;
                }
                waited = self.reader.wait() => {
                    self.pulse.begin();
                    waited?;
                    self.consume_slice().await?;
                    self.queue_seen();
                    self.queue_zone();
                    is_full = self.flush().await?;
                    if self.schedule.is_due(self.fold.applied) {
                        self.take_snapshot().await;
                    }
                }
                () = tokio::time::sleep(wait.unwrap_or(FAR)), if wait.is_some() => {
                    self.pulse.begin();
                    self.queue_seen();
                    self.queue_zone();
                    is_full = self.flush().await?;
                    // A tick before its deadline would change nothing, and would repeat at once.
                    if !is_full && deadline.is_some_and(|at| self.clock.until(at).is_zero()) {
                        is_full = self.tick(&mut ticked).await?;
                    }
                }
            }
        }
        self.close_and_catch_up().await
    }

    /// Publishes the initial state for the probes.
    fn publish_all(&mut self) {
        let (knowledge, engine) = (self.registry.knowledge(), &mut self.fold.engine);
        for session in engine.sessions().views().filter(|session| session.is_open) {
            knowledge.publish_open(session.id.clone(), session.harness.workspace.clone());
        }
        publish_changes(&self.registry, engine);
        self.publish_settings();
    }

    /// Publishes the settings of probes and sources in the rules.
    fn publish_settings(&self) {
        let rules = self.fold.engine.rules();
        self.registry.knowledge().publish_settings(Arc::clone(&rules.probes));
        self.registry.sources().publish_settings(&self.fold.outside);
    }

    /// Appends a tick and notes its position; returns whether the disk is too full.
    async fn tick(&self, ticked: &mut Seq) -> Result<bool, LoopError> {
        let tick = self.publisher.append(Records::build(Records::tick)).await;
        let tick = tick.map(|appended| *ticked = appended.last().unwrap_or_default());
        unless_full(tick).map_err(LoopError::from)
    }

    async fn close_and_catch_up(mut self) -> Result<(), LoopError> {
        self.queue_lost(self.registry.take_lost());
        let said = self.publisher.append(Records::build(Records::shutting_down)).await;
        if unless_full(said.map(drop))? {
            tracing::warn!("the disk is full, so open batches are closed after the next start");
        }
        while self.fold.applied < *self.journal.written().borrow() {
            self.catch_up().await?;
        }
        self.take_snapshot().await;
        self.feed.end(&mut self.fold);
        Ok(())
    }

    /// Applies all written records; returns whether the disk is too full for the outputs.
    async fn catch_up(&mut self) -> Result<bool, LoopError> {
        let (head, mut is_full) = (*self.journal.written().borrow(), false);
        while self.fold.applied < head {
            self.consume_slice().await?;
            is_full = self.flush().await?;
        }
        Ok(is_full)
    }

    /// Takes a snapshot between two slices, unless the outbox has records: a snapshot does not
    /// include them.
    async fn take_snapshot(&mut self) {
        if !self.outbox.is_empty() {
            return;
        }
        match Capture::new(&self.fold) {
            Ok(capture) => self.schedule.hand_over(capture, &self.journal).await,
            Err(error) => {
                tracing::error!(%error, "the state cannot be encoded; a start reads more of the journal")
            }
        }
    }

    /// Queues records that these injections were not sent.
    fn queue_lost(&mut self, lost: Vec<(SessionId, InjectionId)>) {
        let undelivered = |(session, injection)| Outgoing::Undelivered { session, injection };
        self.outbox.extend(lost.into_iter().map(undelivered));
    }

    /// Queues a record of the local clock if it differs from the last one.
    fn queue_zone(&mut self) {
        let now = self.clock.now();
        let is_known = self.zone_read_at > Timestamp::ZERO && now.since(self.zone_read_at) < ZONE_READ_EVERY;
        if is_known || !self.outbox.is_empty() {
            return;
        }
        self.zone_read_at = now;
        let zone = Zone::new(&(self.zone)(), now);
        if !self.fold.engine.zone().serves_as(&zone, now) {
            self.outbox.push_back(Outgoing::Zone(zone));
        }
    }

    /// Queues a keep-alive record for each silent session with an attached client.
    fn queue_seen(&mut self) {
        // On a full disk the outbox must not grow.
        if !self.outbox.is_empty() {
            return;
        }
        let (now, engine) = (self.clock.now(), &self.fold.engine);
        let every = SEEN_EVERY.min(engine.rules().sessions.idle_close / 2);
        let is_due = |id: &SessionId| {
            engine
                .sessions()
                .view(id)
                .is_some_and(|session| session.is_open && now.since(session.last_seen) >= every)
        };
        let followed = self.registry.followed(now).into_iter().filter(is_due);
        self.outbox.extend(followed.map(|session| Outgoing::Seen { session }));
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.fold.engine.poll_timeout().map(|(at, _)| at)
    }

    /// Applies written records until none is left or the slice ends.
    async fn consume_slice(&mut self) -> Result<(), LoopError> {
        let (begin, before) = ((self.monotonic)(), self.fold.applied);
        let mut took = Duration::ZERO;
        while took < SLICE && self.consume_step().await? {
            took = (self.monotonic)().saturating_sub(begin);
        }
        let records = self.fold.applied.0 - before.0;
        if let Some(lag_max) = self.pace.note(records, took) {
            self.journal.set_lag_max(lag_max);
        }
        self.publish_settings();
        self.journal.set_untaken(self.fold.engine.sessions().untaken());
        self.journal.consumed(self.fold.applied);
        self.feed.hand_over(&mut self.fold);
        Ok(())
    }

    /// Applies the next `STEP_RECORDS` records; returns whether there were any.
    async fn consume_step(&mut self) -> Result<bool, LoopError> {
        let records = self.reader.next_batch(STEP_RECORDS)?;
        for record in records.iter() {
            self.fold.apply(&record)?;
            self.schedule.note_applied(record.body.len() as u64);
            // Before any answer: the session's next probe must see the changes of this record.
            publish_changes(&self.registry, &mut self.fold.engine);
            let mut has_answer = false;
            while let Some(output) = self.fold.poll_output() {
                has_answer |= matches!(output, Output::Answer { .. });
                self.outbox.extend(act(&self.registry, output));
            }
            self.feed.hand_over_much(&mut self.fold);
            // A handler that waits for an answer must not wait for the end of the slice.
            if has_answer {
                flush(&mut self.outbox, &self.publisher, &self.registry).await?;
                give_way_to_answered().await;
            }
        }
        Ok(!records.is_empty())
    }

    async fn flush(&mut self) -> Result<bool, LoopError> {
        Ok(flush(&mut self.outbox, &self.publisher, &self.registry).await?)
    }
}

/// Yields, so that the handler that was just answered writes its response before the loop
/// continues.
///
/// The runtime runs a task that is woken here on this thread, and no other thread steals it.
/// Without this the handler waits until the loop has no more records: 2.2 of 5.2 ms of a long
/// exchange in a burst (docs/benchmarks.md).
async fn give_way_to_answered() {
    tokio::task::yield_now().await;
}

/// Appends the outbox, and sends each answer once its release is written; returns whether the disk
/// is too full.
async fn flush(
    outbox: &mut VecDeque<Outgoing>,
    publisher: &Publisher,
    registry: &Registry,
) -> Result<bool, AppendError> {
    while let Some(next) = outbox.pop_front() {
        if unless_full(next.append_to(publisher).await)? {
            outbox.push_front(next);
            return Ok(true);
        }
        if let Outgoing::Answer { request, session, answer, .. } = next {
            let injection = answer.injection.as_ref().map(|injection| injection.id);
            let has_left = registry.answer(request, answer);
            let lost = injection.filter(|_| !has_left);
            outbox.extend(lost.map(|injection| Outgoing::Undelivered { session, injection }));
        }
    }
    Ok(false)
}

/// Turns a full disk, which may get space again, into `Ok(true)`.
pub(super) fn unless_full(appended: Result<(), AppendError>) -> Result<bool, AppendError> {
    match appended {
        Ok(()) => Ok(false),
        Err(AppendError::Full(_)) => Ok(true),
        Err(error @ (AppendError::Poisoned(_) | AppendError::Closed)) => Err(error),
    }
}

/// A record to append after a slice.
pub(super) enum Outgoing {
    Event(Event),
    Undelivered {
        session: SessionId,
        injection: InjectionId,
    },
    Seen {
        session: SessionId,
    },
    Zone(Zone),
    /// Sent when its release is written.
    Answer {
        request: RequestId,
        session: SessionId,
        answer: Answer,
        released: Option<ReleaseRecord>,
    },
}

impl Outgoing {
    pub(super) async fn append_to(&self, publisher: &Publisher) -> Result<(), AppendError> {
        let records = Records::build(|records| match self {
            Self::Event(event) => records.own_event(event),
            Self::Undelivered { session, injection } => records.undelivered(session, injection),
            Self::Seen { session } => records.session_seen(session),
            Self::Zone(zone) => records.zone(zone),
            Self::Answer { released: Some(released), .. } => records.released(released),
            Self::Answer { released: None, .. } => {}
        });
        if records.is_empty() {
            return Ok(());
        }
        publisher.append(records).await.map(drop)
    }
}

/// Publishes, for probes and sources, the changes in the engine since the last call.
fn publish_changes(registry: &Registry, engine: &mut Engine) {
    if let Some(changes) = engine.take_known() {
        registry.knowledge().publish(changes);
    }
    let sources = registry.sources();
    if let Some(open) = engine.take_watches() {
        sources.watches.send_replace(open);
    }
    if let Some(outbound) = engine.take_outbound() {
        sources.outbound.send_replace(outbound);
    }
    if let Some(questions) = engine.take_questions() {
        sources.questions.send_replace(questions);
    }
    if let Some(plan) = engine.take_ci_plan() {
        sources.ci.send_replace(plan);
    }
    if let Some(folders) = engine.take_folders() {
        sources.folders.send_replace(folders);
    }
    registry.regions().note_changes(engine.region_changes());
}

/// Executes an output that needs no record; returns the record of any other output.
fn act(registry: &Registry, output: Output) -> Option<Outgoing> {
    match output {
        Output::Record(_) | Output::Made(_) | Output::Said(_) => None,
        Output::Session(session, SessionChange::Closed { .. }) => {
            registry.knowledge().publish_closed(&session);
            None
        }
        Output::Session(session, SessionChange::Opened(harness) | SessionChange::Updated(harness)) => {
            registry.knowledge().publish_open(session, harness.workspace);
            None
        }
        Output::Wake(pending) => {
            registry.wake(pending);
            None
        }
        Output::Refuse { request, harness } => {
            registry.refuse(request, harness);
            None
        }
        Output::Publish(event) => {
            log_failure(&event);
            Some(Outgoing::Event(event))
        }
        Output::Answer { request, session, answer, released, .. } if answer.injection.is_some() => {
            Some(Outgoing::Answer { request, session, answer, released })
        }
        Output::Answer { request, answer, .. } => {
            registry.answer(request, answer);
            None
        }
    }
}

/// Logs that a template or `where` failed; subscribers get the event.
fn log_failure(event: &Event) {
    if event.event_type.as_str() == SUBSCRIBER_FAILED {
        let payload = event.payload.value();
        let text = |field: &str| payload.get(field).and_then(Value::as_str).unwrap_or_default();
        let line = payload.get("line").and_then(Value::as_u64);
        tracing::warn!(
            subscriber = text("subscriber"),
            file = text("file"),
            line,
            message = text("message"),
            "a template or `where` failed"
        );
    }
}
