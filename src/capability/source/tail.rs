//! Reads lines added to a file, even if it is renamed, replaced, copied or truncated meanwhile.
//!
//! What was read is recognised by the last bytes before the read position, not by the file's number
//! and length alone: a rewritten file may have both.

use std::{
    ffi::OsStr,
    fs::{self, File, Metadata},
    io,
    ops::ControlFlow,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
};

use engine::{hash::first_64_bits, watch::ReadPosition};
use sha2::{Digest, Sha256};

use super::files::{metadata, open_file};

/// Most bytes of one read; the rest is read by the next one.
const LINES_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 64 * 1024;
/// Longest line, in bytes; the rest of a longer one is dropped.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// The end of a line that was cut.
const CUT_MARK: &[u8] = b" [line cut]";
/// Number of bytes before the read position that identify what was read.
const RECENT_BYTES: usize = 1024;
/// Most files of a folder that are compared to find the copy of a truncated one.
const COPIES_MAX: usize = 64;

/// The read position in a file.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// Where to begin; `None` for the beginning of the file.
    from: Option<ReadPosition>,
    current: Option<Reader>,
    /// The file that was renamed, or the copy of the one that was truncated. Its writer may still
    /// have it open.
    previous: Option<Reader>,
}

/// An open file.
#[derive(Debug)]
struct Reader {
    file: File,
    /// Device and inode number.
    number: (u64, u64),
    at: u64,
    /// The last [`RECENT_BYTES`] before `at`.
    recent: Vec<u8>,
    /// The file's time before it was last read: seconds and nanoseconds.
    time: (i64, i64),
    line: Line,
}

/// The beginning of an incomplete line.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    /// Whether the beginning was too long and was passed on; the rest is dropped.
    is_cut: bool,
}

impl Tail {
    /// Starts at this position if the file still has what was before it; reads another file from its
    /// beginning.
    pub(crate) fn after(from: Option<ReadPosition>) -> Self {
        Self { from, ..Self::default() }
    }

    /// Starts at the present end of the file at `path`; reads a file that is created later from its
    /// beginning.
    pub(crate) fn at_end(path: &str) -> io::Result<Self> {
        let Some(mut reader) = Reader::open(path)? else { return Ok(Self::default()) };
        let end = reader.file.metadata()?.len();
        reader.start_at(end)?;
        Ok(Self { current: Some(reader), ..Self::default() })
    }

    /// The position, for [`Tail::after`]; `None` without a file.
    pub(crate) fn position(&self) -> Option<ReadPosition> {
        let reader = self.current.as_ref()?;
        let recent = hash(&reader.recent);
        Some(ReadPosition { inode: reader.number.1, offset: reader.at, recent })
    }

