//! What is found at the start: scans what has to be, and cuts the torn end that a crash may leave.
//!
//! A sealed segment is taken at its seal's word, unless its publish keys are needed; every other one is read through.
//!
//! Only the last segment, or the unnamed file after it, can be torn, since a file gets a segment's name when all before it is
//! durable. There, everything after the last good record is overwritten with zeros, so that nothing old can follow what is
//! appended next. Anything bad elsewhere is a reason not to start. Nothing is changed before everything was looked at.

use std::{collections::VecDeque, io, path::PathBuf, sync::Arc};

use crate::{
    event::Seq,
    journal::{
        cursor::{Cursor, Step},
        files::{Files, fill_with_zeros},
        packed::{PackedFile, SealDamage},
        published::{PUBLISHED_KEYS_MAX, PublishedKey, PublishedKeys},
        record::{Damage, Record},
        segment::{self, HEADER_BYTES, Header, NEXT_NAME, Segment, UNFINISHED_NAME},
    },
    time::Timestamp,
};

/// How large the first segment of a journal is at most, in bytes; small, so that the first start does not wait for the disk.
const FIRST_SEGMENT_BYTES: u64 = 1 << 20;

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error("open the journal: {operation} {}", path.display())]
    Io {
        /// What failed.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A newer program wrote it.
    #[error(
        "open the journal: {} has format {found}, this program reads up to {}; start the newer program again",
        path.display(), segment::PACKED_VERSION
    )]
    Newer {
        /// Which file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A file has a segment's name and does not begin as one.
    #[error(
        "open the journal: {} is not a segment; `aside journal verify` lists what is damaged, \
         `aside journal repair` keeps what is good", path.display()
    )]
    NotASegment {
        /// Which file.
        path: PathBuf,
    },
    /// A record that must be good is not.
    #[error(
        "open the journal: the record at byte {offset} of {} is damaged: {damage}; `aside journal verify` lists what is \
         damaged, `aside journal repair` keeps what is good", path.display()
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Where in it the record begins, in bytes.
        offset: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// The caller knows records that are not there, such as a snapshot of what a power loss took.
    #[error("open the journal: it ends with record {last}, and what is known of it goes up to {known}")]
    Behind {
        /// The last record of the journal.
        last: Seq,
        /// The last one that the caller knows.
        known: Seq,
    },
    /// A sealed segment is not what was sealed.
    #[error(
        "open the journal: {} cannot be read: {damage}; `aside journal verify` lists what is damaged, \
         `aside journal repair` keeps what is good", path.display()
    )]
    Sealed {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        damage: SealDamage,
    },
    /// A thread could not be started.
    #[error("open the journal: start a thread")]
    Thread(#[source] io::Error),
}

/// What the caller knows of the journal before it is opened, such as from a snapshot.
#[derive(Debug)]
pub struct Known {
    /// The last record that is known.
    pub last: KnownRecord,
    /// The publish keys of the records up to it.
    pub published: PublishedKeys,
}

/// A record of which it is known that the journal had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KnownRecord {
    /// Its position; [`Seq::ZERO`] when nothing is known.
    pub seq: Seq,
    /// Where it is; what is before it in its segment is then not read, if it is there.
    pub place: Option<RecordPlace>,
}

/// Where a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordPlace {
    /// The first record of its segment.
    pub segment: Seq,
    /// Where in the segment it begins, in bytes, whether or not that was packed since.
    pub offset: u64,
}

impl Known {
    /// Nothing is known.
    pub fn nothing() -> Self {
        Self { last: KnownRecord::default(), published: PublishedKeys::new(PUBLISHED_KEYS_MAX) }
    }
}

/// A torn end that was cut off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the torn end of {} was cut at byte {offset}: {bytes} bytes of an append that nobody was answered for", path.display())]
pub struct Cut {
    /// In which file.
    pub path: PathBuf,
    /// Where in it the last good record ends, in bytes.
    pub offset: u64,
    /// How many bytes after it were not preallocated space any more.
    pub bytes: u64,
}

