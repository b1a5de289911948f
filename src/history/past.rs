//! What a time led to, for a command that only reads: the file is not changed, and no file is made
//! next to it. A file in use is copied.

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use engine::{
    event::Seq,
    notification::{NotificationId, SubscriberId, Tokens},
};
use journal::time::Timestamp;
use rusqlite::{Connection, OpenFlags, params};

use super::{
    Doing, ProjectionError,
    rows::{self, from_sql, to_sql},
};

/// A notification of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastNotification {
    /// Its id.
    pub id: NotificationId,
    /// Its subscriber.
    pub subscriber: SubscriberId,
    /// When its batch was closed.
    pub created_at: Timestamp,
    /// Its content.
    pub content: String,
}

/// The first delivery of a notification to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastDelivery {
    /// The notification.
    pub id: NotificationId,
    /// Its subscriber.
    pub subscriber: SubscriberId,
    /// When it was delivered.
    pub at: Timestamp,
    /// Its estimated size.
    pub tokens: Tokens,
    /// The first of its events.
    pub first_event: Option<Seq>,
}

const MADE: &str = "SELECT id, subscriber, created_at, content FROM notifications
    WHERE created_at >= ?1 AND created_at < ?2 ORDER BY place";
const DELIVERED: &str = "SELECT l.notification, n.subscriber, min(l.at), n.tokens,
        (SELECT min(e.event) FROM notification_events e WHERE e.notification = l.notification)
    FROM ledger l JOIN notifications n ON n.id = l.notification WHERE l.what = 'injected'
    GROUP BY l.notification, l.session HAVING min(l.at) >= ?1 AND min(l.at) < ?2 ORDER BY min(l.place)";

/// The notifications that were made and delivered from `from` on, before `until`.
///
/// Errors: the file is missing, of another version, or cannot be read.
pub fn read(
    path: &Path,
    from: Timestamp,
    until: Timestamp,
) -> Result<(Vec<PastNotification>, Vec<PastDelivery>), ProjectionError> {
    let limits = params![to_sql(from.as_millis()), to_sql(until.as_millis())];
    let copy = PrivateCopy::of_used(path).doing("copied")?;
    let read = || -> rusqlite::Result<_> {
        let connection = match &copy {
            Some(copy) => Connection::open_with_flags(copy.file(), READING)?,
            None => open_unused(path)?,
        };
        let mut made = connection.prepare(MADE)?;
        let made = made.query_map(limits, |row| {
            Ok(PastNotification {
                id: NotificationId::new(&row.get::<_, String>(0)?),
                subscriber: SubscriberId::new(&row.get::<_, String>(1)?),
                created_at: rows::time(row.get(2)?),
                content: row.get(3)?,
            })
        })?;
        let made = made.collect::<rusqlite::Result<Vec<_>>>()?;
        let mut delivered = connection.prepare(DELIVERED)?;
        let delivered = delivered.query_map(limits, |row| {
            let tokens: u64 = from_sql(row.get(3)?);
            Ok(PastDelivery {
                id: NotificationId::new(&row.get::<_, String>(0)?),
                subscriber: SubscriberId::new(&row.get::<_, String>(1)?),
                at: rows::time(row.get(2)?),
                tokens: Tokens(u32::try_from(tokens).unwrap_or(u32::MAX)),
                first_event: row.get::<_, Option<i64>>(4)?.map(|seq| Seq(from_sql(seq))),
            })
        })?;
        let delivered = delivered.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok((made, delivered))
    };
    read().doing("read")
}

const READING: OpenFlags = OpenFlags::SQLITE_OPEN_READ_ONLY.union(OpenFlags::SQLITE_OPEN_NO_MUTEX);

/// Opens a file without a write-ahead log. Nobody writes it, and SQLite makes no files for readers that
/// open it as immutable.
fn open_unused(path: &Path) -> rusqlite::Result<Connection> {
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let uri = format!("file:{escaped}?immutable=1");
    Connection::open_with_flags(uri, READING | OpenFlags::SQLITE_OPEN_URI)
}

/// How often a copy is made again because the files changed meanwhile.
const COPIES_MAX: usize = 10;

/// A copy of the file and its write-ahead log in a folder of its own, which is removed with it: SQLite
/// changes a third file next to them also for a reader.
struct PrivateCopy {
    folder: PathBuf,
}

impl PrivateCopy {
    /// The copy; `None` if there is no write-ahead log.
    ///
    /// Errors: it cannot be made, or the files change all the time.
    fn of_used(path: &Path) -> io::Result<Option<Self>> {
        let log = log_of(path);
        if !log.exists() {
            return Ok(None);
        }
        let folder = std::env::temp_dir().join(format!("aside-history-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let copy = Self { folder };
        for _ in 0..COPIES_MAX {
            let before = states(path, &log)?;
            fs::copy(path, copy.file())?;
            fs::copy(&log, log_of(&copy.file()))?;
            if states(path, &log)? == before {
                return Ok(Some(copy));
            }
        }
        Err(io::Error::other("it is being written"))
    }

    fn file(&self) -> PathBuf {
        self.folder.join("copy.db")
    }
}

impl Drop for PrivateCopy {
    fn drop(&mut self) {
        // What stays is in the folder for temporary files.
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// The write-ahead log of a file.
fn log_of(path: &Path) -> PathBuf {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    log.into()
}

/// The state of a file: its length, and when it was written last, in seconds and nanoseconds.
type FileState = (u64, i64, i64);

/// The states of both files.
fn states(path: &Path, log: &Path) -> io::Result<[FileState; 2]> {
    let state = |path: &Path| {
        let found = fs::metadata(path)?;
        Ok::<_, io::Error>((found.len(), found.mtime(), found.mtime_nsec()))
    };
    Ok([state(path)?, state(log)?])
}
