//! The programs that the daemon runs by itself. They are found once, at its start, and run in a
//! folder of its own with the variables that they need.
//!
//! No content of a repository, archive or mount may make the daemon run a program. So git never
//! reads the configuration, the index, the attributes or the hooks of a repository: its `GIT_DIR`
//! is a folder of the daemon, and only the objects are the repository's (docs/design/git.md).
//! Programs that the user configured (a language server, the command of a sink) run as configured.

mod found;
mod repository;

use std::{
    env,
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use strum::{IntoStaticStr, VariantArray};

use self::found::Found;
pub use self::{
    found::{Missing, Workspaces},
    repository::{Ids, Place},
};

/// Variables for every program: language, time zone, folder for temporary files.
const OF_ALL: &[&str] = &["LANG", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ", "TMPDIR"];
/// Variables for programs that have settings of their user.
const OF_USERS: &[&str] = &[
    "HOME",
    "USER",
    "LOGNAME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
];
/// Variables for programs that call servers.
const OF_CLIENTS: &[&str] = &[
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];
/// Source: the environment variables in the manual of `gh`.
const OF_GH: &[&str] = &[
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "GH_ENTERPRISE_TOKEN",
    "GITHUB_ENTERPRISE_TOKEN",
    "GH_HOST",
    "GH_CONFIG_DIR",
];
const OF_DESKTOPS: &[&str] = &["DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_CURRENT_DESKTOP"];
/// Source: the manual of `apprise`.
const OF_APPRISE: &[&str] = &["APPRISE_URLS", "APPRISE_CONFIG_PATH", "APPRISE_PLUGIN_PATH"];

/// Settings of git in every run, also when `gh` runs it: nobody's configuration, no lock, prompt,
/// remote, pager or replaced object.
const GIT: [(&str, &str); 10] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    // An empty list allows no protocol.
    ("GIT_ALLOW_PROTOCOL", ""),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_PAGER", "cat"),
];
/// Settings of `gh`: no question, no colour, no call for a newer version.
const GH: [(&str, &str); 4] = [
    ("GH_PROMPT_DISABLED", "1"),
    ("GH_NO_UPDATE_NOTIFIER", "1"),
    ("GH_NO_EXTENSION_UPDATE_NOTIFIER", "1"),
    ("NO_COLOR", "1"),
];

/// A program that the daemon runs without being configured to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Program {
    /// Compares commits, and names the commit of a push.
    Git,
    /// Queries GitHub for the checks of a push.
    Gh,
    /// Shows a notice on the desktop.
    NotifySend,
    /// Sends a notice to a service.
    Apprise,
}

impl Program {
    /// Its name in `PATH`.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The variables that it gets if the daemon has them.
    const fn variables(self) -> &'static [&'static [&'static str]] {
        match self {
            Self::Git => &[],
            Self::Gh => &[OF_ALL, OF_USERS, OF_CLIENTS, OF_GH],
            Self::NotifySend => &[OF_ALL, OF_USERS, OF_DESKTOPS],
            Self::Apprise => &[OF_ALL, OF_USERS, OF_CLIENTS, OF_APPRISE],
        }
    }
}

/// The programs of the machine, as found at the start.
#[derive(Debug, Default)]
pub struct Programs {
    found: Found,
    /// A folder of the daemon, in which they run; no repository is above it for git.
    folder: PathBuf,
    /// The folders of sessions; a program in one of them is not run.
    pub workspaces: Arc<Workspaces>,
}

impl Programs {
    /// Finds the programs in the daemon's `PATH`, and prepares their folder below `state`.
    ///
    /// Errors: the folder cannot be written.
    pub fn find(state: &Path) -> io::Result<Self> {
        Self::find_in(state, env::var_os("PATH").unwrap_or_default())
    }

