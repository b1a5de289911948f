//! What do rules in force cost: 256 silences, 4,096 inhibitions and 4,096 counters, none of which
//! concerns the event at hand?
//!
//! `cargo bench --bench all -- in_force`, or with `--quick` for a size that only shows that it works.
//! Only the engine is measured. The same events and exchanges go to an engine without these rules; the
//! two alternate. Then a silence begins while 100,000 notifications are pending: the engine takes no
//! other input meanwhile, so no exchange waits longer.

use std::time::Duration;

use engine::{
    hold::SilenceId,
    io::Input,
    notification::SubscriberId,
    pipeline::silence::{Matchers, Silence},
};
use journal::time::Timestamp;

use crate::{
    fed::{Fed, now},
    report::row,
    rules,
    support::{Size, machine, quantile},
};

const SESSION: &str = "bench";
const SILENCES: usize = 256;
const INHIBITIONS: usize = 4_096;
/// Also the number of counters.
const PENDING: usize = 1_000;
const SESSIONS: usize = 100;
const EVENTS: usize = 2_000;

const PLAIN: &str = r#"
[subscriber]
id = "s"
[events]
types = ["bench.hot.order"]
[batching]
window_ms = 0
[limits]
resolved_by = ["bench.hot.done"]
equal = "payload.order"
[output]
priority = "normal"
inject_at = "turn_end"
one = "order: {{ payload.order }} {{ payload.item }} in {{ payload.zone }}"
"#;

const RULES: &str = r#"
[[limits.inhibit]]
by = ["bench.zone.down"]
equal = "payload.zone"
for = "2h"
[threshold]
by = "payload.order"
count = true
at = [1, 3]
within = "24h"
"#;

/// Which silences there are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Silent {
    /// None.
    Nothing,
    /// Those of other subscribers, sources and types.
    Others,
    /// Those of the subscriber, each with an expression that is false.
    OwnExpressions,
}

pub(crate) fn run(size: Size, _: &[String]) {
    let with_rules = format!("{PLAIN}{RULES}");
    let cases = [
        (PLAIN, Silent::Nothing, "none"),
        (&with_rules, Silent::Nothing, "the counters alone"),
        (&with_rules, Silent::Others, "256 silences of others"),
        (&with_rules, Silent::OwnExpressions, "256 expressions"),
    ];
    let mut runs: Vec<(Run, &str)> =
        cases.map(|(rules, silent, name)| (Run::new(rules, silent, size), name)).into();
    for round in 0..=size.rounds() {
        for (run, _) in &mut runs {
            let costs = run.round(size.scale(EVENTS, 20));
            if round > 0 {
                run.costs.push(costs);
            }
        }
    }
    println!("{}", machine());
    println!("| in force | us an event | against none | us an exchange | against none |");
    println!("|---|---|---|---|---|");
    let middle = |run: &Run, part: fn(&(f64, f64)) -> f64| {
        quantile(&run.costs.iter().map(part).collect::<Vec<_>>(), 0.5)
    };
    let of_run = |run: &Run| (middle(run, |costs| costs.0), middle(run, |costs| costs.1));
    let base = runs.first().map_or((0.0, 0.0), |(run, _)| of_run(run));
    for (run, name) in &runs {
        let (event, exchange) = of_run(run);
        println!(
            "| {name} | {event:.2} | {:.2} | {exchange:.2} | {:.2} |",
            event / base.0,
            exchange / base.1
        );
    }
    for (run, name) in runs.iter().skip(2) {
        let (event, exchange) = of_run(run);
        let (event, exchange) = (event / base.0, exchange / base.1);
        let measured = format!("{event:.2} x; {exchange:.2} x");
        let what = format!("an event, and an exchange with {PENDING} pending, with {name}");
        row("21", &what, "1.2 x; 1.5 x", &measured, event <= 1.2 && exchange <= 1.5);
    }
    let sessions = size.scale(SESSIONS, 10);
    let ms = began_in_ms(sessions);
    let what = format!("a silence begins with {} pending", sessions * PENDING);
    row("21", &what, "20 ms", &format!("{ms:.1} ms"), ms <= 20.0);
}

/// An engine with the rules of a case.
struct Run {
    fed: Fed,
    /// Number of orders so far.
    orders: usize,
    /// Microseconds of an event and of an exchange, one pair a round.
    costs: Vec<(f64, f64)>,
}

impl Run {
    fn new(subscriber: &str, silent: Silent, size: Size) -> Self {
        let settings = ("aside.toml".to_owned(), "[sessions]\npending_max = 2000000\n".to_owned());
        let engine = rules::engine([settings, ("subscribers/s.toml".to_owned(), subscriber.to_owned())]);
        let mut run = Self { fed: Fed::of(engine), orders: 0, costs: Vec::new() };
        run.fed.take_one(SESSION);
        if silent != Silent::Nothing {
            for number in 0..size.scale(INHIBITIONS, 10) {
                run.fed.publish("bench.zone.down", &format!(r#"{{"zone":"z{number}"}}"#), None, None);
                run.order("nobody");
            }
            for number in 0..SILENCES {
                run.silence(number, silent);
            }
        }
        for _ in 0..size.scale(PENDING, 10) {
            run.order(SESSION);
        }
        run
    }

    fn silence(&mut self, number: usize, silent: Silent) {
        let subscriber = if silent == Silent::Others { format!("other{number}") } else { "s".to_owned() };
        let condition = Some(format!("payload.zone == 'z{number}'").into());
        let subscriber = Some(SubscriberId::new(&subscriber));
        self.begin(&format!("s{number}"), Matchers { subscriber, condition, ..Matchers::default() });
    }

    /// Begins a silence; returns the time that it took.
    fn begin(&mut self, id: &str, matchers: Matchers) -> Duration {
        let until = Timestamp::from_millis(u64::MAX);
        let silence =
            Silence { id: SilenceId::new(id), matchers, until, by: "user".into(), comment: "".into() };
        let begin = now();
        self.fed.handle(Input::Silenced(silence.into()));
        begin.elapsed()
    }

    /// Microseconds of an event, and of an exchange that takes one of those that are pending.
    fn round(&mut self, events: usize) -> (f64, f64) {
        let (mut of_events, mut of_exchanges) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..events {
            of_exchanges += self.fed.take_one(SESSION);
            of_events += self.order(SESSION);
        }
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / events as f64;
        (micros(of_events), micros(of_exchanges))
    }

    /// Feeds the next order for a session; returns the time that it took.
    fn order(&mut self, session: &str) -> Duration {
        self.orders += 1;
        let payload = format!(r#"{{"order":{},"item":"cup","zone":"eu"}}"#, self.orders);
        self.fed.publish("bench.hot.order", &payload, Some(session), None)
    }
}

/// Milliseconds that the engine takes to begin a silence of everything that is pending in so many
/// sessions.
fn began_in_ms(sessions: usize) -> f64 {
    let mut run = Run::new(PLAIN, Silent::Nothing, Size::Quick);
    for session in 0..sessions {
        let name = format!("session-{session}");
        run.fed.take_one(&name);
        for _ in 0..PENDING {
            run.order(&name);
        }
    }
    let matchers = Matchers { subscriber: Some(SubscriberId::new("s")), ..Matchers::default() };
    run.begin("all", matchers).as_secs_f64() * 1e3
}
