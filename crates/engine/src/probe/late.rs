//! A look whose answers came after its exchange had gone on, as on a slow file system.
//!
//! Its answers are kept, and the next exchange decides by them, with what is known by then. What
//! the session's calls since the look's begin may have changed is left to the next look, which asks
//! again: an answer from before a call says nothing about the file after it.

use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Entry, Facts, Fingerprint, Known, Moment, Settings, Space, facts::ContentHash, git, look};
use journal::time::Timestamp;

use crate::{
    call::{Call, command},
    event::Event,
    sorted::{SortedMap, SortedSet},
};

/// How long before the later calls a change may be and still count as theirs, in milliseconds: git
/// writes whole seconds, and clocks of file systems lag.
const SLACK_MS: u64 = 2_000;

/// The files that differ between two commits, if that is known.
type Differing = Option<Arc<[String]>>;

/// The answers to the queries of one look; the first one to each query.
#[derive(Debug, Default)]
pub struct Answers {
    entries: SortedMap<PathBuf, Entry>,
    hashes: SortedMap<(PathBuf, String), Option<ContentHash>>,
    texts: SortedMap<ContentHash, Option<Arc<str>>>,
    reads: SortedMap<(PathBuf, u64, u64), Option<Vec<u8>>>,
    names_of: SortedMap<(PathBuf, u64, u64), Option<String>>,
    names: SortedMap<(PathBuf, usize), Vec<String>>,
    differences: SortedMap<(PathBuf, String, String), Differing>,
    spaces: SortedMap<PathBuf, Option<Space>>,
    ports: SortedMap<u16, Option<bool>>,
}

/// Passes queries on, and keeps the answers.
pub struct Recorder<'f, F: ?Sized> {
    facts: &'f F,
    answers: RefCell<Answers>,
}

impl<'f, F: Facts + ?Sized> Recorder<'f, F> {
    /// A recorder without answers.
    pub fn new(facts: &'f F) -> Self {
        Self { facts, answers: RefCell::default() }
    }

    /// The answers so far.
    pub fn into_answers(self) -> Answers {
        self.answers.into_inner()
    }

    fn keep<K: Ord, V: Clone>(
        &self,
        answers: impl FnOnce(&mut Answers) -> &mut SortedMap<K, V>,
        query: K,
        answer: V,
    ) -> V {
        answers(&mut self.answers.borrow_mut()).get_or_insert_with(query, || answer.clone());
        answer
    }
}

impl<F: Facts + ?Sized> Facts for Recorder<'_, F> {
    fn entry(&self, path: &Path) -> Entry {
        self.keep(|answers| &mut answers.entries, path.to_owned(), self.facts.entry(path))
    }

    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash> {
        let query = (path.to_owned(), found.to_string());
        self.keep(|answers| &mut answers.hashes, query, self.facts.hash(path, found))
    }

    fn kept(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.keep(|answers| &mut answers.texts, hash, self.facts.kept(hash))
    }

    fn remember(&self, hash: ContentHash, text: &str) {
        self.facts.remember(hash, text);
        self.answers.borrow_mut().texts.insert(hash, Some(text.into()));
    }

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        let query = (path.to_owned(), from, max);
        self.keep(|answers| &mut answers.reads, query, self.facts.read(path, from, max))
    }

    fn name_of(&self, folder: &Path, device: u64, inode: u64) -> Option<String> {
        let query = (folder.to_owned(), device, inode);
        self.keep(|answers| &mut answers.names_of, query, self.facts.name_of(folder, device, inode))
    }

    fn names(&self, folder: &Path, max: usize) -> Vec<String> {
        self.keep(|answers| &mut answers.names, (folder.to_owned(), max), self.facts.names(folder, max))
    }

    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>> {
        let query = (objects.to_owned(), old.to_owned(), new.to_owned());
        let answer = self.facts.changed_between(objects, old, new);
        self.keep(|answers| &mut answers.differences, query, answer)
    }

    fn space(&self, path: &Path) -> Option<Space> {
        self.keep(|answers| &mut answers.spaces, path.to_owned(), self.facts.space(path))
    }

    fn accepts(&self, port: u16) -> Option<bool> {
        self.keep(|answers| &mut answers.ports, port, self.facts.accepts(port))
    }
}

/// The session's calls that ended after a look had begun.
#[derive(Debug, Clone, Copy)]
pub struct Later<'a> {
    /// Oldest first.
    pub calls: &'a [Call],
    /// Earliest start of them.
    pub since: Timestamp,
}

impl Later<'_> {
    fn has_command(&self, is_one: impl Fn(&str) -> bool) -> bool {
        self.calls.iter().filter_map(|call| call.command.as_deref()).any(is_one)
    }

    /// Whether a change at `at_ms` after 1970 may be by one of them, if one of them makes changes.
    fn is_after(&self, at_ms: u64) -> bool {
        at_ms.saturating_add(SLACK_MS) >= self.since.as_millis()
    }
}

