//! The machine's files, for looks on a request's thread: only reads that return at once.

use std::{cell::Cell, path::Path, sync::Arc};

use engine::probe::{Entry, Facts, Fingerprint, Space, facts::ContentHash};

use super::{Machine, QUICK_WITHIN, accepts};

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
    use std::fs;

    use super::*;
    use crate::api::facts::tests::{machine, print_of};

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
