//! systemd: the units in `share/systemd`, for this user, with the path of this program and the places in force.

use std::{
    env,
    path::{Path, PathBuf},
};

use super::{InstallError, Outcome};
use crate::cli::{
    client_program,
    paths::{Paths, PathsError},
};

const SOCKET: &str = include_str!("../../../share/systemd/aside.socket");
const SERVICE: &str = include_str!("../../../share/systemd/aside.service");
const NAMES: [&str; 2] = ["aside.socket", "aside.service"];
/// The socket's place in the template, which is also what aside takes when nothing else is said.
const SOCKET_DEFAULT: &str = "%t/aside/aside.sock";

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn install(args: &Args, paths: &Result<Paths, PathsError>) -> Result<Outcome, InstallError> {
    let mut outcome = Outcome::new(args.dry_run);
    let folder = units()?;
    let paths = paths.as_ref().map_err(|_| InstallError::NoHome)?;
    let program = client_program::own_program(false);
    // Without the variable, systemd's own name of the folder is better than a number of today.
    let default = given("XDG_RUNTIME_DIR").map(|folder| folder.join("aside/aside.sock"));
    let socket = Some(&paths.socket).filter(|socket| Some(*socket) != default.as_ref());
    let places = [
        ("ASIDE_SOCKET", socket),
        ("ASIDE_CONFIG", Some(&paths.config)),
        ("ASIDE_STATE", Some(&paths.state)),
    ];
    for (name, text) in NAMES.into_iter().zip(unit_files(&program, &places)) {
        outcome.plan.write(folder.join(name), text)?;
    }
    outcome.next(&[
        ("systemctl --user daemon-reload", "reads the units"),
        (
            "systemctl --user enable --now aside.socket",
            "the first event, hook or command starts the daemon from now on",
        ),
    ]);
    Ok(outcome)
}

pub(super) fn uninstall(args: &Args) -> Result<Outcome, InstallError> {
    let mut outcome = Outcome::new(args.dry_run);
    let folder = units()?;
    for name in NAMES {
        outcome.plan.remove(folder.join(name))?;
    }
    if !outcome.plan.is_empty() {
        outcome.next(&[("systemctl --user stop aside.socket aside.service", "if they still run")]);
    }
    Ok(outcome)
}

/// The folder of this user's units.
fn units() -> Result<PathBuf, InstallError> {
    given("XDG_CONFIG_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| Some(given("HOME")?.join(".config")))
        .map(|folder| folder.join("systemd/user"))
        .ok_or(InstallError::NoHome)
}

fn given(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The texts of the two units, in the order of [`NAMES`].
fn unit_files(program: &str, places: &[(&str, Option<&PathBuf>)]) -> [String; 2] {
    let socket_path = places.iter().find(|(name, _)| *name == "ASIDE_SOCKET").and_then(|(_, path)| *path);
    let socket = match socket_path {
        Some(path) => SOCKET.replace(SOCKET_DEFAULT, &escaped(path)),
        None => SOCKET.to_owned(),
    };
    let variables: String = places
        .iter()
        .filter_map(|(name, path)| Some(format!("Environment=\"{name}={}\"\n", escaped((*path)?))))
        .collect();
    let command = format!("{variables}ExecStart=\"{}\" serve", escaped(Path::new(program)));
    [socket, SERVICE.replace("ExecStart=aside serve", &command)]
}

/// A path as a unit's file takes it, between quotes or alone.
fn escaped(path: &Path) -> String {
    path.display()
        .to_string()
        .replace('\\', "\\\\")
        .replace('%', "%%")
        .replace('"', "\\\"")
        .replace('$', "$$")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_name_this_program_and_its_places() {
        let state = PathBuf::from("/home/u/50% \"x\"");
        let [socket, service] =
            unit_files("/opt/a b/aside", &[("ASIDE_SOCKET", None), ("ASIDE_STATE", Some(&state))]);
        assert!(socket.contains("ListenStream=%t/aside/aside.sock\n"), "{socket}");
        assert!(
            service.contains(
                "Environment=\"ASIDE_STATE=/home/u/50%% \\\"x\\\"\"\nExecStart=\"/opt/a b/aside\" serve\n"
            ),
            "{service}"
        );
        let elsewhere = PathBuf::from("/run/other.sock");
        let [socket, service] = unit_files("aside", &[("ASIDE_SOCKET", Some(&elsewhere))]);
        assert!(socket.contains("ListenStream=/run/other.sock\n"), "{socket}");
        assert!(service.contains("Environment=\"ASIDE_SOCKET=/run/other.sock\"\n"), "{service}");
    }
}
