//! One inotify for all paths that are waited for: whatever happens in one of their folders has every path looked at again.
//!
//! Nothing is open while no path is waited for.

use std::{
    io,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use tokio::{
    io::unix::AsyncFd,
    sync::{Notify, futures::Notified},
};

use crate::source::readiness;

/// Longest that is read at once, in bytes; what is read is thrown away.
const READ_BYTES: usize = 4_096;

/// The folders in which something may happen.
#[derive(Debug, Default)]
pub(super) struct Folders {
    inotify: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
    looked: Notify,
}

impl Folders {
    /// Begins again without folders, and has every path looked at; `is_needed`: somebody waits for one.
    pub(super) fn renew(&self, is_needed: bool) {
        let opened = if is_needed { open() } else { Ok(None) };
        if let Err(error) = &opened {
            tracing::warn!(%error, "changes of files are not reported; they are looked at now and then");
        }
        *self.inotify.lock().unwrap_or_else(PoisonError::into_inner) = opened.ok().flatten();
        self.looked.notify_waiters();
    }

    /// Ends the waits in [`Folders::next`] when something happens in `folder`.
    pub(super) fn add(&self, folder: &Path) {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        if let Some(inotify) = self.current()
            && let Err(error) = add_watch(inotify.get_ref(), folder, flags)
        {
            tracing::debug!(folder = %folder.display(), %error, "a folder cannot be watched");
        }
    }

    fn current(&self) -> Option<Arc<AsyncFd<OwnedFd>>> {
        self.inotify.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What happens from now on ends the wait, also before it begins.
    pub(super) fn next(&self) -> Notified<'_> {
        self.looked.notified()
    }

    /// Waits until something happens, passes it on, and returns; for ever while nothing is watched.
    pub(super) async fn changed(&self) {
        let Some(inotify) = self.current() else { return std::future::pending().await };
        loop {
            let Ok(mut ready) = inotify.readable().await else { return std::future::pending().await };
            let mut buffer = [0; READ_BYTES];
            match ready
                .try_io(|inner| rustix::io::read(inner.get_ref(), &mut buffer).map_err(io::Error::from))
            {
                Ok(_) => self.looked.notify_waiters(),
                Err(_would_block) => {}
            }
        }
    }
}

fn open() -> io::Result<Option<Arc<AsyncFd<OwnedFd>>>> {
    let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    Ok(Some(Arc::new(readiness(inotify)?)))
}
