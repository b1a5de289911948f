//! `aside install` and `aside uninstall`: installs aside in a harness or a service manager, and
//! removes it.
//!
//! All changes are planned before the first file is written; content of others stays unchanged,
//! byte for byte.

mod edit;
mod harness;
pub(super) mod places;
pub(super) mod plan;
pub(super) mod settings;
mod status_line;
mod systemd;
pub(super) mod templates;

use std::{
    env,
    path::{Path, PathBuf},
};

use clap::Subcommand;

use super::{CliError, Context, of_harness::Of, paths::Paths};
use crate::harness::program::Version;
use plan::{FileError, Plan};
use settings::SettingsError;
pub(super) use settings::quoted;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    into: Into,
}

#[derive(Debug, Subcommand)]
enum Into {
    #[command(flatten)]
    Harness(Of<harness::Args>),
    /// systemd: units of this user, started when the socket is first used
    Systemd(systemd::Args),
}

#[derive(Debug, clap::Args)]
pub(super) struct RemoveArgs {
    #[command(subcommand)]
    from: From,
}

#[derive(Debug, Subcommand)]
enum From {
    #[command(flatten)]
    Harness(Of<harness::RemoveArgs>),
    /// systemd
    Systemd(systemd::Args),
}

/// Why an installation or removal failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The location of the files is unknown.
    #[error("{}HOME is {}set", either(*variable), if variable.is_some() { "" } else { "not " })]
    NoHome {
        /// The variable that can replace the home folder.
        variable: Option<&'static str>,
    },
    /// A file cannot be read or changed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A settings file cannot be edited.
    #[error("{}; nothing was changed", why.at(path))]
    Settings {
        /// The file.
        path: PathBuf,
        /// Why.
        why: SettingsError,
    },
    /// It would run twice.
    #[error("{what} exists already, and with both every hook would run twice; remove it first: {remedy}")]
    Twice {
        /// The other installation.
        what: String,
        /// The command that removes it.
        remedy: String,
    },
    /// The plugin's place has foreign content.
    #[error("{} exists already and is not from aside; move it first", path.display())]
    Foreign {
        /// The place.
        path: PathBuf,
    },
    /// The program's hooks would not be recognized as aside's later, so never updated or removed.
    #[error(
        "{program} is not named `{}`, which identifies its hooks later; rename it first",
        settings::PROGRAM
    )]
    OtherName {
        /// The program.
        program: String,
    },
    /// The project does not exist.
    #[error("the folder {} does not exist", path.display())]
    NoProject {
        /// Its expected path.
        path: PathBuf,
    },
    /// A unit cannot contain this path.
    #[error(
        "systemd does not accept the path {path:?} in a unit; move it to a path without quotes, backslashes or line breaks"
    )]
    NotInUnit {
        /// The path.
        path: PathBuf,
    },
    /// The client does not support these hooks.
    #[error("{client} is version {version}; these hooks need {oldest} or later; update it first: {update}")]
    TooOld {
        /// Its program.
        client: &'static str,
        /// Its reported version.
        version: Version,
        /// The oldest supported version.
        oldest: Version,
        /// The command that updates it.
        update: &'static str,
    },
}

fn either(variable: Option<&str>) -> String {
    variable.map(|variable| format!("neither {variable} nor ")).unwrap_or_default()
}

/// The planned changes and messages.
#[derive(Debug)]
struct Outcome {
    is_dry_run: bool,
    plan: Plan,
    notes: Vec<String>,
    next: Vec<(String, String)>,
    /// Folders to delete if they are empty afterwards, and the ancestors at which to stop.
    emptied: Vec<(PathBuf, PathBuf)>,
}

impl Outcome {
    fn new(is_dry_run: bool) -> Self {
        Self { is_dry_run, plan: Plan::default(), notes: Vec::new(), next: Vec::new(), emptied: Vec::new() }
    }

    fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }

    /// Adds the next commands, each with its effect.
    fn next(&mut self, steps: &[(&str, &str)]) {
        self.next = steps.iter().map(|(step, what)| ((*step).to_owned(), (*what).to_owned())).collect();
    }
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let outcome = match &args.into {
        Into::Harness(Of { kind, args }) => {
            let installed = harness::install(kind, args);
            installed.map(|outcome| with_network(with_socket(outcome, context.client.socket())))
        }
        Into::Systemd(args) => systemd::install(args, &context.paths),
    };
    finish(outcome, "everything is installed already", context)
}

/// Explains how hooks find a daemon with a non-default socket: they get only their environment.
fn with_socket(mut outcome: Outcome, socket: &Path) -> Outcome {
    let variable = |name: &str| (!name.starts_with("ASIDE_")).then(|| env::var_os(name)).flatten();
    if Paths::socket_from_env(variable).ok().as_deref() != Some(socket) {
        let shown = socket.display();
        outcome
            .note(&format!("hooks find this daemon only if the client is started with ASIDE_SOCKET={shown}"));
    }
    outcome
}

/// Lists the default network requests, and how to disable them.
fn with_network(mut outcome: Outcome) -> Outcome {
    if !outcome.plan.is_empty() {
        outcome.note(
            "after a push by an agent aside requests the results of its checks from GitHub by `gh`, if it \
             is logged in; `enabled = false` in [sources.ci] of aside.toml disables this",
        );
    }
    outcome
}

pub(super) fn remove(args: &RemoveArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let outcome = match &args.from {
        From::Harness(Of { kind, args }) => {
            harness::uninstall(kind, args).map(|outcome| with_what_stays(outcome, context))
        }
        From::Systemd(args) => systemd::uninstall(args),
    };
    finish(outcome, "nothing of aside is installed", context)
}

/// Lists what remains after a removal: a running daemon, and its records.
fn with_what_stays(mut outcome: Outcome, context: &Context<'_>) -> Outcome {
    if context.client.request("GET", "/healthz", &[], b"").is_ok() {
        outcome.note("the daemon keeps running; `aside down` stops it");
    }
    if let Ok(Paths { state, .. }) = &context.paths
        && state.exists()
    {
        outcome.note(&format!("what it recorded stays in {}", state.display()));
    }
    outcome
}

fn finish(
    outcome: Result<Outcome, InstallError>,
    unchanged: &str,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let outcome = outcome.map_err(CliError::Install)?;
    let unchanged = outcome.plan.is_empty().then(|| format!("{unchanged}\n"));
    if outcome.is_dry_run {
        return context.print(&unchanged.unwrap_or_else(|| outcome.plan.diff()));
    }
    outcome.carry_out().map_err(CliError::Install)?;
    let mut text = unchanged.unwrap_or_else(|| outcome.plan.summary());
    for note in &outcome.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    if !outcome.next.is_empty() {
        let width = outcome.next.iter().map(|(step, _)| step.chars().count()).max().unwrap_or(0);
        text.push_str("\nnext:\n");
        text.extend(outcome.next.iter().map(|(step, what)| format!("{step:width$}  {what}\n")));
    }
    context.print(&text)
}
