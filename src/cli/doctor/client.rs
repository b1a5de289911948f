//! Whether the client is installed, and calls this program once at each point.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use hook::client::{HOOK_PROGRAM, PROGRAM};
use serde_json::Value;

use super::Check;
use crate::{
    cli::{
        harness,
        install::{
            InstallError,
            client::home,
            extension::{self, State},
            places::{Places, Target, is_same_file, settings_at},
            plan::read,
            settings::{OurHook, SettingsError, check_accepted, our_hooks},
            templates::{Choice, events},
        },
    },
    daemon::causes::with_causes,
    harness::{
        installation::{Extension, Program, Version},
        kind::{Client, Evidence, Form, Hooked, Kind, Native},
        table::KINDS,
    },
};

const CLIENT: &str = "client";
const EXTENSION: &str = "extension";
const HOOKS: &str = "hooks";

/// Whether aside is installed in this harness for this user or the current project; also true if a
/// file that would show it cannot be read.
pub(super) fn may_be_installed(kind: &'static Kind) -> bool {
    match kind.form {
        Form::Hooks(hooks) => !InstalledHooks::of(Hooked { kind, hooks })
            .is_ok_and(|found| found.installations.is_empty() && found.skipped.is_empty()),
        Form::Extension(own) => !home(&own.client)
            .and_then(|home| extension::state(&home, own))
            .is_ok_and(|state| state == State::Missing),
        Form::Proxy => false,
    }
}

/// No client has aside's hooks.
pub(super) fn nowhere() -> Check {
    let installs: Vec<String> = KINDS.into_iter().map(Kind::set_up).collect();
    let remedy = format!("{}; a loop of your own needs none", installs.join(" or "));
    Check::warn("clients", "aside is installed in no client", remedy)
}

pub(super) fn checks(kind: &'static Kind) -> Vec<Check> {
    let Some(client) = kind.client() else {
        let found = format!("nothing of {} is installed in a client: `{}`", kind.title, kind.set_up());
        return vec![Check::ok(CLIENT, found)];
    };
    let version = harness::version(client);
    let mut checks = vec![client_check(kind.title, client, version)];
    checks.extend(native(kind, version));
    let (name, found) = match kind.form {
        Form::Hooks(hooks) => (HOOKS, InstalledHooks::of(Hooked { kind, hooks }).map(|found| found.checks())),
        Form::Extension(own) => {
            let state = home(client).and_then(|home| extension::state(&home, own));
            (EXTENSION, state.map(|state| vec![extension_check(state, kind.set_up())]))
        }
        Form::Proxy => (CLIENT, Ok(Vec::new())),
    };
    match found {
        Ok(found) => checks.extend(found),
        Err(error @ InstallError::NoHome { variable }) => {
            let remedy = if variable.is_some() { "set one of them" } else { "set it" };
            checks.push(Check::fail(name, error.to_string(), remedy));
        }
        Err(error) => checks.push(Check::fail(name, with_causes(&error), "repair the file")),
    }
    checks
}

/// The state of an extension that calls the API; `again`: the command that writes its files.
fn extension_check(state: State, again: String) -> Check {
    match state {
        State::Missing => Check::fail(EXTENSION, "not installed", again),
        State::Current(folder) => {
            Check::ok(EXTENSION, format!("{} is of this version of aside", folder.display()))
        }
        State::Outdated(file) => {
            Check::warn(EXTENSION, format!("{} is of another version of aside", file.display()), again)
        }
    }
}

fn client_check(title: &str, client: &Client, version: Option<Version>) -> Check {
    let Program { name, update, lacks } = &client.program;
    let Some(version) = version else {
        let found = format!("no `{name}` on the PATH reports its version");
        return Check::warn(CLIENT, found, format!("install {title}"));
    };
    let found = format!("{name} {version}");
    match lacks.iter().find(|(since, _)| version < *since) {
        None => Check::ok(CLIENT, found),
        Some((_, lack)) => Check::warn(CLIENT, format!("{found} {lack}"), *update),
    }
}

