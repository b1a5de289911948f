//! All benches, as one program: `cargo bench --bench all -- NAME`, with `--quick` for a size that only
//! shows that it works; without a name all of them, one after the other.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock, and waits for processes")]

mod counts;
mod daemon;
mod drive;
mod engine;
mod fanout;
mod fed;
mod in_force;
mod pending;
mod pipelines;
mod probes;
mod projection;
mod render;
mod report;
mod rules;
mod snapshots;
mod support;
mod tokens;

use std::env;

use support::Size;

/// A name, and the function that runs with the arguments after it.
type Bench = (&'static str, fn(Size, &[String]));

/// All of them, in the order in which they run; the longest come last.
const BENCHES: [Bench; 11] = [
    ("engine", engine::run),
    ("probes", probes::run),
    ("snapshots", snapshots::run),
    ("pending", pending::run),
    ("in_force", in_force::run),
    ("fanout", fanout::run),
    ("render", render::run),
    ("tokens", tokens::run),
    ("projection", projection::run),
    ("counts", counts::run),
    ("daemon", daemon::run),
];

fn main() {
    // Cargo adds an argument of its own.
    let args: Vec<String> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let size = Size::from_args();
    let Some(name) = args.first().filter(|arg| !arg.starts_with("--")) else {
        for (name, run) in BENCHES {
            println!("\n# {name}");
            run(size, &args);
        }
        return;
    };
    let found = BENCHES.iter().find(|(bench, _)| bench == name);
    let (_, run) = found.unwrap_or_else(|| {
        panic!("there is no bench `{name}`; there are {:?}", BENCHES.map(|(bench, _)| bench))
    });
    run(size, args.get(1..).unwrap_or_default());
}
