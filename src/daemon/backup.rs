//! Backup of a state folder to one file, and restore.
//!
//! A backup is a tar file with `journal/`, `snapshots/` and `rules/`. It is made from the files and
//! needs no daemon: a journal only grows, so its records up to any position are a consistent state.
//! The journal is opened before and after the snapshots are read, so that it contains the records
//! that they need, even if retention deletes records meanwhile. All snapshots are opened before one
//! is read, so that the backup has the newest snapshots of one moment. A daemon may delete rules
//! that no record names, so the rules are opened before the journal, and newer ones are read after
//! it. The backup then has all rules that the journal names. The API token is left out.

use std::{
    ffi::OsStr,
    fs,
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::{Component, Path, PathBuf},
};

use engine::sorted::SortedSet;

use tar::{Archive, Builder, EntryType, Header};

use super::{
    lock::{
        JOURNAL_FOLDER as JOURNAL, LOCK_FILE, LockError, RESTORING_FOLDER as UNFINISHED, StateLock,
        is_restore_interrupted,
    },
    maintenance::{self, MaintenanceError},
    make_private, rules,
    snapshots::FOLDER as SNAPSHOTS,
};
use journal::{Pinned, Verified, VerifyError, files::DirFiles};

use crate::api::folder_of;

const RULES: &str = "rules";
/// The extension of a snapshot. Snapshots and rules files are copied unchanged; all other files
/// there are unfinished.
const SNAPSHOT: &str = "snap";
/// How often a folder that changes meanwhile is opened. A running daemon changes it more slowly
/// than opening takes.
const OPENINGS_MAX: usize = 8;