    fn find_in(state: &Path, path: OsString) -> io::Result<Self> {
        let folder = std::path::absolute(state)?.join("programs");
        for ids in Ids::VARIANTS {
            repository::write_empty(&folder.join(ids.as_str()), *ids, None)?;
        }
        let found = Found::find(path, Program::VARIANTS.iter().map(|program| program.as_str()));
        Ok(Self { found, folder, workspaces: Arc::default() })
    }

    /// The absolute path of a program by its name in `PATH`.
    ///
    /// Errors: why there is none.
    pub fn path_of(&self, name: &str) -> Result<PathBuf, Missing> {
        self.found.outside(name, &self.workspaces)
    }

    /// A program with its absolute path, its folder and its variables, and no input.
    ///
    /// Errors: why it cannot be run.
    pub fn command(&self, program: Program) -> Result<Command, Missing> {
        let mut command = Command::new(self.path_of(program.as_str())?);
        command.env_clear().current_dir(&self.folder).stdin(Stdio::null());
        let given = program.variables().iter().copied().flatten();
        command.envs(given.filter_map(|name| Some((name, env::var_os(name)?))));
        command.env("PATH", self.found.folders_outside(&self.workspaces));
        match program {
            Program::Git => {
                command.envs(GIT).env("LC_ALL", "C").env("HOME", &self.folder);
                command.env("XDG_CONFIG_HOME", &self.folder).env("GIT_INDEX_FILE", self.folder.join("none"));
            }
            // It may run git, which finds no repository here.
            Program::Gh => {
                command.envs(GIT).envs(GH);
            }
            Program::NotifySend | Program::Apprise => {}
        }
        command.env("GIT_CEILING_DIRECTORIES", self.folder.parent().unwrap_or(&self.folder));
        Ok(command)
    }

    /// git on the objects in the folder `objects`, without anything else of their repository.
    ///
    /// Errors: why it cannot be run.
    pub fn git_on(&self, objects: &Path, ids: Ids) -> Result<Command, Missing> {
        let mut command = self.command(Program::Git)?;
        command.env("GIT_DIR", self.folder.join(ids.as_str())).env("GIT_OBJECT_DIRECTORY", objects);
        Ok(command)
    }

    /// git that prints the settings of one file as text, without the files that it includes.
    ///
    /// Errors: why it cannot be run.
    pub fn git_settings(&self, file: &Path) -> Result<Command, Missing> {
        let mut command = self.command(Program::Git)?;
        command.env("GIT_DIR", self.folder.join(Ids::Sha1.as_str()));
        command.args(["config", "--no-includes", "--null", "--list", "--file"]).arg(file);
        Ok(command)
    }

    /// git that prints how its user abbreviates the addresses of remotes: settings of the user, not
    /// of a repository, and as text.
    ///
    /// Errors: why it cannot be run.
    pub fn git_abbreviations(&self) -> Result<Command, Missing> {
        let mut command = self.command(Program::Git)?;
        for name in ["HOME", "XDG_CONFIG_HOME"] {
            match env::var_os(name) {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env_remove("GIT_CONFIG_GLOBAL").env("GIT_DIR", self.folder.join(Ids::Sha1.as_str()));
        command.args(["config", "--global", "--includes", "--null", "--get-regexp", r"^url\..*\.insteadof$"]);
        Ok(command)
    }

    /// git on the objects and refs of the repository at `place`, without its settings. One caller
    /// at a time: the folder of the last call is replaced.
    ///
    /// Errors: why it cannot be run.
    pub fn git_at(&self, place: &Place, ids: Ids) -> io::Result<Command> {
        let view = self.folder.join("view");
        match fs::remove_dir_all(&view) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        repository::write_empty(&view, ids, Some(place))?;
        let missing = |missing| io::Error::new(io::ErrorKind::NotFound, missing);
        let mut command = self.git_on(&place.objects(), ids).map_err(missing)?;
        command.env("GIT_DIR", view);
        Ok(command)
    }
}

#[cfg(test)]
mod tests;
