//! Turns a scan report into a journal that can be appended to: keeps and cuts torn ends, and
//! rewrites records that may not be durable.
//!
//! Records of an earlier process can be readable but not on the disk. A successful sync proves
//! nothing if an earlier one failed, because the system then no longer considers the pages dirty.
//! So every record that is not known to be durable is written again and then synced.

use std::{io, sync::Arc};

use crate::{
    Seq,
    log::{
        cursor::{Cursor, Step},
        files::{File, Files, fill_with_zeros},
        idempotency::IdempotencyKeys,
        mark,
        segment::Segment,
        segment_file::{self, HEADER_BYTES, NEXT_NAME, PLAIN_VERSION, UNFINISHED_NAME},
    },
    time::Timestamp,
};

use crate::log::recover::{Cut, OpenError, Recovered, RecoveryHint, ScanReport, Scanner, Torn};

/// The largest first segment of a journal, in bytes; small, so that the first start does not wait
/// for the disk.
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// How much is rewritten or copied at a time, in bytes.
const COPY_BYTES: usize = 1 << 20;

/// Cuts, rewrites or creates the files, so that the journal can continue after a scan; `keys` are
/// the known idempotency keys.
pub(crate) fn apply(
    files: &dyn Files,
    segment_bytes: u64,
    report: ScanReport,
    mut keys: IdempotencyKeys,
) -> Result<Recovered, OpenError> {
    let scanner = Scanner::new(files, &|_| None, RecoveryHint::default());
    let ScanReport { mut segments, mut scans, next, torn, dropped, durable, marked } = report;
    if segments.is_empty() {
        return scanner.create(segment_bytes);
    }
    let mut cuts = Vec::new();
    if let Some(dropped) = dropped {
        cuts.push(scanner.drop_next(dropped)?);
    }
    if let Some((next, scan)) = next {
        if let Some(full) = segments.last() {
            scanner.make_durable(&full.name(), full, durable)?;
        }
        let name = next.name();
        files.rename(NEXT_NAME, &name).map_err(|source| scanner.failed("name", &name, source))?;
        segments.push(Arc::new(next));
        scans.insert(0, scan);
    }
    let last = scans.first().map_or(Seq::ZERO, |scan| scan.expected.previous());
    match segments.last() {
        // A sealed segment takes no appends; a repair can leave one at the end.
        Some(tail) if tail.seal().is_some() => {
            segments.push(Arc::new(scanner.begin(last.next(), segment_bytes)?));
        }
        Some(tail) => {
            if let Some(torn) = torn {
                cuts.push(scanner.cut(tail, torn)?);
            }
            scanner.make_durable(&tail.name(), tail, durable)?;
        }
        None => {}
    }
    files.sync_dir().map_err(|source| scanner.failed("sync", "", source))?;
    scanner.clean()?;
    for segment in &segments {
        segment.set_named();
    }
    let time = scans.iter().map(|scan| scan.time).max().unwrap_or_default();
    for scan in scans.into_iter().rev() {
        keys.remember_all(scan.keys);
    }
    Ok(Recovered { segments, last, time, keys, cuts, marked })
}

