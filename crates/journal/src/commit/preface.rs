//! The first record of every segment: a copy of the newest record of one kind.
//!
//! With it a reader has that record even if all earlier segments were deleted. The copy has its own
//! position.

use crate::log::record::{self, RecordKind};

/// The kind of that record, and its newest body.
#[derive(Debug, Default)]
pub(crate) struct Preface {
    /// `None` when segments begin without a preface.
    kind: Option<RecordKind>,
    /// The body of the newest record of that kind; empty until the first one is appended.
    body: Vec<u8>,
}

impl Preface {
    /// Creates the state without a record.
    pub(crate) fn of_kind(kind: Option<RecordKind>) -> Self {
        Self { kind, body: Vec::new() }
    }

    /// Remembers a record that is written.
    pub(crate) fn note(&mut self, kind: RecordKind, body: &[u8]) {
        if self.kind == Some(kind) {
            self.body.clear();
            self.body.extend_from_slice(body);
        }
    }

    /// Takes the preface to write now; the write notes it again.
    pub(crate) fn take(&mut self) -> Option<(RecordKind, Vec<u8>)> {
        let kind = self.kind.filter(|_| !self.body.is_empty())?;
        Some((kind, std::mem::take(&mut self.body)))
    }

    /// Its size in each segment, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        if self.body.is_empty() { 0 } else { record::size_of(self.body.len()) as u64 }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        AppendBatch, Journal, Level, Outcome, RecordBuf, Seq,
        log::{memory::MemoryFiles, record::RecordKind},
        settings::JournalSettings,
        time::Timestamp,
    };

    const RULES: RecordKind = RecordKind(7);
    const OTHER: RecordKind = RecordKind(1);

    fn open(files: &MemoryFiles) -> Journal {
        let settings = JournalSettings {
            segment_bytes: 4_096,
            seal: false,
            preface: Some(RULES),
            ..JournalSettings::default()
        };
        let clock = Arc::new(|| Timestamp::from_millis(7));
        Journal::open(Arc::new(files.clone()), settings, clock, &|_| None).expect("opened").journal
    }

    fn batch(kind: RecordKind, bodies: &[Vec<u8>]) -> AppendBatch {
        let mut batch = AppendBatch::new();
        for body in bodies {
            batch.push(kind, body, None).expect("small");
        }
        batch
    }

    fn records(journal: &Journal) -> Vec<RecordBuf> {
        let mut reader = journal.read_from(Seq(1));
        std::iter::from_fn(|| {
            let batch: Vec<_> =
                reader.next_batch(1_000).expect("readable").iter().map(RecordBuf::from).collect();
            (!batch.is_empty()).then_some(batch)
        })
        .flatten()
        .collect()
    }

    /// The kind and body of the first record of each segment except the first.
    fn beginnings(files: &MemoryFiles, journal: &Journal) -> Vec<(RecordKind, String)> {
        let records = records(journal);
        let mut firsts: Vec<u64> = crate::log::files::Files::list(files)
            .expect("listed")
            .iter()
            .filter_map(|name| name.strip_suffix(".seg")?.parse().ok())
            .collect();
        firsts.sort_unstable();
        let of = |first: &u64| {
            let record = records.iter().find(|record| record.seq == Seq(*first))?;
            Some((record.kind, String::from_utf8_lossy(&record.body).into_owned()))
        };
        firsts.iter().skip(1).filter_map(of).collect()
    }

    #[test]
    fn each_segment_starts_with_the_newest_preface_record() {
        let files = MemoryFiles::new();
        let journal = open(&files);
        let large = |text: &str| vec![text.repeat(1_000).into_bytes()];
        let append = |kind, bodies: &[Vec<u8>]| {
            journal.append_blocking(batch(kind, bodies), Level::Synced).expect("appended")
        };
        for _ in 0..5 {
            append(OTHER, &large("a"));
        }
        assert!(beginnings(&files, &journal).iter().all(|(kind, _)| *kind == OTHER), "there is none yet");
        append(RULES, &[b"first".to_vec()]);
        for _ in 0..5 {
            append(OTHER, &large("b"));
        }
        append(RULES, &[b"second".to_vec()]);
        for _ in 0..8 {
            append(OTHER, &large("c"));
        }
        let begun = beginnings(&files, &journal);
        let of_rules: Vec<&str> =
            begun.iter().filter(|(kind, _)| *kind == RULES).map(|(_, body)| body.as_str()).collect();
        assert!(of_rules.starts_with(&["first"]) && of_rules.ends_with(&["second", "second"]), "{begun:?}");
        let from_first = begun.iter().position(|(kind, _)| *kind == RULES).expect("one");
        assert!(begun.iter().skip(from_first).all(|(kind, _)| *kind == RULES), "{begun:?}");
    }

    #[test]
    fn a_multi_segment_batch_reports_its_record_positions() {
        let files = MemoryFiles::new();
        let journal = open(&files);
        journal.append_blocking(batch(RULES, &[b"rules".to_vec()]), Level::Synced).expect("appended");
        let bodies: Vec<Vec<u8>> = (0..20_u8).map(|n| vec![b'a' + n; 900]).collect();
        let appended = journal.append_blocking(batch(OTHER, &bodies), Level::Synced).expect("appended");
        let all = records(&journal);
        let positions: Vec<Seq> =
            all.iter().filter(|record| record.kind == OTHER).map(|record| record.seq).collect();
        let answered: Vec<Seq> = appended
            .outcomes()
            .map(|outcome| match outcome {
                Outcome::Appended(seq) | Outcome::Duplicate(seq) => seq,
            })
            .collect();
        assert_eq!(answered, positions);
        assert_eq!(
            (appended.first(), appended.last()),
            (positions.first().copied(), positions.last().copied())
        );
        assert!(all.len() > 22, "several segments were begun: {}", all.len());
    }
}
