//! `aside token`: tokens for access over TCP.

use super::{CliError, Context};
use crate::{
    daemon,
    server::tokens::{self, Scope},
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Make a token, print it and add it to the token file; it counts at once
    New {
        /// What it is for: publish, exchange, read or admin, several with commas
        #[arg(long, value_name = "SCOPES", required = true, value_delimiter = ',')]
        scope: Vec<Scope>,
        /// What you call it
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
    },
    /// List what the tokens begin with and are for; to revoke one, take its line out of the file
    List,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let paths = context.paths.clone().map_err(CliError::Paths)?;
    let file = daemon::token_file(&paths.config, &paths.state);
    match &args.action {
        Action::New { scope, note } => {
            let token = tokens::add(&file, scope, note).map_err(CliError::Tokens)?;
            context.print(&format!("{token}\n"))
        }
        Action::List => {
            let mut text = format!("{}\n", file.display());
            for token in tokens::load(&file).map_err(CliError::Tokens)? {
                let scopes: Vec<String> = token.scopes.iter().map(Scope::to_string).collect();
                let line = format!("  {}..  {:16}  {}", token.begin(), scopes.join(","), token.note);
                text.push_str(&format!("{}\n", line.trim_end()));
            }
            context.print(&text)
        }
    }
}
