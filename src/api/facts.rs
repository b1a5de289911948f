//! Answers the queries of probes from the file system.
//!
//! Contents are hashed once per file state, and the texts of small files are kept so that changed
//! lines can be named; both in memory only, within bounds. Every call may block, on a network mount
//! forever, so it runs on its own thread (`api/probing.rs`). The exception is [quick](Quick)
//! work on file systems that answer at once.

mod git_diff;
mod limited;

use std::{
    collections::{HashMap, VecDeque},
    fs::{self, Metadata},
    io::{self, ErrorKind, Read, Seek, SeekFrom},
    net::{SocketAddr, TcpStream},
    os::unix::fs::{DirEntryExt, MetadataExt},
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use engine::{
    probe::{
        Entry, Facts, Fingerprint, Space,
        facts::{ContentHash, HASHED_BYTES_MAX, KEPT_BYTES_MAX},
    },
    watch::condition::LOCALHOST,
};
use journal::{meter::MonotonicClock, time::Timestamp};

use crate::daemon::{program::Programs, regular_file};

use self::git_diff::{Commits, changed_between};
pub(crate) use self::limited::{Quick, Within};

/// Most file states whose hash is cached, at some 100 bytes each; the cache is cleared beyond it.
const HASHES_MAX: usize = 16_384;
/// Most bytes of cached texts; the oldest are evicted. They are used only to name changed lines.
const KEPT_TEXTS_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most cached comparisons of two commits, at 1 MiB of paths each; the cache is cleared beyond it.
const DIFFS_MAX: usize = 8;
/// How often a failing comparison of two commits is tried: the first try fills the page cache.
const DIFF_TRIES_MAX: u8 = 2;
/// Time limit of a comparison. The exchange does not wait for it; the next one finds it cached.
const DIFF_WITHIN: Duration = Duration::from_millis(300);
/// Most entries of a folder that are searched, for a renamed file or the newest log.
const FOLDER_ENTRIES_MAX: usize = 4_096;
/// Least age of a file's last change when its hash is cached, in milliseconds. The file system's
/// clock is that coarse: a later change could have the same fingerprint.
const SETTLED_MS: u64 = 10;

/// Cached facts of files, for all sessions.
#[derive(Debug, Default)]
pub struct Contents(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    hashes: HashMap<String, Option<ContentHash>>,
    texts: HashMap<ContentHash, Arc<str>>,
    /// Hashes of the cached texts, oldest first.
    order: VecDeque<ContentHash>,
    text_bytes: usize,
    /// Keyed by the objects' folder and the commits.
    diffs: HashMap<String, Diff>,
}

/// The difference between two commits.
#[derive(Debug, Default)]
struct Diff {
    paths: Option<Arc<[String]>>,
    tries: u8,
}

impl Contents {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    fn keep(&mut self, hash: ContentHash, text: &str) {
        if self.texts.contains_key(&hash) {
            return;
        }
        self.text_bytes += text.len();
        self.texts.insert(hash, text.into());
        self.order.push_back(hash);
        while self.text_bytes > KEPT_TEXTS_BYTES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.text_bytes -= self.texts.remove(&oldest).map_or(0, |text| text.len());
        }
    }

    fn remember(&mut self, print: &Fingerprint, hash: Option<ContentHash>) {
        if self.hashes.len() >= HASHES_MAX {
            self.hashes.clear();
        }
        self.hashes.insert(print.to_string(), hash);
    }

    fn remember_diff(&mut self, key: String, paths: Option<Arc<[String]>>) {
        if self.diffs.len() >= DIFFS_MAX && !self.diffs.contains_key(&key) {
            self.diffs.clear();
        }
        let diff = self.diffs.entry(key).or_default();
        diff.tries = diff.tries.saturating_add(1);
        diff.paths = paths;
    }
}

/// The machine's files, at one moment.
#[derive(Debug)]
pub struct Machine {
    /// Cached facts of files.
    pub contents: Arc<Contents>,
    /// The programs of the machine.
    pub programs: Arc<Programs>,
    /// Whether texts are cached.
    pub keeps_texts: bool,
    /// The time of the look.
    pub now: Timestamp,
    /// True while git compares two commits, which is worth a slightly longer wait.
    pub is_comparing: Arc<AtomicBool>,
    /// Measures durations.
    pub stopwatch: MonotonicClock,
}

