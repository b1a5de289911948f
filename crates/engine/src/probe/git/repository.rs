//! Finds the repository of a session, and reads its state from a few small files.
//!
//! There are three forms. Usually git logs the moves of HEAD (`logs/HEAD`). Without that log
//! (`core.logAllRefUpdates=false`, or no commit yet), HEAD and the file of its branch give the
//! commit. With `extensions.refStorage=reftable` the tables do. An unchanged repository costs two
//! queries.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{
    reflog::{self, Entry as Move, Head, Id, Last, shown_line},
    reftable::{self, Ref},
};
use crate::probe::facts::{Entry, Facts, Fingerprint};

/// Most bytes of HEAD, of a branch's file, and of a file that names another folder.
const LINE_BYTES_MAX: u64 = 8 * 1024;
/// Most bytes of `packed-refs`: some 15,000 refs. Further refs count as unreadable.
const PACKED_BYTES_MAX: u64 = 1024 * 1024;
/// Most bytes of a path to a repository; a longer one is ignored.
const PATH_BYTES_MAX: usize = 4096;

/// Multi-step operations: name, the file or folder that exists during one, and a file that is
/// created at its start.
const OPERATIONS: [(&str, &str, &str); 6] = [
    ("rebase-merge", "rebase-merge/onto", "rebase"),
    ("rebase-apply", "rebase-apply/head-name", "rebase"),
    ("MERGE_HEAD", "MERGE_HEAD", "merge"),
    ("CHERRY_PICK_HEAD", "CHERRY_PICK_HEAD", "cherry-pick"),
    ("REVERT_HEAD", "REVERT_HEAD", "revert"),
    ("BISECT_LOG", "BISECT_START", "bisect"),
];

/// How HEAD's commit is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Form {
    /// From the log of HEAD.
    Log,
    /// From HEAD and the file of its branch. A branch whose name is cut for display, at 80
    /// characters, has no such file, so a commit on it is found only when HEAD changes.
    Refs,
    /// From tables.
    Reftable,
}

/// A multi-step operation of git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Operation {
    /// Git's name for it.
    pub(super) name: String,
    /// Its start, in milliseconds since 1970.
    pub(super) began_ms: u64,
}

/// A repository and its observed state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Repository {
    /// The top folder of its files.
    pub(super) top: String,
    /// Its own folder: `.git`, or the folder named by the file `.git`.
    folder: String,
    /// The folder of its branches, if different: a worktree's branches are in the main repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    common: Option<String>,
    form: Form,
    /// The two files that change when HEAD moves.
    marks: [Option<Fingerprint>; 2],
    pub(super) head: Head,
    /// The commit of HEAD; the zero id before the first commit.
    pub(super) at: Id,
    /// The last line of its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<Last>,
    /// The newest stash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stash: Option<Id>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) operation: Option<Operation>,
}

/// The current repository, with the ends of its logs.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) repository: Repository,
    /// Moves of HEAD, oldest first.
    pub(super) moves: Vec<Move>,
    /// Moves of the stash, oldest first.
    pub(super) stashes: Vec<Move>,
}

/// The repository of `workspace`, if any.
///
/// Errors: an unreadable repository counts as absent.
///
/// Source: git-worktree(1) and gitrepository-layout(5): a file `.git` has `gitdir: FOLDER`;
/// `commondir` names the folder of the branches.
pub(super) fn find(workspace: &str, facts: &dyn Facts) -> Option<Seen> {
    let Located { top, folder } = locate(workspace, facts)?;
    let common = read_line(&Path::new(&folder).join("commondir"), facts)
        .and_then(|line| text_of(&Path::new(&folder).join(line)));
    read(top, folder, common, facts)
}

/// The top folder of a repository, and its own folder.
struct Located {
    top: String,
    folder: String,
}

fn locate(workspace: &str, facts: &dyn Facts) -> Option<Located> {
    let top = Path::new(workspace).ancestors().find(|folder| has_git(folder, facts))?;
    let folder = match facts.entry(&top.join(".git")) {
        Entry::Folder => text_of(&top.join(".git"))?,
        Entry::File(_) => {
            let line = read_line(&top.join(".git"), facts)?;
            text_of(&top.join(line.strip_prefix("gitdir: ")?))?
        }
        Entry::Absent | Entry::Other | Entry::Unknown => return None,
    };
    Some(Located { top: text_of(top)?, folder })
}

/// Whether `folder` may have a repository.
pub(super) fn has_git(folder: &Path, facts: &dyn Facts) -> bool {
    matches!(facts.entry(&folder.join(".git")), Entry::Folder | Entry::File(_))
}

impl Repository {
    /// The folders of a look: its files, its own folder, and that of its branches.
    pub(super) fn folders(&self) -> impl Iterator<Item = &str> {
        [Some(&self.top), Some(&self.folder), self.common.as_ref()].into_iter().flatten().map(String::as_str)
    }

