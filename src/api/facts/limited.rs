//! Views of the machine's files that answer less than the machine: only reads that return at once,
//! for a look on a request's thread; and only the files of one folder, for an exchange that came over
//! TCP. The holder of a token may ask about the folder that its session works in, and learns nothing
//! else of the machine.

use std::{
    cell::Cell,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use engine::probe::{Entry, Facts, Fingerprint, Space, facts::ContentHash};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

use super::{Machine, QUICK_WITHIN, accepts};

/// Answers for the entries in one folder. No link and no `..` leads out of it, also when it is
/// replaced meanwhile. All else is unknown.
///
/// Source: openat2(2); a kernel without it answers nothing.
pub(crate) struct Within<'f> {
    inner: &'f dyn Facts,
    folder: &'f Path,
    root: Option<OwnedFd>,
}

impl<'f> Within<'f> {
    pub(crate) fn new(inner: &'f dyn Facts, folder: &'f Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self { inner, folder, root: openat(CWD, folder, flags, Mode::empty()).ok() }
    }

    /// Opens an entry in the folder without reading it. Errors: it is absent, or not in the folder.
    fn open(&self, path: &Path) -> Result<Opened, Errno> {
        let inside = path.strip_prefix(self.folder).map_err(|_| Errno::XDEV)?;
        let inside = if inside.as_os_str().is_empty() { Path::new(".") } else { inside };
        let root = self.root.as_ref().ok_or(Errno::NOENT)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let handle = openat2(root, inside, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}", handle.as_raw_fd()));
        Ok(Opened { path, _handle: handle })
    }
}

/// An open entry, and a path that leads to it while it is open.
struct Opened {
    path: PathBuf,
    _handle: OwnedFd,
}

impl Facts for Within<'_> {
    fn entry(&self, path: &Path) -> Entry {
        match self.open(path) {
            Ok(opened) => self.inner.entry(&opened.path),
            Err(Errno::NOENT | Errno::NOTDIR) => Entry::Absent,
            Err(_) => Entry::Unknown,
        }
    }

    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash> {
        self.inner.hash(&self.open(path).ok()?.path, found)
    }

    fn kept(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.inner.kept(hash)
    }

    fn remember(&self, hash: ContentHash, text: &str) {
        self.inner.remember(hash, text);
    }

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        self.inner.read(&self.open(path).ok()?.path, from, max)
    }

    fn name_of(&self, folder: &Path, device: u64, inode: u64) -> Option<String> {
        self.inner.name_of(&self.open(folder).ok()?.path, device, inode)
    }

    fn names(&self, folder: &Path, max: usize) -> Vec<String> {
        self.open(folder).map_or_else(|_| Vec::new(), |opened| self.inner.names(&opened.path, max))
    }

    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>> {
        self.open(objects).ok()?;
        self.inner.changed_between(objects, old, new)
    }

    fn space(&self, path: &Path) -> Option<Space> {
        self.inner.space(&self.open(path).ok()?.path)
    }

    fn accepts(&self, _port: u16) -> Option<bool> {
        None
    }
}

/// Most bytes that one look reads; hashing these takes less than a millisecond.
const READ_BYTES_MAX: u64 = 256 * 1024;

/// Answers only queries that take some microseconds.
///
/// Shape: slower queries get an empty answer, and [`Quick::has_left_out`] is true from then on: the
/// findings are then incomplete.
#[derive(Debug)]
pub(crate) struct Quick<'m> {
    machine: &'m Machine,
    bytes_left: Cell<u64>,
    has_left_out: Cell<bool>,
}

impl<'m> Quick<'m> {
    pub(crate) const fn new(machine: &'m Machine) -> Self {
        Self { machine, bytes_left: Cell::new(READ_BYTES_MAX), has_left_out: Cell::new(false) }
    }

    pub(crate) const fn has_left_out(&self) -> bool {
        self.has_left_out.get()
    }

    /// Whether this many bytes may still be read.
    fn may_read(&self, bytes: u64) -> bool {
        let left = self.bytes_left.get().checked_sub(bytes);
        match left {
            Some(left) => self.bytes_left.set(left),
            None => self.has_left_out.set(true),
        }
        left.is_some()
    }
}

