//! One run of a language server: what it is sent, and when what it finds is about the newest text.
//!
//! It takes the texts of files, what the server says, and the time; it gives messages and, each
//! time the server is quiet, all errors that it finds. A finding about an older text is never
//! given: one that states an older version is left out, and of a server that states no version only
//! what it says after it has answered a question about the newest text counts as news of that. All
//! waits are bounded.

mod quiet;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};

use self::quiet::Busy;
use super::{
    diagnostics::errors,
    message::{Incoming, answer, initialize, language_of, notice, request},
    uri,
};
use crate::{problem::Problem, time::Timestamp};

/// Most documents that a server has open. The one that was written the longest ago is closed for
/// another one.
pub const DOCUMENTS_MAX: usize = 50;
/// Most files of which a server's own findings are kept; of further files they are left out.
const FILES_MAX: usize = 1_000;
/// How long a server may take to answer `initialize`; one that does not is ended as if it had died.
const INITIALIZE_MAX: Duration = Duration::from_secs(60);
/// How long a server may take to answer `shutdown` before its stdin is closed.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);
/// How long after the last change diagnostics are asked for: quick edits are asked for once.
const PULL_AFTER: Duration = Duration::from_millis(100);

/// One run.
#[derive(Debug)]
pub struct Server {
    phase: Phase,
    /// Whether diagnostics can be asked for, and symbols.
    offers: Offers,
    asked: BTreeMap<u64, Asked>,
    next_id: u64,
    documents: BTreeMap<Arc<str>, Document>,
    /// What it says by itself, by file; without files in which it finds nothing.
    pushed: BTreeMap<Arc<str>, Vec<Problem>>,
    /// What it said after that about an older version of a document. What is not in it is gone: many
    /// servers do not repeat what is the same for the next version. What is new in it is not given.
    stale: BTreeMap<Arc<str>, Vec<Problem>>,
    busy: Busy,
    /// When something changed last that can change what it finds.
    active_at: Timestamp,
    /// Whether that was given since.
    is_dirty: bool,
    has_settled: bool,
    writes: u64,
    messages: VecDeque<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Starting {
        since: Timestamp,
    },
    Running,
    Stopping {
        since: Timestamp,
    },
    /// This is to be done with its process.
    Over(Need),
    /// It was said, of a run that was asked to stop, or of one that fails.
    Done {
        was_asked: bool,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Offers {
    pull: bool,
    symbols: bool,
}

/// A request of ours without an answer.
#[derive(Debug)]
struct Asked {
    what: Question,
    at: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
enum Question {
    Initialize,
    /// The diagnostics of a document in a version.
    Pull(Arc<str>, i32),
    /// Its answer shows that this version has been taken in: servers answer in the order of what
    /// they read.
    Barrier(Arc<str>, i32),
    Shutdown,
}

/// An open document.
#[derive(Debug)]
struct Document {
    version: i32,
    /// Whether the server knows it.
    is_open: bool,
    /// Sent with the next version.
    text: Option<String>,
    hash: u64,
    /// Grows with each write of any document.
    written: u64,
    /// Since when news of it are waited for.
    since: Timestamp,
    news: News,
    pulled: Vec<Problem>,
}

/// What is known of the newest version of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// Its diagnostics are to be asked for.
    ToBeAsked,
    /// Nothing yet.
    Awaited,
    /// Nothing yet, and the server is known to have taken it in.
    TakenIn,
    /// What the server finds.
    There,
}

/// What to do with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It goes on.
    Nothing,
    /// Its stdin is to be closed: it was asked to stop.
    Close,
    /// It is to be ended: it does not answer `initialize`, or refuses it.
    Kill(&'static str),
}

impl Server {
    /// A run in `root` that begins; `pid` is the process that asks.
    pub fn new(root: &str, pid: u32, now: Timestamp) -> Self {
        let mut server = Self {
            phase: Phase::Starting { since: now },
            offers: Offers::default(),
            asked: BTreeMap::new(),
            next_id: 0,
            documents: BTreeMap::new(),
            pushed: BTreeMap::new(),
            stale: BTreeMap::new(),
            busy: Busy::default(),
            active_at: now,
            is_dirty: false,
            has_settled: false,
            writes: 0,
            messages: VecDeque::new(),
        };
        server.ask("initialize", initialize(root, pid), Question::Initialize, now);
        server
    }

    /// Takes the text of a file; returns whether it is another one than before.
    pub fn write(&mut self, path: &Arc<str>, text: String, now: Timestamp) -> bool {
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let hash = hasher.finish();
        self.writes += 1;
        if self.documents.get(path).is_some_and(|document| document.hash == hash) {
            return false;
        }
        if !self.documents.contains_key(path) && self.documents.len() >= DOCUMENTS_MAX {
            let oldest = self.documents.iter().min_by_key(|(_, document)| document.written);
            if let Some(oldest) = oldest.map(|(path, _)| Arc::clone(path)) {
                self.close(&oldest, now);
            }
        }
        let before = self.documents.remove(path);
        let (version, is_open) =
            before.as_ref().map_or((1, false), |before| (before.version + 1, before.is_open));
        let pulled = before.map(|before| before.pulled).unwrap_or_default();
        let (text, written, news) = (Some(text), self.writes, News::Awaited);
        let document = Document { version, is_open, text, hash, written, since: now, news, pulled };
        self.documents.insert(Arc::clone(path), document);
        self.touch(now);
        if self.phase == Phase::Running {
            self.send_text(path, now);
        }
        true
    }

    /// Closes a document, as its file is gone or another one takes its place.
    pub fn close(&mut self, path: &Arc<str>, now: Timestamp) {
        let Some(document) = self.documents.remove(path) else { return };
        self.stale.remove(path);
        if document.is_open {
            self.tell("textDocument/didClose", json!({ "textDocument": { "uri": uri::of_path(path) } }));
        }
        self.touch(now);
    }

    /// The open documents.
    pub fn documents(&self) -> impl Iterator<Item = &Arc<str>> {
        self.documents.keys()
    }

    /// Takes what the server says.
    pub fn take(&mut self, incoming: Incoming, now: Timestamp) {
        match incoming {
            Incoming::Answer { id, result } => {
                if let Some(Asked { what, .. }) = self.asked.remove(&id) {
                    self.take_answer(what, result, now);
                }
            }
            Incoming::Request { id, method, params } => {
                self.messages.push_back(answer(&id, &method, &params));
                if method == "workspace/diagnostic/refresh" {
                    self.ask_again(now);
                }
            }
            Incoming::Notice { method, params } => self.take_notice(&method, &params, now),
        }
    }

    /// Does what is due, and says what is to be done with the run.
    pub fn advance(&mut self, now: Timestamp) -> Need {
        if self.pull_at().is_some_and(|at| at <= now) {
            self.pull(now);
        }
        let need = match self.phase {
            Phase::Starting { since } if now >= since + INITIALIZE_MAX => {
                Need::Kill("it did not answer `initialize` within a minute")
            }
            Phase::Stopping { since } if now >= since + SHUTDOWN_MAX => Need::Close,
            Phase::Over(need) => need,
            Phase::Starting { .. } | Phase::Running | Phase::Stopping { .. } | Phase::Done { .. } => {
                return Need::Nothing;
            }
        };
        self.phase = Phase::Done { was_asked: need == Need::Close };
        need
    }

    /// All errors that the server finds, if it is quiet and something happened since they were
    /// given last.
    pub fn settled(&mut self, now: Timestamp) -> Option<Vec<Problem>> {
        self.settles_at().filter(|at| *at <= now)?;
        (self.is_dirty, self.has_settled) = (false, true);
        self.busy.forget_silent(now);
        Some(self.problems())
    }

    /// When [`Self::advance`] or [`Self::settled`] has something to do.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Starting { since } => Some(since + INITIALIZE_MAX),
            Phase::Stopping { since } => Some(since + SHUTDOWN_MAX),
            Phase::Running => self.pull_at().into_iter().chain(self.settles_at()).min(),
            Phase::Over(_) | Phase::Done { .. } => None,
        }
    }

