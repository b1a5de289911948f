//! The fold of all open watches.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{ALL_MAX, CANCELLED, CONDITIONS_MAX, Condition, FAILED, MET, Met, Part, SET, Step, Watch};
use journal::time::Timestamp;

use crate::{
    event::{Event, EventRef, Pattern, Provenance, Seq, SessionId, catalogue::ends_checks},
    exchange::Exchange,
    fold::{Dispatched, Effects, Fold},
    hold::is_tool,
    ledger::Reason,
    session::Succession,
    sorted::SortedMap,
};

/// The `reason` of an end because the branch is at another commit.
const SUPERSEDED: &str = "superseded";
/// The type of the events for the end of a follow whose checks have not ended.
const FOLLOW_ENDED: &str = "ci.follow.ended";
/// The `reason` of such an end that answers the question about the checks.
const NO_CHECKS: &str = "no_checks";
/// Least digits of a commit's id that refer to it; fewer can be the name of a branch.
const COMMIT_DIGITS_MIN: usize = 7;
/// Prefix of the types of these events.
const PREFIX: &str = "watch.";
/// Most kept events that ended a watch, until their notifications are created.
const SAID_MAX: usize = 256;
const TURN_END: &str = "agent.turn.end";

/// The payload of a [`CANCELLED`] or [`FAILED`] event, with the fields that the fold uses.
#[derive(Deserialize)]
struct EndedOutside {
    watch: Arc<str>,
}

/// The end of a commit's checks.
#[derive(Deserialize)]
struct ChecksEnded {
    branch: Option<String>,
    commit: Option<String>,
    /// The requested ref, if its commit is not known.
    reference: Option<String>,
    reason: Option<String>,
    summary: String,
}

/// What the condition of a watch refers to.
#[derive(Clone, Copy)]
enum Meant<'r> {
    /// The last push of its session or folder, or its checkout.
    LastPush,
    /// A branch, or the beginning of a commit's id.
    Ref(&'r str),
}

impl<'r> Meant<'r> {
    fn new(reference: Option<&'r str>) -> Self {
        reference.filter(|reference| *reference != "HEAD").map_or(Self::LastPush, Self::Ref)
    }
}

impl ChecksEnded {
    /// Reads it from an event; `None` for other events.
    fn read(event: &EventRef<'_>) -> Option<Self> {
        ends_checks(event).then(|| serde_json::from_str(event.payload).ok())?
    }

    /// The change of a condition of `watch`; `None` if the condition waits for other checks.
    ///
    /// `goes_on`: whether checks of a push of the same owner are followed that is not older.
    fn step(&self, event: &EventRef<'_>, watch: &Watch, meant: Meant<'_>, goes_on: bool) -> Option<Step> {
        // The branch has another commit now, whose checks count; nobody asks for these any more.
        let is_superseded = self.reason.as_deref() == Some(SUPERSEDED);
        let is_it = match meant {
            Meant::LastPush => watch.owns(event) && !is_superseded && !goes_on,
            Meant::Ref(reference) => {
                let is_of = if is_superseded { self.is_commit(reference) } else { self.is_of(reference) };
                is_of && watch.is_concerned_by(event)
            }
        };
        if !is_it {
            return None;
        }
        let is_answer = event.event_type != FOLLOW_ENDED || self.reason.as_deref() == Some(NO_CHECKS);
        let summary = self.summary.clone();
        Some(if is_answer { Step::Met(summary) } else { Step::Failed(summary) })
    }

    /// Whether `reference` refers to the checks by their branch or commit.
    fn is_of(&self, reference: &str) -> bool {
        let names = [&self.branch, &self.reference];
        names.iter().any(|name| name.as_deref() == Some(reference)) || self.is_commit(reference)
    }

    /// Whether `reference` is the id of the commit; both may be prefixes.
    fn is_commit(&self, reference: &str) -> bool {
        let is_it = |commit: &str| commit.starts_with(reference) || reference.starts_with(commit);
        reference.len() >= COMMIT_DIGITS_MIN && self.commit.as_deref().is_some_and(is_it)
    }
}