    /// The folder of its objects.
    pub(super) fn objects(&self) -> PathBuf {
        Path::new(self.common.as_deref().unwrap_or(&self.folder)).join("objects")
    }

    /// Whether `workspace` is in it.
    pub(super) fn holds(&self, workspace: &str, facts: &dyn Facts) -> bool {
        let found = locate(workspace, facts);
        found.is_some_and(|found| (&found.top, &found.folder) == (&self.top, &self.folder))
    }

    /// Whether HEAD and the stash are unchanged: two queries.
    pub(super) fn is_unmoved(&self, facts: &dyn Facts) -> bool {
        self.read_marks(facts) == self.marks
    }

    /// Last change of the two files that change when HEAD moves, in milliseconds since 1970.
    pub(super) fn last_change_ms(&self, facts: &dyn Facts) -> Option<u64> {
        let marks = self.read_marks(facts).into_iter().flatten();
        marks.map(|mark| u64::try_from(mark.modified_ns / 1_000_000).unwrap_or(0)).max()
    }

    /// The operation in progress.
    pub(super) fn find_operation(&self, facts: &dyn Facts) -> Option<Operation> {
        find_operation(Path::new(&self.folder), facts)
    }

    /// Reads its current state; `None` if it was deleted.
    pub(super) fn see_again(&self, facts: &dyn Facts) -> Option<Seen> {
        read(self.top.clone(), self.folder.clone(), self.common.clone(), facts)
    }

    fn marked_ms(&self, which: usize) -> Option<u64> {
        let mark = self.marks.get(which)?.as_ref()?;
        u64::try_from(mark.modified_ns / 1_000_000).ok()
    }

    /// Whether both are states of the same log file, of which this one is longer.
    pub(super) fn has_longer_log_than(&self, earlier: &Self) -> bool {
        match (&self.marks, &earlier.marks) {
            ([Some(now), _], [Some(then), _]) => {
                (now.device, now.inode) == (then.device, then.inode) && now.size > then.size
            }
            _ => false,
        }
    }

    /// Last write of the log of HEAD, in milliseconds since 1970; `None` without a log.
    pub(super) fn log_ms(&self) -> Option<u64> {
        if self.form == Form::Log { self.marked_ms(0) } else { None }
    }

    /// Last write of its refs, in milliseconds since 1970.
    pub(super) fn refs_ms(&self) -> Option<u64> {
        self.marked_ms(0).max(self.marked_ms(1))
    }

    /// Last change of the stash, in milliseconds since 1970; `None` without one.
    pub(super) fn stash_ms(&self) -> Option<u64> {
        if self.form == Form::Log { self.marked_ms(1) } else { None }
    }

    /// Length of the log of HEAD, in bytes.
    pub(super) fn log_bytes(&self) -> u64 {
        self.marks.first().and_then(Option::as_ref).map_or(0, |mark| mark.size)
    }

    fn read_marks(&self, facts: &dyn Facts) -> [Option<Fingerprint>; 2] {
        let own = Path::new(&self.folder);
        let common = self.common.as_deref().map_or(own, Path::new);
        let file = |path: &Path| match facts.entry(path) {
            Entry::File(found) => Some(found),
            Entry::Absent | Entry::Folder | Entry::Other | Entry::Unknown => None,
        };
        match self.form {
            Form::Log => [file(&own.join("logs/HEAD")), file(&common.join("logs/refs/stash"))],
            Form::Refs => {
                let branch = match &self.head {
                    Head::Branch(name) => file(&common.join("refs/heads").join(name)),
                    Head::Detached | Head::Unknown => None,
                };
                [file(&own.join("HEAD")), branch]
            }
            Form::Reftable => {
                let other = if self.common.is_some() { file(&own.join(reftable::LIST)) } else { None };
                [file(&common.join(reftable::LIST)), other]
            }
        }
    }

    fn read_head(&mut self, facts: &dyn Facts) -> Option<()> {
        let own = Path::new(&self.folder);
        let common = self.common.as_deref().map_or(own, Path::new);
        let (head, at) = if self.form == Form::Reftable {
            let find = |folder: &Path, name: &str| reftable::find(folder, name, facts);
            match find(own, "HEAD") {
                Some(Ref::Symbolic(name)) => {
                    let at = match find(common, &name) {
                        Some(Ref::Commit(id)) => Some(id),
                        Some(Ref::Symbolic(_) | Ref::Deleted) | None => None,
                    };
                    (Head::branch(&name), at)
                }
                Some(Ref::Commit(id)) => (Head::Detached, Some(id)),
                Some(Ref::Deleted) | None => (Head::Unknown, None),
            }
        } else {
            let line = read_line(&own.join("HEAD"), facts)?;
            match line.strip_prefix("ref: ") {
                Some(name) => (Head::branch(name), read_ref(common, name, facts)),
                None => (Head::Detached, Id::parse(&line)),
            }
        };
        self.head = head;
        self.at = at.unwrap_or_else(Id::none);
        Some(())
    }
}

