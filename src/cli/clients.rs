//! `aside mcp`, `aside statusline` and `aside instructions`: what clients run or read.
//!
//! For `aside mcp` the daemon implements the protocol; the command only copies the bytes. A harness
//! draws its status line often and waits for it, so an absent or slow daemon must not delay the line
//! of the user.

use std::{
    env,
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use clap::builder::PossibleValuesParser;
use hook::{
    client::{Client, HOOK_DEADLINE, PumpEnd, hook_deadline, start_if_absent},
    harness::header,
};

use super::{CliError, Context, context::complain, harness::harness, refused, workspace_or_current};
use crate::{
    api::wire::formats::INSTRUCTIONS,
    harness::{kind::Kind, table::KINDS},
};

const MCP_PATH: &str = "/v1/mcp";
const MCP_PROTOCOL: &str = "mcp";
const MCP: &str = "speak MCP";

#[derive(Debug, clap::Args)]
pub(super) struct McpArgs {
    /// Start the daemon if it does not run
    #[arg(long)]
    start: bool,
}

pub(super) fn mcp(args: &McpArgs, context: &Context<'_>) -> Result<(), CliError> {
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
    let relayed = context.client.relay(MCP_PATH, MCP_PROTOCOL, &headers);
    match relayed.map_err(|source| CliError::Client { doing: MCP, source })? {
        Ok(PumpEnd::ToTheEnd) => Ok(()),
        Ok(PumpEnd::UntilTheDaemonStopped) => Err(CliError::Ended { doing: MCP }),
        Err(response) => Err(refused(MCP, response.status, &response.body)),
    }
}

/// Longest accepted input, in bytes; a client writes a few thousand.
const STDIN_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct StatusLineArgs {
    /// The harness
    #[arg(value_parser = harness(|kind| kind.word))]
    harness: &'static Kind,
    /// Your own status line: a shell command that gets the same stdin, and whose output goes first
    #[arg(long, value_name = "COMMAND")]
    wrap: Option<String>,
}

pub(super) fn status_line(args: &StatusLineArgs, socket: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::Input { name: "stdin".to_owned(), source };
    let mut stdin = Vec::new();
    io::stdin().take(STDIN_BYTES_MAX).read_to_end(&mut stdin).map_err(failed)?;
    let own = args.wrap.as_deref().map(start).transpose().map_err(CliError::Run)?;
    let (own, pending) = thread::scope(|scope| {
        let own = own.map(|child| scope.spawn(|| output(child, &stdin)));
        let pending = pending(args.harness.word, socket, &stdin);
        (own.and_then(|own| own.join().ok()).unwrap_or_default(), pending)
    });
    let mut stdout = io::stdout().lock();
    let line = joined(&own, pending.as_deref());
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(CliError::Output)
}

fn start(command: &str) -> io::Result<Child> {
    Command::new("sh").arg("-c").arg(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// The output of the user's own command, if any.
fn output(mut child: Child, stdin: &[u8]) -> String {
    thread::scope(|scope| {
        let pipe = child.stdin.take();
        // In parallel with the reading, because both sides could wait for the other. The command
        // may ignore its stdin.
        scope.spawn(move || pipe.map(|mut pipe| pipe.write_all(stdin).ok()));
        let output = child.wait_with_output().map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&output).into_owned()
    })
}

/// The daemon's text, if there is any.
fn pending(name: &str, socket: &Path, stdin: &[u8]) -> Option<String> {
    let client =
        Client::new(socket.to_owned(), HOOK_DEADLINE).impatient(hook_deadline(|name| env::var_os(name)));
    let headers = [("content-type", "application/json")];
    let response = client.request("POST", &format!("/v1/statusline/{name}"), &headers, stdin).ok()?;
    (response.status == 200).then(|| String::from_utf8(response.body).ok()).flatten()
}

fn joined(own: &str, pending: Option<&str>) -> String {
    let own = own.trim_end_matches('\n');
    match (own.is_empty(), pending) {
        (_, None) => own.to_owned(),
        (true, Some(pending)) => pending.to_owned(),
        (false, Some(pending)) => format!("{own} | {pending}"),
    }
}

/// The name of a loop of one's own.
const LOOP: &str = "loop";
#[derive(Debug, clap::Args)]
pub(super) struct InstructionsArgs {
    /// `loop` for a loop of your own, or a harness
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(names()))]
    name: String,
}

fn names() -> impl Iterator<Item = &'static str> {
    std::iter::once(LOOP).chain(KINDS.map(|kind| kind.caps.name))
}

pub(super) fn instructions(args: &InstructionsArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let kind = KINDS.into_iter().find(|kind| kind.caps.name == args.name);
    if let Some(extension) = kind.and_then(|kind| kind.hooks()?.installation.extension.as_ref()) {
        complain(extension.instructions);
    }
    context.print(&format!("{INSTRUCTIONS}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn the_count_follows_the_users_own_line() {
        for (own, pending, expected) in [
            ("", None, ""),
            ("", Some("aside 3 high"), "aside 3 high"),
            ("main*\n", None, "main*"),
            ("one\ntwo\n", Some("aside 3 high"), "one\ntwo | aside 3 high"),
        ] {
            assert_eq!(joined(own, pending), expected);
        }
    }

    #[test]
    fn loops_and_harnesses_have_the_same_instructions() {
        let daemon = FakeDaemon::silent();
        let printed = |name| run_against(&daemon, &["instructions", name]);
        assert_eq!(printed(LOOP).as_deref(), Ok(&*format!("{INSTRUCTIONS}\n")));
        for kind in KINDS {
            assert_eq!(printed(kind.caps.name), printed(LOOP), "{}", kind.caps.name);
            let files = kind.extension().map_or(&[][..], |folder| folder.files);
            assert!(files.iter().any(|(_, text)| text.contains(INSTRUCTIONS)), "{}", kind.caps.name);
        }
        let error = printed("lop").expect_err("no harness");
        assert!(error.contains("'loop'"), "{error}");
    }
}
