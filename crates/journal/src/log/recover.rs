//! Recovery: scans the needed files, and reports torn ends and damage.
//!
//! A sealed segment is trusted by its seal, and a full one by its last record if the caller knows
//! all its records, unless their idempotency keys are needed. Every other segment is read
//! completely.
//!
//! Only the last segment, or the prepared file after it, can be torn, because a file is named as a
//! segment only when all records before it are durable. A bad record there is a torn end only if
//! there is no evidence that it was durable: no later record that states it, no mark of a closed
//! journal, and no hint of the caller. Every other bad record is damage, and the journal does not
//! open. Nothing is changed during the scan; `apply` makes the changes.

pub(crate) mod apply;
pub(crate) mod read_only;

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    Seq,
    log::{
        cursor::{Cursor, READ_BYTES, Step},
        damaged,
        files::Files,
        idempotency::{IDEMPOTENCY_KEYS_MAX, IdempotencyKey, IdempotencyKeys},
        mark,
        reader::RecordBuf,
        record::{Damage, Record},
        sealed::{SealDamage, SealedFile},
        segment::Segment,
        segment_file::{self, HEADER_BYTES, Header, NEXT_NAME},
    },
    time::Timestamp,
};

/// Why a journal cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file operation failed.
    #[error("open the journal: {operation} {}", path.display())]
    Io {
        /// The failed operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A newer program wrote it.
    #[error(
        "open the journal: {} has format {found}, this program reads up to {}; start the newer program again",
        path.display(), segment_file::SEALED_VERSION
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A newer program wrote a record.
    #[error(
        "open the journal: the record at byte {offset} of {} cannot be read: {damage}; start the newer program again",
        path.display()
    )]
    NewerRecord {
        /// The file.
        path: PathBuf,
        /// The offset of the record, in bytes.
        offset: u64,
        /// Its version.
        damage: Damage,
    },
    /// A file has a segment's name but no valid header.
    #[error(
        "open the journal: {} is not a segment; `aside journal verify` lists the damage, \
         `aside journal repair` keeps the valid records", path.display()
    )]
    NotASegment {
        /// The file.
        path: PathBuf,
    },
    /// A segment is of another journal.
    #[error(
        "open the journal: {} is a segment of another journal; put the right file there, or let `aside journal repair` \
         leave its records out", path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A record that must be valid is damaged.
    #[error(
        "open the journal: the record at byte {offset} of {} is damaged: {damage}; `aside journal verify` lists the \
         damage, `aside journal repair` keeps the valid records", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The offset of the record, in bytes.
        offset: u64,
        /// The damage.
        damage: Damage,
    },
    /// The journal ends before a record that the caller knows. For example, a snapshot is newer
    /// than the records that a power loss left.
    #[error("open the journal: it ends with record {last}, but record {known} is known to exist")]
    Behind {
        /// The last record of the journal.
        last: Seq,
        /// The last record that the caller knows.
        known: Seq,
    },
    /// A sealed segment does not match its seal.
    #[error(
        "open the journal: {} cannot be read: {damage}; `aside journal verify` lists the damage, \
         `aside journal repair` keeps the valid records", path.display()
    )]
    Sealed {
        /// The file.
        path: PathBuf,
        /// The damage.
        damage: SealDamage,
    },
    /// A thread could not be started.
    #[error("open the journal: start a thread")]
    Thread(#[source] io::Error),
}

/// The caller's facts about the journal before it is opened, such as from a snapshot; empty by
/// default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecoveryHint {
    /// A durable record of the journal.
    pub seq: Seq,
    /// The caller has the idempotency keys of the records up to this one.
    pub keys_upto: Seq,
}

/// A torn end that was or would be cut off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the torn end of {} was cut at byte {offset}: {bytes} bytes that were not known to be durable{}",
    path.display(), kept_as(kept.as_deref())
)]
pub struct Cut {
    /// The file.
    pub path: PathBuf,
    /// The end of the last good record, in bytes.
    pub offset: u64,
    /// Number of bytes after it that were not preallocated space.
    pub bytes: u64,
    /// The file with a copy of them, if a good record is among them.
    pub kept: Option<PathBuf>,
}

