//! Reads every record of every segment, without changes: the report of `aside journal verify`, and
//! the input of a repair.

use std::{fmt, io, path::PathBuf, sync::Arc};

use crate::{
    Seq,
    log::{
        damaged::{FoundDamage, Item, walk},
        files::{File, Files},
        mark,
        record::{Damage, Record, RecordKind},
        recover::Cut,
        segment_file::{self, HEADER_BYTES, Header, NEXT_NAME},
    },
    time::Timestamp,
};

/// The content of a journal's files.
#[derive(Debug, Default)]
pub struct Verified {
    /// Every segment, in order.
    pub segments: Vec<Segment>,
    /// The torn ends that the next start will cut: that of the last segment, and the records of a
    /// prepared file that does not continue it.
    pub torn: Vec<Cut>,
    /// Copies of damaged and torn files that starts and repairs made; the program neither reads nor
    /// deletes them.
    pub kept: Vec<PathBuf>,
    /// The evidence of durability besides the records.
    pub(crate) durable: Durable,
}

/// Evidence that records were durable, besides the records themselves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Durable {
    /// The last one according to the mark.
    marked: Seq,
    /// The last one that the caller knows. As at a start, a journal that ends cleanly before it is
    /// not damaged: the caller handles that.
    known: Seq,
}

/// The content of one file.
#[derive(Debug, Default)]
pub struct Segment {
    /// The file.
    pub path: PathBuf,
    /// The record that it begins with.
    pub first: Seq,
    /// How many good records it has.
    pub records: u64,
    /// How many of them are tombstones of a repair.
    pub tombstones: u64,
    /// Whether it is sealed.
    pub is_sealed: bool,
    /// All damage, in file order.
    pub findings: Vec<Finding>,
    /// Whether a folder is in its place.
    pub(crate) is_folder: bool,
    pub(crate) name: String,
    /// The first record of the following segment.
    pub(crate) following: Option<Seq>,
    /// The record that should come next.
    pub(crate) end: Seq,
    /// The time of the last good record; [`UNKNOWN_TIME`] when there is none.
    pub(crate) last_time: Timestamp,
}

/// Damage at one place of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The damage.
    pub damage: FoundDamage,
    /// The first and the last record that are missing because of it.
    pub lost: Option<(Seq, Seq)>,
    /// The good record that follows; `None` when this file has none.
    pub next: Option<Seq>,
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("read {}", path.display())]
pub struct VerifyError {
    /// The file or folder.
    pub path: PathBuf,
    /// The cause.
    pub source: io::Error,
}

/// A record at its position, or a range of missing records: from the first (inclusive) to the
/// second (exclusive).
pub(crate) enum Piece<'a> {
    Good(Record<'a>),
    Lost(Seq, Seq),
}

/// Takes the pieces of a file in order.
pub(crate) type Visit<'s> = dyn FnMut(Piece<'_>) -> io::Result<()> + 's;

/// Reads all records of a journal, which may be in use.
///
/// `tombstone` is the kind of a repair's tombstones; `known` is the last record that the caller
/// knows to be durable, for example from a snapshot.
///
/// Errors: the folder or a file cannot be read; damage in a file is in the result.
pub fn verify(files: &dyn Files, tombstone: RecordKind, known: Seq) -> Result<Verified, VerifyError> {
    verify_reading(files, tombstone, known, &mut |_| ())
}

