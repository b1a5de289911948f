//! What does an exchange cost with 1,000,000 notifications pending in 1,000 sessions, against
//! 1,000?
//!
//! `cargo bench --bench all -- pending`, or with `--quick` for a size that only shows that it works.
//! Only the engine is measured: an exchange takes one notification of its session in both cases, so
//! that both write the same text. The two alternate. The bench also prints the memory for each
//! pending notification.

use std::fs;

use crate::{
    fed::Fed,
    report::row,
    support::{Size, machine, quantile},
};

const SESSIONS: usize = 1_000;
/// Notifications pending in each session: one, and the default capacity of a queue.
const EACH: [usize; 2] = [1, 1_000];
/// Exchanges per round and case; each is of another session.
const EXCHANGES: usize = 1_000;

const OUTPUT: &str = "priority = \"normal\"\ninject_at = \"turn_end\"\n";

pub(crate) fn run(size: Size, _: &[String]) {
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
    if let [few, many] = runs.as_slice() {
        let [few_p50, many_p50] = [few, many].map(|run| quantile(&run.costs, 0.5));
        let what = format!(
            "exchange with {} pending over {sessions} sessions against {}, p50",
            many.each * sessions,
            few.each * sessions
        );
        let measured = format!("{:.2} x; {many_p50:.1} us", many_p50 / few_p50);
        row("9", &what, "1.5 x; 200 us", &measured, many_p50 <= 1.5 * few_p50 && many_p50 <= 200.0);
    }
}

/// Sessions with equal numbers of pending notifications.
struct Run {
    fed: Fed,
    sessions: usize,
    each: usize,
    costs: Vec<f64>,
    /// Bytes of memory for each notification.
    held: f64,
}

impl Run {
    fn new(sessions: usize, each: usize) -> Self {
        let fed = Fed::new("[sessions]\npending_max = 2000000\n", OUTPUT);
        let mut run = Self { fed, sessions, each, costs: Vec::new(), held: 0.0 };
        for session in 0..sessions {
            run.exchange(session);
            for _ in 0..each {
                run.event(session);
            }
        }
        run
    }

    /// Microseconds of each exchange; a new event replaces the released notification, outside of
    /// the measured time.
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
        self.fed.take_one(&name(session)).as_secs_f64() * 1e6
    }

    fn event(&mut self, session: usize) {
        self.fed.event(Some(&name(session)), None);
    }
}

fn name(session: usize) -> String {
    format!("session-{session}")
}

/// The resident memory of the process, in bytes.
fn resident_bytes() -> f64 {
    const PAGE: f64 = 4_096.0;
    let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * PAGE
}
