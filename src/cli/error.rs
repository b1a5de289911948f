//! Why a command failed, in words that `main` prints once.

use std::{fmt, io, process::ExitCode};

use serde::Deserialize;

use super::{down, install, paths::PathsError, table, up};
use crate::{
    client::ClientError,
    daemon::{DaemonError, backup::BackupError, upkeep::UpkeepError},
    server::TokensError,
};

/// Why a command failed; its text follows "failed to".
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The folders are not known.
    #[error("find the socket and folders")]
    Paths(#[source] PathsError),
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(TokensError),
    /// The daemon was not reached.
    #[error("{doing}")]
    Client {
        /// What for.
        doing: &'static str,
        /// Why.
        source: ClientError,
    },
    /// The daemon said no.
    #[error("{doing}: {refusal}")]
    Refused {
        /// To what.
        doing: &'static str,
        /// Its words.
        refusal: Refusal,
    },
    /// The daemon's answer is not what was asked for.
    #[error("{doing}: the daemon's answer is of another shape than this version knows")]
    Answer {
        /// What was asked for.
        doing: &'static str,
        /// Where it differs.
        source: serde_json::Error,
    },
    /// A person cannot be asked.
    #[error("ask what to do")]
    Ask(#[source] dialoguer::Error),
    /// The daemon ended what was to go on.
    #[error("{doing}: the daemon has stopped")]
    Ended {
        /// What was to go on.
        doing: &'static str,
    },
    /// Some events of several were refused; each was named before.
    #[error("publish {refused} of {total} events")]
    PartlyRefused {
        /// How many were.
        refused: u64,
        /// Of how many.
        total: u64,
    },
    /// A file or stdin cannot be read.
    #[error("read {name}")]
    Input {
        /// Which.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Stdout cannot be written.
    #[error("write the output")]
    Output(#[source] io::Error),
    /// The arguments make no sense together.
    #[error("understand the arguments: {0}")]
    Usage(String),
    /// The configuration has errors; they were printed.
    #[error("accept the configuration: {errors} {}", if *errors == 1 { "error" } else { "errors" })]
    Check {
        /// How many.
        errors: usize,
    },
    /// The journal is damaged; where was printed.
    #[error("accept the journal: {places} damaged {}", if *places == 1 { "place" } else { "places" })]
    Damaged {
        /// How many.
        places: usize,
    },
    /// The journal cannot be looked at or repaired.
    #[error(transparent)]
    Upkeep(Box<UpkeepError>),
    /// A backup cannot be written.
    #[error("back the state up")]
    Backup(#[source] Box<BackupError>),
    /// A backup cannot be restored.
    #[error("restore the state")]
    Restore(#[source] Box<BackupError>),
    /// A file or folder cannot be written.
    #[error("write {name}")]
    Write {
        /// Which.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// An id is shortened so far that it could be several.
    #[error("tell which id `{text}` means; more than one begins so: {ids}")]
    Ambiguous {
        /// What was given.
        text: String,
        /// Some of those.
        ids: String,
    },
    /// Nothing was installed or taken out, or not all of it.
    #[error("change the installation")]
    Install(#[source] install::InstallError),
    /// The daemon was not started in the background.
    #[error("start the daemon in the background")]
    Up(#[source] up::UpError),
    /// The daemon was not stopped.
    #[error("stop the daemon")]
    Down(#[source] down::DownError),
    /// The demo cannot be played.
    #[error("play the demo")]
    Demo(#[source] io::Error),
    /// A command cannot be watched.
    #[error("run the command")]
    Run(#[source] io::Error),
    /// The daemon's log cannot be shown.
    #[error("show the daemon's log: {0}")]
    Log(String),
    /// The daemon did not start.
    #[error("start the daemon")]
    Runtime(#[source] io::Error),
    /// The history cannot be made again here.
    #[error("rebuild the history without a daemon")]
    Offline(#[source] DaemonError),
    /// The history's file fails.
    #[error("rebuild the history: {0}")]
    Rebuild(String),
    /// The daemon stopped with an error.
    #[error("run the daemon")]
    Daemon(#[source] DaemonError),
}

impl CliError {
    /// What the process ends with.
    pub fn exit_code(&self) -> ExitCode {
        if matches!(self, Self::Usage(_)) {
            ExitCode::from(2)
        } else if self.is_silent() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Whether there is nothing to tell, because whoever read the output has read enough.
    pub fn is_silent(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The daemon's reason for saying no.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
pub struct Refusal {
    /// The field that is wrong, if one is.
    pub field: Option<String>,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.field.as_deref().filter(|field| !field.is_empty()) {
            Some(field) => write!(f, "{}: {}", table::one_line(field), table::one_line(&self.message)),
            None => f.write_str(&table::one_line(&self.message)),
        }
    }
}

/// The daemon's answer, which is no success.
pub(super) fn refused(doing: &'static str, status: u16, body: &[u8]) -> CliError {
    CliError::Refused { doing, refusal: refusal(status, body) }
}

/// What a daemon's error says, or what can be said about one that says nothing.
pub(super) fn refusal(status: u16, body: &[u8]) -> Refusal {
    #[derive(Deserialize)]
    struct Wrapper {
        error: Refusal,
    }
    serde_json::from_slice(body).map_or_else(
        |_| Refusal { field: None, message: format!("the daemon answered with HTTP status {status}") },
        |wrapper: Wrapper| wrapper.error,
    )
}
