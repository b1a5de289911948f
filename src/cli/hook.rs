//! The command that a client runs as a hook: `aside hook NAME`, or `aside-hook NAME` without the
//! rest of the program.
//!
//! A client waits for its hook at every step of an agent, so nothing but the hook path starts here.
//! The second program is the same code in a fiftieth of the size: most of the time of a start is
//! reading the pages of a program.

use std::{env, ffi::OsString, path::PathBuf};

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
    let is_start = option.is_some();
    if option.is_some_and(|option| option != START) {
        return false;
    }
    if let Ok(socket) = Paths::socket_from_env(|name| env::var_os(name)) {
        if is_start {
            drop(start_if_absent(&socket, &[]));
        }
        client::hook(name, Kind::forwarded(name), &socket, |name| env::var_os(name));
    }
    true
}

/// The small program next to `program`, if it is there.
pub(super) fn beside(program: &str) -> Option<PathBuf> {
    let path = PathBuf::from(program).with_file_name(HOOK_PROGRAM);
    (program.contains('/') && path.is_file()).then_some(path)
}