impl Machine {
    /// Whether [`Machine::hash`] answers for a file in this state without reading it.
    fn has_hashed(&self, found: &Fingerprint) -> bool {
        found.size > HASHED_BYTES_MAX || self.contents.lock().hashes.contains_key(&found.to_string())
    }

    /// The cached difference between two commits; `None` when it still has to be computed.
    fn has_compared(&self, objects: &Path, old: &str, new: &str) -> Option<Option<Arc<[String]>>> {
        let contents = self.contents.lock();
        let diff = contents.diffs.get(&diff_key(objects, old, new))?;
        (diff.paths.is_some() || diff.tries >= DIFF_TRIES_MAX).then(|| diff.paths.clone())
    }
}

fn diff_key(objects: &Path, old: &str, new: &str) -> String {
    format!("{old} {new} {}", objects.display())
}

impl Facts for Machine {
    fn entry(&self, path: &Path) -> Entry {
        match fs::metadata(path) {
            Ok(found) if found.is_file() => Entry::File(fingerprint(&found)),
            Ok(found) if found.is_dir() => Entry::Folder,
            Ok(_) => Entry::Other,
            Err(error) if is_absence(error.kind()) => Entry::Absent,
            Err(_) => Entry::Unknown,
        }
    }

    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash> {
        if found.size > HASHED_BYTES_MAX {
            return None;
        }
        if let Some(known) = self.contents.lock().hashes.get(&found.to_string()) {
            return *known;
        }
        let content = read_state(path, found).ok().flatten();
        let hash = content.as_deref().map(ContentHash::of);
        let changed_ms = u64::try_from(found.modified_ns.max(found.changed_ns) / 1_000_000).unwrap_or(0);
        let is_settled = changed_ms.saturating_add(SETTLED_MS) < self.now.as_millis();
        let mut remembered = self.contents.lock();
        if is_settled {
            remembered.remember(found, hash);
        }
        if let (true, Some(hash), Some(text)) =
            (self.keeps_texts, hash, content.as_deref().and_then(small_text))
        {
            remembered.keep(hash, text);
        }
        hash
    }

    fn kept(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.contents.lock().texts.get(&hash).cloned()
    }

    fn remember(&self, hash: ContentHash, text: &str) {
        if self.keeps_texts && text.len() as u64 <= KEPT_BYTES_MAX {
            self.contents.lock().keep(hash, text);
        }
    }

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        let (mut file, _) = regular_file::open(path).ok()?;
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut bytes = Vec::new();
        file.take(max).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn name_of(&self, folder: &Path, device: u64, inode: u64) -> Option<String> {
        let entries = fs::read_dir(folder).ok()?.take(FOLDER_ENTRIES_MAX);
        let found = entries.flatten().find(|entry| entry.ino() == inode)?;
        let is_it = fs::symlink_metadata(found.path())
            .is_ok_and(|at| at.is_file() && (at.dev(), at.ino()) == (device, inode));
        found.file_name().into_string().ok().filter(|_| is_it)
    }

    fn names(&self, folder: &Path, max: usize) -> Vec<String> {
        let entries = fs::read_dir(folder).into_iter().flatten().take(FOLDER_ENTRIES_MAX).flatten();
        let mut names: Vec<String> =
            entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort_unstable();
        names.split_off(names.len().saturating_sub(max))
    }

    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>> {
        if let Some(known) = self.has_compared(objects, old, new) {
            return known;
        }
        self.is_comparing.store(true, Ordering::Relaxed);
        let commits = Commits { objects, old, new };
        let paths = changed_between(&self.programs, &commits, DIFF_WITHIN, self.stopwatch).map(Arc::from);
        self.contents.lock().remember_diff(diff_key(objects, old, new), paths.clone());
        paths
    }

    fn space(&self, path: &Path) -> Option<Space> {
        let found = rustix::fs::statvfs(path).ok()?;
        let device = fs::metadata(path).ok()?.dev();
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        Some(Space { free: bytes(found.f_bavail), total: bytes(found.f_blocks), device })
    }

    fn accepts(&self, port: u16) -> Option<bool> {
        accepts(port, CONNECT_WITHIN)
    }
}

