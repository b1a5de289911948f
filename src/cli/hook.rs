//! The command that a client runs as a hook: `aside hook NAME`, or `aside-hook NAME` without the
//! rest of the program.
//!
//! A client waits for its hook at every step of an agent, so nothing but the hook path starts here.
//! The second program is the same code in a fiftieth of the size: most of the time of a start is
//! reading the pages of a program.

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::paths::Paths;
use crate::{
    client::{self, HOOK_PROGRAM, start_if_absent},
    harness::kind::Kind,
};

/// The option to start the daemon.
pub(crate) const START: &str = "--start";

/// Runs the hook with these arguments: the harness's name, and `--start` if it may start the daemon.
/// Returns whether they are these; nothing else fails, by design.
pub fn run(args: impl IntoIterator<Item = OsString>) -> bool {
    let mut args = args.into_iter();
    let (Some(name), option, None) = (args.next(), args.next(), args.next()) else { return false };
    let Some(name) = name.to_str().filter(|name| !name.starts_with('-')) else { return false };
    match option {
        None => {}
        Some(option) if option == START => start_daemon(|name| env::var_os(name)),
        Some(_) => return false,
    }
    forward(name, |name| env::var_os(name));
    true
}

/// Starts the daemon at the paths of `variable` if none listens, without waiting for it.
pub(super) fn start_daemon(variable: impl Fn(&str) -> Option<OsString>) {
    if let Ok(paths) = Paths::from_env(variable) {
        drop(start_if_absent(&paths.socket, &paths.variables()));
    }
}

/// Forwards the hook of the harness `name` to the daemon at the socket of `variable`; one line on
/// stderr if there is no such harness.
pub(super) fn forward(name: &str, variable: impl Fn(&str) -> Option<OsString>) {
    if Kind::of_word(name).is_none() {
        let known = Kind::words().collect::<Vec<_>>().join(", ");
        let line = format!("aside hook: `{}` is no client; use {known}", super::printable(name));
        // Without a stderr the line cannot be shown, and a hook never fails.
        writeln!(io::stderr(), "{line}").ok();
    }
    if let Ok(socket) = Paths::socket_from_env(variable) {
        client::hook(name, Kind::forwarded(name), &socket, |name| env::var_os(name));
    }
}

/// The small program for hooks in the folder of `program`, if it is there.
pub(super) fn small_program(program: &Path) -> Option<PathBuf> {
    let path = program.with_file_name(HOOK_PROGRAM);
    (program.is_absolute() && path.is_file()).then_some(path)
}
