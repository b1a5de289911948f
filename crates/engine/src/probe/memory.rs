//! The known state of every session, as a fold over the journal.
//!
//! It applies the notes of probes, and harness reports of calls and turns. It is part of the
//! snapshot; handlers get a shared copy for the cost of a pointer.
//!
//! File changes that were published for a folder are known too. A session is not notified of a
//! content that it wrote or read, or of which it was notified before.

use std::{collections::VecDeque, path::Path, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Known, NOTED, Noted, OtherSession, Pushed, context::Limit, facts::ContentHash, files};
use crate::{
    event::{EventRef, Seq, SessionId, Severity, catalogue::ends_checks},
    fold::{Dispatched, Effects, Fold},
    ledger::Reason,
    session::{OPENING_EVENT, Succession},
    sorted::{SortedMap, SortedSet},
};

/// Most known sessions; beyond it the one inactive for the longest time is evicted.
const SESSIONS_MAX: usize = 1_000;
/// Most known files of all sessions together, at some 250 bytes each in memory and in a snapshot;
/// beyond it the session inactive for the longest time is evicted.
const FILES_MAX: usize = 65_536;
/// Most other sessions passed to a probe: the most recently active ones of the folder.
const OTHERS_MAX: usize = 16;
/// Most models with a known limit; beyond it all are evicted.
const LIMITS_MAX: usize = 64;
/// Event for the end of a watch; its payload has the watched `paths`.
const WATCH_FIRED: &str = "watch.fired";
/// Most branches with a kept outcome of their checks.
const PUSHED_MAX: usize = 3;
/// Most kept paths of ended watches of a session; the paths of the last watch may exceed it.
const WATCHED_MAX: usize = 64;
/// How long an inactive session counts as a possible author of changes.
const OTHERS_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The known state of all sessions.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    sessions: SortedMap<SessionId, Arc<Known>>,
    /// Context limit of each model, in tokens.
    limits: Arc<SortedMap<String, u64>>,
    /// Published file changes per folder.
    published: Published,
    /// Sessions that changed since the last call of [`Memory::take_changes`]; `None` means all, as
    /// after a start.
    #[serde(skip)]
    changed: Option<SortedSet<SessionId>>,
}

/// Changes of the sessions' known states.
#[derive(Debug)]
pub struct Changes {
    /// The new state of each; `None` for an evicted one.
    pub sessions: Vec<(SessionId, Option<Arc<Known>>)>,
    /// Context limit of each model, in tokens.
    pub limits: Arc<SortedMap<String, u64>>,
}

/// Another session in, under or above this folder.
#[derive(Debug, Clone)]
pub struct KnownSession {
    /// Its id.
    pub session: SessionId,
    /// Its known state.
    pub known: Arc<Known>,
    /// Whether it is open; otherwise it has ended.
    pub is_open: bool,
}

impl KnownSession {
    /// Its form for a probe.
    pub fn as_session(&self) -> OtherSession<'_> {
        let Self { session, known, is_open } = self;
        OtherSession {
            session,
            is_open: *is_open,
            heard_at: known.heard_at,
            calling_since: known.calling_since,
            workspace: known.workspace.as_deref(),
            files: &known.files,
            git: &known.around.git,
        }
    }
}

/// The part of the memory for a probe.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The session's known state; empty for an unknown session.
    pub known: Arc<Known>,
    /// Other sessions in, under or above its folder, most recently active first.
    pub others: Vec<KnownSession>,
    /// Context limit of each model, in tokens.
    pub limits: Arc<SortedMap<String, u64>>,
}

