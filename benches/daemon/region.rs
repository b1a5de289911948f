//! How long does an unchanged region take to read, and one that changed, with 10,000 conditions?

use std::time::Instant;

use super::{http::Connection, process::Home};
use crate::{
    report::row,
    support::{Size, quantile},
};

const CONDITIONS: usize = 10_000;
const READS_A_ROUND: usize = 1_000;
/// Reads after each of which something changes.
const CHANGES_A_ROUND: usize = 50;

/// A subscriber of conditions that nobody is notified of.
const HELD: (&str, &str) = (
    "subscribers/bench.toml",
    r#"
[subscriber]
id = "bench"
[events]
types = ["bench.job.failed"]
[batching]
window_ms = 0
[limits]
resolved_by = ["bench.job.passed"]
equal = "payload.job"
[output]
region = "only"
one = "failed: {{ payload.job }}"
"#,
);
const TYPES: (&str, &str) = (
    "events.toml",
    "[[event]]\ntype = \"bench.job.failed\"\nseverity = \"error\"\ndescription = \"A job failed.\"\n\
     [[event]]\ntype = \"bench.job.passed\"\nseverity = \"info\"\ndescription = \"A job passed.\"\n",
);

pub(crate) fn run(size: Size) {
    let home = Home::new(&[HELD, TYPES]);
    let _daemon = home.serve();
    let mut connection = Connection::new(home.connect());
    connection.exchange("bench", 0);
    for first in (0..size.scale(CONDITIONS, 100)).step_by(100) {
        let lines: Vec<String> = (first..first + 100).map(failed).collect();
        connection.publish(lines.join("\n").as_bytes(), 100);
    }
    let (mut unchanged, mut changed) = (Vec::new(), Vec::new());
    let first = read(&mut connection, &mut Vec::new());
    for round in 0..size.rounds() {
        for _ in 0..size.scale(READS_A_ROUND, 100) {
            assert_eq!(read(&mut connection, &mut unchanged), first, "the same bytes");
        }
        for number in 0..size.scale(CHANGES_A_ROUND, 5) {
            connection.publish(failed(number + round * CHANGES_A_ROUND).as_bytes(), 1);
            read(&mut connection, &mut changed);
        }
        // What was reported again is newer, so this is another text from here on.
        connection.publish(failed(0).as_bytes(), 1);
    }
    let [p50, p99] = [0.5, 0.99].map(|at| quantile(&unchanged, at));
    let measured = format!("{p50:.0} us (p99 {p99:.0} us)");
    row("-", "unchanged region with 10,000 conditions, p50", "200 us", &measured, p50 <= 200.0);
    let [p50, p99] = [0.5, 0.99].map(|at| quantile(&changed, at));
    println!("a region that changed: p50 {p50:.0} us, p99 {p99:.0} us");
}

fn failed(job: usize) -> String {
    format!(r#"{{"type":"bench.job.failed","source":"bench","payload":{{"job":"job {job}"}}}}"#)
}

/// Reads the region; returns the answer.
fn read(connection: &mut Connection, micros: &mut Vec<f64>) -> String {
    let begin = Instant::now();
    connection.send("GET", "/v1/sessions/bench/region?max_tokens=300", "text/plain", b"");
    let (status, answer) = connection.answer();
    micros.push(begin.elapsed().as_secs_f64() * 1e6);
    assert_eq!(status, 200, "{answer}");
    answer
}
