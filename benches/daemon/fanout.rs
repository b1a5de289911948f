//! How long does a burst for all sessions delay an exchange, with 1,000 sessions open?

use std::thread;

use super::{
    exchanges::{AT_ONCE, spread, timed},
    http::Connection,
    process::Home,
};
use crate::{
    report::row,
    support::{Size, quantile},
};

const SESSIONS: usize = 1_000;
const EVENTS: usize = 200;
/// Exchanges from the moment at which the burst is sent, one after the other, each of another
/// session. The delivery to all sessions takes longer than these, so all of them run during it.
const EXCHANGES: usize = 200;
/// Bursts per round, each at a daemon of its own.
const BURSTS: usize = 10;
pub(crate) fn run(size: Size) {
    let [sessions, events, exchanges] = [SESSIONS, EVENTS, EXCHANGES].map(|full| size.scale(full, 10));
    let bursts = size.rounds() * size.scale(BURSTS, BURSTS);
    let (mut all, mut longest) = (Vec::new(), Vec::new());
    for _ in 0..bursts {
        let home = Home::new(&[AT_ONCE]);
        let _daemon = home.serve();
        let mut connection = Connection::new(home.connect());
        for session in 0..sessions {
            connection.exchange(&name(session), 0);
        }
        let millis = burst(&home, sessions, &body(events), exchanges);
        longest.push(quantile(&millis, 1.0));
        all.extend(millis);
    }
    println!("{bursts} bursts of {events} events for {sessions} sessions");
    println!("| exchanges | p50 ms | p99 ms | most ms |");
    println!("|---|---|---|---|");
    let name = format!("the first {exchanges} of each burst");
    for (which, millis) in [(name.as_str(), &all), ("the longest of each burst", &longest)] {
        let [p50, p99, most] = spread(millis);
        println!("| {which} | {p50:.2} | {p99:.2} | {most:.2} |");
    }
    let (p99, longest) = (quantile(&all, 0.99), quantile(&longest, 0.5));
    let what = format!("{events} events for {sessions} sessions, an exchange in their midst, p99");
    let measured = format!("{p99:.1} ms; the longest of a burst {longest:.1} ms, p50");
    row("18", &what, "20 ms", &measured, p99 <= 20.0);
}

/// Publishes one batch and makes exchanges meanwhile; returns the milliseconds of each exchange.
fn burst(home: &Home, sessions: usize, body: &[u8], exchanges: usize) -> Vec<f64> {
    let events = body.iter().filter(|byte| **byte == b'\n').count();
    let [mut publishing, mut exchanging] = [(); 2].map(|()| Connection::new(home.connect()));
    thread::scope(|scope| {
        let asking = scope.spawn(move || {
            let ask = |number| timed(&mut exchanging, &name(number * 7 % sessions), number);
            (1..=exchanges).map(ask).collect()
        });
        publishing.publish(body, events);
        asking.join().expect("every exchange is answered")
    })
}

fn body(events: usize) -> Vec<u8> {
    let line = |n| format!(r#"{{"type":"cli.bench","source":"bench","payload":{{"n":{n}}}}}"#);
    (0..events).map(|n| line(n) + "\n").collect::<String>().into_bytes()
}

fn name(session: usize) -> String {
    format!("session-{session}")
}
