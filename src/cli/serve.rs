//! `aside serve`: runs the daemon in the foreground.

mod log;

use std::{
    cell::Cell,
    env,
    io::{self, IsTerminal, Write},
    os::unix::fs::MetadataExt,
    panic,
    path::{Path, PathBuf},
    process::{self, Child, Command, ExitStatus, Stdio},
    str::FromStr,
    sync::{
        Arc,
        mpsc::{RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};

use hook::{client::HOOK_PROGRAM, paths::Paths, small_program};
use sd_notify::NotifyState;
use tokio::{runtime::Builder, task};
use tracing_subscriber::{fmt::writer::BoxMakeWriter, util::SubscriberInitExt};

use self::log::{LogFile, LogFormat, log_to, parse_filter};

use super::{CliError, harness::own_name, install::quoted};
use journal::NEEDED_THREADS;

use crate::daemon::{self, Passed, Replaying, ServeOptions, Watcher, planted};
pub(super) use log::older as older_log;

/// Worker threads of the runtime: one for the engine's loop, one for connections.
const WORKER_THREADS: usize = 2;

/// How long a stopping daemon waits for unfinished work on other threads. The next start does not
/// need that work.
const LEFT_OVER_WAIT_MAX: Duration = Duration::from_secs(1);
/// How much longer the service manager waits for a start that goes on, in microseconds.
const GO_ON_MICROS: u32 = 60_000_000;
/// How often the service manager hears that a child replays the journal, and how many times until
/// the child is killed.
const CHILD_EVERY: Duration = Duration::from_secs(5);
const CHILD_TIMES_MAX: u32 = 120;
/// Name of the runtime's threads.
const WORKER_NAME: &str = "aside-worker";
/// Parts of the paths of the runtime's own source files.
const RUNTIME_SOURCES: [&str; 2] = ["/tokio-", "/mio-"];

thread_local! {
    /// The task that this thread is as a worker of the runtime: one that runs the others.
    static WORKER: Cell<Option<task::Id>> = const { Cell::new(None) };
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The log level on stderr: error, warn, info, debug or trace, also for one module, as in
    /// `warn,aside_journal=debug`
    #[arg(long, value_name = "FILTER", default_value = "info", value_parser = parse_filter)]
    log: String,
    /// The format: text, or one JSON object a line
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: LogFormat,
    /// Write the log to this file instead of stderr; at 4 MiB the file is renamed to end with `.1`
    /// and a new one is created
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Leave the terminal and its session
    #[arg(long, hide = true)]
    new_session: bool,
    /// Replay the journal with limits, then exit
    #[arg(long, hide = true)]
    try_replay: bool,
}

pub(super) fn run(args: &Args, paths: Paths) -> Result<(), CliError> {
    let passed = Passed::from_env();
    if args.new_session {
        // A session leader cannot leave its session, and need not.
        rustix::process::setsid().ok();
    }
    let open = |path: &PathBuf| {
        LogFile::open(path).map_err(|source| CliError::Write { name: path.display().to_string(), source })
    };
    let log_file = args.log_file.as_ref().map(open).transpose()?;
    let is_terminal = io::stderr().is_terminal();
    let writer =
        log_file.map_or_else(|| BoxMakeWriter::new(io::stderr), |file| BoxMakeWriter::new(Arc::new(file)));
    log_to(writer, is_terminal, &args.log, args.log_format, daemon::monotonic_now).init();
    end_with_a_broken_part();
    let mut options = options(paths)?;
    if args.try_replay {
        return daemon::try_replay(&options).map_err(CliError::Daemon);
    }
    options.replaying.convicted = daemon::convict(&options.state, || replay_in_child(&options, args));
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(WORKER_THREADS).thread_name(WORKER_NAME).enable_all();
    let planted = options.replaying.planted_panic.clone();
    builder.on_thread_park(move || {
        WORKER.set(task::try_id());
        if let Some(planted) = &planted {
            planted.strike();
        }
    });
    let runtime = builder.build().map_err(CliError::Runtime)?;
    let listens = next_steps(&options.socket, &own_program(), has_hook_program());
    let say = || {
        // Without a stdout nobody reads it, but the daemon is still useful.
        write!(io::stdout(), "{listens}").ok();
        if let Err(error) = sd_notify::notify(&[NotifyState::Ready]) {
            tracing::warn!(%error, "the service manager could not be notified that the daemon is ready");
        }
    };
    let served = runtime.block_on(daemon::run(options, passed, say));
    // A running snapshot would delay the exit until it is written.
    runtime.shutdown_timeout(LEFT_OVER_WAIT_MAX);
    served.map_err(CliError::Daemon)
}

/// What the user can do now, with lines that run as they are printed.
///
/// `program`: the words that run this program.
fn next_steps(socket: &Path, program: &str, has_hook_program: bool) -> String {
    let mut text = format!("aside listens at {}\n\nTry, in another terminal:\n", socket.display());
    for step in [
        "publish tool.call.failure tool_name=grep",
        "exchange demo after_tool   # what an agent reads",
        "tail                       # every new event",
    ] {
        text.push_str(&format!("  {program} {step}\n"));
    }
    if !has_hook_program {
        text.push_str(&format!(
            "\nHooks of clients are slower without `{HOOK_PROGRAM}` next to this program, which\n\
             `cargo build --release` makes.\n"
        ));
    }
    text.push('\n');
    text
}

/// The words that run this program from the current folder.
fn own_program() -> String {
    let name = own_name();
    let folder = env::current_dir().unwrap_or_default();
    let below = Path::new(&name).strip_prefix(folder).ok().filter(|below| below.components().count() > 1);
    quoted(&below.map_or(name.clone(), |below| below.display().to_string()))
}

fn has_hook_program() -> bool {
    env::current_exe().is_ok_and(|own| small_program(&own).is_some())
}

fn options(Paths { socket, config, state }: Paths) -> Result<ServeOptions, CliError> {
    let say_alive = || {
        // A failed notification cannot be reported.
        sd_notify::notify(&[NotifyState::Watchdog]).ok();
    };
    let watcher = sd_notify::watchdog_enabled().map(|limit| Watcher { limit, say: say_alive });
    let replaying = Replaying {
        build: build(),
        convicted: None,
        say: Some(say_that_it_goes_on),
        planted: planted(planted::VARIABLE)?,
        planted_panic: planted(planted::THREAD_VARIABLE)?,
    };
    Ok(ServeOptions { socket, config, state, watcher, replaying })
}

/// The fault that a test plants by a variable.
fn planted<T: FromStr<Err = String>>(variable: &str) -> Result<Option<T>, CliError> {
    env::var(variable).ok().map(|text| text.parse()).transpose().map_err(CliError::Usage)
}

/// Tells the service manager that a start is slow and goes on.
fn say_that_it_goes_on() {
    sd_notify::notify(&[NotifyState::ExtendTimeoutUsec(GO_ON_MICROS)]).ok();
}

/// What tells this program from another build of it: the version, and the size and the time of its
/// file. Two builds that look the same share their skipped records.
fn build() -> String {
    let file = env::current_exe().and_then(std::fs::metadata);
    let (size, time) = file.map_or((0, 0), |file| (file.size(), file.mtime()));
    format!("{} {size} {time}", env!("CARGO_PKG_VERSION"))
}

/// Runs `aside serve --try-replay` and returns its end.
fn replay_in_child(options: &ServeOptions, args: &Args) -> io::Result<ExitStatus> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["serve", "--try-replay", "--log", &args.log])
        .env("ASIDE_SOCKET", &options.socket)
        .env("ASIDE_CONFIG", &options.config)
        .env("ASIDE_STATE", &options.state)
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    wait_for(command.spawn()?)
}

