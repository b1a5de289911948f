//! `aside backup` and `aside restore`: saves the state to one file and restores it, without a
//! request to the daemon.

use std::path::PathBuf;

use engine::words::counted;

use super::{CliError, Context};
use crate::daemon::backup::{self, Kept};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The tar file to write; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    /// The tar file that `aside backup` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.state()?;
    let kept = backup::backup(&state, &args.file).map_err(|error| CliError::Backup(Box::new(error)))?;
    context.say(&format!("wrote {} to {}\n", text(kept), args.file.display()))
}

pub(super) fn restore(args: &RestoreArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.state()?;
    let kept = backup::restore(&args.file, &state).map_err(|error| CliError::Restore(Box::new(error)))?;
    context.say(&format!("restored {} into {}\n", text(kept), state.display()))
}

fn text(Kept { last, segments, bytes }: Kept) -> String {
    let (segments, bytes) = (counted(segments, "journal file"), counted(bytes, "byte"));
    format!("the state up to record {last}, {segments} in {bytes},")
}
