//! The file after the present segment: ordered ahead, awaited when needed, and taken.
//!
//! A separate thread prepares it ([`prepare_files`]), because filling it with zeros keeps the disk
//! busy for long. The first file is ordered after the start, see
//! [`Journal::prepare_next_file`](super::Journal::prepare_next_file), or earlier if it is needed.
//! The flusher orders each later file when the one before gets its name.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender},
    },
    time::Duration,
};

use crate::log::{
    files::File,
    segment_file::{self, NEXT_NAME},
    store::{DiskFull, Poisoned, Store},
};

/// Time between two polls for the file or its failure; usually the file was prepared long before.
const PREPARED_WAIT: Duration = Duration::from_millis(5);

/// Time between two tries to prepare a segment on a full disk: short enough to notice freed space
/// soon, and without load.
const FULL_RETRY: Duration = if cfg!(test) { Duration::from_millis(1) } else { Duration::from_secs(5) };

/// The writer's side of the thread that prepares files; the thread ends some time after this is
/// dropped.
pub(crate) struct NextFile {
    /// `None` once it was used.
    first_order: Option<SyncSender<()>>,
    /// The prepared file; disconnected when the flusher has given up.
    prepared: Receiver<io::Result<Arc<dyn File>>>,
    /// A file that was received and not taken yet.
    found: Option<Arc<dyn File>>,
}

/// Whether [`NextFile::look_for`] waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    No,
    /// Until the file is there, or the disk is known to be full.
    UntilKnown,
}

/// The result of [`NextFile::look_for`].
pub(crate) enum Next {
    There,
    /// It is still being prepared.
    NotYet,
    Full(DiskFull),
}

impl NextFile {
    pub(crate) fn new(first_order: SyncSender<()>, prepared: Receiver<io::Result<Arc<dyn File>>>) -> Self {
        Self { first_order: Some(first_order), prepared, found: None }
    }

    /// Checks whether the file is there.
    pub(crate) fn look_for(&mut self, store: &Store, wait: Wait) -> Result<Next, Poisoned> {
        self.order();
        while self.found.is_none() {
            let timeout = match wait {
                Wait::No => Duration::ZERO,
                Wait::UntilKnown => PREPARED_WAIT,
            };
            let error = match self.prepared.recv_timeout(timeout) {
                Ok(Ok(file)) => {
                    self.found = Some(file);
                    continue;
                }
                Ok(Err(error)) => error,
                Err(RecvTimeoutError::Timeout) => match store.disk_full() {
                    Some(full) => return Ok(Next::Full(full)),
                    None if wait == Wait::UntilKnown => continue,
                    None => return Ok(Next::NotYet),
                },
                Err(RecvTimeoutError::Disconnected) => {
                    io::Error::other("the thread that prepares segments has ended")
                }
            };
            return Err(store.poison("prepare", NEXT_NAME, error));
        }
        Ok(Next::There)
    }

    /// The file, if it is there and was not taken yet.
    pub(crate) fn take(&mut self) -> Option<Arc<dyn File>> {
        self.found.take()
    }

    /// Orders the first file, once.
    pub(crate) fn order(&mut self) {
        if let Some(first) = self.first_order.take() {
            // The channel holds one order, and no other thread orders before a file was taken.
            let _ = first.try_send(());
        }
    }
}

/// Prepares a file for every order, until the channel is closed.
///
/// While the disk is full it retries; others see only [`Store::disk_full`].
pub(crate) fn prepare_files(
    store: &Store,
    size: u64,
    orders: &Receiver<()>,
    prepared: &SyncSender<io::Result<Arc<dyn File>>>,
) {
    let files = store.files.as_ref();
    while orders.recv().is_ok() {
        let prepare = || segment_file::prepare(files, size, segment_file::for_new_segment(files)?);
        let mut file = prepare();
        while let Some(error) = file.as_ref().err().filter(|error| DiskFull::is_reason_of(error)) {
            store.set_full(size, error);
            if orders.recv_timeout(FULL_RETRY) == Err(RecvTimeoutError::Disconnected) {
                return;
            }
            file = prepare();
        }
        store.set_room();
        if prepared.send(file).is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use crate::{
        Level,
        log::{files::Files, memory::MemoryFiles},
        settings::Durability,
    };

    /// Whether the next file is there after a journal with segments of 4 KiB was opened, asked for
    /// it, filled, and closed.
    fn is_there_after(times_asked: usize, filled: std::ops::Range<u64>) -> bool {
        let files = MemoryFiles::new();
        let journal = open_with(&files, 4_096, Durability::Sync, set_clock().1).expect("opened").journal;
        (0..times_asked).for_each(|_| journal.prepare_next_file());
        journal.append_blocking(batch_of(filled), Level::Synced).expect("appended");
        journal.close_blocking().expect("closed");
        files.list().expect("listed").iter().any(|name| name == NEXT_NAME)
    }

    #[test]
    fn the_first_file_is_prepared_only_on_demand() {
        assert!(!is_there_after(0, 1..30));
        assert!(is_there_after(1, 1..2));
        assert!(is_there_after(2, 1..2));
        assert!(is_there_after(0, 1..60));
    }
}
