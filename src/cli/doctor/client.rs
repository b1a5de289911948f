//! Whether the client is there, and calls this program once at each point.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::Check;
use crate::{
    causes::with_causes,
    cli::{
        client_program::{self, Version},
        install::{
            InstallError,
            claude::{Places, enabled_plugin, hooks_in, is_same_file, settings_at},
            plan::read,
            plugin,
            settings::{OurHook, our_hooks},
        },
    },
};

/// Oldest client with a message socket, by which one that runs without a terminal is reached.
const MESSAGE_SOCKET_SINCE: Version = Version([2, 1, 224]);

const HOOKS: &str = "hooks";

pub(super) fn checks() -> Vec<Check> {
    let mut checks = vec![version()];
    match Places::find(Path::new(".")).and_then(|places| Found::look(&places)) {
        Ok(found) => checks.extend(found.checks()),
        Err(error @ InstallError::NoHome) => {
            checks.push(Check::fail(HOOKS, error.to_string(), "set one of them"));
        }
        Err(error) => checks.push(Check::fail(HOOKS, with_causes(&error), "repair the file")),
    }
    checks
}

fn version() -> Check {
    const NAME: &str = "client";
    let Some(version) = client_program::version() else {
        return Check::warn(
            NAME,
            "there is no `claude` on the PATH that tells its version",
            "install Claude Code",
        );
    };
    let found = format!("claude {version}");
    if version >= MESSAGE_SOCKET_SINCE {
        return Check::ok(NAME, found);
    }
    Check::warn(
        NAME,
        format!("{found} has no message socket, so a session may be reached by hooks alone"),
        "claude update",
    )
}

/// One place with hooks of ours that the client runs.
#[derive(Debug)]
struct Installation {
    place: String,
    /// `None` for a plugin that the client has copied to where it likes.
    hooks: Option<Vec<OurHook>>,
    remedy: String,
}

#[derive(Debug)]
struct Found {
    installations: Vec<Installation>,
    /// A settings file that turns all hooks off.
    switched_off: Option<PathBuf>,
}

impl Found {
    fn look(places: &Places) -> Result<Self, InstallError> {
        let mut installations = Vec::new();
        let mut switched_off = None;
        let folder = places.plugin();
        if folder.join(plugin::MANIFEST_FILE).exists() {
            let text = read(&folder.join(plugin::HOOKS_FILE))?.unwrap_or_default();
            let hooks = our_hooks(&serde_json::from_str::<Value>(&text).unwrap_or_default());
            let remedy = "aside uninstall claude-code".to_owned();
            let place = folder.display().to_string();
            installations.push(Installation { place, hooks: Some(hooks), remedy });
        }
        for path in places.all_settings() {
            if let Some(name) = enabled_plugin(&path)? {
                let (place, remedy) = (format!("plugin {name}"), format!("claude plugin uninstall {name}"));
                installations.push(Installation { place, hooks: None, remedy });
            }
            let hooks = hooks_in(&path)?;
            if !hooks.is_empty() {
                let is_user = path == places.user_settings();
                let remedy = if is_user {
                    "aside uninstall claude-code"
                } else {
                    "aside uninstall claude-code --project"
                };
                installations.push(Installation {
                    place: path.display().to_string(),
                    hooks: Some(hooks),
                    remedy: remedy.to_owned(),
                });
            }
            let settings = settings_at(&path)?.map(|settings| settings.value()).unwrap_or_default();
            if settings.get("disableAllHooks").and_then(Value::as_bool) == Some(true) {
                switched_off = Some(path);
            }
        }
        Ok(Self { installations, switched_off })
    }

    fn checks(&self) -> Vec<Check> {
        let mut checks = Vec::new();
        if self.installations.is_empty() {
            return vec![Check::fail(HOOKS, "not installed", "aside install claude-code")];
        }
        if let Some(path) = &self.switched_off {
            let found = format!("{} turns all hooks off", path.display());
            checks.push(Check::fail(HOOKS, found, "take `disableAllHooks` out of it"));
        }
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

/// Whether the hooks of one installation are all there and call this program.
fn hooks_of(installation: &Installation) -> Check {
    let Installation { place, hooks, .. } = installation;
    let again = "aside install claude-code";
    let Some(hooks) = hooks else { return Check::ok(HOOKS, format!("those of the {place}")) };
    if hooks.is_empty() {
        return Check::fail(HOOKS, format!("{place} has none that can be read"), again);
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
        plugin::events().into_iter().filter(|event| hooks.iter().all(|hook| hook.event != *event)).collect();
    if missing.is_empty() {
        Check::ok(HOOKS, format!("{} in {place} call this program", hooks.len()))
    } else {
        Check::warn(HOOKS, format!("{place} has none at {}", missing.join(", ")), again)
    }
}

/// Errors: what is wrong, as the end of a sentence.
fn is_this_program(program: &str) -> Result<(), String> {
    let path = if program.contains('/') {
        PathBuf::from(program)
    } else {
        client_program::on_path(program).next().ok_or("which is not on the PATH")?
    };
    let other = |error: io::Error| match fs::metadata(&path) {
        Err(_) => "which is not there".to_owned(),
        Ok(_) => error.to_string(),
    };
    match env::current_exe().and_then(|own| is_same_file(&own, &path)) {
        Ok(true) => Ok(()),
        Ok(false) => Err("which is another program than this one".to_owned()),
        Err(error) => Err(other(error)),
    }
}
