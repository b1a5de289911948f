//! From what was found on the disk to a journal that runs: its shared state, its writer, and its threads.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, OnceLock, RwLock, atomic::AtomicU64, mpsc::sync_channel},
    thread::{self, JoinHandle},
};

use tokio::sync::{Semaphore, watch};

use crate::{
    background,
    event::Seq,
    journal::{
        Clock, IN_FLIGHT_MAX, Inner, Journal, JournalSettings, Opened, Shared,
        admission::Admission,
        files::Files,
        flusher::{Commits, Flusher},
        health::Health,
        idempotency::IdempotencyKeys,
        next_file::{self, NextFile},
        preface::Preface,
        recover::{self, OpenError, Recovered, ScanReport},
        sealer::{Sealer, Sealing},
        segment::Segment,
        turns::Turns,
        writer::{Group, Place, Writer},
    },
};

/// The threads that help the writer, and where prepared files come from.
struct Helpers {
    threads: Vec<JoinHandle<()>>,
    next: NextFile,
}

impl Journal {
    /// Opens a journal that was scanned, with the idempotency keys of the records up to those that were known.
    ///
    /// Errors: see [`OpenError`]; nothing was changed unless a file operation failed.
    pub fn open_scanned(
        files: Arc<dyn Files>,
        settings: JournalSettings,
        clock: Clock,
        report: ScanReport,
        keys: IdempotencyKeys,
    ) -> Result<Opened, OpenError> {
        let recovered = recover::apply(files.as_ref(), settings.segment_bytes, report, keys)?;
        let Recovered { segments, last, time, keys, cuts, marked } = recovered;
        let tail = segments.last().map(Arc::clone).expect("a recovered journal has a segment");
        let capacity = tail.file.size().map_err(|source| OpenError::Io {
            operation: "read",
            path: files.path(&tail.name()),
            source,
        })?;
        let shared = Arc::new(shared(files, segments, &clock));
        let (written_sender, written) = watch::channel(last);
        let (synced_sender, synced) = watch::channel(last);
        let commits = Arc::new(Commits::new(Arc::clone(&shared), Arc::clone(&tail), synced_sender, marked));
        let helpers = start_helpers(&shared, &commits, settings, &clock, &synced)?;
        let place = Place {
            offset: tail.end(),
            segment: tail,
            capacity,
            segment_bytes: settings.segment_bytes,
            last,
            durable: last,
            time,
        };
        let writer = Writer {
            shared: Arc::clone(&shared),
            waiting: VecDeque::new(),
            clock,
            durability: settings.durability,
            keys,
            written: written_sender,
            commits: Arc::clone(&commits),
            next: helpers.next,
            place,
            group: Group::default(),
            preface: Preface::of_kind(settings.preface),
            threads: helpers.threads,
        };
        let turns = Arc::new(Turns::new(writer));
        let thread = start_writer(&turns, &commits)?;
        let inner = Inner {
            shared,
            turns,
            commits,
            written_permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            synced_permits: Arc::new(Semaphore::new(IN_FLIGHT_MAX)),
            admission: Admission::new(last),
            written,
            synced,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Opened { journal: Self { inner: Arc::new(inner) }, cuts, last_seq: last, last_time: time })
    }
}

fn shared(files: Arc<dyn Files>, segments: Vec<Arc<Segment>>, clock: &Clock) -> Shared {
    Shared {
        files,
        segments: RwLock::new(segments),
        changing_files: Mutex::default(),
        needed_from: AtomicU64::new(0),
        sealing: Sealing::default(),
        full: Mutex::default(),
        poison: watch::Sender::new(None),
        meters: OnceLock::new(),
        health: Health::new(Arc::clone(clock)),
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Starts the threads that prepare files, sync and seal.
fn start_helpers(
    shared: &Arc<Shared>,
    commits: &Arc<Commits>,
    settings: JournalSettings,
    clock: &Clock,
    synced: &watch::Receiver<Seq>,
) -> Result<Helpers, OpenError> {
    // Both hold one and are never full: a file is ordered when the one before was taken, the first one by the writer.
    let (orders_sender, orders) = sync_channel(1);
    let (prepared_sender, prepared) = sync_channel(1);
    let preparing = Arc::clone(shared);
    let size = settings.segment_bytes;
    let preparer = start("journal-preparer", move || {
        background::lower_priority(background::LOW);
        next_file::prepare_files(&preparing, size, &orders, &prepared_sender)
    })?;
    let next = NextFile::new(orders_sender.clone(), prepared);
    let flusher = Flusher {
        commits: Arc::clone(commits),
        sync_within: settings.sync_within,
        orders: Some(orders_sender),
    };
    let flusher = start("journal-flusher", move || flusher.run())?;
    let sealer = Sealer {
        shared: Arc::clone(shared),
        clock: Arc::clone(clock),
        synced: synced.clone(),
        compress: settings.compress,
        retention: settings.retention,
        given_up: BTreeSet::new(),
        aged_at: None,
    };
    let mut threads = vec![flusher, preparer];
    match start("journal-sealer", move || sealer.run()) {
        Ok(sealer) => threads.push(sealer),
        // Nothing waits for it, so its lack is no reason not to start.
        Err(error) => {
            let what = format!("nothing is sealed or deleted until the next start: {error}");
            tracing::warn!(error = &error as &dyn std::error::Error, "the journal seals and deletes nothing");
            shared.health.note_damage(&shared.files.path(""), None, what);
        }
    }
    shared.sealing.ask();
    Ok(Helpers { threads, next })
}

/// Starts the thread that writes what others leave; it ends last and takes the others with it.
fn start_writer(turns: &Arc<Turns>, commits: &Arc<Commits>) -> Result<JoinHandle<()>, OpenError> {
    let (turns, commits) = (Arc::clone(turns), Arc::clone(commits));
    start("journal-writer", move || {
        // After a panic there is nothing to end in order: what waits is refused as the channels go.
        if let Some(writer) = turns.run(&commits) {
            writer.end();
        }
    })
}

fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    thread::Builder::new().name(name.to_owned()).spawn(run).map_err(OpenError::Thread)
}

/// Waits until a thread has ended; a panic is said in the log.
pub(super) fn join(thread: JoinHandle<()>) {
    let name = thread.thread().name().unwrap_or_default().to_owned();
    if thread.join().is_err() {
        tracing::error!(name, "a thread of the journal panicked");
    }
}
