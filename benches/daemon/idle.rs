//! What does a daemon without requests cost, and how soon does one answer?

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use super::process::{Home, program};
use crate::{
    report::row,
    support::{Size, quantile},
};

const STARTS: usize = 20;
/// Time until the work after the start is done.
const SETTLE: Duration = Duration::from_secs(2);
/// Time without requests.
const IDLE: Duration = Duration::from_secs(10);

pub(crate) fn run(size: Size) {
    let mut starts = Vec::new();
    for _ in 0..size.scale(STARTS, 10) {
        let home = Home::new(&[]);
        let begin = Instant::now();
        let daemon = home.serve();
        home.connect();
        starts.push(begin.elapsed().as_secs_f64() * 1e3);
        daemon.kill();
    }
    let home = Home::new(&[]);
    let daemon = home.serve();
    thread::sleep(SETTLE);
    let (switches, cpu) = (daemon.switches(), daemon.cpu_micros());
    let idle = if size == Size::Full { IDLE } else { SETTLE };
    thread::sleep(idle);
    let (switches, cpu) = (daemon.switches_since(switches), daemon.cpu_micros() - cpu);
    let memory = daemon.megabytes("VmRSS");
    let start = quantile(&starts, 0.5);
    let measured = format!(
        "{memory:.1} MB, {switches} switches in {} s, {:.0} ms CPU; {start:.1} ms",
        idle.as_secs(),
        cpu / 1e3
    );
    let is_met = memory <= 12.0 && switches == 0 && cpu == 0.0 && start <= 20.0;
    row("11", "idle: RSS, wake-ups, CPU; start to ready", "12 MB, none, 0; 20 ms", &measured, is_met);
    println!(
        "of the memory {:.1} MB are the program's file, {:.1} MB its own",
        daemon.megabytes("RssFile"),
        daemon.megabytes("RssAnon")
    );
    let bytes = fs::metadata(program()).expect("it was just run").len();
    let megabytes = bytes as f64 / 1e6;
    row("16", "the program's size", "15 MB", &format!("{megabytes:.1} MB"), megabytes <= 15.0);
}
