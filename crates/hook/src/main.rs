//! The `aside-hook` command: `aside hook` as a program of its own, which takes a third of the
//! processor time.
//!
//! It always succeeds, because a client can treat a failed hook as an order to stop its agent.

use std::{
    env,
    io::{self, Write},
    process::ExitCode,
};

fn main() -> ExitCode {
    if !hook::run(env::args_os().skip(1)) {
        let version = env!("CARGO_PKG_VERSION");
        let usage =
            format_args!("aside-hook {version}: what `aside hook` does\nusage: aside-hook NAME [--start]");
        // Without a stderr the usage cannot be shown.
        writeln!(io::stderr(), "{usage}").ok();
    }
    ExitCode::SUCCESS
}
