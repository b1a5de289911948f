//! The `aside` command.

use std::{
    env,
    error::Error,
    io::{self, Write},
    process::ExitCode,
};

use aside::{
    cli::{self, paths::Paths},
    client,
    harness::kind::Kind,
};

/// musl's own allocator has one lock for all threads. The version, and the lack of huge pages, are
/// chosen for a fast hook: docs/benchmarks.md has the cost.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    // A harness waits for its hook at every step of an agent, so a hook starts only what it needs.
    if let (Some("hook"), Some(name), option, None) =
        (args.next().as_deref().and_then(|arg| arg.to_str()), args.next(), args.next(), args.next())
        && let Some(name) = name.to_str().filter(|name| !name.starts_with('-'))
        && let Some(is_start) = option.map_or(Some(false), |option| (option == "--start").then_some(true))
    {
        if let Ok(socket) = Paths::socket_from_env(|name| env::var_os(name)) {
            if is_start {
                drop(client::start_if_absent(&socket));
            }
            client::hook(name, Kind::forwarded(name), &socket, |name| env::var_os(name));
        }
        return ExitCode::SUCCESS;
    }
    cli::run(env::args_os()).unwrap_or_else(|error| {
        if !error.is_silent() {
            let causes = std::iter::successors(error.source(), |&cause| cause.source());
            let chain: String = causes.map(|cause| format!(": {cause}")).collect();
            // Without a stderr only the exit code reports the error.
            writeln!(io::stderr(), "aside: failed to {error}{chain}").ok();
        }
        error.exit_code()
    })
}
