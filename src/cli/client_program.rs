//! Programs on this machine: the client of a harness, and this one as others call it.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use crate::harness::{kind::Kind, program::Version};

/// How long a client may take to say its version; one that runs on a script engine takes most of a second on a busy machine.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Most of what a client says that is read, in bytes.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// What the harness's client on the PATH says it is; `None` if there is none, or it says nothing in time.
pub(super) fn version(kind: &Kind) -> Option<Version> {
    let program = on_path(kind.program.name).next()?;
    let child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    Version::read(&said_within(child, VERSION_TIMEOUT)?)
}

/// What a process writes until it ends or `timeout` is over, when it is killed.
fn said_within(mut child: Child, timeout: Duration) -> Option<String> {
    let stdout = child.stdout.take()?;
    // Holds the one text, so the reader never waits.
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(SAID_BYTES_MAX).read_to_string(&mut text);
        drop(sender.send(read.map(|_| text)));
    });
    let said = receiver.recv_timeout(timeout).ok();
    // It may have ended by itself; what counts is that it is gone.
    child.kill().ok();
    child.wait().ok();
    said?.ok()
}

/// Where the client of this harness keeps its files, for this user; `None` when nothing says where that is.
pub(super) fn folder(kind: &Kind) -> Option<PathBuf> {
    let given = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    kind.variables.folder.and_then(given).or_else(|| Some(given("HOME")?.join(kind.files.folder)))
}

/// The files of this name in the folders of the PATH, in its order.
pub(super) fn on_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let files = folders.into_iter().map(move |folder| folder.join(name));
    files.filter(|file| file.is_file())
}

/// How others call this program.
///
/// Shape: its path as the PATH leads to it, which stays the same when the program is replaced by a newer one; else the path of the
/// running file. A harness may have another PATH than the terminal, hence a path and no name, unless `prefers_name`.
pub(super) fn own_program(prefers_name: bool) -> String {
    let own = env::current_exe().unwrap_or_else(|_| PathBuf::from("aside"));
    let is_own = |path: &Path| match (fs::canonicalize(path), fs::canonicalize(&own)) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), _) | (_, Err(_)) => false,
    };
    // Only the first one counts, as only that one is run by its name.
    match on_path("aside").next().filter(|path| is_own(path)) {
        Some(_) if prefers_name => "aside".to_owned(),
        Some(path) => path.to_string_lossy().into_owned(),
        None => own.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_says_nothing_is_given_up_and_gone() {
        let child = Command::new("sleep").arg("1000").stdout(Stdio::piped()).spawn().expect("it runs");
        assert_eq!(said_within(child, Duration::from_millis(10)), None);
    }
}
