//! Where programs are: the folders of `PATH` that are absolute, at the start of the daemon.

use std::{
    collections::VecDeque,
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use engine::sorted::SortedMap;

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
    fn hold(&self, path: &Path) -> bool {
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
        [&self.path].into_iter().chain(&self.real).all(|path| !workspaces.hold(path))
    }
}

/// The absolute folders of `PATH`, and the programs in them.
#[derive(Debug, Default)]
pub(super) struct Found {
    folders: Vec<Folder>,
    programs: SortedMap<String, Vec<At>>,
}

impl Found {
    /// Searches the folders of `path` for `names`.
    pub(super) fn find(path: OsString, names: impl Iterator<Item = &'static str>) -> Self {
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
    pub(super) fn outside(&self, name: &str, workspaces: &Workspaces) -> Result<PathBuf, Missing> {
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
    pub(super) fn folders_outside(&self, workspaces: &Workspaces) -> OsString {
        let is_outside = |folder: &&Folder| {
            let inner = |path: &Path| workspaces.hold(&path.join("program"));
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
