//! What do rules in force cost: 256 silences, 4,096 inhibitions and 4,096 counters, none of which
//! concerns the event at hand?
//!
//! `cargo bench --bench all -- in_force`, or with `--quick` for a size that only shows that it works.
//! Only the engine is measured. The same events and exchanges go to an engine without these rules; the
//! two alternate. Then a silence begins while 100,000 notifications are pending: the engine takes no
//! other input meanwhile, so no exchange waits longer.

use engine::{
    Engine,
    event::{EventRef, Provenance, Seq, SessionId, Severity},
    exchange::{Budget, Exchange, Release},
    hold::SilenceId,
    io::{Input, RequestId},
    notification::{InjectionPoint, SubscriberId},
    pipeline::silence::{Matchers, Silence},
};
use journal::time::Timestamp;

use crate::{
    fed::now,
    report::row,
    rules,
    support::{Size, machine, quantile},
};

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
    let cases = [(PLAIN.to_owned(), Silent::Nothing, "none")].into_iter().chain(
        [Silent::Others, Silent::OwnExpressions].map(|silent| {
            let name = if silent == Silent::Others { "256 silences of others" } else { "256 expressions" };
            (format!("{PLAIN}{RULES}"), silent, name)
        }),
    );
    let mut runs: Vec<(Run, &str)> =
        cases.map(|(rules, silent, name)| (Run::new(&rules, silent, size), name)).collect();
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
    for (run, name) in runs.iter().skip(1) {
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

/// An engine, its position and its time.
struct Run {
    engine: Engine,
    seq: Seq,
    now: Timestamp,
    /// Microseconds of an event and of an exchange, one pair a round.
    costs: Vec<(f64, f64)>,
}

impl Run {
    fn new(subscriber: &str, silent: Silent, size: Size) -> Self {
        let settings = ("aside.toml".to_owned(), "[sessions]\npending_max = 2000000\n".to_owned());
        let engine = rules::engine([settings, ("subscribers/s.toml".to_owned(), subscriber.to_owned())]);
        let now = Timestamp::from_millis(1_700_000_000_000);
        let mut run = Self { engine, seq: Seq::ZERO, now, costs: Vec::new() };
        run.exchange("bench");
        if silent != Silent::Nothing {
            for number in 0..size.scale(INHIBITIONS, 10) {
                run.event("bench.zone.down", None, number, &format!("z{number}"));
                run.event("bench.hot.order", Some("nobody"), number, "eu");
            }
        }
        for number in 0..if silent == Silent::Nothing { 0 } else { SILENCES } {
            run.silence(number, silent);
        }
        for number in 0..size.scale(PENDING, 10) {
            run.event("bench.hot.order", Some("bench"), 1_000_000 + number, "eu");
        }
        run
    }

    fn silence(&mut self, number: usize, silent: Silent) {
        let zone = Some(format!("payload.zone == 'z{number}'").into());
        let matchers = match silent {
            Silent::Nothing => return,
            Silent::Others => Matchers {
                subscriber: Some(SubscriberId::new(&format!("other{number}"))),
                condition: zone,
                ..Matchers::default()
            },
            Silent::OwnExpressions => {
                Matchers { subscriber: Some(SubscriberId::new("s")), condition: zone, ..Matchers::default() }
            }
        };
        self.begin(&format!("s{number}"), matchers);
    }

    fn begin(&mut self, id: &str, matchers: Matchers) {
        let until = Timestamp::from_millis(self.now.as_millis() + 7_200_000);
        let silence =
            Silence { id: SilenceId::new(id), matchers, until, by: "user".into(), comment: "".into() };
        self.handle(Input::Silenced(silence.into()));
    }

    /// Microseconds of an event, and of an exchange that takes one of those that are pending.
    fn round(&mut self, events: usize) -> (f64, f64) {
        let (mut of_events, mut of_exchanges) = (0.0, 0.0);
        for _ in 0..events {
            let begin = now();
            self.exchange("bench");
            of_exchanges += begin.elapsed().as_secs_f64();
            let number = usize::try_from(self.seq.0).expect("it fits");
            let begin = now();
            self.event("bench.hot.order", Some("bench"), 2_000_000 + number, "eu");
            of_events += begin.elapsed().as_secs_f64();
        }
        (of_events * 1e6 / events as f64, of_exchanges * 1e6 / events as f64)
    }

    fn event(&mut self, event_type: &str, session: Option<&str>, number: usize, zone: &str) {
        self.step();
        let (seq, name) = (self.seq, self.seq.to_string());
        let payload = format!(r#"{{"order":{number},"item":"cup","zone":"{zone}"}}"#);
        let event = EventRef {
            id: &name,
            event_type,
            source: "bench",
            provenance: Provenance::Local,
            severity: Severity::Info,
            timestamp: self.now,
            payload: &payload,
            dedupe_key: None,
            session,
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        self.handle(Input::Event { seq, event });
    }

    fn exchange(&mut self, session: &str) {
        self.step();
        let exchange = Exchange {
            budget: Budget { max_notifications: Some(1), ..Budget::default() },
            ..Exchange::new(SessionId::new(session), InjectionPoint::TurnStart, &self.seq.to_string())
        };
        let (seq, request) = (self.seq, RequestId(self.seq.0));
        self.handle(Input::Exchange { seq, request, exchange: exchange.into(), release: Release::Decide });
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

/// Milliseconds that the engine takes to begin a silence of everything that is pending in so many
/// sessions.
fn began_in_ms(sessions: usize) -> f64 {
    let mut run = Run::new(PLAIN, Silent::Nothing, Size::Quick);
    for session in 0..sessions {
        let name = format!("session-{session}");
        run.exchange(&name);
        for number in 0..PENDING {
            run.event("bench.hot.order", Some(&name), number, "eu");
        }
    }
    let matchers = Matchers { subscriber: Some(SubscriberId::new("s")), ..Matchers::default() };
    let begin = now();
    run.begin("all", matchers);
    begin.elapsed().as_secs_f64() * 1e3
}