/// What was found, with all torn ends cut.
#[derive(Debug)]
pub(super) struct Recovered {
    /// Never empty; the last one is where appending goes on.
    pub(super) segments: Vec<Arc<Segment>>,
    pub(super) last: Seq,
    pub(super) time: Timestamp,
    pub(super) published: PublishedKeys,
    pub(super) cuts: Vec<Cut>,
}

/// What the journal asks its caller about a record that is not known yet: its publish key, if it has one.
pub type KeyOf<'a> = dyn Fn(Record<'_>) -> Option<u128> + 'a;

/// What a scan of one file found; where its last good record ends is in the segment.
#[derive(Debug)]
pub(super) struct Scan {
    /// The record that would have come next.
    pub(super) expected: Seq,
    time: Timestamp,
    /// What is in its place, unless that is preallocated space.
    damage: Option<Damage>,
    /// The newest publish keys, in order.
    keys: VecDeque<PublishedKey>,
}

/// What a look into the folder of a journal found. Nothing was changed for it.
#[derive(Debug, Default)]
pub struct Found {
    /// In order; none where no journal was begun.
    segments: Vec<Arc<Segment>>,
    /// Of the same, the last one first.
    scans: Vec<Scan>,
    /// The file that is to follow, if it was finished.
    next: Option<(Segment, Scan)>,
}

impl Found {
    /// The last record; [`Seq::ZERO`] when there is none.
    pub fn last(&self) -> Seq {
        let last_scan = self.next.as_ref().map(|(_, scan)| scan).or(self.scans.first());
        last_scan.map_or(Seq::ZERO, |scan| scan.expected.previous())
    }

    fn check_reach(self, known: KnownRecord) -> Result<Self, OpenError> {
        let last = self.last();
        if known.seq > last { Err(OpenError::Behind { last, known: known.seq }) } else { Ok(self) }
    }
}

/// Looks into a folder.
///
/// Shape: scans the newest segment first, so that `key_of` is asked only until enough keys are found.
pub(super) fn look(files: &dyn Files, key_of: &KeyOf<'_>, known: KnownRecord) -> Result<Found, OpenError> {
    let mut scanner = Scanner::new(files, key_of, known);
    let (firsts, has_next) = scanner.list()?;
    let Some((last_first, full_firsts)) = firsts.split_last() else {
        return Found::default().check_reach(known);
    };

    let (tail, tail_scan) = scanner.scan_last(*last_first)?;
    let next = if has_next { scanner.scan_next(tail_scan.expected)? } else { None };
    let mut segments = vec![Arc::new(tail)];
    let mut scans = vec![tail_scan];
    let mut following = *last_first;
    for first in full_firsts.iter().rev() {
        let (segment, scan) = scanner.scan_full(*first, following)?;
        segments.insert(0, Arc::new(segment));
        scans.push(scan);
        following = *first;
    }

    Found { segments, scans, next }.check_reach(known)
}

/// Cuts or creates what is needed to go on from what was found; `published` are the keys of what was known.
pub(super) fn settle(
    files: &dyn Files,
    segment_bytes: u64,
    found: Found,
    mut published: PublishedKeys,
) -> Result<Recovered, OpenError> {
    let scanner = Scanner::new(files, &|_| None, KnownRecord::default());
    let Found { mut segments, mut scans, next } = found;
    if segments.is_empty() {
        return scanner.create(segment_bytes);
    }
    let mut cuts = Vec::new();
    if let Some((next, scan)) = next {
        if scan.expected > next.first {
            scanner.adopt(&segments, &next)?;
            segments.push(Arc::new(next));
            scans.insert(0, scan);
        } else {
            cuts.extend(scanner.discard(&next)?);
        }
    }
    let last = scans.first().map_or(Seq::ZERO, |scan| scan.expected.previous());
    match segments.last() {
        // What is sealed takes nothing more; a repair leaves such an end.
        Some(tail) if tail.seal().is_some() => {
            segments.push(Arc::new(scanner.begin(last.next(), segment_bytes)?));
        }
        Some(tail) => cuts.extend(scanner.cut_torn_end(tail)?),
        None => {}
    }
    scanner.clean()?;
    for segment in &segments {
        segment.set_named();
    }
    let time = scans.iter().map(|scan| scan.time).max().unwrap_or_default();
    for mut scan in scans.into_iter().rev() {
        published.remember_all(scan.keys.make_contiguous());
    }
    Ok(Recovered { segments, last, time, published, cuts })
}