/// The reports that this version of the client makes itself, so that aside leaves them to it;
/// without a version, those of any version.
fn native(kind: &Kind, version: Option<Version>) -> Option<Check> {
    let is_said = |since: Option<Version>| since.zip(version).is_none_or(|(since, version)| since <= version);
    let said = kind.native.iter().filter(|native| is_said(native.since));
    let shown = |native: &Native| {
        let place = if native.evidence == Evidence::Result { "result" } else { "transcript" };
        format!("{}, {} (known by the {place})", native.what, native.says)
    };
    let said: Vec<String> = said.map(shown).collect();
    let found = format!("reported by the client, so not by aside: {}", said.join("; "));
    (!said.is_empty()).then(|| Check::ok("native", found))
}

/// One place with aside's hooks that the client runs.
#[derive(Debug)]
struct Installation {
    place: String,
    /// `None` for an extension that the client has copied elsewhere.
    hooks: Option<Vec<OurHook>>,
    /// A file that this program would write otherwise.
    outdated: Option<PathBuf>,
    remedy: String,
}

#[derive(Debug)]
struct InstalledHooks {
    hooked: Hooked,
    installations: Vec<Installation>,
    /// A settings file that disables all hooks, and the key that does so.
    switched_off: Option<(PathBuf, &'static str)>,
    /// The settings files that the client skips, and why.
    skipped: Vec<(PathBuf, SettingsError)>,
}

impl InstalledHooks {
    fn of(hooked: Hooked) -> Result<Self, InstallError> {
        let places = Places::find(hooked, Path::new("."))?;
        let mut installations = Vec::new();
        let mut switched_off = None;
        let mut skipped = Vec::new();
        if let Some((folder, extension)) = places.extension().filter(|_| places.has_extension()) {
            let text = read(&folder.join(extension.hooks))?.unwrap_or_default();
            let hooks = our_hooks(&serde_json::from_str::<Value>(&text).unwrap_or_default());
            let place = folder.display().to_string();
            installations.push(Installation {
                place,
                hooks: Some(hooks),
                outdated: outdated(hooked, &folder, extension)?,
                remedy: places.removal(Target::User),
            });
        }
        for path in places.all_settings() {
            let text = read(&path)?.unwrap_or_default();
            if let Err(why) = check_accepted(hooked.hooks, &text) {
                skipped.push((path, why));
                continue;
            }
            if let Some((name, remedy)) = places.enabled_extension(&path)? {
                installations.push(Installation { place: name, hooks: None, outdated: None, remedy });
            }
            let settings = settings_at(&path)?.map(|settings| settings.value()).unwrap_or_default();
            let hooks = our_hooks(&settings);
            if !hooks.is_empty() {
                let is_user = path == places.user_settings();
                let remedy = places.removal(if is_user { Target::User } else { Target::Project });
                let place = path.display().to_string();
                installations.push(Installation { place, hooks: Some(hooks), outdated: None, remedy });
            }
            if let Some(key) = (hooked.hooks.installation.settings.switched_off)(&settings) {
                switched_off = Some((path, key));
            }
        }
        Ok(Self { hooked, installations, switched_off, skipped })
    }