/// Does the same, and gives each valid record to `read`.
///
/// Errors: as above.
pub fn verify_reading(
    files: &dyn Files,
    tombstone: RecordKind,
    known: Seq,
    read: &mut dyn FnMut(&Record<'_>),
) -> Result<Verified, VerifyError> {
    let mut verified = Verified::default();
    let marked = mark::read(files).map_err(|source| failed(files, mark::MARK_NAME, source))?;
    let durable = Durable { marked, known };
    let Listed { segments, kept, dropped, refused } = list(files, durable)?;
    let foreign = segment_file::foreign(files).map_err(|source| failed(files, "", source))?;
    (verified.kept, verified.durable) = (kept, durable);
    for (at, (name, first, file)) in segments.iter().enumerate() {
        let following = segments.get(at + 1).map(|(_, first, _)| *first);
        let (mut tombstones, mut last_time) = (0, UNKNOWN_TIME);
        let mut count = |piece: Piece<'_>| {
            if let Piece::Good(record) = piece {
                tombstones += u64::from(record.kind == tombstone);
                read(&record);
                last_time = record.time;
            }
            Ok(())
        };
        let within = Within { first: *first, following, durable };
        let examined = match file {
            Some(_) if foreign.contains(name) => within.foreign(),
            Some(file) => examine(file, within, &mut count).map_err(|source| failed(files, name, source))?,
            None => within.lost_whole(),
        };
        let Examined { findings, records, end, torn_at, is_sealed } = examined;
        if let (Some(offset), Some(file)) = (torn_at, file) {
            let cut = cut_of(files, name, file.as_ref(), offset);
            verified.torn.extend(cut.map_err(|source| failed(files, name, source))?);
        }
        let (path, name, first, is_folder) = (files.path(name), name.clone(), *first, file.is_none());
        verified.segments.push(Segment {
            path,
            first,
            records,
            tombstones,
            is_sealed,
            findings,
            is_folder,
            name,
            following,
            end,
            last_time,
        });
    }
    verified.torn.extend(dropped);
    if let Some(finding) = refused {
        let first = verified.last().next();
        verified.segments.push(Segment::refused(files, NEXT_NAME, first, finding));
    }
    Ok(verified)
}

/// The content of a file from `offset` on; `None` when all of it is preallocated space.
fn cut_of(files: &dyn Files, name: &str, file: &dyn File, offset: u64) -> io::Result<Option<Cut>> {
    let end = segment_file::used_end(file, offset)?;
    Ok(end.map(|end| Cut { path: files.path(name), offset, bytes: end.saturating_sub(offset), kept: None }))
}

impl Segment {
    /// Whether it is of another journal, so that none of its records counts.
    pub(crate) fn is_foreign(&self) -> bool {
        self.findings.iter().any(|finding| finding.damage == FoundDamage::Foreign)
    }

    /// A folder or file without a readable record, which a start refuses.
    fn refused(files: &dyn Files, name: &str, first: Seq, finding: Finding) -> Self {
        let is_folder = finding.damage == FoundDamage::Folder;
        Self {
            path: files.path(name),
            first,
            findings: vec![finding],
            is_folder,
            name: name.to_owned(),
            end: first,
            ..Self::default()
        }
    }
}

/// A segment file: its name, and its first record; no file when a folder has the name.
type NamedFile = (String, Seq, Option<Arc<dyn File>>);

/// The folder of a journal.
struct Listed {
    /// In order.
    segments: Vec<NamedFile>,
    kept: Vec<PathBuf>,
    /// The content of the prepared file, if the next start drops it.
    dropped: Option<Cut>,
    /// Why the next start refuses the prepared file, if it is a folder or of a newer version.
    refused: Option<Finding>,
}

/// All segments in order. The prepared file is the last of them if its first good record is after
/// the first record of the last named one, and the next start does not drop it.
fn list(files: &dyn Files, durable: Durable) -> Result<Listed, VerifyError> {
    // Before the list, so that the daemon cannot name this file and fill another one in between.
    let next = open(files, NEXT_NAME)?;
    let names = files.list().map_err(|source| failed(files, "", source))?;
    let (mut segments, mut kept): (Vec<NamedFile>, _) = (Vec::new(), Vec::new());
    let mut gone = Seq::ZERO;
    for name in names {
        if name.contains(".seg.") {
            kept.push(files.path(&name));
        }
        let Some(first) = segment_file::first_of(&name) else { continue };
        match open(files, &name)? {
            Opened::File(file) => segments.push((name, first, Some(file))),
            Opened::Folder => segments.push((name, first, None)),
            // A running daemon may delete the oldest segments. The ones before them are then not
            // needed.
            Opened::Gone => gone = gone.max(first),
        }
    }
    segments.retain(|(_, first, _)| *first > gone);
    segments.sort_by_key(|(_, first, _)| *first);
    kept.sort();
    let mut listed = Listed { segments, kept, dropped: None, refused: None };
    match next {
        Opened::File(next) => {
            list_next(files, next, durable, &mut listed).map_err(|source| failed(files, NEXT_NAME, source))?
        }
        Opened::Folder => listed.refused = Some(Finding::without_records(0, FoundDamage::Folder)),
        Opened::Gone => {}
    }
    Ok(listed)
}

