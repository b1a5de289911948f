//! `aside serve`: the daemon, in the foreground.

use std::io::{self, IsTerminal, Write};

use sd_notify::NotifyState;
use tokio::runtime::Builder;
use tracing::Subscriber;
use tracing_subscriber::{EnvFilter, fmt::MakeWriter, util::SubscriberInitExt};

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
    /// Leave the terminal and its session
    #[arg(long, hide = true)]
    new_session: bool,
}

/// A filter is checked here and built when it is needed, as it cannot be cloned.
fn parse_filter(text: &str) -> Result<String, tracing_subscriber::filter::ParseError> {
    EnvFilter::builder().parse(text).map(|_| text.to_owned())
}

/// A log of plain lines, coloured only for a terminal.
fn log_to<W>(writer: W, is_terminal: bool, filter: &str) -> impl Subscriber + Send + Sync + 'static
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(writer)
        .with_ansi(is_terminal)
        .finish()
}

pub(super) fn run(args: &Args, paths: Paths) -> Result<(), CliError> {
    let passed = Passed::from_env();
    if args.new_session {
        // The leader of a session cannot leave it, and need not.
        rustix::process::setsid().ok();
    }
    log_to(io::stderr, io::stderr().is_terminal(), &args.log).init();
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

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_log_that_is_no_terminal_has_no_colours() {
        for is_terminal in [false, true] {
            let written = Arc::new(Mutex::new(Vec::new()));
            let log = log_to(Arc::new(Written(written.clone())), is_terminal, "info");
            tracing::subscriber::with_default(log, || tracing::warn!(errors = 1, "said"));
            let text = String::from_utf8(written.lock().expect("not poisoned").clone()).expect("text");
            assert!(text.contains("said"), "{text:?}");
            assert_eq!(text.contains('\u{1b}'), is_terminal, "{text:?}");
        }
    }

    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for &Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("not poisoned").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
}
