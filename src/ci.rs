//! What becomes of what a session pushed: the checks of its commit, and what others write at its pull request.
//!
//! A push is noticed in what a harness reports of a call, and a *follow* of it begins; its state is a fold over events, so a restart forgets
//! none and says nothing twice. The fold decides when the next call of `gh` is due ([`Plan`]) and, of what was answered ([`Outcome`]), what
//! is to be published. Who makes the calls is `source::ci`. docs/design/ci.md says how the parts play together.

mod answer;
mod follow;
mod reply;
mod said;
mod schedule;
pub mod switch;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

pub use self::{
    answer::{Checks, Failure, Head, Outcome, Output, Pr, PrState, Remark},
    follow::{Follow, Found},
};
use self::{
    follow::failed_key,
    said::{End, hash},
    schedule::{CALLS_MAX, FOLLOWED_FOR, Gate, gap},
};
use crate::{
    call::push::{Push, pushes},
    event::{Event, EventRef, OWN_SOURCE, Seq, SessionId},
    time::Timestamp,
};

/// The type of the event that says which commit a follow is about; its payload is a [`Found`].
pub const FOLLOWED: &str = "ci.followed";
/// The type of the event that says what was answered; its payload is an [`Answered`].
pub const ANSWERED: &str = "ci.answered";
/// The source of these events; others change nothing.
pub const SOURCE: &str = OWN_SOURCE;
/// The type of the event in which a harness reports a call that succeeded.
const CALL_SUCCEEDED: &str = "tool.call.success";

/// Most open follows; beyond it the oldest ends.
const OPEN_MAX: usize = 32;
/// Most pull requests, and most branches, of which is remembered what was said of them.
const SEEN_MAX: usize = 64;
/// Most events that are remembered because they said something of checks.
const SAID_MAX: usize = 256;
/// Most failed checks that a result names.
const NAMES_MAX: usize = 3;
/// Most failed checks of a push that are said one by one.
const FAILED_MAX: usize = 50;

/// What was answered; the payload of an [`ANSWERED`] event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answered {
    /// Which follow.
    pub follow: Arc<str>,
    /// The number of the call, from 1.
    pub call: u32,
    /// What it says.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Up to when what was written at each pull request is known, by owner, repository and number.
type Seen = BTreeMap<String, String>;

/// What is to be done next, and what is left out of answers.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The open follows, in the order of their ids.
    pub follows: Vec<Arc<Follow>>,
    not_before: Timestamp,
    seen: Arc<Seen>,
}

/// What is to be done for a follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Git is to be asked which commit it is about.
    Find(Arc<Follow>),
    /// GitHub is to be asked, not before this time.
    Ask(Arc<Follow>, Timestamp),
}

impl Plan {
    /// What comes next; `is_done` says of which follows the answer to the next call is on its way already.
    pub fn next(&self, is_done: impl Fn(&Follow) -> bool) -> Option<Next> {
        let open = || self.follows.iter().filter(|follow| !is_done(follow));
        if let Some(follow) = open().find(|follow| follow.commit.is_none()) {
            return Some(Next::Find(Arc::clone(follow)));
        }
        let follow = open().min_by_key(|follow| follow.due)?;
        Some(Next::Ask(Arc::clone(follow), follow.due.max(self.not_before)))
    }

    /// The event that reports an answer; what was said before is left out of it.
    pub fn answered_event(&self, follow: &Follow, mut outcome: Outcome, now: Timestamp) -> Event {
        if let Outcome::Checks(checks) = &mut outcome {
            checks.failures.retain(|failure| !follow.failed.contains(&failed_key(failure)));
            let key = checks.pr.as_ref().map(|pr| follow.seen_key(&checks.repo, pr.number));
            match key.and_then(|key| self.seen.get(&key)) {
                Some(seen) => checks.remarks.retain(|remark| remark.at > *seen),
                // What was there before the push is known; only until when is of use.
                None => drop(checks.remarks.drain(..checks.remarks.len().saturating_sub(1))),
            }
        }
        follow.answered_event(outcome, now)
    }
}

/// Who wants to know of which commit.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// What names the follow, such as the id of a watch.
    pub by: &'a str,
    /// The session.
    pub session: Option<&'a SessionId>,
    /// The folder that it works in.
    pub workspace: Option<&'a str>,
    /// Where git and `gh` are to run.
    pub folder: &'a str,
    /// A branch or a commit; what is checked out if it is absent.
    pub reference: Option<&'a str>,
}