/// The change of a condition when a turn of its session ends.
fn turn_step(condition: &Condition) -> Option<Step> {
    let Condition::Turns { left } = condition else { return None };
    Some(match left {
        0 | 1 => Step::Met("the turns have ended".to_owned()),
        left => Step::TurnsLeft(left - 1),
    })
}

fn fired(done: &[Arc<Watch>], provenance: Provenance, now: Timestamp) -> Vec<Event> {
    done.iter().map(|watch| watch.fired(provenance, now)).collect()
}

/// The end of a watch with its event.
type Ended = (Arc<Watch>, Event);

fn events(ended: Vec<Ended>) -> Vec<Event> {
    ended.into_iter().map(|(_, event)| event).collect()
}

/// All open watches.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Watches {
    open: SortedMap<Arc<str>, Arc<Watch>>,
    /// The newest events that ended a watch of a session, oldest first.
    said: VecDeque<(SessionId, Seq)>,
    /// The earliest of the deadlines.
    #[serde(skip)]
    deadline: Option<Timestamp>,
    /// Whether the watches changed since the last [`Watches::take_changes`].
    #[serde(skip)]
    has_changed: bool,
}

/// Their state in a snapshot.
#[derive(Default, Deserialize)]
struct Stored {
    open: SortedMap<Arc<str>, Arc<Watch>>,
    said: VecDeque<(SessionId, Seq)>,
}

impl From<Stored> for Watches {
    fn from(Stored { open, said }: Stored) -> Self {
        let mut watches = Self { open, said, deadline: None, has_changed: true };
        watches.note_change();
        watches
    }
}

impl Watches {
    /// The open watch with this id.
    pub fn get(&self, id: &str) -> Option<&Arc<Watch>> {
        self.open.get(id)
    }

    /// Whether no watch is open.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The open ones, sorted by id.
    pub fn open(&self) -> impl Iterator<Item = &Arc<Watch>> {
        self.open.values()
    }

    /// The open ones, if they changed since the last call.
    pub fn take_changes(&mut self) -> Option<Arc<[Arc<Watch>]>> {
        std::mem::take(&mut self.has_changed).then(|| self.open.values().cloned().collect())
    }

