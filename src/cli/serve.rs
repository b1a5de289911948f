//! `aside serve`: the daemon, in the foreground.

mod log;

use std::io::{self, IsTerminal, Write};

use sd_notify::NotifyState;
use tokio::runtime::Builder;
use tracing_subscriber::util::SubscriberInitExt;

use self::log::{LogFormat, log_to, parse_filter};
use super::{CliError, paths::Paths};
use crate::daemon::{self, Passed, ServeOptions};

/// Worker threads of the runtime: one for the engine's loop, one for the connections beside it.
const WORKER_THREADS: usize = 2;

/// What a person can do next, said once when the daemon listens.
const TRY: &str =
    "  try:  aside publish tool.call.failure tool_name=grep error_type=timeout error_message='took 30 s'
        aside exchange demo after_tool      what a session named demo is told after its next tool
        aside tail                          every event as it comes; aside status counts what became of them";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What is written to stderr: error, warn, info, debug or trace, also a module at a time as in `warn,aside::journal=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = parse_filter)]
    log: String,
    /// How it is written: text, or an object of JSON a line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Leave the terminal and its session
    #[arg(long, hide = true)]
    new_session: bool,
}

pub(super) fn run(args: &Args, paths: Paths) -> Result<(), CliError> {
    let passed = Passed::from_env();
    if args.new_session {
        // The leader of a session cannot leave it, and need not.
        rustix::process::setsid().ok();
    }
    let is_terminal = io::stderr().is_terminal();
    log_to(io::stderr, is_terminal, &args.log, args.log_format, daemon::steady_now).init();
    let runtime = Builder::new_multi_thread()
        .worker_threads(WORKER_THREADS)
        .enable_all()
        .build()
        .map_err(CliError::Runtime)?;
    let Paths { socket, config, state } = paths;
    let listens = format!("aside listens at {}\n{TRY}", socket.display());
    let say = || {
        // Without a stdout there is nobody to tell, and the daemon is of use all the same.
        writeln!(io::stdout(), "{listens}").ok();
        if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
            tracing::warn!(%error, "the service manager could not be told that the daemon is ready");
        }
    };
    runtime
        .block_on(daemon::run(ServeOptions { socket, config, state }, passed, say))
        .map_err(CliError::Daemon)
}