/// All open follows.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Follows {
    open: BTreeMap<Arc<str>, Arc<Follow>>,
    gate: Gate,
    seen: Arc<Seen>,
    /// The checks of each branch that were said to fail, by owner, repository and branch.
    failing: BTreeMap<String, BTreeSet<String>>,
    /// The newest events that said something of a session's checks, oldest first.
    said: VecDeque<(SessionId, Seq)>,
    /// The newest commits whose checks were followed to their end, by owner, oldest first.
    done: VecDeque<(u64, String)>,
    /// What the configuration says.
    #[serde(skip)]
    settings: switch::Settings,
    /// Whether [`Follows::take_plan`] would give another plan.
    #[serde(skip)]
    has_changed: bool,
}

impl Follows {
    /// Goes by other settings. Switched off, it ends all without a word.
    pub fn apply(&mut self, settings: &switch::Settings) {
        self.settings = settings.clone();
        if !settings.enabled {
            self.open.clear();
        }
        self.has_changed = true;
    }

    /// What is to be done next, if that may be something else than when this was asked before.
    pub fn take_plan(&mut self) -> Option<Plan> {
        let follows = || self.open.values().cloned().collect();
        let not_before = self.gate.not_before(self.settings.calls_per_hour);
        let plan =
            self.has_changed.then(|| Plan { follows: follows(), not_before, seen: Arc::clone(&self.seen) });
        self.has_changed = false;
        plan
    }

