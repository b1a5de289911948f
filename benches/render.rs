//! What does an event cost from the journal to the text, rendering included?
//!
//! `cargo bench --bench all -- render`, or with `--quick` for a size that only shows that it works.
//! Each event matches 5 subscribers; each makes one table of every ten events, and a harness takes
//! the 5 tables in one injection. So the cost of an event has half a table of ten rows, and
//! matching, dedupe, batching, the queue and the release. The kinds of template alternate, so that
//! a busy moment of the machine affects all of them. Time is the CPU time of this thread.
//!
//! With the name of a kind, such as `-- render shipped`, only that kind runs, for a profiler.

use crate::{
    drive::{self, Run},
    pipelines::{MATCHING, looping, shipped},
    report::row,
    support::{Size, machine, quantile},
};

/// Events per round and kind.
const EVENTS: usize = 20_000;

pub(crate) fn run(size: Size, args: &[String]) {
    let wanted = args.iter().find(|arg| !arg.starts_with("--"));
    let mut runs: Vec<(&str, Run)> = vec![("shipped", shipped()), ("loop", looping())];
    runs.retain(|(name, _)| wanted.is_none_or(|wanted| wanted == *name));
    let events = size.scale(EVENTS, 20);
    drive::take_turns(&mut runs, size.rounds(), events);
    println!("{}", machine());
    println!("{} rounds of {events} events, {} subscribers match, medians", size.rounds(), MATCHING);
    println!("| templates | us an event | least | most | events/s and core |");
    println!("|---|---|---|---|---|");
    for (name, run) in &runs {
        let [least, middle, most] = [0.0, 0.5, 1.0].map(|at| quantile(&run.costs, at));
        println!("| {name} | {middle:.2} | {least:.2} | {most:.2} | {:.0} |", 1e6 / middle);
        if *name == "shipped" {
            let measured = format!("{:.0} events/s", 1e6 / middle);
            row("13", "whole pipeline with rendering, a core", "250,000 events/s", &measured, middle <= 4.0);
        }
    }
}
