//! One inotify for the folders of all tasks: any event in a folder wakes the tasks that watch it.
//!
//! The kind of the event is not reported, because every woken task looks for itself. So an overflow
//! of the system's queue loses nothing. Nothing is open while no task watches.

use std::{
    collections::HashMap,
    io,
    mem::MaybeUninit,
    os::fd::OwnedFd,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init},
    io::Errno,
};
use tokio::{io::unix::AsyncFd, sync::Notify};

use super::readiness;

/// Size of the read buffer, in bytes: some dozens of events, or one with the longest name.
const READ_BYTES: usize = 4_096;

/// The watched folders.
#[derive(Debug)]
pub(crate) struct Folders {
    flags: WatchFlags,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inotify: Option<Arc<AsyncFd<OwnedFd>>>,
    /// The tasks that watch a folder, by its inotify watch number.
    asked: HashMap<i32, Vec<Arc<Notify>>>,
}

impl Default for Folders {
    /// Reports changes of names, content and metadata.
    fn default() -> Self {
        Self::reporting(WatchFlags::MODIFY | WatchFlags::ATTRIB)
    }
}

impl Folders {
    /// Reports changes of names and finished writes, plus `flags`.
    pub(crate) fn reporting(flags: WatchFlags) -> Self {
        let names = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::DELETE_SELF;
        let moves = WatchFlags::MOVE | WatchFlags::MOVE_SELF;
        let flags = names | moves | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR | flags;
        Self { flags, state: Mutex::default() }
    }

    /// Starts without folders, and wakes all watching tasks. Opens an inotify if `tasks`, the
    /// number of tasks that will watch folders, is not zero.
    pub(crate) fn renew(&self, tasks: usize) {
        let opened = if tasks > 0 { open().map(Some) } else { Ok(None) };
        if let Err(error) = &opened {
            tracing::warn!(%error, "the system does not report file changes; files are polled");
        }
        let mut state = self.lock();
        state.inotify = opened.ok().flatten();
        for who in std::mem::take(&mut state.asked).into_values().flatten() {
            who.notify_one();
        }
    }

    /// Whether the system reports changes; otherwise files have to be polled.
    pub(crate) fn is_reporting(&self) -> bool {
        self.lock().inotify.is_some()
    }

    /// Wakes `who` at each event in `folder`.
    ///
    /// Errors: the system's limit of watches is reached, or `folder` is not a folder.
    pub(crate) fn add(&self, folder: &Path, who: &Arc<Notify>) -> io::Result<()> {
        let mut state = self.lock();
        let Some(inotify) = &state.inotify else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "changes are not reported"));
        };
        let number = add_watch(inotify.get_ref(), folder, self.flags)?;
        let asked = state.asked.entry(number).or_default();
        if !asked.iter().any(|other| Arc::ptr_eq(other, who)) {
            asked.push(Arc::clone(who));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for events, wakes their tasks, and returns; waits forever while nothing is watched.
    pub(crate) async fn changed(&self) {
        let inotify = self.lock().inotify.clone();
        let Some(inotify) = inotify else { return std::future::pending().await };
        loop {
            let Ok(mut ready) = inotify.readable().await else { return std::future::pending().await };
            if let Ok(Ok(())) = ready.try_io(|inner| self.pass_on(inner.get_ref())) {
                return;
            }
        }
    }

    /// Reads all pending events, and wakes their tasks.
    fn pass_on(&self, inotify: &OwnedFd) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut reader = Reader::new(inotify, &mut buffer);
        let mut is_first = true;
        loop {
            let (number, what) = match reader.next() {
                Ok(event) => (event.wd(), event.events()),
                Err(Errno::AGAIN) if !is_first => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            is_first = false;
            let mut state = self.lock();
            let of_all = what.contains(ReadFlags::QUEUE_OVERFLOW);
            for (_, asked) in state.asked.iter().filter(|(asked, _)| of_all || **asked == number) {
                asked.iter().for_each(|who| who.notify_one());
            }
            if what.contains(ReadFlags::IGNORED) {
                state.asked.remove(&number);
            }
        }
    }
}

fn open() -> io::Result<Arc<AsyncFd<OwnedFd>>> {
    let inotify = init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
    Ok(Arc::new(readiness(inotify)?))
}
