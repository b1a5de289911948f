//! `aside rebuild`: rebuilds the history's file from the journal.
//!
//! A running daemon does it while it serves, and the command follows its progress. Otherwise the
//! command does it itself.

use std::{thread, time::Duration};

use hook::client::ClientError;
use serde::Deserialize;

use super::{CliError, Context, parse};
use crate::{
    api::wire::history::ProjectionView,
    daemon::{self, Rebuilt},
};

const DOING: &str = "rebuild the history";
/// Poll interval of the daemon's progress.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Do not wait for a running daemon to finish
    #[arg(long)]
    no_wait: bool,
}

#[derive(Deserialize)]
struct Status {
    projection: ProjectionView,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let body = match context.ask(DOING, "POST", "/v1/admin/rebuild", None) {
        Err(CliError::Client { source: ClientError::NoDaemon { .. }, .. }) => return offline(context),
        other => other?,
    };
    let begun: ProjectionView = parse(DOING, &body)?;
    let head = begun.seq + begun.behind;
    if args.no_wait {
        return context.say(&format!(
            "the daemon rebuilds it up to record {head}; `aside status` shows the progress\n"
        ));
    }
    loop {
        let Status { projection } = context.get(DOING, "/v1/status")?;
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
    let paths = context.paths.as_ref().map_err(|error| CliError::Paths(error.clone()))?;
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