    /// Calls `on_line` with each line that was added since the last call, without its end. Returns
    /// whether there are more to read.
    ///
    /// Shape: an incomplete line waits for its end, or for the end of its file. The rest of a renamed
    /// file, or of the copy of a truncated one, is read first. A rewritten file is read
    /// from its beginning. After `Break`, do not call this again.
    /// Errors: the file cannot be read, or is not a regular file.
    pub(crate) fn read(
        &mut self,
        path: &str,
        mut on_line: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<bool> {
        let mut budget = LINES_BYTES_MAX;
        loop {
            if let Some(previous) = self.previous.as_mut().filter(|previous| previous.is_continued()) {
                match previous.read(&mut budget, &mut on_line)? {
                    ControlFlow::Continue(false) => {}
                    ControlFlow::Continue(true) => return Ok(true),
                    ControlFlow::Break(()) => return Ok(false),
                }
            }
            self.previous = self.previous.take().filter(|previous| previous.may_grow());
            let Some(reader) = &mut self.current else {
                let Some(mut reader) = Reader::open(path)? else { return Ok(false) };
                if let Some(from) = self.from.take() {
                    reader.resume(from)?;
                }
                self.current = Some(reader);
                continue;
            };
            if !reader.is_continued() {
                let copy = reader.take_copy(path);
                let is_break = reader.line.finish(&mut on_line).is_break();
                reader.start_at(0)?;
                if is_break {
                    return Ok(false);
                }
                if copy.is_some() {
                    self.previous = copy;
                    continue;
                }
            }
            match reader.read(&mut budget, &mut on_line)? {
                ControlFlow::Continue(false) => {}
                ControlFlow::Continue(true) => return Ok(true),
                ControlFlow::Break(()) => return Ok(false),
            }
            let is_same = |found: &Metadata| number(found) == reader.number;
            if metadata(path)?.as_ref().is_none_or(is_same) {
                return Ok(false);
            }
            let is_break = reader.line.finish(&mut on_line).is_break();
            self.previous = self.current.take();
            if is_break {
                return Ok(false);
            }
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    first_64_bits(Sha256::new_with_prefix(bytes))
}

fn number(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

impl Reader {
    /// Opens the file at `path`, to be read from its beginning; `None` if nothing exists there.
    fn open(path: &str) -> io::Result<Option<Self>> {
        let Some((file, found)) = open_file(path)? else { return Ok(None) };
        let number = number(&found);
        let (recent, line) = (Vec::new(), Line::default());
        Ok(Some(Self { file, number, at: 0, recent, time: (0, 0), line }))
    }

    fn start_at(&mut self, at: u64) -> io::Result<()> {
        (self.at, self.line) = (at, Line::default());
        self.recent = self.bytes_before(at)?.unwrap_or_default();
        self.time = self.modified()?;
        Ok(())
    }

    /// Moves to a position of an earlier reader, if the file still has what was before it.
    fn resume(&mut self, from: ReadPosition) -> io::Result<()> {
        let recent = self.bytes_before(from.offset)?.filter(|_| from.inode == self.number.1);
        let is_same = recent.is_some_and(|recent| hash(&recent) == from.recent);
        self.start_at(if is_same { from.offset } else { 0 })
    }

    fn modified(&self) -> io::Result<(i64, i64)> {
        self.file.metadata().map(|found| (found.mtime(), found.mtime_nsec()))
    }

    /// The bytes before a position; `None` if the file is shorter.
    fn bytes_before(&self, at: u64) -> io::Result<Option<Vec<u8>>> {
        let count = usize::try_from(at).unwrap_or(usize::MAX).min(RECENT_BYTES);
        let mut bytes = vec![0; count];
        match self.file.read_exact_at(&mut bytes, at - count as u64) {
            Ok(()) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the file still has what was read last.
    fn is_continued(&self) -> bool {
        let found = self.bytes_before(self.at).ok().flatten();
        found.is_some_and(|found| found == self.recent)
    }

    /// Whether a writer may still add lines: the file has a name, and was not rewritten.
    fn may_grow(&self) -> bool {
        self.file.metadata().is_ok_and(|found| found.nlink() > 0) && self.is_continued()
    }

    /// The copy of this file that was made before it was truncated, at the same position, with the
    /// incomplete line. It has a similar name, and is newer than what was read.
    fn take_copy(&mut self, path: &str) -> Option<Self> {
        let path = Path::new(path);
        let (name, stem) = (path.file_name()?, path.file_stem().and_then(OsStr::to_str)?);
        let is_candidate = |entry: &fs::DirEntry| {
            let found = entry.file_name();
            found != name && found.to_str().is_some_and(|found| found.starts_with(stem))
        };
        let entries = fs::read_dir(path.parent()?).ok()?.flatten().filter(is_candidate);
        let mut copy = entries.take(COPIES_MAX).find_map(|entry| {
            let found = entry.metadata().ok().filter(Metadata::is_file)?;
            if found.len() < self.at || (found.ctime(), found.ctime_nsec()) < self.time {
                return None;
            }
            let mut copy = Self::open(entry.path().to_str()?).ok()??;
            copy.start_at(self.at).ok()?;
            (copy.recent == self.recent).then_some(copy)
        })?;
        copy.line = std::mem::take(&mut self.line);
        Some(copy)
    }

    /// Reads to the end of the file; the value of `Continue` is whether `budget` ended before.
    fn read(
        &mut self,
        budget: &mut u64,
        on_line: &mut impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> io::Result<ControlFlow<(), bool>> {
        self.time = self.modified()?;
        let mut piece = vec![0; PIECE_BYTES];
        while *budget > 0 {
            let count = match self.file.read_at(&mut piece, self.at) {
                Ok(0) => return Ok(ControlFlow::Continue(false)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            self.at += count as u64;
            *budget = budget.saturating_sub(count as u64);
            let bytes = piece.get(..count).expect("a read fills at most its buffer");
            let (_, recent) = bytes.split_at(count.saturating_sub(RECENT_BYTES));
            self.recent.extend_from_slice(recent);
            self.recent.drain(..self.recent.len().saturating_sub(RECENT_BYTES));
            if self.line.split(bytes, on_line).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(true))
    }
}

impl Line {
    /// Passes on each line that `bytes` complete, without null bytes at its start: a writer that goes on
    /// at its old position in a truncated file leaves a hole of them.
    fn split(&mut self, bytes: &[u8], on_line: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (mut text, is_whole) = match part.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (part, false),
            };
            if self.is_cut {
                self.is_cut = !is_whole;
                continue;
            }
            if self.bytes.is_empty() {
                while let [0, rest @ ..] = text {
                    text = rest;
                }
            }
            let room = LINE_BYTES_MAX - self.bytes.len();
            self.bytes.extend_from_slice(text.get(..room).unwrap_or(text));
            let is_long = text.len() > room;
            if is_long {
                self.bytes.extend_from_slice(CUT_MARK);
            }
            if is_whole || is_long {
                self.is_cut = is_long && !is_whole;
                on_line(&std::mem::take(&mut self.bytes))?;
            }
        }
        ControlFlow::Continue(())
    }

    /// Passes on an incomplete line whose file has ended.
    fn finish(&mut self, on_line: &mut impl FnMut(&[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        let Self { bytes, is_cut: _ } = std::mem::take(self);
        if bytes.is_empty() { ControlFlow::Continue(()) } else { on_line(&bytes) }
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
            let line = tail.current.as_ref().map(|reader| reader.line.bytes.capacity());
            assert!(line.is_some_and(|bytes| bytes <= 3 * LINE_BYTES_MAX));
        }
        log.write_all(b"\nnext\n").expect("written");
        seen.extend(lines(&mut tail, path));
        assert_eq!(seen, [format!("{} [line cut]", LINE_BYTES_MAX + CUT_MARK.len()), "next".to_owned()]);
    }

    /// What is done to the log `dev.log` of a folder.
    enum Step {
        Append(&'static str),
        /// By another handle, as a shell's `>` does.
        Rewrite(&'static str),
        /// To another name.
        Rename(&'static str),
        Copy(&'static str),
        /// To a file with another name.
        AppendTo(&'static str, &'static str),
        /// Removed, and made again.
        Replace(&'static str),
        /// Truncated; its writer, which does not append, goes on at its old position.
        Cut(&'static str),
        Remove(&'static str),
        /// The lines that are read now.
        Read(&'static [&'static str]),
    }

    use Step::{Append, AppendTo, Copy, Cut, Read, Remove, Rename, Replace, Rewrite};

    /// No line that could have been read is lost, and none is read twice.
    const CHANGES: [(&str, &[Step]); 15] = [
        ("shorter", &[Append("a\nb\n"), Read(&["a", "b"]), Rewrite("c\n"), Read(&["c"])]),
        (
            "longer",
            &[Append("a\nb\n"), Read(&["a", "b"]), Rewrite("> dev\nERROR\n"), Read(&["> dev", "ERROR"])],
        ),
        ("same size", &[Append("one\n"), Read(&["one"]), Rewrite("two\n"), Read(&["two"])]),
        (
            "same start",
            &[
                Append("> dev\nA\n"),
                Read(&["> dev", "A"]),
                Rewrite("> dev\nB\nC\n"),
                Read(&["> dev", "B", "C"]),
            ],
        ),
        ("untouched", &[Append("a\n"), Read(&["a"]), Read(&[]), Append("b\n"), Read(&["b"])]),
        ("last line without end", &[Append("a\nfatal"), Read(&["a"]), Rewrite("b\n"), Read(&["fatal", "b"])]),
        (
            "renamed",
            &[
                Append("a\n"),
                Read(&["a"]),
                Append("b\n"),
                Rename("dev.log.1"),
                Replace("c\n"),
                Read(&["b", "c"]),
            ],
        ),
        (
            "writer goes on with the renamed file",
            &[
                Append("a\n"),
                Read(&["a"]),
                Rename("dev.log.1"),
                Replace("c\n"),
                Read(&["c"]),
                AppendTo("dev.log.1", "late\n"),
                Append("d\n"),
                Read(&["late", "d"]),
                Remove("dev.log.1"),
                Append("e\n"),
                Read(&["e"]),
            ],
        ),
        (
            "copied and truncated",
            &[
                Append("a\nb\n"),
                Read(&["a", "b"]),
                Append("c\nd"),
                Copy("dev.log.1"),
                AppendTo("dev.log.1", "\n"),
                Rewrite("e\n"),
                Read(&["c", "d", "e"]),
                Append("f\n"),
                Copy("dev.log.1"),
                Rewrite(""),
                Read(&["f"]),
                Append("g\n"),
                Read(&["g"]),
            ],
        ),
        (
            "copy with other lines",
            &[
                Append("a\n"),
                Copy("dev.log.bak"),
                AppendTo("dev.log.bak", "old\n"),
                Append("b\n"),
                Read(&["a", "b"]),
                Rewrite("c\n"),
                Read(&["c"]),
            ],
        ),
        (
            "removed and made again",
            &[
                Append("a\nb\n"),
                Read(&["a", "b"]),
                Remove("dev.log"),
                Replace("a\nb\nc\n"),
                Read(&["a", "b", "c"]),
            ],
        ),
        (
            "absent for a time",
            &[
                Append("a\n"),
                Read(&["a"]),
                Rename("x"),
                Read(&[]),
                AppendTo("x", "b\n"),
                Read(&["b"]),
                Replace("c\n"),
                Read(&["c"]),
            ],
        ),
        (
            "writer that does not append",
            &[Append("a\nb\n"), Read(&["a", "b"]), Cut("ERROR\n"), Read(&["ERROR"])],
        ),
        (
            "twice",
            &[
                Append("a\n"),
                Read(&["a"]),
                Rewrite("bb\n"),
                Rewrite("ccc\n"),
                Read(&["ccc"]),
                Append("d\n"),
                Read(&["d"]),
            ],
        ),
        ("emptied", &[Append("a\n"), Read(&["a"]), Rewrite(""), Read(&[]), Append("a\n"), Read(&["a"])]),
    ];

    #[test]
    fn cut_or_rotated_log_loses_no_line() {
        for (change, steps) in CHANGES {
            let folder = tempfile::tempdir().expect("a folder");
            let place = |name: &str| folder.path().join(name);
            let append = |name: &str, text: &str| {
                let mut file =
                    fs::File::options().append(true).create(true).open(place(name)).expect("opened");
                file.write_all(text.as_bytes()).expect("written");
            };
            let path = place("dev.log").to_str().expect("text").to_owned();
            let mut tail = Tail::default();
            for (number, step) in steps.iter().enumerate() {
                match step {
                    Append(text) => append("dev.log", text),
                    AppendTo(name, text) => append(name, text),
                    Rewrite(text) | Replace(text) => fs::write(&path, text).expect("written"),
                    Rename(name) => fs::rename(&path, place(name)).expect("renamed"),
                    Copy(name) => drop(fs::copy(&path, place(name)).expect("copied")),
                    Remove(name) => fs::remove_file(place(name)).expect("removed"),
                    Cut(text) => {
                        let file = fs::File::options().write(true).open(&path).expect("opened");
                        let end = file.metadata().expect("there").len();
                        file.set_len(0).expect("cut");
                        file.write_all_at(text.as_bytes(), end).expect("written");
                    }
                    Read(expected) => {
                        assert_eq!(lines(&mut tail, &path), *expected, "{change}: step {number}")
                    }
                }
            }
        }
    }

    #[test]
    fn position_of_another_content_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        fs::write(&path, "a\nb\n").expect("written");
        let name = path.to_str().expect("text");
        let position = Tail::at_end(name).expect("readable").position();
        assert_eq!(lines(&mut Tail::after(position), name), [""; 0]);
        fs::write(&path, "a\nb\nc\n").expect("written");
        assert_eq!(lines(&mut Tail::after(position), name), ["c"]);
        fs::write(&path, "> dev\nERROR\n").expect("written");
        assert_eq!(lines(&mut Tail::after(position), name), ["> dev", "ERROR"]);
    }
}
