//! The running looks of probes, the input of each, the calls that are not covered by a look yet, and
//! the facts of sessions, as published by the event loop, so that a look needs no query.
//!
//! The engine's fold is the source of truth about sessions. [`Knowledge`] lags by the record that the
//! event loop works on. A session's own exchange is answered after its changes are published.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicUsize},
    time::Duration,
};

use dashmap::{DashMap, DashSet};
use engine::{
    call::Call,
    event::{Event, SessionId},
    notification::InjectionPoint,
    probe::{
        self, Facts, Known, Moment, OtherSession, Settings, View,
        late::{self, Answers, Caught, Later},
        memory::Changes,
    },
    sorted::SortedMap,
    transcript::{Gauges, Reader, Transcript},
};
use journal::time::Timestamp;

use crate::{
    api::{
        facts::{Contents, Within},
        mounts::Mounts,
    },
    daemon::program::{Programs, Workspaces},
};

/// Most calls of a session that are kept for its next look; the oldest are evicted.
const MISSED_CALLS_MAX: usize = 64;
/// Most sessions with kept calls; beyond it all are evicted.
const MISSED_SESSIONS_MAX: usize = 256;

/// Most sessions with a finished look, each with the answers of one look, mostly some kilobytes;
/// beyond it all are evicted.
const LATE_SESSIONS_MAX: usize = 64;
/// Most folders that are known as slow.
const SLOW_FOLDERS_MAX: usize = 64;

/// The running looks, and their cached facts of files.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// Facts of sessions.
    pub(super) knowledge: Knowledge,
    pub(super) contents: Arc<Contents>,
    /// The programs of the machine.
    pub(super) programs: Arc<Programs>,
    pub(super) mounts: Mounts,
    pub(super) looking: DashSet<SessionId>,
    pub(super) count: AtomicUsize,
    /// Calls of exchanges whose look did not run or had no result in time, kept for the next look.
    missed: DashMap<SessionId, Missed>,
    /// Looks that finished after their exchange; at most one per session.
    late: DashMap<SessionId, LateLook>,
    /// The folders with such looks.
    slow: Mutex<SortedMap<Arc<str>, Slow>>,
}

/// Looks in a folder that finished after their exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slow {
    /// Number of them.
    pub(super) count: u64,
    /// Duration of the last one.
    pub(super) took: Duration,
}

impl Looks {
    pub(crate) fn new(programs: Arc<Programs>) -> Self {
        let knowledge = Knowledge::new(Arc::clone(&programs.workspaces));
        Self { knowledge, programs, ..Self::default() }
    }

    pub(crate) const fn knowledge(&self) -> &Knowledge {
        &self.knowledge
    }

    /// Keeps a look that finished after its exchange.
    pub(super) fn keep_late(&self, look: LateLook) {
        if let Some(folder) = &look.input.workspace {
            let mut slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
            if slow.len() >= SLOW_FOLDERS_MAX && !slow.contains_key(folder) {
                slow.pop_first();
            }
            let slow = slow.get_or_default(Arc::clone(folder));
            *slow = Slow { count: slow.count + 1, took: look.took };
        }
        if self.late.len() >= LATE_SESSIONS_MAX {
            self.late.clear();
        }
        self.late.insert(look.input.session.clone(), look);
    }

    /// Takes the finished look of a session, if there is one.
    pub(super) fn take_late(&self, session: &SessionId) -> Option<LateLook> {
        self.late.remove(session).map(|(_, look)| look)
    }

    /// The folders whose looks finished after their exchanges, the slowest first.
    pub(super) fn slow_folders(&self) -> Vec<(Arc<str>, Slow)> {
        let slow = self.slow.lock().unwrap_or_else(PoisonError::into_inner);
        let mut slow: Vec<_> = slow.iter().map(|(folder, slow)| (Arc::clone(folder), *slow)).collect();
        slow.sort_by_key(|(_, slow)| std::cmp::Reverse(slow.took));
        slow
    }

    /// Whether calls of a session wait for its next look.
    pub(super) fn has_missed(&self, session: &SessionId) -> bool {
        self.missed.contains_key(session)
    }

