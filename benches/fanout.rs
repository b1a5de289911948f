//! How long is an exchange held up by a burst of 200 events for everybody, with 1,000 sessions open?
//!
//! `cargo bench --bench fanout`, or with `-- --quick` for a size that only shows that it works. Only the engine is measured: from the
//! first event of the burst to the answer of an exchange that comes right behind it, and after it exchanges of other sessions, each
//! behind one tick, until every session has everything. Performance target 18: p99 under 20 ms.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod rules;
mod support;

use std::time::Instant;

use aside::{
    engine::{
        Engine,
        io::{Input, RequestId, WakeReason},
    },
    event::{EventRef, Provenance, Seq, SessionId, Severity},
    exchange::{Exchange, Release},
    notification::InjectionPoint,
    time::Timestamp,
};
use support::{Size, machine, quantile};

const SESSIONS: usize = 1_000;
const EVENTS: usize = 200;

const SUBSCRIBER: &str = r#"[subscriber]
id = "s"
name = "Bench"
description = "For everybody"
version = "1.0.0"

[events]
types = ["bench.hot.*"]
severity_filter = "info"

[batching]
window_ms = 0

[output]
priority = "high"
inject_at = "after_tool"
template = "templates/s.toon.j2"
"#;

fn main() {
    let size = Size::from_args();
    let (sessions, events) = (size.scale(SESSIONS, 10), size.scale(EVENTS, 10));
    let (mut first, mut later) = (Vec::new(), Vec::new());
    for _ in 0..size.rounds() {
        let mut run = Run::new(sessions);
        let begin = now();
        for _ in 0..events {
            run.event();
        }
        run.exchange(sessions - 1);
        first.push(begin.elapsed().as_secs_f64() * 1e3);
        let mut asking = 0;
        while run.engine.poll_timeout().is_some_and(|(_, reason)| reason == WakeReason::Fanout) {
            let begin = now();
            run.handle(Input::Tick);
            run.exchange(asking % sessions);
            later.push(begin.elapsed().as_secs_f64() * 1e3);
            asking += 7;
        }
    }
    println!("{}", machine());
    println!("{} rounds of {events} events for {sessions} sessions", size.rounds());
    println!("| exchange | p50 ms | p99 ms |");
    println!("|---|---|---|");
    for (which, costs) in [("right behind the burst", &first), ("behind a tick after it", &later)] {
        let [middle, most] = [0.5, 0.99].map(|at| quantile(costs, at));
        println!("| {which} | {middle:.2} | {most:.2} |");
    }
}

struct Run {
    engine: Engine,
    seq: Seq,
    now: Timestamp,
}

impl Run {
    fn new(sessions: usize) -> Self {
        let files = [
            ("subscribers/s.toml".to_owned(), SUBSCRIBER.to_owned()),
            ("templates/s.toon.j2".to_owned(), "order: {{ events[0].payload.order }}".to_owned()),
        ];
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut run = Self { engine: rules::engine(files), seq: Seq::ZERO, now };
        (0..sessions).for_each(|session| run.exchange(session));
        run
    }

    fn exchange(&mut self, session: usize) {
        self.step();
        let (seq, carrier) = (self.seq, self.seq.to_string());
        let session = SessionId::new(&format!("session-{session}"));
        let exchange = Exchange::new(session, InjectionPoint::AfterTool, &carrier);
        self.handle(Input::Exchange { seq, request: RequestId(seq.0), exchange, release: Release::Decide });
    }

    fn event(&mut self) {
        self.step();
        let (seq, name) = (self.seq, self.seq.to_string());
        let payload = format!(r#"{{"order":{seq}}}"#);
        let event = EventRef {
            id: &name,
            event_type: "bench.hot.order",
            source: "bench",
            provenance: Provenance::Local,
            severity: Severity::Info,
            timestamp: self.now,
            payload: &payload,
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
        };
        self.engine.handle(Input::Event { seq, event }, self.now);
        while self.engine.poll_output().is_some() {}
    }

    fn handle(&mut self, input: Input<'_>) {
        self.engine.handle(input, self.now);
        while self.engine.poll_output().is_some() {}
    }

    fn step(&mut self) {
        self.seq = self.seq.next();
        self.now = Timestamp::from_millis(self.now.as_millis() + 1);
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}
