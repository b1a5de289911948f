//! Starts the daemon from a hook, if the user has allowed that.

use std::{
    env,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use super::timed::is_absent;

/// File name of the program.
pub const PROGRAM: &str = "aside";
/// File name of the small program for hooks, which has no daemon and is next to the one that has.
pub const HOOK_PROGRAM: &str = "aside-hook";

/// Starts the daemon in the background if nothing listens at `socket`, without waiting for it.
///
/// Shape: `places` are variables with the paths of the daemon, set in addition to the environment.
/// Returns the starting process, which ends when the daemon answers; `None` if no process was
/// started. Errors: none, by design, as for every step of a hook. A daemon that does not start
/// logs the reason.
pub fn start_if_absent(socket: &Path, places: &[(&str, &Path)]) -> Option<Child> {
    let own = is_absent(socket).then(env::current_exe)?.ok()?;
    let is_small = own.file_name().is_some_and(|name| name == HOOK_PROGRAM);
    let program = if is_small { own.with_file_name(PROGRAM) } else { own };
    let command = &mut Command::new(program);
    // A harness may end the process group of a hook with the hook.
    command.process_group(0);
    command.arg("up").envs(places.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}
