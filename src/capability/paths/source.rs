//! Watches the folders of `[[sources.paths]]`, and publishes changes of their files: one task per
//! entry and folder.
//!
//! A report of the system only triggers a look: the task compares all files of the entry with its
//! previous look, so the system may lose reports. A task polls only where the system sends no
//! reports, as for a network mount.

use std::{
    convert::Infallible,
    fs::{self, DirEntry, File, FileType, Metadata},
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustix::{fs::inotify::WatchFlags, io::Errno};
use sha2::{Digest, Sha256};
use tokio::sync::{Notify, watch};
use tokio_stream::StreamExt;

use crate::capability::{
    outside,
    paths::{Listing, Search, Stamp, compare},
    source::{
        Outlet, Parts, Running, Source, SourceError, changes,
        files::{Folders, LOOK_EVERY, is_absence, is_remote, on_thread, watch_around},
        inputs::{self, Troubles},
        pause, pause_if,
    },
};
use engine::{hash::first_64_bits, settings::Entry, sorted::SortedSet};
use journal::time::Timestamp;

/// Most searches: entries times folders of open sessions.
const SEARCHES_MAX: usize = 256;
/// Most watched folders of a search, each at some 1 KB of the system's memory.
const FOLDERS_MAX: usize = 2_048;
/// Most files of a search, at some 200 bytes each.
const FILES_MAX: usize = 10_000;
/// Largest file whose content is compared, in bytes; larger files are compared by size and time.
const HASHED_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes that a look reads to compare contents; the other files are compared by size and time.
const READ_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The time limit of a look.
const LOOK_MAX: Duration = Duration::from_secs(30);
/// Changes within this time need only one look, such as the steps of an editor's save.
const SETTLES: Duration = Duration::from_millis(200);
/// A file that changed within this time before a look may change again and keep its time.
const RACY_MS: u64 = 20;

/// The source.
#[derive(Debug)]
pub struct Searching {
    settings: watch::Receiver<Arc<outside::Settings>>,
    folders: watch::Receiver<inputs::OpenFolders>,
    troubles: Arc<Troubles>,
}

impl Searching {
    /// Watches the folders that the settings name.
    pub fn new(Parts { inputs, .. }: &Parts<'_>) -> Self {
        Self {
            settings: inputs.settings.subscribe(),
            folders: inputs.folders.subscribe(),
            troubles: Arc::clone(&inputs.troubles),
        }
    }

    /// All searches of the entries.
    fn wanted(&self, settings: &outside::Settings, open: &inputs::OpenFolders) -> Vec<Search> {
        let entries = &settings.paths.list;
        let names: SortedSet<&str> = entries.iter().map(Entry::name).collect();
        self.troubles.keep(Self::NAME, &names);
        let mut wanted = Vec::new();
        for entry in entries.iter() {
            let searches = entry.searches(open);
            let left = searches.len().saturating_sub(SEARCHES_MAX - wanted.len());
            let trouble = format!("only {SEARCHES_MAX} folders are watched for entries; {left} are not");
            self.troubles.set(Self::NAME, entry.name(), "", (left > 0).then_some(trouble));
            let room = searches.len() - left;
            wanted.extend(searches.into_iter().take(room));
        }
        wanted
    }
}

impl Source for Searching {
    const NAME: &'static str = "paths";

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        let mut changes = changes(&self.settings).merge(changes(&self.folders));
        let folders = Arc::new(Folders::reporting(WatchFlags::empty()));
        let mut running = Running::default();
        loop {
            let in_force = Arc::clone(&self.settings.borrow());
            let open = Arc::clone(&self.folders.borrow());
            let wanted = self.wanted(&in_force, &open);
            folders.renew(wanted.len());
            running.renew(&wanted, |search| {
                let (folders, troubles) = (Arc::clone(&folders), Arc::clone(&self.troubles));
                Task { search: Arc::new(search), folders, troubles }.run(out.clone())
            });
            loop {
                tokio::select! {
                    changed = changes.next() => break changed.ok_or(SourceError::Ended)?,
                    ended = running.ended("files could not be watched") => ended?,
                    () = folders.changed() => {}
                }
            }
        }
    }
}

