//! Whether the daemon runs, has this version, and is private.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use super::Check;
use crate::{
    cli::{Context, install::quoted, running::running},
    server,
    wire::views::ConfigView,
};

/// Name of the check whose failure makes others pointless.
pub(super) const NAME: &str = "daemon";
const CONFIG: &str = "config";

pub(super) fn checks(context: &Context<'_>) -> Vec<Check> {
    let socket = context.client.socket();
    let own = env!("CARGO_PKG_VERSION");
    let mut checks = Vec::new();
    let running = running(&context.client);
    let problems = running.as_ref().map(|daemon| daemon.journal.problems.clone()).unwrap_or_default();
    let config = running.as_ref().map(|daemon| config(&daemon.config)).unwrap_or_default();
    match running {
        None => {
            let found = format!("nothing answers at {}", socket.display());
            return vec![Check::fail(NAME, found, "aside up")];
        }
        Some(daemon) if daemon.version != own => {
            let found = format!("version {}, but this is {own}", daemon.version);
            checks.push(Check::warn(NAME, found, "aside down && aside up"));
        }
        Some(daemon) => {
            checks.push(Check::ok(NAME, format!("process {} at {}", daemon.pid, socket.display())));
        }
    }
    if problems.is_empty() {
        checks.push(Check::ok("journal", "no damage was met since the daemon started"));
    }
    for problem in problems {
        checks.push(Check::warn("journal", problem, "aside journal verify"));
    }
    checks.extend(config);
    checks.push(private("socket", socket, "chmod 600"));
    if let Err(error) = server::safe_folder(server::folder_of(socket)) {
        let remedy = "set ASIDE_SOCKET to a place in a folder of your own";
        checks.push(Check::fail("folder", error.to_string(), remedy));
    }
    match &context.paths {
        Ok(paths) => checks.push(private("state", &paths.state, "chmod 700")),
        Err(error) => checks.push(Check::warn("state", error.to_string(), "set one of them")),
    }
    checks
}

/// Whether the daemon's active configuration is the one last read from the files.
fn config(config: &ConfigView) -> Vec<Check> {
    let remedy = "aside check shows where; then aside reload";
    match config.trouble() {
        None => vec![Check::ok(CONFIG, "the files are in force as they were read last")],
        Some(trouble) => std::iter::once(&trouble)
            .chain(config.problems())
            .map(|found| Check::fail(CONFIG, found.as_str(), remedy))
            .collect(),
    }
}

/// Whether no other user can access `path`.
fn private(name: &'static str, path: &Path, remedy: &str) -> Check {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let remedy = "look whether the daemon was started with other ASIDE_ variables than this command";
            Check::warn(name, format!("{shown} is not there"), remedy)
        }
        Err(error) => Check::fail(name, format!("{shown}: {error}"), "look at its permissions"),
        Ok(found) if found.uid() != rustix::process::getuid().as_raw() => Check::fail(
            name,
            format!("{shown} belongs to another user"),
            "set ASIDE_SOCKET and ASIDE_STATE to places of your own",
        ),
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let mode = found.permissions().mode() & 0o777;
            Check::warn(
                name,
                format!("{shown} is open to others (mode {mode:o})"),
                format!("{remedy} {}", quoted(&shown.to_string())),
            )
        }
        Ok(_) => Check::ok(name, format!("{shown} is private")),
    }
}
