//! A simulated world for tests: files with contents, inodes and times, and a session with its
//! hooks. The session runs the probes like a handler, and applies the events like the engine.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Duration,
};

use super::{
    Entry, Facts, Fingerprint, Memory, Moment, NOTED, Settings, Space,
    facts::{ContentHash, HASHED_BYTES_MAX, KEPT_BYTES_MAX},
    look,
};
use journal::time::Timestamp;

use crate::{
    call::{Call, Edit, Touch, TouchKind, Written},
    event::{Event, SessionId},
    notification::InjectionPoint,
    sorted::SortedMap,
    transcript::{
        self, Connection, Connections, Gauge, RateLimit, Reader, ServerSaid, ServerState, Transcript, Usage,
    },
};

/// One file.
#[derive(Debug, Clone)]
struct Node {
    inode: u64,
    content: Vec<u8>,
    modified_ms: u64,
    changed_ms: u64,
    is_readable: bool,
}

/// Files and sessions, with a clock that only the test advances.
#[derive(Debug, Default)]
pub(super) struct World {
    files: BTreeMap<String, Node>,
    inodes: u64,
    pub(super) now_ms: u64,
    /// Free and total bytes of the only disk.
    pub(super) disk: Option<(u64, u64)>,
    /// Which ports accept connections; `None` if unknown.
    pub(super) ports: SortedMap<u16, Option<bool>>,
    /// The checked ports, in the order of the checks.
    pub(super) asked: RefCell<Vec<u16>>,
    /// The sessions that have ended.
    pub(super) ended: BTreeSet<String>,
    texts: RefCell<BTreeMap<ContentHash, Arc<str>>>,
    pub(super) memory: Memory,
    pub(super) settings: Settings,
    /// Last activity of the session before a prompt whose look timed out.
    late_since: Option<Timestamp>,
    /// Reads `/transcript`, which all sessions share, if they have one.
    reader: Option<&'static Reader>,
    /// Context gauge that every client reports, and whether the context is new.
    pub(super) gauge: Option<Gauge>,
    pub(super) rate_limits: Vec<RateLimit>,
    pub(super) has_new_context: bool,
}

/// The published findings of a look, shortened.
pub(super) type Found = Vec<String>;

impl World {
    pub(super) fn new() -> Self {
        Self { now_ms: 1_000_000, ..Self::default() }
    }

    /// A world with an empty transcript.
    pub(super) fn with_transcript() -> Self {
        let mut world = Self { reader: Some(&READER), ..Self::new() };
        world.write("/transcript", "");
        world
    }

    pub(super) fn wait(&mut self, duration: Duration) {
        self.now_ms += u64::try_from(duration.as_millis()).expect("short");
    }

    /// Writes a file in place.
    pub(super) fn write(&mut self, path: &str, content: &str) {
        self.now_ms += 50;
        let (now, inode) = (self.now_ms, self.inodes + 1);
        let node = self.files.entry(path.to_owned()).or_insert_with(|| Node {
            inode,
            content: Vec::new(),
            modified_ms: 0,
            changed_ms: 0,
            is_readable: true,
        });
        self.inodes = self.inodes.max(node.inode);
        (node.content, node.modified_ms, node.changed_ms) = (content.into(), now, now);
    }

    /// Replaces a file by another one of its name, as editors do.
    pub(super) fn replace(&mut self, path: &str, content: &str) {
        self.files.remove(path);
        self.write(path, content);
    }

    pub(super) fn touch(&mut self, path: &str) {
        let content = self.content(path);
        self.write(path, &content);
    }

    /// Writes a file and sets its time back.
    pub(super) fn write_with_old_time(&mut self, path: &str, content: &str) {
        let modified_ms = self.files.get(path).map_or(0, |node| node.modified_ms);
        self.write(path, content);
        if let Some(node) = self.files.get_mut(path) {
            node.modified_ms = modified_ms;
        }
    }

    pub(super) fn forbid(&mut self, path: &str) {
        self.now_ms += 50;
        let now = self.now_ms;
        if let Some(node) = self.files.get_mut(path) {
            (node.is_readable, node.changed_ms) = (false, now);
        }
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        self.now_ms += 50;
        let now = self.now_ms;
        if let Some(mut node) = self.files.remove(from) {
            node.changed_ms = now;
            self.files.insert(to.to_owned(), node);
        }
    }

    pub(super) fn remove(&mut self, path: &str) {
        self.now_ms += 50;
        self.files.remove(path);
    }

    pub(super) fn content(&self, path: &str) -> String {
        String::from_utf8_lossy(&self.files.get(path).expect("there").content).into_owned()
    }

