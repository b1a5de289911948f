//! `aside mcp`: an agent's tools, for a client that starts an MCP server on stdio.
//!
//! The daemon implements the protocol; this only copies the bytes.

use std::env;

use hook::{
    client::{PumpEnd, start_if_absent},
    harness::header,
};

use super::{CliError, Context, refused, workspace_or_current};
use crate::harness::table::KINDS;

const PATH: &str = "/v1/mcp";
const PROTOCOL: &str = "mcp";
const DOING: &str = "speak MCP";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Start the daemon if it does not run
    #[arg(long)]
    start: bool,
}

pub(super) fn run(args: &Args, context: &Context<'_>) -> Result<(), CliError> {
    if args.start
        && let Ok(paths) = &context.paths
        && let Some(mut starting) = start_if_absent(&paths.socket, &paths.variables())
    {
        // If it does not start, the connect fails.
        starting.wait().ok();
    }
    let variables = KINDS.into_iter().filter_map(|kind| kind.forwarded_as(header::SESSION));
    let session = variables.filter_map(|variable| env::var(variable).ok()).find(|value| !value.is_empty());
    let named = [(header::SESSION, session), (header::CWD, workspace_or_current(None))];
    let headers: Vec<(&str, &str)> =
        named.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
    let relayed = context.client.relay(PATH, PROTOCOL, &headers);
    match relayed.map_err(|source| CliError::Client { doing: DOING, source })? {
        Ok(PumpEnd::ToTheEnd) => Ok(()),
        Ok(PumpEnd::UntilTheDaemonStopped) => Err(CliError::Ended { doing: DOING }),
        Err(response) => Err(refused(DOING, response.status, &response.body)),
    }
}