fn kept_as(kept: Option<&Path>) -> String {
    kept.map_or_else(String::new, |kept| format!("; they are kept in {}", kept.display()))
}

/// The recovered journal, with all torn ends cut.
#[derive(Debug)]
pub(crate) struct Recovered {
    /// Never empty; the last one takes the appends.
    pub(crate) segments: Vec<Arc<Segment>>,
    pub(crate) last: Seq,
    pub(crate) time: Timestamp,
    pub(crate) keys: IdempotencyKeys,
    pub(crate) cuts: Vec<Cut>,
    /// The last durable record according to the mark.
    pub(crate) marked: Seq,
}

/// Returns the idempotency key of a record, if it has one.
pub type KeyOf<'a> = dyn Fn(Record<'_>) -> Option<u128> + 'a;

/// The result of scanning one file; the segment has the end of its last good record.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The record that should have come next.
    pub(crate) expected: Seq,
    time: Timestamp,
    /// The damage in its place; `None` for preallocated space.
    damage: Option<Damage>,
    /// The last durable record according to the records of this file.
    durable: Seq,
    /// The newest idempotency keys, in order.
    keys: VecDeque<IdempotencyKey>,
}

/// The bytes after the last good record of a file.
#[derive(Debug, Clone)]
struct Torn {
    /// The range, without a copy yet.
    cut: Cut,
    /// Whether a good record is in it.
    has_records: bool,
    /// The last durable record according to those records.
    durable: Seq,
}

/// The result of scanning a journal's folder. The scan changes nothing.
#[derive(Debug, Default)]
pub struct ScanReport {
    /// In order; empty when there is no journal yet.
    segments: Vec<Arc<Segment>>,
    /// The scans of these segments, newest first.
    scans: Vec<Scan>,
    /// The prepared file, if it continues the last segment.
    next: Option<(Segment, Scan)>,
    /// The bytes after the last good record.
    torn: Option<Torn>,
    /// The content of the prepared file, if it does not continue the last segment.
    dropped: Option<Torn>,
    /// The last record known to be durable.
    durable: Seq,
    /// The last durable record according to the mark.
    marked: Seq,
}

impl ScanReport {
    /// The last record; [`Seq::ZERO`] when there is none.
    pub fn last(&self) -> Seq {
        let last_scan = self.next.as_ref().map(|(_, scan)| scan).or(self.scans.first());
        last_scan.map_or(Seq::ZERO, |scan| scan.expected.previous())
    }

    /// The oldest stored record, or else the next one.
    pub fn first(&self) -> Seq {
        let segment = self.segments.first().map(Arc::as_ref).or(self.next.as_ref().map(|(next, _)| next));
        segment.map_or(Seq::ZERO.next(), |segment| segment.first)
    }

    /// The record at `seq`; `None` when there is none, or it is damaged.
    ///
    /// Errors: a file operation failed, or the sealed segment is damaged.
    pub fn record(&self, seq: Seq) -> io::Result<Option<RecordBuf>> {
        let next = self.next.as_ref().map(|(next, _)| next);
        let mut newest_first = next.into_iter().chain(self.segments.iter().rev().map(Arc::as_ref));
        let Some(segment) = newest_first.find(|segment| segment.first <= seq) else { return Ok(None) };
        let mut cursor = Cursor::new(Arc::clone(&segment.file), segment.place_before(seq)?.1);
        loop {
            match cursor.step() {
                Step::Record(entry) if entry.seq == seq => return Ok(Some(cursor.record(&entry).into())),
                Step::Record(entry) if entry.seq < seq => {}
                Step::Short if cursor.refill(segment.end())? => {}
                Step::Record(_) | Step::Short | Step::End | Step::Damaged(_) => return Ok(None),
            }
        }
    }

    fn check_reach(self, hint: RecoveryHint) -> Result<Self, OpenError> {
        let last = self.last();
        if hint.seq > last { Err(OpenError::Behind { last, known: hint.seq }) } else { Ok(self) }
    }
}