struct Task {
    search: Arc<Search>,
    folders: Arc<Folders>,
    troubles: Arc<Troubles>,
}

impl Task {
    async fn run(self, out: Outlet) {
        let who = Arc::new(Notify::new());
        let mut before: Option<Arc<Listing>> = None;
        loop {
            let looked = self.look(before.clone(), &who, (out.clock)()).await;
            let needs_polling = match looked {
                Ok(looked) => {
                    self.note(looked.trouble);
                    let now = Arc::new(looked.seen);
                    if let Some(before) = before.replace(Arc::clone(&now)) {
                        let changes = compare(&before, &now);
                        out.publish_all(self.search.events(&changes, &now, (out.clock)())).await;
                    }
                    looked.needs_polling
                }
                Err(error) => {
                    self.note(Some(format!("{} cannot be read: {error}", self.search.root)));
                    true
                }
            };
            tokio::select! {
                () = who.notified() => pause(SETTLES).await,
                () = pause_if(needs_polling.then_some(LOOK_EVERY)) => {}
            }
        }
    }

    async fn look(
        &self,
        before: Option<Arc<Listing>>,
        who: &Arc<Notify>,
        now: Timestamp,
    ) -> io::Result<LookResult> {
        let (search, folders, who) = (Arc::clone(&self.search), Arc::clone(&self.folders), Arc::clone(who));
        on_thread(&self.search.root, LOOK_MAX, move || {
            let root = Path::new(&*search.root);
            // Asked first: if reports begin meanwhile, the next poll adds the folders.
            let needs_polling = !folders.is_reporting() || is_remote(&root.join("x"));
            // The folder above it too, because the root may be created, removed or replaced.
            watch_around(root, &folders, &who);
            let before = before.unwrap_or_default();
            let mut look = Look {
                search: &search,
                before: &before,
                now,
                looked: LookResult::default(),
                folders: 0,
                targets: SortedSet::new(),
                read: 0,
            };
            look.walk(|folder| folders.add(folder, &who))?;
            look.looked.needs_polling |= needs_polling;
            Ok(look.looked)
        })
        .await
    }

    /// Records the problem of an entry, or that it has none, and logs a new problem once.
    fn note(&self, trouble: Option<String>) {
        let Search { name, root, .. } = &*self.search;
        if self.troubles.set(Searching::NAME, name, root, trouble.clone())
            && let Some(trouble) = trouble
        {
            tracing::warn!(entry = &**name, trouble, "not all files of an entry are watched");
        }
    }
}

/// The result of a look.
#[derive(Debug, Default)]
struct LookResult {
    seen: Listing,
    trouble: Option<String>,
    needs_polling: bool,
}

struct Look<'a> {
    search: &'a Search,
    before: &'a Listing,
    now: Timestamp,
    looked: LookResult,
    folders: usize,
    /// The folders of the targets of links.
    targets: SortedSet<PathBuf>,
    /// Bytes read so far.
    read: u64,
}