    fn checks(&self) -> Vec<Check> {
        let skipped = |(path, why): &(PathBuf, SettingsError)| {
            let found = format!("{}; the client skips the whole file", why.at(path));
            Check::fail("settings", found, "repair the file")
        };
        let mut checks: Vec<Check> = self.skipped.iter().map(skipped).collect();
        let again = self.hooked.kind.set_up();
        if self.installations.is_empty() {
            checks.push(Check::fail(HOOKS, "not installed", again));
            return checks;
        }
        if let Some((path, key)) = &self.switched_off {
            let found = format!("{} disables all hooks", path.display());
            checks.push(Check::fail(HOOKS, found, format!("remove `{key}` from it")));
        }
        let hooks_of = |installation| hooks_of(self.hooked, installation, &again);
        checks.extend(self.installations.iter().map(hooks_of));
        checks.push(match self.installations.as_slice() {
            [first, second, ..] => Check::fail(
                "once",
                format!("installed in {} and {}, so every hook runs twice", first.place, second.place),
                second.remedy.clone(),
            ),
            _ => Check::ok("once", "installed in one place"),
        });
        checks
    }
}

/// The first file of an installed extension that this program would write otherwise.
fn outdated(hooked: Hooked, folder: &Path, extension: &Extension) -> Result<Option<PathBuf>, InstallError> {
    let text = |name: &str| read(&folder.join(name)).map(Option::unwrap_or_default);
    let (manifest, hooks) = (text(extension.folder.manifest)?, text(extension.hooks)?);
    let choice = Choice::installed(hooked, harness::own_path(), &manifest, &hooks);
    extension::outdated(folder, choice.extension_files(extension))
}

/// Whether the hooks of one installation are complete and call this program; `again`: the command
/// that repairs it.
fn hooks_of(hooked: Hooked, installation: &Installation, again: &str) -> Check {
    let Installation { place, hooks, outdated, .. } = installation;
    let Some(hooks) = hooks else { return Check::ok(HOOKS, format!("those of the {place}")) };
    if hooks.is_empty() {
        return Check::fail(HOOKS, format!("{place} has none that are readable"), again);
    }
    let mut programs: Vec<&str> = hooks.iter().map(|hook| hook.program.as_str()).collect();
    programs.sort_unstable();
    programs.dedup();
    for program in programs {
        if let Err(trouble) = is_this_program(program) {
            return Check::fail(HOOKS, format!("{place} calls {program}, {trouble}"), again);
        }
    }
    let missing: Vec<String> =
        events(hooked).into_iter().filter(|event| hooks.iter().all(|hook| hook.event != *event)).collect();
    if let (true, Some(path)) = (missing.is_empty(), outdated) {
        Check::warn(HOOKS, format!("{} is of another version of aside", path.display()), again)
    } else if missing.is_empty() {
        Check::ok(HOOKS, format!("{} in {place} call this program", hooks.len()))
    } else {
        Check::warn(HOOKS, format!("{place} has none at {}", missing.join(", ")), again)
    }
}

/// Errors: the problem, as the end of a sentence.
fn is_this_program(program: &str) -> Result<(), String> {
    let path = if program.contains('/') {
        PathBuf::from(program)
    } else {
        harness::on_path(program).next().ok_or("which is not on the PATH")?
    };
    // The small program for hooks belongs to the program next to it.
    let path = match path.file_name() {
        Some(name) if name == HOOK_PROGRAM && path.is_file() => path.with_file_name(PROGRAM),
        _ => path,
    };
    let other = |error: io::Error| match fs::metadata(&path) {
        Err(_) => "which does not exist".to_owned(),
        Ok(_) => error.to_string(),
    };
    match env::current_exe().and_then(|own| is_same_file(&own, &path)) {
        Ok(true) => Ok(()),
        Ok(false) => Err("which is a different program".to_owned()),
        Err(error) => Err(other(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{cli::doctor::check::Verdict, harness::trial};

    #[test]
    fn an_extension_is_judged_by_its_state() {
        let path = PathBuf::from("/home/u/.trial/extensions/aside");
        for (state, verdict, found) in [
            (State::Missing, Verdict::Fail, "not installed".to_owned()),
            (
                State::Current(path.clone()),
                Verdict::Ok,
                format!("{} is of this version of aside", path.display()),
            ),
            (
                State::Outdated(path.clone()),
                Verdict::Warn,
                format!("{} is of another version of aside", path.display()),
            ),
        ] {
            let check = extension_check(state, trial::EXTENSION.set_up());
            let remedy = (verdict != Verdict::Ok).then(|| "aside install trial-client".to_owned());
            assert_eq!((check.verdict, check.found, check.remedy), (verdict, found, remedy));
        }
    }

    #[test]
    fn a_proxy_needs_no_client() {
        assert!(!may_be_installed(&trial::PROXY));
        let checks = checks(&trial::PROXY);
        let found = "nothing of Trial Proxy is installed in a client: `aside relay -- AGENT`";
        assert_eq!(checks, [Check::ok(CLIENT, found)]);
    }
}
