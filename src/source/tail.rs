//! Reads lines added to a file, even if it is renamed, replaced or truncated meanwhile.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    ops::ControlFlow,
    os::unix::fs::MetadataExt,
};

use super::look::{metadata, open_file};

/// Most bytes of one read; the rest is read by the next one.
const LINES_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Longest line, in bytes; a longer one is split.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// The read position in a file.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The open file and its inode number.
    file: Option<(File, u64)>,
    at: u64,
    /// The beginning of an incomplete line.
    partial_line: Vec<u8>,
    /// The inode number and length of a file to read from that length on.
    from: Option<(u64, u64)>,
}

impl Tail {
    /// Starts at this length if the file still has this inode number; reads another file from its
    /// beginning.
    pub(super) fn after(from: Option<(u64, u64)>) -> Self {
        Self { from, ..Self::default() }
    }

    /// Starts at the present end of the file at `path`; reads a file that is created later from its
    /// beginning.
    pub(super) fn at_end(path: &str) -> io::Result<Self> {
        Ok(Self::after(metadata(path)?.map(|found| (found.ino(), found.len()))))
    }

    /// Calls `on_line` with each line that was added since the last call, without its end. Returns
    /// whether there are more to read.
    ///
    /// Shape: an incomplete line waits for its end. The rest of a renamed file is read first. A
    /// file that became shorter is read from its beginning. After `Break`, do not call this again.
    /// Errors: the file cannot be read, or is not a regular file.
    pub(super) fn read(
        &mut self,
        path: &str,
        mut on_line: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<bool> {
        let mut budget = LINES_BYTES_MAX;
        loop {
            let Some((file, number)) = &mut self.file else {
                let Some((file, found)) = open_file(path)? else { return Ok(false) };
                let goes_on = self.from.take().filter(|(number, _)| *number == found.ino());
                self.at = goes_on.map_or(0, |(_, length)| length);
                self.file = Some((file, found.ino()));
                continue;
            };
            let length = file.metadata()?.len();
            if length < self.at {
                self.at = 0;
                self.partial_line.clear();
            }
            file.seek(SeekFrom::Start(self.at))?;
            let mut bytes = Vec::new();
            file.by_ref().take(budget).read_to_end(&mut bytes)?;
            let (number, count) = (*number, bytes.len() as u64);
            self.at += count;
            budget = budget.saturating_sub(count);
            if self.split(&bytes, &mut on_line).is_break() {
                return Ok(false);
            }
            if budget == 0 {
                return Ok(true);
            }
            if metadata(path)?.is_none_or(|found| found.ino() == number) {
                return Ok(false);
            }
            self.file = None;
            self.partial_line.clear();
        }
    }

    fn split(&mut self, bytes: &[u8], on_line: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.partial_line.extend_from_slice(part);
            let is_whole = part.ends_with(b"\n") || self.partial_line.len() >= LINE_BYTES_MAX;
            if !is_whole {
                continue;
            }
            let line = std::mem::take(&mut self.partial_line);
            on_line(line.strip_suffix(b"\n").unwrap_or(&line))?;
        }
        ControlFlow::Continue(())
    }
}