    /// Takes an event that is trusted or not, and gives what is to be published with it.
    pub fn observe(
        &mut self,
        seq: Seq,
        event: &EventRef<'_>,
        is_trusted: bool,
        now: Timestamp,
    ) -> Vec<Event> {
        if !is_trusted {
            return Vec::new();
        }
        if let Some(session) = event.session.filter(|_| said::is_of_checks(event)) {
            self.said.push_back((SessionId::new(session), seq));
            self.said.drain(..self.said.len().saturating_sub(SAID_MAX));
        }
        match (event.event_type, event.source) {
            (CALL_SUCCEEDED, _) => self.note_pushes(event, now),
            (FOLLOWED, SOURCE) => match serde_json::from_str(event.payload) {
                Ok(found) => self.note_found(found, now),
                Err(_) => Vec::new(),
            },
            (ANSWERED, SOURCE) => match serde_json::from_str(event.payload) {
                Ok(answered) => self.note_answer(answered, now),
                Err(_) => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// Begins to follow what a call pushed.
    fn note_pushes(&mut self, event: &EventRef<'_>, now: Timestamp) -> Vec<Event> {
        /// What a harness says of a call: what it pushed, or the command that it ran.
        #[derive(Deserialize)]
        struct Said {
            #[serde(default)]
            pushed: Vec<Push>,
            command: Option<String>,
            #[serde(default)]
            in_background: bool,
        }
        let may_push = event.payload.contains("push") || event.payload.contains("pr ");
        let Some(session) = event.session.filter(|_| may_push && self.settings.enabled) else {
            return Vec::new();
        };
        let Ok(Said { mut pushed, command, in_background }) = serde_json::from_str(event.payload) else {
            return Vec::new();
        };
        if let (Some(command), Some(folder)) = (command.filter(|_| !in_background), event.workspace) {
            pushed.extend(pushes(&command, folder));
        }
        let mut ended = Vec::new();
        let session = SessionId::new(session);
        for (number, push) in pushed.into_iter().enumerate() {
            let id = format!("ci{:016x}", hash(&[event.source, event.id, &number.to_string()]));
            ended.extend(self.open(
                Follow {
                    workspace: event.workspace.map(Into::into),
                    from: push.from,
                    branch: push.branch,
                    due: now + gap(Duration::ZERO),
                    is_asked: !self.settings.is_auto,
                    may_repeat: push.opens_pr,
                    ..Follow::new(id.into(), Some(session.clone()), &push.folder, now)
                },
                now,
            ));
        }
        ended
    }

    /// Begins to follow what somebody waits for, unless that is followed already.
    pub fn want(&mut self, wanted: &Wanted<'_>, now: Timestamp) -> Vec<Event> {
        let Wanted { by, session, workspace, folder, reference } = wanted;
        let is_own = |follow: &Follow| match session {
            Some(session) => follow.session.as_ref() == Some(*session),
            None => follow.workspace.as_deref() == *workspace,
        };
        let mut open = self.open.values();
        if !self.settings.enabled || open.any(|follow| is_own(follow) && follow.is_about(*reference)) {
            return Vec::new();
        }
        let is_name = |name: &&str| {
            *name != "HEAD" && !(name.len() >= 7 && name.bytes().all(|b| b.is_ascii_hexdigit()))
        };
        let follow = Follow {
            workspace: workspace.map(Into::into),
            from: reference.map(str::to_owned),
            branch: reference.filter(is_name).map(str::to_owned),
            is_asked: true,
            may_repeat: true,
            ..Follow::new(format!("ci{:016x}", hash(&[by])).into(), session.cloned(), folder, now)
        };
        self.open(follow, now)
    }

    fn open(&mut self, follow: Follow, now: Timestamp) -> Vec<Event> {
        self.open.insert(Arc::clone(&follow.id), Arc::new(follow));
        self.has_changed = true;
        let oldest =
            self.open.values().min_by_key(|follow| follow.began).map(|follow| Arc::clone(&follow.id));
        let oldest = oldest.filter(|_| self.open.len() > OPEN_MAX);
        oldest.and_then(|id| self.end(&id, End::StillPending, now)).into_iter().collect()
    }

    /// Ends a follow with one event.
    fn end(&mut self, id: &str, end: End, now: Timestamp) -> Option<Event> {
        let follow = self.open.remove(id)?;
        self.has_changed = true;
        if let (End::Run { .. }, Some(commit)) = (&end, &follow.commit) {
            self.done.push_back((follow.owner, commit.clone()));
            self.done.drain(..self.done.len().saturating_sub(SEEN_MAX));
        }
        Some(follow.ended_event(&end, now))
    }

    /// Learns which commit a follow is about; older ones of the same branch end.
    fn note_found(&mut self, found: Found, now: Timestamp) -> Vec<Event> {
        let Found { follow: id, commit, branch, top } = found;
        let Some(follow) = self.open.get(&id).filter(|follow| follow.commit.is_none()) else {
            return Vec::new();
        };
        let Some(commit) = commit else { return self.end(&id, End::NoCommit, now).into_iter().collect() };
        let branch = follow.branch.clone().or_else(|| branch.filter(|_| follow.from.is_none()));
        let found = Follow { commit: Some(commit), branch, top, ..(**follow).clone() };
        let is_same_branch = |other: &Follow| {
            other.id != id && other.top == found.top && other.branch == found.branch && other.branch.is_some()
        };
        let others: Vec<_> = self.open.values().filter(|other| is_same_branch(other)).cloned().collect();
        let is_known = |other: &Arc<Follow>| other.session == found.session && other.commit == found.commit;
        let is_done = |done: &(u64, String)| done.0 == found.owner && found.commit.as_ref() == Some(&done.1);
        if others.iter().any(is_known) || !found.may_repeat && self.done.iter().any(is_done) {
            // The one that goes on says it, or one that has ended did.
            self.open.remove(&id);
            self.has_changed = true;
            return Vec::new();
        }
        let older = others.iter().filter(|other| other.commit.is_some() && other.commit != found.commit);
        let ended: Vec<Event> = older.filter_map(|other| self.end(&other.id, End::Superseded, now)).collect();
        self.open.insert(id, Arc::new(found));
        self.has_changed = true;
        ended
    }

    /// Takes an answer; says what is new with it, and ends the follow or plans its next call.
    fn note_answer(&mut self, answered: Answered, now: Timestamp) -> Vec<Event> {
        let Answered { follow: id, call, outcome } = answered;
        self.gate.note_call(now);
        self.has_changed = true;
        if let Outcome::Limited { .. } = outcome {
            self.gate.hold(outcome.wait(), now);
        } else {
            self.gate.note_answer();
            if let Some(wait) = outcome.wait() {
                self.gate.wait(wait, now);
            }
        }
        let Some(mut follow) = self.open.get(&id).map(|follow| (**follow).clone()) else { return Vec::new() };
        follow.calls = call.max(follow.calls.saturating_add(1));
        let mut events = Vec::new();
        let end = if let Outcome::Checks(checks) = &outcome {
            (follow.failures, follow.refusals) = (0, 0);
            events.extend(self.news(&mut follow, checks, now));
            follow.end_with(checks, now)
        } else {
            follow.end_without(outcome)
        };
        let next = now + gap(now.since(follow.began));
        follow.due = next;
        let not_before = self.gate.not_before(self.settings.calls_per_hour);
        let is_over = follow.calls >= CALLS_MAX || next.max(not_before).since(follow.began) > FOLLOWED_FOR;
        let end = end.or_else(|| is_over.then_some(End::StillPending));
        if matches!(end, Some(End::Run { failed: 0, .. })) {
            let passed = self.failing.remove(&follow.branch_key()).into_iter().flatten();
            events.extend(passed.map(|check| follow.passed_event(&check, now)));
        }
        self.open.insert(Arc::clone(&id), Arc::new(follow));
        if let Some(end) = end {
            events.extend(self.end(&id, end, now));
        }
        events
    }

    /// What an answer says that was not said before.
    fn news(&mut self, follow: &mut Follow, checks: &Checks, now: Timestamp) -> Vec<Event> {
        follow.repo = Some(checks.repo.clone()).filter(|repo| !repo.is_empty()).or(follow.repo.take());
        follow.url = checks.url.clone().or(follow.url.take());
        follow.pr = checks.pr.as_ref().map(|pr| pr.number).or(follow.pr);
        follow.pending = checks.pending;
        let mut events = Vec::new();
        for failure in &checks.failures {
            if follow.failed.len() < FAILED_MAX && follow.failed.insert(failed_key(failure)) {
                events.push(follow.failed_event(failure, now));
                if follow.names.len() < NAMES_MAX && !follow.names.contains(&failure.check) {
                    follow.names.push(failure.check.clone());
                }
                self.note_failing(follow, &failure.check);
            }
        }
        let Some(pr) = &checks.pr else { return events };
        let key = follow.seen_key(&checks.repo, pr.number);
        let before = self.seen.get(&key).cloned();
        let newest = checks.remarks.iter().map(|remark| &remark.at).max();
        if let Some(before) = &before {
            let new = checks.remarks.iter().filter(|remark| remark.at > *before);
            events.extend(new.map(|remark| follow.remark_event(remark, now)));
        }
        if newest > before.as_ref() || before.is_none() {
            let seen = Arc::make_mut(&mut self.seen);
            seen.insert(key, newest.or(before.as_ref()).cloned().unwrap_or_default());
            while seen.len() > SEEN_MAX {
                let oldest = seen.iter().min_by(|one, other| one.1.cmp(other.1)).map(|(key, _)| key.clone());
                drop(oldest.and_then(|oldest| seen.remove(&oldest)));
            }
        }
        events
    }

    fn note_failing(&mut self, follow: &Follow, check: &str) {
        if self.failing.len() >= SEEN_MAX && !self.failing.contains_key(&follow.branch_key()) {
            self.failing.pop_first();
        }
        let failing = self.failing.entry(follow.branch_key()).or_default();
        if failing.len() < FAILED_MAX {
            failing.insert(check.to_owned());
        }
    }

    /// Whether all of `events` say how checks of what `session` pushed stand or ended.
    pub fn has_said(&self, session: &SessionId, events: &[Seq]) -> bool {
        let is_said = |seq: &Seq| self.said.iter().any(|(of, said)| of == session && said == seq);
        !self.said.is_empty() && !events.is_empty() && events.iter().all(is_said)
    }

    /// Whether something of `session` is remembered for [`Follows::has_said`].
    pub fn has_said_anything(&self, session: &SessionId) -> bool {
        self.said.iter().any(|(of, _)| of == session)
    }

    /// Lets the follows of one session be those of another one, which takes its place.
    pub fn hand_over(&mut self, from: &SessionId, to: &SessionId) {
        self.change_owner(from, Some(to));
    }

    /// Lets the follows of a session that has ended for good be its parent's, or those of the folder that it worked in.
    pub fn end_of(&mut self, session: &SessionId, parent: Option<&SessionId>) {
        self.change_owner(session, parent);
    }

    fn change_owner(&mut self, from: &SessionId, to: Option<&SessionId>) {
        for (session, _) in &mut self.said {
            if let Some(to) = to.filter(|_| session == from) {
                *session = to.clone();
            }
        }
        for follow in self.open.values_mut().filter(|follow| follow.session.as_ref() == Some(from)) {
            Arc::make_mut(follow).session = to.cloned();
            self.has_changed = true;
        }
    }
}
