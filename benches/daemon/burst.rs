//! What does a burst of 100,000 events do to the memory, and to exchanges during it?

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

const EVENTS: usize = 100_000;
const BATCH: usize = 1_000;
const SOURCES: [&str; 2] = ["one", "two"];

pub(crate) fn run(size: Size) {
    println!("| matching | events/s | exchanges | p50 ms | p99 ms | most ms | most memory MB |");
    println!("|---|---|---|---|---|---|---|");
    for (name, matching) in [("none", Matching::None), ("5 %", Matching::Few), ("all", Matching::All)] {
        let (mut millis, mut memory, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..size.rounds() {
            let home = Home::new(&[]);
            let daemon = home.serve();
            Connection::new(home.connect()).exchange("bench", 0);
            let events = size.scale(EVENTS, 50);
            let bodies = SOURCES.map(|source| bodies(source, matching, events / SOURCES.len()));
            let begin = Instant::now();
            millis.extend(burst(&home, &bodies));
            rates.push(events as f64 / begin.elapsed().as_secs_f64());
            memory.push(daemon.megabytes("VmHWM"));
        }
        let ([p50, p99, most], memory) = (exchanges::spread(&millis), quantile(&memory, 0.5));
        println!(
            "| {name} | {:.0} | {} | {p50:.2} | {p99:.2} | {most:.2} | {memory:.0} |",
            quantile(&rates, 0.5),
            millis.len()
        );
        let what = format!("burst of 100,000 events, {name} of them matching");
        let measured = format!("{memory:.0} MB; {p99:.1} ms");
        row("14", &what, "RSS 128 MB; an exchange 20 ms p99", &measured, memory <= 128.0 && p99 <= 20.0);
    }
}

/// A batch and its number of events.
type Batch = (Vec<u8>, usize);

/// Made before the burst, which would be slower otherwise.
fn bodies(source: &'static str, matching: Matching, events: usize) -> Vec<Batch> {
    let mut made = Events::new(source, matching);
    let batch = BATCH.min(events);
    (0..events / batch).map(|_| (made.batch(batch).to_vec(), batch)).collect()
}

/// Publishes over two connections and makes exchanges meanwhile; returns the milliseconds of each
/// exchange.
fn burst(home: &Home, bodies: &[Vec<Batch>; 2]) -> Vec<f64> {
    let has_ended = AtomicBool::new(false);
    let connections = bodies.each_ref().map(|bodies| (bodies, Connection::new(home.connect())));
    thread::scope(|scope| {
        let publishing = connections.map(|(bodies, mut connection)| {
            scope.spawn(move || bodies.iter().for_each(|(body, batch)| connection.publish(body, *batch)))
        });
        let exchanging = scope.spawn(|| exchanges::until(home, &has_ended, 0, Duration::ZERO));
        for publishing in publishing {
            publishing.join().expect("everything is taken");
        }
        has_ended.store(true, Ordering::Relaxed);
        exchanging.join().expect("every exchange is answered")
    })
}
