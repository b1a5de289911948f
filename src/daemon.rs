//! The daemon process: started in order and stopped in four phases.
//!
//! Start: lock the state folder, read the configuration, open the journal, replay it into the
//! engine, listen. Stop: refuse new requests, bring the engine to the journal's head, sync, close.
//! The engine, not the daemon, decides about events.

pub mod backup;
pub mod causes;
mod clock;
mod event_loop;
pub mod fold;
mod limits;
mod listen;
mod lock;
pub mod maintenance;
pub mod planted;
pub mod program;
mod projector;
pub mod publisher;
mod quarantine;
pub mod recovery;
pub mod regular_file;
mod reload;
pub mod replay;
pub mod rerun;
pub mod rules;
mod skipped;
pub mod snapshots;
mod supervisor;
pub(crate) mod tasks;
pub mod version;
pub mod workspace;

use std::{
    collections::VecDeque,
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::Arc,
    thread::JoinHandle,
};

use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

pub use self::{
    clock::{Clock, monotonic_now, utc_offset},
    event_loop::LoopError,
    listen::{ListenError, Passed, TOKEN_FILE},
    lock::{JOURNAL_FOLDER, LOCK_FILE, LockError},
    projector::ProjectorError,
    quarantine::Convicted,
    recovery::Replaying,
    reload::ReloadError,
    supervisor::{TaskError, Watcher},
};
use self::{
    event_loop::{EventLoop, Outgoing},
    fold::Fold,
    projector::{Feed, Projector, ReplaySource},
    recovery::Recovered,
    reload::{AtStart, InForce, Reloader},
    replay::RecoveryError,
    rules::{RulesError, RulesStore},
    skipped::Skipped,
    snapshots::writer::{self, Order, Schedule},
    supervisor::{Asked, GRACE, INTAKE_GRACE, Phase, Signals, Supervisor, TaskKind, Watchdog},
    workspace::Looked,
};
use journal::{Journal, Opened, Pace, Poisoned, meter::Meters, time::Timestamp};

use crate::{
    api::{
        self, App, AppParts, ConfigHandle, EngineHandle, RELOADS_MAX, Registry, ReloadRequest, Rooms,
        TRANSCRIPTS_MAX, wire::views::clock_trouble,
    },
    capability::{
        self,
        outside::Generation,
        source::{self, Clocks, Source},
    },
    config::{
        daemon::{Durability, HttpConfig},
        last_good::Usable,
    },
    daemon::{program::Programs, publisher::Publisher},
    harness::Transcript,
    history::{FILE_NAME, Projection, Writer},
};

/// The daemon's paths and service manager.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// The Unix socket.
    pub socket: PathBuf,
    /// The user's configuration folder.
    pub config: PathBuf,
    /// The state folder.
    pub state: PathBuf,
    /// The service manager, if it runs a watchdog for the event loop.
    pub watcher: Option<Watcher>,
    /// How the journal is replayed.
    pub replaying: Replaying,
}