/// Waits for a child, and tells the service manager that the start goes on meanwhile.
fn wait_for(mut child: Child) -> io::Result<ExitStatus> {
    let pid = rustix::process::Pid::from_child(&child);
    let (ended, end) = sync_channel(1);
    thread::scope(|scope| {
        scope.spawn(move || ended.send(child.wait()));
        for _ in 0..CHILD_TIMES_MAX {
            match end.recv_timeout(CHILD_EVERY) {
                Ok(status) => return status,
                Err(RecvTimeoutError::Timeout) => say_that_it_goes_on(),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Such an end proves nothing against a record.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).ok();
        end.recv().map_err(io::Error::other)?
    })
}

/// Ends the process after a panic that leaves it alive without being able to work.
///
/// A panicking task is detected by its waiter, and its waiter decides. Three panics have no waiter
/// that could: one of a worker outside any task; one of the runtime's own code, for instance
/// because the system refuses a wake-up, on whatever thread it is called; and one of a thread of
/// the journal, without which nothing is written. No acknowledged record is lost: the next start
/// recovers as after a kill.
fn end_with_a_broken_part() {
    let say = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        say(info);
        let place = info.location().map_or("", panic::Location::file);
        let current = thread::current();
        if is_broken(current.name(), is_in_task(), place) {
            let thread = current.name().unwrap_or_default();
            tracing::error!(thread, panic = %info, "a part of the daemon panicked that it cannot do without; it stops");
            process::exit(1);
        }
    }));
}

