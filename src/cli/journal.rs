//! `aside journal`: checks and repairs the files of the journal, without a request to the daemon.

use clap::Subcommand;

use super::{CliError, Context};
use engine::{event::Seq, sorted::SortedSet, words::counted};
use journal::{RepairMode, Verified};

use crate::daemon::maintenance::{self, MaintenanceError};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Read every record and report damage; also while the daemon runs
    Verify,
    /// Rewrite damaged files from their valid records, keeping the damaged ones; with the daemon
    /// stopped
    Repair {
        /// Only show what would be done
        #[arg(long)]
        dry_run: bool,
    },
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.state()?;
    match &args.command {
        Command::Verify => {
            let (verified, skipped) = maintenance::verify(&state).map_err(failed)?;
            let rules = maintenance::verify_rules(&state).map_err(failed)?;
            context.say(&(report_rules(&rules) + &report_skipped(&skipped) + &report(&verified)))?;
            match verified.findings() + rules.len() {
                0 => Ok(()),
                places => Err(CliError::Damaged { places }),
            }
        }
        Command::Repair { dry_run } => {
            let mode = if *dry_run { RepairMode::DryRun } else { RepairMode::Rewrite };
            let (verified, repaired) = maintenance::repair(&state, mode).map_err(failed)?;
            let mut text = report(&verified);
            for one in &repaired {
                let (path, kept) = (one.path.display(), one.kept.display());
                let (records, lost) = (counted(one.records, "record"), one.lost);
                text += &if *dry_run {
                    format!("would rewrite {path}: {records} kept, {lost} lost\n")
                } else {
                    format!("rewrote {path}: {records} kept, {lost} lost; the damaged file is {kept}\n")
                };
            }
            if repaired.is_empty() {
                text += "nothing to repair\n";
            }
            context.say(&text)
        }
    }
}

/// Damaged rules do not prevent a start, and a repair cannot restore them.
fn report_rules(wrong: &[String]) -> String {
    let advice = "the next start of the daemon rewrites it if the configuration still has it, else uses the nearest rules";
    wrong.iter().map(|sentence| format!("{sentence}; {advice}\n")).collect()
}

fn report_skipped(skipped: &SortedSet<Seq>) -> String {
    let sentence = |seq: &Seq| {
        format!(
            "record {seq}: a start skipped it, because it cannot be read or the daemon crashed on it; another build of the program tries it again\n"
        )
    };
    skipped.iter().map(sentence).collect()
}

fn failed(error: MaintenanceError) -> CliError {
    CliError::Maintenance(Box::new(error))
}

fn report(verified: &Verified) -> String {
    let mut text = String::new();
    for segment in &verified.segments {
        for finding in &segment.findings {
            text += &format!("{}: {finding}\n", segment.path.display());
        }
    }
    for cut in &verified.torn {
        text += &format!(
            "{}: byte {}: {} bytes that are not known to be durable; the next start cuts them, with a copy if they have a valid record, or the \
             daemon is writing them\n",
            cut.path.display(),
            cut.offset,
            cut.bytes
        );
    }
    for kept in &verified.kept {
        text += &format!("{}: copy from an earlier cut or repair; never read or deleted\n", kept.display());
    }
    let (first, records) = verified.totals();
    let sealed = verified.segments.iter().filter(|segment| segment.is_sealed).count();
    let tombstones: u64 = verified.segments.iter().map(|segment| segment.tombstones).sum();
    let of_these = if tombstones == 0 {
        String::new()
    } else {
        format!(", {tombstones} of them tombstones of lost ones")
    };
    let from = first.map_or_else(String::new, |first| format!(" from {first} on"));
    let damaged = match verified.findings() {
        0 => "no damage".to_owned(),
        1 => "1 damaged place".to_owned(),
        places => format!("{places} damaged places"),
    };
    let (records, files) = (counted(records, "valid record"), counted(verified.segments.len(), "file"));
    text + &format!("{records}{from}{of_these}, in {files}, {sealed} of them sealed; {damaged}\n")
}
