//! One run of a language server: its messages, and whether its findings are about the newest text.
//!
//! It takes files' texts, the server's messages, and the time. It returns messages and, each time
//! the server is quiet, all errors that it finds. Findings about an older text are never returned:
//! findings with an older version are dropped. If a server sends no versions, its findings count as
//! new only after it has answered a request about the newest text. All waits are bounded.

#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use engine::sorted::{SortedMap, SortedSet};
use journal::time::Timestamp;
use serde_json::{Value, json};

use crate::capability::{
    lsp::message::{self, Incoming, answer, errors, initialize, language_of, notice, request},
    problem::Problem,
};

/// Most open documents of a server. The one with the oldest write is closed for a new one.
pub const DOCUMENTS_MAX: usize = 50;
/// Most files with kept pushed findings; those of further files are dropped.
const FILES_MAX: usize = 1_000;
/// Longest silence of a server that has not answered `initialize`; after it the server is killed and
/// counts as failed. Source: four such starts end within the ten minutes after which an unused server
/// is stopped, so that it is reported.
const SILENT_START_MAX: Duration = Duration::from_secs(2 * 60);
/// Time limit of the response to `shutdown`, after which its stdin is closed.
const SHUTDOWN_MAX: Duration = Duration::from_secs(2);
/// Delay of a diagnostics request after the last change: quick edits need only one request.
const PULL_AFTER: Duration = Duration::from_millis(100);

/// A run of a language server, without its process.
#[derive(Debug)]
pub struct Server {
    phase: Phase,
    /// Whether it supports requests for diagnostics, and for symbols.
    offers: Offers,
    asked: SortedMap<u64, SentRequest>,
    next_id: u64,
    documents: SortedMap<Arc<str>, Document>,
    /// Its pushed findings, by file; files without findings are omitted.
    pushed: SortedMap<Arc<str>, Vec<Problem>>,
    /// Later findings about an older version of a document. Errors missing here are gone: many
    /// servers do not repeat findings that are the same for the next version. New errors here are
    /// not returned.
    stale: SortedMap<Arc<str>, Vec<Problem>>,
    busy: Busy,
    /// Time of the last change that may affect its findings.
    active_at: Timestamp,
    /// Whether findings have changed since they were last returned.
    is_dirty: bool,
    has_settled: bool,
    writes: u64,
    messages: VecDeque<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has not answered `initialize`. A server may load a whole project before it does, so only its
    /// silence counts, up to [`SILENT_START_MAX`].
    Starting {
        heard_at: Timestamp,
    },
    Running,
    Stopping {
        since: Timestamp,
    },
    /// An action on its process is required.
    Over(Need),
    /// [`Server::advance`] has returned it; the run is stopping or has failed.
    Done {
        was_asked: bool,
    },
}

#[derive(Debug, Clone, Copy, Default)]
struct Offers {
    pull: bool,
    symbols: bool,
}

/// Our request without a response.
#[derive(Debug)]
struct SentRequest {
    what: Question,
    at: Timestamp,
}

#[derive(Debug, PartialEq, Eq)]
enum Question {
    Initialize,
    /// The diagnostics of a version of a document.
    Pull(Arc<str>, i32),
    /// A request whose response shows that the server has processed this version, because servers
    /// respond in reading order.
    Barrier(Arc<str>, i32),
    Shutdown,
}

#[derive(Debug)]
struct Document {
    version: i32,
    /// Whether the server has it open.
    is_open: bool,
    /// The text for the next version.
    text: Option<String>,
    hash: u64,
    /// Increases with each write of any document.
    written: u64,
    /// Start of the wait for news about it.
    since: Timestamp,
    news: News,
    pulled: Vec<Problem>,
}

/// The state of the newest version of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    /// Its diagnostics have to be requested.
    ToBeAsked,
    /// Nothing yet.
    Awaited,
    /// Nothing yet, but the server has processed this version.
    TakenIn,
    /// The findings have arrived.
    There,
}

/// An action on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// None.
    Nothing,
    /// Close its stdin: it was asked to stop.
    Close,
    /// Kill it: it does not answer `initialize`, or refuses it.
    Kill(&'static str),
}

