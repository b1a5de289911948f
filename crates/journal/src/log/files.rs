//! The few file operations that the journal needs, and their implementation on the file system.
//!
//! The second implementation, `MemoryFiles`, keeps written bytes apart from synced ones. Names are
//! plain file names in one folder. This module does not depend on segments.

use std::{
    fmt, fs, io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, StatxFlags},
    io::Errno,
};

/// Size of one write of zeros, in bytes.
const ZEROS_BYTES: usize = 1 << 20;

/// One folder of files.
///
/// A created, renamed or removed name survives a power loss only after [`Files::sync_dir`].
pub trait Files: fmt::Debug + Send + Sync {
    /// All names, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists.
    fn open(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Opens a file and empties it, or creates it.
    fn create(&self, name: &str) -> io::Result<Arc<dyn File>>;

    /// Renames a file, replacing any file of the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a name; open handles stay readable.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Makes the names durable.
    fn sync_dir(&self) -> io::Result<()>;

    /// The free space for files, in bytes; quotas are not counted.
    fn free_bytes(&self) -> io::Result<u64>;

    /// The path for messages to the user.
    fn path(&self, name: &str) -> PathBuf;
}

/// One open file, read and written at offsets from any thread.
pub trait File: fmt::Debug + Send + Sync {
    /// Its length in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads at `offset` up to the length of `buffer`; at least one byte unless the file ends
    /// there.
    ///
    /// Shape: fewer only at the end of the file or, in a sealed segment, of a block.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `bytes`, extending the file where it is shorter.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Makes the written bytes durable, and the length that is needed to read them.
    fn sync_data(&self) -> io::Result<()>;

    /// Whether the file has a name; a file without a name disappears when it is closed.
    fn is_linked(&self) -> io::Result<bool>;
}

/// Writes zeros from `offset` up to `end`, so that later writes there change no metadata of the
/// file system.
pub(crate) fn fill_with_zeros(file: &dyn File, offset: u64, end: u64) -> io::Result<()> {
    let zeros = vec![0; ZEROS_BYTES];
    let mut offset = offset;
    while offset < end {
        let size = zeros.len().min(usize::try_from(end - offset).unwrap_or(usize::MAX));
        file.write_at(zeros.get(..size).expect("no more is written than there are zeros"), offset)?;
        offset += size as u64;
    }
    Ok(())
}

/// A folder of the file system, held open so that its sync cannot fail for lack of file
/// descriptors.
#[derive(Debug)]
pub struct DirFiles {
    dir: PathBuf,
    handle: fs::File,
    access: Access,
}

/// How the files of a folder are opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    ReadAndWrite,
}

impl DirFiles {
    /// Creates the folder if it is missing, readable by its owner only.
    ///
    /// Errors: the folder cannot be created.
    pub fn new(dir: &Path) -> io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt;

        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::File::open(parent)?.sync_all()?;
        }
        Ok(Self { dir: dir.to_owned(), handle: fs::File::open(dir)?, access: Access::ReadAndWrite })
    }

    /// A folder that exists, whose files are opened for reading only.
    ///
    /// Errors: the folder cannot be opened.
    pub fn for_reading(dir: &Path) -> io::Result<Self> {
        Ok(Self { dir: dir.to_owned(), handle: fs::File::open(dir)?, access: Access::Read })
    }
}

impl Files for DirFiles {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            names.extend(entry?.file_name().into_string());
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn File>> {
        let is_written = self.access == Access::ReadAndWrite;
        let file = fs::OpenOptions::new().read(true).write(is_written).open(self.path(name))?;
        Ok(Arc::new(file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn File>> {
        use std::os::unix::fs::OpenOptionsExt;

        let mut options = fs::OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(true).mode(0o600).open(self.path(name))?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.handle.sync_all()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let free = rustix::fs::fstatvfs(&self.handle)?;
        Ok(free.f_bavail.saturating_mul(free.f_frsize))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}

impl File for fs::File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match FileExt::read_at(self, rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        fs::File::sync_data(self)
    }

    /// Source: multigrain timestamps (Linux 6.13). Reading a file's times makes its next write take
    /// a new time, and then each sync writes the inode too, some 0.1 ms. So only the link count is
    /// requested.
    fn is_linked(&self) -> io::Result<bool> {
        use std::os::unix::fs::MetadataExt;

        match rustix::fs::statx(self, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK) {
            Ok(found) => Ok(found.stx_nlink > 0),
            // The system is older than the call, or a sandbox blocks it.
            Err(Errno::NOSYS | Errno::PERM) => Ok(self.metadata()?.nlink() > 0),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        AppendBatch, Journal, JournalSettings, Level, Seq,
        log::{memory::MemoryFiles, record::RecordKind},
        time::Timestamp,
    };

    #[test]
    fn both_kinds_of_files_do_the_same() {
        let dir = tempfile::tempdir().expect("a folder");
        let real = DirFiles::new(&dir.path().join("journal")).expect("created");
        assert_eq!(operate(&real), operate(&MemoryFiles::new()));
    }

    #[test]
    fn journal_in_a_folder_reopens_with_all_records() {
        let dir = tempfile::tempdir().expect("a folder");
        let open = || {
            let files = Arc::new(DirFiles::new(dir.path()).expect("a folder"));
            let settings = JournalSettings { segment_bytes: 4_096, ..JournalSettings::default() };
            Journal::open(files, settings, Arc::new(|| Timestamp::ZERO), &|_| None).expect("opened")
        };
        let journal = open().journal;
        for number in 0..100_u8 {
            let batch = AppendBatch::of(RecordKind(number), &[number; 400], None).expect("small");
            journal.append_blocking(batch, Level::Synced).expect("appended");
        }
        journal.close_blocking().expect("closed");
        let again = open();
        assert_eq!((again.last_seq, again.cuts), (Seq(100), Vec::new()));
        for number in 0..100_u8 {
            let record = again.journal.read_at(Seq(u64::from(number) + 1)).expect("readable").expect("there");
            assert_eq!((record.kind, record.body), (RecordKind(number), vec![number; 400]));
        }
    }

    fn operate(files: &dyn Files) -> Vec<String> {
        let file = files.create("a").expect("created");
        fill_with_zeros(file.as_ref(), 0, ZEROS_BYTES as u64 + 3).expect("filled");
        file.write_at(b"begin", 1).expect("written");
        file.write_at(b"end", ZEROS_BYTES as u64 + 4).expect("extended");
        file.sync_data().expect("synced");
        files.create("b").expect("created");
        files.rename("a", "c").expect("renamed");
        files.remove("b").expect("removed");
        files.sync_dir().expect("synced");
        let mut buffer = [9; 8];
        let again = files.open("c").expect("still there");
        let begin = again.read_at(&mut buffer, 0).expect("read");
        let mut seen = vec![format!("{:?} {begin} {buffer:?}", again.size().expect("sized"))];
        let end = again.read_at(&mut buffer, ZEROS_BYTES as u64 + 2).expect("read");
        seen.push(format!("{end} {buffer:?}"));
        seen.push(format!("{:?}", files.open("a").map(|_| ()).map_err(|error| error.kind())));
        seen.push(format!("{:?}", files.remove("b").map_err(|error| error.kind())));
        let before = again.is_linked().expect("looked at");
        files.create("d").and_then(|_| files.rename("d", "c")).expect("replaced");
        seen.push(format!("{before} {}", again.is_linked().expect("looked at")));
        assert!(files.free_bytes().expect("looked at") > 0);
        seen.extend(files.list().expect("listed"));
        seen
    }
}
