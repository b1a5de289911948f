//! The names of a segment's records, noted when the records are written, so that the segment is not
//! read again to make its file of names.
//!
//! Held until that file is made, for the newest [`NOTED_SEGMENTS_MAX`] segments at most: 8 bytes a
//! record, which is 1.3 MB for a segment of 64 MiB with records of 400 bytes, and 13 MB if it is
//! full of the smallest records. Records from before a start are not noted; they are read.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    Seq,
    log::names::{Entry, NO_NAME},
};

/// Most segments whose names are held in memory: the one that is written, and full ones whose file
/// of names cannot be made as fast. The names of older ones are read again.
pub(crate) const NOTED_SEGMENTS_MAX: usize = 4;

/// The hashes of the names of the newest records of one segment.
#[derive(Debug, Default)]
pub(crate) struct NotedNames(Mutex<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// The record of the first hash.
    from: Seq,
    /// One for each record, in order; [`NO_NAME`] for one without a name.
    hashes: Vec<u64>,
}

impl NotedNames {
    /// Notes the hashes of the records from `from` on, which follow those noted before.
    pub(crate) fn note(&self, from: Seq, hashes: &[u64]) {
        let mut noted = self.lock();
        if noted.hashes.is_empty() {
            noted.from = from;
        }
        debug_assert_eq!(from.0 - noted.from.0, noted.hashes.len() as u64, "records have no gap");
        noted.hashes.extend_from_slice(hashes);
    }

    /// The first noted record, and the positions of the noted records whose names have this hash,
    /// in order; `None` if none is noted.
    pub(crate) fn find(&self, hash: u64) -> Option<(Seq, Vec<Seq>)> {
        let noted = self.lock();
        let all = (noted.from.0..).map(Seq).zip(&noted.hashes);
        let same = all.filter(|(_, known)| **known == hash).map(|(seq, _)| seq).collect();
        (!noted.hashes.is_empty()).then_some((noted.from, same))
    }

    /// The first noted record, and the entries of all in the file of the segment that begins with
    /// `first`; `None` if none is noted.
    pub(crate) fn entries(&self, first: Seq) -> Option<(Seq, Vec<Entry>)> {
        let noted = self.lock();
        let offset = u32::try_from(noted.from.0.checked_sub(first.0)?).ok()?;
        let all = noted.hashes.iter().copied().zip(offset..);
        let named = all.filter(|(hash, _)| *hash != NO_NAME).collect();
        (!noted.hashes.is_empty()).then_some((noted.from, named))
    }

    /// Frees the memory.
    pub(crate) fn forget(&self) {
        *self.lock() = Noted::default();
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
