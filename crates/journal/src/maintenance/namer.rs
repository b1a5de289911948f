//! Makes the files of names of full segments, and removes those without a segment.

use std::{collections::BTreeSet, io, sync::Arc, time::Duration};

use tokio::sync::watch;

use crate::{
    Seq,
    log::{
        names::{self, Identity, NameHasher},
        reader::{ReadError, Reader},
        segment::Segment,
        store::Store,
    },
    lookup::read_names,
};

/// How many names are read before a pause: about a millisecond of work.
const NAMES_AT_ONCE: usize = 2_048;

/// The files of names, by the thread that seals.
#[derive(Debug, Default)]
pub(crate) struct Namer {
    has_tidied: bool,
    /// The first records of segments whose names cannot be read or written.
    given_up: BTreeSet<Seq>,
}

impl Namer {
    /// Makes the files that are missing; returns false if the journal closes first.
    pub(crate) fn work(&mut self, store: &Arc<Store>, pause: Duration) -> bool {
        if store.names.get().is_none() {
            return true;
        }
        if !self.has_tidied {
            self.has_tidied = true;
            tidy(store);
        }
        while let Some((segment, following)) = self.next(store) {
            match make(store, &segment, following, pause) {
                Ok(true) => {
                    segment.set_has_names(true);
                    segment.noted.forget();
                }
                Ok(false) => return false,
                Err(error) => {
                    // A look-up reads the segment instead.
                    tracing::warn!(first = %segment.first, error, "the names of a segment cannot be made");
                    self.given_up.insert(segment.first);
                }
            }
        }
        true
    }

    /// The newest full segment without names, and the first record of the one after it.
    fn next(&self, store: &Store) -> Option<(Arc<Segment>, Seq)> {
        let segments = store.read_segments();
        let pairs = segments.iter().zip(segments.iter().skip(1)).rev();
        let mut without = pairs.filter(|(segment, following)| {
            following.is_named() && !segment.has_names() && !self.given_up.contains(&segment.first)
        });
        without.next().map(|(segment, following)| (Arc::clone(segment), following.first))
    }
}

/// Makes the file of a segment unless it is there, from the noted names and those of earlier
/// records, which are read; returns false if the journal closes first.
fn make(store: &Arc<Store>, segment: &Segment, following: Seq, pause: Duration) -> Result<bool, String> {
    let Some(NameHasher { key, .. }) = store.names.get().copied() else { return Ok(true) };
    let (first, last) = (segment.first, following.previous());
    let said = |error: ReadError| error.to_string();
    // The segment is full and durable. The journal's own position may not say so yet: a large batch
    // is published after its last segment.
    let written = watch::channel(last).1;
    let mut reader = Reader::new(Arc::clone(store), written.clone(), last);
    let sum = match reader.next_batch(1) {
        // Retention deleted it.
        Err(ReadError::Gone { .. }) => return Ok(true),
        records => records.map_err(said)?.iter().next().map(|record| record.checksum()),
    };
    let Some(sum) = sum else { return Err(format!("record {last} is not there")) };
    let identity = Identity { first, last, sum };
    if names::is_there(store.files.as_ref(), identity) {
        return Ok(true);
    }
    let (noted_from, noted) = segment.noted.entries(first).unwrap_or((following, Vec::new()));
    let mut entries = Vec::new();
    let mut is_open = true;
    let read_to = read_names(store, &written, first, first, noted_from, |entry| {
        entries.push(entry);
        is_open = entries.len() % NAMES_AT_ONCE != 0 || store.maintenance.pause(pause);
        is_open
    })
    .map_err(said)?;
    if !is_open {
        return Ok(false);
    }
    if read_to < noted_from {
        return Err(format!("record {read_to} is not there"));
    }
    entries.extend(noted);
    let _changing = store.changing_files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if store.firsts().contains(&first) {
        names::write(store.files.as_ref(), identity, key, entries).map_err(|error| error.to_string())?;
    }
    Ok(true)
}

/// Removes files whose segment is gone.
fn tidy(store: &Store) {
    let _changing = store.changing_files.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let firsts: BTreeSet<Seq> = store.firsts().into_iter().collect();
    let is_left = |name: &String| {
        name == names::UNFINISHED_NAME || names::first_of(name).is_some_and(|first| !firsts.contains(&first))
    };
    let remove = || -> io::Result<()> {
        store.files.list()?.iter().filter(|name| is_left(name)).try_for_each(|name| store.files.remove(name))
    };
    if let Err(error) = remove() {
        tracing::debug!(%error, "files of names without a segment stay");
    }
}
