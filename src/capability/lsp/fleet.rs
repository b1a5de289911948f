//! All language servers: which run, for which folder, and the events about their findings.
//!
//! A place, `ServedFolder`, is a folder with a kind of server. It has at most one run, and a
//! [`Record`] that outlives its runs. A failed run is restarted, with longer waits each time, and
//! given up after [`FAILURES_MAX`] failures.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, mem, sync::Arc, time::Duration};

use serde_json::Value;

use super::{
    Kind, NAME, Settings, Writer,
    message::Incoming,
    record::{Record, SESSIONS_MAX},
    server::{Need, Server},
};
use engine::{
    event::{Event, SessionId},
    sorted::{SortedMap, SortedSet},
};
use journal::time::Timestamp;

use crate::capability::problem::{Change, Origin};

/// Most concurrent runs. A further one has to wait until a run has been unused for a minute, and
/// replaces it.
pub const RUNS_MAX: usize = 4;
/// How long a run has to be unused before another one replaces it: a start costs seconds, and runs
/// must not alternate.
const SPARE_AFTER: Duration = Duration::from_secs(60);
/// Most places with a record; the least recently used one without a run is evicted.
const PLACES_MAX: usize = 32;
/// Most restarts of a failed run.
pub const FAILURES_MAX: u32 = 3;
/// The wait before a restart; four times as long after each further failure.
const RESTART_AFTER: Duration = Duration::from_secs(1);
/// A run of this duration resets the failures.
const IS_WELL_AFTER: Duration = Duration::from_secs(10 * 60);
/// Most files that a new run of a place reopens.
const OPEN_MAX: usize = super::server::DOCUMENTS_MAX;

/// The number of a run; never reused.
pub type RunId = u64;

/// A file written by a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The session.
    pub writer: Writer,
    /// The absolute path.
    pub path: Arc<str>,
    /// The server's folder.
    pub root: Arc<str>,
    /// The name of the kind of server.
    pub kind: Arc<str>,
}

/// An action; actions are performed in order.
#[derive(Debug, Clone)]
pub enum Action {
    /// Start a process.
    Start {
        /// Its run.
        run: RunId,
        /// The kind of server.
        kind: Arc<Kind>,
        /// The folder.
        root: Arc<str>,
    },
    /// Send it a message.
    Send {
        /// Its run.
        run: RunId,
        /// The message.
        message: Value,
    },
    /// Read a file, and pass it to [`Fleet::text`].
    Read {
        /// The run that needs it.
        run: RunId,
        /// The path.
        path: Arc<str>,
        /// The session whose call may have changed it.
        writer: Writer,
    },
    /// The same, if the file has changed since it was last read.
    Look {
        /// The run that needs it.
        run: RunId,
        /// The path.
        path: Arc<str>,
        /// The session whose call may have changed it.
        writer: Writer,
    },
    /// Close the stdin of a process, and kill it if it does not exit.
    Close(RunId),
    /// Kill a process.
    Kill {
        /// Its run.
        run: RunId,
        /// The reason, to be passed to [`Fleet::ended`].
        why: &'static str,
    },
    /// Record that a run was quiet for the first time.
    Ready {
        /// The run.
        run: RunId,
        /// Number of errors that it found.
        errors: usize,
    },
    /// Publish that a server failed for this reason and is not restarted.
    GiveUp(String),
    /// Publish an event.
    Publish(Box<Event>),
}

/// Why a process has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// It cannot be started.
    NotStarted(String),
    /// It exited, or its output is invalid.
    Ended(String),
}

/// The servers.
#[derive(Debug)]
pub struct Fleet {
    settings: Settings,
    /// The id of this process.
    pid: u32,
    places: SortedMap<ServedFolderId, ServedFolder>,
    runs: SortedMap<RunId, Run>,
    next_run: RunId,
    events: u64,
    actions: VecDeque<Action>,
}