impl Server {
    /// Starts a run in `root`; `pid` is this process.
    pub fn new(root: &str, pid: u32, now: Timestamp) -> Self {
        let mut server = Self {
            phase: Phase::Starting { heard_at: now },
            offers: Offers::default(),
            asked: SortedMap::new(),
            next_id: 0,
            documents: SortedMap::new(),
            pushed: SortedMap::new(),
            stale: SortedMap::new(),
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

    /// Takes the text of a file; returns whether it has changed.
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

    /// Closes a document, because its file is gone or another one replaces it.
    pub fn close(&mut self, path: &Arc<str>, now: Timestamp) {
        let Some(document) = self.documents.remove(path) else { return };
        self.stale.remove(path);
        if document.is_open {
            self.tell(
                "textDocument/didClose",
                json!({ "textDocument": { "uri": message::uri_of_path(path) } }),
            );
        }
        self.touch(now);
    }

    /// The open documents.
    pub fn documents(&self) -> impl Iterator<Item = &Arc<str>> {
        self.documents.keys()
    }

    /// Takes a message of the server.
    pub fn take(&mut self, incoming: Incoming, now: Timestamp) {
        if let Phase::Starting { heard_at } = &mut self.phase {
            *heard_at = now;
        }
        match incoming {
            Incoming::Answer { id, result } => {
                if let Some(SentRequest { what, .. }) = self.asked.remove(&id) {
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

    /// Performs due actions, and returns the action on the run.
    pub fn advance(&mut self, now: Timestamp) -> Need {
        if self.pull_at().is_some_and(|at| at <= now) {
            self.pull(now);
        }
        let need = match self.phase {
            Phase::Starting { heard_at } if now >= heard_at + SILENT_START_MAX => {
                Need::Kill("it did not answer `initialize`, and sent nothing for 2 minutes")
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

    /// How long to wait for news about a document.
    const fn patience(&self) -> Duration {
        if self.has_settled { NEWS_MAX } else { FIRST_NEWS_MAX }
    }

    /// When it counts as quiet without further activity; `None` if nothing is left to return.
    fn settles_at(&self) -> Option<Timestamp> {
        if !self.is_dirty || self.phase != Phase::Running {
            return None;
        }
        let (patience, quiet) = (self.patience(), if self.has_settled { QUIET } else { FIRST_QUIET });
        let unheard = self.documents.values().filter(|document| document.news != News::There);
        let unheard = unheard.map(|document| document.since + patience);
        let unanswered = self.asked.values().filter(|asked| matches!(asked.what, Question::Pull(..)));
        let unanswered = unanswered.map(|asked| asked.at + ANSWER_MAX);
        let quiet = self.active_at + quiet;
        unheard.chain(unanswered).chain(self.busy.until()).chain([quiet]).max()
    }

    /// All errors that the server finds, if it is quiet and there were changes since the last
    /// return.
    pub fn settled(&mut self, now: Timestamp) -> Option<Vec<Problem>> {
        self.settles_at().filter(|at| *at <= now)?;
        (self.is_dirty, self.has_settled) = (false, true);
        self.busy.forget_silent(now);
        Some(self.problems())
    }

    /// The next time at which [`Self::advance`] or [`Self::settled`] has something to do.
    pub fn deadline(&self) -> Option<Timestamp> {
        match self.phase {
            Phase::Starting { heard_at } => Some(heard_at + SILENT_START_MAX),
            Phase::Stopping { since } => Some(since + SHUTDOWN_MAX),
            Phase::Running => self.pull_at().into_iter().chain(self.settles_at()).min(),
            Phase::Over(_) | Phase::Done { .. } => None,
        }
    }

    /// Whether it has reported findings, or their absence, for an open document or another file.
    pub fn has_reported(&self) -> bool {
        !self.pushed.is_empty() || self.documents.values().any(|document| document.news == News::There)
    }

    /// Whether it waits for findings.
    pub const fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// The next message to send.
    pub fn next_message(&mut self) -> Option<Value> {
        self.messages.pop_front()
    }

    /// Requests a shutdown.
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

    /// Whether a shutdown was requested.
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

    /// The server is initialized: documents written so far are opened.
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
        let (uri, version) = (message::uri_of_path(path), document.version);
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
        let Some(path) = params.get("uri").and_then(Value::as_str).and_then(message::path_of_uri) else {
            return;
        };
        let version = params.get("version").and_then(Value::as_i64);
        let found = errors(&path, params.get("diagnostics").unwrap_or(&Value::Null));
        let path: Arc<str> = path.into();
        if let Some(document) = self.documents.get_mut(&path) {
            match version {
                // The version is ignored: these are findings of a compiler run, during which the
                // server is not quiet.
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
        let patience = self.patience();
        let Some(document) = self.documents.get_mut(path) else { return };
        if document.version != version || document.news == News::ToBeAsked {
            return;
        }
        self.active_at = now;
        // A request refused because of a concurrent change is repeated until the document's wait
        // is over.
        let Some(items) = result.as_ref().and_then(|result| result.get("items")) else {
            if now < document.since + patience {
                document.news = News::ToBeAsked;
            }
            return;
        };
        (document.pulled, document.news) = (errors(path, items), News::There);
    }

    /// Requests all diagnostics again, because a change of one document can affect all of them.
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
        let mut wanted = SortedSet::new();
        for (path, document) in self.documents.iter_mut() {
            if document.news == News::ToBeAsked {
                document.news = News::Awaited;
                wanted.insert((Arc::clone(path), document.version));
            }
        }
        // Earlier requests are about an older state.
        self.asked.retain(|_, asked| !matches!(asked.what, Question::Pull(..)));
        for (path, version) in wanted {
            let params = json!({ "textDocument": { "uri": message::uri_of_path(&path) } });
            self.ask("textDocument/diagnostic", params, Question::Pull(path, version), now);
        }
    }

    /// All errors, one per place and code: requested and pushed findings may overlap.
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
        let places: SortedSet<_> = problems.iter().filter_map(place).collect();
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
        self.asked.insert(self.next_id, SentRequest { what, at: now });
        self.messages.push_back(request(self.next_id, method, params));
    }
}

/// How long a server has to be silent to count as quiet. Source: OpenCode waits 150 ms, and a
/// compiler run started by a save begins some milliseconds after the previous one has ended.
const QUIET: Duration = Duration::from_millis(300);
/// The same until a server is first quiet: errors found before are old, and servers for TypeScript
/// report syntax errors seconds before type errors.
const FIRST_QUIET: Duration = Duration::from_secs(2);
/// Longest wait for the first findings about a text.
const NEWS_MAX: Duration = Duration::from_secs(5);
/// The same until a server is first quiet: it may have to read a large project.
const FIRST_NEWS_MAX: Duration = Duration::from_secs(60);
/// Longest wait for a response.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest silence of a running task. After it the task is not waited for until its next report.
const SILENT_MAX: Duration = Duration::from_secs(5 * 60);
/// Most concurrent tasks of a server that are waited for.
const TASKS_MAX: usize = 64;

/// A server's reports about its own work.
#[derive(Debug, Default)]
struct Busy {
    /// The running tasks, by token, with the time of the last report.
    tasks: SortedMap<String, Timestamp>,
    /// The time since which it reports that it is not quiescent.
    unquiet_since: Option<Timestamp>,
}

impl Busy {
    /// Takes `$/progress`; returns whether a task has started or ended.
    fn progress(&mut self, params: &Value, now: Timestamp) -> bool {
        let Some(token) = params.get("token").map(Value::to_string) else { return false };
        match params.pointer("/value/kind").and_then(Value::as_str) {
            Some("begin") if self.tasks.len() < TASKS_MAX => {
                self.tasks.insert(token, now);
                true
            }
            Some("report") => {
                if let Some(heard) = self.tasks.get_mut(&token) {
                    *heard = now;
                }
                false
            }
            Some("end") => self.tasks.remove(&token).is_some(),
            _ => false,
        }
    }

    /// Takes `experimental/serverStatus`; returns whether the server became quiescent.
    fn status(&mut self, params: &Value, now: Timestamp) -> bool {
        let is_quiescent = params.get("quiescent").and_then(Value::as_bool).unwrap_or(true);
        let was_quiescent = self.unquiet_since.is_none();
        self.unquiet_since = (!is_quiescent).then(|| self.unquiet_since.unwrap_or(now));
        is_quiescent && !was_quiescent
    }

    /// When the wait for the server's work ends, if it reports work.
    fn until(&self) -> Option<Timestamp> {
        self.tasks.values().copied().chain(self.unquiet_since).max().map(|heard| heard + SILENT_MAX)
    }

    /// Removes tasks without recent reports.
    fn forget_silent(&mut self, now: Timestamp) {
        self.tasks.retain(|_, heard| now < *heard + SILENT_MAX);
        self.unquiet_since = self.unquiet_since.filter(|since| now < *since + SILENT_MAX);
    }
}
