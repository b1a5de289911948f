//! The command that a client runs as a hook: `aside hook NAME`, or `aside-hook NAME` without the
//! rest of the program.
//!
//! A client waits for its hook at every step of an agent, so nothing but the hook path starts here:
//! system calls, and HTTP/1.1 by hand. The second program is the same code in a fiftieth of the
//! size: most of the time of a start is reading the pages of a program.
//!
//! ```
//! // Not the arguments of a hook, so nothing is forwarded.
//! assert!(!hook::run(["--help".into()]));
//! ```

pub mod client;
pub mod harness;
pub mod paths;

use std::{
    env,
    ffi::OsString,
    io::{self, Write},
    path::{Path, PathBuf},
};

use client::{HOOK_PROGRAM, start_if_absent};
use harness::{HARNESSES, Harness};
use paths::Paths;

/// The option to start the daemon.
pub const START: &str = "--start";

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
pub fn start_daemon(variable: impl Fn(&str) -> Option<OsString>) {
    if let Ok(paths) = Paths::from_env(variable) {
        drop(start_if_absent(&paths.socket, &paths.variables()));
    }
}

/// Forwards the hook of the harness `name` to the daemon at the socket of `variable`; one line on
/// stderr if there is no such harness.
pub fn forward(name: &str, variable: impl Fn(&str) -> Option<OsString>) {
    let harness = Harness::find(name);
    if harness.is_none() {
        let known = HARNESSES.map(|harness| harness.word).join(", ");
        let line = format!("aside hook: `{}` is no client with hooks; use {known}", name.escape_debug());
        // Without a stderr the line cannot be shown, and a hook never fails.
        writeln!(io::stderr(), "{line}").ok();
    }
    if let Ok(socket) = Paths::socket_from_env(variable) {
        let forwarded = harness.map_or(&[][..], |harness| harness.forwarded);
        client::hook(name, forwarded, &socket, |name| env::var_os(name));
    }
}

/// The small program for hooks in the folder of `program`, if it is there.
pub fn small_program(program: &Path) -> Option<PathBuf> {
    let path = program.with_file_name(HOOK_PROGRAM);
    (program.is_absolute() && path.is_file()).then_some(path)
}
