//! Programs on this machine: the client of a harness, and this program's path for others.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use crate::harness::{installation::Version, kind::Client};

/// Time limit for a client's version; a client on a script engine takes most of a second on a busy
/// machine.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);
/// Most bytes that are read of a client's output.
const SAID_BYTES_MAX: u64 = 4 * 1024;

/// The version of the client on the PATH; `None` if there is no client, or it prints no
/// version in time.
pub(super) fn version(client: &Client) -> Option<Version> {
    let program = on_path(client.program.name).next()?;
    let child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    Version::read(&said_within(child, VERSION_TIMEOUT)?)
}

/// The start of a process's output. The process is then killed, at the latest after `timeout`.
///
/// Shape: at most [`SAID_BYTES_MAX`] bytes; `None` if the output has not ended in time.
fn said_within(mut child: Child, timeout: Duration) -> Option<String> {
    let stdout = child.stdout.take()?;
    // It has room for the only text, so the sender never waits.
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(SAID_BYTES_MAX).read_to_string(&mut text);
        drop(sender.send(read.map(|_| text)));
    });
    let said = receiver.recv_timeout(timeout).ok();
    // It may have exited already.
    child.kill().ok();
    child.wait().ok();
    said?.ok()
}

/// The folder of this user's files of the client; `None` if unknown.
pub(super) fn folder(client: &Client) -> Option<PathBuf> {
    let given = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    client.variables.folder.and_then(given).or_else(|| Some(given("HOME")?.join(client.files.folder)))
}

/// The files of this name in the folders of the PATH, in order.
pub(super) fn on_path(name: &str) -> impl Iterator<Item = PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&path).filter(|folder| folder.is_absolute()).collect();
    let files = folders.into_iter().map(move |folder| folder.join(name));
    files.filter(|file| file.is_file())
}

/// The path by which others call this program; a harness may have another PATH than the terminal.
///
/// Shape: its path as found on the PATH, which stays valid when a newer version replaces the
/// program; else the path of the running file.
pub(super) fn own_path() -> String {
    found_on_path().unwrap_or_else(own_file).to_string_lossy().into_owned()
}

/// The name by which others call this program if the PATH leads to it, else its path.
pub(super) fn own_name() -> String {
    found_on_path().map_or_else(own_path, |_| "aside".to_owned())
}

/// The path of this program on the PATH, if its name runs it: the first file of that name is used.
fn found_on_path() -> Option<PathBuf> {
    let own = own_file();
    let is_own = |path: &Path| match (fs::canonicalize(path), fs::canonicalize(&own)) {
        (Ok(one), Ok(other)) => one == other,
        (Err(_), _) | (_, Err(_)) => false,
    };
    on_path("aside").next().filter(|path| is_own(path))
}

fn own_file() -> PathBuf {
    env::current_exe().unwrap_or_else(|_| PathBuf::from("aside"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silent_client_program_is_killed_after_timeout() {
        let child = Command::new("sleep").arg("1000").stdout(Stdio::piped()).spawn().expect("it runs");
        assert_eq!(said_within(child, Duration::from_millis(10)), None);
    }
}
