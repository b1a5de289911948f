//! Makes a running journal from a scan report: its shared state, its writer, and its threads.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, mpsc::sync_channel},
    thread::{self, JoinHandle},
};

use tokio::sync::{Semaphore, watch};

use crate::{
    Seq, background,
    commit::{
        Admission,
        leader::GroupCommit,
        next_file::{self, NextFile},
        sync::{Commits, Flusher},
        writer::{Group, Preface, WritePosition, Writer},
    },
    log::{
        files::Files,
        names::NameHasher,
        recover::{OpenError, Recovered},
        store::{Clock, Store},
    },
    lookup::Recent,
    maintenance::{Namer, Sealer},
    settings::JournalSettings,
};

const WRITER: &str = "journal-writer";
const FLUSHER: &str = "journal-flusher";
const PREPARER: &str = "journal-preparer";
/// The threads without which nothing is written.
pub const NEEDED_THREADS: [&str; 3] = [WRITER, FLUSHER, PREPARER];

/// Most appends of one level in flight; further ones wait, and do not delay the other level.
pub(crate) const IN_FLIGHT_MAX: usize = 4_096;

/// A journal whose threads run, until it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) store: Arc<Store>,
    /// The names of records from before the start, as far as they were asked for.
    pub(crate) recent: Recent,
    pub(crate) group: Arc<GroupCommit>,
    #[cfg(test)]
    pub(crate) commits: Arc<Commits>,
    pub(crate) written_permits: Arc<Semaphore>,
    pub(crate) synced_permits: Arc<Semaphore>,
    pub(crate) admission: Admission,
    pub(crate) written: watch::Receiver<Seq>,
    pub(crate) synced: watch::Receiver<Seq>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    /// Starts the threads of a recovered journal.
    ///
    /// Errors: see [`OpenError`].
    pub(crate) fn start(
        files: Arc<dyn Files>,
        settings: JournalSettings,
        clock: Clock,
        recovered: Recovered,
    ) -> Result<Self, OpenError> {
        let Recovered { segments, last, time, keys, marked, .. } = recovered;
        let tail = segments.last().map(Arc::clone).expect("a recovered journal has a segment");
        let capacity = tail.file.size().map_err(|source| OpenError::Io {
            operation: "read",
            path: files.path(&tail.name()),
            source,
        })?;
        let store = Arc::new(Store::new(files, segments, &clock));
        if let Some(name_of) = settings.names {
            store.names.get_or_init(|| NameHasher::new(name_of));
        }
        let (written_sender, written) = watch::channel(last);
        let (synced_sender, synced) = watch::channel(last);
        let commits = Arc::new(Commits::new(Arc::clone(&store), Arc::clone(&tail), synced_sender, marked));
        let (threads, next) = start_helpers(&store, &commits, settings, &clock, &synced)?;
        let place = WritePosition {
            offset: tail.end(),
            segment: tail,
            capacity,
            segment_bytes: settings.segment_bytes,
            last,
            durable: last,
            time,
        };
        let writer = Writer {
            store: Arc::clone(&store),
            waiting: VecDeque::new(),
            clock,
            durability: settings.durability,
            keys,
            written: written_sender,
            commits: Arc::clone(&commits),
            next,
            place,
            group: Group::default(),
            preface: Preface::of_kind(settings.preface),
            threads,
        };
        let group = Arc::new(GroupCommit::new(writer));
        let thread = start_writer(&group)?;
        Ok(Self {
            store,
            recent: Recent::default(),
            group,
            #[cfg(test)]
            commits,
            written_permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            synced_permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            admission: Admission::new(last),
            written,
            synced,
            thread: Mutex::new(Some(thread)),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.close();
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Starts the threads that prepare files, sync and seal; returns them with the channel of prepared
/// files.
fn start_helpers(
    store: &Arc<Store>,
    commits: &Arc<Commits>,
    settings: JournalSettings,
    clock: &Clock,
    synced: &watch::Receiver<Seq>,
) -> Result<(Vec<JoinHandle<()>>, NextFile), OpenError> {
    // Both channels have room for one item and are never full: a file is ordered when the one
    // before was taken, and the writer orders the first one.
    let (orders_sender, orders) = sync_channel(1);
    let (prepared_sender, prepared) = sync_channel(1);
    let preparing = Arc::clone(store);
    let size = settings.segment_bytes;
    let preparer = start(PREPARER, move || {
        background::lower_priority(background::LOW);
        next_file::prepare_files(&preparing, size, &orders, &prepared_sender)
    })?;
    let next = NextFile::new(orders_sender.clone(), prepared);
    let flusher = Flusher {
        commits: Arc::clone(commits),
        sync_within: settings.sync_within,
        orders: Some(orders_sender),
    };
    let flusher = start(FLUSHER, move || flusher.run())?;
    let sealer = Sealer {
        store: Arc::clone(store),
        clock: Arc::clone(clock),
        synced: synced.clone(),
        seal: settings.seal,
        retention: settings.retention,
        given_up: BTreeSet::new(),
        aged_at: None,
        namer: Namer::default(),
    };
    let mut threads = vec![flusher, preparer];
    match start("journal-sealer", move || sealer.run()) {
        Ok(sealer) => threads.push(sealer),
        // No caller waits for this thread, so the journal starts without it.
        Err(error) => {
            let what = format!("nothing is sealed or deleted until the next start: {error}");
            tracing::warn!(error = &error as &dyn std::error::Error, "the journal seals and deletes nothing");
            store.health.note_damage(&store.files.path(""), None, what);
        }
    }
    store.maintenance.ask();
    Ok((threads, next))
}

/// Starts the writer thread, which ends last and stops the others.
fn start_writer(group: &Arc<GroupCommit>) -> Result<JoinHandle<()>, OpenError> {
    let group = Arc::clone(group);
    start(WRITER, move || {
        // After a panic there is no orderly end: the dropped channels refuse the waiting callers.
        if let Some(writer) = group.run() {
            writer.end();
        }
    })
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(OpenError::Thread)
}
