//! Reading: a few connections that are lent to one request each.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use rusqlite::{Connection, Transaction};
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::{Doing, Failed, Progress, ProjectionError, schema, writer::from_sql};
use crate::event::Seq;

/// Most requests that read at once; the one after waits. On two cores more would only hold each other up.
const READERS_MAX: usize = 4;

/// Most requests to the projection's thread that wait for it; each is seldom and one person's.
const COMMANDS_MAX: usize = 8;

/// What the projection's thread can be asked to do.
#[derive(Debug)]
pub enum Command {
    /// Make the file again from the journal; answered when the old one is gone.
    Rebuild(oneshot::Sender<Result<(), String>>),
    /// Delete what is before this record, which the journal does not have any more.
    ForgetBefore(Seq),
    /// See whether the file is still there, and whether a reader found it broken.
    Check,
}

/// A handle for those who ask; cloning it is cheap.
#[derive(Debug, Clone)]
pub struct Projection {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    progress: Progress,
    /// Why nothing more is written, while that is so. Held to read or replace it.
    failed: Mutex<Option<String>>,
    /// What a reader found broken in the file as it is. Set while the file cannot be replaced.
    damage: Mutex<Option<String>>,
    commands: mpsc::Sender<Command>,
    readers: Semaphore,
    /// Read-locked by whoever reads; write-locked to replace the file, when nobody may have it open.
    idle: RwLock<Mutex<Vec<Connection>>>,
}

/// The tables as they are at one moment.
#[derive(Debug)]
pub struct View<'c> {
    transaction: Transaction<'c>,
    /// Everything up to this record is in it.
    pub projected: Seq,
    /// Events that no subscriber asked for.
    pub unmatched: u64,
    /// What is before this record was deleted, or is not known.
    pub floor: Seq,
}

impl View<'_> {
    /// Whether everything is in it that became of the record at `seq` until [`View::projected`].
    pub fn covers(&self, seq: Seq) -> bool {
        (self.floor..=self.projected).contains(&seq)
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.transaction
    }
}

impl Projection {
    /// A handle of the file at `path`, and where its thread gets its orders.
    pub fn new(path: &Path) -> (Self, mpsc::Receiver<Command>) {
        let (commands, orders) = mpsc::channel(COMMANDS_MAX);
        let inner = Inner {
            path: path.to_owned(),
            progress: Progress::default(),
            failed: Mutex::new(None),
            damage: Mutex::new(None),
            commands,
            readers: Semaphore::new(READERS_MAX),
            idle: RwLock::new(Mutex::new(Vec::new())),
        };
        (Self { inner: Arc::new(inner) }, orders)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// How far it is.
    pub fn progress(&self) -> &Progress {
        &self.inner.progress
    }

    /// Why nothing more is written, if that is so.
    pub fn failed(&self) -> Option<String> {
        self.inner.failed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says why nothing more is written, or that it is again.
    pub fn set_failed(&self, why: Option<String>) {
        *self.inner.failed.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    /// What a reader found broken, unless the file was replaced since; the next call does not say it again.
    pub fn take_damage(&self) -> Option<String> {
        self.inner.damage.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Has the file made again from the journal; returns once the old one is gone.
    ///
    /// Errors: what keeps it from that, in words.
    pub async fn rebuild(&self) -> Result<(), String> {
        let (reply, answer) = oneshot::channel();
        let stopping = |_| "the daemon is stopping".to_owned();
        self.inner.commands.send(Command::Rebuild(reply)).await.map_err(|_| stopping(()))?;
        answer.await.map_err(|_| stopping(()))?
    }

    /// Has deleted what is before `seq`, because the journal does not have it any more.
    pub async fn forget_before(&self, seq: Seq) {
        // Without its thread nothing is written any more, and the next start forgets it.
        drop(self.inner.commands.send(Command::ForgetBefore(seq)).await);
    }

    /// Runs `ask` on the tables as they are, on a thread that may block.
    ///
    /// Errors: the file is not there or cannot be read.
    pub async fn read<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&View<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, ProjectionError> {
        // The semaphore is never closed.
        let _permit = self.inner.readers.acquire().await.ok();
        let own = self.clone();
        let asked = tokio::task::spawn_blocking(move || own.read_blocking(ask)).await;
        match asked {
            Ok(answer) => {
                if answer.is_err() {
                    // That others have said so already is as good.
                    drop(self.inner.commands.try_send(Command::Check));
                }
                answer
            }
            Err(_) => Err(ProjectionError { doing: "read", source: Failed::Content("a query panicked") }),
        }
    }

    /// Runs `ask` on the tables as they are.
    ///
    /// Errors: the file is not there or cannot be read.
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

    /// Runs `replace` while nobody reads and no connection for reading is open.
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
    // Records after the cursor that left nothing to write are in it too.
    Ok(View { transaction, projected: Seq(seq).max(progressed), unmatched, floor: Seq(floor) })
}