    fn take_own(&mut self, event: &EventRef<'_>, now: Timestamp) -> Vec<Event> {
        match event.event_type {
            SET => self.set(event),
            MET => {
                let Ok(met) = serde_json::from_str::<Met>(event.payload) else { return Vec::new() };
                let Some(watch) = self.open.get_mut(&met.watch) else { return Vec::new() };
                if let Some(part) = Arc::make_mut(watch).parts.get_mut(met.condition) {
                    part.met = Some(met.state);
                }
                return fired(&self.take_done(), Provenance::Own, now);
            }
            CANCELLED | FAILED => {
                if let Ok(EndedOutside { watch }) = serde_json::from_str(event.payload)
                    && self.open.remove(&watch).is_some()
                {
                    self.note_change();
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn set(&mut self, event: &EventRef<'_>) {
        let Ok(watch) = serde_json::from_str::<Watch>(event.payload) else { return };
        let (session, workspace) = (event.session.map(SessionId::new), event.workspace.map(Into::into));
        // The publisher enforces the limits too; this check bounds a forged journal.
        if self.open.len() < ALL_MAX && watch.parts.len() <= CONDITIONS_MAX {
            self.open.insert(Arc::clone(&watch.id), Arc::new(Watch { session, workspace, ..watch }));
            self.note_change();
        }
    }

    /// Applies the steps that `step` returns for unmet conditions; returns the watches that they
    /// end.
    fn apply(
        &mut self,
        step: impl Fn(&Condition, &Watch) -> Option<Step>,
        provenance: Provenance,
        now: Timestamp,
    ) -> Vec<Ended> {
        let mut steps = Vec::new();
        for (id, watch) in &self.open {
            let open = watch.parts.iter().enumerate().filter(|(_, part)| part.met.is_none());
            let found = open.filter_map(|(index, part)| Some((index, step(&part.condition, watch)?)));
            steps.extend(found.map(|(index, step)| (Arc::clone(id), index, step)));
        }
        if steps.is_empty() {
            return Vec::new();
        }
        let mut failed = Vec::new();
        for (id, index, step) in steps {
            let Some(watch) = self.open.get_mut(&id) else { continue };
            let Some(part) = Arc::make_mut(watch).parts.get_mut(index) else { continue };
            match step {
                Step::Met(state) => part.met = Some(state),
                Step::TurnsLeft(left) => part.condition = Condition::Turns { left },
                Step::Failed(error) => failed.push((id, index, error)),
            }
        }
        // A watch that is done does not fail.
        failed.retain(|(id, _, _)| self.open.get(id).is_some_and(|watch| !watch.is_done()));
        let failed = failed.into_iter().filter_map(|(id, index, error)| {
            let watch = self.open.remove(&id)?;
            let event = watch.failed_event(index, &error, now);
            Some((watch, Event { provenance, ..event }))
        });
        let failed: Vec<Ended> = failed.collect();
        let fired = |watch: Arc<Watch>| {
            let event = watch.fired(provenance, now);
            (watch, event)
        };
        self.take_done().into_iter().map(fired).chain(failed).collect()
    }

    /// Removes the watches with enough met conditions, after a change of a watch.
    fn take_done(&mut self) -> Vec<Arc<Watch>> {
        let done = self.take(|watch| watch.is_done());
        self.note_change();
        done
    }

    /// Removes watches; the caller notes the change.
    fn take(&mut self, is_wanted: impl Fn(&Watch) -> bool) -> Vec<Arc<Watch>> {
        let wanted = self.open.iter().filter(|(_, watch)| is_wanted(watch));
        let wanted: Vec<Arc<str>> = wanted.map(|(id, _)| Arc::clone(id)).collect();
        wanted.iter().filter_map(|id| self.open.remove(id)).collect()
    }

    /// Whether a watch waits for an idle session.
    pub fn waits_for_idle(&self) -> bool {
        let mut parts = self.open.values().flat_map(|watch| &watch.parts);
        parts.any(|part| matches!(part.condition, Condition::Idle { .. }) && part.met.is_none())
    }

    /// Meets conditions on idle sessions; `is_idle` returns whether a session is idle.
    pub fn note_idle(&mut self, is_idle: impl Fn(&SessionId) -> bool, now: Timestamp, to: &mut Effects) {
        let step = |condition: &Condition, _: &Watch| {
            let Condition::Idle { session } = condition else { return None };
            is_idle(session).then(|| Step::Met("no turn is under way".to_owned()))
        };
        to.publish(events(self.apply(step, Provenance::Own, now)));
    }

    fn change_owner(&mut self, session: &SessionId, change: impl Fn(&Watch) -> Option<Watch>) {
        let own = self.take(|watch| watch.session.as_ref() == Some(session));
        let changed = own.iter().filter_map(|watch| change(watch));
        self.open.extend(changed.map(|watch| (Arc::clone(&watch.id), Arc::new(watch))));
        if !own.is_empty() {
            self.note_change();
        }
    }

    fn note_change(&mut self) {
        self.has_changed = true;
        self.deadline = self.open.values().map(|watch| watch.deadline()).min();
    }
}

impl Fold for Watches {
    type Settings = ();

    /// Shape: an end that an untrusted event causes is untrusted too, so it wakes no session.
    fn observe(&mut self, dispatched: &Dispatched<'_>, (): &(), to: &mut Effects) -> bool {
        let Dispatched { seq, event, trust, checks_go_on, used_context, now } = *dispatched;
        let is_own = event.is_own() && event.event_type.starts_with(PREFIX);
        if self.open.is_empty() && !(is_own && event.event_type == SET) {
            return false;
        }
        if is_own {
            to.publish(self.take_own(event, now));
            return false;
        }
        let of_session = event.session.filter(|_| trust.is_trusted());
        let ends_turn = event.event_type == TURN_END;
        let checks = ChecksEnded::read(event);
        let step = |condition: &Condition, watch: &Watch| {
            if let Condition::Ci { reference, .. } = condition {
                return checks.as_ref()?.step(event, watch, Meant::new(reference.as_deref()), checks_go_on);
            }
            if let Condition::Event { pattern } = condition {
                let pattern = pattern.parse::<Pattern>().ok()?;
                let is_meant = pattern.matches_text(event.event_type) && watch.is_concerned_by(event);
                return is_meant.then(|| Step::Met(format!("{} from {}", event.event_type, event.source)));
            }
            if of_session.is_none() || of_session != watch.session.as_ref().map(SessionId::as_str) {
                return None;
            }
            if let Condition::Context { share } = condition {
                let used = used_context.filter(|used| *used >= u64::from(*share))?;
                return Some(Step::Met(format!("{used}% of the context is used")));
            }
            ends_turn.then(|| turn_step(condition)).flatten()
        };
        let provenance = if trust.is_trusted() { Provenance::Own } else { Provenance::Quoted };
        let ended = self.apply(step, provenance, now);
        for (watch, _) in &ended {
            let is_of_events =
                |part: &Part| matches!(part.condition, Condition::Event { .. } | Condition::Ci { .. });
            let waits_for_events = watch.parts.iter().any(is_of_events);
            if let Some(session) = watch.session.clone().filter(|_| waits_for_events) {
                self.said.push_back((session, seq));
                self.said.drain(..self.said.len().saturating_sub(SAID_MAX));
            }
        }
        to.publish(events(ended));
        false
    }

    fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn handle_timeout(&mut self, now: Timestamp, to: &mut Effects) {
        let come = |condition: &Condition, _: &Watch| {
            let has_come = condition.time().is_some_and(|time| time <= now);
            has_come.then(|| Step::Met("the time has come".to_owned()))
        };
        let mut due = events(self.apply(come, Provenance::Own, now));
        let expired = self.take(|watch| watch.expires_at <= now);
        if !expired.is_empty() {
            self.note_change();
        }
        due.extend(expired.iter().map(|watch| watch.expired(now)));
        to.publish(due);
    }

    /// The watches of an ended session end; its reminders move to its folder.
    fn follow(&mut self, change: &Succession, _: &mut Effects) {
        match change {
            Succession::Continued { from, to } => {
                self.change_owner(from, |watch| Some(Watch { session: Some(to.clone()), ..watch.clone() }));
            }
            Succession::Copied { .. } => {}
            Succession::Ended { session, .. } => self.change_owner(session, |watch| {
                let is_of_session = watch.parts.iter().any(|part| part.condition.of_session().is_some());
                let stays = watch.is_reminder() && !is_of_session && watch.workspace.is_some();
                stays.then(|| Watch { session: None, ..watch.clone() })
            }),
        }
    }

    fn end_turn(&mut self, session: &SessionId, now: Timestamp, to: &mut Effects) {
        let step = |condition: &Condition, watch: &Watch| {
            let is_own = watch.session.as_ref() == Some(session);
            is_own.then(|| turn_step(condition)).flatten()
        };
        to.publish(events(self.apply(step, Provenance::Own, now)));
    }

    fn note_exchange(&mut self, exchange: &Exchange, (): &(), now: Timestamp, to: &mut Effects) {
        let Some(tool) = exchange.tool_that_ran() else { return };
        let step = |condition: &Condition, watch: &Watch| {
            let Condition::Tool { name } = condition else { return None };
            let is_it = watch.session.as_ref() == Some(&exchange.session) && is_tool(name, tool);
            is_it.then(|| Step::Met(format!("{tool} has run")))
        };
        to.publish(events(self.apply(step, Provenance::Own, now)));
    }

    /// The end of a watch covers the events.
    fn reason_against(&self, session: &SessionId, events: &[Seq]) -> Option<Reason> {
        let is_said = |seq: &Seq| self.said.iter().any(|(of, said)| of == session && said == seq);
        let is_covered = !self.said.is_empty() && !events.is_empty() && events.iter().all(is_said);
        is_covered.then_some(Reason::Watched)
    }
}
