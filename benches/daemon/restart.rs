//! How soon is a daemon ready after `kill -9`, with so many events in its journal?
//!
//! `--events=10000000` sets the number of events; they have 400 bytes each.

use std::{env, fs, time::Instant};

use journal::JournalSettings;

use super::{
    events::{Events, Matching},
    http::Connection,
    process::Home,
};
use crate::{
    report::row,
    support::{Size, quantile},
};

const EVENTS: usize = 1_000_000;
const BATCH: usize = 1_000;
/// The target's number of events.
const MANY: usize = 10_000_000;

pub(crate) fn run(size: Size) {
    let asked = env::args().find_map(|arg| arg.strip_prefix("--events=")?.parse().ok());
    let count = size.scale(asked.unwrap_or(EVENTS), 100);
    let home = Home::new(&[]);
    let mut daemon = home.serve();
    let mut connection = Connection::new(home.connect());
    connection.exchange("bench", 0);
    let mut events = Events::new("restart", Matching::Few);
    for _ in 0..count.div_ceil(BATCH) {
        connection.publish(events.batch(BATCH), BATCH);
    }
    let unsealed = unsealed(&home);
    let mut millis = Vec::new();
    for _ in 0..size.rounds() {
        daemon.kill();
        let begin = Instant::now();
        daemon = home.serve();
        // The first answer after the start, which is sent once the state is recovered.
        Connection::new(home.connect()).exchange("bench", 1);
        millis.push(begin.elapsed().as_secs_f64() * 1e3);
    }
    let (ready, made) = (quantile(&millis, 0.5), events.made);
    let an_event = ready * 1e3 / made as f64;
    let measured = format!("{ready:.0} ms with {made} events, {an_event:.2} us an event");
    let is_met = an_event <= 0.5 && (ready <= 150.0 || (made as usize) < MANY);
    row(
        "10",
        "ready after kill -9",
        "150 ms with 10 million and snapshots; 0.5 us an event without",
        &measured,
        is_met,
    );
    println!("{unsealed} full segments were not sealed when the daemon was killed");
    println!("the daemon's memory after it: {:.1} MB", daemon.megabytes("VmRSS"));
}

/// The number of full segments that are not sealed.
fn unsealed(home: &Home) -> usize {
    let files = fs::read_dir(home.state().join("journal")).expect("a daemon has a journal");
    let sizes = files.filter_map(|file| file.ok()?.metadata().ok()).map(|file| file.len());
    // One of the files is being filled, and one is prepared.
    sizes.filter(|size| *size == JournalSettings::default().segment_bytes).count().saturating_sub(2)
}
