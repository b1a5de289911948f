//! `aside` alone: the status of the daemon, or how to start one.

use hook::client::ClientError;

use super::{CliError, Context, status, terminal::Tone, terminal::one_line};
use crate::harness::{kind::Kind, table::KINDS};

/// The screen without a daemon: the commands, and what each does.
fn how_to_start() -> String {
    let install =
        |kind: &Kind| (format!("aside install {}", kind.caps.name), format!("install it in {}", kind.title));
    let plain = |command: &str, what: &str| (command.to_owned(), what.to_owned());
    let steps = std::iter::once(plain("aside up", "start it in the background"))
        .chain(KINDS.into_iter().map(install))
        .chain([
            plain("aside demo", "see what an agent receives, without a daemon"),
            plain("aside --help", "every command"),
        ]);
    steps.map(|(command, what)| format!("  {command:25}   {what}\n")).collect()
}

/// Prints the screen, also without a daemon.
pub(super) fn run(context: &mut Context<'_>) -> Result<(), CliError> {
    match status::run(&status::Args::default(), context) {
        Err(CliError::Client { source: ClientError::NoDaemon { socket, .. }, .. }) => {
            let head = format!("no daemon runs at {}", one_line(&socket.display().to_string()));
            let head = context.terminal.paint(Tone::Warning, &context.terminal.wrap(&head, 0, 2));
            context.print(&format!("{head}\n\n{}", how_to_start()))
        }
        shown => shown,
    }
}
