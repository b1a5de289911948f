//! The files of a journal, held open for a copy: they stay readable when they are deleted or sealed
//! meanwhile.

use std::{io, sync::Arc};

use crate::{
    Seq,
    log::{
        cursor::{Cursor, Step},
        files::{File, Files},
        sealed::SealedFile,
        segment_file::{self, HEADER_BYTES, Header},
    },
    maintenance::verify::{VerifyError, failed},
};

/// The segments of a journal that may still be written, without gaps.
#[derive(Debug)]
pub struct Pinned {
    segments: Vec<Part>,
}

/// One file of the copy.
#[derive(Debug)]
pub struct Part {
    name: String,
    first: Seq,
    file: Arc<dyn File>,
    last: Seq,
    bytes: u64,
}

/// Reads a part from beginning to end.
#[derive(Debug)]
pub struct PartReader<'a> {
    part: &'a Part,
    offset: u64,
}

impl Pinned {
    /// Opens all present segments.
    ///
    /// Errors: the folder or a file cannot be read.
    pub fn open(files: &dyn Files) -> Result<Self, VerifyError> {
        let mut pinned = Self { segments: Vec::new() };
        pinned.open_newer(files)?;
        Ok(pinned)
    }

    /// Opens segments that were added since the last call.
    ///
    /// Errors: the folder or a file cannot be read.
    pub fn open_newer(&mut self, files: &dyn Files) -> Result<(), VerifyError> {
        let names = files.list().map_err(|source| failed(files, "", source))?;
        let newest = self.segments.last().map_or(Seq::ZERO, |part| part.first);
        let mut firsts: Vec<Seq> = names.iter().filter_map(|name| segment_file::first_of(name)).collect();
        firsts.sort();
        for first in firsts.into_iter().filter(|first| *first > newest) {
            let name = segment_file::name_of(first);
            match files.open(&name) {
                Ok(file) => self.segments.push(Part { name, first, file, last: first.previous(), bytes: 0 }),
                // A running daemon may delete the oldest segments. The ones before them are then
                // not needed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => self.segments.clear(),
                Err(source) => return Err(failed(files, &name, source)),
            }
        }
        Ok(())
    }

    /// The files to copy; the last one up to its last complete record at this moment.
    ///
    /// Errors: a file cannot be read.
    pub fn parts(mut self, files: &dyn Files) -> Result<Vec<Part>, VerifyError> {
        for part in &mut self.segments {
            part.measure().map_err(|source| failed(files, &part.name, source))?;
        }
        let mut pairs = self.segments.iter().zip(self.segments.iter().skip(1));
        if let Some((part, _)) = pairs.find(|(part, following)| part.last.next() != following.first) {
            let missing =
                format!("record {} is damaged; `aside journal verify` has the details", part.last.next());
            return Err(failed(files, &part.name, io::Error::new(io::ErrorKind::InvalidData, missing)));
        }
        Ok(self.segments)
    }
}

impl Part {
    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How much of the file to copy, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The last record; the position before the first when there is none.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// A reader of its bytes.
    pub fn reader(&self) -> PartReader<'_> {
        PartReader { part: self, offset: 0 }
    }

    /// Finds the end of the last complete record; preallocated space is not copied.
    fn measure(&mut self) -> io::Result<()> {
        if segment_file::header_of(self.file.as_ref())? == Header::Sealed {
            self.bytes = self.file.size()?;
            self.last = SealedFile::open(Arc::clone(&self.file))?.seal.last;
            return Ok(());
        }
        let mut cursor = Cursor::new(Arc::clone(&self.file), HEADER_BYTES);
        loop {
            match cursor.step() {
                Step::Record(entry) => self.last = entry.seq,
                Step::Short if cursor.refill(u64::MAX)? => {}
                Step::Short | Step::End | Step::Damaged(_) => break,
            }
        }
        self.bytes = cursor.offset();
        Ok(())
    }
}

impl io::Read for PartReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.part.bytes - self.offset).unwrap_or(usize::MAX);
        let size = left.min(buffer.len());
        let count = self
            .part
            .file
            .read_at(buffer.get_mut(..size).expect("no more is read than fits"), self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::testing::*;
    use crate::{Level, log::memory::MemoryFiles};

    #[test]
    fn pinned_copy_includes_segments_deleted_or_sealed_meanwhile() {
        let files = filled(40, false);
        let mut pinned = Pinned::open(&files).expect("readable");
        let journal = open_sealing(&files).journal;
        assert!(journal.forget_before(Seq(20)).expect("deleted") > 0);
        journal.append_blocking(batch_of(41..=80), Level::Synced).expect("appended");
        pinned.open_newer(&files).expect("readable");
        let copy = MemoryFiles::new();
        for part in pinned.parts(&files).expect("whole") {
            let mut bytes = Vec::new();
            part.reader().read_to_end(&mut bytes).expect("read");
            assert_eq!(bytes.len() as u64, part.bytes());
            copy.create(part.name()).expect("created").write_at(&bytes, 0).expect("written");
        }
        let copied = open(&copy);
        assert_eq!((copied.cuts.len(), numbers(&copied.journal)), (0, (1..=80).collect()));
    }

    #[test]
    fn copying_fails_on_a_damaged_record() {
        let files = filled(40, false);
        let first = segment_file::name_of(Seq(1));
        files.open(&first).expect("there").write_at(b"!", 50).expect("written");
        let error = Pinned::open(&files).expect("readable").parts(&files).expect_err("damaged");
        assert_eq!(error.to_string(), format!("read memory/{first}"));
        assert_eq!(error.source.to_string(), "record 1 is damaged; `aside journal verify` has the details");
    }
}
