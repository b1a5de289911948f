//! The programs that the daemon runs by itself. They are found once, at its start, and run in a
//! folder of its own with the variables that they need.
//!
//! No content of a repository, archive or mount may make the daemon run a program. So git never
//! reads the configuration, the index, the attributes or the hooks of a repository: its `GIT_DIR`
//! is a folder of the daemon, and only the objects are the repository's (docs/design/git.md).
//! Programs that the user configured (a language server, the command of a sink) run as configured.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    env,
    ffi::{OsStr, OsString},
    fs,
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};

use engine::sorted::SortedMap;
use strum::{IntoStaticStr, VariantArray};

use crate::daemon::regular_file;

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
    found: SearchPath,
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
            write_empty(&folder.join(ids.as_str()), *ids, None)?;
        }
        let found = SearchPath::find(path, Program::VARIANTS.iter().map(|program| program.as_str()));
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

    /// A program that its user configured, with the folder and the variables of programs that have
    /// settings of their user, and the variables `more`.
    pub fn command_of_user(&self, path: &Path, more: &[Arc<str>]) -> Command {
        let mut command = Command::new(path);
        command.env_clear().current_dir(if self.folder.is_dir() { &*self.folder } else { Path::new("/") });
        let given = [OF_ALL, OF_USERS, OF_DESKTOPS].into_iter().flatten().copied();
        let given = given.chain(more.iter().map(|name| &**name));
        command.envs(given.filter_map(|name| Some((name, env::var_os(name)?))));
        command.env("PATH", self.found.folders_outside(&self.workspaces));
        command
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
    pub fn git_at(&self, place: &Repository, ids: Ids) -> io::Result<Command> {
        let view = self.folder.join("view");
        match fs::remove_dir_all(&view) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        write_empty(&view, ids, Some(place))?;
        let missing = |missing| io::Error::new(io::ErrorKind::NotFound, missing);
        let mut command = self.git_on(&place.objects(), ids).map_err(missing)?;
        command.env("GIT_DIR", view);
        Ok(command)
    }
}

/// Folders of the system's own programs. They count as outside of every session's folder: a session
/// may work in `/`.
const OF_THE_SYSTEM: [&str; 8] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
    "/snap/bin",
    "/run/current-system/sw/bin",
];
/// Most folders of sessions that are kept; the oldest is evicted.
const WORKSPACES_MAX: usize = 4_096;

/// Why a program is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No such program.
    #[error("{0} is not in the daemon's PATH")]
    Absent(String),
    /// It is only in the folder of a session, whose content must not run.
    #[error("{program} is only in a session's folder: {}", path.display())]
    InWorkspace {
        /// Its name.
        program: String,
        /// Where it is.
        path: PathBuf,
    },
}

/// The folders that sessions work in, and the tops of their repositories.
#[derive(Debug, Default)]
pub struct Workspaces(Mutex<VecDeque<Arc<str>>>);

impl Workspaces {
    /// Notes a folder.
    pub fn note(&self, folder: &str) {
        let mut folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if folders.iter().any(|known| **known == *folder) || !folder.starts_with('/') {
            return;
        }
        folders.push_back(folder.into());
        let surplus = folders.len().saturating_sub(WORKSPACES_MAX);
        folders.drain(..surplus);
    }

    /// Whether `path` is in one of the folders, and not in one of the system's.
    fn contain(&self, path: &Path) -> bool {
        if path.parent().is_some_and(|folder| OF_THE_SYSTEM.iter().any(|own| folder == Path::new(own))) {
            return false;
        }
        let folders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        folders.iter().any(|folder| path.starts_with(&**folder))
    }
}

/// A program.
#[derive(Debug, Clone)]
struct At {
    path: PathBuf,
    /// The same with its folder's links resolved, and with its own.
    real: [PathBuf; 2],
}

/// A folder of programs.
#[derive(Debug, Clone)]
struct Folder {
    path: PathBuf,
    /// The same without links.
    real: PathBuf,
}