impl Scan {
    fn of_nothing(expected: Seq) -> Self {
        Self { expected, time: Timestamp::ZERO, damage: None, keys: VecDeque::new() }
    }
}

/// Opens and scans files.
pub(super) struct Scanner<'a> {
    files: &'a dyn Files,
    key_of: &'a KeyOf<'a>,
    /// The records up to this one are not asked for their keys.
    known: KnownRecord,
    keys_left: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(files: &'a dyn Files, key_of: &'a KeyOf<'a>, known: KnownRecord) -> Self {
        Self { files, key_of, known, keys_left: PUBLISHED_KEYS_MAX }
    }

    /// The first records of all segments, in order, and whether there is a file that is to follow them.
    pub(super) fn list(&self) -> Result<(Vec<Seq>, bool), OpenError> {
        let names = self.files.list().map_err(|source| self.failed("list", "", source))?;
        let mut firsts: Vec<Seq> = names.iter().filter_map(|name| segment::first_of(name)).collect();
        firsts.sort();
        Ok((firsts, names.iter().any(|name| name == NEXT_NAME)))
    }

    /// Begins a journal.
    fn create(&self, segment_bytes: u64) -> Result<Recovered, OpenError> {
        let segment = self.begin(Seq::ZERO.next(), segment_bytes)?;
        segment.set_named();
        Ok(Recovered {
            segments: vec![Arc::new(segment)],
            last: Seq::ZERO,
            time: Timestamp::ZERO,
            published: PublishedKeys::new(PUBLISHED_KEYS_MAX),
            cuts: Vec::new(),
        })
    }

    /// Makes the segment that begins with `first`.
    fn begin(&self, first: Seq, segment_bytes: u64) -> Result<Segment, OpenError> {
        let name = segment::name_of(first);
        segment::prepare(self.files, segment_bytes.min(FIRST_SEGMENT_BYTES))
            .and_then(|file| self.files.rename(NEXT_NAME, &name).map(|()| file))
            .and_then(|file| self.files.sync_dir().map(|()| Segment::new(first, file)))
            .map_err(|source| self.failed("create", &name, source))
    }

    /// Removes what a crash left of a segment that was being packed.
    fn clean(&self) -> Result<(), OpenError> {
        match self.files.remove(UNFINISHED_NAME) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => {
                Err(self.failed("remove", UNFINISHED_NAME, source))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn open(&self, name: &str, first: Seq) -> Result<Segment, OpenError> {
        let file = self.files.open(name).map_err(|source| self.failed("open", name, source))?;
        match segment::header_of(file.as_ref()).map_err(|source| self.failed("read", name, source))? {
            Header::Plain => Ok(Segment::new(first, file)),
            Header::Packed => {
                let packed = PackedFile::open(file).map_err(|source| self.failed("read", name, source))?;
                if packed.seal.first == first {
                    return Ok(Segment::sealed(packed));
                }
                let damage = Damage::Order { expected: first, found: packed.seal.first };
                Err(OpenError::Damaged { path: self.files.path(name), offset: HEADER_BYTES, damage })
            }
            Header::Newer(found) => Err(OpenError::Newer { path: self.files.path(name), found }),
            Header::Other => Err(OpenError::NotASegment { path: self.files.path(name) }),
        }
    }

    /// Scans the file that has no segment's name, as if it followed; `None` when it was never finished.
    fn scan_next(&mut self, first: Seq) -> Result<Option<(Segment, Scan)>, OpenError> {
        let next = match self.open(NEXT_NAME, first) {
            Err(OpenError::NotASegment { .. }) => return Ok(None),
            next => next?,
        };
        let scan = self.scan(NEXT_NAME, &next, None)?;
        Ok(Some((next, scan)))
    }

    /// Scans the last segment, where only what a crash leaves is excused.
    pub(super) fn scan_last(&mut self, first: Seq) -> Result<(Segment, Scan), OpenError> {
        let name = segment::name_of(first);
        let segment = self.open(&name, first)?;
        let scan = self.scan(&name, &segment, None)?;
        match scan.damage {
            Some(damage @ (Damage::Version(_) | Damage::Order { .. })) => {
                Err(OpenError::Damaged { path: self.files.path(&name), offset: segment.end(), damage })
            }
            None | Some(Damage::Length(_) | Damage::Checksum | Damage::Missing { .. }) => Ok((segment, scan)),
        }
    }

    /// Scans a segment that others follow, which has every record up to the first of the following one.
    pub(super) fn scan_full(&mut self, first: Seq, following: Seq) -> Result<(Segment, Scan), OpenError> {
        let name = segment::name_of(first);
        let segment = self.open(&name, first)?;
        let scan = self.scan(&name, &segment, Some(following))?;
        if scan.expected == following {
            return Ok((segment, scan));
        }
        let damage = scan.damage.unwrap_or(Damage::Missing { expected: scan.expected });
        Err(OpenError::Damaged { path: self.files.path(&name), offset: segment.end(), damage })
    }

    fn scan(&mut self, name: &str, segment: &Segment, until: Option<Seq>) -> Result<Scan, OpenError> {
        if let Some(seal) = segment.seal().filter(|seal| self.keys_left == 0 || seal.last <= self.known.seq) {
            let (expected, time) = (seal.last.next(), seal.time);
            return Ok(Scan { time, ..Scan::of_nothing(expected) });
        }
        let failed = |source| self.failed("read", name, source);
        let (mut cursor, mut scan) = match self.known_begin(segment).map_err(failed)? {
            Some(begin) => begin,
            None => (Cursor::new(Arc::clone(&segment.file), HEADER_BYTES), Scan::of_nothing(segment.first)),
        };
        while until != Some(scan.expected) {
            let expected = scan.expected;
            match cursor.step() {
                Step::Record(entry) if entry.seq == expected => {
                    if self.keys_left > 0 && expected > self.known.seq {
                        let key = (self.key_of)(cursor.record(&entry));
                        scan.keys.extend(key.map(|key| PublishedKey::new(key, expected)));
                        if scan.keys.len() > self.keys_left {
                            scan.keys.pop_front();
                        }
                    }
                    scan.time = scan.time.max(entry.time);
                    if segment.seal().is_none() {
                        segment.note_place(expected, segment.end());
                        segment.set_end(cursor.offset(), scan.time);
                    }
                    scan.expected = expected.next();
                }
                Step::Record(entry) => {
                    scan.damage = Some(Damage::Order { expected, found: entry.seq });
                    break;
                }
                Step::Short => {
                    if !cursor.refill(u64::MAX).map_err(|source| self.failed("read", name, source))? {
                        scan.damage = (!cursor.rest_is_zero()).then_some(Damage::Missing { expected });
                        break;
                    }
                }
                Step::End => break,
                Step::Damaged(damage) => {
                    scan.damage = Some(damage);
                    break;
                }
            }
        }
        self.keys_left -= scan.keys.len();
        Ok(scan)
    }

    /// What a scan of `segment` up to the known record would come to, if that is where it is said to be.
    fn known_begin(&self, segment: &Segment) -> io::Result<Option<(Cursor, Scan)>> {
        let place = self.known.place.filter(|place| place.segment == segment.first);
        let Some(place) = place else { return Ok(None) };
        let mut cursor = Cursor::new(Arc::clone(&segment.file), place.offset);
        while cursor.refill(u64::MAX)? {
            match cursor.step() {
                Step::Record(entry) if entry.seq == self.known.seq => {
                    segment.note_place(entry.seq, place.offset);
                    if segment.seal().is_none() {
                        segment.set_end(cursor.offset(), entry.time);
                    }
                    let scan = Scan { time: entry.time, ..Scan::of_nothing(entry.seq.next()) };
                    return Ok(Some((cursor, scan)));
                }
                Step::Short => {}
                Step::Record(_) | Step::End | Step::Damaged(_) => break,
            }
        }
        Ok(None)
    }

    /// Gives the unnamed file, which continues the last segment, its name.
    fn adopt(&self, segments: &[Arc<Segment>], next: &Segment) -> Result<(), OpenError> {
        let name = next.name();
        let full = segments.last().map_or(Ok(()), |full| full.file.sync_data());
        full.and_then(|()| self.files.rename(NEXT_NAME, &name))
            .map_err(|source| self.failed("name", &name, source))
    }

    /// Removes the unnamed file if it begins with something: that continues what was lost.
    ///
    /// Shape: one that begins with zeros is not read further here; whoever prepares it looks at all of it before it is used.
    fn discard(&self, next: &Segment) -> Result<Option<Cut>, OpenError> {
        let failed = |source| self.failed("read", NEXT_NAME, source);
        if !segment::begins_used(next.file.as_ref()).map_err(failed)? {
            return Ok(None);
        }
        let used = segment::used_end(next.file.as_ref(), HEADER_BYTES);
        let Some(end) = used.map_err(|source| self.failed("read", NEXT_NAME, source))? else {
            return Ok(None);
        };
        let cut = Cut { path: self.files.path(NEXT_NAME), offset: HEADER_BYTES, bytes: end - HEADER_BYTES };
        tracing::warn!(path = %cut.path.display(), cut.bytes, "dropped a segment that continued what was lost");
        self.files.remove(NEXT_NAME).map_err(|source| self.failed("remove", NEXT_NAME, source))?;
        Ok(Some(cut))
    }

    /// Overwrites what follows the last good record, and makes durable what a killed process had only written.
    fn cut_torn_end(&self, tail: &Segment) -> Result<Option<Cut>, OpenError> {
        let (name, file) = (tail.name(), tail.file.as_ref());
        let torn = self.torn_end(tail)?;
        if let Some(cut) = &torn {
            tracing::warn!(path = %cut.path.display(), cut.offset, cut.bytes, "cut the torn end of the journal");
            fill_with_zeros(file, cut.offset, cut.offset + cut.bytes)
                .map_err(|source| self.failed("write", &name, source))?;
        }
        file.sync_data()
            .and_then(|()| self.files.sync_dir())
            .map_err(|source| self.failed("sync", &name, source))?;
        Ok(torn)
    }

    /// What follows the last good record of the last segment and is not preallocated space.
    pub(super) fn torn_end(&self, tail: &Segment) -> Result<Option<Cut>, OpenError> {
        let (name, offset) = (tail.name(), tail.end());
        let used = segment::used_end(tail.file.as_ref(), offset)
            .map_err(|source| self.failed("read", &name, source))?;
        Ok(used.map(|end| Cut { path: self.files.path(&name), offset, bytes: end - offset }))
    }

    fn failed(&self, operation: &'static str, name: &str, source: io::Error) -> OpenError {
        let path = self.files.path(name);
        match source.get_ref().and_then(|inner| inner.downcast_ref::<SealDamage>()) {
            Some(damage) => OpenError::Sealed { path, damage: *damage },
            None => OpenError::Io { operation, path, source },
        }
    }
}

#[cfg(test)]
mod tests;
