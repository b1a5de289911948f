//! `aside up` and `aside down`: start the daemon in the background, and stop that of the state folder;
//! and the daemon that runs, of this version or another one.

use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{DirBuilderExt, OpenOptionsExt},
            net::UnixStream,
        },
    },
    path::{self, Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use hook::{client::Client, paths::Paths};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use serde::Deserialize;

use super::{
    CliError, Context,
    error::{DownError, READY_TIMEOUT, STOP_SECONDS, UpError},
};
use crate::{
    api::wire::{trust::WorkspaceView, views::ConfigView},
    daemon::{
        JOURNAL_FOLDER, LOCK_FILE,
        version::{BUILD, VERSION},
    },
    harness::table::KINDS,
};

/// Number of checks of the socket, and the pause between them, for a daemon that another process
/// has started.
const LOOKS: (u32, Duration) = (100, Duration::from_millis(50));
/// The log of a background daemon, in the state folder.
pub(super) const LOG_FILE: &str = "daemon.log";
/// Displayed log lines when the daemon does not start.
const LOG_LINES_SHOWN: usize = 12;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What the daemon writes to its log, as in `aside serve --log`
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    if let Some(daemon) = running(&context.client) {
        return say(context, &daemon, "runs already");
    }
    let paths = context.paths.clone().map_err(CliError::Paths)?;
    match start(&paths, &args.log) {
        Ok(log) => {
            let silent = || CliError::Up(UpError::Silent { log: log.path.clone() });
            let daemon = running(&context.client).ok_or_else(silent)?;
            say(context, &daemon, "runs")?;
            context.print(&format!("  log      {}\n  stop it  aside down\n", log.path.display()))
        }
        Err(error @ UpError::Ended { .. }) => match begun_by_another(&context.client, &paths.state) {
            Some(daemon) => say(context, &daemon, "runs already"),
            None => Err(CliError::Up(error)),
        },
        Err(error) => Err(CliError::Up(error)),
    }
}

/// Waits until the daemon of a concurrent start listens, and returns it: only one of two starts
/// succeeds.
fn begun_by_another(client: &Client, state: &Path) -> Option<Running> {
    let (looks, pause) = LOOKS;
    let lock = state.join(LOCK_FILE);
    for _ in 0..looks {
        let daemon = running(client);
        // It may hold the lock before it has recorded its process.
        if daemon.is_some() || !matches!(is_locked(&lock), Ok(true)) {
            return daemon;
        }
        thread::park_timeout(pause);
    }
    None
}

fn say(context: &mut Context<'_>, daemon: &Running, how: &str) -> Result<(), CliError> {
    let Running { version, pid, .. } = daemon;
    let mut text =
        format!("aside {version} {how} as process {pid}\n  socket   {}\n", context.client.socket().display());
    if let Some(other) = daemon.other_program() {
        let own = format!("version {VERSION}, build {BUILD}");
        text.push_str(&format!("  it is {other}; this is {own}; to switch: aside down && aside up\n"));
    }
    context.print(&text)
}

/// Starts the daemon and waits until it listens; returns its log.
fn start(paths: &Paths, filter: &str) -> Result<Log, UpError> {
    let failed = |doing| move |source| UpError::Process { doing, source };
    let (log, log_file) = Log::open(&paths.state)?;
    // The daemon writes once to stdout, when it is ready. A socket supports a read timeout, a pipe
    // does not.
    let (mut ready, stdout) = UnixStream::pair().map_err(failed("create a socket pair"))?;
    ready.set_read_timeout(Some(READY_TIMEOUT)).map_err(failed("create a socket pair"))?;
    let mut child = spawn(paths, filter, stdout, &log, log_file).map_err(failed("run this program again"))?;
    let mut first = [0];
    match ready.read(&mut first) {
        Ok(1..) => Ok(log),
        Ok(0) => {
            // Its stdout is closed, so it has ended or will soon.
            child.wait().ok();
            Err(UpError::Ended { last_lines: log.last_lines(), log: log.path })
        }
        Err(_) => Err(UpError::Slow { log: log.path }),
    }
}

