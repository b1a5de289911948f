//! The identity of a journal, which each of its segments carries.
//!
//! Segments differ by their first records alone, and two journals have the same numbers. A
//! segment of another journal would be read as if its records were this one's.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    io,
};

use crate::log::{
    files::Files,
    segment_file::{self, JournalId, NEXT_NAME},
};

/// A new identity.
fn random() -> JournalId {
    let [a, b, c, d, ..] = RandomState::new().hash_one(0).to_le_bytes();
    JournalId([a, b, c, d])
}

/// The identity for a new segment: the journal's, else a new one.
pub(crate) fn for_new_segment(files: &dyn Files) -> io::Result<JournalId> {
    Ok(most_common(&all(files)?).unwrap_or_else(random))
}

/// The names of the segments of other journals: those whose identity is not the one that most
/// segments have.
pub(crate) fn foreign(files: &dyn Files) -> io::Result<Vec<String>> {
    let ids = all(files)?;
    let own = most_common(&ids);
    let mut names: Vec<String> =
        ids.into_iter().filter(|(_, id)| Some(*id) != own).map(|(name, _)| name).collect();
    names.sort_unstable();
    Ok(names)
}

/// The segments whose headers are valid, with their identities.
fn all(files: &dyn Files) -> io::Result<Vec<(String, JournalId)>> {
    let mut ids = Vec::new();
    for name in files.list()? {
        let is_segment = segment_file::first_of(&name).is_some() || name == NEXT_NAME;
        if is_segment && let Some(id) = of_file(files, &name)? {
            // A prepared file without records gets a new header.
            if name != NEXT_NAME || segment_file::begins_used(files.open(&name)?.as_ref())? {
                ids.push((name, id));
            }
        }
    }
    Ok(ids)
}

fn most_common(ids: &[(String, JournalId)]) -> Option<JournalId> {
    let mut counts: BTreeMap<JournalId, usize> = BTreeMap::new();
    ids.iter().for_each(|(_, id)| *counts.entry(*id).or_default() += 1);
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(id, _)| id)
}

/// The identity in a file; `None` if its header is damaged, or the file is gone.
fn of_file(files: &dyn Files, name: &str) -> io::Result<Option<JournalId>> {
    match files.open(name) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::IsADirectory) => {
            Ok(None)
        }
        file => segment_file::id_of(file?.as_ref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        OpenError, RecordKind, RepairMode, Seq, Tombstone,
        log::memory::MemoryFiles,
        repair,
        testing::{filled, try_open, try_open_plainly},
        verify,
    };

    const TOMBSTONE: Tombstone<'static> = Tombstone { kind: RecordKind(255), body: b"lost" };

    /// Puts the file of `from` in the place of the one of `to`.
    fn put(from: &MemoryFiles, to: &MemoryFiles, name: &str) {
        let file = from.open(name).expect("there");
        let mut bytes = vec![0; usize::try_from(file.size().expect("sized")).expect("small")];
        file.read_at(&mut bytes, 0).expect("read");
        let copy = to.create(name).expect("created");
        copy.write_at(&bytes, 0).and_then(|()| copy.sync_data()).expect("written");
    }

    #[test]
    fn a_foreign_segment_is_refused_and_named() {
        for seals in [false, true] {
            let other = filled(40, seals);
            let mut names = other.list().expect("listed");
            names.retain(|name| segment_file::first_of(name).is_some());
            names.sort();
            assert!(names.len() > 4, "{names:?}");
            for name in &names {
                let files = filled(40, seals);
                put(&other, &files, name);
                let refused = try_open(&files).expect_err("it is of another journal");
                assert!(matches!(&refused, OpenError::Foreign { path } if path.ends_with(name)), "{refused}");
                let verified = verify(&files, TOMBSTONE.kind, Seq::ZERO).expect("readable");
                let found: Vec<&String> = verified
                    .segments
                    .iter()
                    .filter(|segment| !segment.findings.is_empty())
                    .map(|segment| &segment.name)
                    .collect();
                assert_eq!(found, [name]);
                let repaired = repair(&files, TOMBSTONE, Seq::ZERO, RepairMode::Rewrite).expect("repaired").1;
                assert_eq!((repaired.len(), repaired[0].records), (1, 0), "none of its records is kept");
                assert!(files.list().expect("listed").contains(&format!("{name}.damaged-1")));
                assert!(try_open_plainly(&files).is_ok(), "{name}");
            }
        }
    }
}