    pub(super) fn contains(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// A hook reports the start of a call.
    pub(super) fn begin_call(&mut self, session: &str) {
        self.tell(session, "tool.call.pending", "{}");
    }

    /// A hook runs its check before calls are made.
    pub(super) fn before_a_call(&mut self, session: &str, calls: &[Call]) -> Found {
        self.exchange(session, InjectionPoint::BeforeTool, calls)
    }

    /// A batch of calls ends with an exchange.
    pub(super) fn end_calls(&mut self, session: &str, calls: Vec<Call>) -> Found {
        let found = self.exchange(session, InjectionPoint::AfterTool, &calls);
        self.tell(session, "tool.call.success", "{}");
        found
    }

    /// A user's prompt starts a turn.
    pub(super) fn prompt(&mut self, session: &str) -> Found {
        let found = self.exchange(session, InjectionPoint::TurnStart, &[]);
        self.tell(session, "agent.turn.start", "{}");
        found
    }

    /// A user's prompt starts a turn, and its look times out.
    pub(super) fn prompt_too_late(&mut self, session: &str) {
        let view = self.memory.view(&SessionId::new(session), Some("/w"), |_| true, Timestamp::ZERO);
        self.late_since = Some(view.known.heard_at);
        self.tell(session, "agent.turn.start", "{}");
    }

    /// Runs the probes like the handler of an exchange, and applies the notes like the engine.
    pub(super) fn exchange(&mut self, session: &str, point: InjectionPoint, calls: &[Call]) -> Found {
        let events = self.look(session, point, calls);
        self.late_since = None;
        self.observe(&events);
        events.iter().filter(|event| event.event_type.as_str() != NOTED).map(short).collect()
    }

    pub(super) fn look(&self, session: &str, point: InjectionPoint, calls: &[Call]) -> Vec<Event> {
        let (session, now) = (SessionId::new(session), Timestamp::from_millis(self.now_ms));
        let view = self.memory.view(&session, Some("/w"), |other| !self.ended.contains(other.as_str()), now);
        let others = view.other_sessions();
        let moment = Moment {
            workspace: Some("/w"),
            calls,
            calls_since: view.known.calls_since(None),
            prompt_after: view.known.prompt_after(point, self.late_since),
            transcript: self.reader.map(|reader| Transcript { path: "/transcript", reader }),
            gauge: self.gauge,
            rate_limits: &self.rate_limits,
            caches: Some("/caches"),
            has_new_context: self.has_new_context,
            limits: &view.limits,
            others: &others,
            utc_offset: 3_600,
            ..Moment::new(&session, point, now)
        };
        look(&view.known, &moment, &self.settings, self)
    }

    pub(super) fn observe(&mut self, events: &[Event]) {
        let now = Timestamp::from_millis(self.now_ms);
        for event in events {
            self.memory.note(&event.as_ref(), now);
        }
    }

    pub(super) fn tell(&mut self, session: &str, event_type: &str, payload: &str) {
        self.now_ms += 1;
        let (session, now) = (SessionId::new(session), Timestamp::from_millis(self.now_ms));
        let event = Event {
            id: "1".into(),
            event_type: event_type.parse().expect("valid"),
            source: "claude-code".into(),
            provenance: crate::event::Provenance::Harness,
            severity: crate::event::Severity::Debug,
            timestamp: now,
            payload: crate::event::Payload::from_valid(payload),
            dedupe_key: None,
            session: Some(session),
            workspace: Some("/w".into()),
            cause: None,
            deliver_after: None,
        };
        self.memory.note(&event.as_ref(), now);
    }
}

/// A short text for a finding.
fn short(event: &Event) -> String {
    let payload = event.payload.value();
    let fields = payload.as_object().expect("an object").iter().filter(|(key, _)| *key != "kind");
    let fields = fields
        .map(|(key, value)| format!(" {key}={}", value.as_str().map_or(value.to_string(), str::to_owned)));
    let (_, last) = event.event_type.as_str().rsplit_once('.').expect("segments");
    last.to_owned() + &fields.collect::<String>()
}

pub(super) fn read(path: &str) -> Call {
    touched(path, TouchKind::Read)
}

pub(super) fn wrote(path: &str) -> Call {
    touched(path, TouchKind::Written)
}

/// A call that replaces one text in a file.
pub(super) fn edited(path: &str, old: &str, new: &str) -> Call {
    let edit = Edit { old: old.to_owned(), new: new.to_owned(), is_everywhere: false };
    with_written(path, Written::Edits(vec![edit]))
}

/// A call that writes a whole file.
pub(super) fn wrote_whole(path: &str, content: &str) -> Call {
    with_written(path, Written::Content(content.to_owned()))
}

fn with_written(path: &str, written: Written) -> Call {
    let touch = Touch { path: path.into(), by: TouchKind::Written, written: Some(written) };
    Call { touched: vec![touch], ..Call::default() }
}

pub(super) fn shown(path: &str) -> Call {
    Call { command: Some(format!("cat {path}")), ..touched(path, TouchKind::Shown) }
}

pub(super) fn ran(command: &str) -> Call {
    Call { command: Some(command.to_owned()), ..Call::default() }
}

fn touched(path: &str, by: TouchKind) -> Call {
    Call { touched: vec![Touch { path: path.into(), by, written: None }], ..Call::default() }
}

/// Reads a transcript of lines: an announced file and the id of an ended command each. Numbers in
/// the first line are the size of the model's input, and the size at which the client compacted it.
static READER: Reader = Reader {
    announces: &[TouchKind::Shown, TouchKind::Written],
    changed: lines,
    ended: lines,
    context,
    servers,
    connections: Some(&CONNECTIONS),
};

/// Logs of lines: `up` or `down`, the time and the session.
static CONNECTIONS: Connections = Connections {
    folder: |_, caches| Some(format!("{caches}/p")),
    name: |server| format!("logs-{server}"),
    server: |name| name.strip_prefix("logs-").map(str::to_owned),
    read: connections,
};

fn connections(text: &[u8], session: &str) -> Vec<Connection> {
    let lines = lines(text).into_iter().filter_map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        let (state, at) = (words.next()?, words.next()?.parse().ok()?);
        (words.next()? == session)
            .then(|| Connection { at: Timestamp::from_millis(at), is_up: state == "up" })
    });
    lines.collect()
}

