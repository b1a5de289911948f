//! Files in memory that can lose power: for simulations, and the test double of the crash tests.
//!
//! Written bytes are kept apart from synced ones. After a power loss, all synced bytes remain, and
//! the names are those of some moment since the last sync of the folder. Any part of every later
//! write may remain or be lost, chosen by a seed. Operations can be made to fail, to be the last
//! ones, or (syncs) to wait at a gate.
//!
//! A failed sync behaves as on Linux: the written bytes then count as clean. They can still be
//! read, and no later sync writes them. After a power loss, or once the cache is dropped, only the
//! part that reached the disk by chance remains.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::log::files::{File, Files};

/// A folder in memory.
///
/// A clone is another handle of the same folder.
#[derive(Debug, Clone, Default)]
pub struct MemoryFiles {
    disk: Arc<Disk>,
}

/// Counts of operations since the folder was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Operations {
    /// Writes of file contents.
    pub writes: u64,
    /// Syncs of a file or of the folder.
    pub syncs: u64,
}

/// Faults to inject; counts are those of [`Operations`], the first operation being 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// This write fails without any effect.
    pub fail_write: Option<u64>,
    /// This sync fails without any effect.
    pub fail_sync: Option<u64>,
    /// The power is lost right after this write.
    pub cut_after_write: Option<u64>,
    /// The power is lost right after this sync.
    pub cut_after_sync: Option<u64>,
}

/// A kind of operation that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// [`Files::open`].
    Open,
    /// [`Files::create`].
    Create,
    /// [`Files::rename`], by the old name.
    Rename,
    /// [`Files::remove`].
    Remove,
    /// [`Files::sync_dir`], for any name.
    SyncDir,
    /// [`File::read_at`].
    Read,
    /// [`File::write_at`].
    Write,
    /// [`File::sync_data`].
    Sync,
}

/// Operations that fail.
#[derive(Debug, Clone)]
struct Failing {
    operation: Operation,
    name: String,
    kind: io::ErrorKind,
    /// The remaining number of failures.
    times: u32,
}

#[derive(Debug, Default)]
struct Disk {
    state: Mutex<State>,
    gate: Condvar,
}

#[derive(Debug, Default)]
struct State {
    contents: Vec<Content>,
    names: BTreeMap<String, usize>,
    /// The folder after its last sync and after each change since.
    names_since_sync: Vec<BTreeMap<String, usize>>,
    faults: Faults,
    failing: Vec<Failing>,
    /// Bytes by which files may still grow; `None` for no limit.
    space: Option<usize>,
    counts: Operations,
    read_bytes: u64,
    is_cut: bool,
    is_gate_closed: bool,
    waiting_syncs: u64,
}

#[derive(Debug, Default, Clone)]
struct Content {
    written: Vec<u8>,
    synced: Vec<u8>,
    unsynced: Vec<Write>,
}

#[derive(Debug, Clone)]
struct Write {
    offset: usize,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct MemoryFile {
    disk: Arc<Disk>,
    index: usize,
}

impl MemoryFiles {
    /// An empty folder without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the faults to inject from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.disk.lock().faults = faults;
    }

    /// Makes the next `times` operations of this kind fail with this error, on files whose names
    /// contain `name`.
    pub fn fail(&self, operation: Operation, name: &str, times: u32, kind: io::ErrorKind) {
        self.disk.lock().failing.push(Failing { operation, name: name.to_owned(), kind, times });
    }

    /// Ends the failures set by [`MemoryFiles::fail`].
    pub fn fail_no_more(&self) {
        self.disk.lock().failing.clear();
    }

    /// Drops the cache: bytes that a failed sync left clean are now read from the disk.
    pub fn drop_cache(&self) {
        for content in &mut self.disk.lock().contents {
            content.written.clone_from(&content.synced);
            for write in &content.unsynced {
                overwrite(&mut content.written, write.offset, &write.bytes);
            }
        }
    }

    /// Limits the total growth of all files, in bytes; `None` for no limit. Removing a file frees
    /// nothing.
    pub fn set_space(&self, bytes: Option<usize>) {
        self.disk.lock().space = bytes;
    }

    /// The counts of operations.
    pub fn operations(&self) -> Operations {
        self.disk.lock().counts
    }

    /// Bytes read from files.
    pub fn read_bytes(&self) -> u64 {
        self.disk.lock().read_bytes
    }