/// The kept answers, without those about files that later calls may have changed.
struct Replayed<'a> {
    answers: &'a Answers,
    later: &'a Later<'a>,
    /// The files that the session knows, or that calls of the look touched.
    files: SortedSet<&'a str>,
    /// Those that later calls touched.
    touched: SortedSet<&'a str>,
    may_write: bool,
}

impl<'a> Replayed<'a> {
    fn new(answers: &'a Answers, later: &'a Later<'a>, known: &'a Known, calls: &'a [Call]) -> Self {
        let touched =
            |calls: &'a [Call]| calls.iter().flat_map(|call| &call.touched).map(|touch| &*touch.path);
        let known = known.files.paths().map(|path| &**path);
        Self {
            answers,
            later,
            files: known.chain(touched(calls)).collect(),
            touched: touched(later.calls).collect(),
            may_write: later.has_command(command::may_write),
        }
    }

    fn found(&self, path: &Path) -> Entry {
        self.answers.entries.get(path).copied().unwrap_or(Entry::Unknown)
    }

    /// Whether later calls may have made what the look found at `path`.
    fn is_left(&self, path: &str) -> bool {
        if self.touched.contains(path) {
            return true;
        }
        let changes = || match self.found(Path::new(path)) {
            Entry::File(print) => {
                self.later.is_after(u64::try_from(print.changed_ns / 1_000_000).unwrap_or(0))
            }
            // The time of a removal is unknown.
            Entry::Absent | Entry::Folder | Entry::Other | Entry::Unknown => true,
        };
        let is_said = self.later.calls.iter().flat_map(|call| &call.said_changed);
        let is_said = is_said.into_iter().any(|said| path.ends_with(said.as_str()));
        (self.may_write || is_said) && self.files.contains(path) && changes()
    }

    /// The calls that the next look has to cover again: those of this look, with the files that are
    /// left to it.
    fn left_calls(&self, calls: &[Call]) -> Vec<Call> {
        let left = calls.iter().flat_map(|call| &call.touched);
        let left = left.filter(|touch| !self.touched.contains(&*touch.path) && self.is_left(&touch.path));
        let touched: Vec<_> = left.cloned().collect();
        if touched.is_empty() { Vec::new() } else { vec![Call { touched, ..Call::default() }] }
    }
}

impl Facts for Replayed<'_> {
    fn entry(&self, path: &Path) -> Entry {
        let is_left = path.to_str().is_some_and(|path| self.is_left(path));
        if is_left { Entry::Unknown } else { self.found(path) }
    }

    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash> {
        *self.answers.hashes.get(&(path.to_owned(), found.to_string()))?
    }

    fn kept(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.answers.texts.get(&hash)?.clone()
    }

    /// The look whose answers these are has it.
    fn remember(&self, _: ContentHash, _: &str) {}

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        self.answers.reads.get(&(path.to_owned(), from, max))?.clone()
    }

    fn name_of(&self, folder: &Path, device: u64, inode: u64) -> Option<String> {
        self.answers.names_of.get(&(folder.to_owned(), device, inode))?.clone()
    }

    fn names(&self, folder: &Path, max: usize) -> Vec<String> {
        self.answers.names.get(&(folder.to_owned(), max)).cloned().unwrap_or_default()
    }

    fn changed_between(&self, objects: &Path, old: &str, new: &str) -> Option<Arc<[String]>> {
        self.answers.differences.get(&(objects.to_owned(), old.to_owned(), new.to_owned()))?.clone()
    }

    fn space(&self, path: &Path) -> Option<Space> {
        *self.answers.spaces.get(path)?
    }

    fn accepts(&self, port: u16) -> Option<bool> {
        // A later command may have ended the server.
        let answer = self.answers.ports.get(&port)?;
        answer.filter(|_| !self.later.has_command(|_| true))
    }
}

/// What a late look found.
#[derive(Debug)]
pub struct Caught {
    /// The events to publish, as those of [`look`].
    pub events: Vec<Event>,
    /// Calls of the look that the next one has to cover again.
    pub left: Vec<Call>,
}

/// Decides a look by its kept answers. `moment` is that of its begin, `known` is what the session
/// knows now, and `later` are its calls since.
pub fn catch_up(
    known: &Known,
    moment: &Moment<'_>,
    later: &Later<'_>,
    settings: &Settings,
    answers: &Answers,
) -> Caught {
    let facts = Replayed::new(answers, later, known, moment.calls);
    let mut settings = settings.clone();
    let may_be_own = later.has_command(git::may_move)
        && git::last_change_ms(&known.around.git, &facts).is_some_and(|at_ms| later.is_after(at_ms));
    if may_be_own {
        // What the probe knows stays as it is.
        settings.git.enabled = false;
    }
    let events = look(known, moment, &settings, &facts);
    Caught { events, left: facts.left_calls(moment.calls) }
}
