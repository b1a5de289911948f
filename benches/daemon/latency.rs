//! How soon does a listener get a published event, and how soon does an agent get it?

use std::time::Instant;

use super::{exchanges::AT_ONCE, floor::Floors, http::Connection, process::Home};
use crate::{
    report::row,
    support::{Size, quantile},
};

const PUBLISHED_A_ROUND: usize = 200;
const FLUSHES: usize = 200;
const UNSYNCED: &str = "[journal]\ndurability = \"interval\"\n";

pub(crate) fn run(size: Size) {
    let count = size.scale(PUBLISHED_A_ROUND, 20);
    let mut floors = Floors::default();
    let unsynced = Home::new(&[("aside.toml", UNSYNCED)]);
    let synced = Home::new(&[AT_ONCE]);
    let (_one, _two) = (unsynced.serve(), synced.serve());
    let (mut listening, mut releasing) = (Listening::new(&unsynced), Releasing::new(&synced));
    listening.round(count);
    releasing.round(count);
    listening.micros.clear();
    releasing.micros.clear();
    for _ in 0..size.rounds() {
        floors.measure(synced.state(), size.scale(FLUSHES, 10));
        listening.round(count);
        releasing.round(count);
    }
    floors.print();
    let [p50, p99] = [0.5, 0.99].map(|at| quantile(&listening.micros, at));
    let measured = format!("{p50:.0} / {p99:.0} us");
    row(
        "6",
        "publish to waiting listener, p50 / p99, unsynced",
        "100 / 200 us",
        &measured,
        p50 <= 100.0 && p99 <= 200.0,
    );
    let [p50, p99] = [0.5, 0.99].map(|at| quantile(&releasing.micros, at));
    let measured = format!("{:.2} ms (p99 {:.2} ms)", p50 / 1e3, p99 / 1e3);
    row("7", "event published, synced and released at an exchange, p50", "0.5 ms", &measured, p50 <= 500.0);
}

/// From the request of a publish to its event on a stream.
struct Listening {
    publisher: Connection,
    listener: Connection,
    number: usize,
    micros: Vec<f64>,
}

impl Listening {
    fn new(home: &Home) -> Self {
        let mut listener = Connection::new(home.connect());
        listener.send("GET", "/v1/events/stream?pattern=bench.**&from=1", "text/plain", b"");
        assert_eq!(listener.head().0, 200, "the daemon streams events");
        Self { publisher: Connection::new(home.connect()), listener, number: 0, micros: Vec::new() }
    }

    fn round(&mut self, count: usize) {
        for _ in 0..count {
            self.number += 1;
            let id = format!("listen-{}", self.number);
            let body = format!(r#"{{"id":"{id}","type":"bench.heard.now","source":"bench","payload":{{}}}}"#);
            let begin = Instant::now();
            self.publisher.send("POST", "/v1/events", "application/json", body.as_bytes());
            while !self.listener.line().contains(&id) {}
            self.micros.push(begin.elapsed().as_secs_f64() * 1e6);
            assert_eq!(self.publisher.answer().0, 200, "the daemon takes an event");
        }
    }
}

/// From the request of a durable publish to the answer of the exchange that delivers it.
struct Releasing {
    connection: Connection,
    number: usize,
    micros: Vec<f64>,
}

impl Releasing {
    fn new(home: &Home) -> Self {
        let mut connection = Connection::new(home.connect());
        connection.exchange("bench", 0);
        Self { connection, number: 0, micros: Vec::new() }
    }

    fn round(&mut self, count: usize) {
        for _ in 0..count {
            self.number += 1;
            let id = format!("delivered-{}", self.number);
            let body = format!(
                r#"{{"id":"{id}","type":"cli.bench","source":"bench","payload":{{"tool_name":"{id}"}}}}"#
            );
            let begin = Instant::now();
            self.connection.publish(body.as_bytes(), 1);
            let (status, answer) = self.connection.exchange("bench", self.number);
            self.micros.push(begin.elapsed().as_secs_f64() * 1e6);
            assert!(status == 200 && answer.contains(&id), "nothing was released: {status} {answer}");
        }
    }
}
