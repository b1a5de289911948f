//! `aside places`: where the daemon's socket and files are.

use hook::paths::Paths;

use super::{CliError, Context};

/// How the places are found.
pub(super) const HELP: &str = "\
Every command has these options, each with its variable and its default:

  --socket PATH  $ASIDE_SOCKET  aside.sock in the state folder
  --config DIR   $ASIDE_CONFIG  aside in $XDG_CONFIG_HOME, else ~/.config/aside
  --state DIR    $ASIDE_STATE   aside in $XDG_STATE_HOME, else
                                ~/.local/state/aside

In the config folder are aside.toml, events.toml, webhooks.toml, subscribers/
and templates/; in the state folder the journal and all that is made of it.";

pub(super) fn run(context: &mut Context<'_>) -> Result<(), CliError> {
    let Paths { socket, config, state } = context.paths.clone().map_err(CliError::Paths)?;
    let lines = [("socket", socket), ("config", config), ("state", state)];
    context.print(&lines.map(|(name, path)| format!("{name:6}  {}\n", path.display())).concat())
}
