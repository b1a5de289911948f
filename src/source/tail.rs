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
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Longest line, in bytes; the rest of a longer one is dropped.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The end of a line that was cut.
const CUT_MARK: &[u8] = b" [line cut]";

/// The read position in a file.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// The open file and its inode number.
    file: Option<(File, u64)>,
    at: u64,
    /// The beginning of an incomplete line.
    partial_line: Vec<u8>,
    /// Whether the beginning was too long and was passed on; the rest is dropped.
    is_cut: bool,
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
                (self.partial_line, self.is_cut) = (Vec::new(), false);
            }
            file.seek(SeekFrom::Start(self.at))?;
            let number = *number;
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                if budget == 0 {
                    return Ok(true);
                }
                let Some((file, _)) = &mut self.file else { break };
                let count = match file.read(&mut piece) {
                    Ok(0) => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                };
                self.at += count as u64;
                budget = budget.saturating_sub(count as u64);
                let bytes = piece.get(..count).unwrap_or_default();
                if self.split(bytes, &mut on_line).is_break() {
                    return Ok(false);
                }
            }
            if metadata(path)?.is_none_or(|found| found.ino() == number) {
                return Ok(false);
            }
            self.file = None;
            (self.partial_line, self.is_cut) = (Vec::new(), false);
        }
    }

    fn split(&mut self, bytes: &[u8], on_line: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, is_whole) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            if self.is_cut {
                self.is_cut = !is_whole;
                continue;
            }
            let room = LINE_BYTES_MAX - self.partial_line.len();
            self.partial_line.extend_from_slice(text.get(..room.min(text.len())).unwrap_or_default());
            let is_long = text.len() > room;
            if is_long {
                self.partial_line.extend_from_slice(CUT_MARK);
            }
            if is_whole || is_long {
                self.is_cut = is_long && !is_whole;
                let line = std::mem::take(&mut self.partial_line);
                on_line(&line)?;
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    /// The lines of a read, a long one by its length and its end.
    fn lines(tail: &mut Tail, path: &str) -> Vec<String> {
        let mut seen = Vec::new();
        while tail
            .read(path, |line| {
                let text = String::from_utf8_lossy(line).into_owned();
                let end = text.get(text.len().saturating_sub(CUT_MARK.len())..).unwrap_or_default();
                seen.push(if text.len() > 100 { format!("{}{end}", text.len()) } else { text });
                ControlFlow::Continue(())
            })
            .expect("readable")
        {}
        seen
    }

    #[test]
    fn line_over_its_bound_is_cut_with_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut log = fs::File::create(&path).expect("made");
        let path = path.to_str().expect("text");
        let mut tail = Tail::default();
        let cut = format!("{} [line cut]", LINE_BYTES_MAX + CUT_MARK.len());
        write!(log, "a\n{}\nb\npart", "x".repeat(LINE_BYTES_MAX + 1)).expect("written");
        assert_eq!(lines(&mut tail, path), ["a", &cut, "b"]);
        write!(log, "ial\n{}\n", "y".repeat(LINE_BYTES_MAX)).expect("written");
        assert_eq!(lines(&mut tail, path), ["partial", &format!("{LINE_BYTES_MAX}{}", "y".repeat(11))]);
    }

    #[test]
    fn log_without_a_line_end_takes_no_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let mut log = fs::File::create(&path).expect("made");
        let path = path.to_str().expect("text");
        let mut tail = Tail::default();
        let mut seen = Vec::new();
        for _ in 0..30 {
            log.write_all(&vec![b'x'; 1024 * 1024]).expect("written");
            seen.extend(lines(&mut tail, path));
            assert!(tail.partial_line.capacity() <= 3 * LINE_BYTES_MAX);
        }
        log.write_all(b"\nnext\n").expect("written");
        seen.extend(lines(&mut tail, path));
        assert_eq!(seen, [format!("{} [line cut]", LINE_BYTES_MAX + CUT_MARK.len()), "next".to_owned()]);
    }
}
