//! How many events a second does the daemon accept, each batch synced before it is acknowledged,
//! and how soon is an event durable?
//!
//! One keep-alive connection, one batch at a time; no session is open.

use std::{collections::VecDeque, time::Instant};

use super::{
    events::{EVENT_BYTES, Events, Matching},
    floor::Floors,
    http::Connection,
    process::{Daemon, Home},
};
use crate::{
    report::row,
    support::{Size, quantile},
};

/// Events per batch, events per round, and the share of them that matches.
const LOADS: [(usize, usize, Matching); 4] = [
    (1, 5_000, Matching::Few),
    (100, 200_000, Matching::Few),
    (1_000, 300_000, Matching::Few),
    (1_000, 300_000, Matching::None),
];
const FLUSHES: usize = 200;

pub(crate) fn run(size: Size) {
    let home = Home::new(&[]);
    let daemon = home.serve();
    let mut connection = Connection::new(home.connect());
    let mut loads: Vec<Load> = LOADS
        .iter()
        .map(|(batch, events, matching)| Load::new(*batch, size.scale(*events, 100), *matching))
        .collect();
    let sources = ["load0", "load1", "load2", "load3"];
    let mut events: Vec<Events> =
        loads.iter().zip(sources).map(|(load, source)| Events::new(source, load.matching)).collect();
    let mut floors = Floors::default();
    for (load, events) in loads.iter_mut().zip(&mut events) {
        load.round(&mut connection, &daemon, events);
        load.forget();
    }
    for _ in 0..size.rounds() {
        floors.measure(home.state(), size.scale(FLUSHES, 10));
        for (load, events) in loads.iter_mut().zip(&mut events) {
            load.round(&mut connection, &daemon, events);
        }
    }
    println!("{} rounds, medians, events of {EVENT_BYTES} bytes", size.rounds());
    floors.print();
    println!("daemon's most memory: {:.1} MB", daemon.megabytes("VmHWM"));
    println!("| batch | matching | events/s | ack p50 us | ack p99 us | server CPU us an event |");
    println!("|---|---|---|---|---|---|");
    for load in &loads {
        println!(
            "| {} | {} | {:.0} | {:.0} | {:.0} | {:.2} |",
            load.batch,
            load.matching_name(),
            quantile(&load.rates, 0.5),
            quantile(&load.acks, 0.5),
            quantile(&load.acks, 0.99),
            quantile(&load.costs, 0.5)
        );
    }
    report(&loads, floors.in_place());
}

fn report(loads: &[Load], floor: f64) {
    let [one, _, few, none] = loads else { return };
    let over = quantile(&one.acks, 0.5) - floor;
    let measured = format!("floor {floor:.0} us {over:+.0} us");
    row("2", "one durable publish, p50", "flush floor + 80 us", &measured, over <= 80.0);
    let [none, few] = [none, few].map(|load| quantile(&load.costs, 0.5));
    let measured = format!("{none:.2} / {few:.2} us");
    row(
        "3",
        "server CPU an event, no match / 5 % match",
        "1.5 / 2.5 us",
        &measured,
        none <= 1.5 && few <= 2.5,
    );
}

/// Batches of one size, and their measurements.
pub(crate) struct Load {
    batch: usize,
    events: usize,
    matching: Matching,
    /// Batches in flight at the same time.
    window: usize,
    /// Events a second, one value per round.
    pub(crate) rates: Vec<f64>,
    /// Microseconds until a batch was acknowledged.
    acks: Vec<f64>,
    /// Microseconds of the daemon's CPU time per event, one value per round.
    costs: Vec<f64>,
}

impl Load {
    pub(crate) fn new(batch: usize, events: usize, matching: Matching) -> Self {
        let events = events.max(batch);
        Self { batch, events, matching, window: 1, rates: Vec::new(), acks: Vec::new(), costs: Vec::new() }
    }

    /// Sets the number of batches in flight at the same time, over the same connection.
    pub(crate) fn with_window(self, window: usize) -> Self {
        Self { window, ..self }
    }

    pub(crate) fn round(&mut self, connection: &mut Connection, daemon: &Daemon, events: &mut Events) {
        // Made before the measurement, so that the daemon does not share the processor with their
        // making.
        let bodies: Vec<Vec<u8>> =
            (0..self.events / self.batch).map(|_| events.batch(self.batch).to_vec()).collect();
        let (begin, cpu) = (Instant::now(), daemon.cpu_micros());
        let mut sent_at = VecDeque::new();
        for body in &bodies {
            sent_at.push_back(Instant::now());
            connection.begin_publish(body);
            if sent_at.len() == self.window {
                self.answered(connection, &mut sent_at);
            }
        }
        while !sent_at.is_empty() {
            self.answered(connection, &mut sent_at);
        }
        let sent = (bodies.len() * self.batch) as f64;
        self.rates.push(sent / begin.elapsed().as_secs_f64());
        self.costs.push((daemon.cpu_micros() - cpu) / sent);
    }

    /// Reads the answer to the oldest batch in flight.
    fn answered(&mut self, connection: &mut Connection, sent_at: &mut VecDeque<Instant>) {
        connection.published(self.batch);
        let sent = sent_at.pop_front().expect("one is on its way");
        self.acks.push(sent.elapsed().as_secs_f64() * 1e6);
    }

    /// Discards the measurements of a warm-up round.
    pub(crate) fn forget(&mut self) {
        self.rates.clear();
        self.acks.clear();
        self.costs.clear();
    }

    fn matching_name(&self) -> &'static str {
        match self.matching {
            Matching::None => "none",
            Matching::Few => "5 %",
            Matching::All => "all",
        }
    }
}