    /// Whether it waits for something to be found.
    pub const fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// The next message to send.
    pub fn next_message(&mut self) -> Option<Value> {
        self.messages.pop_front()
    }

    /// Asks it to stop.
    pub fn stop(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Running => {
                self.ask("shutdown", Value::Null, Question::Shutdown, now);
                self.phase = Phase::Stopping { since: now };
            }
            Phase::Starting { .. } => {
                self.asked.clear();
                self.phase = Phase::Over(Need::Close);
            }
            Phase::Stopping { .. } | Phase::Over(_) | Phase::Done { .. } => {}
        }
    }

    /// Whether it was asked to stop.
    pub const fn is_stopping(&self) -> bool {
        matches!(
            self.phase,
            Phase::Stopping { .. } | Phase::Over(Need::Close) | Phase::Done { was_asked: true }
        )
    }

    fn take_answer(&mut self, what: Question, result: Option<Value>, now: Timestamp) {
        match (what, result) {
            (Question::Initialize, Some(result)) => self.begin(&result, now),
            (Question::Initialize, None) => {
                self.phase = Phase::Over(Need::Kill("it refused `initialize`"));
            }
            (Question::Pull(path, version), result) => self.take_pulled(&path, version, result, now),
            (Question::Barrier(path, version), _) => {
                if let Some(document) = self.documents.get_mut(&path)
                    && (document.version, document.news) == (version, News::Awaited)
                {
                    document.news = News::TakenIn;
                }
            }
            (Question::Shutdown, _) => {
                self.tell("exit", Value::Null);
                self.phase = Phase::Over(Need::Close);
            }
        }
    }

    /// The server has begun: the documents that were written until now are opened.
    fn begin(&mut self, result: &Value, now: Timestamp) {
        if !matches!(self.phase, Phase::Starting { .. }) {
            return;
        }
        let is_offered = |name: &str| {
            let offer = result.get("capabilities").and_then(|capabilities| capabilities.get(name));
            offer.is_some_and(|offer| !matches!(offer, Value::Null | Value::Bool(false)))
        };
        self.offers =
            Offers { pull: is_offered("diagnosticProvider"), symbols: is_offered("documentSymbolProvider") };
        self.phase = Phase::Running;
        self.tell("initialized", json!({}));
        let paths: Vec<Arc<str>> = self.documents.keys().cloned().collect();
        for path in paths {
            self.send_text(&path, now);
        }
    }

    fn send_text(&mut self, path: &Arc<str>, now: Timestamp) {
        let Some(document) = self.documents.get_mut(path) else { return };
        let Some(text) = document.text.take() else { return };
        let (uri, version) = (uri::of_path(path), document.version);
        document.since = now;
        if std::mem::replace(&mut document.is_open, true) {
            let changes = json!([{ "text": text }]);
            let params =
                json!({ "textDocument": { "uri": uri, "version": version }, "contentChanges": changes });
            self.tell("textDocument/didChange", params);
        } else {
            let language = language_of(path);
            let document = json!({ "uri": uri, "languageId": language, "version": version, "text": text });
            self.tell("textDocument/didOpen", json!({ "textDocument": document }));
        }
        self.tell("textDocument/didSave", json!({ "textDocument": { "uri": uri } }));
        if self.offers.pull {
            self.ask_again(now);
        } else if self.offers.symbols {
            let params = json!({ "textDocument": { "uri": uri } });
            let barrier = Question::Barrier(Arc::clone(path), version);
            self.ask("textDocument/documentSymbol", params, barrier, now);
        } else if let Some(document) = self.documents.get_mut(path) {
            document.news = News::TakenIn;
        }
        self.touch(now);
    }

    fn take_notice(&mut self, method: &str, params: &Value, now: Timestamp) {
        let has_moved = match method {
            "textDocument/publishDiagnostics" => return self.take_pushed(params, now),
            "$/progress" => self.busy.progress(params, now),
            "experimental/serverStatus" => self.busy.status(params, now),
            _ => false,
        };
        if has_moved {
            self.active_at = now;
            if self.is_dirty {
                self.ask_again(now);
            }
        }
    }

    fn take_pushed(&mut self, params: &Value, now: Timestamp) {
        let Some(path) = params.get("uri").and_then(Value::as_str).and_then(uri::to_path) else { return };
        let version = params.get("version").and_then(Value::as_i64);
        let found = errors(&path, params.get("diagnostics").unwrap_or(&Value::Null));
        let path: Arc<str> = path.into();
        if let Some(document) = self.documents.get_mut(&path) {
            match version {
                // What a compiler found that the server runs: it is not quiet while that runs.
                Some(_) if self.offers.pull => {}
                Some(version) if version != i64::from(document.version) => {
                    self.stale.insert(path, found);
                    return self.touch(now);
                }
                Some(_) => document.news = News::There,
                None if document.news == News::TakenIn => document.news = News::There,
                None => {}
            }
        }
        self.touch(now);
        self.stale.remove(&path);
        if found.is_empty() {
            self.pushed.remove(&path);
        } else if self.pushed.contains_key(&path) || self.pushed.len() < FILES_MAX {
            self.pushed.insert(path, found);
        }
    }

    fn take_pulled(&mut self, path: &Arc<str>, version: i32, result: Option<Value>, now: Timestamp) {
        let Some(document) = self.documents.get_mut(path) else { return };
        if document.version != version || document.news == News::ToBeAsked {
            return;
        }
        self.active_at = now;
        // One that is refused, because something changed meanwhile, is asked for again until its
        // wait is over.
        let Some(items) = result.as_ref().and_then(|result| result.get("items")) else {
            document.news = News::ToBeAsked;
            return;
        };
        (document.pulled, document.news) = (errors(path, items), News::There);
    }

    /// What changes one document can change the diagnostics of each.
    fn ask_again(&mut self, now: Timestamp) {
        if !self.offers.pull {
            return;
        }
        for document in self.documents.values_mut() {
            (document.news, document.since) = (News::ToBeAsked, now);
        }
        self.touch(now);
    }

    fn pull_at(&self) -> Option<Timestamp> {
        let is_wanted = |document: &Document| document.news == News::ToBeAsked;
        let is_wanted = self.phase == Phase::Running && self.documents.values().any(is_wanted);
        is_wanted.then(|| self.active_at + PULL_AFTER)
    }

    fn pull(&mut self, now: Timestamp) {
        let mut wanted = BTreeSet::new();
        for (path, document) in &mut self.documents {
            if document.news == News::ToBeAsked {
                document.news = News::Awaited;
                wanted.insert((Arc::clone(path), document.version));
            }
        }
        // What was asked before is about an older state.
        self.asked.retain(|_, asked| !matches!(asked.what, Question::Pull(..)));
        for (path, version) in wanted {
            let params = json!({ "textDocument": { "uri": uri::of_path(&path) } });
            self.ask("textDocument/diagnostic", params, Question::Pull(path, version), now);
        }
    }

    /// All errors, one for each place and code: what is asked for and what the server says by
    /// itself may be the same.
    fn problems(&self) -> Vec<Problem> {
        let is_there = |path: &Arc<str>, problem: &Problem| {
            let is_same =
                |other: &Problem| (&other.code, &other.message) == (&problem.code, &problem.message);
            self.stale.get(path).is_none_or(|stale| stale.iter().any(is_same))
        };
        let pushed = self.pushed.iter().flat_map(|(path, found)| found.iter().map(move |one| (path, one)));
        let pushed = pushed.filter(|(path, problem)| is_there(path, problem));
        let mut problems: Vec<Problem> = pushed.map(|(_, problem)| problem.clone()).collect();
        let place = |problem: &Problem| {
            Some((problem.file.clone(), problem.line, problem.code.clone().filter(|code| !code.is_empty())?))
        };
        let places: BTreeSet<_> = problems.iter().filter_map(place).collect();
        let pulled = self.documents.values().flat_map(|document| &document.pulled);
        let is_new = |problem: &&Problem| place(problem).is_none_or(|place| !places.contains(&place));
        problems.extend(pulled.filter(is_new).cloned());
        problems
    }

    fn touch(&mut self, now: Timestamp) {
        (self.active_at, self.is_dirty) = (now, true);
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.messages.push_back(notice(method, params));
    }

    fn ask(&mut self, method: &str, params: Value, what: Question, now: Timestamp) {
        self.next_id += 1;
        self.asked.insert(self.next_id, Asked { what, at: now });
        self.messages.push_back(request(self.next_id, method, params));
    }
}