/// Why the daemon cannot start, or had to stop.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The state folder cannot be created.
    #[error("create the state folder {}", path.display())]
    State {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The folder of the programs that the daemon runs cannot be written.
    #[error("prepare the folder for programs")]
    Programs(#[source] io::Error),
    /// The state folder cannot be locked.
    #[error("lock the state folder")]
    Lock(#[from] LockError),
    /// The journal cannot be opened or replayed.
    #[error("rebuild the state from the journal")]
    Recovery(#[from] RecoveryError),
    /// The rules cannot be applied.
    #[error("activate the rules")]
    Rules(#[from] ReloadError),
    /// The daemon cannot listen.
    #[error("listen")]
    Listen(#[from] ListenError),
    /// The signal handlers cannot be installed.
    #[error("listen to signals")]
    Signals(#[source] io::Error),
    /// A required task ended.
    #[error("keep running")]
    Task(#[from] TaskError),
    /// The history's file cannot be created.
    #[error("create the history's file")]
    Projector(#[from] ProjectorError),
    /// A thread cannot be started.
    #[error("start a thread")]
    Thread(#[source] io::Error),
    /// The disk failed.
    #[error("keep the journal")]
    Poisoned(#[from] Poisoned),
}

/// Runs the daemon until a signal stops it; calls `on_ready` once, when it listens.
///
/// Shape: `passed` has the sockets that a service manager opened; without them the daemon creates
/// its own.
pub async fn run(options: ServeOptions, passed: Passed, on_ready: impl FnOnce()) -> Result<(), DaemonError> {
    let mut signals = Signals::listen().map_err(DaemonError::Signals)?;
    limits::raise_open_files();
    make_private(&options.state)
        .map_err(|source| DaemonError::State { path: options.state.clone(), source })?;
    let _lock = lock::StateLock::take(&options.state)?;
    let (mut recovered, (usable, trusted), kept) = recover(&options)?;
    let in_force = Arc::clone(&recovered.fold.engine.rules().hash);
    let in_force = reload::adopt(&Publisher::new(recovered.journal.clone()), kept, &in_force).await?;
    let unpublished = recovered.outbox.drain(..).map(Outgoing::Event);
    let has_errors = usable.report.error_count() > 0;
    let failed = has_errors.then(|| Outgoing::Event(reload::failed(&usable.report, recovered.clock.now())));
    let outbox = unpublished.chain(failed).collect();
    let read = (&usable, &*trusted);
    let mut daemon = Daemon::start(options, passed, recovered, read, in_force, outbox).await?;
    // Nothing needs the texts of the files and their tests any more.
    drop(usable);
    daemon.log_ready();
    on_ready();
    daemon.journal.prepare_next_file();
    let watched = daemon.watch(&mut signals).await;
    let stopped = daemon.stop().await;
    watched.and(stopped)
}

/// Brings the state to the journal's head, with the configuration and the hash under which its
/// files are stored, or why they are not.
fn recover(options: &ServeOptions) -> Result<(Recovered, AtStart, Result<String, RulesError>), DaemonError> {
    let rules = RulesStore::new(&options.state);
    let (usable, trusted) = reload::read_at_start(&options.config, &rules);
    reload::log_start(&usable);
    let compiled = &usable.compiled;
    let (rules, kept) = reload::keep(rules, &usable.sources);
    if kept.is_ok() {
        let outside = Arc::clone(&compiled.outside);
        rules.hand_over(Generation { rules: Arc::new(compiled.rules.clone()), outside });
    }
    let journal = &compiled.daemon.journal;
    let recovered = recovery::recover(&options.state, journal, &rules, &options.replaying)?;
    Ok((recovered, (usable, trusted), kept))
}

/// Does what a start does up to the journal's head, with limits for this process.
///
/// Errors: those of a start.
pub fn try_replay(options: &ServeOptions) -> Result<(), DaemonError> {
    limits::raise_open_files();
    limits::bound_replay();
    let _lock = lock::StateLock::take_to_replay(&options.state)?;
    let (recovered, ..) = recover(options)?;
    recovered.journal.close_blocking()?;
    Ok(())
}

/// The record at which starts with the state folder `state` end again and again, if it ends two
/// children too; `run` calls [`try_replay`] in a child and waits for its end.
pub fn convict(state: &Path, run: impl FnMut() -> io::Result<ExitStatus>) -> Option<Convicted> {
    let convicted = quarantine::convict(state, run);
    convicted.unwrap_or_else(|error| {
        tracing::warn!(%error, "no child can replay the journal; this start tries it as it is");
        None
    })
}

/// The token file for TCP: the one in the configuration of `config`, else the one in the state
/// folder.
pub fn token_file(config: &Path, state: &Path) -> PathBuf {
    let compiled = reload::read_at_start(config, &RulesStore::new(state)).0.compiled;
    compiled.daemon.http.and_then(|http| http.token_file).unwrap_or_else(|| state.join(TOKEN_FILE))
}

/// A rebuilt history.
#[derive(Debug)]
pub struct Rebuilt {
    /// The last record.
    pub last: u64,
    /// Its file.
    pub file: PathBuf,
}

/// Rebuilds the history's file while no daemon runs.
///
/// Errors: a daemon runs, or the journal or the file fails.
pub fn rebuild(state: &Path, config: &Path) -> Result<Rebuilt, DaemonError> {
    make_private(state).map_err(|source| DaemonError::State { path: state.to_owned(), source })?;
    let _lock = lock::StateLock::take(state)?;
    let rules = RulesStore::new(state);
    let compiled = reload::read_at_start(config, &rules).0.compiled;
    let clock = Arc::new(Clock::starting_at(Timestamp::ZERO));
    let snapshots = Arc::new(recovery::open_snapshots(state)?);
    let journal = recovery::closed_journal(state, &compiled.daemon.journal, &clock)?;
    let Opened { journal, last_seq, .. } = journal.open().map_err(RecoveryError::Open)?;
    let file = state.join(FILE_NAME);
    let skipped = Skipped::open(state, &journal).into_records();
    let source = ReplaySource { journal: journal.clone(), snapshots, rules, ended: last_seq, skipped };
    let last = projector::rebuild(&file, compiled.daemon.journal.history_bytes, &source)?.0;
    journal.close_blocking()?;
    Ok(Rebuilt { last, file })
}

/// The running parts.
struct Daemon {
    options: ServeOptions,
    journal: Journal,
    tasks: Supervisor,
    /// Ends after the event loop.
    projector: Option<JoinHandle<()>>,
    /// Becomes true when no new requests are accepted.
    stop_intake: watch::Sender<bool>,
    /// Becomes true when the engine has to reach the journal's head and stop.
    drain: watch::Sender<bool>,
    /// Requests that the configuration be read again.
    reloads: mpsc::Sender<ReloadRequest>,
    /// Keeps the task that writes snapshots running until the journal is closed: its end would stop
    /// the daemon.
    orders: mpsc::Sender<Order>,
    /// Whether to remove the socket at the end; a passed one serves the next daemon too.
    owns_socket: bool,
}

impl Daemon {
    async fn start(
        options: ServeOptions,
        passed: Passed,
        recovered: Recovered,
        (usable, trusted): (&Usable, &[Looked]),
        rules_in_force: InForce,
        outbox: VecDeque<Outgoing>,
    ) -> Result<Self, DaemonError> {
        let settings = &usable.compiled.daemon;
        let Recovered { mut fold, journal, reader, clock, snapshots, snapshot, .. } = recovered;
        let Recovered { projected, skipped, ended_at, .. } = recovered;
        let (stop_intake, intake) = watch::channel(false);
        let (drain, draining) = watch::channel(false);
        let (orders, ordered) = writer::orders();
        let (transcripts, to_read) = mpsc::channel(TRANSCRIPTS_MAX);
        let (engine, queries) = EngineHandle::new(monotonic_now);
        let store = fold.rules.clone();
        let (rules, ended, kept) = (store.clone(), fold.applied, snapshots.clone());
        let replay_source = ReplaySource { journal: journal.clone(), snapshots: kept, rules, ended, skipped };
        let history_bytes = settings.journal.history_bytes;
        let (projection, feed, projector) =
            start_history(&options.state, replay_source, projected, history_bytes, &mut fold)?;
        let projector = Some(projector);
        let (reloads, requests) = mpsc::channel(RELOADS_MAX);
        let (state, config) = watch::channel(Arc::new(reload::state_of_start(usable, trusted, clock.now())));
        let programs = Arc::new(Programs::find(&options.state).map_err(DaemonError::Programs)?);
        let channels = (ConfigHandle::new(reloads.clone(), config), transcripts, intake);
        let durability = settings.journal.durability;
        let app = new_app(&journal, &clock, engine, projection.clone(), channels, programs, durability);
        // Sources start with the current settings, so that no source treats them as a change.
        app.registry.sources().publish_settings(&fold.outside);
        let schedule = Schedule::new(orders.clone(), settings.journal.snapshot_records, snapshot);
        let event_loop = EventLoop {
            fold,
            journal: journal.clone(),
            publisher: Publisher::new(journal.clone()),
            reader,
            clock: clock.clone(),
            monotonic: monotonic_now,
            registry: app.registry.clone(),
            queries,
            pulse: Arc::clone(app.engine.pulse()),
            feed,
            pace: Pace::default(),
            schedule,
            watchdog: Watchdog::new(options.watcher, monotonic_now()),
            drain: draining,
            outbox,
            zone: clock::zone,
            zone_read_at: Timestamp::ZERO,
        };
        let mut tasks = Supervisor::default();
        tasks.start(TaskKind::Snapshots, writer::run(ordered, snapshots, journal.clone(), projection));
        tasks.start(TaskKind::EventLoop, event_loop.run());
        let reloader = Reloader {
            journal: journal.clone(),
            publisher: Publisher::new(journal.clone()),
            store,
            user_folder: options.config.clone(),
            clock,
            in_force: rules_in_force,
            named: 0,
            at_start: settings.clone(),
            requests,
            state,
            folders: app.registry.sources().folders.subscribe(),
            looked_at: Arc::default(),
        };
        tasks.start(TaskKind::Reloads, reloader.run());
        watch_clients(&mut tasks, &app, to_read);
        start_sources(&mut tasks, &app, &options.state, ended_at);
        let owns_socket =
            listen_everywhere(&mut tasks, &options, passed, settings.http.as_ref(), app).await?;
        Ok(Self { options, journal, tasks, projector, stop_intake, drain, reloads, orders, owns_socket })
    }

    /// Forwards reload requests; returns on a stop signal, or when a required task ended.
    async fn watch(&mut self, signals: &mut Signals) -> Result<(), DaemonError> {
        loop {
            tokio::select! {
                asked = signals.next() => match asked {
                    Asked::Stop(signal) => {
                        tracing::info!(signal, "stopping");
                        return Ok(());
                    }
                    Asked::Reload => reload::ask(&self.reloads),
                },
                ended = self.tasks.next_end() => {
                    // All of these tasks are required, so one that ends without an error is an
                    // error too.
                    let task = ended.transpose()?;
                    return Err(TaskError::Ended { task: task.map_or("task", TaskKind::as_str) }.into());
                }
                poisoned = self.journal.wait_for_poison() => return Err(poisoned.into()),
            }
        }
    }

    fn log_ready(&self) {
        let socket = self.options.socket.display();
        let (version, pid) = (version::FULL_VERSION, std::process::id());
        tracing::info!(version, pid, %socket, head = self.journal.written().borrow().0, "ready");
    }

    /// Stops in four phases, within [`GRACE`]; the next start does the rest.
    async fn stop(mut self) -> Result<(), DaemonError> {
        let stopping = async {
            tracing::debug!(phase = %Phase::Intake, "stopping");
            self.stop_intake.send_replace(true);
            let ends = async {
                self.tasks.wait_for(TaskKind::Listener).await?;
                self.tasks.wait_for(TaskKind::Source).await
            };
            match timeout(INTAKE_GRACE, ends).await {
                Ok(ended) => ended?,
                Err(_) => {
                    tracing::warn!("some clients or sources do not end; what they have left is cancelled")
                }
            }
            tracing::debug!(phase = %Phase::Drain, "stopping");
            self.drain.send_replace(true);
            self.tasks.wait_for(TaskKind::EventLoop).await?;
            if let Some(projector) = self.projector.take() {
                // The projector commits its remaining notes. A panic was logged when it happened.
                drop(tasks::run_blocking(move || projector.join()).await);
            }
            tracing::debug!(phase = %Phase::Sync, "stopping");
            let closed = self.journal.close().await;
            drop(self.orders);
            self.tasks.wait_for(TaskKind::Snapshots).await?;
            Ok(closed?)
        };
        let outcome = timeout(GRACE, stopping).await.unwrap_or_else(|_| {
            tracing::warn!("the shutdown timed out; the next start completes it");
            Ok(())
        });
        tracing::debug!(phase = %Phase::Close, "stopping");
        if self.owns_socket
            && let Err(error) = listen::remove(&self.options.socket)
        {
            tracing::warn!(%error, "the socket could not be removed");
        }
        outcome
    }
}

/// Starts the history's thread. `projected` is the history's file, if the notes of `fold` complete it.
fn start_history(
    state: &Path,
    replay_source: ReplaySource,
    projected: Option<Writer>,
    bytes_max: u64,
    fold: &mut Fold,
) -> Result<(Projection, Feed, JoinHandle<()>), DaemonError> {
    let (projection, commands) = Projection::new(&state.join(FILE_NAME));
    projection.set_bytes_max(bytes_max);
    let (projector, feed) = Projector::new(projection.clone(), commands, replay_source, projected, fold);
    Ok((projection, feed, projector.start().map_err(DaemonError::Thread)?))
}

/// Creates the servers' state, with the registry and the meters shared by the daemon.
fn new_app(
    journal: &Journal,
    clock: &Arc<Clock>,
    engine: EngineHandle,
    projection: Projection,
    (config, transcripts, shutdown): (ConfigHandle, mpsc::Sender<Transcript>, watch::Receiver<bool>),
    programs: Arc<Programs>,
    durability: Durability,
) -> App {
    let meters = Arc::new(Meters::new(monotonic_now));
    journal.measure_with(meters.clone());
    // Request ids start from the time, so that no two daemons of one journal use the same ones.
    let started_at = clock.now();
    let registry = Registry::new(started_at.as_millis() << 20).with_programs(programs);
    let registry = Arc::new(registry);
    let clock = clock::clock_fn(clock);
    let rooms = Rooms::default();
    App::from(AppParts {
        publisher: Publisher::new(journal.clone()),
        journal: journal.clone(),
        engine,
        config,
        projection,
        registry,
        transcripts,
        meters,
        rooms,
        clock,
        started_at,
        durability,
        wall: clock::wall_now,
        utc_offset,
        since_boot: monotonic_now,
        shutdown,
    })
}

/// Starts the tasks that watch the clients of sessions.
fn watch_clients(tasks: &mut Supervisor, app: &App, transcripts: mpsc::Receiver<Transcript>) {
    tasks.start(TaskKind::Transcripts, api::look_for_injections(app.clone(), transcripts));
    tasks.start(TaskKind::WakeRoutes, api::push_wakes(app.clone()));
    tasks.start(TaskKind::Processes, api::watch_processes(app.clone()));
    tasks.start(TaskKind::IdleSessions, api::look_for_idle(app.clone()));
}

/// Starts the sources of the capabilities.
fn start_sources(tasks: &mut Supervisor, app: &App, state: &Path, alive: Timestamp) {
    if let Some(trouble) = clock_trouble(app.clock_ahead_ms()) {
        tracing::warn!("{trouble}");
    }
    let parts = source::Parts {
        inputs: app.registry.sources(),
        programs: app.registry.programs(),
        state,
        alive,
        wall: app.wall,
        utc_offset: app.utc_offset,
        zone: clock::zone,
    };
    capability::start_sources(&parts, &mut Starting { tasks, app });
}

struct Starting<'a> {
    tasks: &'a mut Supervisor,
    app: &'a App,
}

impl source::Start for Starting<'_> {
    fn start(&mut self, source: impl Source) {
        let app = self.app;
        let clocks = Clocks { clock: app.clock.clone(), wall: app.wall };
        let publisher = app.publisher.clone();
        let running = source::keep_running(Arc::new(source), clocks, publisher, app.shutdown.clone());
        self.tasks.start(TaskKind::Source, running);
    }
}

/// Listens at the socket, and on loopback if configured; returns whether the daemon owns the
/// socket.
async fn listen_everywhere(
    tasks: &mut Supervisor,
    options: &ServeOptions,
    passed: Passed,
    http: Option<&HttpConfig>,
    app: App,
) -> Result<bool, ListenError> {
    if let Some(http) = http {
        let (listener, tokens) = listen::tcp(http, &options.state).await?;
        tasks.start(TaskKind::Listener, api::serve_tcp(listener, app.clone(), tokens));
    }
    let passed = passed.take(&options.socket)?;
    let owns_socket = passed.is_none();
    let listener = passed.map_or_else(|| listen::unix(&options.socket), Ok)?;
    tasks.start(TaskKind::Listener, api::serve_unix(listener, app));
    Ok(owns_socket)
}

fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future};

    use super::*;
    use journal::{Journal, JournalSettings, memory::MemoryFiles};

    #[tokio::test(start_paused = true)]
    async fn stuck_client_does_not_block_later_stop_phases() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = Arc::new(MemoryFiles::new());
        let opened =
            Journal::open(files, JournalSettings::default(), Arc::new(|| Timestamp::ZERO), &|_| None);
        let opened = opened.expect("opened");
        let (stop_intake, _) = watch::channel(false);
        let (drain, mut draining) = watch::channel(false);
        let mut tasks = Supervisor::default();
        tasks.start(TaskKind::Listener, future::pending::<Result<(), Infallible>>());
        let (drained, mut has_drained) = watch::channel(false);
        tasks.start(TaskKind::EventLoop, async move {
            draining.changed().await.expect("asked to");
            drained.send_replace(true);
            Ok::<(), Infallible>(())
        });
        let [socket, config, state] = ["socket", "config", "state"].map(|name| folder.path().join(name));
        let options = ServeOptions { socket, config, state, watcher: None, replaying: Replaying::default() };
        let (orders, _) = writer::orders();
        let (projector, owns_socket) = (None, true);
        let daemon = Daemon {
            options,
            journal: opened.journal,
            tasks,
            projector,
            stop_intake,
            drain,
            reloads: mpsc::channel(1).0,
            orders,
            owns_socket,
        };
        daemon.stop().await.expect("stopped");
        assert!(*has_drained.borrow_and_update());
    }
}
