//! Whether an agent's tools answer: sends a client's first two requests through `aside mcp`, and
//! checks whether the client has that installed.

use std::{
    env, io,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::Check;
use toon::tokens;

use crate::{
    cli::{
        Context,
        install::{places::Places, plan::FILE_BYTES_MAX, templates::SERVERS},
    },
    daemon::regular_file,
    harness::kind::Kind,
};

const NAME: &str = "tools";
/// Time limit of the answers.
const ANSWERS_MAX: Duration = Duration::from_secs(2);
/// The requested MCP version; the daemon answers with the newest that both know.
const VERSION: &str = "2025-06-18";

/// Whether the tools answer; the text also has their installation in each client.
pub(super) fn check(kinds: &[&'static Kind], context: &Context<'_>) -> Check {
    let installed: Vec<String> = kinds.iter().filter_map(|kind| installed(kind)).collect();
    let installed = installed.join("; ");
    match list(context.client.socket()) {
        Ok(tools) => {
            let names: Vec<&str> = tools.iter().filter_map(|tool| tool.get("name")?.as_str()).collect();
            let size = tokens::estimate(&json!(tools).to_string());
            let found = format!("{} by `aside mcp`, {} tokens; {installed}", names.join(", "), size.0);
            Check::ok(NAME, found)
        }
        Err(error) => {
            let remedy = "see the daemon's log; aside install writes the command for a client";
            Check::warn(NAME, format!("`aside mcp` does not answer: {error}; {installed}"), remedy)
        }
    }
}

/// Whether the client starts `aside mcp`, as the end of a sentence; `None` for a client without MCP
/// support.
fn installed(kind: &'static Kind) -> Option<String> {
    let places = Places::find(kind.hooked()?, Path::new(".")).ok()?;
    let (folder, extension) = places.extension()?;
    let manifest =
        regular_file::read(&folder.join(extension.folder.manifest), FILE_BYTES_MAX).unwrap_or_default();
    let manifest: Value = serde_json::from_slice(&manifest).unwrap_or_default();
    let name = kind.caps.name;
    Some(match manifest.get(SERVERS) {
        Some(_) => format!("installed in {name}"),
        None => format!("not installed in {name}: aside install {name} --tools installs them for its agent"),
    })
}

/// The tools that a client gets.
///
/// Errors: the program cannot be run, or does not answer in time.
fn list(socket: &Path) -> io::Result<Vec<Value>> {
    let mut child = Command::new(env::current_exe()?)
        .arg("mcp")
        .env("ASIDE_SOCKET", socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let answer = ask(&mut child);
    child.kill().ok();
    child.wait()?;
    answer
}

fn ask(child: &mut Child) -> io::Result<Vec<Value>> {
    let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    let client = json!({ "name": "aside doctor", "version": env!("CARGO_PKG_VERSION") });
    let parameters = json!({ "protocolVersion": VERSION, "capabilities": {}, "clientInfo": client });
    for request in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": parameters }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" }),
    ] {
        writeln!(input, "{request}")?;
    }
    let (sender, receiver) = mpsc::sync_channel(1);
    // The thread ends with the child.
    thread::Builder::new().name("answers".to_owned()).spawn(move || {
        let answers = BufReader::new(output).lines().map_while(Result::ok);
        let mut tools = answers.filter_map(|line| tools_in(&line));
        sender.send(tools.next()).ok();
    })?;
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no list within {ANSWERS_MAX:?}"));
    let listed = receiver.recv_timeout(ANSWERS_MAX).map_err(late)?;
    listed.ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "it ended without a list"))
}

/// The tools in a line, if it is the answer to that request.
fn tools_in(line: &str) -> Option<Vec<Value>> {
    let answer: Value = serde_json::from_str(line).ok()?;
    Some(answer.get("result")?.get("tools")?.as_array()?.clone())
}
