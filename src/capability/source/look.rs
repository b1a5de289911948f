//! Looks at files on dedicated threads, few at a time and with a time limit: a mount that does not
//! answer blocks forever.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use rustix::fs::{OFlags, statfs};
use tokio::{
    sync::{Notify, Semaphore},
    time::timeout,
};

use super::folders::Folders;

use crate::daemon::tasks::run_blocking;

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
