//! Runs language servers in the folders that sessions write to, and publishes their new findings
//! (docs/design/lsp.md).
//!
//! The [`Fleet`] decides what to start, send and publish. A server is a child process without a
//! shell, in its own process group, with pipes. It is killed with this source; when the daemon is
//! killed, the server's stdin ends. While the source is off, and while nobody writes, nothing
//! wakes.

mod process;
pub mod writes;

use std::{
    convert::Infallible,
    env, fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
    time::timeout,
};
use tokio_stream::{StreamExt, wrappers::WatchStream};

use self::{
    process::{Heard, Process},
    writes::{IsOpen, Writes, Wrote},
};
use crate::{
    capability::{
        lsp::{self, Action, End, Fleet, RunId, Settings, Write, Writer, root_of},
        outside,
        source::{Outlet, Parts, Source, SourceError, failed, pause_if, values},
    },
    daemon::{program::Programs, tasks::run_blocking},
};
use engine::sorted::SortedMap;
use journal::time::Timestamp;

/// Largest file that is sent to a server, in bytes. Larger ones are ignored.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// Time limit for reading the files of one call, for mounts that do not answer. Files not read
/// within it are read after the next call.
const READ_MAX: Duration = Duration::from_secs(5);
/// Most messages of servers that wait for the source; then a server has to wait.
const HEARD_MAX: usize = 64;
/// Folders of tools: nobody fixes errors in their files.
const LEFT_OUT: [&str; 3] = ["/.git/", "/node_modules/", "/target/"];

/// The source.
#[derive(Debug)]
pub struct Servers {
    settings: watch::Receiver<Arc<outside::Settings>>,
    writes: Arc<Writes>,
    programs: Arc<Programs>,
}

impl Servers {
    /// Runs servers by the settings, for the files that calls write.
    pub fn new(parts: &Parts<'_>) -> Self {
        Self {
            settings: parts.inputs.settings.subscribe(),
            writes: Arc::clone(&parts.inputs.writes),
            programs: Arc::clone(parts.programs),
        }
    }

    /// Runs servers by `set` and what replaces it in `values`, until the source is switched off.
    async fn serve(
        &self,
        set: Settings,
        values: &mut WatchStream<Arc<outside::Settings>>,
        out: &Outlet,
    ) -> Result<(), SourceError> {
        let mut desk = Desk::new(set, Arc::clone(&self.programs), out.clone());
        loop {
            desk.act().await;
            let due = desk.fleet.deadline().map(|at| at.since(desk.now()));
            tokio::select! {
                biased;
                newest = values.next() => {
                    let set = newest.ok_or(SourceError::Ended)?.lsp.clone();
                    if !set.enabled {
                        return Ok(());
                    }
                    let now = desk.now();
                    if set != *desk.fleet.settings() {
                        desk.fleet.set(set, now);
                    }
                }
                Some(ended) = desk.tasks.join_next(), if !desk.tasks.is_empty() => {
                    if let Err(error) = ended && error.is_panic() {
                        return Err(SourceError::Task("a language server could not be served", error));
                    }
                }
                Some((run, heard)) = desk.heard.recv() => desk.take(run, heard),
                wrote = self.writes.next() => desk.wrote(wrote).await,
                () = pause_if(due) => {
                    let now = desk.now();
                    desk.fleet.advance(now);
                }
            }
        }
    }
}

impl Source for Servers {
    const NAME: &'static str = lsp::NAME;

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        let mut values = values(&self.settings);
        loop {
            let settings = values.next().await.ok_or(SourceError::Ended)?;
            if settings.lsp.enabled {
                self.writes.set_open(IsOpen::Yes);
                self.serve(settings.lsp.clone(), &mut values, &out).await?;
                self.writes.set_open(IsOpen::No);
            }
        }
    }
}

