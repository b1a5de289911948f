//! An engine with events and one harness, for the benches that measure the cost of the engine.
//!
//! One session takes everything, in one turn, so that each exchange confirms the injections before
//! it. A run fails if notifications are left, because then it would measure a queue.

use engine::{
    Engine,
    event::{EventRef, Seq, SessionId, Severity},
    exchange::{Exchange, Harness, Release},
    io::{Input, RequestId},
    notification::InjectionPoint,
};
use journal::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// Events between two exchanges: the batches are full then, so that each exchange takes all
/// notifications.
const EXCHANGE_EVERY: u64 = 10;
/// Simulated time between two events; a window of 2 s then never ends before its batch of ten is
/// full.
const EVENT_GAP_MS: u64 = 1;
const SESSION: &str = "bench";

/// One engine with its own rules.
pub(crate) struct Run {
    engine: Engine,
    /// The payload of the event at a position.
    payload: fn(Seq) -> String,
    /// Most notifications left after an exchange: the batches that were not full yet.
    pending_max: u32,
    seq: Seq,
    now: Timestamp,
    /// Microseconds per event, one value per round.
    pub(crate) costs: Vec<f64>,
}

impl Run {
    /// Opens the session of an engine in which `matching` subscribers match each event.
    pub(crate) fn new(engine: Engine, matching: usize, payload: fn(Seq) -> String) -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let pending_max = u32::try_from(2 * matching).expect("few match");
        let mut run = Self { engine, payload, pending_max, seq: Seq::ZERO, now, costs: Vec::new() };
        let opened = Input::SessionOpened { session: SessionId::new(SESSION), harness: Harness::default() };
        run.engine.handle(opened, now);
        run.drain();
        run
    }

    /// Runs a round; returns the microseconds of this thread's CPU time per event.
    pub(crate) fn round(&mut self, events: usize) -> f64 {
        let begin = cpu_micros();
        for _ in 0..events {
            self.seq = self.seq.next();
            self.now = Timestamp::from_millis(self.now.as_millis() + EVENT_GAP_MS);
            let (id, payload) = (self.seq.to_string(), (self.payload)(self.seq));
            self.engine
                .handle(Input::Event { seq: self.seq, event: event(&id, &payload, self.now) }, self.now);
            self.drain();
            if self.seq.0.is_multiple_of(EXCHANGE_EVERY) {
                self.exchange();
            }
        }
        (cpu_micros() - begin) / events as f64
    }

    fn exchange(&mut self) {
        self.seq = self.seq.next();
        let carrier = self.seq.to_string();
        // The exchange names no turn, so that each one confirms the injections before it, as in a
        // conversation.
        let exchange = Exchange::new(SessionId::new(SESSION), InjectionPoint::TurnStart, &carrier).into();
        self.engine.handle(
            Input::Exchange {
                seq: self.seq,
                request: RequestId(self.seq.0),
                exchange,
                release: Release::Decide,
            },
            self.now,
        );
        self.drain();
        let session = self.engine.sessions().view(&SessionId::new(SESSION)).expect("it was opened");
        let (pending, _) = session.injector.pending();
        assert!(
            pending < self.pending_max,
            "what is made has to be taken, or the queue's length is measured: {pending}"
        );
    }

    fn drain(&mut self) {
        while self.engine.poll_output().is_some() {}
    }
}

/// Alternates the runs in each round, after one round to warm up; keeps the costs of each round.
pub(crate) fn take_turns<T>(runs: &mut [(T, Run)], rounds: usize, events: usize) {
    for (_, run) in &mut *runs {
        run.round(events);
    }
    for _ in 0..rounds {
        for (_, run) in &mut *runs {
            let cost = run.round(events);
            run.costs.push(cost);
        }
    }
}

fn event<'a>(id: &'a str, payload: &'a str, now: Timestamp) -> EventRef<'a> {
    EventRef {
        id,
        event_type: "bench.hot.order",
        source: "bench",
        provenance: engine::event::Provenance::Harness,
        severity: Severity::Info,
        timestamp: now,
        payload,
        dedupe_key: None,
        session: Some(SESSION),
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

/// A subscriber that collects ten events before it renders them; `layout` has lines of its
/// `[output]`.
pub(crate) fn subscriber(index: usize, types: &str, dedupe_key: &str, layout: &str) -> (String, String) {
    let text = format!(
        r#"[subscriber]
id = "s{index}"
name = "Bench {index}"
description = "One of many"
version = "1.0.0"

[events]
types = ["{types}"]
severity_filter = "info"

[batching]
window_ms = 2000
max_size = 10
dedupe_key = "{dedupe_key}"
dedupe_window_ms = 1000

[output]
priority = "normal"
inject_at = "turn_end"
{layout}
"#
    );
    (format!("subscribers/s{index}.toml"), text)
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn cpu_micros() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
