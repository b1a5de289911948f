//! `aside sessions`: the conversations that the daemon knows.

use serde::Deserialize;
use serde_json::Value;

use super::{CliError, Context, parse, table};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Sessions {
    sessions: Vec<Value>,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "list the sessions";
    let body = context.ask(doing, "GET", "/v1/sessions", None)?;
    if args.json {
        let answer: Value = parse(doing, &body)?;
        return context.print(&format!("{answer}\n"));
    }
    let Sessions { sessions } = parse(doing, &body)?;
    let text = if sessions.is_empty() { "no sessions\n".to_owned() } else { table::table(&sessions) };
    context.print(&text)
}