fn without_links(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

impl At {
    fn new(folder: &Folder, name: &OsStr) -> Self {
        let path = folder.path.join(name);
        Self { real: [folder.real.join(name), without_links(&path)], path }
    }

    fn is_outside(&self, workspaces: &Workspaces) -> bool {
        [&self.path].into_iter().chain(&self.real).all(|path| !workspaces.contain(path))
    }
}

/// The folders of `PATH` that are absolute, at the start of the daemon, and the programs in them.
#[derive(Debug, Default)]
struct SearchPath {
    folders: Vec<Folder>,
    programs: SortedMap<String, Vec<At>>,
}

impl SearchPath {
    /// Searches the folders of `path` for `names`.
    fn find(path: OsString, names: impl Iterator<Item = &'static str>) -> Self {
        let folders = env::split_paths(&path).filter(|folder| folder.is_absolute());
        let folders = folders.map(|path| Folder { real: without_links(&path), path }).collect();
        let mut found = Self { folders, programs: SortedMap::new() };
        for name in names {
            found.programs.insert(name.to_owned(), found.search(OsStr::new(name)));
        }
        found
    }

    fn search(&self, name: &OsStr) -> Vec<At> {
        let programs = self.folders.iter().map(|folder| At::new(folder, name));
        programs.filter(|program| is_program(&program.path)).collect()
    }

    /// The first program of that name outside of `workspaces`. A name that was not searched at the
    /// start, from a user's configuration, is searched now.
    fn outside(&self, name: &str, workspaces: &Workspaces) -> Result<PathBuf, Missing> {
        let searched;
        let programs = match self.programs.get(name) {
            Some(programs) => programs,
            None => {
                searched = self.search(OsStr::new(name));
                &searched
            }
        };
        if let Some(program) = programs.iter().find(|program| program.is_outside(workspaces)) {
            return Ok(program.path.clone());
        }
        Err(match programs.first() {
            Some(At { path, .. }) => Missing::InWorkspace { program: name.to_owned(), path: path.clone() },
            None => Missing::Absent(name.to_owned()),
        })
    }

    /// The `PATH` for a program: the absolute folders outside of `workspaces`.
    fn folders_outside(&self, workspaces: &Workspaces) -> OsString {
        let is_outside = |folder: &&Folder| {
            let inner = |path: &Path| workspaces.contain(&path.join("program"));
            !inner(&folder.path) && !inner(&folder.real)
        };
        let folders = self.folders.iter().filter(is_outside).map(|folder| &folder.path);
        // No folder of a split list has a colon.
        env::join_paths(folders).unwrap_or_default()
    }
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Most bytes of a file that names a folder or a branch.
const LINE_BYTES_MAX: u64 = 8 * 1024;
/// HEAD of an empty repository.
const NO_BRANCH: &str = "ref: refs/heads/none";

/// The hash function of a repository's object ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Ids {
    /// Ids of 40 digits.
    Sha1,
    /// Ids of 64 digits.
    Sha256,
}

impl Ids {
    /// The hash function of a full id; `None` if `id` is not one.
    pub fn of(id: &str) -> Option<Self> {
        let ids = match id.len() {
            40 => Self::Sha1,
            64 => Self::Sha256,
            _ => return None,
        };
        id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(ids)
    }

    fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The top folder of its files.
    pub top: PathBuf,
    /// Its own folder: `.git`, or the folder that the file `.git` names.
    own: PathBuf,
    /// The folder of its objects, branches and settings: its own, or that of the main repository of
    /// a worktree.
    common: PathBuf,
}

impl Repository {
    /// The repository of `folder`, if there is one. May block on a mount that does not answer.
    ///
    /// Source: git-worktree(1) and gitrepository-layout(5).
    pub fn of(folder: &Path) -> Option<Self> {
        let has_git = |folder: &&Path| fs::symlink_metadata(folder.join(".git")).is_ok();
        let top = folder.ancestors().find(has_git)?;
        let git = top.join(".git");
        let own = if git.is_dir() { git } else { top.join(read_line(&git)?.strip_prefix("gitdir: ")?) };
        let common = read_line(&own.join("commondir")).map_or_else(|| own.clone(), |line| own.join(line));
        Some(Self { top: top.to_owned(), own, common })
    }

    /// The folder of its objects.
    pub fn objects(&self) -> PathBuf {
        self.common.join("objects")
    }

    /// The file with its settings.
    pub fn settings(&self) -> PathBuf {
        self.common.join("config")
    }

    fn has_tables(&self) -> bool {
        self.common.join("reftable/tables.list").is_file()
    }
}

/// Replaces the folder by one that git takes for a repository: no settings but the form of its ids,
/// and the objects and refs of another repository as links. The refs are those of `refs_of`, if
/// given.
///
/// Errors: the folder cannot be written, or has tables of refs that are not those of a worktree.
fn write_empty(folder: &Path, ids: Ids, refs_of: Option<&Repository>) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let has_tables = refs_of.is_some_and(Repository::has_tables);
    if let Some(place) = refs_of {
        if has_tables && place.own != place.common {
            return Err(io::Error::other("a worktree with tables of refs"));
        }
        for name in ["refs", "packed-refs", "reftable"] {
            symlink(place.common.join(name), folder.join(name))?;
        }
    } else {
        fs::create_dir_all(folder.join("refs"))?;
    }
    fs::create_dir_all(folder.join("objects"))?;
    let storage = if has_tables { "\trefStorage = reftable\n" } else { "" };
    let settings = format!(
        "[core]\n\tbare = true\n\trepositoryformatversion = 1\n[extensions]\n\tobjectFormat = {}\n{storage}",
        ids.as_str()
    );
    fs::write(folder.join("config"), settings)?;
    let head = refs_of.and_then(|place| read_line(&place.own.join("HEAD")));
    fs::write(folder.join("HEAD"), format!("{}\n", head.as_deref().unwrap_or(NO_BRANCH)))
}

/// The first line of a small regular file, if there is one.
fn read_line(path: &Path) -> Option<String> {
    let (file, _) = regular_file::open(path).ok()?;
    let mut bytes = Vec::new();
    file.take(LINE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    let line = text.lines().next()?.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}
