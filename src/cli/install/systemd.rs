//! systemd: the units in `share/systemd`, for this user, with this program's path and the active
//! paths.

use std::{
    env,
    path::{Path, PathBuf},
};

use hook::paths::{Paths, PathsError};

use super::{InstallError, Outcome, plan::read};
use crate::cli::harness;

const SOCKET: &str = include_str!("../../../share/systemd/aside.socket");
const SERVICE: &str = include_str!("../../../share/systemd/aside.service");
const NAMES: [&str; 2] = ["aside.socket", "aside.service"];
/// The socket's path in the template, which is also aside's default.
const SOCKET_DEFAULT: &str = "%h/.local/state/aside/aside.sock";

#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn install(args: &Args, paths: &Result<Paths, PathsError>) -> Result<Outcome, InstallError> {
    let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
    let folder = units()?;
    let paths = paths.as_ref().map_err(|error| InstallError::Places(error.clone()))?;
    let program = harness::own_path();
    // For the default socket the unit keeps systemd's specifier `%h`.
    let default = given("HOME").map(|home| home.join(".local/state/aside/aside.sock"));
    let socket = Some(&paths.socket).filter(|socket| Some(*socket) != default.as_ref());
    let places = [
        ("ASIDE_SOCKET", socket),
        ("ASIDE_CONFIG", Some(&paths.config)),
        ("ASIDE_STATE", Some(&paths.state)),
    ];
    let unfit = places.iter().filter_map(|(_, path)| *path).find(|path| !fits_unit(path));
    let own = PathBuf::from(&program);
    if let Some(path) = unfit.or_else(|| (!fits_program(&own)).then_some(&own)) {
        return Err(InstallError::NotInUnit { path: path.clone() });
    }
    for (name, text) in NAMES.into_iter().zip(unit_files(&program, &places)) {
        let path = folder.join(name);
        if read(&path)?.is_some_and(|text| !is_ours(&text)) {
            return Err(InstallError::Foreign { path });
        }
        outcome.plan.write(path, text)?;
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
    let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
    let folder = units()?;
    for name in NAMES {
        let path = folder.join(name);
        match read(&path)? {
            Some(text) if !is_ours(&text) => {
                outcome.note(&format!("{} is kept; it is not from aside", path.display()));
            }
            Some(_) | None => outcome.plan.remove(path)?,
        }
    }
    if !outcome.plan.is_empty() {
        outcome.next(&[
            ("systemctl --user stop aside.socket aside.service", "if they still run"),
            ("systemctl --user disable aside.socket", "if it was enabled: nothing uses it any longer"),
        ]);
    }
    Ok(outcome)
}

/// The folder of this user's units.
fn units() -> Result<PathBuf, InstallError> {
    given("XDG_CONFIG_HOME")
        .filter(|folder| folder.is_absolute())
        .or_else(|| Some(given("HOME")?.join(".config")))
        .map(|folder| folder.join("systemd/user"))
        .ok_or_else(no_home)
}

const fn no_home() -> InstallError {
    InstallError::NoHome { variable: Some("XDG_CONFIG_HOME") }
}

fn given(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whether a unit is one of those in `share/systemd`, with any values.
fn is_ours(unit: &str) -> bool {
    let title = |template: &'static str| template.lines().find(|line| line.starts_with("Description="));
    [SOCKET, SERVICE].into_iter().filter_map(title).any(|title| unit.lines().any(|line| line == title))
}

/// Whether a unit's line can contain this path.
fn fits_unit(path: &Path) -> bool {
    path.to_str().is_some_and(|path| !path.contains(char::is_control))
}

/// Whether systemd runs a program at this path.
///
/// Source: it rejects units whose executable has quotes, backslashes or control characters
/// ("special").
fn fits_program(path: &Path) -> bool {
    fits_unit(path) && !path.display().to_string().contains(['"', '\'', '\\'])
}

/// The texts of the two units, in the order of [`NAMES`].
fn unit_files(program: &str, places: &[(&str, Option<&PathBuf>)]) -> [String; 2] {
    let socket_path = places.iter().find(|(name, _)| *name == "ASIDE_SOCKET").and_then(|(_, path)| *path);
    let socket = match socket_path {
        Some(path) => SOCKET.replace(SOCKET_DEFAULT, &literal(path)),
        None => SOCKET.to_owned(),
    };
    let variables: String = places
        .iter()
        .filter_map(|(name, path)| Some(format!("Environment=\"{name}={}\"\n", quoted((*path)?))))
        .collect();
    let command = format!("{variables}ExecStart=\"{}\" serve", quoted(Path::new(program)));
    [socket, SERVICE.replace("ExecStart=aside serve", &command)]
}

/// Escapes a path for the unquoted rest of a unit's line, where only specifiers are special.
fn literal(path: &Path) -> String {
    path.display().to_string().replace('%', "%%")
}

/// Quotes a path for a unit. A dollar is literal: systemd expands no variables in a value or in the
/// name of a program.
fn quoted(path: &Path) -> String {
    literal(path).replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_name_this_program_and_its_places() {
        let state = PathBuf::from("/home/u/50% \"x\"");
        let [socket, service] =
            unit_files("/opt/a b/aside", &[("ASIDE_SOCKET", None), ("ASIDE_STATE", Some(&state))]);
        assert!(socket.contains("ListenStream=%h/.local/state/aside/aside.sock\n"), "{socket}");
        assert!(
            service.contains(
                "Environment=\"ASIDE_STATE=/home/u/50%% \\\"x\\\"\"\nExecStart=\"/opt/a b/aside\" serve\n"
            ),
            "{service}"
        );
        let elsewhere = PathBuf::from("/run/my \"$one\" 5%.sock");
        let [socket, service] = unit_files("/opt/$x/aside", &[("ASIDE_SOCKET", Some(&elsewhere))]);
        assert!(socket.contains("ListenStream=/run/my \"$one\" 5%%.sock\n"), "{socket}");
        assert!(
            service.contains(
                "Environment=\"ASIDE_SOCKET=/run/my \\\"$one\\\" 5%%.sock\"\nExecStart=\"/opt/$x/aside\" serve\n"
            ),
            "{service}"
        );
        assert!(is_ours(&socket) && is_ours(&service) && !is_ours("[Unit]\nDescription=aside\n"));
    }

    #[test]
    fn paths_unfit_for_systemd_units_are_detected() {
        for (path, is_path, is_program) in [
            ("/opt/a b/$x/50%/aside", true, true),
            ("/opt/a\"b/aside", true, false),
            ("/opt/a'b/aside", true, false),
            ("/opt/a\\b/aside", true, false),
            ("/opt/a\nExecStart=b/aside", false, false),
        ] {
            let found = (fits_unit(Path::new(path)), fits_program(Path::new(path)));
            assert_eq!(found, (is_path, is_program), "{path:?}");
        }
    }
}
