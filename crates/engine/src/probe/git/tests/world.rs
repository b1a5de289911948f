//! A machine with one repository at `/w`, in the form that git writes.

use std::{
    cell::Cell,
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::probe::facts::{ContentHash, Entry, Facts, Fingerprint, Space};

#[derive(Debug, Default, Clone)]
struct File {
    content: Vec<u8>,
    inode: u64,
    /// Last change, in milliseconds since 1970.
    changed_ms: u64,
}

/// Files by their paths.
#[derive(Debug, Default, Clone)]
pub(super) struct World {
    files: BTreeMap<PathBuf, File>,
    inodes: u64,
    /// The paths that differ between any two commits; `None`: unknown.
    pub(super) differing: Option<Vec<String>>,
    pub(super) asked: Cell<usize>,
    /// The world once the file of this path was read: a concurrent change.
    pub(super) later: Option<(&'static str, Box<World>)>,
    is_later: Cell<bool>,
}

/// Forty copies of this digit.
pub(super) fn id(digit: char) -> String {
    digit.to_string().repeat(40)
}

impl World {
    /// A repository on `main` at commit `1`, created at second 100.
    pub(super) fn on_main() -> Self {
        let mut world = Self { differing: Some(Vec::new()), ..Self::default() };
        world.head("refs/heads/main", 100);
        world.log("0 1 100 commit (initial): one");
        world
    }

    pub(super) fn write(&mut self, path: &str, content: impl AsRef<[u8]>, at_s: u64) {
        self.inodes += 1;
        let file = File { content: content.as_ref().to_vec(), inode: self.inodes, changed_ms: at_s * 1_000 };
        self.files.insert(PathBuf::from(path), file);
    }

    pub(super) fn remove(&mut self, path: &str) {
        self.files.remove(Path::new(path));
    }

    pub(super) fn head(&mut self, name: &str, at_s: u64) {
        self.write("/w/.git/HEAD", format!("ref: {name}\n"), at_s);
    }

    /// Appends `OLD NEW SECONDS MESSAGE` to the log of HEAD, with an id of one digit each.
    pub(super) fn log(&mut self, line: &str) {
        self.append("/w/.git/logs/HEAD", line);
    }

    pub(super) fn append(&mut self, path: &str, line: &str) {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().expect("four words");
        let digit = |word: &str| id(word.chars().next().expect("a digit"));
        let (old, new, at) = (digit(next()), digit(next()), next().to_owned());
        let line = format!("{old} {new} Ada <ada@example.org> {at} +0100\t{}\n", next());
        if !self.files.contains_key(Path::new(path)) {
            self.write(path, "", 0);
        }
        let file = self.files.get_mut(Path::new(path)).expect("it is there");
        file.content.extend_from_slice(line.as_bytes());
        file.changed_ms = at.parse::<u64>().expect("seconds") * 1_000;
    }

    fn files(&self) -> &BTreeMap<PathBuf, File> {
        match &self.later {
            Some((_, later)) if self.is_later.get() => &later.files,
            Some(_) | None => &self.files,
        }
    }

    fn print(&self, path: &Path) -> Option<Fingerprint> {
        let File { content, inode, changed_ms } = self.files().get(path)?;
        let ns = i64::try_from(changed_ms * 1_000_000).expect("not far ahead");
        let size = content.len() as u64;
        Some(Fingerprint { device: 1, inode: *inode, size, modified_ns: ns, changed_ns: ns })
    }
}

impl Facts for World {
    fn entry(&self, path: &Path) -> Entry {
        self.asked.set(self.asked.get() + 1);
        match self.print(path) {
            Some(print) => Entry::File(print),
            None if self.files().keys().any(|file| file.starts_with(path)) => Entry::Folder,
            None => Entry::Absent,
        }
    }

    fn hash(&self, path: &Path, _: &Fingerprint) -> Option<ContentHash> {
        self.files().get(path).map(|file| ContentHash::of(&file.content))
    }

    fn kept(&self, _: ContentHash) -> Option<Arc<str>> {
        None
    }

    fn remember(&self, _: ContentHash, _: &str) {}

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        let content = &self.files().get(path)?.content;
        let from = usize::try_from(from).expect("small").min(content.len());
        let until = content.len().min(from + usize::try_from(max).expect("small"));
        let found = content[from..until].to_vec();
        if self.later.as_ref().is_some_and(|(trigger, _)| path == Path::new(trigger)) {
            self.is_later.set(true);
        }
        Some(found)
    }

    fn name_of(&self, _: &Path, _: u64, _: u64) -> Option<String> {
        None
    }

    fn space(&self, _: &Path) -> Option<Space> {
        None
    }

    fn names(&self, _: &Path, _: usize) -> Vec<String> {
        Vec::new()
    }

    fn accepts(&self, _: u16) -> Option<bool> {
        None
    }

    fn changed_between(&self, _: &Path, _: &str, _: &str) -> Option<Arc<[String]>> {
        self.differing.as_deref().map(Arc::from)
    }
}
