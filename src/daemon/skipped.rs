//! Finds the skipped records of the journal without reading all of it.
//!
//! A later record of the kind `skipped`, at any position, marks a record as skipped. A file in the
//! state folder lists the positions of these `skipped` records. The journal is authoritative: every
//! listed position must have such a record. If the list is missing or of another journal, the whole
//! journal is read once, and the list is written again.

use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use engine::{
    event::Seq,
    records::{self, RecordInput, Skip, SkipDecision},
    sorted::{SortedMap, SortedSet},
};
use journal::{Journal, ReadError, ReadOnly, Record, RecordBuf};

/// The list's name in the state folder.
const FILE_NAME: &str = "skipped";

/// The skipped records.
#[derive(Debug)]
pub(super) struct Skipped {
    path: PathBuf,
    /// The positions of the `skipped` records; the file has them as a JSON array.
    places: SortedSet<Seq>,
    records: SortedSet<Seq>,
    /// The build that skipped each of them.
    by: SortedMap<Seq, Box<str>>,
}

impl Skipped {
    /// The skipped records of `journal`, from the list in `state` if it belongs to this journal.
    pub(super) fn open(state: &Path, journal: &Journal) -> Self {
        let path = state.join(FILE_NAME);
        let mut found = Self::none(path);
        if found.read_listed(|seq| journal.read_at(seq)).is_some() {
            return found;
        }
        found = Self::none(found.path);
        let searched = journal.find(|record| {
            if let Some(skip) = skip_of(record) {
                found.places.insert(record.seq);
                found.decide(skip);
            }
            false
        });
        match searched {
            Ok(_) => found.write(),
            Err(error) => {
                tracing::warn!(%error, "the skipped records could not be read; the next start reads them again")
            }
        }
        found
    }

    /// The skipped records of a journal that is only read; the list in `state` is not written.
    ///
    /// Errors: there is no list of this journal, and the journal cannot be read.
    pub(super) fn look_up(state: &Path, journal: &ReadOnly) -> Result<SortedSet<Seq>, ReadError> {
        let mut found = Self::none(state.join(FILE_NAME));
        if found.read_listed(|seq| journal.read_at(seq)).is_some() {
            return Ok(found.records);
        }
        found = Self::none(found.path);
        let mut reader = journal.read_from(journal.first());
        loop {
            let batch = reader.next_batch(usize::MAX)?;
            if batch.is_empty() {
                return Ok(found.records);
            }
            batch.iter().filter_map(skip_of).for_each(|skip| found.decide(skip));
        }
    }

    fn none(path: PathBuf) -> Self {
        Self { path, places: SortedSet::new(), records: SortedSet::new(), by: SortedMap::new() }
    }

    /// The skipped records.
    pub(super) fn records(&self) -> &SortedSet<Seq> {
        &self.records
    }

    /// The skipped records, by value.
    pub(super) fn into_records(self) -> SortedSet<Seq> {
        self.records
    }

    /// Those that a program of another build than `build` skipped.
    pub(super) fn of_other_builds(&self, build: &str) -> SortedSet<Seq> {
        self.by.iter().filter(|(_, by)| **by != *build).map(|(record, _)| *record).collect()
    }

    /// Applies a record again, until [`Self::add`].
    pub(super) fn take_back(&mut self, record: Seq) {
        self.records.remove(&record);
        self.by.remove(&record);
    }

    /// Adds a record, and the position of its `skipped` record if there is one.
    pub(super) fn add(&mut self, record: Seq, place: Option<Seq>) {
        self.records.insert(record);
        self.note(place);
    }

    /// Adds the position of a `skipped` record whose decision is known.
    pub(super) fn note(&mut self, place: Option<Seq>) {
        if let Some(place) = place {
            self.places.insert(place);
            self.write();
        }
    }

    /// Takes the decision of the next `skipped` record.
    fn decide(&mut self, Skip { record, by, decision }: Skip) {
        match decision {
            SkipDecision::Skipped => {
                self.records.insert(record);
                self.by.insert(record, by);
            }
            SkipDecision::TakenBack => self.take_back(record),
        }
    }

    /// Reads the list and the records it refers to, by `read_at`; `None` when there is no list of
    /// this journal.
    fn read_listed(&mut self, read_at: impl Fn(Seq) -> Result<Option<RecordBuf>, ReadError>) -> Option<()> {
        let mut places: SortedSet<Seq> = serde_json::from_slice(&fs::read(&self.path).ok()?).ok()?;
        let mut oldest = Seq::ZERO;
        for place in &places {
            match read_at(*place) {
                Ok(found) => self.decide(skip_of(found?.as_record())?),
                // The record that it skips was deleted too.
                Err(ReadError::Gone { oldest: first, .. }) => oldest = first,
                Err(ReadError::Io { .. } | ReadError::Damaged { .. }) => return None,
            }
        }
        places.retain(|place| *place >= oldest);
        self.places = places;
        Some(())
    }