impl View {
    /// Adds another session, if it is relevant to `session`, which works in `workspace`.
    pub fn add(
        &mut self,
        session: &SessionId,
        workspace: Option<&str>,
        (id, known): (&SessionId, &Arc<Known>),
        is_open: impl Fn(&SessionId) -> bool,
        now: Timestamp,
    ) {
        let is_near = match (workspace, known.workspace.as_deref()) {
            (Some(own), Some(other)) => {
                let (own, other) = (Path::new(own), Path::new(other));
                own.starts_with(other) || other.starts_with(own)
            }
            (None, _) | (_, None) => false,
        };
        if id != session && is_near && now.since(known.heard_at) <= OTHERS_FOR {
            self.others.push(KnownSession {
                session: id.clone(),
                known: Arc::clone(known),
                is_open: is_open(id),
            });
        }
    }

    /// The other sessions in the form for a probe.
    pub fn other_sessions(&self) -> Vec<OtherSession<'_>> {
        self.others.iter().map(KnownSession::as_session).collect()
    }

    /// Sorts the others, after the last was added.
    pub fn order(&mut self) {
        self.others.sort_by(|one, other| {
            other.known.heard_at.cmp(&one.known.heard_at).then_with(|| one.session.cmp(&other.session))
        });
        self.others.truncate(OTHERS_MAX);
    }
}

impl Fold for Memory {
    type Settings = ();

    fn observe(&mut self, dispatched: &Dispatched<'_>, (): &(), _: &mut Effects) -> bool {
        let Dispatched { seq, event, trust, now, .. } = *dispatched;
        if trust.is_trusted() {
            self.note(event, now);
        }
        self.published.note(seq, event);
        false
    }

    /// A copy of a session knows the same.
    fn follow(&mut self, change: &Succession, _: &mut Effects) {
        if let Succession::Copied { from, to } = change
            && let Some(known) = self.sessions.get(from).cloned()
        {
            self.make_room();
            self.sessions.insert(to.clone(), known);
            self.note_change(to);
        }
    }

    /// The session knows the content of the files.
    fn reason_against(&self, session: &SessionId, events: &[Seq]) -> Option<Reason> {
        self.knows_all(session, events).then_some(Reason::Known)
    }
}

impl Memory {
    /// Applies a trusted event.
    pub fn note(&mut self, event: &EventRef<'_>, now: Timestamp) {
        let Some(session) = event.session else { return };
        if event.is_own() && event.event_type == WATCH_FIRED {
            return self.note_watched(&SessionId::new(session), event);
        }
        if ends_checks(event) {
            return self.note_checks(&SessionId::new(session), event, now);
        }
        let is_of_calls = event.event_type.starts_with("tool.call.");
        let is_of_turns = event.event_type.starts_with("agent.") && event.event_type != OPENING_EVENT;
        let is_noted = event.is_own() && event.event_type == NOTED;
        if !is_noted && !is_of_calls && !is_of_turns {
            return;
        }
        let noted = match event.event_type {
            NOTED if is_noted => match serde_json::from_str::<Noted>(event.payload) {
                Ok(noted) => Some(noted),
                // Only probes write this type; other payloads are ignored.
                Err(_) => return,
            },
            _ => None,
        };
        let session = SessionId::new(session);
        let known = self.known_mut(&session);
        if let Some(folder) = event.workspace.filter(|folder| known.workspace.as_deref() != Some(*folder)) {
            known.workspace = Some(folder.into());
        }
        match noted {
            Some(noted) => {
                known.apply(noted);
                if let Some(limit) = known.around.context.observed_limit.clone() {
                    self.note_limit(limit);
                }
                self.bound_files(&session);
            }
            None => {
                known.heard_at = now;
                known.around.observe(event, now);
                known.calling_since = match event.event_type {
                    "tool.call.pending" => known.calling_since.or(Some(now)),
                    _ => None,
                };
            }
        }
    }

    /// Whether a session knows the current content of every file in these events.
    pub fn knows_all(&self, session: &SessionId, events: &[Seq]) -> bool {
        self.sessions.get(session).is_some_and(|known| self.published.are_known(events, &known.files))
    }