/// Adds the prepared file to the segments or the dropped files, if it has a record, or to the
/// refused ones, if it begins with one of a newer version.
fn list_next(
    files: &dyn Files,
    next: Arc<dyn File>,
    durable: Durable,
    listed: &mut Listed,
) -> io::Result<()> {
    let (mut begin, mut newer) = (None, None);
    let mut note = |offset, found: Item<'_>| {
        match found {
            Item::Record(record, _) => {
                begin.get_or_insert(record.seq);
            }
            Item::Damage(damage) if begin.is_none() && newer.is_none() => {
                newer = Some(Finding::without_records(offset, damage)).filter(Finding::is_newer);
            }
            Item::Damage(_) => {}
        }
        Ok(())
    };
    walk(&next, &mut note)?;
    // A file without records is used again, whatever its header.
    if newer.is_some() && segment_file::begins_used(next.as_ref())? {
        listed.refused = newer;
        return Ok(());
    }
    let last = listed.segments.last();
    let after_last = begin.filter(|begin| last.is_none_or(|(_, first, _)| begin > first));
    let Some(begin) = after_last else { return Ok(()) };
    if let Some((_, first, Some(file))) = last
        && is_dropped((*first, file), (begin, &next), durable)?
    {
        listed.dropped = cut_of(files, NEXT_NAME, next.as_ref(), HEADER_BYTES)?;
    } else {
        listed.segments.push((NEXT_NAME.to_owned(), begin, Some(next)));
    }
    Ok(())
}

/// Whether the next start drops the prepared file: it does not continue the last segment, and
/// nothing states that the records in between were durable.
fn is_dropped(
    (first, last): (Seq, &Arc<dyn File>),
    (begin, next): (Seq, &Arc<dyn File>),
    Durable { marked, known }: Durable,
) -> io::Result<bool> {
    let (mut missing, mut durable, mut is_damaged) = (first, marked.max(known), false);
    let mut note_last = |_, found: Item<'_>| {
        match found {
            Item::Record(record, said) => {
                if record.seq == missing {
                    missing = missing.next();
                }
                durable = durable.max(said);
            }
            Item::Damage(_) => is_damaged = true,
        }
        Ok(())
    };
    let is_sealed = walk(last, &mut note_last)?;
    let continues = missing == begin && segment_file::header_of(next.as_ref())? == Header::Plain;
    // All records of a sealed file were durable.
    if continues || (is_sealed && is_damaged) {
        return Ok(false);
    }
    let mut note_next = |_, found: Item<'_>| {
        if let Item::Record(_, said) = found {
            durable = durable.max(said);
        }
        Ok(())
    };
    walk(next, &mut note_next)?;
    Ok(missing > durable)
}

/// The type of a directory entry.
enum Opened {
    File(Arc<dyn File>),
    Folder,
    Gone,
}

fn open(files: &dyn Files, name: &str) -> Result<Opened, VerifyError> {
    match files.open(name) {
        Ok(file) => Ok(Opened::File(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Opened::Gone),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => Ok(Opened::Folder),
        Err(source) => Err(failed(files, name, source)),
    }
}

/// The result of examining one file.
pub(crate) struct Examined {
    findings: Vec<Finding>,
    records: u64,
    end: Seq,
    /// The beginning of the last segment's torn end.
    torn_at: Option<u64>,
    is_sealed: bool,
}

/// The records a file should have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Within {
    pub(crate) first: Seq,
    /// The first one of the following segment.
    pub(crate) following: Option<Seq>,
    /// Evidence that its records were durable.
    pub(crate) durable: Durable,
}

impl Within {
    /// The result when nothing can be read: every expected record is lost.
    fn lost_whole(self) -> Examined {
        let Durable { marked, known } = self.durable;
        let end = self.following.unwrap_or(marked.max(known).next()).max(self.first);
        let lost = (end > self.first).then(|| (self.first, end.previous()));
        let finding = Finding { offset: 0, damage: FoundDamage::Folder, lost, next: None };
        Examined { findings: vec![finding], records: 0, end, torn_at: None, is_sealed: false }
    }

    /// The result for a segment of another journal: none of its records is this one's.
    fn foreign(self) -> Examined {
        let mut examined = self.lost_whole();
        examined.findings.iter_mut().for_each(|finding| finding.damage = FoundDamage::Foreign);
        examined
    }
}