    /// Makes every sync wait until [`MemoryFiles::open_gate`].
    pub fn close_gate(&self) {
        self.disk.lock().is_gate_closed = true;
    }

    /// Releases the waiting syncs, and all later ones.
    pub fn open_gate(&self) {
        self.disk.lock().is_gate_closed = false;
        self.disk.gate.notify_all();
    }

    /// Waits until a sync waits at the closed gate.
    pub fn wait_for_sync_at_gate(&self) {
        let mut state = self.disk.lock();
        while state.waiting_syncs == 0 {
            state = self.disk.gate.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whether the power was lost.
    pub fn is_cut(&self) -> bool {
        self.disk.lock().is_cut
    }

    /// The folder after a power loss and a restart; each `seed` selects one possible outcome.
    ///
    /// Shape: a separate folder, fully synced and without faults.
    pub fn after_power_loss(&self, seed: u64) -> Self {
        let state = self.disk.lock();
        let mut random = Random(seed);
        let names = state.surviving_names(&mut random);
        let contents = state.contents.iter().map(|content| content.surviving(&mut random)).collect();
        Self::holding(State { contents, names_since_sync: vec![names.clone()], names, ..State::default() })
    }

    /// The folder after `kill -9` and a restart: all written bytes, without a further sync.
    ///
    /// Shape: a separate folder without faults.
    pub fn after_kill(&self) -> Self {
        let state = self.disk.lock();
        let (names, names_since_sync) = (state.names.clone(), state.names_since_sync.clone());
        Self::holding(State { contents: state.contents.clone(), names, names_since_sync, ..State::default() })
    }

    fn handle(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let index = *self.disk.lock().names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Arc::new(MemoryFile { disk: Arc::clone(&self.disk), index }))
    }

    fn holding(state: State) -> Self {
        Self { disk: Arc::new(Disk { state: Mutex::new(state), gate: Condvar::new() }) }
    }

    fn change_names(
        &self,
        operation: Operation,
        name: &str,
        change: impl FnOnce(&mut State) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.check_power()?;
        state.check_failing(operation, name)?;
        if state.names_since_sync.is_empty() {
            let names = state.names.clone();
            state.names_since_sync.push(names);
        }
        change(&mut state)?;
        let names = state.names.clone();
        state.names_since_sync.push(names);
        Ok(())
    }
}

impl Files for MemoryFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.disk.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.disk.lock().check_failing(Operation::Open, name)?;
        self.handle(name)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        self.change_names(Operation::Create, name, |state| {
            state.names.insert(name.to_owned(), state.contents.len());
            state.contents.push(Content::default());
            Ok(())
        })?;
        self.handle(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change_names(Operation::Rename, from, |state| {
            let index = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
            state.names.insert(to.to_owned(), index);
            Ok(())
        })
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change_names(Operation::Remove, name, |state| {
            state.names.remove(name).map(|_| ()).ok_or(io::ErrorKind::NotFound.into())
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        // Names are metadata of the file system: the next sync writes the names that a failed one
        // left.
        self.disk.sync(Operation::SyncDir, None, |state, is_good| {
            if is_good {
                let names = state.names.clone();
                state.names_since_sync = vec![names];
            }
        })
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.disk.lock().space.map_or(u64::MAX, |space| space as u64))
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from("memory").join(name)
    }
}

impl File for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.lock().content(self.index)?.written.len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.lock();
        state.check_file_failing(Operation::Read, self.index)?;
        let written = &state.content(self.index)?.written;
        let there = usize::try_from(offset).ok().and_then(|offset| written.get(offset..)).unwrap_or_default();
        let count = there.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..count), there.get(..count)) {
            to.copy_from_slice(from);
        }
        state.read_bytes += count as u64;
        Ok(count)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.disk.lock();
        state.check_power()?;
        state.counts.writes += 1;
        let count = state.counts.writes;
        if state.faults.fail_write == Some(count) {
            return Err(io::Error::other("this write is set to fail"));
        }
        state.check_file_failing(Operation::Write, self.index)?;
        state.is_cut = state.faults.cut_after_write == Some(count);
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let growth = (offset + bytes.len()).saturating_sub(state.content(self.index)?.written.len());
        if let Some(space) = &mut state.space {
            *space = space.checked_sub(growth).ok_or(io::ErrorKind::StorageFull)?;
        }
        let content = state.content(self.index)?;
        overwrite(&mut content.written, offset, bytes);
        content.unsynced.push(Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let index = self.index;
        self.disk.sync(Operation::Sync, Some(index), |state, is_good| {
            let mut random = Random(state.counts.syncs);
            let Ok(content) = state.content(index) else { return };
            for write in std::mem::take(&mut content.unsynced) {
                if is_good {
                    overwrite(&mut content.synced, write.offset, &write.bytes);
                } else {
                    write.survive(&mut content.synced, &mut random);
                }
            }
        })
    }

    fn is_linked(&self) -> io::Result<bool> {
        Ok(self.disk.lock().names.values().any(|index| *index == self.index))
    }
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a sync of a file or of the folder; `apply` changes the disk for success or failure.
    fn sync(
        &self,
        operation: Operation,
        index: Option<usize>,
        apply: impl FnOnce(&mut State, bool),
    ) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_gate_closed {
            state.waiting_syncs += 1;
            self.gate.notify_all();
            while state.is_gate_closed {
                state = self.gate.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            state.waiting_syncs -= 1;
        }
        state.check_power()?;
        state.counts.syncs += 1;
        let count = state.counts.syncs;
        let failing = match index {
            Some(index) => state.check_file_failing(operation, index),
            None => state.check_failing(operation, ""),
        };
        let is_due = state.faults.fail_sync == Some(count);
        if is_due || failing.is_err() {
            apply(&mut state, false);
            return failing.and(Err(io::Error::other("this sync is set to fail")));
        }
        state.is_cut = state.faults.cut_after_sync == Some(count);
        apply(&mut state, true);
        Ok(())
    }
}

