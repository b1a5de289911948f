//! Finds the repository of a session, and reads its state from a few small files.
//!
//! There are three forms. Usually git logs the moves of HEAD (`logs/HEAD`). Without that log
//! (`core.logAllRefUpdates=false`, or no commit yet), HEAD and the file of its branch give the
//! commit. With `extensions.refStorage=reftable` the tables do. An unchanged repository costs two
//! queries.
//!
//! Of the tables only ref blocks are read. Log blocks are compressed, so the cause of a move is
//! unknown.
//!
//! Source: `Documentation/technical/reftable.adoc` of git.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::reflog::{self, Entry as Move, Head, Id, Last, shown_line};
use crate::{
    hex::hex,
    probe::facts::{Entry, Facts, Fingerprint},
};

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
                let other = if self.common.is_some() { file(&own.join(LIST)) } else { None };
                [file(&common.join(LIST)), other]
            }
        }
    }

    fn read_head(&mut self, facts: &dyn Facts) -> Option<()> {
        let own = Path::new(&self.folder);
        let common = self.common.as_deref().map_or(own, Path::new);
        let (head, at) = if self.form == Form::Reftable {
            let find = |folder: &Path, name: &str| find_ref(folder, name, facts);
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
    let form = if matches!(facts.entry(&branches.join(LIST)), Entry::File(_)) {
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

/// The list of tables, oldest first.
pub(super) const LIST: &str = "reftable/tables.list";
/// Most bytes of the list; git merges tables, so there are few.
const LIST_BYTES_MAX: u64 = 16 * 1024;
/// Most bytes of one table: some 5,000 refs. Further refs count as unreadable.
const TABLE_BYTES_MAX: u64 = 256 * 1024;

/// The value of a ref in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ref {
    /// A commit.
    Commit(Id),
    /// Another ref.
    Symbolic(String),
    /// Deleted.
    Deleted,
}

/// The value of `name` in the newest table of a repository's `folder` that has it.
fn find_ref(folder: &Path, name: &str, facts: &dyn Facts) -> Option<Ref> {
    let list = facts.read(&folder.join(LIST), 0, LIST_BYTES_MAX)?;
    let list = String::from_utf8_lossy(&list);
    list.lines().rev().filter(|table| !table.is_empty() && !table.contains('/')).find_map(|table| {
        let bytes = facts.read(&folder.join("reftable").join(table), 0, TABLE_BYTES_MAX)?;
        find_in_table(&bytes, name)
    })
}

fn find_in_table(table: &[u8], name: &str) -> Option<Ref> {
    let (header_bytes, id_bytes) = match (table.get(..4)?, table.get(4)?, table.get(24..28)) {
        (b"REFT", 1, _) => (24, 20),
        (b"REFT", 2, Some(b"s256")) => (28, 32),
        (b"REFT", 2, Some(_)) => (28, 20),
        _ => return None,
    };
    let block_bytes = read_u24(table, 5)?;
    let mut begin = 0;
    let mut first = header_bytes;
    while table.get(begin + first) == Some(&b'r') {
        // The length counts from the start of the block; the first block starts with the file
        // header.
        let length = read_u24(table, begin + first + 1)?;
        if length == 0 {
            // A damaged block: nothing would be skipped.
            return None;
        }
        let block = table.get(begin..begin + length)?;
        if let Some(found) = find_in_block(block, first + 4, id_bytes, name) {
            return Some(found);
        }
        begin += if block_bytes == 0 { length } else { block_bytes.max(length) };
        first = 0;
    }
    None
}

/// Reads the records of a block from `first` on.
fn find_in_block(block: &[u8], first: usize, id_bytes: usize, name: &str) -> Option<Ref> {
    let restarts = usize::from(u16::from_be_bytes(*block.last_chunk()?));
    let end = block.len().checked_sub(2 + 3 * restarts)?;
    let mut rest = block.get(first..end)?;
    let mut key: Vec<u8> = Vec::new();
    while !rest.is_empty() {
        let shared = read_varint(&mut rest)?;
        let suffix_and_kind = read_varint(&mut rest)?;
        let suffix = rest.split_off(..suffix_and_kind >> 3)?;
        key.truncate(shared);
        key.extend_from_slice(suffix);
        // The update index.
        read_varint(&mut rest)?;
        let value = match suffix_and_kind & 7 {
            0 => Ref::Deleted,
            1 => Ref::Commit(read_id(&mut rest, id_bytes)?),
            2 => {
                // A tag and its target.
                read_id(&mut rest, id_bytes)?;
                Ref::Commit(read_id(&mut rest, id_bytes)?)
            }
            3 => {
                let length = read_varint(&mut rest)?;
                Ref::Symbolic(String::from_utf8_lossy(rest.split_off(..length)?).into_owned())
            }
            _ => return None,
        };
        if key == name.as_bytes() {
            return Some(value);
        }
    }
    None
}

fn read_id(rest: &mut &[u8], bytes: usize) -> Option<Id> {
    Id::parse(&hex(rest.split_off(..bytes)?))
}

/// Seven bits per byte, most significant first; each byte except the last adds one, so that every
/// number has only one form.
fn read_varint(rest: &mut &[u8]) -> Option<usize> {
    let mut byte = *rest.split_off_first()?;
    let mut number = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        byte = *rest.split_off_first()?;
        number = number.checked_add(1)?.checked_mul(128)? | usize::from(byte & 0x7f);
    }
    Some(number)
}

fn read_u24(bytes: &[u8], at: usize) -> Option<usize> {
    match bytes.get(at..at + 3)? {
        [high, middle, low] => Some(usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by git 2.47 for a commit on `master`, up to the log block.
    const TABLE: &str = "52454654010010000000000000000001000000000000000272000066002348454144001172656673\
        2f68656164732f6d6173746572008009726566732f68656164732f6d617374657201b8c47a2a5b75ed58b4bcacc82380d93f\
        2b1bc9dc00001c000035000267";

    fn table() -> Vec<u8> {
        let digits: Vec<u8> = TABLE.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16);
        digits.chunks(2).map(|pair| byte(pair).expect("two digits")).collect()
    }

    #[test]
    fn a_table_of_git_says_where_head_is() {
        let table = table();
        assert_eq!(find_in_table(&table, "HEAD"), Some(Ref::Symbolic("refs/heads/master".to_owned())));
        let id = Id::parse("b8c47a2a5b75ed58b4bcacc82380d93f2b1bc9dc").expect("an id");
        assert_eq!(find_in_table(&table, "refs/heads/master"), Some(Ref::Commit(id)));
        assert_eq!(find_in_table(&table, "refs/heads/other"), None);
    }

    #[test]
    fn a_damaged_table_says_nothing_and_ends() {
        let whole = table();
        for length in 0..whole.len() {
            find_in_table(&whole[..length], "refs/heads/other");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] = value;
                find_in_table(&damaged, "refs/heads/other");
            }
        }
        assert_eq!(find_in_table(b"", "HEAD"), None);
        assert_eq!(find_in_table(b"REFT\x03\0\0\0", "HEAD"), None);
        // Blocks without alignment, the second of length 0.
        let mut empty = vec![0; 48];
        empty[..5].copy_from_slice(b"REFT\x01");
        empty[24..28].copy_from_slice(b"r\0\0\x28");
        empty[40] = b'r';
        assert_eq!(find_in_table(&empty, "HEAD"), None);
    }
}
