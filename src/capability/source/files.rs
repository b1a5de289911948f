//! Files outside: notifications of their folders, and looks at them.
//!
//! One inotify serves the folders of all tasks: any event in a folder wakes the tasks that watch it. The
//! kind of the event is not reported, because every woken task looks for itself. So an overflow of the
//! system's queue loses nothing. Nothing is open while no task watches.
//!
//! Files are looked at on dedicated threads, few at a time and with a time limit: a mount that does not
//! answer blocks forever.

use std::{
    collections::HashMap,
    fs::{self, File, Metadata, OpenOptions},
    io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::{
    fs::{
        OFlags,
        inotify::{CreateFlags, ReadFlags, Reader, WatchFlags, add_watch, init},
        statfs,
    },
    io::Errno,
};
use tokio::{
    io::unix::AsyncFd,
    sync::{Notify, Semaphore},
    time::timeout,
};

use crate::{capability::source::readiness, daemon::tasks::run_blocking};

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

/// The time limit of a look at one file.
pub(crate) const LOOK_MAX: Duration = Duration::from_secs(2);
/// The poll interval of files whose changes are not reported, as on a network mount.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Limit of concurrent looks, each on its own thread.
static LOOKS: Semaphore = Semaphore::const_new(8);
/// File systems that do not report changes by other machines: 9p, AFS, Ceph, CIFS, Coda, FUSE, NCP,
/// NFS, SMB, SMB2.
const REMOTE: [u64; 10] = [
    0x0102_1997,
    0x5346_414f,
    0x00c3_6400,
    0xff53_4d42,
    0x7375_7245,
    0x6573_5546,
    0x564c,
    0x6969,
    0x517b,
    0xfe53_4d42,
];

/// Runs `look`, which may block, on a thread.
///
/// Errors: those of `look`, or `path` does not answer in time.
pub(crate) async fn on_thread<T: Send + 'static>(
    path: &str,
    within: Duration,
    look: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, format!("{path} does not answer"));
    let looked = async {
        let permit = LOOKS.acquire().await.map_err(|_| late())?;
        let task = run_blocking(move || {
            let looked = look();
            drop(permit);
            looked
        });
        task.await.map_err(io::Error::other)?
    };
    timeout(within, looked).await.unwrap_or_else(|_| Err(late()))
}

/// Wakes `who` at events of `path`: in its folder, or in the nearest existing one, and likewise at
/// the targets of links.
pub(crate) fn watch_around(path: &Path, folders: &Folders, who: &Arc<Notify>) {
    let add = |folder: &Path| {
        if let Err(error) = folders.add(folder, who) {
            tracing::debug!(folder = %folder.display(), %error, "a folder cannot be watched");
        }
    };
    if path.is_dir() {
        add(path);
    }
    let nearest = |path: &Path| {
        if let Some(folder) = nearest_folder(path) {
            add(folder);
        }
    };
    nearest(path);
    if let Ok(real) = fs::canonicalize(path)
        && real != path
    {
        nearest(&real);
    }
}

fn nearest_folder(path: &Path) -> Option<&Path> {
    path.ancestors().skip(1).find(|folder| folder.is_dir())
}

/// Whether changes of `path` may be reported only to other machines, so that it must be polled.
pub(crate) fn is_remote(path: &Path) -> bool {
    let found = nearest_folder(path).and_then(|folder| statfs(folder).ok());
    found.is_some_and(|found| {
        u64::try_from(found.f_type).is_ok_and(|kind| REMOTE.contains(&(kind & 0xffff_ffff)))
    })
}

/// The metadata of a path; `None` if nothing exists there.
pub(crate) fn metadata(path: &str) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether an error means that nothing exists at a path.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Opens a file without blocking; `None` if nothing exists there.
///
/// Errors: those of the system, or it is not a regular file.
pub(crate) fn open_file(path: &str) -> io::Result<Option<(File, Metadata)>> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if is_absence(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{path} is not a file")));
    }
    Ok(Some((file, found)))
}
