//! What does an exchange cost when 1,000,000 notifications wait over 1,000 sessions, against 1,000?
//!
//! `cargo bench --bench pending`, or with `-- --quick` for a size that only shows that it works. Only the engine is measured: an
//! exchange takes one notification of its session in both cases, so that both write the same text. The two take turns. Also printed is what
//! the process holds for each notification that waits.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod rules;
mod support;

use std::{fs, time::Instant};

use aside::{
    engine::{
        Engine,
        io::{Input, RequestId},
    },
    event::{EventRef, Seq, SessionId, Severity},
    exchange::{Budget, Exchange, Release},
    notification::InjectionPoint,
    time::Timestamp,
};
use support::{Size, machine, quantile};

const SESSIONS: usize = 1_000;
/// How many wait in each session: as many as a queue holds by default, and one besides what the exchanges take.
const EACH: [usize; 2] = [1, 1_000];
/// Exchanges a round and case; each asks another session.
const EXCHANGES: usize = 1_000;

const SUBSCRIBER: &str = r#"[subscriber]
id = "s"
name = "Bench"
description = "One of many"
version = "1.0.0"

[events]
types = ["bench.hot.*"]
severity_filter = "info"

[batching]
window_ms = 0

[output]
priority = "normal"
inject_at = "turn_end"
template = "templates/s.toon.j2"
"#;

fn main() {
    let size = Size::from_args();
    let sessions = size.scale(SESSIONS, 10);
    let mut runs: Vec<Run> = Vec::new();
    for each in EACH.map(|each| size.scale(each, 10)) {
        let before = resident_bytes();
        let mut run = Run::new(sessions, each);
        run.held = (resident_bytes() - before) / (sessions * each) as f64;
        runs.push(run);
    }
    for round in 0..=size.rounds() {
        for run in &mut runs {
            let micros = run.round(size.scale(EXCHANGES, 10));
            if round > 0 {
                run.costs.extend(micros);
            }
        }
    }
    println!("{}", machine());
    println!("{} rounds of {} exchanges over {sessions} sessions", size.rounds(), size.scale(EXCHANGES, 10));
    println!("| pending | p50 us | p99 us | against the first | bytes held for each |");
    println!("|---|---|---|---|---|");
    let base = runs.first().map_or(0.0, |run| quantile(&run.costs, 0.5));
    for run in &runs {
        let [middle, most] = [0.5, 0.99].map(|at| quantile(&run.costs, at));
        println!(
            "| {} | {middle:.1} | {most:.1} | {:.2} | {:.0} |",
            run.each * sessions,
            middle / base,
            run.held
        );
    }
}

/// Sessions with the same number of notifications waiting in each.
struct Run {
    engine: Engine,
    sessions: usize,
    each: usize,
    seq: Seq,
    now: Timestamp,
    costs: Vec<f64>,
    /// Bytes of memory for each notification.
    held: f64,
}

impl Run {
    fn new(sessions: usize, each: usize) -> Self {
        let files = [
            ("aside.toml".to_owned(), "[sessions]\npending_max = 2000000\n".to_owned()),
            ("subscribers/s.toml".to_owned(), SUBSCRIBER.to_owned()),
            ("templates/s.toon.j2".to_owned(), "order: {{ events[0].payload.order }}".to_owned()),
        ];
        let now = Timestamp::from_millis(1_700_000_000_000);
        let engine = rules::engine(files);
        let mut run = Self { engine, sessions, each, seq: Seq::ZERO, now, costs: Vec::new(), held: 0.0 };
        for session in 0..sessions {
            run.exchange(session);
            for _ in 0..each {
                run.event(session);
            }
        }
        run
    }

    /// Microseconds of each exchange; what it took is put back by a new event, outside of the time.
    fn round(&mut self, exchanges: usize) -> Vec<f64> {
        (0..exchanges)
            .map(|index| {
                let session = index % self.sessions;
                let micros = self.exchange(session);
                self.event(session);
                micros
            })
            .collect()
    }

    fn exchange(&mut self, session: usize) -> f64 {
        self.step();
        let carrier = self.seq.to_string();
        let mut exchange = Exchange::new(id(session), InjectionPoint::TurnStart, &carrier);
        exchange.budget = Budget { max_notifications: Some(1), ..Budget::default() };
        let input = Input::Exchange {
            seq: self.seq,
            request: RequestId(self.seq.0),
            exchange,
            release: Release::Decide,
        };
        let begin = now();
        self.engine.handle(input, self.now);
        while self.engine.poll_output().is_some() {}
        begin.elapsed().as_secs_f64() * 1e6
    }

    fn event(&mut self, session: usize) {
        self.step();
        let (name, payload, session) =
            (self.seq.to_string(), format!(r#"{{"order":{}}}"#, self.seq), id(session));
        let event = EventRef {
            id: &name,
            event_type: "bench.hot.order",
            source: "bench",
            provenance: aside::event::Provenance::Harness,
            severity: Severity::Info,
            timestamp: self.now,
            payload: &payload,
            dedupe_key: None,
            session: Some(session.as_str()),
            workspace: None,
            cause: None,
        };
        self.engine.handle(Input::Event { seq: self.seq, event }, self.now);
        while self.engine.poll_output().is_some() {}
    }

    fn step(&mut self) {
        self.seq = self.seq.next();
        self.now = Timestamp::from_millis(self.now.as_millis() + 1);
    }
}

fn id(session: usize) -> SessionId {
    SessionId::new(&format!("session-{session}"))
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn now() -> Instant {
    Instant::now()
}

/// What the process holds in memory.
fn resident_bytes() -> f64 {
    const PAGE: f64 = 4_096.0;
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * PAGE
}
