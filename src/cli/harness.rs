//! Subcommands and arguments that name a harness, one per row of the table; and a harness's client,
//! installed for this user.

use std::{
    env, fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use clap::{
    ArgMatches, Error, FromArgMatches, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
    error::ErrorKind,
    parser::ValueSource,
};

use crate::harness::{
    installation::Version,
    kind::{Client, Kind},
    table::KINDS,
};

/// Parses a harness by its `name`.
pub(super) fn harness(name: fn(&Kind) -> &'static str) -> impl TypedValueParser<Value = &'static Kind> {
    PossibleValuesParser::new(KINDS.map(name)).map(move |word| {
        KINDS.into_iter().find(|kind| name(kind) == word).expect("only the words of harnesses are possible")
    })
}

/// The harnesses in whose clients aside is installed, for a sentence.
pub(super) fn installable() -> String {
    let kinds = KINDS.into_iter().filter(|kind| kind.client().is_some());
    kinds.map(|kind| kind.caps.name).collect::<Vec<_>>().join(" or ")
}

/// The command names of the harnesses with hooks, for a sentence.
pub(super) fn with_hooks() -> String {
    Kind::hook_words().collect::<Vec<_>>().join(" or ")
}

/// Arguments of a command for one harness.
pub(super) trait ForHarness: clap::Args {
    /// Adapts the command's help to this harness.
    fn fit(command: clap::Command, kind: &Kind) -> clap::Command;

    /// The options that not every harness supports, and whether this one does.
    fn options(kind: &Kind) -> Vec<(&'static str, bool)>;
}

/// A subcommand per harness, by its name.
#[derive(Debug)]
pub(super) struct Of<A> {
    pub(super) kind: &'static Kind,
    pub(super) args: A,
}

fn lacking<A: ForHarness>(kind: &Kind) -> impl Iterator<Item = &'static str> + use<A> {
    A::options(kind).into_iter().filter(|(_, is_there)| !is_there).map(|(id, _)| id)
}

impl<A: ForHarness> FromArgMatches for Of<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = matches.subcommand().and_then(|(name, matches)| Some((Kind::of_name(name)?, matches)));
        let (kind, matches) = given.ok_or_else(|| Error::new(ErrorKind::MissingSubcommand))?;
        let is_given = |id: &&str| matches.value_source(id) == Some(ValueSource::CommandLine);
        if let Some(id) = lacking::<A>(kind).find(is_given) {
            let message = format!("{} does not support `--{}`\n", kind.title, id.replace('_', "-"));
            return Err(Error::raw(ErrorKind::UnknownArgument, message));
        }
        Ok(Self { kind, args: A::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<A: ForHarness> Subcommand for Of<A> {
    fn augment_subcommands(command: clap::Command) -> clap::Command {
        KINDS.into_iter().fold(command, |command, kind| {
            let own = A::fit(A::augment_args(clap::Command::new(kind.caps.name)), kind);
            command.subcommand(lacking::<A>(kind).fold(own, |own, id| own.mut_arg(id, |arg| arg.hide(true))))
        })
    }

    fn augment_subcommands_for_update(command: clap::Command) -> clap::Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        Kind::of_name(name).is_some()
    }
}

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