    /// Takes the calls that a look at `point` has to cover: those without a look yet, with `calls`
    /// appended. A look before a tool covers only the call that begins.
    pub(super) fn take_missed(&self, session: &SessionId, point: InjectionPoint, calls: Vec<Call>) -> Missed {
        if point == InjectionPoint::BeforeTool {
            return Missed { calls, ..Missed::default() };
        }
        let mut missed = self.missed.remove(session).map(|(_, missed)| missed).unwrap_or_default();
        missed.calls.extend(calls);
        missed
    }

    /// Keeps the calls of a look at `point` for the session's next one. Before a tool none is kept:
    /// the exchange after the call reports it again.
    pub(super) fn keep_missed(&self, session: &SessionId, point: InjectionPoint, mut missed: Missed) {
        let is_empty = missed.calls.is_empty() && missed.prompt_after.is_none();
        if is_empty || point == InjectionPoint::BeforeTool {
            return;
        }
        if self.missed.len() >= MISSED_SESSIONS_MAX {
            self.missed.clear();
        }
        missed.calls.drain(..missed.calls.len().saturating_sub(MISSED_CALLS_MAX));
        // Texts of files are too large to be kept.
        missed.calls.iter_mut().flat_map(|call| &mut call.touched).for_each(|touch| touch.written = None);
        self.missed.insert(session.clone(), missed);
    }
}

/// Calls, and a prompt, that are not covered by a look yet.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Missed {
    /// Earliest time at which the calls may have run.
    pub(super) since: Option<Timestamp>,
    /// Last activity of the session before the prompt.
    pub(super) prompt_after: Option<Timestamp>,
    /// Oldest first.
    pub(super) calls: Vec<Call>,
}

/// The input of a look, except for the state of the machine.
#[derive(Debug)]
pub(super) struct LookInput {
    pub(super) session: SessionId,
    pub(super) point: InjectionPoint,
    pub(super) now: Timestamp,
    pub(super) workspace: Option<Arc<str>>,
    pub(super) view: View,
    pub(super) settings: Arc<Settings>,
    pub(super) calls_since: Timestamp,
    pub(super) unseen: Missed,
    pub(super) transcript: Option<(String, &'static Reader)>,
    pub(super) gauges: Gauges,
    pub(super) has_new_context: bool,
    pub(super) utc_offset: i32,
    pub(super) temporary: String,
    pub(super) caches: Option<String>,
    /// The only folder that it may ask about; `None` for all of the machine.
    pub(super) limited_to: Option<Arc<str>>,
}

/// A look that has finished after its exchange, for the next one.
#[derive(Debug)]
pub(super) struct LateLook {
    pub(super) input: Arc<LookInput>,
    pub(super) answers: Answers,
    pub(super) took: Duration,
}

impl LookInput {
    /// The events that the probes find.
    pub(super) fn run(&self, facts: &dyn Facts) -> Vec<Event> {
        let others = self.view.other_sessions();
        let look =
            |facts: &dyn Facts| probe::look(&self.view.known, &self.moment(&others), &self.settings, facts);
        match &self.limited_to {
            Some(folder) => look(&Within::new(facts, Path::new(&**folder))),
            None => look(facts),
        }
    }

    fn moment<'a>(&'a self, others: &'a [OtherSession<'a>]) -> Moment<'a> {
        let transcript = self.transcript.as_ref();
        Moment {
            workspace: self.workspace.as_deref(),
            calls: &self.unseen.calls,
            calls_since: self.calls_since,
            prompt_after: self.unseen.prompt_after,
            transcript: transcript.map(|(path, reader)| Transcript { path, reader }),
            gauge: self.gauges.context,
            rate_limits: &self.gauges.rate_limits,
            has_new_context: self.has_new_context,
            limits: &self.view.limits,
            temporary: &self.temporary,
            caches: self.caches.as_deref(),
            others,
            utc_offset: self.utc_offset,
            ..Moment::new(&self.session, self.point, self.now)
        }
    }

    /// The events of an earlier look of the session that has finished since. This look then begins
    /// with what they note.
    pub(super) fn catch_up(&mut self, late: &LateLook) -> Vec<Event> {
        let LateLook { input, answers, took: _ } = late;
        let others = input.view.other_sessions();
        let later = Later { calls: &self.unseen.calls, since: self.calls_since };
        let known = &self.view.known;
        let Caught { events, left } =
            late::catch_up(known, &input.moment(&others), &later, &input.settings, answers);
        self.view.known = Arc::new(known.noting(&events));
        self.unseen.calls.splice(0..0, left);
        events
    }
}

