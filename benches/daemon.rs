//! How fast and how small is the real daemon, and what does a hook cost?
//!
//! `cargo bench --bench all -- daemon` runs every theme but `peers`, `daemon hook idle` only these,
//! `--quick` at a size that only shows that they work. Every figure is of whole processes over real
//! sockets, next to a floor of the same run: a flush of the same disk, the start of `/bin/true`.
//! `ASIDE_BENCH_BINARY` names another build of the program, such as the release artefact. `peers`
//! needs the servers that `scripts/peers` starts.

mod burst;
mod disk;
pub(crate) mod events;
pub(crate) mod exchanges;
mod fanout;
mod floor;
mod hook;
pub(crate) mod hook_input;
pub(crate) mod http;
mod idle;
mod ingest;
mod latency;
mod peers;
pub(crate) mod process;
mod region;
mod reload;
mod restart;

use crate::support::{Size, load, machine};

/// A name, and the function that runs.
type Theme = (&'static str, fn(Size));

/// All of them, in the order in which they run.
const THEMES: [Theme; 11] = [
    ("idle", idle::run),
    ("hook", hook::run),
    ("latency", latency::run),
    ("ingest", ingest::run),
    ("burst", burst::run),
    ("fanout", fanout::run),
    ("disk", disk::run),
    ("restart", restart::run),
    ("reload", reload::run),
    ("region", region::run),
    ("peers", peers::run),
];

pub(crate) fn run(size: Size, args: &[String]) {
    let names: Vec<&String> = args.iter().filter(|arg| !arg.starts_with("--")).collect();
    for name in &names {
        let is_known = THEMES.iter().any(|(theme, _)| theme == *name);
        assert!(is_known, "there is no theme `{name}`; there are {:?}", THEMES.map(|(theme, _)| theme));
    }
    println!("{}", machine());
    println!("{}", process::program().display());
    for (theme, run) in THEMES {
        let is_wanted = names.iter().any(|name| *name == theme) || (names.is_empty() && theme != "peers");
        if is_wanted {
            println!("\n## {theme}, load {}", load());
            run(size);
        }
    }
}
