//! `aside up`: starts the daemon in the background, unless one runs.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{DirBuilderExt, OpenOptionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use serde::Deserialize;

use super::{CliError, Context, paths::Paths};
use crate::client::Client;

/// How long the daemon may take to be ready: it reads its journal first.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a daemon that runs may take to say who it is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);
/// Size of the log, in bytes, from which on a start begins a new one and keeps the old one beside it.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Lines of the log that are shown when the daemon does not start.
const LOG_LINES_SHOWN: usize = 12;
/// Variables that belong to whoever calls, with its secrets; a daemon outlives that one.
const CALLERS_PREFIXES: [&str; 2] = ["CLAUDE", "ANTHROPIC"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What the daemon writes to its log, as in `aside serve --log`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

/// Why the daemon does not run in the background.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// A file or process that it needs cannot be had.
    #[error("{doing}")]
    Io {
        /// What for.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
    /// It ended before it was ready.
    #[error("the daemon ended before it was ready; {} ends with\n{last_lines}", log.display())]
    Ended {
        /// Its log.
        log: PathBuf,
        /// What stands there last.
        last_lines: String,
    },
    /// It is not ready yet.
    #[error("the daemon is not ready after {} s and goes on starting; {} tells how far it is", READY_TIMEOUT.as_secs(), log.display())]
    Slow {
        /// Its log.
        log: PathBuf,
    },
}

/// What is asked of a running daemon.
#[derive(Debug, Deserialize)]
pub(super) struct Running {
    pub(super) version: String,
    pub(super) pid: u32,
}

/// Who listens at `client`'s socket; `None` if nobody answers as a daemon.
pub(super) fn running(client: &Client) -> Option<Running> {
    let client = Client::new(client.socket().to_owned(), STATUS_TIMEOUT);
    let response = client.request("GET", "/v1/status", &[], b"").ok()?;
    serde_json::from_slice(&response.body).ok().filter(|_| response.status == 200)
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    if let Some(daemon) = running(&context.client) {
        return say(context, &daemon, "runs already");
    }
    let paths = context.paths.clone().map_err(CliError::Paths)?;
    let started = start(&paths, &args.log);
    match (started, running(&context.client)) {
        (Ok(log), Some(daemon)) => {
            say(context, &daemon, "runs")?;
            context.print(&format!("  log      {}\n  stop it  aside down\n", log.display()))
        }
        // Two starts at once: one of them won, and that is what was asked for.
        (Err(UpError::Ended { .. }), Some(daemon)) => say(context, &daemon, "runs already"),
        (Ok(log), None) => Err(CliError::Up(ended(log))),
        (Err(error), _) => Err(CliError::Up(error)),
    }
}

fn say(context: &mut Context<'_>, daemon: &Running, how: &str) -> Result<(), CliError> {
    let own = env!("CARGO_PKG_VERSION");
    let Running { version, pid } = daemon;
    let mut text =
        format!("aside {version} {how} as process {pid}\n  socket   {}\n", context.client.socket().display());
    if version != own {
        text.push_str(&format!("  this is version {own}; to change over: aside down && aside up\n"));
    }
    context.print(&text)
}

/// Starts the daemon and waits until it listens; gives its log.
fn start(paths: &Paths, filter: &str) -> Result<PathBuf, UpError> {
    let failed = |doing| move |source| UpError::Io { doing, source };
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&paths.state)
        .map_err(failed("make the state folder"))?;
    let log = paths.state.join("daemon.log");
    let log_file = open_log(&log).map_err(failed("open the log"))?;
    // The daemon says one thing on stdout, when it is ready. A socket can be waited for with a limit, a pipe cannot.
    let (mut ready, stdout) = UnixStream::pair().map_err(failed("make a socket"))?;
    ready.set_read_timeout(Some(READY_TIMEOUT)).map_err(failed("make a socket"))?;
    let mut child = spawn(paths, filter, stdout, log_file).map_err(failed("run this program again"))?;
    let mut first = [0];
    match ready.read(&mut first) {
        Ok(1..) => Ok(log),
        Ok(0) => {
            // It has closed its stdout, so it is about to end if it has not yet.
            child.wait().ok();
            Err(ended(log))
        }
        Err(_) => Err(UpError::Slow { log }),
    }
}

fn spawn(paths: &Paths, filter: &str, stdout: UnixStream, log: File) -> io::Result<Child> {
    let absolute = |path: &Path| std::path::absolute(path);
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["serve", "--new-session", "--log", filter])
        .env("ASIDE_SOCKET", absolute(&paths.socket)?)
        .env("ASIDE_CONFIG", absolute(&paths.config)?)
        .env("ASIDE_STATE", absolute(&paths.state)?)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(stdout))
        .stderr(log);
    let is_callers = |name: &str| CALLERS_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_callers)) {
        command.env_remove(name);
    }
    command.spawn()
}

/// Opens the log to be added to; one that has grown large is put aside first.
fn open_log(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|found| found.len() > LOG_BYTES_MAX) {
        fs::rename(path, path.with_extension("log.1"))?;
    }
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn ended(log: PathBuf) -> UpError {
    let text = fs::read_to_string(&log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or_default();
    UpError::Ended { last_lines: last.iter().map(|line| format!("  {line}\n")).collect(), log }
}