impl State {
    fn check_power(&self) -> io::Result<()> {
        if self.is_cut { Err(io::Error::other("the power was lost")) } else { Ok(()) }
    }

    /// Fails an operation that is set to fail.
    fn check_failing(&mut self, operation: Operation, name: &str) -> io::Result<()> {
        let is_meant = |failing: &&mut Failing| {
            failing.operation == operation && failing.times > 0 && name.contains(&failing.name)
        };
        let Some(failing) = self.failing.iter_mut().find(is_meant) else { return Ok(()) };
        failing.times -= 1;
        Err(failing.kind.into())
    }

    fn check_file_failing(&mut self, operation: Operation, index: usize) -> io::Result<()> {
        if self.failing.is_empty() {
            return Ok(());
        }
        let name = self.names.iter().find(|(_, named)| **named == index).map(|(name, _)| name.clone());
        self.check_failing(operation, &name.unwrap_or_default())
    }

    fn content(&mut self, index: usize) -> io::Result<&mut Content> {
        self.contents.get_mut(index).ok_or(io::ErrorKind::NotFound.into())
    }

    fn surviving_names(&self, random: &mut Random) -> BTreeMap<String, usize> {
        let moment = random.below(self.names_since_sync.len());
        self.names_since_sync.get(moment).cloned().unwrap_or_default()
    }
}

impl Content {
    fn of(bytes: Vec<u8>) -> Self {
        Self { synced: bytes.clone(), written: bytes, unsynced: Vec::new() }
    }

    fn surviving(&self, random: &mut Random) -> Self {
        let mut bytes = self.synced.clone();
        for write in &self.unsynced {
            write.survive(&mut bytes, random);
        }
        Self::of(bytes)
    }
}

impl Write {
    /// Copies the part that reached the disk by chance into `content`: all, nothing, the beginning
    /// or the end.
    fn survive(&self, content: &mut Vec<u8>, random: &mut Random) {
        let at = random.below(self.bytes.len() + 1);
        let (before, after) = self.bytes.split_at(at);
        match random.below(4) {
            0 => {}
            1 => overwrite(content, self.offset, &self.bytes),
            2 => overwrite(content, self.offset, before),
            _ => overwrite(content, self.offset + at, after),
        }
    }
}

fn overwrite(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let end = offset + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    if let Some(place) = content.get_mut(offset..end) {
        place.copy_from_slice(bytes);
    }
}

