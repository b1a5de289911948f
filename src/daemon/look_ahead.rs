//! What later records of the journal say of earlier exchanges: what each of them released.
//!
//! A replay needs that before it applies the exchange, so a second reader goes ahead of the first.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    event::Seq,
    exchange::{Release, ReleaseRecord},
    journal::Reader,
    protocol::record::{self, RecordInput},
};

/// How many records ahead it is read. What an exchange released is written before the next record is applied, and publishers wait when
/// the engine is 16,384 records behind.
const RECORDS_AHEAD: u64 = 65_536;
/// Most records that are read at a time.
const BATCH_RECORDS_MAX: usize = 4_096;

/// Knows what is said of the records up to one.
#[derive(Debug)]
pub(super) struct LookAhead {
    reader: Reader,
    /// The last record that an earlier process wrote: what came after it is decided by this one.
    until: Seq,
    releases: BTreeMap<Seq, ReleaseRecord>,
    skipped: BTreeSet<Seq>,
    has_failed: bool,
}

impl LookAhead {
    /// Reads from where `reader` is; `skipped` records are not followed.
    pub(super) fn new(reader: Reader, until: Seq, skipped: BTreeSet<Seq>) -> Self {
        Self { reader, until, releases: BTreeMap::new(), skipped, has_failed: false }
    }

    /// Whether the record at `seq` is not followed.
    pub(super) fn is_skipped(&self, seq: Seq) -> bool {
        self.skipped.contains(&seq)
    }

    /// What the exchange at `seq` released, if its process has ended.
    pub(super) fn release_of(&mut self, seq: Seq) -> Release {
        self.read_for(seq);
        if seq > self.until { Release::Decide } else { Release::Recorded(self.releases.remove(&seq)) }
    }

    /// Reads on until all that concerns `seq` was read.
    fn read_for(&mut self, seq: Seq) {
        let wanted = Seq(seq.0.saturating_add(RECORDS_AHEAD)).min(self.until);
        while !self.has_failed && self.reader.position() <= wanted {
            match self.reader.next_batch(BATCH_RECORDS_MAX) {
                Ok(batch) if batch.is_empty() => return,
                Ok(batch) => {
                    for found in batch.iter().filter(|found| found.kind.0 == record::RELEASED) {
                        // What cannot be read is met again by who applies it.
                        if let Ok(RecordInput::Released(release)) =
                            record::decode(found.kind.0, found.seq, found.body)
                        {
                            self.releases.insert(release.exchange, release);
                        }
                    }
                }
                Err(_) => self.has_failed = true,
            }
        }
    }
}
