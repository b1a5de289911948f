//! Whether the daemon runs, has this version, and is private.

use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use rustix::fs::{Access, access};

use super::Check;
use crate::{
    api::{
        self,
        wire::{
            trust::WorkspaceView,
            views::{ConfigView, clock_trouble},
        },
    },
    cli::{Context, install::quoted, up::running},
    daemon::{
        maintenance::{UnreleasedError, refuse_unreleased},
        version::{BUILD, VERSION},
    },
};

/// Name of the check whose failure makes others pointless.
pub(super) const NAME: &str = "daemon";
const CONFIG: &str = "config";
const WORKSPACE: &str = "workspace";
const CLOCK: &str = "clock";

pub(super) fn checks(context: &Context<'_>) -> Vec<Check> {
    let socket = context.client.socket();
    let mut checks = Vec::new();
    let running = running(&context.client);
    let problems = running.as_ref().map(|daemon| daemon.journal.problems.clone()).unwrap_or_default();
    let clock = running.as_ref().and_then(|daemon| clock_trouble(daemon.clock_ahead_ms));
    let config = running.as_ref().map(|daemon| config(&daemon.config)).unwrap_or_default();
    let workspaces: Vec<_> =
        running.iter().flat_map(|daemon| daemon.workspaces.iter().map(workspace)).collect();
    match running {
        None => {
            let found = format!("nothing answers at {}", socket.display());
            let state = context.paths.as_ref().ok().and_then(|paths| unusable(&paths.state));
            return std::iter::once(Check::fail(NAME, found, "aside up")).chain(state).collect();
        }
        Some(daemon) => checks.push(match daemon.other_program() {
            Some(other) => {
                let found = format!("{other}, but this is version {VERSION}, build {BUILD}");
                Check::warn(NAME, found, "aside down && aside up")
            }
            None => Check::ok(NAME, format!("process {} at {}", daemon.pid, socket.display())),
        }),
    }
    checks.push(match clock {
        None => Check::ok(CLOCK, "the journal's time is the wall clock's"),
        Some(trouble) => Check::warn(CLOCK, trouble, "check this machine's clock (timedatectl)"),
    });
    if problems.is_empty() {
        checks.push(Check::ok("journal", "no damage found since the daemon started"));
    }
    for problem in problems {
        checks.push(Check::warn("journal", problem, "aside journal verify"));
    }
    checks.extend(config);
    checks.extend(workspaces);
    checks.push(private("socket", socket, "chmod 600"));
    if let Err(error) = api::safe_folder(api::folder_of(socket)) {
        let remedy = "set ASIDE_SOCKET to a path in a folder of yours";
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
        None => vec![Check::ok(CONFIG, "the last read of the files is in force")],
        Some(trouble) => std::iter::once(&trouble)
            .chain(&config.problems)
            .map(|found| Check::fail(CONFIG, found.as_str(), remedy))
            .collect(),
    }
}

/// Whether the files of a workspace are in force.
fn workspace(one: &WorkspaceView) -> Check {
    let folder = &one.folder;
    match one.trouble() {
        None => {
            Check::ok(WORKSPACE, format!("the files in {folder}/.aside are in force for the agents there"))
        }
        Some(trouble) => Check::warn(WORKSPACE, trouble, one.remedy()),
    }
}

/// A check that failed, if a daemon could not make, write or read the state folder `path`.
fn unusable(path: &Path) -> Option<Check> {
    if let Err(UnreleasedError { path, folder }) = refuse_unreleased(path) {
        let found = format!("{} was written by an unreleased build of aside", path.display());
        let folder = folder.display().to_string();
        let remedy = format!("mv {} {}", quoted(&folder), quoted(&format!("{folder}.unreleased")));
        return Some(Check::fail("state", found, remedy));
    }
    let there = path.ancestors().find(|folder| fs::symlink_metadata(folder).is_ok())?;
    let why = match access(there, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) if there.is_dir() => return None,
        Ok(()) => "it is no folder".to_owned(),
        Err(error) => io::Error::from(error).to_string(),
    };
    let remedy = "make it a folder that you can write, or set ASIDE_STATE to another one";
    Some(Check::fail("state", format!("{} cannot be used: {why}", there.display()), remedy))
}

/// Whether no other user can access `path`.
fn private(name: &'static str, path: &Path, remedy: &str) -> Check {
    let shown = path.display();
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let remedy = "check whether the daemon and this command have the same ASIDE_ variables";
            Check::warn(name, format!("{shown} does not exist"), remedy)
        }
        Err(error) => Check::fail(name, format!("{shown}: {error}"), "check its permissions"),
        Ok(found) if found.uid() != rustix::process::getuid().as_raw() => Check::fail(
            name,
            format!("{shown} belongs to another user"),
            "set ASIDE_SOCKET and ASIDE_STATE to paths of yours",
        ),
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            let mode = found.permissions().mode() & 0o777;
            Check::warn(
                name,
                format!("{shown} is accessible to other users (mode {mode:o})"),
                format!("{remedy} {}", quoted(&shown.to_string())),
            )
        }
        Ok(_) => Check::ok(name, format!("{shown} is private")),
    }
}