/// Reads one file, passing good and missing records to `visit_piece`.
pub(crate) fn examine(
    file: &Arc<dyn File>,
    within: Within,
    visit_piece: &mut Visit<'_>,
) -> io::Result<Examined> {
    let Within { first, following, durable: Durable { marked, known } } = within;
    let mut findings: Vec<Finding> = Vec::new();
    // Findings before this index have a good record after them.
    let mut settled = 0;
    let (mut expected, mut records, mut durable) = (first, 0, marked);
    let mut visit = |offset, found: Item<'_>| {
        let (record, said) = match found {
            Item::Damage(damage) => {
                findings.push(Finding::without_records(offset, damage));
                return Ok(());
            }
            Item::Record(record, said) => (record, said),
        };
        if record.seq < expected || following.is_some_and(|following| record.seq >= following) {
            let damage = FoundDamage::Record(Damage::Order { expected, found: record.seq });
            findings.push(Finding { offset, damage, lost: None, next: None });
            return Ok(());
        }
        if record.seq > expected {
            let damage = Damage::Order { expected, found: record.seq };
            note_loss(&mut findings, settled, (offset, damage), (expected, record.seq.previous()));
            visit_piece(Piece::Lost(expected, record.seq))?;
        }
        for finding in findings.iter_mut().skip(settled) {
            finding.next = Some(record.seq);
        }
        settled = findings.len();
        expected = record.seq.next();
        durable = durable.max(said);
        records += 1;
        visit_piece(Piece::Good(record))
    };
    let is_sealed = walk(file, &mut visit)?;
    if !findings.is_empty() {
        durable = durable.max(known);
    }
    let end = following.unwrap_or(durable.next()).max(expected);
    let mut torn_at = None;
    if expected < end {
        let damage = Damage::Missing { expected };
        note_loss(&mut findings, settled, (file.size()?, damage), (expected, end.previous()));
        visit_piece(Piece::Lost(expected, end))?;
    } else if following.is_none() && !is_sealed {
        torn_at = take_torn(&mut findings, settled, durable);
    }
    Ok(Examined { findings, records, end, torn_at, is_sealed })
}

/// Removes a torn end from the findings of the last segment, because it is not damage; returns its
/// offset.
///
/// Shape: a torn end begins with records without evidence of durability, and extends to the end of
/// the file.
fn take_torn(findings: &mut Vec<Finding>, settled: usize, durable: Seq) -> Option<u64> {
    let is_unknown = |finding: &Finding| finding.lost.is_some_and(|(first, _)| first > durable);
    let begin = findings.iter().position(is_unknown).unwrap_or(settled);
    if !findings.iter().skip(begin).all(Finding::may_be_torn) {
        return None;
    }
    let torn_at = findings.get(begin).map(|finding| finding.offset);
    findings.truncate(begin);
    torn_at
}

/// Adds the missing records to the last unsettled finding, or to a new one of `damage` at `offset`.
fn note_loss(findings: &mut Vec<Finding>, settled: usize, (offset, damage): (u64, Damage), lost: (Seq, Seq)) {
    match findings.get_mut(settled..).and_then(|open| open.last_mut()) {
        Some(finding) => finding.lost = Some(lost),
        None => {
            let damage = FoundDamage::Record(damage);
            findings.push(Finding { offset, damage, lost: Some(lost), next: None });
        }
    }
}

impl Finding {
    fn without_records(offset: u64, damage: FoundDamage) -> Self {
        Self { offset, damage, lost: None, next: None }
    }

    fn may_be_torn(&self) -> bool {
        use FoundDamage::{Folder, Foreign, Header, Newer, Record, Sealed, Zeros};
        match &self.damage {
            Record(Damage::Length(_) | Damage::Checksum | Damage::Missing { .. }) | Zeros => true,
            Record(Damage::Version(_) | Damage::Order { .. }) => false,
            Folder | Foreign | Header | Newer(_) | Sealed(_) => false,
        }
    }

