//! `aside install` and `aside uninstall`: installs aside in a harness or a service manager, and
//! removes it.
//!
//! All changes are planned before the first file is written; content of others stays unchanged,
//! byte for byte.

pub(super) mod client;
mod edit;
mod error;
pub(super) mod extension;
mod harness;
mod hooks;
mod options;
pub(super) mod places;
pub(super) mod plan;
pub(super) mod settings;
mod systemd;
pub(super) mod templates;

use std::{env, path::Path};

use clap::Subcommand;
use hook::paths::Paths;
use plan::Outcome;

use super::{CliError, Context, harness::Of};

pub(super) use error::InstallError;
pub(super) use settings::quoted;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    into: Into,
}

#[derive(Debug, Subcommand)]
enum Into {
    #[command(flatten)]
    Harness(Of<options::Args>),
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
    Harness(Of<options::RemoveArgs>),
    /// systemd
    Systemd(systemd::Args),
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

/// Lists the remains after a removal: a running daemon, and its records.
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
    outcome.carry_out().map_err(|error| CliError::Install(error.into()))?;
    let mut text = unchanged.unwrap_or_else(|| outcome.plan.summary());
    for note in &outcome.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    if !outcome.next.is_empty() {
        let width = outcome.next.iter().map(|(step, _)| step.chars().count()).max().unwrap_or(0);
        text.push_str("\nnext:\n");
        text.extend(outcome.next.iter().map(|(step, what)| format!("{step:width$}  {what}\n")));
    }
    context.say(&text)
}