/// Scans the folder of a journal.
///
/// Shape: the newest segment first, so that `key_of` is called only until enough keys are found.
pub(crate) fn scan(
    files: &dyn Files,
    key_of: &KeyOf<'_>,
    hint: RecoveryHint,
) -> Result<ScanReport, OpenError> {
    let mut scanner = Scanner::new(files, key_of, hint);
    let (firsts, has_next) = scanner.list()?;
    let foreign = segment_file::foreign(files).map_err(|source| scanner.failed("read", "", source))?;
    if let Some(name) = foreign.first() {
        return Err(OpenError::Foreign { path: files.path(name) });
    }
    let Some((last_first, full_firsts)) = firsts.split_last() else {
        return ScanReport::default().check_reach(hint);
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

    let report = ScanReport { segments, scans, ..ScanReport::default() };
    scanner.judge_end(report, next)?.check_reach(hint)
}

impl Scan {
    fn of_nothing(expected: Seq) -> Self {
        Self { expected, time: Timestamp::ZERO, damage: None, durable: Seq::ZERO, keys: VecDeque::new() }
    }
}

/// Opens and scans files.
pub(crate) struct Scanner<'a> {
    files: &'a dyn Files,
    key_of: &'a KeyOf<'a>,
    hint: RecoveryHint,
    keys_left: usize,
}

impl<'a> Scanner<'a> {
    pub(crate) fn new(files: &'a dyn Files, key_of: &'a KeyOf<'a>, hint: RecoveryHint) -> Self {
        Self { files, key_of, hint, keys_left: IDEMPOTENCY_KEYS_MAX }
    }

    /// The first records of all segments, in order, and whether there is a prepared file.
    pub(crate) fn list(&self) -> Result<(Vec<Seq>, bool), OpenError> {
        let names = self.files.list().map_err(|source| self.failed("list", "", source))?;
        let mut firsts: Vec<Seq> = names.iter().filter_map(|name| segment_file::first_of(name)).collect();
        firsts.sort();
        Ok((firsts, names.iter().any(|name| name == NEXT_NAME)))
    }

