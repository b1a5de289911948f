//! `aside up`: starts the daemon in the background, unless one runs.

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

use super::{
    CliError, Context, down,
    error::{READY_TIMEOUT, UpError},
    running::{Running, running},
};
use crate::{
    daemon::{
        LOCK_FILE,
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
        if daemon.is_some() || !matches!(down::is_locked(&lock), Ok(true)) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::running::STATUS_TIMEOUT;
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
}
