//! What do reloads do to the exchanges during them?
//!
//! Each reload changes one of many files, so all of them are compiled and new rules come into
//! force. Events are published all the time; the same load without a reload is measured before.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    events::{Events, Matching},
    exchanges,
    http::Connection,
    process::Home,
};
use crate::{
    report::row,
    support::{Size, quantile},
};

const RELOADS: usize = 1_000;
/// Subscribers with a template each, in addition to the shipped ones.
const SUBSCRIBERS: usize = 40;
/// Events of a batch, and the time between two batches: some 2,000 events a second.
const BATCH: usize = 20;
const BATCH_EVERY: Duration = Duration::from_millis(10);
/// Between an exchange and the next.
const PAUSE: Duration = Duration::from_millis(1);
/// Seconds for which the load without reloads is measured.
const WITHOUT_SECONDS: usize = 20;

pub(crate) fn run(size: Size) {
    let home = Home::new(&[]);
    for number in 0..SUBSCRIBERS {
        let id = format!("bench_{number}");
        home.configure(&format!("subscribers/{id}.toml"), &subscriber(&id, 1_000));
        home.configure(&format!("templates/{id}.toon.j2"), TEMPLATE);
    }
    let _daemon = home.serve();
    Connection::new(home.connect()).exchange("bench", 0);
    let seconds = u64::try_from(size.scale(WITHOUT_SECONDS, 10)).expect("few");
    let without = under_load(&home, 1, || thread::sleep(Duration::from_secs(seconds)));
    let mut reloads = Vec::new();
    let with = under_load(&home, 2, || {
        let mut connection = Connection::new(home.connect());
        for number in 1..=size.scale(RELOADS, 100) {
            let window = 1_000 + number;
            home.configure("subscribers/bench_0.toml", &subscriber("bench_0", window));
            let begin = Instant::now();
            connection.send("POST", "/v1/reload", "application/json", b"");
            let (status, answer) = connection.answer();
            reloads.push(begin.elapsed().as_secs_f64() * 1e3);
            assert!(status == 200 && answer.contains("\"changed\":true"), "{status} {answer}");
        }
    });
    println!("| | exchanges | p50 ms | p99 ms | most ms |");
    println!("|---|---|---|---|---|");
    for (name, millis) in [("without reloads", &without), ("with reloads", &with), ("a reload", &reloads)] {
        let [p50, p99, most] = exchanges::spread(millis);
        println!("| {name} | {} | {p50:.2} | {p99:.2} | {most:.2} |", millis.len());
    }
    let [p99, before] = [&with, &without].map(|millis| quantile(millis, 0.99));
    let what = format!("an exchange during {} reloads", reloads.len());
    let measured = format!("{p99:.1} ms; {:.1} times that without reloads", p99 / before);
    row("20", &what, "50 ms p99", &measured, p99 <= 50.0);
}

const TEMPLATE: &str = "{% if count == 1 %}\nbench: {{ events[0].payload.tool_name }}\n{% else %}\n\
                        {{ rows|toon(key=\"bench\") }}\n{% endif %}\n";

fn subscriber(id: &str, window_ms: usize) -> String {
    format!(
        "[subscriber]\nid = \"{id}\"\n[events]\ntypes = [\"ci.check.failed\"]\nwhere = \"payload.n > 1\"\n\
         [batching]\nwindow_ms = {window_ms}\n"
    )
}

/// Publishes and makes exchanges while `act` runs; returns the milliseconds of each exchange.
fn under_load(home: &Home, phase: usize, act: impl FnOnce()) -> Vec<f64> {
    let has_ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut connection = Connection::new(home.connect());
            let mut events = Events::new(if phase == 1 { "one" } else { "two" }, Matching::Few);
            while !has_ended.load(Ordering::Relaxed) {
                connection.publish(events.batch(BATCH), BATCH);
                thread::sleep(BATCH_EVERY);
            }
        });
        let exchanging = scope.spawn(|| exchanges::until(home, &has_ended, phase * 100_000_000, PAUSE));
        act();
        has_ended.store(true, Ordering::Relaxed);
        exchanging.join().expect("exchanges go on")
    })
}