/// A small generator whose whole state is the seed, so one number identifies a failing case.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// The next number below `bound`; zero when the bound is.
    ///
    /// Source: the mixing constants are those of splitmix64.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % (bound.max(1) as u64)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_loss_may_tear_only_unsynced_bytes() {
        let files = MemoryFiles::new();
        let file = files.create("a").expect("created");
        files.sync_dir().expect("synced");
        file.write_at(b"sure", 0).expect("written");
        file.sync_data().expect("synced");
        file.write_at(b"open", 4).expect("written");
        let mut found: Vec<String> =
            (0..200).map(|seed| content(&files.after_power_loss(seed), "a")).collect();
        found.sort();
        found.dedup();
        assert!(found.iter().all(|text| text.starts_with("sure")), "{found:?}");
        for possible in ["sure", "sureopen", "sureop", "sure\0\0en"] {
            assert!(found.iter().any(|text| text == possible), "{possible:?} in {found:?}");
        }
        assert_eq!(content(&files.after_kill(), "a"), "sureopen");
    }

    #[test]
    fn rename_is_durable_only_after_folder_sync() {
        let files = MemoryFiles::new();
        files.create("a").expect("created");
        files.sync_dir().expect("synced");
        files.rename("a", "b").expect("renamed");
        let mut found: Vec<Vec<String>> =
            (0..50).map(|seed| files.after_power_loss(seed).list().expect("listed")).collect();
        found.sort();
        found.dedup();
        assert_eq!(found, [["a"], ["b"]]);
        files.sync_dir().expect("synced");
        assert!((0..50).all(|seed| files.after_power_loss(seed).list().expect("listed") == ["b"]));
    }

    #[test]
    fn after_the_cut_nothing_is_written_any_more() {
        let files = MemoryFiles::new();
        let file = files.create("a").expect("created");
        files.set_faults(Faults { cut_after_write: Some(2), fail_write: Some(1), ..Faults::default() });
        assert!(file.write_at(b"no", 0).is_err());
        file.write_at(b"yes", 0).expect("the last one");
        assert!(files.is_cut());
        assert!(file.write_at(b"no", 0).is_err() && file.sync_data().is_err() && files.create("b").is_err());
        assert_eq!(content(&files, "a"), "yes");
        assert_eq!(files.operations(), Operations { writes: 2, syncs: 0 });
    }

    #[test]
    fn bytes_of_a_failed_sync_require_a_rewrite() {
        let files = MemoryFiles::new();
        let file = files.create("a").expect("created");
        files.sync_dir().expect("synced");
        file.write_at(b"gone", 0).expect("written");
        files.fail(Operation::Sync, "a", 1, io::ErrorKind::Other);
        assert!(file.sync_data().is_err());
        file.sync_data().expect("has nothing to write");
        assert_eq!(content(&files, "a"), "gone");
        let left: Vec<String> = (0..20).map(|seed| content(&files.after_power_loss(seed), "a")).collect();
        assert!(left.iter().all(|text| *text == left[0] && text != "gone"), "{left:?}");
        let evicted = files.after_kill();
        evicted.drop_cache();
        assert_eq!(content(&evicted, "a"), left[0]);
        file.write_at(b"gone", 0).expect("written again");
        file.sync_data().expect("synced");
        assert!((0..20).all(|seed| content(&files.after_power_loss(seed), "a") == "gone"));
    }

    #[test]
    fn injected_faults_fail_only_the_named_file() {
        let files = MemoryFiles::new();
        files.create("b").expect("created");
        let denied = io::ErrorKind::PermissionDenied;
        for operation in [
            Operation::Open,
            Operation::Create,
            Operation::Rename,
            Operation::Remove,
            Operation::SyncDir,
            Operation::Read,
            Operation::Write,
            Operation::Sync,
        ] {
            let name = if operation == Operation::SyncDir { "" } else { "a" };
            let file = files.create("a").expect("created");
            let run = |name: &str| match operation {
                Operation::Open => files.open(name).map(drop),
                Operation::Create => files.create(name).map(drop),
                Operation::Rename => files.rename(name, name),
                Operation::Remove => files.remove(name).and_then(|()| files.create(name).map(drop)),
                Operation::SyncDir => files.sync_dir(),
                Operation::Read => file.read_at(&mut [0], 0).map(drop),
                Operation::Write => file.write_at(b"x", 0),
                Operation::Sync => file.sync_data(),
            };
            files.fail(operation, name, 1, denied);
            files.remove("b").and_then(|()| files.create("b").map(drop)).expect("not meant");
            assert_eq!(run("a").map_err(|error| error.kind()), Err(denied), "{operation:?}");
            run("a").unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        }
    }

    fn content(files: &MemoryFiles, name: &str) -> String {
        let file = files.open(name).expect("there");
        let mut bytes = vec![0; usize::try_from(file.size().expect("sized")).expect("small")];
        file.read_at(&mut bytes, 0).expect("read");
        String::from_utf8(bytes).expect("text")
    }
}