    /// Writes the list. A torn one is invalid JSON, so no second file is needed.
    fn write(&self) {
        let bytes = serde_json::to_vec(&self.places).expect("numbers always serialize into memory");
        let write = || -> io::Result<()> {
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&self.path)?;
            file.write_all(&bytes)?;
            file.sync_all()
        };
        if let Err(error) = write() {
            tracing::warn!(%error, "the list of skipped records cannot be written");
            // An incomplete list would be trusted.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// What a `skipped` record decided.
pub(super) fn skip_of(record: Record<'_>) -> Option<Skip> {
    let is_skipped = record.kind.0 == records::SKIPPED;
    match is_skipped.then(|| records::decode(record.kind.0, record.seq, record.body))? {
        Ok(RecordInput::Skipped(skipped)) => Some(skipped),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use journal::{AppendBatch, JournalSettings, Level, RecordKind, memory::MemoryFiles, time::Timestamp};

    /// A journal of 40 records; each pair is the position of a `skipped` record and the record it
    /// skips.
    fn journal(skipped: &[(u64, u64)]) -> Journal {
        let settings = JournalSettings { segment_bytes: 400, seal: false, ..JournalSettings::default() };
        let clock = Arc::new(|| Timestamp::ZERO);
        let opened = Journal::open(Arc::new(MemoryFiles::new()), settings, clock, &|_| None).expect("opened");
        for place in 1..=40 {
            let mut body = Vec::new();
            let record = skipped.iter().find(|(at, _)| *at == place);
            let kind = record.map_or(records::TICK, |_| records::SKIPPED);
            match record {
                Some((_, record)) => {
                    records::encode_skipped(Seq(*record), "old", SkipDecision::Skipped, &mut body);
                }
                None => records::encode_bare(&mut body),
            }
            let batch = AppendBatch::of(RecordKind(kind), &body, None).expect("small");
            opened.journal.append_blocking(batch, Level::Synced).expect("appended");
        }
        opened.journal
    }

    fn records(state: &Path, journal: &Journal) -> Vec<u64> {
        Skipped::open(state, journal).records().iter().map(|record| record.0).collect()
    }

    fn list(state: &Path) -> String {
        fs::read_to_string(state.join(FILE_NAME)).expect("written")
    }

    #[test]
    fn missing_or_damaged_list_is_rebuilt_from_journal() {
        let state = tempfile::tempdir().expect("a folder");
        let journal = journal(&[(5, 3), (30, 6)]);
        assert_eq!((records(state.path(), &journal), list(state.path())), (vec![3, 6], "[5,30]".to_owned()));
        for damaged in ["", "[5", "[5,31]", "[41]", "[\"5\"]"] {
            fs::write(state.path().join(FILE_NAME), damaged).expect("written");
            assert_eq!(records(state.path(), &journal), [3, 6], "{damaged}");
            assert_eq!(list(state.path()), "[5,30]", "{damaged}");
        }
    }

    #[test]
    fn a_list_spares_reading_the_journal() {
        let state = tempfile::tempdir().expect("a folder");
        fs::write(state.path().join(FILE_NAME), "[30]").expect("written");
        assert_eq!(records(state.path(), &journal(&[(5, 3), (30, 6)])), [6], "it is believed to be whole");
    }

    #[test]
    fn added_record_is_listed_only_if_journaled() {
        let state = tempfile::tempdir().expect("a folder");
        let journal = journal(&[(5, 3), (39, 20)]);
        fs::write(state.path().join(FILE_NAME), "[5]").expect("written");
        let mut skipped = Skipped::open(state.path(), &journal);
        skipped.add(Seq(7), None);
        assert_eq!((skipped.records().len(), list(state.path())), (2, "[5]".to_owned()));
        skipped.add(Seq(20), Some(Seq(39)));
        assert_eq!((skipped.records().len(), list(state.path())), (3, "[5,39]".to_owned()));
        assert_eq!(records(state.path(), &journal), [3, 20]);
    }

    #[test]
    fn deleted_records_leave_the_skipped_list() {
        let state = tempfile::tempdir().expect("a folder");
        let journal = journal(&[(2, 1), (35, 30)]);
        assert_eq!(records(state.path(), &journal), [1, 30]);
        journal.forget_before(Seq(20)).expect("deleted");
        let mut skipped = Skipped::open(state.path(), &journal);
        assert_eq!(skipped.records().len(), 1);
        skipped.add(Seq(36), Some(Seq(40)));
        assert_eq!(list(state.path()), "[35,40]");
    }
}