/// Parses lines of a report, a time and a server.
fn servers(text: &[u8]) -> Vec<ServerSaid> {
    let states = [("failed", ServerState::Failed), ("gone", ServerState::Gone), ("back", ServerState::There)];
    let said = lines(text).into_iter().filter_map(|line| {
        let (word, rest) = line.split_once(' ')?;
        let (at, server) = rest.split_once(' ')?;
        let (_, state) = states.into_iter().find(|(state, _)| *state == word)?;
        Some(ServerSaid { server: server.to_owned(), state, at: Timestamp::from_millis(at.parse().ok()?) })
    });
    said.collect()
}

fn lines(text: &[u8]) -> Vec<String> {
    String::from_utf8_lossy(text).lines().map(str::to_owned).collect()
}

fn context(text: &[u8]) -> transcript::Context {
    let first = lines(text).into_iter().next().unwrap_or_default();
    let usage = |word: &str| word.parse().ok().map(|tokens| Usage { model: "m".to_owned(), tokens });
    let mut numbers = first.split(' ').map(usage);
    let mut next = || numbers.next().flatten();
    transcript::Context { used: next(), compacted: next() }
}

impl Facts for World {
    fn entry(&self, path: &Path) -> Entry {
        let path = path.to_str().expect("text");
        let nanos = |millis: u64| i64::try_from(millis).expect("early") * 1_000_000;
        match self.files.get(path) {
            Some(node) => Entry::File(Fingerprint {
                device: 1,
                inode: node.inode,
                size: node.content.len() as u64,
                modified_ns: nanos(node.modified_ms),
                changed_ns: nanos(node.changed_ms),
            }),
            // The workspace stays when its last file is gone.
            None if path == Path::new("/w") => Entry::Folder,
            None if self.files.keys().any(|file| Path::new(file).starts_with(path)) => Entry::Folder,
            None => Entry::Absent,
        }
    }

    fn hash(&self, path: &Path, found: &Fingerprint) -> Option<ContentHash> {
        let node = self.files.get(path.to_str().expect("text"))?;
        if !node.is_readable || found.size > HASHED_BYTES_MAX {
            return None;
        }
        let hash = ContentHash::of(&node.content);
        if node.content.len() as u64 <= KEPT_BYTES_MAX {
            self.texts.borrow_mut().insert(hash, String::from_utf8_lossy(&node.content).into());
        }
        Some(hash)
    }

    fn kept(&self, hash: ContentHash) -> Option<Arc<str>> {
        self.texts.borrow().get(&hash).cloned()
    }

    fn remember(&self, hash: ContentHash, text: &str) {
        self.texts.borrow_mut().insert(hash, text.into());
    }

    fn read(&self, path: &Path, from: u64, max: u64) -> Option<Vec<u8>> {
        let node = self.files.get(path.to_str().expect("text"))?;
        let from = usize::try_from(from).expect("short");
        let max = usize::try_from(max).expect("short");
        Some(node.content.iter().copied().skip(from).take(max).collect())
    }

    fn name_of(&self, folder: &Path, _device: u64, inode: u64) -> Option<String> {
        let (path, _) = self.files.iter().find(|(_, node)| node.inode == inode)?;
        let path = Path::new(path);
        (path.parent() == Some(folder))
            .then(|| path.file_name().expect("a name").to_str().expect("text").to_owned())
    }

    fn names(&self, folder: &Path, max: usize) -> Vec<String> {
        let below = self.files.keys().filter_map(|path| Path::new(path).strip_prefix(folder).ok());
        let first = below.filter_map(|path| path.iter().next()?.to_str().map(str::to_owned));
        let mut names: Vec<String> = first.collect();
        names.dedup();
        names.split_off(names.len().saturating_sub(max))
    }

    fn changed_between(&self, _folder: &Path, _old: &str, _new: &str) -> Option<Arc<[String]>> {
        None
    }

    fn space(&self, _path: &Path) -> Option<Space> {
        self.disk.map(|(free, total)| Space { free, total, device: 1 })
    }

    fn accepts(&self, port: u16) -> Option<bool> {
        self.asked.borrow_mut().push(port);
        self.ports.get(&port).copied().unwrap_or(Some(false))
    }
}