/// The log of a background daemon.
struct Log {
    path: PathBuf,
    /// Where the lines of this start begin, in bytes.
    begin: u64,
}

impl Log {
    /// Opens the log in the state folder, which is created if needed, for appending; the daemon
    /// bounds its size.
    fn open(state: &Path) -> Result<(Self, File), UpError> {
        let failed = |doing, path: &Path| {
            let path = path.to_owned();
            move |source| UpError::File { doing, path, source }
        };
        let folder = fs::DirBuilder::new().recursive(true).mode(0o700).create(state);
        folder.map_err(failed("create the state folder", state))?;
        let path = state.join(LOG_FILE);
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(&path);
        let opened = opened.and_then(|file| Ok((file.metadata()?.len(), file)));
        let (begin, file) = opened.map_err(failed("open the log", &path))?;
        Ok((Self { path, begin }, file))
    }

    /// The last lines since this start; concurrent starts write to the same file.
    fn last_lines(&self) -> String {
        let read = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(self.begin))?;
            io::read_to_string(file)
        };
        let text = read().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let last = lines.iter().skip(lines.len().saturating_sub(LOG_LINES_SHOWN));
        last.map(|line| format!("  {line}\n")).collect()
    }
}

fn spawn(paths: &Paths, filter: &str, stdout: UnixStream, log: &Log, log_file: File) -> io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command
        .args(["serve", "--new-session", "--log", filter, "--log-file"])
        .arg(path::absolute(&log.path)?)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(OwnedFd::from(stdout))
        .stderr(log_file);
    for (name, path) in paths.variables() {
        command.env(name, path::absolute(path)?);
    }
    // The daemon outlives the calling client, so it does not inherit the client's variables: they
    // may contain secrets.
    let is_callers = |name: &str| {
        let clients = KINDS.iter().filter_map(|kind| kind.client());
        clients.flat_map(|client| client.variables.prefixes).any(|prefix| name.starts_with(prefix))
    };
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_callers)) {
        command.env_remove(name);
    }
    command.spawn()
}

pub(super) fn down(context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.state()?;
    let lock = state.join(LOCK_FILE);
    let stopped = match stop(|| holder(&lock)).map_err(CliError::Down)? {
        None => stop_without_lock_file(&state, context).map_err(CliError::Down)?,
        stopped => stopped,
    };
    let text = match stopped {
        Some(pid) => format!("aside has stopped; it was process {pid}\n"),
        None => format!("no daemon runs for {}\n", state.display()),
    };
    context.print(&text)
}

/// Stops the daemon if its lock file was deleted: the journal's folder is locked too, and the
/// daemon reports its process.
fn stop_without_lock_file(state: &Path, context: &Context<'_>) -> Result<Option<i32>, DownError> {
    let journal = state.join(JOURNAL_FOLDER);
    if !is_locked(&journal)? {
        return Ok(None);
    }
    let pid = running(&context.client).and_then(|daemon| Pid::from_raw(i32::try_from(daemon.pid).ok()?));
    let pid = pid.ok_or_else(|| DownError::Unknown { state: state.to_owned() })?;
    stop(|| Ok(is_locked(&journal)?.then_some(pid)))
}

/// Stops the daemon identified by `holder`, and waits for its end; `None` if there is none.
fn stop(holder: impl Fn() -> Result<Option<Pid>, DownError>) -> Result<Option<i32>, DownError> {
    let Some(pid) = holder()? else { return Ok(None) };
    let number = pid.as_raw_pid();
    let failed = |error: rustix::io::Errno| DownError::Signal { pid: number, source: error.into() };
    let process = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(process) => process,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    // The process id may have been reused between reading and opening; the lock is still held only
    // by a living daemon.
    if holder()? != Some(pid) {
        return Ok(None);
    }
    pidfd_send_signal(&process, Signal::TERM).map_err(failed)?;
    let limit = Timespec { tv_sec: STOP_SECONDS, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).map_err(failed)? {
        0 => Err(DownError::Stays { pid: number }),
        _ => Ok(Some(number)),
    }
}