const fn is_absence(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The content of a file in the state `found`; `None` when its state has changed.
fn read_state(path: &Path, found: &Fingerprint) -> io::Result<Option<Vec<u8>>> {
    let (mut file, _) = regular_file::open(path)?;
    let mut content = Vec::with_capacity(usize::try_from(found.size).unwrap_or(0));
    (&mut file).take(HASHED_BYTES_MAX + 1).read_to_end(&mut content)?;
    let is_it = fingerprint(&file.metadata()?) == *found && content.len() as u64 == found.size;
    Ok(is_it.then_some(content))
}

fn small_text(content: &[u8]) -> Option<&str> {
    let is_small = content.len() as u64 <= KEPT_BYTES_MAX && !content.contains(&0);
    is_small.then(|| std::str::from_utf8(content).ok())?
}

fn fingerprint(found: &Metadata) -> Fingerprint {
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    Fingerprint {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified_ns: nanos(found.mtime(), found.mtime_nsec()),
        changed_ns: nanos(found.ctime(), found.ctime_nsec()),
    }
}

/// Time limit of one connection. The kernel answers at once on loopback, unless a filter drops
/// packets or the listener's queue is full.
const CONNECT_WITHIN: Duration = Duration::from_millis(4);
/// The time limit of one connection on a request's thread.
const QUICK_WITHIN: Duration = Duration::from_millis(1);

/// Whether a connection to `port` is accepted; `None` when that is unknown after `within` for each
/// address.
fn accepts(port: u16, within: Duration) -> Option<bool> {
    let mut answer = Some(false);
    for address in LOCALHOST {
        match connect(SocketAddr::new(address, port), within) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => answer = None,
        }
    }
    answer
}

fn connect(address: SocketAddr, within: Duration) -> Option<bool> {
    match TcpStream::connect_timeout(&address, within) {
        // The kernel may pick the same port for the client side and connect the socket to itself.
        Ok(stream) => Some(stream.local_addr().ok() != stream.peer_addr().ok()),
        // Refused, or the machine has no such address.
        Err(error) => (!is_late(error.kind())).then_some(false),
    }
}

