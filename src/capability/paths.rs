//! The settings of `[[sources.paths]]`, and the changes between two scans of the files. Pure: the
//! result depends only on the scans.
//!
//! A scan includes all matching files; each difference from the previous scan is a change. So an
//! editor that saves by renaming causes one change, a change that is reverted between two scans
//! causes none, and a lost notification of the operating system does no harm.

pub mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use globset::{GlobBuilder, GlobMatcher};
use journal::time::Timestamp;
use serde_json::{Map, json};

use engine::{
    event::{Event, Provenance, Severity, cut_text, strip_text},
    settings::{Entries, Entry, Form, Keys, Table, entry_folder, entry_name, entry_text, settings},
};

/// Most changes of one scan that are reported individually; the last event has the number of the
/// others.
const CHANGES_MAX: usize = 200;
/// Most characters of a reported path.
const PATH_CHARS_MAX: usize = 500;
/// Most names of ignored folders.
const IGNORED_MAX: usize = 64;
/// Special characters of a pattern.
const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];
const CREATED: &str = "fs.file.created";
const MODIFIED: &str = "fs.file.modified";
const DELETED: &str = "fs.file.deleted";
const RENAMED: &str = "fs.file.renamed";

/// The entries of `[[sources.paths]]`.
pub type Settings = Entries<Paths>;

const IGNORED: Form<Arc<str>> = Form {
    noun: "the name of a folder",
    note: "a folder is excluded by its name, at any depth: \"target\"",
    parse: |name| (!name.contains(['/', '*'])).then(|| name.into()),
};

settings! {
    /// Files that are watched while a session is open: agents are notified when one is created,
    /// changed, deleted or renamed (`fs.file.*`), even if they do not know the file. Files that an
    /// agent reads or writes need no entry, see `[sources.files]`.
    struct Written from impl Keys {
        /// A pattern of files: an absolute path, or a path in the folder of each open session. `*` is
        /// any part of a name, `**` any folders. Only the folders below the part without a pattern
        /// are watched.
        glob: Arc<str>, needed(read_glob), like "\"schemas/*.sql\"";
        /// The name of the entry; without this key, its pattern.
        name: Arc<str>, parsed(entry_name), like "\"schemas\"";
        /// Folders that are ignored, by name.
        ignored "ignore": Vec<Arc<str>> = ignored(), texts(&IGNORED, IGNORED_MAX);
        /// The folder whose sessions are notified; a relative pattern is in this folder.
        workspace: Arc<str>, parsed(entry_folder), like "\"/home/me/shop\"";
    }
}

/// One entry: the files to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    name: Arc<str>,
    glob: Arc<str>,
    ignored: Vec<Arc<str>>,
    workspace: Option<Arc<str>>,
}

/// The files of an entry under one folder.
#[derive(Debug, Clone)]
pub struct Search {
    /// The entry's name.
    pub name: Arc<str>,
    /// The folder whose sessions receive the events; `None` for all sessions.
    pub workspace: Option<Arc<str>>,
    /// The folder before the first non-literal part of the pattern.
    pub root: Arc<str>,
    glob: Arc<str>,
    ignored: Vec<Arc<str>>,
    /// Matches paths below `root`.
    file: GlobMatcher,
    /// Match folders below `root` by depth, the first level first; `None` if the pattern can match
    /// at any depth.
    folders: Option<Vec<GlobMatcher>>,
}

/// The state of a file, to detect changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The inode number.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// `mtime`, in nanoseconds since 1970.
    pub modified_ns: i128,
    /// `ctime`, in nanoseconds since 1970.
    pub changed_ns: i128,
    /// The first 64 bits of the SHA-256 of its content; `None` if it is too large.
    pub hash: Option<u64>,
    /// Whether its path is a link; the other fields are those of the file that it resolves to.
    pub is_link: bool,
    /// Whether every change after this scan is certain to get a different time.
    pub is_settled: bool,
}

/// The files of a scan, by their paths below the root.
pub type Listing = BTreeMap<Arc<str>, Stamp>;

/// The difference of a file from the previous scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The file is new.
    Created(Arc<str>),
    /// Its content changed.
    Modified(Arc<str>),
    /// The file no longer exists.
    Deleted(Arc<str>),
    /// Its path changed.
    Renamed {
        /// The old path.
        from: Arc<str>,
        /// The new path.
        to: Arc<str>,
    },
}