    /// Records the paths in the end of a watch, of which the session is notified.
    fn note_watched(&mut self, session: &SessionId, event: &EventRef<'_>) {
        #[derive(Deserialize)]
        struct Fired {
            #[serde(default)]
            paths: Vec<Arc<str>>,
        }
        let Ok(Fired { paths }) = serde_json::from_str(event.payload) else { return };
        if paths.is_empty() || !self.sessions.contains_key(session) {
            return;
        }
        let known = self.known_mut(session);
        if known.watched.len() < WATCHED_MAX {
            known.watched.extend(paths);
        }
    }

    /// Records the outcome of the checks of a session's push, if the event has one.
    fn note_checks(&mut self, session: &SessionId, event: &EventRef<'_>, now: Timestamp) {
        #[derive(Deserialize)]
        struct Ended {
            branch: Option<String>,
            summary: String,
        }
        let Ok(Ended { branch, summary }) = serde_json::from_str(event.payload) else { return };
        if event.severity == Severity::Debug || !self.sessions.contains_key(session) {
            return;
        }
        let pushed = &mut self.known_mut(session).pushed;
        pushed.retain(|before| before.branch != branch);
        pushed.push(Pushed { at: now, branch, ended: summary });
        pushed.drain(..pushed.len().saturating_sub(PUSHED_MAX));
    }

    fn note_limit(&mut self, limit: Limit) {
        let Limit { model, tokens } = limit;
        if self.limits.get(&model) == Some(&tokens) {
            return;
        }
        let limits = Arc::make_mut(&mut self.limits);
        if limits.len() >= LIMITS_MAX {
            limits.clear();
        }
        limits.insert(model, tokens);
    }

    /// Evicts sessions, but not `session`, until the number of all files is within its bound.
    fn bound_files(&mut self, session: &SessionId) {
        let count = |sessions: &SortedMap<SessionId, Arc<Known>>| -> usize {
            sessions.values().map(|known| known.files.len()).sum()
        };
        while count(&self.sessions) > FILES_MAX {
            let others = self.sessions.iter().filter(|(id, known)| id != session && known.files.len() > 0);
            let silent = others.min_by_key(|(_, known)| known.heard_at).map(|(id, _)| id.clone());
            let Some(silent) = silent else { return };
            self.remove(&silent);
        }
    }

    /// The view of `session`, which works in `workspace`; `is_open` is called for the others.
    pub fn view(
        &self,
        session: &SessionId,
        workspace: Option<&str>,
        is_open: impl Fn(&SessionId) -> bool,
        now: Timestamp,
    ) -> View {
        let known = self.sessions.get(session).cloned().unwrap_or_default();
        let mut view = View { known, others: Vec::new(), limits: Arc::clone(&self.limits) };
        for (id, other) in &self.sessions {
            view.add(session, workspace, (id, other), &is_open, now);
        }
        view.order();
        view
    }

    /// The changes since the last call; all sessions at the first call.
    pub fn take_changes(&mut self) -> Changes {
        let changed = self.changed.replace(SortedSet::new());
        let changed = changed.unwrap_or_else(|| self.sessions.keys().cloned().collect());
        let state = |id: SessionId| {
            let known = self.sessions.get(&id).cloned();
            (id, known)
        };
        Changes { sessions: changed.into_iter().map(state).collect(), limits: Arc::clone(&self.limits) }
    }

    /// Whether [`Memory::take_changes`] would return changes.
    pub fn has_changes(&self) -> bool {
        self.changed.as_ref().is_none_or(|changed| !changed.is_empty())
    }

    fn note_change(&mut self, session: &SessionId) {
        if let Some(changed) = &mut self.changed {
            changed.insert(session.clone());
        }
    }

    fn remove(&mut self, session: &SessionId) {
        self.sessions.remove(session);
        self.note_change(session);
    }

    fn known_mut(&mut self, session: &SessionId) -> &mut Known {
        if !self.sessions.contains_key(session) {
            self.make_room();
        }
        self.note_change(session);
        Arc::make_mut(self.sessions.get_or_default(session.clone()))
    }