fn read(top: String, folder: String, common: Option<String>, facts: &dyn Facts) -> Option<Seen> {
    let own = Path::new(&folder);
    let branches = common.as_deref().map_or(own, Path::new);
    let form = if matches!(facts.entry(&branches.join(reftable::LIST)), Entry::File(_)) {
        Form::Reftable
    } else if matches!(facts.entry(&own.join("logs/HEAD")), Entry::File(_)) {
        Form::Log
    } else {
        Form::Refs
    };
    let operation = find_operation(own, facts);
    let mut repository = Repository {
        top,
        folder,
        common,
        form,
        marks: [None, None],
        head: Head::Unknown,
        at: Id::none(),
        last: None,
        stash: None,
        operation,
    };
    // The marks are read before the other data, so a concurrent change is seen at the next look.
    let marks = repository.read_marks(facts);
    repository.marks = marks;
    repository.read_head(facts)?;
    if form == Form::Refs {
        // The second file depends on HEAD, so HEAD is read before and after the marks.
        repository.marks = repository.read_marks(facts);
        repository.read_head(facts)?;
    }
    let (mut moves, mut stashes) = (Vec::new(), Vec::new());
    if form == Form::Log {
        let own = Path::new(&repository.folder);
        let branches = repository.common.as_deref().map_or(own, Path::new);
        moves = read_log(&own.join("logs/HEAD"), marks[0].as_ref(), facts);
        stashes = read_log(&branches.join("logs/refs/stash"), marks[1].as_ref(), facts);
        repository.last = moves.last().map(Move::last);
        repository.stash = stashes.last().map(|stash| stash.new.clone());
        if let Some(last) = moves.last().filter(|last| !last.new.is_none()) {
            repository.at = last.new.clone();
        }
    }
    Some(Seen { repository, moves, stashes })
}

fn find_operation(folder: &Path, facts: &dyn Facts) -> Option<Operation> {
    let is_there = |name: &str| matches!(facts.entry(&folder.join(name)), Entry::File(_) | Entry::Folder);
    let (_, first, name) = OPERATIONS.into_iter().find(|(file, ..)| is_there(file))?;
    let began_ms = match facts.entry(&folder.join(first)) {
        Entry::File(found) => u64::try_from(found.modified_ns / 1_000_000).unwrap_or(0),
        Entry::Absent | Entry::Folder | Entry::Other | Entry::Unknown => 0,
    };
    Some(Operation { name: name.to_owned(), began_ms })
}

fn read_log(path: &Path, found: Option<&Fingerprint>, facts: &dyn Facts) -> Vec<Move> {
    let Some(found) = found else { return Vec::new() };
    let from = found.size.saturating_sub(reflog::TAIL_BYTES_MAX);
    let tail = facts.read(path, from, reflog::TAIL_BYTES_MAX).unwrap_or_default();
    reflog::read_entries(&tail)
}

/// The commit of a ref: from its file, else from `packed-refs`.
fn read_ref(folder: &Path, name: &str, facts: &dyn Facts) -> Option<Id> {
    let is_inside = name.starts_with("refs/") && !name.split('/').any(|part| part == "..");
    if !is_inside {
        return None;
    }
    if let Some(line) = read_line(&folder.join(name), facts) {
        return Id::parse(&line);
    }
    let packed = facts.read(&folder.join("packed-refs"), 0, PACKED_BYTES_MAX)?;
    let packed = String::from_utf8_lossy(&packed);
    packed.lines().find_map(|line| {
        let (id, packed_name) = line.split_once(' ')?;
        (packed_name == name).then(|| Id::parse(id)).flatten()
    })
}

/// The first line of a small file, if there is one.
fn read_line(path: &Path, facts: &dyn Facts) -> Option<String> {
    let bytes = facts.read(path, 0, LINE_BYTES_MAX)?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().next()?.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

fn text_of(path: &Path) -> Option<String> {
    path.to_str().filter(|text| text.len() <= PATH_BYTES_MAX).map(str::to_owned)
}

/// A path relative to `top`; `None` if it is elsewhere.
pub(super) fn relative<'p>(path: &'p str, top: &str) -> Option<&'p str> {
    path.strip_prefix(top.trim_end_matches('/'))?.strip_prefix('/')
}

/// A path for display: relative to `workspace` if it is below, on one line.
pub(super) fn shown(path: &str, workspace: &str, chars_max: usize) -> String {
    shown_line(relative(path, workspace).unwrap_or(path), chars_max)
}