impl Entry for Paths {
    fn read(keys: &mut impl Keys) -> Option<Self> {
        let Written { glob, name, ignored, workspace } = Written::read(keys);
        let glob = glob?;
        Some(Self { name: name.unwrap_or_else(|| Arc::clone(&glob)), glob, ignored, workspace })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn table() -> Table {
        Written::table()
    }
}

impl PartialEq for Search {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.workspace, &self.root, &self.glob, &self.ignored)
            == (&other.name, &other.workspace, &other.root, &other.glob, &other.ignored)
    }
}

impl Paths {
    /// Watches the files of a pattern in the folders of open sessions.
    ///
    /// Errors: the problem with the pattern.
    pub fn new(glob: &str) -> Result<Self, String> {
        let glob = read_glob(glob)?;
        Ok(Self { name: Arc::clone(&glob), glob, ignored: ignored(), workspace: None })
    }

    /// The searches to run while sessions are open in `folders`.
    pub fn searches(&self, folders: &[Arc<str>]) -> Vec<Search> {
        match &self.workspace {
            _ if self.glob.starts_with('/') => self.search("", self.workspace.clone()).into_iter().collect(),
            Some(folder) => self.search(folder, Some(Arc::clone(folder))).into_iter().collect(),
            None => {
                folders.iter().filter_map(|folder| self.search(folder, Some(Arc::clone(folder)))).collect()
            }
        }
    }

    /// The search below a folder; `None` if a part of the pattern is invalid, which was reported
    /// when the pattern was read.
    fn search(&self, folder: &str, workspace: Option<Arc<str>>) -> Option<Search> {
        let glob = self.glob.trim_start_matches("./").trim_start_matches('/');
        let special = glob.find(SPECIAL).unwrap_or(glob.len());
        let (before, pattern) = match glob.get(..special)?.rfind('/') {
            Some(end) => glob.split_at_checked(end + 1)?,
            None => ("", glob),
        };
        let root = format!("{}/{before}", folder.trim_end_matches('/'));
        let parts: Vec<&str> = pattern.split('/').collect();
        // A slash within braces splits the pattern into invalid parts, so all depths are searched.
        let is_deep = pattern.contains("**") || pattern.contains('{');
        let levels = parts.len() - 1;
        let folders = (0..levels).map(|level| matcher(&parts.get(..=level)?.join("/")).ok()).collect();
        Some(Search {
            name: Arc::clone(&self.name),
            workspace,
            root: match root.trim_end_matches('/') {
                "" => "/".into(),
                root => root.into(),
            },
            glob: Arc::clone(&self.glob),
            ignored: self.ignored.clone(),
            file: matcher(pattern).ok()?,
            folders: if is_deep { None } else { folders },
        })
    }
}

/// The names ignored by default.
fn ignored() -> Vec<Arc<str>> {
    [".git", "node_modules", "target"].map(Into::into).to_vec()
}

fn read_glob(text: &str) -> Result<Arc<str>, String> {
    let glob = entry_text(text)?;
    if glob.split('/').any(|part| part == "..") {
        return Err("`..` is not resolved; use the absolute path of the folder".to_owned());
    }
    if glob.ends_with('/') {
        return Err("it names a folder; its files are \"**\" below it".to_owned());
    }
    matcher(&glob).map_err(|error| error.kind().to_string())?;
    Ok(glob)
}

fn matcher(glob: &str) -> Result<GlobMatcher, globset::Error> {
    Ok(GlobBuilder::new(glob).literal_separator(true).build()?.compile_matcher())
}

impl Search {
    /// Whether the file at this path, relative to the root, matches.
    pub fn is_wanted(&self, path: &str) -> bool {
        self.file.is_match(path)
    }

    /// Whether the pattern matches files at any depth.
    pub fn is_deep(&self) -> bool {
        self.folders.is_none()
    }

    /// Whether this folder, relative to the root, can contain matches.
    pub fn is_way(&self, folder: &str) -> bool {
        let name = folder.rsplit('/').next().unwrap_or(folder);
        if self.ignored.iter().any(|ignored| **ignored == *name) {
            return false;
        }
        let level = folder.matches('/').count();
        self.folders.as_ref().is_none_or(|folders| folders.get(level).is_some_and(|way| way.is_match(folder)))
    }