/// The processes, and the fingerprints of the files sent to them.
struct Desk {
    fleet: Fleet,
    processes: SortedMap<RunId, Process>,
    tasks: JoinSet<()>,
    heard: mpsc::Receiver<(RunId, Heard)>,
    /// Full while this source is busy: then servers wait.
    hear: mpsc::Sender<(RunId, Heard)>,
    seen: SortedMap<(RunId, Arc<str>), Fingerprint>,
    programs: Arc<Programs>,
    out: Outlet,
}

/// A file to read.
struct FileToRead {
    run: RunId,
    path: Arc<str>,
    writer: Writer,
    /// The file is not read if its fingerprint is still this one.
    known: Option<Fingerprint>,
}

/// Identifies a state of a file: it differs after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl Desk {
    fn new(settings: Settings, programs: Arc<Programs>, out: Outlet) -> Self {
        let (hear, heard) = mpsc::channel(HEARD_MAX);
        Self {
            fleet: Fleet::new(settings, std::process::id()),
            processes: SortedMap::new(),
            tasks: JoinSet::new(),
            heard,
            hear,
            seen: SortedMap::new(),
            programs,
            out,
        }
    }

    fn now(&self) -> Timestamp {
        (self.out.clock)()
    }

    /// Records the writes of a session's calls.
    async fn wrote(&mut self, wrote: Wrote) {
        let Wrote { writer, paths } = wrote;
        let (settings, workspace) = (self.fleet.settings().clone(), writer.workspace.clone());
        let of_interest = paths.iter().any(|path| settings.kind_of(path).is_some());
        let find = move || {
            let find = |path: Arc<str>| {
                let (kind, rules) = settings.kind_of(&path).filter(|_| !is_left_out(&path))?;
                let root = root_of(&path, workspace.as_deref(), rules, &mut |path| Path::new(path).exists())?;
                Some((path, Arc::from(root), Arc::clone(kind)))
            };
            paths.into_iter().filter_map(find).collect::<Vec<_>>()
        };
        let found = if of_interest { within(find).await } else { None };
        let now = self.now();
        for (path, root, kind) in found.into_iter().flatten() {
            self.fleet.wrote(Write { writer: writer.clone(), path, root, kind }, now);
        }
        self.fleet.looked(&writer, now);
    }

    fn take(&mut self, run: RunId, heard: Heard) {
        let now = self.now();
        match heard {
            Heard::Message(message) => self.fleet.take(run, message, now),
            Heard::Ended(why) => self.end(run, End::Ended(why)),
        }
    }

    fn end(&mut self, run: RunId, end: End) {
        if self.processes.remove(&run).is_some() || matches!(end, End::NotStarted(_)) {
            tracing::info!(run, ?end, "a language server ended");
        }
        self.seen.retain(|(of, _), _| *of != run);
        let now = self.now();
        self.fleet.ended(run, end, now);
    }

    /// Performs all pending actions.
    async fn act(&mut self) {
        loop {
            let mut wanted = Vec::new();
            while let Some(action) = self.fleet.next_action() {
                match action {
                    Action::Start { run, kind, root } => self.start(run, &kind.command, &root),
                    Action::Send { run, message } => {
                        let process = self.processes.get(&run);
                        if process.is_some_and(|process| !process.send(&message)) {
                            self.end(run, End::Ended("it does not read what it is sent".to_owned()));
                        }
                    }
                    Action::Read { run, path, writer } => {
                        wanted.push(FileToRead { run, path, writer, known: None })
                    }
                    Action::Look { run, path, writer } => {
                        let known = self.seen.get(&(run, Arc::clone(&path))).copied();
                        wanted.push(FileToRead { run, path, writer, known });
                    }
                    Action::Close(run) => {
                        if let Some(process) = self.processes.get_mut(&run) {
                            process.close();
                        }
                    }
                    Action::Kill { run, why } => self.end(run, End::Ended(why.to_owned())),
                    Action::Ready { run, errors } => {
                        let pid = self.processes.get(&run).and_then(Process::pid);
                        let memory = pid.and_then(process::memory);
                        tracing::info!(run, pid, errors, memory, "a language server is ready");
                    }
                    Action::GiveUp(why) => {
                        tracing::warn!(error = why, "a language server failed; it is not restarted");
                        self.out.publish(failed(lsp::NAME, &why, None, self.now())).await;
                    }
                    Action::Publish(event) => self.out.publish(*event).await,
                }
            }
            if wanted.is_empty() {
                return;
            }
            self.read(wanted).await;
        }
    }

    fn start(&mut self, run: RunId, command: &[String], root: &str) {
        let Some((program, arguments)) = command.split_first() else { return };
        // A server runs in a folder of the project, so a name is never looked up from there.
        let path = if program.contains('/') { Ok(program.into()) } else { self.programs.path_of(program) };
        let path = match path {
            Ok(path) => path,
            Err(missing) => return self.end(run, End::NotStarted(missing.to_string())),
        };
        match process::start(run, &path, arguments, root, self.hear.clone(), &mut self.tasks) {
            Ok(process) => {
                tracing::info!(run, pid = process.pid(), ?command, root, "a language server started");
                self.processes.insert(run, process);
            }
            Err(error) => {
                let is_missing = error.kind() == io::ErrorKind::NotFound && Path::new(root).is_dir();
                let missing = || format!("there is no {program}");
                let why = if is_missing { missing() } else { error.to_string() };
                self.end(run, End::NotStarted(why));
            }
        }
    }

    /// Reads files, and passes the changed ones to the fleet.
    async fn read(&mut self, wanted: Vec<FileToRead>) {
        let read = move || wanted.into_iter().map(|one| (read(&one), one)).collect::<Vec<_>>();
        let now = self.now();
        for (read, FileToRead { run, path, writer, known: _ }) in within(read).await.into_iter().flatten() {
            let Some((fingerprint, text)) = read else { continue };
            match fingerprint {
                Some(fingerprint) => self.seen.insert((run, Arc::clone(&path)), fingerprint),
                None => self.seen.remove(&(run, Arc::clone(&path))),
            };
            self.fleet.text(run, &path, &writer, text, now);
        }
    }
}

