//! `aside statusline`: the number and urgency of pending notifications, after the output of the
//! user's own status line.
//!
//! A harness draws its status line often and waits for it, so an absent or slow daemon must not
//! delay the user's line.

use std::{
    env,
    io::{self, Read, Write},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use hook::client::{Client, HOOK_DEADLINE, hook_deadline};

use super::{CliError, of_harness::harness};
use crate::harness::kind::Kind;

/// Longest accepted input, in bytes; a client writes a few thousand.
const STDIN_BYTES_MAX: u64 = 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness
    #[arg(value_parser = harness(|kind| kind.word))]
    harness: &'static Kind,
    /// Your own status line: a shell command that gets the same stdin, and whose output goes first
    #[arg(long, value_name = "COMMAND")]
    wrap: Option<String>,
}

pub(super) fn run(args: &Args, socket: &Path) -> Result<(), CliError> {
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