    /// Whether a newer program wrote it, so that it is not damage.
    pub(crate) fn is_newer(&self) -> bool {
        matches!(self.damage, FoundDamage::Newer(_) | FoundDamage::Record(Damage::Version(_)))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offset, damage, lost, next } = self;
        write!(f, "byte {offset}: {damage}; ")?;
        match lost {
            _ if self.is_newer() => f.write_str("it is not read")?,
            Some((first, last)) if first == last => write!(f, "record {first} is lost")?,
            Some((first, last)) => write!(f, "records {first} to {last} are lost")?,
            None => f.write_str("no record is lost")?,
        }
        match next {
            Some(next) => write!(f, ", record {next} follows"),
            None => f.write_str(", no record follows in this file"),
        }
    }
}

impl Verified {
    /// The first stored record, and the number of good ones.
    pub fn totals(&self) -> (Option<Seq>, u64) {
        let first = self.segments.first().map(|segment| segment.first);
        (first, self.segments.iter().map(|segment| segment.records).sum())
    }

    /// The last record, good or lost; [`Seq::ZERO`] when there is none.
    pub fn last(&self) -> Seq {
        self.segments.last().map_or(Seq::ZERO, |segment| segment.end.previous())
    }

    /// How many places are damaged.
    pub fn findings(&self) -> usize {
        self.segments.iter().map(|segment| segment.findings.len()).sum()
    }
}

pub(crate) fn failed(files: &dyn Files, name: &str, source: io::Error) -> VerifyError {
    VerifyError { path: files.path(name), source }
}

/// The value for an unknown time.
pub(crate) const UNKNOWN_TIME: Timestamp = Timestamp::ZERO;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::memory::{MemoryFiles, Operation};
    use crate::testing::*;

    const TOMBSTONE: RecordKind = RecordKind(255);

    #[test]
    fn a_good_journal_is_counted() {
        for seals in [false, true] {
            let files = filled(40, seals);
            let verified = verify(&files, TOMBSTONE, Seq::ZERO).expect("readable");
            assert_eq!(verified.totals(), (Some(Seq(1)), 40));
            assert!(verified.segments.len() > 3 && verified.torn.is_empty(), "{verified:?}");
            assert_eq!(verified.findings(), 0, "{verified:?}");
            assert_eq!(verified.segments[0].is_sealed, seals);
        }
    }

    #[test]
    fn verify_names_every_damage_and_changes_nothing() {
        let files = filled(40, false);
        let names = files.list().expect("listed");
        files.open(&names[0]).expect("there").write_at(b"!", 50).expect("written");
        files.open(&names[2]).expect("there").write_at(b"X", 0).expect("written");
        let last = files.open(&names[names.len() - 3]).expect("there");
        // Damage after the last record known to be durable counts as a torn end.
        last.write_at(b"!", SEGMENT_BYTES - 1).expect("written");
        let writes = files.operations().writes;
        let verified = verify(&files, TOMBSTONE, Seq::ZERO).expect("readable");
        let said: Vec<String> = verified
            .segments
            .iter()
            .flat_map(|segment| segment.findings.iter().map(|finding| format!("{} {finding}", segment.first)))
            .collect();
        let third = verified.segments[2].first;
        let expected = [
            "1 byte 16: the record is damaged: its checksum does not match; record 1 is lost, record 2 follows".to_owned(),
            format!("{third} byte 0: the file does not begin as a segment; no record is lost, record {third} follows"),
        ];
        assert_eq!(said, expected);
        let ends: Vec<u64> = verified.torn.iter().map(|cut| cut.offset + cut.bytes).collect();
        assert_eq!(ends, [SEGMENT_BYTES]);
        assert_eq!(files.operations().writes, writes);
    }

    /// A daemon deletes segments 1 to 3 after 1 was opened, or before.
    #[test]
    fn segments_that_are_deleted_meanwhile_are_not_missed() {
        for deleted in [vec![2], vec![0, 1, 2]] {
            let files = filled(40, false);
            let names = files.list().expect("listed");
            for at in deleted {
                files.fail(Operation::Open, &names[at], 1, io::ErrorKind::NotFound);
            }
            let verified = verify(&files, TOMBSTONE, Seq::ZERO).expect("readable");
            let first = segment_file::first_of(&names[3]).expect("a segment");
            assert_eq!((verified.totals().0, verified.findings()), (Some(first), 0), "{verified:?}");
        }
    }

    #[test]
    fn an_empty_folder_has_nothing_wrong() {
        let verified = verify(&MemoryFiles::new(), TOMBSTONE, Seq::ZERO).expect("readable");
        assert_eq!((verified.totals(), verified.findings()), ((None, 0), 0));
    }
}
