//! Readers: a small pool of connections, one per request.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use engine::event::Seq;
use rusqlite::{Connection, Transaction};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{Doing, Failed, Progress, ProjectionError, rows::from_sql, schema, writer::BYTES_MAX};

use crate::daemon::tasks::run_blocking;

/// Most concurrent readers; further requests wait. On two cores, more readers would only delay each
/// other.
const READERS_MAX: usize = 4;

/// Most waiting commands for the projection's thread; commands are rare and manual.
const COMMANDS_MAX: usize = 8;

/// A command for the projection's thread.
#[derive(Debug)]
pub enum Command {
    /// Rebuild the file from the journal; answered after the old one is deleted.
    Rebuild(oneshot::Sender<Result<(), String>>),
    /// Delete the data before this record, because the journal has deleted it.
    ForgetBefore(Seq),
    /// Check whether the file still exists, and whether a reader found it corrupt.
    Check,
}

/// Reads the projection; cheap to clone.
#[derive(Debug, Clone)]
pub struct Projection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    /// Most bytes of the file's used pages.
    bytes_max: AtomicU64,
    progress: Progress,
    /// The reason why writing is stopped, if it is. Locked to read or replace it.
    failed: Mutex<Option<String>>,
    /// Corruption that a reader found in the current file. Set while the file cannot be replaced.
    damage: Mutex<Option<String>>,
    commands: mpsc::Sender<Command>,
    readers: Semaphore,
    /// Idle connections. Readers hold a read lock. Replacing the file needs the write lock, so that
    /// no connection has it open.
    idle: RwLock<Mutex<Vec<Connection>>>,
}

/// A snapshot of the tables.
#[derive(Debug)]
pub struct View<'c> {
    transaction: Transaction<'c>,
    /// The last record in the snapshot.
    pub projected: Seq,
    /// Number of events that no subscriber takes.
    pub unmatched: u64,
    /// Records before this one were deleted, or are unknown.
    pub floor: Seq,
}

impl View<'_> {
    /// Whether it has the complete outcome, up to [`View::projected`], of the record at `seq`.
    pub fn covers(&self, seq: Seq) -> bool {
        (self.floor..=self.projected).contains(&seq)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.transaction
    }
}

impl Projection {
    /// Creates a handle for the file at `path`, and the receiver of its thread's commands.
    pub fn new(path: &Path) -> (Self, mpsc::Receiver<Command>) {
        let (commands, orders) = mpsc::channel(COMMANDS_MAX);
        let inner = Inner {
            path: path.to_owned(),
            bytes_max: AtomicU64::new(BYTES_MAX),
            progress: Progress::default(),
            failed: Mutex::new(None),
            damage: Mutex::new(None),
            commands,
            readers: Semaphore::new(READERS_MAX),
            idle: RwLock::new(Mutex::new(Vec::new())),
        };
        (Self { inner: Arc::new(inner) }, orders)
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Most bytes of the file's used pages.
    pub fn bytes_max(&self) -> u64 {
        self.inner.bytes_max.load(Ordering::Relaxed)
    }

    /// Sets another limit, for files that are opened from now on.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.inner.bytes_max.store(bytes_max, Ordering::Relaxed);
    }

    /// Its progress.
    pub fn progress(&self) -> &Progress {
        &self.inner.progress
    }

    /// The reason why writing is stopped, if it is.
    pub fn failed(&self) -> Option<String> {
        self.inner.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets the reason why writing is stopped; `None` if writing continues.
    pub fn set_failed(&self, why: Option<String>) {
        *self.inner.failed.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// Takes the corruption that a reader found, unless the file was replaced after that.
    pub fn take_damage(&self) -> Option<String> {
        self.inner.damage.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Rebuilds the file from the journal; returns after the old one is deleted.
    ///
    /// Errors: the reason why it is impossible, as text.
    pub async fn rebuild(&self) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let stopping = || "the daemon is stopping".to_owned();
        self.inner.commands.send(Command::Rebuild(reply)).await.map_err(|_| stopping())?;
        answer.await.map_err(|_| stopping())?
    }

    /// Deletes the data before `seq`, because the journal has deleted it.
    pub async fn forget_before(&self, seq: Seq) {
        // Without the thread nothing is written, and the next start deletes the data.
        drop(self.inner.commands.send(Command::ForgetBefore(seq)).await);
    }

    /// Runs `ask` on a snapshot of the tables, on a thread that may block.
    ///
    /// Errors: the file does not exist or cannot be read.
    pub async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&View<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ProjectionError> {
        // The semaphore is never closed.
        let _permit = self.inner.readers.acquire().await.ok();
        let own = self.clone();
        let asked = run_blocking(move || own.read_blocking(ask)).await;
        match asked {
            Ok(answer) => {
                if answer.is_err() {
                    // A full queue means that a check is already requested.
                    drop(self.inner.commands.try_send(Command::Check));
                }
                answer
            }
            Err(_) => Err(ProjectionError { doing: "read", source: Failed::Content("a query panicked") }),
        }
    }

    /// Runs `ask` on a snapshot of the tables.
    ///
    /// Errors: the file does not exist or cannot be read.
    pub fn read_blocking<T>(
        &self,
        ask: impl FnOnce(&View<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, ProjectionError> {
        let idle = self.inner.idle.read().unwrap_or_else(PoisonError::into_inner);
        let lent = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let progressed = self.inner.progress.projected();
        let read = || -> rusqlite::Result<_> {
            let mut connection = match lent {
                Some(connection) => connection,
                None => schema::open_for_reading(&self.inner.path)?,
            };
            let answer = view(&mut connection, progressed).and_then(|view| ask(&view))?;
            Ok((answer, connection))
        };
        let (answer, connection) = read().doing("read").inspect_err(|error: &ProjectionError| {
            if error.is_damage() {
                let mut damage = self.inner.damage.lock().unwrap_or_else(PoisonError::into_inner);
                *damage = Some(error.to_string());
            }
        })?;
        idle.lock().unwrap_or_else(PoisonError::into_inner).push(connection);
        Ok(answer)
    }

    /// Runs `replace` while there are no readers and no open read connection.
    pub fn with_no_reader<T>(&self, replace: impl FnOnce() -> T) -> T {
        let idle = self.inner.idle.write().unwrap_or_else(PoisonError::into_inner);
        idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let replaced = replace();
        self.take_damage();
        replaced
    }
}

fn view(connection: &mut Connection, progressed: Seq) -> rusqlite::Result<View<'_>> {
    let transaction = connection.transaction()?;
    let row =
        |row: &rusqlite::Row<'_>| Ok((from_sql(row.get(0)?), from_sql(row.get(1)?), from_sql(row.get(2)?)));
    let (seq, unmatched, floor) =
        transaction.prepare_cached("SELECT seq, unmatched, floor FROM cursor")?.query_row([], row)?;
    // It also covers records after the cursor that needed no write.
    Ok(View { transaction, projected: Seq(seq).max(progressed), unmatched, floor: Seq(floor) })
}