impl Look<'_> {
    /// Visits every folder that can have files of the search; calls `watch` before reading each.
    fn walk(&mut self, watch: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        let root = Path::new(&*self.search.root);
        let mut open = vec![String::new()];
        while let Some(folder) = open.pop() {
            let path = root.join(&folder);
            if !self.watch(&path, &watch) {
                return Ok(());
            }
            let entries = match fs::read_dir(&path) {
                Ok(entries) => entries,
                // A folder that does not exist any more, or not yet, has no files.
                Err(error) if is_absence(&error) => continue,
                Err(error) if folder.is_empty() => return Err(error),
                Err(error) => {
                    self.trouble(format!("{} cannot be read: {error}", path.display()));
                    continue;
                }
            };
            for entry in entries.filter_map(Result::ok) {
                // No pattern matches a name that is not UTF-8.
                let Ok(name) = entry.file_name().into_string() else { continue };
                let below = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                let Some((kind, is_link)) = self.kind(&entry, &below, &watch) else { continue };
                if kind.is_dir() && self.search.is_way(&below) {
                    open.push(below);
                } else if kind.is_file() && self.search.is_wanted(&below) {
                    self.take(below, &entry.path(), is_link);
                }
            }
        }
        Ok(())
    }

    /// Calls `watch` for a folder; false if there are too many.
    fn watch(&mut self, folder: &Path, watch: &impl Fn(&Path) -> io::Result<()>) -> bool {
        if self.folders >= FOLDERS_MAX {
            self.trouble(format!("only {FOLDERS_MAX} folders below {} are watched", self.search.root));
            return false;
        }
        self.folders += 1;
        if watch(folder).is_err_and(|error| error.raw_os_error() == Some(Errno::NOSPC.raw_os_error())) {
            self.trouble(
                "the limit of watched folders is reached: see fs.inotify.max_user_watches".to_owned(),
            );
        }
        true
    }

    /// The kind of an entry, and whether it is a link. A link has the kind of its target, whose folder
    /// is watched too. `None` for a link to nothing, and for one to a folder where the pattern has any
    /// depth: links could be a loop.
    fn kind(
        &mut self,
        entry: &DirEntry,
        below: &str,
        watch: &impl Fn(&Path) -> io::Result<()>,
    ) -> Option<(FileType, bool)> {
        let kind = entry.file_type().ok()?;
        if !kind.is_symlink() {
            return Some((kind, false));
        }
        let may_be_way = !self.search.is_deep() && self.search.is_way(below);
        if !may_be_way && !self.search.is_wanted(below) {
            return None;
        }
        let path = entry.path();
        let named = || Some(path.parent()?.join(fs::read_link(&path).ok()?));
        let to = fs::canonicalize(&path).ok().or_else(named)?;
        if let Some(folder) = to.parent()
            && self.targets.insert(folder.to_owned())
        {
            self.watch(folder, watch);
            self.looked.needs_polling |= is_remote(&to);
        }
        // Asked after the watch, so that a change in between wakes the task.
        let kind = fs::metadata(&path).ok()?.file_type();
        (!kind.is_dir() || !self.search.is_deep()).then_some((kind, true))
    }

    fn take(&mut self, below: String, path: &Path, is_link: bool) {
        if self.looked.seen.len() >= FILES_MAX {
            return self.trouble(format!("only {FILES_MAX} files below {} are watched", self.search.root));
        }
        let Ok(found) = fs::metadata(path) else { return };
        let mut stamp = stamp(&found, is_link);
        let known = self.before.get(below.as_str()).filter(|known| known.is_same_file(&stamp));
        let changed_ms = u64::try_from(stamp.changed_ns.max(stamp.modified_ns) / 1_000_000).unwrap_or(0);
        stamp.is_settled = changed_ms.saturating_add(RACY_MS) < self.now.as_millis();
        stamp.hash = match known {
            Some(known) if known.is_settled && known.hash.is_some() => known.hash,
            Some(_) | None => self.hash(path, found.len()),
        };
        self.looked.seen.insert(below.into(), stamp);
    }

    /// Returns a hash of the content, unless the file or the total would be too large.
    fn hash(&mut self, path: &Path, size: u64) -> Option<u64> {
        if size > HASHED_BYTES_MAX || self.read + size > READ_BYTES_MAX {
            return None;
        }
        let mut content = Vec::new();
        File::open(path).ok()?.take(HASHED_BYTES_MAX + 1).read_to_end(&mut content).ok()?;
        self.read += content.len() as u64;
        let is_whole = content.len() as u64 <= HASHED_BYTES_MAX;
        is_whole.then(|| first_64_bits(Sha256::new_with_prefix(content)))
    }

    fn trouble(&mut self, trouble: String) {
        self.looked.trouble.get_or_insert(trouble);
    }
}

fn stamp(found: &Metadata, is_link: bool) -> Stamp {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Stamp {
        inode: found.ino(),
        size: found.len(),
        modified_ns: nanos(found.mtime(), found.mtime_nsec()),
        changed_ns: nanos(found.ctime(), found.ctime_nsec()),
        hash: None,
        is_link,
        is_settled: false,
    }
}

#[cfg(test)]
mod tests;
