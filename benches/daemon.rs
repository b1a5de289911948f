//! How fast and how small is the real daemon, and what does a hook cost?
//!
//! `cargo bench --bench daemon` runs every theme but `peers`, `-- hook idle` only these, `--
//! --quick` at a size that only shows that they work. Every figure is of whole processes over real
//! sockets, next to a floor of the same run: a flush of the same disk, the start of `/bin/true`.
//! `ASIDE_BENCH_BINARY` names another build of the program, such as the release artefact. `peers`
//! needs the servers that `scripts/peers` starts.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock, and waits for processes")]

#[path = "daemon/burst.rs"]
mod burst;
#[path = "daemon/disk.rs"]
mod disk;
#[path = "daemon/events.rs"]
mod events;
#[path = "daemon/exchanges.rs"]
mod exchanges;
#[path = "daemon/fanout.rs"]
mod fanout;
#[path = "daemon/floor.rs"]
mod floor;
#[path = "daemon/hook.rs"]
mod hook;
#[path = "daemon/hook_input.rs"]
mod hook_input;
#[path = "daemon/http.rs"]
mod http;
#[path = "daemon/idle.rs"]
mod idle;
#[path = "daemon/ingest.rs"]
mod ingest;
#[path = "daemon/latency.rs"]
mod latency;
#[path = "daemon/peers.rs"]
mod peers;
#[path = "daemon/process.rs"]
mod process;
#[path = "daemon/reload.rs"]
mod reload;
mod report;
#[path = "daemon/restart.rs"]
mod restart;
mod support;

use std::env;

use support::{Size, machine};

/// A name, and the function that runs.
type Theme = (&'static str, fn(Size));

/// All of them, in the order in which they run.
const THEMES: [Theme; 10] = [
    ("idle", idle::run),
    ("hook", hook::run),
    ("latency", latency::run),
    ("ingest", ingest::run),
    ("burst", burst::run),
    ("fanout", fanout::run),
    ("disk", disk::run),
    ("restart", restart::run),
    ("reload", reload::run),
    ("peers", peers::run),
];

fn main() {
    let names: Vec<String> = env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    for name in &names {
        let is_known = THEMES.iter().any(|(theme, _)| theme == name);
        assert!(is_known, "there is no theme `{name}`; there are {:?}", THEMES.map(|(theme, _)| theme));
    }
    let size = Size::from_args();
    println!("{}", machine());
    println!("{}", process::program().display());
    for (theme, run) in THEMES {
        let is_wanted = names.iter().any(|name| name == theme) || (names.is_empty() && theme != "peers");
        if is_wanted {
            println!("\n## {theme}, load {}", support::load());
            run(size);
        }
    }
}