impl Facts for Quick<'_> {
    fn entry(&self, path: &Path) -> Entry {
        self.machine.entry(path)
    }

    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash> {
        let is_read = !self.machine.has_hashed(found);
        if is_read && !self.may_read(found.size) { None } else { self.machine.hash(path, found) }
    }

    fn kept(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.machine.kept(hash)
    }

    fn remember(&self, hash: ContentHash, text: &str) {
        self.machine.remember(hash, text);
    }

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        let bytes = self.machine.read(path, from, max.min(self.bytes_left.get() + 1))?;
        self.may_read(bytes.len() as u64).then_some(bytes)
    }

    fn name_of(&self, _folder: &Path, _device: u64, _inode: u64) -> Option<String> {
        self.has_left_out.set(true);
        None
    }

    fn names(&self, _folder: &Path, _max: usize) -> Vec<String> {
        self.has_left_out.set(true);
        Vec::new()
    }

    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>> {
        match self.machine.has_compared(objects, old, new) {
            Some(paths) => paths,
            None => {
                self.has_left_out.set(true);
                None
            }
        }
    }

    fn space(&self, path: &Path) -> Option<Space> {
        self.machine.space(path)
    }

    fn accepts(&self, port: u16) -> Option<bool> {
        let found = accepts(port, QUICK_WITHIN);
        self.has_left_out.set(self.has_left_out.get() || found.is_none());
        found
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::api::facts::tests::{machine, print_of};

    #[test]
    fn nothing_outside_of_the_folder_is_reported() {
        let outer = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (outer.path().join("in"), outer.path().join("out"));
        fs::create_dir_all(inside.join("deep")).expect("made");
        fs::create_dir(&outside).expect("made");
        fs::write(inside.join("deep/a"), "1").expect("written");
        fs::write(outside.join("secret"), "1").expect("written");
        for (link, to) in [
            ("relative", "deep/a"),
            ("file", "../out/secret"),
            ("folder", "../out"),
            ("nothing", "../out/nothing"),
            ("root", "/"),
            ("kernel", "/proc/self"),
        ] {
            symlink(to, inside.join(link)).expect("linked");
        }
        let machine = machine();
        let within = Within::new(&machine, &inside);
        for path in ["deep/a", "relative", "deep/../deep/a"] {
            let path = inside.join(path);
            let print = print_of(&machine, &path);
            assert_eq!(within.entry(&path), Entry::File(print), "{}", path.display());
            assert!(within.hash(&path, &print).is_some() && within.read(&path, 0, 9).is_some());
        }
        assert_eq!((within.entry(&inside), within.entry(&inside.join("b"))), (Entry::Folder, Entry::Absent));
        assert_eq!(within.names(&inside.join("deep"), 9), ["a"]);
        let secret = print_of(&machine, &outside.join("secret"));
        let links = ["file", "folder/secret", "nothing", "root/etc/passwd", "kernel/stat", "../out/secret"];
        let paths = links.map(|link| inside.join(link));
        let more = [outside.join("secret"), outer.path().to_owned(), PathBuf::from("/etc/passwd")];
        for path in paths.iter().chain(&more) {
            assert_eq!(within.entry(path), Entry::Unknown, "{}", path.display());
            assert_eq!((within.hash(path, &secret), within.read(path, 0, 9)), (None, None));
            assert_eq!((within.names(path, 9).len(), within.space(path)), (0, None));
        }
        assert_eq!(within.name_of(&inside.join("folder"), secret.device, secret.inode), None);
        assert_eq!(within.accepts(22), None);
    }

    #[test]
    fn quick_answers_only_cached_or_small_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        let machine = machine();
        let write = |bytes: u64| {
            fs::write(&path, vec![b'x'; usize::try_from(bytes).expect("small")]).expect("written")
        };
        write(100);
        let print = print_of(&machine, &path);
        let quick = Quick::new(&machine);
        assert!(quick.hash(&path, &print).is_some() && quick.space(folder.path()).is_some());
        assert_eq!(quick.read(&path, 90, 1_000).map(|bytes| bytes.len()), Some(10));
        assert!(!quick.has_left_out());

        write(READ_BYTES_MAX + 1);
        let print = print_of(&machine, &path);
        let quick = Quick::new(&machine);
        assert_eq!((quick.hash(&path, &print), quick.has_left_out()), (None, true));
        machine.hash(&path, &print).expect("readable");
        let quick = Quick::new(&machine);
        assert!(quick.hash(&path, &print).is_some() && !quick.has_left_out(), "it is known by now");
        assert_eq!((quick.read(&path, 0, u64::MAX), quick.has_left_out()), (None, true));
    }

    #[test]
    fn quick_leaves_out_uncached_folders_and_commits() {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = machine();
        let quick = Quick::new(&machine);
        assert_eq!((quick.name_of(folder.path(), 1, 2), quick.has_left_out()), (None, true));
        let quick = Quick::new(&machine);
        assert_eq!((quick.names(folder.path(), 1), quick.has_left_out()), (Vec::new(), true));
        let (old, new) = ("a".repeat(40), "b".repeat(40));
        for (tries, has_left_out) in [(0, true), (1, true), (2, false)] {
            let quick = Quick::new(&machine);
            assert_eq!(quick.changed_between(folder.path(), &old, &new), None);
            assert_eq!(quick.has_left_out(), has_left_out, "{tries}");
            machine.changed_between(folder.path(), &old, &new);
        }
    }
}