/// Root folder and kind.
type ServedFolderId = (Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct ServedFolder {
    record: Record,
    state: State,
    failures: u32,
    /// Files that a new run opens, with their last writers.
    open: SortedMap<Arc<str>, Writer>,
    /// Sessions that wrote since a run was last quiet, and their files. A run that ends before it
    /// is quiet leaves them to the next one.
    writers: SortedMap<Writer, SortedSet<String>>,
    /// Whether a run was quiet after their writes: its later findings are still attributed to
    /// them.
    has_settled: bool,
    needed_at: Timestamp,
    /// Whether to start a run as soon as there is room for it.
    is_wanted: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Stopped,
    Running(RunId),
    /// It failed, and is restarted at this time.
    Failed(Timestamp),
    GivenUp,
}

#[derive(Debug)]
struct Run {
    place: ServedFolderId,
    /// The name of its program.
    program: String,
    server: Server,
    began_at: Timestamp,
    /// Whether it was ever quiet.
    is_ready: bool,
}

impl ServedFolder {
    /// Records that a session wrote a file.
    fn note(&mut self, writer: &Writer, path: &Arc<str>) {
        if mem::take(&mut self.has_settled) {
            self.writers.clear();
        }
        let files = self.writers.get_or_default(writer.clone());
        files.insert(path.to_string());
        if files.len() > OPEN_MAX {
            files.retain(|file| self.open.contains_key(&**file));
        }
        if self.writers.len() > SESSIONS_MAX
            && let Some(other) =
                self.writers.iter().map(|(other, _)| other).find(|other| *other != writer).cloned()
        {
            self.writers.remove(&other);
        }
    }

    /// Whether a session has written there.
    fn knows(&self, session: &SessionId) -> bool {
        self.record.knows(session) || self.writers.keys().any(|writer| writer.session == *session)
    }
}

impl Fleet {
    /// An empty fleet; `pid` is this process.
    pub fn new(settings: Settings, pid: u32) -> Self {
        Self {
            settings,
            pid,
            places: SortedMap::new(),
            runs: SortedMap::new(),
            next_run: 1,
            events: 0,
            actions: VecDeque::new(),
        }
    }

    /// The settings in `[sources.lsp]`.
    pub const fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Applies changed settings: runs of changed kinds are stopped, and failed ones are tried
    /// again.
    pub fn set(&mut self, settings: Settings, now: Timestamp) {
        let before = mem::replace(&mut self.settings, settings);
        let kept = |(_, kind): &ServedFolderId, _: &mut ServedFolder| {
            before.servers.get(kind) == self.settings.servers.get(kind)
        };
        self.places.retain(kept);
        for place in self.places.values_mut().filter(|place| place.state == State::GivenUp) {
            (place.state, place.failures) = (State::Stopped, 0);
        }
        for run in self.runs.values_mut().filter(|run| !self.places.contains_key(&run.place)) {
            run.server.stop(now);
        }
        self.collect(now);
    }

    /// Records a write of a session, and starts the server of its folder.
    pub fn wrote(&mut self, write: Write, now: Timestamp) {
        let Write { writer, path, root, kind } = write;
        let id = (root, kind);
        self.make_room(&id);
        let place = self.places.get_or_default(id.clone());
        place.needed_at = now;
        place.open.insert(Arc::clone(&path), writer.clone());
        if place.open.len() > OPEN_MAX
            && let Some(other) =
                place.open.iter().map(|(other, _)| other).find(|other| **other != path).cloned()
        {
            place.open.remove(&other);
        }
        match place.state {
            State::Running(run) if self.runs.get(&run).is_some_and(|run| run.server.is_stopping()) => {
                place.note(&writer, &path);
                place.is_wanted = true;
            }
            State::Running(run) => self.actions.push_back(Action::Read { run, path, writer }),
            State::Stopped => {
                place.note(&writer, &path);
                self.start(&id, now);
            }
            State::Failed(_) | State::GivenUp => place.note(&writer, &path),
        }
        self.collect(now);
    }

    /// Records the end of a session's calls, which may have changed any file: checks open files.
    pub fn looked(&mut self, writer: &Writer, now: Timestamp) {
        for (id, run) in &self.runs {
            if self.places.get(&run.place).is_some_and(|place| place.knows(&writer.session)) {
                let look = |path: &Arc<str>| Action::Look {
                    run: *id,
                    path: Arc::clone(path),
                    writer: writer.clone(),
                };
                self.actions.extend(run.server.documents().map(look));
            }
        }
        self.collect(now);
    }

    /// Takes the text of a requested file; `None` if it cannot be read, or does not exist any more.
    pub fn text(
        &mut self,
        run: RunId,
        path: &Arc<str>,
        writer: &Writer,
        text: Option<String>,
        now: Timestamp,
    ) {
        let Some(run) = self.runs.get_mut(&run) else { return };
        let place = self.places.get_mut(&run.place);
        match text {
            Some(text) => {
                if run.server.write(path, text, now)
                    && let Some(place) = place
                {
                    place.note(writer, path);
                }
            }
            None => {
                run.server.close(path, now);
                if let Some(place) = place {
                    place.open.remove(path);
                }
            }
        }
        self.collect(now);
    }

    /// Takes a message of a server.
    pub fn take(&mut self, run: RunId, incoming: Incoming, now: Timestamp) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.server.take(incoming, now);
        }
        self.collect(now);
    }

    /// Records the end of a process.
    pub fn ended(&mut self, run: RunId, end: End, now: Timestamp) {
        let Some(ended) = self.runs.remove(&run) else { return };
        self.note_end(run, &ended, end, now);
        let is_next = |place: &ServedFolder| place.is_wanted && place.state == State::Stopped;
        let next = self.places.iter().filter(|(_, place)| is_next(place));
        if let Some(next) = next.min_by_key(|(_, place)| place.needed_at).map(|(id, _)| id.clone()) {
            self.start(&next, now);
        }
        self.collect(now);
    }

    fn note_end(&mut self, id: RunId, run: &Run, end: End, now: Timestamp) {
        // After changed settings, a place can have another run while the former one still stops.
        let place = self.places.get_mut(&run.place).filter(|place| place.state == State::Running(id));
        let Some(place) = place else { return };
        if run.server.is_stopping() {
            place.state = State::Stopped;
            return;
        }
        let is_well = now.since(run.began_at) >= IS_WELL_AFTER;
        place.failures = if is_well { 1 } else { place.failures + 1 };
        let (why, can_restart) = match end {
            End::NotStarted(why) => (why, false),
            End::Ended(why) => (why, place.failures <= FAILURES_MAX),
        };
        if can_restart {
            place.state = State::Failed(now + RESTART_AFTER * 4_u32.pow(place.failures - 1));
        } else {
            place.state = State::GivenUp;
            let (root, kind) = &run.place;
            let error = format!("{kind} ({}) in {root}: {why}; it is not restarted", run.program);
            self.actions.push_back(Action::GiveUp(error));
        }
    }

    /// Performs due actions.
    pub fn advance(&mut self, now: Timestamp) {
        let due = |(id, place): &(ServedFolderId, ServedFolder)| match place.state {
            State::Failed(at) if at <= now => Some(id.clone()),
            State::Failed(_) | State::Stopped | State::Running(_) | State::GivenUp => None,
        };
        let due: Vec<ServedFolderId> = self.places.iter().filter_map(due).collect();
        for place in due {
            self.start(&place, now);
        }
        for run in self.runs.values_mut() {
            let needed_at = self.places.get(&run.place).map_or(Timestamp::ZERO, |place| place.needed_at);
            if !run.server.is_dirty() && now >= needed_at + self.settings.idle {
                run.server.stop(now);
            }
        }
        self.collect(now);
    }

    /// The next time at which [`Self::advance`] has something to do.
    pub fn deadline(&self) -> Option<Timestamp> {
        let restarts = self.places.values().filter_map(|place| match place.state {
            State::Failed(at) => Some(at),
            State::Stopped | State::Running(_) | State::GivenUp => None,
        });
        let idle = self.runs.values().filter(|run| !run.server.is_dirty() && !run.server.is_stopping());
        let idle = idle.filter_map(|run| Some(self.places.get(&run.place)?.needed_at + self.settings.idle));
        let servers = self.runs.values().filter_map(|run| run.server.deadline());
        restarts.chain(idle).chain(servers).min()
    }

    /// The next action.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Starts a run of a place, if there is room for one.
    fn start(&mut self, id: &ServedFolderId, now: Timestamp) {
        let kind = self.settings.servers.get(&id.1).filter(|kind| kind.can_run());
        let Some(kind) = kind.cloned() else { return };
        if self.runs.len() >= RUNS_MAX {
            let needed_at =
                |run: &Run| self.places.get(&run.place).map_or(Timestamp::ZERO, |place| place.needed_at);
            let oldest = self.runs.values_mut().min_by_key(|run| needed_at(run));
            if let Some(oldest) = oldest
                && self.places.get(&oldest.place).is_none_or(|place| now >= place.needed_at + SPARE_AFTER)
            {
                oldest.server.stop(now);
            }
            if let Some(place) = self.places.get_mut(id) {
                (place.state, place.is_wanted) = (State::Stopped, true);
            }
            return;
        }
        let Some(place) = self.places.get_mut(id) else { return };
        let (run, root) = (self.next_run, Arc::clone(&id.0));
        self.next_run += 1;
        (place.state, place.is_wanted) = (State::Running(run), false);
        let reads = place.open.iter().map(|(path, writer)| (Arc::clone(path), writer.clone()));
        let reads = reads.map(|(path, writer)| Action::Read { run, path, writer });
        let server = Server::new(&root, self.pid, now);
        let program = kind.program().to_owned();
        self.actions.push_back(Action::Start { run, kind, root });
        self.actions.extend(reads);
        self.runs.insert(run, Run { place: id.clone(), program, server, began_at: now, is_ready: false });
    }

    /// Evicts the least recently used record of a place without a run, if there is no room for
    /// another one.
    fn make_room(&mut self, id: &ServedFolderId) {
        if self.places.contains_key(id) || self.places.len() < PLACES_MAX {
            return;
        }
        let is_idle = |place: &ServedFolder| !matches!(place.state, State::Running(_));
        let idle = self.places.iter().filter(|(_, place)| is_idle(place));
        if let Some(oldest) = idle.min_by_key(|(_, place)| place.needed_at).map(|(id, _)| id.clone()) {
            self.places.remove(&oldest);
        }
    }

    /// Collects messages for the servers, and their findings.
    fn collect(&mut self, now: Timestamp) {
        let mut found = Vec::new();
        for (id, run) in self.runs.iter_mut() {
            let need = run.server.advance(now);
            while let Some(message) = run.server.next_message() {
                self.actions.push_back(Action::Send { run: *id, message });
            }
            match need {
                Need::Nothing => {}
                Need::Close => self.actions.push_back(Action::Close(*id)),
                Need::Kill(why) => self.actions.push_back(Action::Kill { run: *id, why }),
            }
            let Some(problems) = run.server.settled(now) else { continue };
            if !mem::replace(&mut run.is_ready, true) {
                self.actions.push_back(Action::Ready { run: *id, errors: problems.len() });
            }
            // Silence is no report: findings that come after it are the first ones.
            let place = self.places.get_mut(&run.place);
            let place = place.filter(|place| place.record.has_findings() || run.server.has_reported());
            if let Some(place) = place {
                place.has_settled = true;
                let changes = place.record.settle(problems, &place.writers, now);
                found.extend(changes.into_iter().map(|change| (run.place.clone(), change)));
            }
        }
        for (place, (writer, change)) in found {
            self.publish(&place, &writer, &change, now);
        }
    }

    fn publish(&mut self, place: &ServedFolderId, writer: &Writer, change: &Change, now: Timestamp) {
        let ((root, kind), workspace) = (place, writer.workspace.as_deref());
        let origin = Origin { tool: kind, folder: Some(root), workspace: workspace.or(Some(root)) };
        for report in change.reports(&origin) {
            self.events += 1;
            let id = format!("{NAME}-{}-{}", now.as_millis(), self.events);
            let mut event = Event::own(report.event_type, id, report.severity, report.payload, now);
            (event.session, event.workspace) = (Some(writer.session.clone()), writer.workspace.clone());
            self.actions.push_back(Action::Publish(Box::new(event)));
        }
    }
}
