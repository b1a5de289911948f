//! `aside journal`, `aside backup`, `aside restore` and `aside rebuild`: the files in the state folder.
//!
//! Only `rebuild` makes a request: a running daemon rebuilds the history while it serves, and the
//! command follows its progress; otherwise the command does it itself.

use std::{path::PathBuf, thread, time::Duration};

use clap::Subcommand;
use engine::{event::Seq, sorted::SortedSet, words::counted};
use hook::client::ClientError;
use journal::{RepairMode, Verified};
use serde::Deserialize;

use super::{CliError, Context, parse};
use crate::{
    api::wire::history::ProjectionView,
    daemon::{
        self, Rebuilt,
        backup::{self as backups, Kept},
        maintenance::{self, MaintenanceError},
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct JournalArgs {
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

pub(super) fn journal(args: &JournalArgs, context: &mut Context<'_>) -> Result<(), CliError> {
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

#[derive(Debug, clap::Args)]
pub(super) struct BackupArgs {
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

pub(super) fn backup(args: &BackupArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.state()?;
    let kept = backups::backup(&state, &args.file).map_err(|error| CliError::Backup(Box::new(error)))?;
    context.say(&format!("wrote {} to {}\n", extent(kept), args.file.display()))
}

pub(super) fn restore(args: &RestoreArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let state = context.state()?;
    let kept = backups::restore(&args.file, &state).map_err(|error| CliError::Restore(Box::new(error)))?;
    context.say(&format!("restored {} into {}\n", extent(kept), state.display()))
}

fn extent(Kept { last, segments, bytes }: Kept) -> String {
    let (segments, bytes) = (counted(segments, "journal file"), counted(bytes, "byte"));
    format!("the state up to record {last}, {segments} in {bytes},")
}

const REBUILD: &str = "rebuild the history";
/// Poll interval of the daemon's progress.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct RebuildArgs {
    /// Do not wait for a running daemon to finish
    #[arg(long)]
    no_wait: bool,
}

#[derive(Deserialize)]
struct Status {
    projection: ProjectionView,
}

pub(super) fn rebuild(args: &RebuildArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let body = match context.ask(REBUILD, "POST", "/v1/admin/rebuild", None) {
        Err(CliError::Client { source: ClientError::NoDaemon { .. }, .. }) => return offline(context),
        other => other?,
    };
    let begun: ProjectionView = parse(REBUILD, &body)?;
    let head = begun.seq + begun.behind;
    if args.no_wait {
        return context.say(&format!(
            "the daemon rebuilds it up to record {head}; `aside status` shows the progress\n"
        ));
    }
    loop {
        let Status { projection } = context.get(REBUILD, "/v1/status")?;
        if let Some(why) = projection.failed {
            return Err(CliError::Rebuild(why));
        }
        if projection.seq >= head {
            return context.say(&format!("rebuilt by the daemon up to record {}\n", projection.seq));
        }
        wait();
    }
}

#[expect(clippy::disallowed_methods, reason = "a person waits for the result of the poll")]
fn wait() {
    thread::sleep(LOOK);
}

fn offline(context: &mut Context<'_>) -> Result<(), CliError> {
    let paths = context.paths()?;
    let Rebuilt { last, file } = daemon::rebuild(&paths.state, &paths.config).map_err(CliError::Offline)?;
    context.say(&format!("no daemon runs; rebuilt here up to record {last}: {}\n", file.display()))
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn a_running_daemon_is_asked_and_followed() {
        let answer = r#"{"seq":9,"behind":0,"projection":{"seq":9,"behind":0}}"#;
        let daemon = FakeDaemon::answering_json(200, answer);
        assert_eq!(
            run_against(&daemon, &["rebuild"]).as_deref(),
            Ok("rebuilt by the daemon up to record 9\n")
        );
        let asked: Vec<String> = daemon
            .requests()
            .iter()
            .filter_map(|request| request.lines().next().map(str::to_owned))
            .collect();
        assert_eq!(asked, ["POST /v1/admin/rebuild HTTP/1.1", "GET /v1/status HTTP/1.1"]);
        let failing = r#"{"seq":0,"behind":9,"projection":{"seq":0,"behind":9,"failed":"the disk is full"}}"#;
        let error = run_against(&FakeDaemon::answering_json(200, failing), &["rebuild"]);
        assert_eq!(error, Err("rebuild the history: the disk is full".to_owned()));
    }
}