/// Names the configured servers that cannot be started because their programs are not in the
/// daemon's `PATH`; `None` if there are none.
pub fn missing_servers(settings: &Settings) -> Option<String> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let is_there = |program: &str| {
        Path::new(program).is_absolute() && Path::new(program).is_file()
            || env::split_paths(&folders).any(|folder| folder.join(program).is_file())
    };
    let programs = settings.servers.values().filter(|kind| kind.enabled);
    let programs = programs.filter_map(|kind| kind.command.first()).map(String::as_str);
    let missing: Vec<&str> = programs.filter(|program| !is_there(program)).collect();
    let list = || format!("not in the daemon's PATH, so not started: {}", missing.join(", "));
    (!missing.is_empty()).then(list)
}

/// Returns the file's fingerprint, and its text if it can be sent to a server; `None` if the
/// fingerprint is the known one.
fn read(wanted: &FileToRead) -> Option<(Option<Fingerprint>, Option<String>)> {
    let Ok(found) = fs::metadata(&*wanted.path) else { return Some((None, None)) };
    let fingerprint =
        Fingerprint { inode: found.ino(), bytes: found.len(), modified: (found.mtime(), found.mtime_nsec()) };
    if wanted.known == Some(fingerprint) {
        return None;
    }
    // Opening a pipe would block.
    let is_fit = found.is_file() && found.len() <= FILE_BYTES_MAX;
    let text = || {
        let mut text = String::new();
        let file = fs::File::open(&*wanted.path).ok()?;
        file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).ok()?;
        Some(text)
    };
    Some((Some(fingerprint), is_fit.then(text).flatten()))
}

fn is_left_out(path: &str) -> bool {
    LEFT_OUT.iter().any(|folder| path.contains(folder))
}

/// Runs file system calls on their own thread, with the time limit [`READ_MAX`].
async fn within<T: Send + 'static>(ask: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    timeout(READ_MAX, run_blocking(ask)).await.ok()?.ok()
}