impl Scanner<'_> {
    /// Creates a journal.
    fn create(&self, segment_bytes: u64) -> Result<Recovered, OpenError> {
        // A mark without segments is of an earlier journal.
        mark::remove(self.files).map_err(|source| self.failed("remove", mark::MARK_NAME, source))?;
        let segment = self.begin(Seq::ZERO.next(), segment_bytes)?;
        segment.set_named();
        Ok(Recovered {
            segments: vec![Arc::new(segment)],
            last: Seq::ZERO,
            time: Timestamp::ZERO,
            keys: IdempotencyKeys::default(),
            cuts: Vec::new(),
            marked: Seq::ZERO,
        })
    }

    /// Creates the segment that begins with `first`.
    fn begin(&self, first: Seq, segment_bytes: u64) -> Result<Segment, OpenError> {
        let name = segment_file::name_of(first);
        segment_file::for_new_segment(self.files)
            .and_then(|id| segment_file::prepare(self.files, segment_bytes.min(FIRST_SEGMENT_BYTES), id))
            .and_then(|file| self.files.rename(NEXT_NAME, &name).map(|()| file))
            .and_then(|file| self.files.sync_dir().map(|()| Segment::new(first, file)))
            .map_err(|source| self.failed("create", &name, source))
    }

    /// Removes an unfinished segment that a crash left.
    fn clean(&self) -> Result<(), OpenError> {
        match self.files.remove(UNFINISHED_NAME) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", UNFINISHED_NAME, source))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Removes a prepared file that does not continue the journal; keeps it if it has a good
    /// record.
    fn drop_next(&self, torn: Torn) -> Result<Cut, OpenError> {
        let Torn { mut cut, has_records, .. } = torn;
        if has_records {
            let kept = free_name(self.files, NEXT_NAME, "cut")
                .and_then(|kept| self.files.rename(NEXT_NAME, &kept).map(|()| kept))
                .map_err(|source| self.failed("rename", NEXT_NAME, source))?;
            cut.kept = Some(self.files.path(&kept));
        } else {
            self.files.remove(NEXT_NAME).map_err(|source| self.failed("remove", NEXT_NAME, source))?;
        }
        tracing::warn!(%cut, "a file continued lost records");
        Ok(cut)
    }

    /// Overwrites the torn end with zeros, so that no old record can follow the next append; keeps
    /// a copy if it has a good record.
    fn cut(&self, tail: &Segment, torn: Torn) -> Result<Cut, OpenError> {
        let (name, file) = (tail.name(), tail.file.as_ref());
        let Torn { mut cut, has_records, .. } = torn;
        // The file may have been renamed after the scan.
        cut.path = self.files.path(&name);
        let end = cut.offset + cut.bytes;
        if has_records {
            let kept = free_name(self.files, &name, "cut")
                .and_then(|kept| self.keep(file, (cut.offset, end), &kept).map(|()| kept))
                .map_err(|source| self.failed("copy the torn end of", &name, source))?;
            cut.kept = Some(self.files.path(&kept));
        }
        fill_with_zeros(file, cut.offset, end).map_err(|source| self.failed("write", &name, source))?;
        tracing::warn!(%cut, "the journal has a torn end");
        Ok(cut)
    }

    /// Copies part of a file, durably, to a new file with a segment header.
    fn keep(&self, file: &dyn File, (begin, end): (u64, u64), kept: &str) -> io::Result<()> {
        let copy = self.files.create(kept)?;
        copy.write_at(&header_again(self.files, file)?, 0)?;
        copy_part(file, (begin, end), copy.as_ref(), HEADER_BYTES)?;
        copy.sync_data()?;
        self.files.sync_dir()
    }

    /// Rewrites the records after `durable` unchanged, and syncs the file.
    fn make_durable(&self, name: &str, segment: &Segment, durable: Seq) -> Result<(), OpenError> {
        let file = segment.file.as_ref();
        if segment.seal().is_some() {
            return Ok(());
        }
        let begin = offset_after(segment, durable).map_err(|source| self.failed("read", name, source))?;
        let written = match begin {
            Some(begin) => header_again(self.files, file)
                .and_then(|header| file.write_at(&header, 0))
                .and_then(|()| copy_part(file, (begin, segment.end()), file, begin)),
            None => Ok(()),
        };
        written.map_err(|source| self.failed("write", name, source))?;
        file.sync_data().map_err(|source| self.failed("sync", name, source))
    }
}

/// The header of an unsealed file, with its own identity, or the journal's if that is damaged.
fn header_again(files: &dyn Files, file: &dyn File) -> io::Result<[u8; HEADER_BYTES as usize]> {
    let id = match segment_file::id_of(file)? {
        Some(id) => id,
        None => segment_file::for_new_segment(files)?,
    };
    Ok(segment_file::header(PLAIN_VERSION, id))
}

/// The offset of the first record after `durable` in a segment; `None` when there is none.
fn offset_after(segment: &Segment, durable: Seq) -> io::Result<Option<u64>> {
    let wanted = durable.next().max(segment.first);
    let mut cursor = Cursor::new(Arc::clone(&segment.file), segment.place_before(wanted)?.1);
    loop {
        let offset = cursor.offset();
        match cursor.step() {
            Step::Record(entry) if entry.seq >= wanted => return Ok(Some(offset)),
            Step::Record(_) => {}
            Step::Short if cursor.refill(segment.end())? => {}
            Step::Short | Step::End | Step::Damaged(_) => return Ok(None),
        }
    }
}

/// The first free name of the form `name.why-number`.
pub(crate) fn free_name(files: &dyn Files, name: &str, why: &str) -> io::Result<String> {
    let names = files.list()?;
    let mut wanted = (1_u32..).map(|number| format!("{name}.{why}-{number}"));
    wanted.find(|name| !names.contains(name)).ok_or(io::ErrorKind::AlreadyExists.into())
}

/// Copies the bytes from `begin` to `end` to `offset` of the same or another file.
pub(crate) fn copy_part(
    from: &dyn File,
    (begin, end): (u64, u64),
    to: &dyn File,
    offset: u64,
) -> io::Result<()> {
    let mut buffer =
        vec![0; COPY_BYTES.min(usize::try_from(end.saturating_sub(begin)).unwrap_or(COPY_BYTES))];
    let mut at = begin;
    while at < end {
        let wanted = buffer.len().min(usize::try_from(end - at).unwrap_or(COPY_BYTES));
        let space = buffer.get_mut(..wanted).expect("no more is wanted than fits");
        let count = from.read_at(space, at)?;
        let bytes = space.get(..count).expect("no more is read than fits");
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_at(bytes, offset + (at - begin))?;
        at += count as u64;
    }
    Ok(())
}
