//! `aside token` and `aside places`: tokens for access over TCP, and where the daemon's socket and
//! files are.

use std::io;

use hook::paths::Paths;

use super::{CliError, Context};
use crate::{
    api::{
        TokensError,
        tokens::{self, Scope},
    },
    daemon,
};

#[derive(Debug, clap::Args)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Create a token, print it and add it to the token file; it is valid at once
    New {
        /// Its scopes: publish, exchange, read or admin, separated by commas
        #[arg(long, value_name = "SCOPES", required = true, value_delimiter = ',')]
        scope: Vec<Scope>,
        /// Your note for it
        #[arg(long, value_name = "TEXT", default_value = "")]
        note: String,
    },
    /// List the prefixes and scopes of the tokens; to revoke one, remove its line from the file
    List,
}

pub(super) fn token(args: &TokenArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let paths = context.paths.clone().map_err(CliError::Paths)?;
    let file = daemon::token_file(&paths.config, &paths.state);
    match &args.action {
        Action::New { scope, note } => {
            let token = tokens::add(&file, scope, note).map_err(CliError::Tokens)?;
            context.print(&format!("{token}\n"))
        }
        Action::List => {
            let listed = match tokens::load(&file) {
                Err(TokensError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    return context.say("no token: `aside token new --scope SCOPES` creates one\n");
                }
                listed => listed.map_err(CliError::Tokens)?,
            };
            let mut text = format!("{}\n", file.display());
            for token in listed {
                let scopes: Vec<String> = token.scopes.iter().map(Scope::to_string).collect();
                let line = format!("  {}..  {:16}  {}", token.begin(), scopes.join(","), token.note);
                text.push_str(&format!("{}\n", line.trim_end()));
            }
            context.print(&text)
        }
    }
}

/// How the places are found.
pub(super) const PLACES_HELP: &str = "\
Every command has these options, each with its variable and its default:

  --socket PATH  $ASIDE_SOCKET  aside.sock in the state folder
  --config DIR   $ASIDE_CONFIG  aside in $XDG_CONFIG_HOME, else ~/.config/aside
  --state DIR    $ASIDE_STATE   aside in $XDG_STATE_HOME, else
                                ~/.local/state/aside

In the config folder are aside.toml, events.toml, webhooks.toml, subscribers/
and templates/; in the state folder the journal and all that is made of it.";

pub(super) fn places(context: &mut Context<'_>) -> Result<(), CliError> {
    let Paths { socket, config, state } = context.paths.clone().map_err(CliError::Paths)?;
    let lines = [("socket", socket), ("config", config), ("state", state)];
    context.print(&lines.map(|(name, path)| format!("{name:6}  {}\n", path.display())).concat())
}
