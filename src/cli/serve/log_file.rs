//! Rotates the log file on stderr.
//!
//! A background daemon writes for months, so its log is bounded: at [`LOG_BYTES_MAX`] the file is
//! renamed to end with `.1`, replacing the previous one, and a new one is created.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

/// Size at which the file is rotated, in bytes.
const LOG_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The file on stderr.
///
/// Shape: other output to stderr, such as a panic, also goes to the file, but is not counted.
#[derive(Debug)]
pub(super) struct LogFile {
    path: PathBuf,
    bytes_max: u64,
    /// Size of the file.
    bytes: Mutex<u64>,
}

impl LogFile {
    /// Redirects stderr to `path`, and appends to it.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path)?;
        rustix::stdio::dup2_stderr(&file)?;
        let bytes = Mutex::new(file.metadata()?.len());
        Ok(Self { path: path.to_owned(), bytes_max: LOG_BYTES_MAX, bytes })
    }

    /// Adds `count` bytes; returns whether to rotate before they are written.
    fn add(&self, count: usize) -> bool {
        let count = u64::try_from(count).unwrap_or(u64::MAX);
        let mut bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = *bytes > 0 && bytes.saturating_add(count) > self.bytes_max;
        *bytes = if is_full { count } else { bytes.saturating_add(count) };
        is_full
    }

    fn rotate(&self) -> io::Result<()> {
        fs::rename(&self.path, older(&self.path))?;
        rustix::stdio::dup2_stderr(&open(&self.path)?)?;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The name of the rotated file of `path`.
pub(in crate::cli) fn older(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

impl Write for &LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.add(bytes.len()) {
            // If the rotation fails the old file grows, which is better than no log.
            self.rotate().ok();
        }
        io::stderr().write_all(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_rotates_before_exceeding_its_size_limit() {
        let log = LogFile { path: "daemon.log".into(), bytes_max: 100, bytes: Mutex::new(0) };
        let full: Vec<bool> = [60, 40, 1, 99, 1, 500, 1].map(|count| log.add(count)).to_vec();
        assert_eq!(full, [false, false, true, false, true, true, true]);
        assert_eq!(older(&log.path), Path::new("daemon.log.1"));
    }
}