const fn is_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    pub(super) fn machine() -> Machine {
        // Far later than the last change of every file, so all of them have settled.
        let now = Timestamp::from_millis(u64::MAX / 2);
        Machine {
            contents: Arc::default(),
            programs: Arc::default(),
            keeps_texts: true,
            now,
            is_comparing: Arc::default(),
            stopwatch: || Duration::ZERO,
        }
    }

    pub(super) fn print_of(machine: &Machine, path: &Path) -> Fingerprint {
        let Entry::File(print) = machine.entry(path) else { panic!("no file at {}", path.display()) };
        print
    }

    #[test]
    fn each_kind_of_entry_differs_from_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "x").expect("written");
        std::os::unix::fs::symlink("loop", path("loop")).expect("linked");
        std::os::unix::fs::symlink("file", path("link")).expect("linked");
        drop(std::os::unix::net::UnixListener::bind(path("socket")).expect("bound"));
        let machine = machine();
        assert!(matches!(machine.entry(&path("file")), Entry::File(_)));
        assert_eq!(machine.entry(&path("link")), machine.entry(&path("file")));
        assert_eq!(machine.entry(folder.path()), Entry::Folder);
        assert_eq!(machine.entry(&path("socket")), Entry::Other);
        assert_eq!(machine.entry(&path("loop")), Entry::Unknown);
        assert_eq!(
            (machine.entry(&path("none")), machine.entry(&path("file/x"))),
            (Entry::Absent, Entry::Absent)
        );
    }

    #[test]
    fn content_is_hashed_once_per_file_state() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rs");
        fs::write(&path, "one\n").expect("written");
        let machine = machine();
        let print = print_of(&machine, &path);
        let hash = machine.hash(&path, &print).expect("readable");
        assert_eq!(hash, ContentHash::of(b"one\n"));
        assert_eq!(machine.kept(hash).as_deref(), Some("one\n"));
        fs::write(&path, "other\n").expect("written");
        assert_eq!(machine.hash(&path, &print), Some(hash), "that state is known");
        let print = print_of(&machine, &path);
        assert_eq!(machine.hash(&path, &print), Some(ContentHash::of(b"other\n")));
        let stale = Fingerprint { size: 1, ..print };
        assert_eq!(machine.hash(&path, &stale), None, "it is in another state");
    }

    #[test]
    fn unsettled_file_state_is_hashed_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.rs");
        fs::write(&path, "one\n").expect("written");
        let machine = Machine { now: Timestamp::ZERO, ..machine() };
        let print = print_of(&machine, &path);
        machine.hash(&path, &print).expect("readable");
        assert!(machine.contents.lock().hashes.is_empty());
    }

    #[test]
    fn a_large_or_binary_file_keeps_no_text() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let machine = machine();
        let large = usize::try_from(HASHED_BYTES_MAX).expect("small") + 1;
        fs::write(&path, vec![b'x'; large]).expect("written");
        assert_eq!(machine.hash(&path, &print_of(&machine, &path)), None);
        fs::write(&path, vec![b'x'; large - 1]).expect("written");
        let hash = machine.hash(&path, &print_of(&machine, &path)).expect("hashed");
        assert_eq!(machine.kept(hash), None);
        fs::write(&path, [0, 1]).expect("written");
        let hash = machine.hash(&path, &print_of(&machine, &path)).expect("hashed");
        assert_eq!(machine.kept(hash), None);
    }

    #[test]
    fn texts_and_hashes_are_bounded() {
        let mut remembered = Remembered::default();
        for number in 0..u64::try_from(KEPT_TEXTS_BYTES_MAX / 60_000 + 10).expect("small") {
            remembered.keep(ContentHash(number), &"x".repeat(60_000));
        }
        assert!(remembered.text_bytes <= KEPT_TEXTS_BYTES_MAX);
        assert_eq!(remembered.texts.len(), remembered.order.len());
        for inode in 0..u64::try_from(HASHES_MAX + 10).expect("small") {
            let print = Fingerprint { device: 1, inode, size: 0, modified_ns: 0, changed_ns: 0 };
            remembered.remember(&print, None);
        }
        assert!(remembered.hashes.len() <= HASHES_MAX);
    }

    #[test]
    fn failed_commit_comparison_is_retried_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = machine();
        let compare = || machine.changed_between(folder.path(), &"a".repeat(40), &"b".repeat(40));
        for tries in [1, 2, 2] {
            assert_eq!(compare(), None);
            assert_eq!(
                machine.contents.lock().diffs.values().map(|diff| diff.tries).collect::<Vec<_>>(),
                [tries]
            );
        }
        let key = |number: usize| number.to_string();
        for number in 0..DIFFS_MAX * 2 {
            machine.contents.lock().remember_diff(key(number), Some(Arc::default()));
        }
        assert!(machine.contents.lock().diffs.len() <= DIFFS_MAX);
    }

    #[test]
    fn the_last_names_of_a_folder_are_given() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b", "a", "d", "c"] {
            fs::write(folder.path().join(name), "").expect("written");
        }
        assert_eq!(machine().names(folder.path(), 3), ["b", "c", "d"]);
        assert_eq!(machine().names(&folder.path().join("a"), 3), [""; 0]);
    }

    #[test]
    fn a_renamed_file_is_found_in_its_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let (old, new) = (folder.path().join("a"), folder.path().join("b"));
        fs::write(&old, "x").expect("written");
        let machine = machine();
        let print = print_of(&machine, &old);
        fs::rename(&old, &new).expect("renamed");
        assert_eq!(machine.name_of(folder.path(), print.device, print.inode).as_deref(), Some("b"));
        fs::remove_file(&new).expect("removed");
        assert_eq!(machine.name_of(folder.path(), print.device, print.inode), None);
        assert!(machine.space(folder.path()).is_some_and(|space| space.free <= space.total));
    }

    #[test]
    fn port_accepts_while_either_loopback_address_listens() {
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().expect("bound").port();
            assert_eq!(accepts(port, CONNECT_WITHIN), Some(true), "{address}");
            drop(listener);
            assert_eq!(accepts(port, CONNECT_WITHIN), Some(false), "{address}");
        }
    }

    #[test]
    fn listener_with_full_backlog_gives_unknown_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        rustix::net::listen(&listener, 0).expect("a shorter queue");
        let wait = Duration::from_millis(20);
        // The listener accepts none of these connections.
        let waiting: Vec<_> = (0..4).map_while(|_| TcpStream::connect_timeout(&address, wait).ok()).collect();
        assert!(waiting.len() < 4, "the queue is not full");
        assert_eq!(accepts(address.port(), QUICK_WITHIN), None);
    }
}
