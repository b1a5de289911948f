//! What is found at the start: scans every segment, and cuts the torn end that a crash may leave.
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
        published::{PUBLISHED_KEYS_MAX, PublishedKeys},
        record::{Damage, Record},
        segment::{self, HEADER_BYTES, Header, NEXT_NAME, Segment},
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
        path.display(), segment::FORMAT_VERSION
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
         `aside journal repair` sets it aside and goes on without it", path.display()
    )]
    NotASegment {
        /// Which file.
        path: PathBuf,
    },
    /// A record that must be good is not.
    #[error(
        "open the journal: the record at byte {offset} of {} is damaged: {damage}; `aside journal verify` lists what is \
         damaged, `aside journal repair` sets it aside and goes on without it", path.display()
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
    /// A thread could not be started.
    #[error("open the journal: start a thread")]
    Thread(#[source] io::Error),
}

/// What the caller knows of the journal before it is opened, such as from a snapshot.
#[derive(Debug)]
pub struct Known {
    /// The last record that is known; [`Seq::ZERO`] when none is.
    pub seq: Seq,
    /// The publish keys of the records up to it.
    pub published: PublishedKeys,
}

impl Known {
    /// Nothing is known.
    pub fn nothing() -> Self {
        Self { seq: Seq::ZERO, published: PublishedKeys::new(PUBLISHED_KEYS_MAX) }
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
    keys: VecDeque<(u128, Seq)>,
}

/// Scans a folder, and cuts or creates what is needed to go on.
///
/// Shape: scans the newest segment first, so that `key_of` is asked only until enough keys are found.
pub(super) fn recover(
    files: &dyn Files,
    segment_bytes: u64,
    key_of: &KeyOf<'_>,
    known: Known,
) -> Result<Recovered, OpenError> {
    let mut scanner = Scanner::new(files, key_of, known.seq);
    let (firsts, has_next) = scanner.list()?;
    let Some((last_first, full_firsts)) = firsts.split_last() else {
        check_reach(Seq::ZERO, &known)?;
        return scanner.create(segment_bytes);
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

    let last_scan = next.as_ref().map(|(_, scan)| scan).or(scans.first());
    check_reach(last_scan.map_or(Seq::ZERO, |scan| scan.expected.previous()), &known)?;
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
    if let Some(tail) = segments.last() {
        cuts.extend(scanner.cut_torn_end(tail)?);
    }
    let last = scans.first().map_or(Seq::ZERO, |scan| scan.expected.previous());
    let time = scans.iter().map(|scan| scan.time).max().unwrap_or_default();
    let mut published = known.published;
    for (key, seq) in scans.into_iter().rev().flat_map(|scan| scan.keys) {
        published.remember(key, seq);
    }
    Ok(Recovered { segments, last, time, published, cuts })
}

fn check_reach(last: Seq, known: &Known) -> Result<(), OpenError> {
    if known.seq > last { Err(OpenError::Behind { last, known: known.seq }) } else { Ok(()) }
}

/// Opens and scans files.
pub(super) struct Scanner<'a> {
    files: &'a dyn Files,
    key_of: &'a KeyOf<'a>,
    /// The records up to this one are not asked for their keys.
    known: Seq,
    keys_left: usize,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(files: &'a dyn Files, key_of: &'a KeyOf<'a>, known: Seq) -> Self {
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
        let first = Seq::ZERO.next();
        let name = segment::name_of(first);
        let file = segment::prepare(self.files, segment_bytes.min(FIRST_SEGMENT_BYTES))
            .and_then(|file| self.files.rename(NEXT_NAME, &name).map(|()| file))
            .and_then(|file| self.files.sync_dir().map(|()| file))
            .map_err(|source| self.failed("create", &name, source))?;
        Ok(Recovered {
            segments: vec![Arc::new(Segment::new(first, file))],
            last: Seq::ZERO,
            time: Timestamp::ZERO,
            published: PublishedKeys::new(PUBLISHED_KEYS_MAX),
            cuts: Vec::new(),
        })
    }

    fn open(&self, name: &str, first: Seq) -> Result<Segment, OpenError> {
        let file = self.files.open(name).map_err(|source| self.failed("open", name, source))?;
        match segment::header_of(file.as_ref()).map_err(|source| self.failed("read", name, source))? {
            Header::Segment => Ok(Segment::new(first, file)),
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
        let mut cursor = Cursor::new(Arc::clone(&segment.file), HEADER_BYTES);
        let mut scan =
            Scan { expected: segment.first, time: Timestamp::ZERO, damage: None, keys: VecDeque::new() };
        while until != Some(scan.expected) {
            let expected = scan.expected;
            match cursor.step() {
                Step::Record(entry) if entry.seq == expected => {
                    if self.keys_left > 0 && expected > self.known {
                        let key = (self.key_of)(cursor.record(&entry));
                        scan.keys.extend(key.map(|key| (key, expected)));
                        if scan.keys.len() > self.keys_left {
                            scan.keys.pop_front();
                        }
                    }
                    segment.note_place(expected, segment.end());
                    segment.set_end(cursor.offset());
                    scan.time = scan.time.max(entry.time);
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

    /// Gives the unnamed file, which continues the last segment, its name.
    fn adopt(&self, segments: &[Arc<Segment>], next: &Segment) -> Result<(), OpenError> {
        let name = next.name();
        let full = segments.last().map_or(Ok(()), |full| full.file.sync_data());
        full.and_then(|()| self.files.rename(NEXT_NAME, &name))
            .map_err(|source| self.failed("name", &name, source))
    }

    /// Removes the unnamed file if it was used: what it holds continues something that was lost.
    fn discard(&self, next: &Segment) -> Result<Option<Cut>, OpenError> {
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
        OpenError::Io { operation, path: self.files.path(name), source }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};
    use crate::journal::{
        Level,
        memory::{Faults, MemoryFiles},
        record,
    };

    const FIRST: &str = "00000000000000000001.seg";

    #[test]
    fn of_a_segment_with_more_keys_than_are_remembered_the_newest_are() {
        let files = MemoryFiles::new();
        let clock: crate::journal::Clock = Arc::new(|| Timestamp::ZERO);
        let opened = open_with(&files, 1 << 16, crate::journal::Durability::Sync, clock).expect("opened");
        opened.journal.append_blocking(batch_of(1..=9), Level::Synced).expect("appended");
        opened.journal.close_blocking().expect("closed");
        let key_of = |record: Record<'_>| Some(number_of(record.body).into());
        let mut scanner = Scanner::new(&files, &key_of, Seq::ZERO);
        scanner.keys_left = 3;
        let (_, scan) = scanner.scan_last(Seq(1)).expect("scanned");
        assert_eq!(scan.keys, [(7, Seq(7)), (8, Seq(8)), (9, Seq(9))]);
        assert_eq!(scanner.keys_left, 0);
    }

    #[test]
    fn what_is_known_is_not_asked_for_again_and_reaches_no_further_than_the_journal() {
        let files = journal_of(30);
        let asked = std::cell::RefCell::new(Vec::new());
        let key_of = |record: Record<'_>| {
            asked.borrow_mut().push(record.seq.0);
            Some(number_of(record.body).into())
        };
        let known = |seq| {
            let mut known = Known { seq: Seq(seq), ..Known::nothing() };
            known.published.remember(7, Seq(7));
            known
        };
        let recovered = recover(&files, SEGMENT_BYTES, &key_of, known(27)).expect("opened");
        asked.borrow_mut().sort_unstable();
        assert_eq!(asked.take(), [28, 29, 30]);
        let mut published = recovered.published;
        let first_of = |key, published: &mut PublishedKeys| published.remember(key, Seq(99));
        assert_eq!([7, 28, 8].map(|key| first_of(key, &mut published)), [Some(Seq(7)), Some(Seq(28)), None]);
        for (files, last) in [(files, 30), (MemoryFiles::new(), 0)] {
            let names = files.list().expect("listed");
            let error = recover(&files, SEGMENT_BYTES, &key_of, known(31)).map(|_| ()).expect_err("refused");
            assert!(
                matches!(error, OpenError::Behind { last: Seq(found), known: Seq(31) } if found == last),
                "{error}"
            );
            assert_eq!(files.list().expect("listed"), names);
        }
    }

    #[test]
    fn the_last_record_is_cut_wherever_it_is_torn() {
        let whole = journal_of(3);
        let end: u64 = HEADER_BYTES + (1..=3).map(size).sum::<u64>();
        let start = end - size(3);
        for torn_at in start..end {
            let files = whole.after_kill();
            let file = files.open(FIRST).expect("there");
            fill_with_zeros(file.as_ref(), torn_at, end).expect("written");
            let left = segment::used_end(file.as_ref(), start).expect("read");
            let opened = open(&files);
            let cut = left.map(|left| Cut { path: files.path(FIRST), offset: start, bytes: left - start });
            assert_eq!(opened.cuts, Vec::from_iter(cut), "torn at {torn_at}");
            assert_eq!((opened.last_seq, numbers(&opened.journal)), (Seq(2), vec![1, 2]));
            opened.journal.append_blocking(batch(3), Level::Synced).expect("appended");
            opened.journal.close_blocking().expect("closed");
            let again = open(&files);
            assert_eq!((again.cuts, numbers(&again.journal)), (Vec::new(), vec![1, 2, 3]));
        }
    }

    #[test]
    fn a_whole_record_after_the_torn_one_does_not_come_back() {
        let files = journal_of(3);
        let second = HEADER_BYTES + size(1);
        let file = files.open(FIRST).expect("there");
        fill_with_zeros(file.as_ref(), second, second + size(2)).expect("written");
        let opened = open(&files);
        assert_eq!(opened.cuts.iter().map(|cut| cut.offset).collect::<Vec<_>>(), [second]);
        opened.journal.append_blocking(batch(2), Level::Synced).expect("appended");
        opened.journal.close_blocking().expect("closed");
        assert_eq!(numbers(&open(&files).journal), [1, 2]);
    }

    #[test]
    fn what_a_killed_process_had_only_written_is_made_durable_at_the_start() {
        for count in [2, 12] {
            let files = journal_ahead_of_the_disk(count);
            let opened = open(&files);
            assert_eq!(opened.last_seq, Seq(count));
            for seed in 0..20 {
                assert_eq!(open(&files.after_power_loss(seed)).last_seq, Seq(count), "seed {seed}");
            }
        }
    }

    #[test]
    fn a_file_that_continues_what_was_lost_is_dropped() {
        let files = journal_ahead_of_the_disk(12);
        let file = files.open(FIRST).expect("there");
        let fifth = HEADER_BYTES + (1..=4).map(size).sum::<u64>();
        fill_with_zeros(file.as_ref(), fifth, SEGMENT_BYTES).expect("written");
        let next = files.open(NEXT_NAME).expect("there");
        let end = segment::used_end(next.as_ref(), HEADER_BYTES).expect("read").expect("used");
        let opened = open(&files);
        let cut = Cut { path: files.path(NEXT_NAME), offset: HEADER_BYTES, bytes: end - HEADER_BYTES };
        assert_eq!((opened.cuts, numbers(&opened.journal)), (vec![cut], vec![1, 2, 3, 4]));
    }

    #[test]
    fn damage_before_the_last_segment_stops_the_start_and_is_named() {
        let files = journal_of(30);
        let second = HEADER_BYTES + size(1);
        files.open(FIRST).expect("there").write_at(b"!", second + 30).expect("written");
        assert_eq!(
            error(&files),
            format!(
                "open the journal: the record at byte {second} of memory/{FIRST} is damaged: its checksum does not match; \
                 `aside journal verify` lists what is damaged, `aside journal repair` sets it aside and goes on without it"
            )
        );
        assert_eq!(files.list().expect("listed"), journal_of(30).list().expect("listed"));
    }

    #[test]
    fn a_missing_segment_is_named_as_the_record_that_is_missing() {
        let files = journal_of(30);
        let names: Vec<String> = files.list().expect("listed");
        let second = segment::first_of(&names[1]).expect("a segment");
        files.remove(&names[1]).expect("removed");
        let error = error(&files);
        assert!(error.contains(FIRST) && error.contains(&format!("record {second} is missing")), "{error}");
    }

    #[test]
    fn a_newer_format_and_a_newer_record_are_refused() {
        let files = journal_of(1);
        let file = files.open(FIRST).expect("there");
        file.write_at(&[2], 8).expect("written");
        let found = error(&files);
        assert!(found.contains("has format 2, this program reads up to 1"), "{found}");

        let files = journal_of(1);
        let mut bytes = Vec::new();
        record::encode(record::RecordKind(1), Seq(2), Timestamp::ZERO, b"", &mut bytes);
        bytes[9] = 2;
        let crc = crc32c::crc32c_append(crc32c::crc32c(&bytes[..4]), &bytes[8..]);
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        files.open(FIRST).expect("there").write_at(&bytes, HEADER_BYTES + size(1)).expect("written");
        let found = error(&files);
        assert!(found.contains("its version 2 is newer than 1"), "{found}");
    }

    #[test]
    fn a_file_with_a_segments_name_that_is_none_is_refused() {
        let files = journal_of(1);
        files.open(FIRST).expect("there").write_at(b"X", 0).expect("written");
        let error = error(&files);
        assert!(error.contains(&format!("memory/{FIRST} is not a segment")), "{error}");
    }

    #[test]
    fn whatever_a_power_loss_leaves_what_was_answered_is_there() {
        let uncut = MemoryFiles::new();
        let promised = workload(&uncut);
        assert_eq!(promised, WORKLOAD_LEN);
        let total = uncut.operations();
        let write_cuts =
            (1..=total.writes).map(|at| Faults { cut_after_write: Some(at), ..Faults::default() });
        let sync_cuts = (1..=total.syncs).map(|at| Faults { cut_after_sync: Some(at), ..Faults::default() });
        for faults in write_cuts.chain(sync_cuts) {
            let files = MemoryFiles::new();
            files.set_faults(faults);
            let promised = workload(&files);
            let operations = files.operations();
            for seed in 0..3 {
                // Other seeds at every cut, so that together they meet more kinds of tears.
                let seed = seed + 3 * (operations.writes + operations.syncs);
                let case = format!("{faults:?}, seed {seed}");
                check_image(&files.after_power_loss(seed), promised, &case);
                check_image(&cut_again(&files.after_power_loss(seed), seed), promised, &case);
            }
            check_image(&files.after_kill(), promised, &format!("{faults:?}, killed"));
        }
    }

    const WORKLOAD_LEN: u64 = 30;

    /// Appends one after the other, most of them to be synced, until that fails; returns the last one promised.
    fn workload(files: &MemoryFiles) -> u64 {
        let Ok(opened) = try_open(files) else { return 0 };
        let mut promised = 0;
        for number in 1..=WORKLOAD_LEN {
            let level = if number % 3 == 0 { Level::Written } else { Level::Synced };
            match opened.journal.append_blocking(batch(number), level) {
                Ok(_) if level == Level::Synced => promised = number,
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if opened.journal.close_blocking().is_ok() { WORKLOAD_LEN } else { promised }
    }

    /// What is left when the power is lost again while the journal is being opened.
    fn cut_again(files: &MemoryFiles, seed: u64) -> MemoryFiles {
        let at = Some(1 + seed % 3);
        files.set_faults(match seed % 2 {
            0 => Faults { cut_after_write: at, ..Faults::default() },
            _ => Faults { cut_after_sync: at, ..Faults::default() },
        });
        if let Ok(opened) = try_open(files) {
            // The threads end by themselves; whether they could sync is not of interest.
            let _ = opened.journal.close_blocking();
        }
        files.after_power_loss(seed + 1)
    }

    /// Everything promised is there once, nothing else is, and publishing everything again completes it.
    fn check_image(files: &MemoryFiles, promised: u64, case: &str) {
        let opened = try_open(files).unwrap_or_else(|error| panic!("{case}: {error}"));
        let found = numbers(&opened.journal);
        assert!(found.len() as u64 >= promised, "{case}: {promised} promised, {found:?} found");
        assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>(), "{case}");
        assert_eq!(opened.last_seq, Seq(found.len() as u64), "{case}");
        opened.journal.append_blocking(batch_of(1..=WORKLOAD_LEN), Level::Synced).expect("appended");
        opened.journal.close_blocking().expect("closed");
        let again = open(&files.after_power_loss(1));
        assert_eq!(numbers(&again.journal), (1..=WORKLOAD_LEN).collect::<Vec<_>>(), "{case}");
        assert_eq!(again.cuts, [], "{case}");
        again.journal.close_blocking().expect("closed");
    }

    fn journal_of(count: u64) -> MemoryFiles {
        let files = MemoryFiles::new();
        let journal = open(&files).journal;
        journal.append_blocking(batch_of(1..=count), Level::Synced).expect("appended");
        journal.close_blocking().expect("closed");
        files
    }

    /// What a process leaves that is killed while no sync ends; twelve records are too many for one segment.
    fn journal_ahead_of_the_disk(count: u64) -> MemoryFiles {
        let files = MemoryFiles::new();
        let journal = open_prepared(&files, SEGMENT_BYTES);
        files.close_gate();
        journal.append_blocking(batch_of(1..=count), Level::Written).expect("appended");
        let killed = files.after_kill();
        files.open_gate();
        killed
    }

    fn size(number: u64) -> u64 {
        record::size_of(body(number).len()) as u64
    }

    fn error(files: &MemoryFiles) -> String {
        try_open(files).map(|opened| opened.last_seq).expect_err("refused").to_string()
    }
}