    fn make_room(&mut self) {
        while self.sessions.len() >= SESSIONS_MAX {
            let Some((silent, _)) = self.sessions.pop_least(|known| known.heard_at) else { return };
            self.note_change(&silent);
        }
    }
}

/// Prefix of the types of such events.
const PREFIX: &str = "fs.file.";
/// Most kept changes; a session is notified of an older one even if it has that content.
const CHANGES_MAX: usize = 1_024;

/// The newest changes, oldest first.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Published(VecDeque<Change>);

#[derive(Debug, Serialize, Deserialize)]
struct Change {
    seq: Seq,
    /// Absolute.
    path: Arc<str>,
    /// The file's content after the change; `None` if it was deleted.
    content: Option<ContentHash>,
}

impl Published {
    /// Records a file change from aside's own events. A change without its content is not kept.
    pub(super) fn note(&mut self, seq: Seq, event: &EventRef<'_>) {
        #[derive(Deserialize)]
        struct Payload {
            path: String,
            kind: String,
            content: Option<ContentHash>,
        }
        let Some(folder) = event.workspace else { return };
        if !event.provenance.is_of_daemon() || !event.event_type.starts_with(PREFIX) {
            return;
        }
        let Ok(Payload { path, kind, content }) = serde_json::from_str(event.payload) else { return };
        if content.is_none() && kind != "deleted" {
            return;
        }
        let path =
            if path.starts_with('/') { path } else { format!("{}/{path}", folder.trim_end_matches('/')) };
        self.0.push_back(Change { seq, path: path.into(), content });
        self.0.drain(..self.0.len().saturating_sub(CHANGES_MAX));
    }

