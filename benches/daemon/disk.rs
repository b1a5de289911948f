//! How many bytes does an event take on the disk, once its segment is full and sealed?

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use super::{
    events::{EVENT_BYTES, Events, Matching},
    http::Connection,
    process::Home,
};
use crate::{report::row, support::Size};

const EVENTS: usize = 1_000_000;
const BATCH: usize = 1_000;
/// How long the sizes have to stay the same.
const CALM: Duration = Duration::from_secs(3);
const CALM_MAX: Duration = Duration::from_secs(60);

pub(crate) fn run(size: Size) {
    // Small segments in a quick run, so that some are full.
    let segment_bytes = if size == Size::Full { 64 << 20 } else { 1 << 20 };
    let settings = format!("[journal]\nsegment_bytes = {segment_bytes}\n");
    let home = Home::new(&[("aside.toml", &settings)]);
    let _daemon = home.serve();
    let mut connection = Connection::new(home.connect());
    let mut events = Events::new("disk", Matching::Few);
    let mut sent = 0;
    for _ in 0..size.scale(EVENTS, 50) / BATCH {
        let body = events.batch(BATCH);
        sent += body.len();
        connection.publish(body, BATCH);
    }
    let journal = home.state().join("journal");
    let begin = Instant::now();
    let mut before = sealed(&journal);
    while begin.elapsed() < CALM_MAX {
        thread::sleep(CALM);
        let now = sealed(&journal);
        if now == before {
            break;
        }
        before = now;
    }
    let (records, bytes) = before;
    let an_event = bytes as f64 / records as f64;
    println!(
        "{records} records in full segments; an event is {} bytes of JSON, {EVENT_BYTES} by design",
        sent as u64 / events.made
    );
    row("12", "bytes an event on disk, in full segments", "60", &format!("{an_event:.0}"), an_event <= 60.0);
}

/// The number of records in full segments, and the bytes that these take on the disk.
fn sealed(journal: &Path) -> (u64, u64) {
    let entries: io::Result<Vec<_>> = fs::read_dir(journal).expect("the daemon made it").collect();
    let mut segments: Vec<(u64, u64)> = Vec::new();
    for entry in entries.expect("readable") {
        let name = entry.file_name().to_string_lossy().into_owned();
        let first = name.split('.').next().and_then(|first| first.parse().ok());
        // A segment that was removed meanwhile has been replaced by another one.
        if let (Some(first), Ok(metadata)) = (first, entry.metadata()) {
            segments.push((first, metadata.blocks() * 512));
        }
    }
    segments.sort_unstable();
    let (live, _) = segments.pop().expect("there is always a segment");
    let begin = segments.first().map_or(live, |(first, _)| *first);
    (live - begin, segments.iter().map(|(_, bytes)| bytes).sum())
}