/// A copy of the facts of sessions.
#[derive(Debug, Default)]
pub struct Knowledge {
    sessions: DashMap<SessionId, Arc<Known>>,
    /// The open sessions, with the folders that their harnesses named.
    open: DashMap<SessionId, Option<Arc<str>>>,
    shared: RwLock<Shared>,
    /// The folders of sessions, whose programs are not run.
    workspaces: Arc<Workspaces>,
}

/// Facts shared by all sessions.
#[derive(Debug, Default, Clone)]
struct Shared {
    limits: Arc<SortedMap<String, u64>>,
    settings: Arc<Settings>,
}

impl Knowledge {
    /// An empty copy; the folders of sessions are noted in `workspaces`.
    pub fn new(workspaces: Arc<Workspaces>) -> Self {
        Self { workspaces, ..Self::default() }
    }

    /// Applies changes.
    pub fn publish(&self, changes: Changes) {
        let Changes { sessions, limits } = changes;
        for (session, known) in sessions {
            match known {
                Some(known) => {
                    known.folders().for_each(|folder| self.workspaces.note(folder));
                    self.sessions.insert(session, known);
                }
                None => drop(self.sessions.remove(&session)),
            }
        }
        self.shared.write().unwrap_or_else(PoisonError::into_inner).limits = limits;
    }

    /// Replaces the settings.
    pub fn publish_settings(&self, settings: Arc<Settings>) {
        self.shared.write().unwrap_or_else(PoisonError::into_inner).settings = settings;
    }

    /// Notes that a session is open, in this folder.
    pub fn publish_open(&self, session: SessionId, workspace: Option<Arc<str>>) {
        self.open.insert(session, workspace);
    }

    /// The folder of an open session, if its harness named one.
    pub(crate) fn folder_of(&self, session: &SessionId) -> Option<Arc<str>> {
        self.open.get(session)?.clone()
    }

    /// Whether anything is known of a session: facts, or a folder.
    pub(crate) fn knows(&self, session: &SessionId) -> bool {
        self.sessions.contains_key(session) || self.folder_of(session).is_some()
    }

    /// Notes that a session is closed.
    pub fn publish_closed(&self, session: &SessionId) {
        self.open.remove(session);
    }

