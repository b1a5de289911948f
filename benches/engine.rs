//! What does an event cost with 10, 100, 1,000 and 10,000 subscribers, of which 5 match?
//!
//! `cargo bench --bench all -- engine`, or with `--quick` for a size that only shows that it works.
//! Each event goes to 5 pipelines, which batch ten at a time, render and queue. A harness takes the
//! pending notifications every ten events, and that is a part of the cost. Sizes alternate, so that
//! a busy moment of the machine affects all of them. Time is the CPU time of this thread.

use crate::{
    drive::{self, Run},
    report::row,
    rules,
    support::{Size, machine, quantile},
};

const SUBSCRIBERS: [usize; 4] = [10, 100, 1_000, 10_000];
const MATCHING: usize = 5;
/// Events per round and size; a round then takes some tens of milliseconds, far above the clock's
/// resolution.
const EVENTS: usize = 20_000;

const LAYOUT: &str = "[output.table]\nkey = \"hot\"\ncolumns = [\"order\", \"item\"]";

pub(crate) fn run(size: Size, _: &[String]) {
    let largest = size.scale(10_000, 100);
    let counts = SUBSCRIBERS.into_iter().filter(|count| *count <= largest);
    let mut runs: Vec<(usize, Run)> = counts.map(|count| (count, prepared(count))).collect();
    let events = size.scale(EVENTS, 20);
    drive::take_turns(&mut runs, size.rounds(), events);
    println!("{}", machine());
    println!("{} rounds of {events} events, {MATCHING} subscribers match, medians", size.rounds());
    println!("| subscribers | us an event | least | most | against {} |", SUBSCRIBERS[0]);
    println!("|---|---|---|---|---|");
    let base = runs.first().map_or(0.0, |(_, run)| quantile(&run.costs, 0.5));
    for (subscribers, run) in &runs {
        let [least, middle, most] = [0.0, 0.5, 1.0].map(|at| quantile(&run.costs, at));
        println!("| {subscribers} | {middle:.2} | {least:.2} | {most:.2} | {:.2} |", middle / base);
    }
    if let Some((subscribers, run)) = runs.last() {
        let ratio = quantile(&run.costs, 0.5) / base;
        let what = format!("an event with {subscribers} subscribers against {}", SUBSCRIBERS[0]);
        row("8", &what, "1.6 x", &format!("{ratio:.2} x"), ratio <= 1.6);
    }
}

/// An engine with `subscribers` rules in total, without the shipped ones.
pub(crate) fn prepared(subscribers: usize) -> Run {
    let subscribers = (0..subscribers).map(|index| {
        let types = if index < MATCHING { "bench.hot.*".to_owned() } else { format!("bench.cold{index}.*") };
        drive::subscriber(index, &types, "payload.order", LAYOUT)
    });
    let payload = |seq| format!(r#"{{"order":{seq},"item":"cup","shop":"north"}}"#);
    Run::new(rules::engine(subscribers), MATCHING, payload)
}