/// Why a backup cannot be made or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file exists.
    #[error("write {}: it exists already", .0.display())]
    Exists(PathBuf),
    /// The folder is not empty.
    #[error("restore into {}: it is not empty", .0.display())]
    NotEmpty(PathBuf),
    /// A daemon has the folder.
    #[error("lock the state folder")]
    Lock(#[from] LockError),
    /// The journal cannot be used.
    #[error(transparent)]
    Maintenance(#[from] MaintenanceError),
    /// The journal cannot be read.
    #[error(transparent)]
    Read(#[from] VerifyError),
    /// The restored journal is damaged.
    #[error("use the backup: {places} places of its journal are damaged")]
    Damaged {
        /// Number of damaged places.
        places: usize,
    },
    /// An unreleased build wrote the backup.
    #[error("use the backup: {} is of an unreleased build of aside, whose formats are not read", .0.display())]
    Unreleased(PathBuf),
    /// A file in the backup does not belong in a state folder.
    #[error("use the backup: `{}` is not a file of a state folder", .0.display().to_string().escape_default())]
    Foreign(PathBuf),
    /// A file operation failed.
    #[error("{doing} {}", path.display())]
    Io {
        /// The failed operation.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// The content of a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The last record; 0 when there is none.
    pub last: u64,
    /// How many segments it has.
    pub segments: usize,
    /// Its size, in bytes.
    pub bytes: u64,
}

/// Writes the content of `state` to `file`; a daemon may be running.
///
/// Errors: the file exists, or a file operation failed; an unfinished file is removed.
pub fn backup(state: &Path, file: &Path) -> Result<Kept, BackupError> {
    if file.exists() {
        return Err(BackupError::Exists(file.to_owned()));
    }
    let files = maintenance::files(state)?;
    let mut unfinished = file.as_os_str().to_owned();
    unfinished.push(".unfinished");
    let unfinished = PathBuf::from(unfinished);
    let named = || fs::rename(&unfinished, file).map_err(io_error("name", file));
    let kept = write(state, &files, &unfinished).and_then(|kept| named().map(|()| kept));
    if kept.is_err() {
        // The first error matters more than a failure to remove the rest.
        fs::remove_file(&unfinished).ok();
    }
    let kept = kept?;
    sync_folder_of(file).map_err(io_error("sync the folder of", file))?;
    Ok(kept)
}

fn write(state: &Path, files: &DirFiles, path: &Path) -> Result<Kept, BackupError> {
    let failed = || io_error("write", path);
    let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut tar = Builder::new(file.map_err(failed())?);
    let mut rules = open_together(&state.join(RULES))?;
    let mut pinned = Pinned::open(files)?;
    add_files(&mut tar, SNAPSHOTS, open_together(&state.join(SNAPSHOTS))?)?;
    pinned.open_newer(files)?;
    let (mut last, mut segments) = (0, 0);
    for part in pinned.parts(files)? {
        let place = Path::new(JOURNAL).join(part.name());
        let mut header = header_of(part.bytes());
        tar.append_data(&mut header, &place, part.reader()).map_err(failed())?;
        last = part.last().0;
        segments += 1;
    }
    let known: SortedSet<PathBuf> = rules.iter().map(|(path, _)| path.clone()).collect();
    let newer = open_together(&state.join(RULES))?.into_iter().filter(|(path, _)| !known.contains(path));
    rules.extend(newer);
    add_files(&mut tar, RULES, rules)?;
    let file = tar.into_inner().map_err(failed())?;
    file.sync_all().map_err(failed())?;
    let bytes = file.metadata().map_err(failed())?.len();
    Ok(Kept { last, segments, bytes })
}

/// Adds the files of the folder `name`.
fn add_files(
    tar: &mut Builder<fs::File>,
    name: &str,
    files: Vec<(PathBuf, fs::File)>,
) -> Result<(), BackupError> {
    for (path, file) in files {
        // Bytes added while a file is read belong to a later state.
        let size = file.metadata().map_err(io_error("read", &path))?.len();
        let place = Path::new(name).join(path.file_name().unwrap_or_default());
        let content = file.take(size);
        tar.append_data(&mut header_of(size), place, content).map_err(io_error("copy", &path))?;
    }
    Ok(())
}

/// Opens the finished files of a folder: a set that was complete at one moment. After
/// [`OPENINGS_MAX`] tries, the files that could be opened.
fn open_together(folder: &Path) -> Result<Vec<(PathBuf, fs::File)>, BackupError> {
    let mut paths = finished(folder)?;
    let mut tries = 0;
    loop {
        let mut files = Vec::new();
        for path in &paths {
            match fs::File::open(path) {
                // An older snapshot is deleted when a newer one is written.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                opened => files.push((path.clone(), opened.map_err(io_error("read", path))?)),
            }
        }
        let now = finished(folder)?;
        tries += 1;
        if (now == paths && files.len() == paths.len()) || tries == OPENINGS_MAX {
            return Ok(files);
        }
        paths = now;
    }
}

/// The finished files of a folder, which may be missing, by name.
fn finished(folder: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let mut paths = rules::paths_in(folder).map_err(io_error("read", folder))?;
    paths.retain(|path| is_whole(path));
    Ok(paths)
}

fn is_whole(path: &Path) -> bool {
    path.extension()
        .and_then(OsStr::to_str)
        .is_some_and(|extension| extension == SNAPSHOT || rules::EXTENSIONS.contains(&extension))
}

fn header_of(bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_entry_type(EntryType::Regular);
    header
}

/// Creates the state folder `state` from the backup in `file`.
///
/// Errors: the folder is not empty, a daemon has it, or the backup is damaged. The folder is then
/// as it was before.
pub fn restore(file: &Path, state: &Path) -> Result<Kept, BackupError> {
    let tar = fs::File::open(file).map_err(io_error("read", file))?;
    let bytes = tar.metadata().map_err(io_error("read", file))?.len();
    if has_content(state).map_err(io_error("read", state))? {
        return Err(BackupError::NotEmpty(state.to_owned()));
    }
    let is_new = !state.exists();
    make_private(state).map_err(io_error("make", state))?;
    let lock = StateLock::take(state)?;
    let restored = unpack(tar, file, state).map(|verified| Kept {
        last: verified.last().0,
        segments: verified.segments.len(),
        bytes,
    });
    drop(lock);
    if restored.is_err() {
        leave_nothing(state, is_new);
    }
    restored
}

/// Removes what a failed restore has made; what cannot be removed is refused by a start.
fn leave_nothing(state: &Path, is_new: bool) {
    drop(fs::remove_dir_all(state.join(UNFINISHED)));
    // An empty folder, which the lock made.
    drop(fs::remove_dir(state.join(JOURNAL)));
    if is_new {
        drop(fs::remove_file(state.join(LOCK_FILE)));
        drop(fs::remove_dir(state));
    }
}

fn unpack(tar: fs::File, file: &Path, state: &Path) -> Result<Verified, BackupError> {
    let unfinished = state.join(UNFINISHED);
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(io_error("remove", &unfinished))?;
    }
    make_private(&unfinished).map_err(io_error("make", &unfinished))?;
    let mut archive = Archive::new(tar);
    for entry in archive.entries().map_err(io_error("read", file))? {
        let mut entry = entry.map_err(io_error("read", file))?;
        let place = entry.path().map_err(io_error("read", file))?.into_owned();
        let target = unfinished.join(checked(&place, entry.header().entry_type())?);
        if let Some(folder) = target.parent() {
            make_private(folder).map_err(io_error("make", folder))?;
        }
        let written = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&target)
            .and_then(|mut to| io::copy(&mut entry, &mut to));
        written.map_err(io_error("write", &target))?;
    }
    // Once for all of them: one by one, 100,000 small files take half a minute. Nothing is renamed
    // to its place before.
    let folder = fs::File::open(&unfinished).map_err(io_error("sync", &unfinished))?;
    rustix::fs::syncfs(&folder).map_err(|error| io_error("sync", &unfinished)(error.into()))?;
    let (verified, _) = maintenance::verify(&unfinished).map_err(|error| {
        // The folder that it names is removed.
        let is_unreleased = matches!(error, MaintenanceError::Unreleased(_));
        if is_unreleased { BackupError::Unreleased(file.to_owned()) } else { error.into() }
    })?;
    match verified.findings() {
        0 => {}
        places => return Err(BackupError::Damaged { places }),
    }
    // A state folder without a journal counts as empty, so the journal is renamed last.
    for name in [RULES, SNAPSHOTS, JOURNAL] {
        let (from, to) = (unfinished.join(name), state.join(name));
        if to.is_dir() && name != JOURNAL {
            fs::remove_dir_all(&to).map_err(io_error("remove", &to))?;
        }
        if from.is_dir() {
            sync_folder_of(&from.join(name)).map_err(io_error("sync", &from))?;
            fs::rename(&from, &to).map_err(io_error("name", &to))?;
        }
    }
    fs::remove_dir_all(&unfinished).map_err(io_error("remove", &unfinished))?;
    sync_folder_of(&unfinished).map_err(io_error("sync", state))?;
    Ok(verified)
}

/// The path of a file in a state folder: one of the three folders and a name.
fn checked(place: &Path, kind: EntryType) -> Result<&Path, BackupError> {
    let mut parts = place.components();
    let is_known = match (parts.next(), parts.next(), parts.next()) {
        (Some(Component::Normal(folder)), Some(Component::Normal(name)), None) => {
            let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
            [JOURNAL, SNAPSHOTS, RULES].iter().any(|known| folder == *known)
                && name.as_encoded_bytes().iter().all(is_plain)
        }
        _ => false,
    };
    if is_known && kind == EntryType::Regular {
        Ok(place)
    } else {
        Err(BackupError::Foreign(place.to_owned()))
    }
}

/// Whether a folder contains more than a lock file, an empty journal folder, and the folder of an
/// unfinished restore.
fn has_content(folder: &Path) -> io::Result<bool> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        entries => entries?,
    };
    // They are of the restore that was interrupted.
    let unfinished: &[&str] = if is_restore_interrupted(folder) { &[RULES, SNAPSHOTS] } else { &[] };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if unfinished.iter().any(|known| name == *known) {
            continue;
        }
        // The lock creates the journal's folder, so an empty one does not count.
        let is_empty_journal = name == JOURNAL && fs::read_dir(entry.path())?.next().is_none();
        if name != UNFINISHED && name != LOCK_FILE && !is_empty_journal {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    fs::File::open(folder_of(path))?.sync_all()
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError + use<> {
    let path = path.to_owned();
    move |source| BackupError::Io { doing, path, source }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU64, Ordering},
        },
        thread,
    };

    use super::*;
    use crate::{
        config::layers::Sources,
        daemon::{
            fold::Fold,
            rules::RulesStore,
            snapshots::{Capture, Snapshots},
        },
    };
    use engine::event::Seq;
    use journal::{
        AppendBatch, IdempotencyKey, Journal, JournalSettings, Level, RecordBuf, record::RecordKind,
        time::Timestamp,
    };

    fn open(state: &Path, seal: bool) -> Journal {
        let files = Arc::new(DirFiles::new(&state.join(JOURNAL)).expect("a folder"));
        let settings = JournalSettings { segment_bytes: 4_096, seal, ..JournalSettings::default() };
        let clock = Arc::new(|| Timestamp::from_millis(7));
        Journal::open(files, settings, clock, &|_| None).expect("opened").journal
    }

    fn append(journal: &Journal, numbers: std::ops::RangeInclusive<u64>) {
        for number in numbers {
            let body = number.to_string().repeat(40);
            let batch = AppendBatch::of(RecordKind(1), body.as_bytes(), None).expect("small");
            journal.append_blocking(batch, Level::Synced).expect("appended");
        }
    }

    fn records(journal: &Journal) -> Vec<RecordBuf> {
        let mut reader = journal.read_from(Seq(1));
        let mut all = Vec::new();
        loop {
            let records = reader.next_batch(100).expect("readable");
            if records.is_empty() {
                return all;
            }
            all.extend(records.iter().map(RecordBuf::from));
        }
    }

    /// A state folder with an open journal, and files in all other places.
    fn state(seal: bool) -> (tempfile::TempDir, PathBuf, Journal) {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let journal = open(&state, seal);
        append(&journal, 1..=200);
        for (name, text) in [
            ("snapshots/1.snap", "snapshot"),
            ("snapshots/2.snap.tmp", "unfinished"),
            ("rules/b.unfinished", "unfinished"),
            ("token", "secret"),
        ] {
            make_private(state.join(name).parent().expect("a folder")).expect("made");
            fs::write(state.join(name), text).expect("written");
        }
        (folder, state, journal)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder");
        let mut names: Vec<String> =
            entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    }

    #[test]
    fn restored_state_equals_backup_of_open_journal() {
        for seal in [false, true] {
            let (folder, state, journal) = state(seal);
            let file = folder.path().join("a.tar");
            let hash = RulesStore::new(&state).keep(&Sources::shipped()).expect("kept");
            let kept = backup(&state, &file).expect("backed up");
            assert_eq!(kept.last, 200);
            let expected = records(&journal);
            append(&journal, 201..=210);
            let restored = folder.path().join("restored");
            let again = restore(&file, &restored).expect("restored");
            assert_eq!((again.last, again.segments, again.bytes), (kept.last, kept.segments, kept.bytes));
            assert_eq!(names(&restored), ["daemon.lock", "journal", "rules", "snapshots"]);
            assert_eq!(names(&restored.join("snapshots")), ["1.snap"]);
            let rules = RulesStore::new(&restored).sources(&hash).expect("all of them");
            assert_eq!(rules.to_bundle(), Sources::shipped().to_bundle());
            let wrong = RulesStore::new(&restored).verify().expect("listed");
            assert_eq!(wrong, Vec::<String>::new(), "the program's own texts are stored too");
            assert!(!restored.join("rules/b.unfinished").exists());
            let journal = open(&restored, seal);
            assert_eq!(records(&journal), expected);
            append(&journal, 201..=300);
            assert_eq!(records(&journal).len(), 300);
            journal.close_blocking().expect("closed");
            assert_eq!(records(&open(&restored, seal)).len(), 300);
        }
    }

    #[test]
    fn backup_during_snapshot_writes_has_a_whole_snapshot() {
        const KEYS: u64 = 20_000;
        // Bounds, so that the test ends in any case.
        const SNAPSHOTS_MAX: u64 = 500;
        const BACKUPS_MAX: usize = 200;
        let (folder, state, _journal) = state(false);
        let rules = RulesStore::new(&state);
        let snapshots = |state: &Path| {
            let files = DirFiles::new(&state.join(SNAPSHOTS)).expect("a folder");
            Snapshots::open(Arc::new(files)).expect("opened")
        };
        let [restored_to, file] = ["restored", "a.tar"].map(|name| folder.path().join(name));
        let write = |snapshots: &Snapshots, seq: u64| {
            let mut fold = Fold::new(rules.clone());
            fold.applied = Seq(seq);
            let keys: Vec<_> =
                (seq - KEYS + 1..=seq).map(|seq| IdempotencyKey::new(seq.into(), Seq(seq))).collect();
            let capture = Capture::new(&fold).expect("it can be written");
            snapshots.write(&capture, 0, &keys).expect("written");
        };
        let first = snapshots(&state);
        write(&first, 100_000);
        let (is_done, written) = (AtomicBool::new(false), AtomicU64::new(1));
        let restored = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) && written.load(Ordering::Relaxed) < SNAPSHOTS_MAX {
                    let number = 1 + written.fetch_add(1, Ordering::Relaxed);
                    write(&first, 100_000 + number * 3_000);
                }
            });
            let mut seen = Vec::new();
            // Several snapshots are written while backups are taken, independently of the
            // scheduling.
            while seen.len() < 5 || (written.load(Ordering::Relaxed) <= 6 && seen.len() < BACKUPS_MAX) {
                backup(&state, &file).expect("backed up");
                restore(&file, &restored_to).expect("restored");
                let loaded = snapshots(&restored_to).load(&rules);
                seen.push(loaded.and_then(|loaded| loaded.keys).map(|keys| keys.len() as u64));
                fs::remove_file(&file).expect("removed");
                fs::remove_dir_all(&restored_to).expect("removed");
            }
            is_done.store(true, Ordering::Relaxed);
            seen
        });
        assert!(restored.iter().all(|keys| *keys == Some(KEYS)), "{restored:?}");
        let written = written.into_inner();
        assert!(written > 6, "{written} snapshots are too few to mean much");
    }

    #[test]
    fn backup_and_restore_overwrite_nothing_and_clean_up() {
        let (folder, state, _journal) = state(false);
        let file = folder.path().join("a.tar");
        backup(&state, &file).expect("backed up");
        assert!(matches!(backup(&state, &file), Err(BackupError::Exists(_))));
        assert!(matches!(restore(&file, &state), Err(BackupError::NotEmpty(_))));
        let nowhere = folder.path().join("no/where.tar");
        let error = backup(&state, &nowhere).expect_err("no folder").to_string();
        assert!(error.starts_with("write ") && error.contains("no/where.tar"), "{error}");
        let absent = folder.path().join("absent");
        let error = backup(&absent, &folder.path().join("b.tar")).expect_err("no journal").to_string();
        assert_eq!(error, format!("find a journal in {}", absent.display()));
        assert_eq!(names(folder.path()), ["a.tar", "state"]);
    }

    #[test]
    fn damaged_or_foreign_backup_leaves_no_state() {
        let (folder, state, journal) = state(false);
        journal.close_blocking().expect("closed");
        let file = folder.path().join("a.tar");
        backup(&state, &file).expect("backed up");
        let mut bytes = fs::read(&file).expect("read");
        let is_header = |window: &[u8]| window.starts_with(b"aslg") && window.ends_with(&[1, 0, 0, 0]);
        let at = bytes.windows(12).position(is_header).expect("a segment");
        bytes[at + 60] ^= 1;
        fs::write(&file, &bytes).expect("written");
        let restored = folder.path().join("restored");
        assert!(matches!(restore(&file, &restored), Err(BackupError::Damaged { places: 1 })));
        assert!(!restored.exists(), "nothing is left");
        // Nor in a folder that was there before.
        fs::create_dir(&restored).expect("made");
        assert!(restore(&file, &restored).is_err());
        assert_eq!(names(&restored), ["daemon.lock"]);
        assert!(matches!(maintenance::verify(&restored), Err(MaintenanceError::Missing(_))));
        // A restore that was killed is no state.
        fs::create_dir_all(restored.join(JOURNAL)).expect("made");
        fs::create_dir(restored.join(UNFINISHED)).expect("made");
        assert!(matches!(maintenance::verify(&restored), Err(MaintenanceError::Unrestored(_))));

        let mut tar = Builder::new(Vec::new());
        let mut header = header_of(2);
        header.as_gnu_mut().expect("gnu").name[..11].copy_from_slice(b"journal/../");
        header.set_cksum();
        tar.append(&header, b"no".as_slice()).expect("written");
        fs::write(&file, tar.into_inner().expect("finished")).expect("written");
        let error = restore(&file, &restored).expect_err("foreign").to_string();
        assert!(error.starts_with("use the backup: `journal/.."), "{error}");
    }

    #[test]
    fn a_backup_of_unreleased_builds_is_refused() {
        let (folder, state, journal) = state(false);
        journal.close_blocking().expect("closed");
        let file = folder.path().join("a.tar");
        backup(&state, &file).expect("backed up");
        let mut bytes = fs::read(&file).expect("read");
        let at = bytes.windows(4).position(|window| window == b"aslg").expect("a segment");
        bytes[at..at + 4].copy_from_slice(b"asid");
        fs::write(&file, &bytes).expect("written");
        let restored = folder.path().join("restored");
        let error = restore(&file, &restored).expect_err("refused").to_string();
        let expected = format!("use the backup: {} is of an unreleased build", file.display());
        assert!(error.starts_with(&expected) && !restored.exists(), "{error}");
    }

    #[test]
    fn names_with_escapes_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, restored) = (folder.path().join("a.tar"), folder.path().join("restored"));
        let archive = |names: &mut dyn Iterator<Item = String>| {
            let mut tar = Builder::new(Vec::new());
            for name in names {
                tar.append_data(&mut header_of(0), name, io::empty()).expect("written");
            }
            fs::write(&file, tar.into_inner().expect("finished")).expect("written");
        };
        for name in ["journal/\u{1b}[31m", "rules/a b", "rules/\u{202e}x", "rules/\u{e4}"] {
            archive(&mut std::iter::once(name.to_owned()));
            let error = restore(&file, &restored).expect_err(name).to_string();
            assert!(error.starts_with("use the backup: `") && error.is_ascii(), "{error}");
            assert!(!error.contains('\u{1b}') && !restored.exists(), "{error}");
        }
        archive(&mut (0..2_000).map(|at| format!("rules/{at}.rules")));
        assert!(matches!(restore(&file, &restored), Err(BackupError::Maintenance(_))), "it has no journal");
        assert!(!restored.exists());
    }
}