    /// The events for the changes. They are untrusted, because anybody may have written the files.
    ///
    /// Shape: at most `CHANGES_MAX` events; the last one has the number of further changes as
    /// `more`. Each has the path relative to the sessions' folder, and the file's `content`.
    pub fn events(&self, changes: &[Change], seen: &Listing, now: Timestamp) -> Vec<Event> {
        let more = changes.len().saturating_sub(CHANGES_MAX);
        let last = changes.len().min(CHANGES_MAX);
        let events = (1..).zip(changes.iter().take(CHANGES_MAX));
        events
            .map(|(number, change)| {
                self.event(change, seen, (number, if number == last { more } else { 0 }), now)
            })
            .collect()
    }

    fn event(
        &self,
        change: &Change,
        seen: &Listing,
        (number, more): (usize, usize),
        now: Timestamp,
    ) -> Event {
        let (event_type, kind, path, from) = match change {
            Change::Created(path) => (CREATED, "created", path, None),
            Change::Modified(path) => (MODIFIED, "modified", path, None),
            Change::Deleted(path) => (DELETED, "deleted", path, None),
            Change::Renamed { from, to } => (RENAMED, "renamed", to, Some(from)),
        };
        let mut payload = Map::new();
        payload.insert("name".to_owned(), json!(self.name));
        payload.insert("path".to_owned(), json!(self.shown(path)));
        payload.insert("kind".to_owned(), json!(kind));
        if let Some(from) = from {
            payload.insert("from".to_owned(), json!(self.shown(from)));
        }
        if let Some(hash) = seen.get(path).and_then(|stamp| stamp.hash) {
            payload.insert("content".to_owned(), json!(format!("{hash:016x}")));
        }
        if more > 0 {
            payload.insert("more".to_owned(), json!(more));
        }
        let id = format!("paths:{}:{}:{number}:{}", self.root, now.as_millis(), self.name);
        let event = Event::own(event_type, id, Severity::Info, payload.into(), now);
        Event { provenance: Provenance::Quoted, workspace: self.workspace.clone(), ..event }
    }

    /// Returns the path relative to its sessions' folder.
    fn shown(&self, path: &str) -> String {
        let whole = format!("{}/{path}", self.root.trim_end_matches('/'));
        let folder = self.workspace.as_deref().map(Path::new);
        let below = folder.and_then(|folder| Path::new(&whole).strip_prefix(folder).ok());
        let shown = below.and_then(Path::to_str).unwrap_or(&whole);
        cut_text(strip_text(shown), PATH_CHARS_MAX).into()
    }
}

impl Stamp {
    /// Whether the file is unchanged, compared without its content.
    pub fn is_same_file(&self, other: &Self) -> bool {
        let print = |stamp: &Self| (stamp.inode, stamp.size, stamp.modified_ns, stamp.changed_ns);
        print(self) == print(other)
    }

    fn has_same_content(&self, other: &Self) -> bool {
        match (self.hash, other.hash) {
            (Some(one), Some(other)) => one == other,
            (None, _) | (_, None) => self.size == other.size && self.modified_ns == other.modified_ns,
        }
    }
}

/// The changes between two scans: the new, changed and renamed files by path, then the deleted ones
/// by path.
pub fn compare(before: &Listing, now: &Listing) -> Vec<Change> {
    let mut gone: BTreeMap<u64, (&Arc<str>, &Stamp)> = before
        .iter()
        // The file of a link has a path of its own.
        .filter(|(path, stamp)| !stamp.is_link && !now.contains_key(*path))
        .map(|(path, stamp)| (stamp.inode, (path, stamp)))
        .collect();
    let (mut changes, mut renamed) = (Vec::new(), BTreeSet::new());
    for (path, stamp) in now {
        match before.get(path) {
            Some(known) if known.has_same_content(stamp) => {}
            Some(_) => changes.push(Change::Modified(Arc::clone(path))),
            None if stamp.is_link => changes.push(Change::Created(Arc::clone(path))),
            None => match gone.remove(&stamp.inode).filter(|(_, known)| known.has_same_content(stamp)) {
                Some((from, _)) => {
                    renamed.insert(from);
                    changes.push(Change::Renamed { from: Arc::clone(from), to: Arc::clone(path) });
                }
                None => changes.push(Change::Created(Arc::clone(path))),
            },
        }
    }
    let deleted = before.keys().filter(|path| !now.contains_key(*path) && !renamed.contains(*path));
    changes.extend(deleted.map(|path| Change::Deleted(Arc::clone(path))));
    changes
}

#[cfg(test)]
mod tests;