/// The process that holds the lock, if any.
fn holder(path: &Path) -> Result<Option<Pid>, DownError> {
    let failed = |source| DownError::Lock { path: path.to_owned(), source };
    let Some(file) = locked(path)? else { return Ok(None) };
    let text = io::read_to_string(file).map_err(failed)?;
    let pid = text.split_whitespace().next().and_then(|word| word.parse().ok()).and_then(Pid::from_raw);
    let unknown = || io::Error::new(io::ErrorKind::InvalidData, "it is locked, but names no process");
    pid.map(Some).ok_or_else(|| failed(unknown()))
}

/// Whether the lock is held.
fn is_locked(path: &Path) -> Result<bool, DownError> {
    locked(path).map(|file| file.is_some())
}

/// The file or folder at `path`, if it is locked.
fn locked(path: &Path) -> Result<Option<File>, DownError> {
    let failed = |source| DownError::Lock { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(error)),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
        Err(std::fs::TryLockError::WouldBlock) => Ok(Some(file)),
    }
}

/// Time limit of a running daemon's status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(5);

/// The status of a running daemon.
#[derive(Debug, Deserialize)]
pub(super) struct Running {
    pub(super) version: String,
    /// Empty if it is older than this field.
    #[serde(default)]
    pub(super) build: String,
    pub(super) pid: u32,
    #[serde(default)]
    pub(super) clock_ahead_ms: i64,
    #[serde(default)]
    pub(super) journal: RunningJournal,
    #[serde(default)]
    pub(super) config: ConfigView,
    #[serde(default)]
    pub(super) workspaces: Vec<WorkspaceView>,
}

impl Running {
    /// Its version and build, if it is another program than this one.
    pub(super) fn other_program(&self) -> Option<String> {
        let Self { version, build, .. } = self;
        if version != VERSION {
            return Some(format!("version {version}"));
        }
        let shown = if build.is_empty() { "an earlier one" } else { build };
        (build != BUILD).then(|| format!("version {version}, build {shown}"))
    }
}

/// The status of its journal.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RunningJournal {
    #[serde(default)]
    pub(super) problems: Vec<String>,
}

/// The daemon at `client`'s socket, if it answers as one.
pub(super) fn running(client: &Client) -> Option<Running> {
    let client = Client::new(client.socket().to_owned(), STATUS_TIMEOUT);
    let response = client.request("GET", "/v1/status", &[], b"").ok()?;
    serde_json::from_slice(&response.body).ok().filter(|_| response.status == 200)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn up_waits_for_a_daemon_that_is_starting() {
        let daemon = FakeDaemon::late(r#"{"version":"1.0.0","pid":41}"#);
        let state = tempfile::tempdir().expect("a folder");
        let lock = File::create(state.path().join(LOCK_FILE)).expect("made");
        lock.lock().expect("nobody has it");
        let client = Client::new(daemon.socket().to_owned(), STATUS_TIMEOUT);
        assert_eq!(begun_by_another(&client, state.path()).map(|daemon| daemon.pid), Some(41));
    }

    #[test]
    fn daemon_of_another_version_counts_as_running() {
        let status = r#"{"version":"9","pid":7,"config":{"state":"partly","new":[1]},"journal":{}}"#;
        let daemon = FakeDaemon::answering_json(200, status);
        let client = Client::new(daemon.socket().to_owned(), STATUS_TIMEOUT);
        let running = running(&client).expect("it runs");
        assert_eq!(running.other_program().as_deref(), Some("version 9"));
        assert_eq!((&*running.version, running.pid, &*running.config.state), ("9", 7, "partly"));
        for (build, other) in [
            (BUILD, None),
            ("0", Some(format!("version {VERSION}, build 0"))),
            ("", Some(format!("version {VERSION}, build an earlier one"))),
        ] {
            let status = format!(r#"{{"version":"{VERSION}","build":"{build}","pid":7}}"#);
            let daemon = FakeDaemon::answering_json(200, &status);
            let client = Client::new(daemon.socket().to_owned(), STATUS_TIMEOUT);
            assert_eq!(super::running(&client).expect("it runs").other_program(), other);
        }
        let other = FakeDaemon::answering_json(200, "{}");
        assert!(super::running(&Client::new(other.socket().to_owned(), STATUS_TIMEOUT)).is_none());
    }
}
