//! The files of one folder, for an exchange that came over TCP: the holder of a token may ask about
//! the folder that its session works in, and learns nothing else of the machine.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2},
    io::Errno,
};

use engine::probe::{Entry, Facts, Fingerprint, Space, facts::ContentHash};

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

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;
    use crate::api::facts::tests::{machine, print_of};

    #[test]
    fn nothing_outside_of_the_folder_is_told() {
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
}
