//! The `aside` command.

use std::{env, process::ExitCode};

use aside::{cli, daemon::causes::with_causes};

/// musl's own allocator has one lock for all threads. The version, and the lack of huge pages, are
/// chosen for a fast hook: docs/benchmarks.md has the cost.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    if args.next().is_some_and(|command| command == "hook") && hook::run(args) {
        return ExitCode::SUCCESS;
    }
    cli::run(env::args_os()).unwrap_or_else(|error| {
        if !error.is_silent() {
            cli::complain(&format!("failed to {}", with_causes(&error)));
        }
        error.exit_code()
    })
}
