//! What does an event cost with 10, 100, 1,000 and 10,000 subscribers, of which 5 match?
//!
//! `cargo bench --bench engine`, or with `-- --quick` for a size that only shows that it works. Each event goes to 5
//! pipelines, which batch ten at a time, render and queue; a harness takes what is pending every ten events, and that is a
//! part of the cost. Sizes take turns, so that a busy moment of the machine hits all of them. Time is the CPU time of this
//! thread.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod support;

use std::sync::Arc;

use aside::{
    config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    },
    engine::{
        Engine,
        io::{Input, RequestId},
    },
    event::{EventRef, Seq, SessionId, Severity},
    exchange::{Exchange, Harness},
    notification::InjectionPoint,
    time::Timestamp,
};
use rustix::time::{ClockId, clock_gettime};
use support::{Size, machine, quantile};

const SUBSCRIBERS: [usize; 4] = [10, 100, 1_000, 10_000];
const MATCHING: usize = 5;
/// Events a round and size; a round is then some tens of milliseconds, far above the clock's resolution.
const EVENTS: usize = 20_000;
/// How often a harness asks, in events: whenever the batches are full, so that each exchange takes all there is.
const EXCHANGE_EVERY: u64 = 10;
/// Simulated time between two events; a window of 2 s then never ends before its batch of ten is full.
const EVENT_GAP_MS: u64 = 1;
const SESSION: &str = "bench";
/// What may be left after an exchange: the batches that were not full yet.
const PENDING_MAX: u32 = 2 * MATCHING as u32;

const TEMPLATE: &str = "\
hot[{{ events | length }}]{order,item}:
{% for e in events %}
  {{ e.payload.order }},{{ e.payload.item }}
{% endfor %}
";

fn main() {
    let size = Size::from_args();
    let largest = size.scale(10_000, 100);
    let mut runs: Vec<Run> =
        SUBSCRIBERS.iter().filter(|count| **count <= largest).map(|count| Run::new(*count)).collect();
    let events = size.scale(EVENTS, 20);
    for run in &mut runs {
        run.round(events);
    }
    for _ in 0..size.rounds() {
        for run in &mut runs {
            let cost = run.round(events);
            run.costs.push(cost);
        }
    }
    println!("{}", machine());
    println!("{} rounds of {events} events, {MATCHING} subscribers match, medians", size.rounds());
    println!("| subscribers | us an event | least | most | against {} |", SUBSCRIBERS[0]);
    println!("|---|---|---|---|---|");
    let base = runs.first().map_or(0.0, |run| quantile(&run.costs, 0.5));
    for run in &runs {
        let [least, middle, most] = [0.0, 0.5, 1.0].map(|at| quantile(&run.costs, at));
        println!("| {} | {middle:.2} | {least:.2} | {most:.2} | {:.2} |", run.subscribers, middle / base);
    }
}

/// One engine with its own count of subscribers.
struct Run {
    subscribers: usize,
    engine: Engine,
    seq: Seq,
    now: Timestamp,
    /// Microseconds an event, one a round.
    costs: Vec<f64>,
}

impl Run {
    fn new(subscribers: usize) -> Self {
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut run =
            Self { subscribers, engine: engine(subscribers), seq: Seq::ZERO, now, costs: Vec::new() };
        let opened = Input::SessionOpened { session: SessionId::new(SESSION), harness: Harness::default() };
        run.engine.handle(opened, now);
        run.drain();
        run
    }

    /// Microseconds of this thread's CPU time an event.
    fn round(&mut self, events: usize) -> f64 {
        let begin = cpu_micros();
        for _ in 0..events {
            self.seq = self.seq.next();
            self.now = Timestamp::from_millis(self.now.as_millis() + EVENT_GAP_MS);
            let id = self.seq.to_string();
            let payload = format!(r#"{{"order":{},"item":"cup","shop":"north"}}"#, self.seq);
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
        // No turn is named, so that each exchange confirms what the ones before it released, as in a conversation.
        let exchange = Exchange::new(SessionId::new(SESSION), InjectionPoint::TurnStart, &carrier);
        self.engine
            .handle(Input::Exchange { seq: self.seq, request: RequestId(self.seq.0), exchange }, self.now);
        self.drain();
        let session = self.engine.session(&SessionId::new(SESSION)).expect("it was opened");
        let (pending, _) = session.injector.pending();
        assert!(
            pending < PENDING_MAX,
            "what is made has to be taken, or the queue's length is measured: {pending}"
        );
    }

    fn drain(&mut self) {
        while self.engine.poll_output().is_some() {}
    }
}

fn event<'a>(id: &'a str, payload: &'a str, now: Timestamp) -> EventRef<'a> {
    EventRef {
        id,
        event_type: "bench.hot.order",
        source: "bench",
        severity: Severity::Info,
        timestamp: now,
        payload,
        dedupe_key: None,
        session: Some(SESSION),
        workspace: None,
        cause: None,
    }
}

/// An engine with `subscribers` rules in all, the shipped ones not among them.
fn engine(subscribers: usize) -> Engine {
    let file = |name: &str, text: String| SourceFile {
        layer: LayerKind::User,
        name: name.into(),
        path: name.into(),
        text: text.into(),
    };
    let rules = (0..subscribers).map(|index| file(&format!("subscribers/s{index}.toml"), subscriber(index)));
    let template = file("templates/bench.toon.j2", TEMPLATE.to_owned());
    let sources = Sources::new(rules.chain([template]));
    let compiled = compile(&sources, &[]);
    assert!(
        compiled.report.error_count() == 0,
        "the rules of this bench do not compile:\n{}",
        compiled.report
    );
    Engine::new(Arc::new(compiled.rules))
}

fn subscriber(index: usize) -> String {
    let types = if index < MATCHING { "bench.hot.*".to_owned() } else { format!("bench.cold{index}.*") };
    format!(
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
dedupe_key = "payload.order"
dedupe_window_ms = 1000

[output]
priority = "normal"
inject_at = "turn_end"
template = "templates/bench.toon.j2"
"#
    )
}

fn cpu_micros() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}
