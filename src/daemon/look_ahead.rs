//! Finds in later records which notifications each earlier exchange released.
//!
//! A replay needs the release before it applies the exchange. So a second reader runs ahead of the
//! first, from the exchange to its release. Without exchanges no record is read twice.

use std::collections::BTreeMap;

use engine::{
    event::Seq,
    exchange::{Release, ReleaseRecord},
    records::{self, RecordInput},
    sorted::SortedSet,
};
use journal::Reader;

/// Largest distance between an exchange and its release, in records. The release is written before
/// the next record is applied, and publishers wait when the engine is 4 to 16,384 records behind,
/// depending on its pace.
const RECORDS_AHEAD: u64 = 65_536;
/// Most records per read.
const BATCH_RECORDS_MAX: usize = 4_096;

/// Collects releases and skipped records up to a position.
#[derive(Debug)]
pub(super) struct LookAhead {
    reader: Reader,
    /// The last record of an earlier process; this process decides later ones.
    until: Seq,
    releases: BTreeMap<Seq, ReleaseRecord>,
    /// The newest exchange whose release was read; the releases of earlier exchanges are written
    /// before it.
    newest: Seq,
    skipped: SortedSet<Seq>,
    has_failed: bool,
}

impl LookAhead {
    /// Reads with `reader`, which is at or before the first exchange; `skipped` records are not
    /// applied.
    pub(super) fn new(reader: Reader, until: Seq, skipped: SortedSet<Seq>) -> Self {
        Self { reader, until, releases: BTreeMap::new(), newest: Seq::ZERO, skipped, has_failed: false }
    }

    /// Whether the record at `seq` is skipped.
    pub(super) fn is_skipped(&self, seq: Seq) -> bool {
        self.skipped.contains(&seq)
    }

    /// The notifications that the exchange at `seq` released, if its process has ended. Call it in
    /// order.
    pub(super) fn release_of(&mut self, seq: Seq) -> Release {
        if seq > self.until {
            return Release::Decide;
        }
        self.read_for(seq);
        Release::Recorded(self.releases.remove(&seq))
    }

    /// Reads until the release of the exchange at `seq` is found.
    fn read_for(&mut self, seq: Seq) {
        self.reader.skip_to(seq.next());
        let last = Seq(seq.0.saturating_add(RECORDS_AHEAD)).min(self.until);
        while !self.has_failed && self.newest < seq && self.reader.position() <= last {
            match self.reader.next_batch(BATCH_RECORDS_MAX) {
                Ok(batch) if batch.is_empty() => return,
                Ok(batch) => {
                    for found in batch.iter().filter(|found| found.kind.0 == records::RELEASED) {
                        // The main replay reports unreadable records.
                        if let Ok(RecordInput::Released(release)) =
                            records::decode(found.kind.0, found.seq, found.body)
                        {
                            self.newest = self.newest.max(release.exchange);
                            self.releases.insert(release.exchange, release);
                        }
                    }
                }
                Err(_) => self.has_failed = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use engine::exchange::InjectionId;
    use journal::{
        AppendBatch, Journal, JournalSettings, Level, RecordKind, memory::MemoryFiles, time::Timestamp,
    };

    /// A journal of `records` records. Each pair is the position of a release, and of its exchange.
    fn journal(records: u64, released: &[(u64, u64)]) -> Journal {
        let settings = JournalSettings { segment_bytes: 1 << 20, ..JournalSettings::default() };
        let clock = Arc::new(|| Timestamp::ZERO);
        let opened = Journal::open(Arc::new(MemoryFiles::new()), settings, clock, &|_| None).expect("opened");
        for place in 1..=records {
            let exchange = released.iter().find(|(at, _)| *at == place).map(|(_, exchange)| Seq(*exchange));
            let mut body = Vec::new();
            let kind = if let Some(exchange) = exchange {
                records::encode_released(&release(exchange), &mut body);
                records::RELEASED
            } else {
                records::encode_bare(&mut body);
                records::TICK
            };
            let batch = AppendBatch::of(RecordKind(kind), &body, None).expect("small");
            opened.journal.append_blocking(batch, Level::Written).expect("appended");
        }
        opened.journal
    }

    fn release(exchange: Seq) -> ReleaseRecord {
        let injection = InjectionId::new(&format!("of{exchange}"));
        ReleaseRecord { exchange, injection, notifications: Vec::new(), directive: None }
    }

    fn recorded(exchange: u64) -> Release {
        Release::Recorded(Some(release(Seq(exchange))))
    }

    #[test]
    fn look_ahead_finds_the_release_of_each_exchange() {
        let journal = journal(30_000, &[(3, 2), (9_000, 7), (9_001, 8), (29_000, 28_000)]);
        let mut ahead = LookAhead::new(journal.read_from(Seq(1)), Seq(30_000), SortedSet::new());
        let nothing = Release::Recorded(None);
        for (exchange, expected) in [
            (2, recorded(2)),
            (5, nothing.clone()),
            (7, recorded(7)),
            (8, recorded(8)),
            (20_000, nothing.clone()),
            (28_000, recorded(28_000)),
            (29_500, nothing),
            (30_001, Release::Decide),
        ] {
            assert_eq!(ahead.release_of(Seq(exchange)), expected, "{exchange}");
        }
    }

    #[test]
    fn look_ahead_reads_from_exchange_to_release_only() {
        let journal = journal(40_000, &[(20_001, 20_000), (20_003, 20_002)]);
        let mut ahead = LookAhead::new(journal.read_from(Seq(1)), Seq(40_000), SortedSet::new());
        assert!(!ahead.is_skipped(Seq(7)));
        assert_eq!(ahead.reader.position(), Seq(1));
        assert_eq!(ahead.release_of(Seq(20_000)), recorded(20_000));
        let read = ahead.reader.position();
        assert!(read <= Seq(20_000 + BATCH_RECORDS_MAX as u64 + 1), "{read}");
        assert_eq!(ahead.release_of(Seq(20_002)), recorded(20_002));
        assert_eq!(ahead.reader.position(), read, "it was known");
    }
}