/// Whether a task runs on this thread, other than the worker itself.
fn is_in_task() -> bool {
    task::try_id().is_some_and(|task| WORKER.get() != Some(task))
}

/// Whether a panic on `thread` in the source file `place` is one without a waiter.
fn is_broken(thread: Option<&str>, is_in_task: bool, place: &str) -> bool {
    let is_of_runtime = RUNTIME_SOURCES.iter().any(|source| place.contains(source));
    let is_needed = thread.is_some_and(|thread| NEEDED_THREADS.contains(&thread));
    is_of_runtime || is_needed || (thread == Some(WORKER_NAME) && !is_in_task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn unopenable_log_file_is_named_in_error() {
        let error = run_against(&FakeDaemon::silent(), &["serve", "--log-file", "/absent/x.log"]);
        assert_eq!(error, Err("write /absent/x.log".to_owned()));
    }

    #[test]
    fn the_next_steps_fit_a_terminal() {
        let socket = Path::new("/home/u/.local/state/aside/aside.sock");
        let said = next_steps(socket, "target/release/aside", false);
        let expected = "\
aside listens at /home/u/.local/state/aside/aside.sock

Try, in another terminal:
  target/release/aside publish tool.call.failure tool_name=grep
  target/release/aside exchange demo after_tool   # what an agent reads
  target/release/aside tail                       # every new event

Hooks of clients are slower without `aside-hook` next to this program, which
`cargo build --release` makes.

";
        assert_eq!(said, expected);
        assert!(said.lines().all(|line| line.len() <= 80), "{said}");
        assert!(!next_steps(socket, "aside", true).contains(HOOK_PROGRAM));
    }

    #[test]
    fn a_part_without_a_waiter_ends_the_daemon() {
        let (own, runtime) = ("src/api/events.rs", "/registry/tokio-1.54.1/src/runtime/io/driver.rs");
        for (thread, is_in_task, place, ends) in [
            (Some(WORKER_NAME), false, own, true),
            (Some(WORKER_NAME), true, own, false),
            (Some(WORKER_NAME), true, runtime, true),
            (Some("projection"), false, own, false),
            (Some("projection"), false, runtime, true),
            (Some("journal-writer"), false, own, true),
            (Some("journal-sealer"), false, own, false),
            (Some("main"), false, own, false),
            (Some("main"), false, runtime, true),
            (None, false, own, false),
        ] {
            assert_eq!(is_broken(thread, is_in_task, place), ends, "{thread:?} {place}");
        }
    }
}