    fn open(&self, name: &str, first: Seq) -> Result<Segment, OpenError> {
        let file = match self.files.open(name) {
            Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                return Err(OpenError::NotASegment { path: self.files.path(name) });
            }
            file => file.map_err(|source| self.failed("open", name, source))?,
        };
        match segment_file::header_of(file.as_ref()).map_err(|source| self.failed("read", name, source))? {
            Header::Plain => Ok(Segment::new(first, file)),
            Header::Sealed => {
                let sealed = SealedFile::open(file).map_err(|source| self.failed("read", name, source))?;
                if sealed.seal.first == first {
                    return Ok(Segment::sealed(sealed));
                }
                let damage = Damage::Order { expected: first, found: sealed.seal.first };
                Err(OpenError::Damaged { path: self.files.path(name), offset: HEADER_BYTES, damage })
            }
            Header::Newer(found) => Err(OpenError::Newer { path: self.files.path(name), found }),
            Header::Other => Err(OpenError::NotASegment { path: self.files.path(name) }),
        }
    }

    /// Scans the prepared file as the segment that begins with `first`; `None` when it was never
    /// finished.
    fn scan_next(&mut self, first: Seq) -> Result<Option<(Segment, Scan)>, OpenError> {
        let next = match self.open(NEXT_NAME, first) {
            Err(error @ (OpenError::NotASegment { .. } | OpenError::Newer { .. })) => {
                let failed = |source| self.failed("read", NEXT_NAME, source);
                let Ok(file) = self.files.open(NEXT_NAME) else { return Err(error) };
                // The header is bad, but there are no records.
                if !segment_file::begins_used(file.as_ref()).map_err(failed)? {
                    return Ok(None);
                }
                if matches!(error, OpenError::Newer { .. }) {
                    return Err(error);
                }
                // Its header is damaged, and its records must not be overwritten without a report.
                return Ok(Some((Segment::new(first, file), Scan::of_nothing(first))));
            }
            next => next?,
        };
        let scan = self.scan(NEXT_NAME, &next, None)?;
        // A file whose first record is another one continues lost records.
        let is_other = matches!(scan.damage, Some(Damage::Order { .. })) && scan.expected == first;
        if !is_other {
            self.check_may_be_torn(NEXT_NAME, &next, &scan)?;
        }
        Ok(Some((next, scan)))
    }

    /// Scans the last segment, where only a torn end is accepted.
    fn scan_last(&mut self, first: Seq) -> Result<(Segment, Scan), OpenError> {
        let name = segment_file::name_of(first);
        let segment = self.open(&name, first)?;
        let scan = self.scan(&name, &segment, None)?;
        self.check_may_be_torn(&name, &segment, &scan)?;
        Ok((segment, scan))
    }

    /// Refuses what no crash leaves.
    fn check_may_be_torn(&self, name: &str, segment: &Segment, scan: &Scan) -> Result<(), OpenError> {
        match scan.damage {
            Some(damage @ (Damage::Version(_) | Damage::Order { .. })) => {
                Err(self.damaged(name, segment.end(), damage))
            }
            None | Some(Damage::Length(_) | Damage::Checksum | Damage::Missing { .. }) => Ok(()),
        }
    }

    /// Scans a segment that others follow: it must have every record up to `following`.
    fn scan_full(&mut self, first: Seq, following: Seq) -> Result<(Segment, Scan), OpenError> {
        let name = segment_file::name_of(first);
        let segment = self.open(&name, first)?;
        if segment.seal().is_none()
            && self.is_known(following.previous())
            && let Some(known) = self.scan_end(&name, &segment, following)?
        {
            return Ok(known);
        }
        let scan = self.scan(&name, &segment, Some(following))?;
        if scan.expected == following {
            return Ok((segment, scan));
        }
        let damage = scan.damage.unwrap_or(Damage::Missing { expected: scan.expected });
        Err(self.damaged(&name, segment.end(), damage))
    }

    /// Finds the last record of a segment whose records are known; `None` when it is not in the
    /// last read of the file.
    fn scan_end(
        &self,
        name: &str,
        segment: &Segment,
        following: Seq,
    ) -> Result<Option<(Segment, Scan)>, OpenError> {
        let failed = |source| self.failed("read", name, source);
        let size = segment.file.size().map_err(failed)?;
        let begin = size.saturating_sub(READ_BYTES as u64).max(HEADER_BYTES);
        let mut cursor = Cursor::new(Arc::clone(&segment.file), begin);
        while let Some((_, last)) = cursor.find_record(size).map_err(failed)? {
            if last.seq.next() == following {
                let file = Arc::clone(&segment.file);
                let known = Segment::unread(segment.first, file, cursor.offset(), last.time);
                let scan = Scan { time: last.time, durable: last.seq, ..Scan::of_nothing(following) };
                return Ok(Some((known, scan)));
            }
        }
        Ok(None)
    }

    /// Whether the caller knows the records up to this one, and no idempotency key of them is
    /// needed.
    fn is_known(&self, last: Seq) -> bool {
        last <= self.hint.seq && self.needs_no_keys(last)
    }

    fn needs_no_keys(&self, last: Seq) -> bool {
        self.keys_left == 0 || last <= self.hint.keys_upto
    }

    fn scan(&mut self, name: &str, segment: &Segment, until: Option<Seq>) -> Result<Scan, OpenError> {
        if let Some(seal) = segment.seal().filter(|seal| self.needs_no_keys(seal.last)) {
            let (expected, time, durable) = (seal.last.next(), seal.time, seal.last);
            return Ok(Scan { time, durable, ..Scan::of_nothing(expected) });
        }
        let mut cursor = Cursor::new(Arc::clone(&segment.file), HEADER_BYTES);
        let mut scan = Scan::of_nothing(segment.first);
        while until != Some(scan.expected) {
            let expected = scan.expected;
            match cursor.step() {
                Step::Record(entry) if entry.seq == expected => {
                    if self.keys_left > 0 && expected > self.hint.keys_upto {
                        let key = (self.key_of)(cursor.record(&entry));
                        scan.keys.extend(key.map(|key| IdempotencyKey::new(key, expected)));
                        if scan.keys.len() > self.keys_left {
                            scan.keys.pop_front();
                        }
                    }
                    scan.time = scan.time.max(entry.time);
                    scan.durable = scan.durable.max(entry.durable);
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

    /// Separates a torn end from damage; `next` is the prepared file.
    ///
    /// Errors: a record known to be durable is missing or damaged.
    fn judge_end(&self, report: ScanReport, next: Option<(Segment, Scan)>) -> Result<ScanReport, OpenError> {
        let marked = mark::read(self.files).map_err(|source| self.failed("read", mark::MARK_NAME, source))?;
        let (next, other) = match next {
            Some((next, scan)) if scan.expected > next.first => (Some((next, scan)), None),
            other => (None, other),
        };
        let tail = next.as_ref().map(|(next, _)| next).or(report.segments.last().map(Arc::as_ref));
        let scan = next.as_ref().map(|(_, scan)| scan).or(report.scans.first());
        let (Some(tail), Some(scan)) = (tail, scan) else { return Ok(report) };
        let name = if next.is_some() { NEXT_NAME.to_owned() } else { tail.name() };
        let is_open = tail.seal().is_none();
        let torn = if is_open { self.torn(&name, tail, tail.end())? } else { None };
        let dropped =
            other.map(|(other, _)| self.torn(NEXT_NAME, &other, HEADER_BYTES)).transpose()?.flatten();

        let said = [&torn, &dropped].into_iter().flatten().map(|torn| torn.durable);
        let in_order = next.iter().map(|(_, scan)| scan).chain(report.scans.first()).map(|scan| scan.durable);
        let durable = said.chain(in_order).fold(marked.max(self.hint.seq), Seq::max);
        let expected = scan.expected;
        // The caller handles a journal that ends cleanly before the hint. A dropped file without a
        // record is no segment for `verify` either, so a repair could not help.
        let has_ended = torn.is_none() && dropped.as_ref().is_none_or(|dropped| !dropped.has_records);
        if expected <= marked || (expected <= durable && !has_ended) {
            let damage = scan.damage.unwrap_or(Damage::Missing { expected });
            return Err(OpenError::Damaged { path: self.files.path(&name), offset: tail.end(), damage });
        }
        Ok(ScanReport { next, torn, dropped, durable: durable.min(expected.previous()), marked, ..report })
    }

    /// The content of a file from `offset` on, unless all of it is preallocated space.
    ///
    /// Shape: a prepared file that begins with zeros is not read further, because preparing it
    /// checks all of it.
    fn torn(&self, name: &str, segment: &Segment, offset: u64) -> Result<Option<Torn>, OpenError> {
        let failed = |source| self.failed("read", name, source);
        if name == NEXT_NAME && !segment_file::begins_used(segment.file.as_ref()).map_err(failed)? {
            return Ok(None);
        }
        let used = segment_file::used_end(segment.file.as_ref(), offset).map_err(failed)?;
        let Some(end) = used else { return Ok(None) };
        let (mut has_records, mut durable) = (false, Seq::ZERO);
        let mut note = |_, found: damaged::Item<'_>| {
            if let damaged::Item::Record(record, said) = found
                && record.seq >= segment.first
            {
                has_records = true;
                durable = durable.max(said);
            }
            Ok(())
        };
        damaged::walk_plain(&segment.file, offset, &mut note).map_err(failed)?;
        let cut = Cut { path: self.files.path(name), offset, bytes: end - offset, kept: None };
        Ok(Some(Torn { cut, has_records, durable }))
    }

    fn damaged(&self, name: &str, offset: u64, damage: Damage) -> OpenError {
        let path = self.files.path(name);
        match damage {
            Damage::Version(_) => OpenError::NewerRecord { path, offset, damage },
            Damage::Length(_) | Damage::Checksum | Damage::Order { .. } | Damage::Missing { .. } => {
                OpenError::Damaged { path, offset, damage }
            }
        }
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
