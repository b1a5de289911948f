//! Why a command failed, as text that `main` prints once.

use std::{
    env, fmt,
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use hook::{client::ClientError, paths::PathsError};

use crate::{
    api::{
        TokensError,
        wire::{ErrorBody, ErrorView},
    },
    cli::{
        install::InstallError,
        terminal::{one_line, prose_of_stderr, wants_colours},
    },
    daemon::{DaemonError, backup::BackupError, maintenance::MaintenanceError, rerun::RerunError},
};

/// Why a command failed; its text follows "failed to".
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The folders are unknown.
    #[error("find the socket and folders")]
    Paths(#[source] PathsError),
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(TokensError),
    /// The daemon was not reached.
    #[error("{doing}")]
    Client {
        /// The purpose.
        doing: &'static str,
        /// The cause.
        source: ClientError,
    },
    /// The daemon refused the request.
    #[error("{doing}: {refusal}")]
    Refused {
        /// The purpose of the request.
        doing: &'static str,
        /// The daemon's reason.
        refusal: ErrorView,
    },
    /// The daemon's answer has an unexpected form.
    #[error("{doing}: the daemon's answer has a format that this version does not know")]
    Answer {
        /// The purpose of the request.
        doing: &'static str,
        /// The difference.
        source: serde_json::Error,
    },
    /// The user cannot be asked.
    #[error("read your choice")]
    Ask(#[source] dialoguer::Error),
    /// The daemon ended a stream.
    #[error("{doing}: the daemon has stopped")]
    Ended {
        /// The purpose of the stream.
        doing: &'static str,
    },
    /// Some of several events were refused; each was reported before.
    #[error("publish {refused} of {total} events")]
    PartlyRefused {
        /// Number of refused events.
        refused: u64,
        /// Number of all events.
        total: u64,
    },
    /// A file or stdin cannot be read.
    #[error("read {name}")]
    Input {
        /// Its name.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// Stdout cannot be written.
    #[error("write the output")]
    Output(#[source] io::Error),
    /// The arguments are inconsistent.
    #[error("understand the arguments: {0}")]
    Usage(String),
    /// The configuration has errors, which were printed.
    #[error("accept the configuration: {errors} {}", if *errors == 1 { "error" } else { "errors" })]
    Check {
        /// Their number.
        errors: usize,
    },
    /// Tests of subscribers failed, and were printed.
    #[error("pass the tests: {failed} of {all} failed")]
    Tests {
        /// The number of those that failed.
        failed: usize,
        /// The number of those that ran.
        all: usize,
    },
    /// Expectations of a replay are not met, and were printed.
    #[error("meet the expectations: {failed} of {all} failed")]
    Expectations {
        /// The number of those that failed.
        failed: usize,
        /// The number of all.
        all: usize,
    },
    /// The journal cannot be replayed.
    #[error(transparent)]
    Replay(Box<RerunError>),
    /// Changes of subscribers that no test notices, which were printed.
    #[error("notice {unnoticed} of {all} {}", if *all == 1 { "change" } else { "changes" })]
    Unnoticed {
        /// The number of those that no test notices.
        unnoticed: usize,
        /// The number of those that were tried.
        all: usize,
    },
    /// The journal is damaged; the places were printed.
    #[error("accept the journal: {places} damaged {}", if *places == 1 { "place" } else { "places" })]
    Damaged {
        /// Their number.
        places: usize,
    },
    /// The journal cannot be checked or repaired.
    #[error(transparent)]
    Maintenance(Box<MaintenanceError>),
    /// A backup cannot be written.
    #[error("back the state up")]
    Backup(#[source] Box<BackupError>),
    /// A backup cannot be restored.
    #[error("restore the state")]
    Restore(#[source] Box<BackupError>),
    /// A file or folder cannot be written.
    #[error("write {name}")]
    Write {
        /// Its name.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// A shortened id matches several ids.
    #[error("identify `{text}`: several ids begin with it: {ids}")]
    Ambiguous {
        /// The given text.
        text: String,
        /// Some of the ids.
        ids: String,
    },
    /// The installation or removal failed, at least in part.
    #[error("change the installation")]
    Install(#[source] InstallError),
    /// The daemon was not started in the background.
    #[error("start the daemon in the background")]
    Up(#[source] UpError),
    /// The daemon was not stopped.
    #[error("stop the daemon")]
    Down(#[source] DownError),
    /// The demo failed.
    #[error("run the demo")]
    Demo(#[source] io::Error),
    /// A command cannot be supervised.
    #[error("run the command")]
    Run(#[source] io::Error),
    /// The system refused something that the command itself needs.
    #[error("{doing}")]
    System {
        /// The purpose.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The daemon's log cannot be shown.
    #[error("show the daemon's log: {0}")]
    Log(String),
    /// The daemon's runtime did not start.
    #[error("start the daemon: create its event queue and threads")]
    Runtime(#[source] io::Error),
    /// The history cannot be rebuilt here.
    #[error("rebuild the history without a daemon")]
    Offline(#[source] DaemonError),
    /// The history's file failed.
    #[error("rebuild the history: {0}")]
    Rebuild(String),
    /// The daemon stopped with an error.
    #[error("run the daemon")]
    Daemon(#[source] DaemonError),
}

impl CliError {
    /// The exit code of the process.
    pub fn exit_code(&self) -> ExitCode {
        if matches!(self, Self::Usage(_)) {
            ExitCode::from(2)
        } else if self.is_silent() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Whether to print nothing, because the reader of the output has closed it.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl fmt::Display for ErrorView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_deref().filter(|field| !field.is_empty()) {
            Some(field) => write!(f, "{}: {}", one_line(field), one_line(&self.message)),
            None => f.write_str(&one_line(&self.message)),
        }
    }
}

/// Prints help, or an error of the arguments; an error wrapped if stderr is a terminal.
pub(super) fn print(error: &clap::Error) -> io::Result<()> {
    if !error.use_stderr() {
        return error.print();
    }
    let text = error.render();
    let has_colours = io::stderr().is_terminal() && wants_colours(|name: &str| env::var_os(name));
    let text = if has_colours { text.ansi().to_string() } else { text.to_string() };
    io::stderr().write_all(prose_of_stderr(&text).as_bytes())
}

/// The error for an answer of the daemon that is not a success.
pub(super) fn refused(doing: &'static str, status: u16, body: &[u8]) -> CliError {
    CliError::Refused { doing, refusal: refusal(status, body) }
}

/// The reason in the daemon's error, or a substitute if it has none.
pub(super) fn refusal(status: u16, body: &[u8]) -> ErrorView {
    serde_json::from_slice(body).map_or_else(
        |_| ErrorView { field: None, message: format!("the daemon answered with HTTP status {status}") },
        |body: ErrorBody| body.error,
    )
}

/// Time limit of the daemon's start: it reads its journal first.
pub(super) const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Why the daemon does not run in the background.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// A needed folder or file is not available.
    #[error("{doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    /// Its process cannot be created or awaited.
    #[error("{doing}")]
    Process { doing: &'static str, source: io::Error },
    /// It ended before it was ready.
    #[error("the daemon ended before it was ready; from {}:\n{last_lines}", log.display())]
    Ended {
        log: PathBuf,
        /// The last lines of the log.
        last_lines: String,
    },
    /// It reported ready, and does not answer.
    #[error("the daemon was ready and does not answer; {} may show the reason", log.display())]
    Silent { log: PathBuf },
    /// It is not ready yet.
    #[error("the daemon is still starting after {} s; {} shows its progress", READY_TIMEOUT.as_secs(), log.display())]
    Slow { log: PathBuf },
}

/// Time limit of the stop: twice the daemon's own limit.
pub(super) const STOP_SECONDS: i64 = 10;

/// Why a daemon was not stopped.
#[derive(Debug, thiserror::Error)]
pub enum DownError {
    /// The lock of the state folder cannot be read, or does not identify its holder.
    #[error("read {}", path.display())]
    Lock { path: PathBuf, source: io::Error },
    /// The process cannot be signalled.
    #[error("ask process {pid} to stop")]
    Signal { pid: i32, source: io::Error },
    /// Its lock file was deleted, and it does not answer.
    #[error(
        "a daemon holds the state folder {}, but its lock file was deleted and the socket does not answer: stop its process manually",
        state.display()
    )]
    Unknown { state: PathBuf },
    /// It does not stop.
    #[error("process {pid} did not stop within {STOP_SECONDS} s; its log may show the reason")]
    Stays { pid: i32 },
}