    /// The facts for a look of `session`, which works in `workspace`, and the settings.
    pub(crate) fn view(
        &self,
        session: &SessionId,
        workspace: Option<&str>,
        now: Timestamp,
    ) -> (View, Arc<Settings>) {
        let Shared { limits, settings } = self.shared.read().unwrap_or_else(PoisonError::into_inner).clone();
        let known = self.sessions.get(session).map(|known| Arc::clone(&known)).unwrap_or_default();
        let mut view = View { known, others: Vec::new(), limits };
        // Without a folder no other session is near; each part of the map has a lock.
        for entry in workspace.iter().flat_map(|_| &self.sessions) {
            let is_open = |id: &SessionId| self.open.contains_key(id);
            view.add(session, workspace, entry.pair(), is_open, now);
        }
        view.order();
        (view, settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::notification::InjectionPoint::{AfterTool, BeforeTool};
    use journal::time::Timestamp;

    #[test]
    fn missed_calls_reach_the_next_look_within_bounds() {
        let looks = Looks::default();
        let (session, at) = (SessionId::new("s"), Timestamp::from_millis);
        let call = |number: usize| Call { command: Some(number.to_string()), ..Call::default() };
        let missed = |since: u64, calls: &[usize]| Missed {
            since: Some(at(since)),
            calls: calls.iter().map(|number| call(*number)).collect(),
            ..Missed::default()
        };
        let fresh = |number: usize| Missed { calls: vec![call(number)], ..Missed::default() };
        let take = |calls| looks.take_missed(&session, AfterTool, calls);
        let keep = |missed| looks.keep_missed(&session, AfterTool, missed);
        assert_eq!(take(vec![call(1)]), fresh(1));
        keep(missed(5, &[1]));
        assert_eq!(take(vec![call(2)]), missed(5, &[1, 2]));
        keep(missed(5, &[]));
        assert_eq!(take(vec![call(3)]), fresh(3), "nothing was missed");
        let prompt = Missed { prompt_after: Some(at(3)), ..missed(5, &[]) };
        keep(prompt.clone());
        assert_eq!(take(Vec::new()), prompt);
        keep(missed(5, &(0..100).collect::<Vec<_>>()));
        let kept = take(Vec::new()).calls;
        assert_eq!((kept.len(), kept.last()), (MISSED_CALLS_MAX, Some(&call(99))));
        for number in 0..MISSED_SESSIONS_MAX + 10 {
            looks.keep_missed(&SessionId::new(&number.to_string()), AfterTool, missed(5, &[1]));
        }
        assert!(looks.missed.len() <= MISSED_SESSIONS_MAX);
    }

    #[test]
    fn before_tool_look_takes_only_the_starting_call() {
        let (looks, session) = (Looks::default(), SessionId::new("s"));
        let missed = |command: &str| Missed {
            calls: vec![Call { command: Some(command.into()), ..Call::default() }],
            ..Missed::default()
        };
        looks.keep_missed(&session, AfterTool, missed("ended"));
        let begins = looks.take_missed(&session, BeforeTool, missed("begins").calls);
        assert_eq!(begins, missed("begins"));
        looks.keep_missed(&session, BeforeTool, begins);
        assert_eq!(looks.take_missed(&session, AfterTool, Vec::new()), missed("ended"));
    }

    use engine::{
        event::{Event, Payload, Provenance, Severity},
        fold::{Effects, Fold},
        probe::Memory,
        session::Succession,
    };

    fn turn_of(session: &str, at: u64) -> Event {
        Event {
            id: "1".into(),
            event_type: "agent.turn.start".parse().expect("valid"),
            source: "claude-code".into(),
            provenance: Provenance::Harness,
            severity: Severity::Debug,
            timestamp: Timestamp::from_millis(at),
            payload: Payload::from(serde_json::json!({})),
            dedupe_key: None,
            session: Some(SessionId::new(session)),
            workspace: Some("/w".into()),
            cause: None,
            deliver_after: None,
        }
    }

    #[test]
    fn the_copy_gives_what_the_fold_gives() {
        let (mut memory, knowledge) = (Memory::default(), Knowledge::default());
        let now = Timestamp::from_millis(10_000);
        let names = ["a", "b", "c", "d"];
        let is_open = |id: &SessionId| id.as_str() < "c";
        for name in names {
            let id = SessionId::new(name);
            knowledge.publish_open(id.clone(), None);
            if !is_open(&id) {
                knowledge.publish_closed(&id);
            }
        }
        for (name, at) in [("a", 1), ("b", 2), ("a", 3), ("c", 3), ("d", 3)] {
            memory.note(&turn_of(name, at).as_ref(), Timestamp::from_millis(at));
            assert!(memory.has_changes());
            knowledge.publish(memory.take_changes());
            assert!(!memory.has_changes());
        }
        let [from, to] = ["a", "copy"].map(SessionId::new);
        memory.follow(&Succession::Copied { from, to }, &mut Effects::default());
        knowledge.publish(memory.take_changes());
        for name in names.into_iter().chain(["copy", "unknown"]) {
            let session = SessionId::new(name);
            let (copy, _) = knowledge.view(&session, Some("/w"), now);
            let fold = memory.view(&session, Some("/w"), is_open, now);
            assert_eq!(format!("{copy:?}"), format!("{fold:?}"), "{name}");
        }
    }
}
