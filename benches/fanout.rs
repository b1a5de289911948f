//! How long does a burst of 200 events for all sessions delay an exchange, with 64, 1,000 and 5,000
//! sessions open?
//!
//! `cargo bench --bench all -- fanout`, or with `--quick` for a size that only shows that it works.
//! Only the engine is measured: from the first event of the burst to the answer of an exchange
//! right behind it, and then exchanges of other sessions, each behind one tick, until every session
//! has everything. Performance target 18: p99 under 20 ms.

use engine::{
    event::SessionId,
    exchange::Exchange,
    io::{Input, WakeReason},
    notification::InjectionPoint,
};

use crate::{
    fed::{Fed, now},
    support::{Size, machine, quantile},
};

/// Most sessions that get a notification at the same time, the target's size, and the maximum of
/// one harness.
const SESSIONS: [usize; 3] = [64, 1_000, 5_000];
/// Bursts per round, each at an engine of its own.
const BURSTS: usize = 5;
/// The folder of all sessions.
const FOLDER: &str = "/work/shop";
const EVENTS: usize = 200;

const OUTPUT: &str = "priority = \"high\"\ninject_at = \"after_tool\"\n";

pub(crate) fn run(size: Size, _: &[String]) {
    let events = size.scale(EVENTS, 10);
    println!("{}", machine());
    println!("{} bursts of {events} events", size.rounds() * BURSTS);
    println!("| sessions | the burst is for | exchange | p50 ms | p99 ms | most ms |");
    println!("|---|---|---|---|---|---|");
    for sessions in SESSIONS.map(|sessions| size.scale(sessions, 10)) {
        for (name, workspace) in [("everybody", None), ("their folder", Some(FOLDER))] {
            let (mut first, mut later) = (Vec::new(), Vec::new());
            for _ in 0..size.rounds() * BURSTS {
                let mut run = Run::new(sessions);
                first.push(run.burst(events, workspace));
                run.rest(&mut later);
            }
            for (which, costs) in [("right behind the burst", &first), ("behind a tick after it", &later)] {
                let [middle, p99, most] = [0.5, 0.99, 1.0].map(|at| quantile(costs, at));
                println!("| {sessions} | {name} | {which} | {middle:.2} | {p99:.2} | {most:.2} |");
            }
        }
    }
}

struct Run {
    fed: Fed,
    sessions: usize,
}

impl Run {
    fn new(sessions: usize) -> Self {
        let mut run = Self { fed: Fed::new("", OUTPUT), sessions };
        (0..sessions).for_each(|session| run.exchange(session));
        run
    }

    /// Milliseconds from the first event of a burst to the answer of an exchange right behind it.
    fn burst(&mut self, events: usize, workspace: Option<&str>) -> f64 {
        let begin = now();
        for _ in 0..events {
            self.fed.event(None, workspace);
        }
        self.exchange(self.sessions - 1);
        begin.elapsed().as_secs_f64() * 1e3
    }

    /// Milliseconds of exchanges behind one tick each, until every session has everything.
    fn rest(&mut self, millis: &mut Vec<f64>) {
        let mut asking = 0;
        while self.fed.engine.poll_timeout().is_some_and(|(_, reason)| reason == WakeReason::Fanout) {
            let begin = now();
            self.fed.handle(Input::Tick);
            self.exchange(asking % self.sessions);
            millis.push(begin.elapsed().as_secs_f64() * 1e3);
            asking += 7;
        }
    }

    fn exchange(&mut self, session: usize) {
        self.fed.exchange(|carrier| {
            let session = SessionId::new(&format!("session-{session}"));
            let mut exchange = Exchange::new(session, InjectionPoint::AfterTool, carrier);
            exchange.harness.workspace = Some(FOLDER.into());
            exchange
        });
    }
}
