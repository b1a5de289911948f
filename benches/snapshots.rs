//! What does a snapshot cost for each pending notification: bytes, time to write it, time to read
//! it?
//!
//! `cargo bench --bench all -- snapshots`, or with `--quick` for a size that only shows that it works.
//! A thousand sessions have a thousand notifications pending each: once the same thousand, once a
//! million of their own. The event loop waits for the write. Time is the CPU time of this thread.

use std::sync::Arc;

use engine::{
    Engine, Saved, WakeReason,
    event::{EventRef, Seq, SessionId, Severity},
    exchange::Harness,
    io::Input,
};

use crate::support::{Size, machine, quantile};
use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
};
use journal::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};

const SESSIONS: usize = 1_000;
const PENDING: usize = 1_000;
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

const SUBSCRIBER: &str = r#"
[subscriber]
id = "orders"
[events]
types = ["bench.*"]
[batching]
window_ms = 0
[output]
priority = "normal"
inject_at = "turn_end"
"#;

pub(crate) fn run(size: Size, _: &[String]) {
    let [sessions, pending] = [size.scale(SESSIONS, 20), size.scale(PENDING, 20)];
    println!("{}", machine());
    println!("{} rounds, {sessions} sessions with {pending} pending each, medians", size.rounds());
    println!("| notifications | bytes each | ns to write each | ns to read each | ms to write all |");
    println!("|---|---|---|---|---|");
    for (what, is_shared) in [("shared by all sessions", true), ("each session's own", false)] {
        let engine = engine(sessions, pending, is_shared);
        let (mut writes, mut reads, mut bytes) = (Vec::new(), Vec::new(), 0);
        for _ in 0..size.rounds() {
            let begin = cpu_nanos();
            let written = engine.save(Seq::ZERO, NOW).expect("it can be written");
            let middle = cpu_nanos();
            let saved = Saved::read(&written).expect("just written");
            let again = Engine::restored(Arc::clone(engine.rules()), saved);
            reads.push(cpu_nanos() - middle);
            writes.push(middle - begin);
            bytes = written.len();
            assert!(again.poll_timeout() == engine.poll_timeout(), "it is another one");
        }
        let all = (sessions * pending) as f64;
        let [write, read] = [&writes, &reads].map(|times| quantile(times, 0.5));
        let (each, write_each, read_each) = (bytes as f64 / all, write / all, read / all);
        println!("| {what} | {each:.0} | {write_each:.0} | {read_each:.0} | {:.1} |", write / 1e6);
    }
}

/// An engine whose sessions all have equal numbers of pending notifications.
fn engine(sessions: usize, pending: usize, is_shared: bool) -> Engine {
    let file = SourceFile {
        layer: LayerKind::User,
        name: "subscribers/orders.toml".into(),
        path: "orders.toml".into(),
        text: SUBSCRIBER.into(),
    };
    let mut compiled = compile(&Sources::new([file]), &[]);
    assert!(compiled.report.error_count() == 0, "the rules do not compile:\n{}", compiled.report);
    compiled.rules.sessions.pending_max = u32::MAX;
    let mut engine = Engine::new(Arc::new(compiled.rules));
    let names: Vec<String> = (0..sessions).map(|session| format!("session-{session}")).collect();
    for name in &names {
        let opened = Input::SessionOpened { session: SessionId::new(name), harness: Harness::default() };
        handle(&mut engine, opened);
    }
    let mut seq = Seq::ZERO;
    for _ in 0..pending {
        let to: &mut dyn Iterator<Item = Option<&str>> = if is_shared {
            &mut [None].into_iter()
        } else {
            &mut names.iter().map(|name| Some(name.as_str()))
        };
        for session in to {
            seq = seq.next();
            let (id, payload) =
                (seq.to_string(), format!(r#"{{"order":{seq},"item":"cup","shop":"north"}}"#));
            handle(&mut engine, Input::Event { seq, event: event(&id, &payload, session) });
        }
    }
    // Notifications for many sessions are delivered to them in slices.
    while engine.poll_timeout().is_some_and(|(_, reason)| reason == WakeReason::Fanout) {
        handle(&mut engine, Input::Tick);
    }
    let waiting: usize = engine.sessions().views().map(|session| session.injector.pending().0 as usize).sum();
    assert_eq!(waiting, sessions * pending, "every session waits for as many");
    engine
}

fn handle(engine: &mut Engine, input: Input<'_>) {
    engine.handle(input, NOW);
    while engine.poll_output().is_some() {}
}

fn event<'a>(id: &'a str, payload: &'a str, session: Option<&'a str>) -> EventRef<'a> {
    EventRef {
        id,
        event_type: "bench.order",
        source: "bench",
        provenance: engine::event::Provenance::Harness,
        severity: Severity::Info,
        timestamp: NOW,
        payload,
        dedupe_key: None,
        session,
        workspace: None,
        cause: None,
        deliver_after: None,
    }
}

#[expect(clippy::disallowed_methods, reason = "a bench measures time")]
fn cpu_nanos() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
