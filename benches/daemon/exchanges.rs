//! Exchanges during other work, and their durations.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{http::Connection, process::Home};
use crate::support::quantile;

/// A subscriber's file that makes a notification of every event of its type immediately.
pub(crate) const AT_ONCE: (&str, &str) = (
    "subscribers/bench.toml",
    r#"
[subscriber]
id = "bench"
[events]
types = ["cli.bench"]
severity_filter = "debug"
[batching]
window_ms = 0
[output]
priority = "high"
inject_at = "after_tool"
"#,
);

/// Makes one exchange; returns its duration in milliseconds.
///
/// # Panics
/// If it does not succeed.
pub(crate) fn timed(connection: &mut Connection, session: &str, carrier: usize) -> f64 {
    let begin = Instant::now();
    let (status, answer) = connection.exchange(session, carrier);
    assert!(status == 200 || status == 204, "an exchange failed: {status} {answer}");
    begin.elapsed().as_secs_f64() * 1e3
}

/// Makes exchanges with a pause between them until `has_ended`, with carriers from the one after
/// `carrier` on.
pub(crate) fn until(home: &Home, has_ended: &AtomicBool, carrier: usize, pause: Duration) -> Vec<f64> {
    let (mut connection, mut carrier) = (Connection::new(home.connect()), carrier);
    let mut millis = Vec::new();
    while !has_ended.load(Ordering::Relaxed) {
        carrier += 1;
        millis.push(timed(&mut connection, "bench", carrier));
        if !pause.is_zero() {
            thread::sleep(pause);
        }
    }
    millis
}

/// The median, the 99th percentile and the maximum.
pub(crate) fn spread(millis: &[f64]) -> [f64; 3] {
    [0.5, 0.99, 1.0].map(|at| quantile(millis, at))
}
