//! Starts the daemon from a hook, where the user has allowed that.

use std::{
    env,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
};

use super::timed::is_absent;

/// Has the daemon started in the background if nothing listens at `socket`, and does not wait for it.
///
/// Shape: what starts it, which ends when the daemon answers; `None` when there was nothing to do.
/// Errors: none, by design, as for every step of a hook. A daemon that does not start says why in its log.
pub fn start_if_absent(socket: &Path) -> Option<Child> {
    let program = is_absent(socket).then(env::current_exe)?.ok()?;
    let command = &mut Command::new(program);
    // A harness may end the group of a hook together with the hook.
    command.process_group(0);
    command.arg("up").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}
