//! Programs of which `strace` changes single system calls.

use std::{fs, path::PathBuf, process::Command};

use super::daemon::{Home, text};

/// Which calls are changed, and how: strace's `inject` without the names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Change<'a> {
    /// The names of the calls, separated by commas.
    pub(crate) calls: &'a str,
    /// Such as `error=EIO:when=2`; `when` counts the calls of each thread.
    pub(crate) change: &'a str,
    /// Only calls about this file; a path in the home, or what a descriptor is called in `/proc`.
    pub(crate) file: Option<&'a str>,
}

/// Runs `command` so that the system calls are changed; it keeps its process.
///
/// # Panics
/// If `strace` is absent or may not trace.
pub(crate) fn changed(home: &Home, command: &Command, Change { calls, change, file }: Change<'_>) -> Command {
    assert_can_trace();
    let mut traced = Command::new("strace");
    // -D: strace is a grandchild of its caller, and the program a child.
    traced.args(["-D", "-f", "-q", "--seccomp-bpf", "-e", "signal=none", "-o"]).arg(log_of(home));
    if let Some(file) = file {
        let path = if file.starts_with("anon_inode:") { PathBuf::from(file) } else { home.path(file) };
        traced.arg("-P").arg(path);
    }
    traced.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{change}")]);
    traced.arg(command.get_program()).args(command.get_args()).env_clear();
    traced.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        traced.current_dir(folder);
    }
    traced
}

/// The calls that failed since the last [`changed`] of this home, one a line.
pub(crate) fn failed_calls(home: &Home) -> Vec<String> {
    let log = fs::read_to_string(log_of(home)).unwrap_or_default();
    log.lines().filter(|line| line.ends_with("(INJECTED)")).map(str::to_owned).collect()
}

fn log_of(home: &Home) -> PathBuf {
    home.path("strace.log")
}

/// # Panics
/// With a sentence about the machine, if `strace` cannot trace here.
fn assert_can_trace() {
    let tried = Command::new("strace").args(["-f", "-o", "/dev/null", "-e", "trace=none", "true"]).output();
    let why = match tried {
        Ok(output) if output.status.success() => return,
        Ok(output) => text(&output.stderr),
        Err(error) => error.to_string(),
    };
    panic!("strace has to be installed and allowed to trace processes (ptrace), for this test: {why}");
}