    /// Whether `known` has each file of these events in the state of the newest event about it.
    fn are_known(&self, events: &[Seq], known: &files::Known) -> bool {
        let is_known = |seq: &Seq| {
            let found = self.0.binary_search_by_key(seq, |change| change.seq).ok();
            let path = found.and_then(|place| self.0.get(place)).map(|change| &change.path);
            let newest = path.and_then(|path| self.0.iter().rfind(|change| change.path == *path));
            newest.is_some_and(|change| known.has(&change.path, change.content))
        };
        !self.0.is_empty() && !events.is_empty() && events.iter().all(is_known)
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::event::{Event, Payload, Provenance, Severity};

    fn noted(session: &str, count: usize) -> Event {
        let state = json!({ "present": { "print": "1:2:3:4:5" } });
        let file = json!({ "by": "read", "state": state });
        let files: serde_json::Map<_, _> = (0..count).map(|n| (format!("/w/{n}"), file.clone())).collect();
        Event {
            id: "1".into(),
            event_type: NOTED.parse().expect("valid"),
            source: "aside".into(),
            provenance: Provenance::Own,
            severity: Severity::Debug,
            timestamp: Timestamp::ZERO,
            payload: Payload::from(json!({ "files": files })),
            dedupe_key: None,
            session: Some(SessionId::new(session)),
            workspace: None,
            cause: None,
            deliver_after: None,
        }
    }

    #[test]
    fn the_total_file_bound_evicts_the_silent_session() {
        let mut memory = Memory::default();
        let known = |memory: &Memory, session: &str| {
            let view = memory.view(&SessionId::new(session), None, |_| true, Timestamp::ZERO);
            view.known.files.len()
        };
        memory.note(&noted("first", FILES_MAX / 2).as_ref(), Timestamp::ZERO);
        memory.note(&noted("second", FILES_MAX / 2).as_ref(), Timestamp::ZERO);
        assert_eq!(known(&memory, "first"), FILES_MAX / 2);
        let turn = Event { event_type: "agent.turn.start".parse().expect("valid"), ..noted("first", 0) };
        memory.note(&turn.as_ref(), Timestamp::from_millis(5));
        memory.note(&noted("third", 1).as_ref(), Timestamp::ZERO);
        assert_eq!(
            [known(&memory, "first"), known(&memory, "second"), known(&memory, "third")],
            [FILES_MAX / 2, 0, 1]
        );
    }

    #[test]
    fn invalid_notes_are_ignored_and_sessions_bounded() {
        let mut memory = Memory::default();
        let wrong = Event { payload: Payload::from(json!({ "files": 7 })), ..noted("s", 0) };
        memory.note(&wrong.as_ref(), Timestamp::ZERO);
        let foreign = Event { provenance: Provenance::Harness, ..noted("s", 1) };
        memory.note(&foreign.as_ref(), Timestamp::ZERO);
        assert!(memory.sessions.is_empty());
        for number in 0..=SESSIONS_MAX {
            memory.note(&noted(&number.to_string(), 1).as_ref(), Timestamp::ZERO);
        }
        assert_eq!(memory.sessions.len(), SESSIONS_MAX);
    }

    fn published(changes: &[(u64, Value)]) -> Published {
        let mut published = Published::default();
        for (seq, payload) in changes {
            let event = Event::own("fs.file.modified", "e", Severity::Info, payload.clone(), Timestamp::ZERO);
            let event = Event { workspace: Some("/w/".into()), ..event };
            published.note(Seq(*seq), &event.as_ref());
        }
        published
    }

    fn change(path: &str, content: u64) -> Value {
        json!({ "path": path, "kind": "modified", "content": format!("{content:016x}") })
    }

    /// A session that knows `/w/a` with the content 7, and `/w/b` as deleted.
    fn known() -> files::Known {
        let present = json!({ "print": "1:2:3:4:5", "hash": format!("{:016x}", 7) });
        let file = |state: Value| json!({ "by": "written", "state": state });
        let files = json!({ "/w/a": file(json!({ "present": present })), "/w/b": file(json!("absent")) });
        serde_json::from_value(json!({ "files": files })).expect("what a session knows")
    }

    #[test]
    fn a_session_knows_changes_by_their_newest_content() {
        let deleted = json!({ "path": "/w/b", "kind": "deleted" });
        for (what, changes, asked, expected) in [
            ("its own content", vec![(3, change("a", 7))], &[3][..], true),
            ("another content", vec![(3, change("a", 8))], &[3], false),
            ("an unknown file", vec![(3, change("c", 7))], &[3], false),
            ("gone", vec![(3, deleted.clone())], &[3], true),
            ("an earlier content of its own", vec![(3, change("a", 8)), (5, change("a", 7))], &[3], true),
            ("its own and then another", vec![(3, change("a", 7)), (5, change("a", 8))], &[3], false),
            ("one of two", vec![(3, change("a", 7)), (5, change("c", 7))], &[3, 5], false),
            ("without a content", vec![(3, json!({ "path": "a", "kind": "modified" }))], &[3], false),
            ("another event", vec![(3, change("a", 7))], &[4], false),
            ("nothing", vec![(3, change("a", 7))], &[], false),
        ] {
            let asked: Vec<Seq> = asked.iter().map(|seq| Seq(*seq)).collect();
            assert_eq!(published(&changes).are_known(&asked, &known()), expected, "{what}");
        }
    }

    #[test]
    fn only_own_changes_are_noted_within_the_bound() {
        let mut published = published(&[(1, change("a", 7))]);
        let mut event = Event::own("fs.file.modified", "e", Severity::Info, json!({}), Timestamp::ZERO);
        event.workspace = Some("/w".into());
        event.provenance = Provenance::Local;
        event.payload = Payload::from(change("a", 7));
        published.note(Seq(2), &event.as_ref());
        assert!(!published.are_known(&[Seq(2)], &known()));
        event.provenance = Provenance::Quoted;
        (3..=CHANGES_MAX as u64 + 2).for_each(|seq| published.note(Seq(seq), &event.as_ref()));
        assert!(!published.are_known(&[Seq(1)], &known()) && published.are_known(&[Seq(3)], &known()));
    }
}
