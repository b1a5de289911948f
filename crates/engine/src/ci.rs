//! Follows the pushes of sessions: the checks of each commit, and reviews and comments of its pull
//! request.
//!
//! A push is found in a harness's report of a call, and starts a *follow*. The state of a follow is
//! a fold over events, so a restart loses none and reports nothing twice. The fold decides when the
//! next call of `gh` is due ([`Plan`]) and which events an answer ([`Outcome`]) leads to.
//! `capability::ci` makes the calls. docs/design/ci.md describes how the parts work together.

mod answer;
mod events;
mod follow;
mod remote;
mod reply;

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use self::follow::{CALLS_MAX, End, FOLLOWED_FOR, Gate, gap};
use crate::{
    call::push::{Push, pushes},
    event::{Event, EventRef, Provenance, Seq, SessionId},
    fold::{Dispatched, Effects, Fold},
    hash::hash_parts,
    session::Succession,
    settings::{Switch, settings},
    sorted::{SortedMap, SortedSet},
};

pub use self::{
    answer::{ANSWERED, Answered, Checks, FOLLOWED, Failure, Head, Outcome, Output, Pr, PrState, Remark},
    follow::{Follow, Found, commit_arguments, read_commit},
    remote::{Hosts, Remote, has_long_ids},
};

/// The type of the event for a harness's report of a successful call.
const CALL_SUCCEEDED: &str = "tool.call.success";

/// Most open follows; when exceeded, the oldest is ended.
const OPEN_MAX: usize = 32;
/// Most pull requests, and most branches, whose reported remarks and checks are kept.
const SEEN_MAX: usize = 64;
/// Most kept events about checks.
const SAID_MAX: usize = 256;
/// Most failed checks named in a result.
const NAMES_MAX: usize = 3;
/// Most failed checks of a push that are reported individually.
const FAILED_MAX: usize = 50;

/// Time of the last known remark at each pull request, by owner, repository and number.
type Seen = SortedMap<String, String>;

/// The next calls, and the filter for their answers.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The open follows, sorted by id.
    pub follows: Vec<Arc<Follow>>,
    not_before: Timestamp,
    seen: Arc<Seen>,
}

/// The next action of a follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Query git for its commit.
    Find(Arc<Follow>),
    /// Query GitHub, not before this time.
    Ask(Arc<Follow>, Timestamp),
}

impl Plan {
    /// The next action. `is_done` returns whether a follow's next answer is already on its way.
    pub fn next(&self, is_done: impl Fn(&Follow) -> bool) -> Option<Next> {
        let open = || self.follows.iter().filter(|follow| !is_done(follow));
        if let Some(follow) = open().find(|follow| follow.commit.is_none()) {
            return Some(Next::Find(Arc::clone(follow)));
        }
        let follow = open().min_by_key(|follow| follow.due)?;
        Some(Next::Ask(Arc::clone(follow), follow.due.max(self.not_before)))
    }

    /// Whether the checks of `reference` are already followed for the session, or without one for
    /// the folder.
    pub fn has(&self, session: Option<&SessionId>, workspace: Option<&str>, reference: Option<&str>) -> bool {
        let is_it = |follow: &Arc<Follow>| follow.is_of(session, workspace) && follow.is_about(reference);
        self.follows.iter().any(is_it)
    }

    /// The event for an answer, without parts that were already reported.
    pub fn answered_event(&self, follow: &Follow, mut outcome: Outcome, now: Timestamp) -> Event {
        if let Outcome::Checks(checks) = &mut outcome {
            checks.failures.retain(|failure| !follow.failed.contains(&failure.key()));
            let key = checks.pr.as_ref().map(|pr| follow.seen_key(&checks.repo, pr.number));
            match key.and_then(|key| self.seen.get(&key)) {
                Some(seen) => checks.remarks.retain(|remark| remark.at > *seen),
                // Remarks from before the push are not reported; only the time of the newest is
                // needed.
                None => drop(checks.remarks.drain(..checks.remarks.len().saturating_sub(1))),
            }
        }
        follow.answered_event(outcome, now)
    }
}

/// A request to follow a commit.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// The name of the follow, such as the id of a watch.
    pub by: &'a str,
    /// The session to which the events are addressed.
    pub session: Option<&'a SessionId>,
    /// Its folder.
    pub workspace: Option<&'a str>,
    /// The folder whose repository is meant.
    pub folder: &'a str,
    /// A branch or a commit; the checked-out one if absent.
    pub reference: Option<&'a str>,
}

/// All open follows.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Follows {
    open: SortedMap<Arc<str>, Arc<Follow>>,
    gate: Gate,
    seen: Arc<Seen>,
    /// The reported failed checks of each branch, by owner, repository and branch.
    failing: SortedMap<String, SortedSet<String>>,
    /// The newest events about a session's checks, oldest first.
    said: VecDeque<(SessionId, Seq)>,
    /// The newest commits whose checks were followed until they ended, by owner, oldest first.
    done: VecDeque<(u64, String)>,
    /// The settings.
    #[serde(skip)]
    settings: Settings,
    /// Whether the plan changed since the last [`Follows::take_plan`].
    #[serde(skip)]
    has_changed: bool,
}

impl Follows {
    /// The next actions, if they may have changed since the last call.
    pub fn take_plan(&mut self) -> Option<Plan> {
        let follows = || self.open.values().cloned().collect();
        let not_before = self.gate.not_before(self.settings.calls_per_hour);
        let plan =
            self.has_changed.then(|| Plan { follows: follows(), not_before, seen: Arc::clone(&self.seen) });
        self.has_changed = false;
        plan
    }

    /// Starts follows of the pushes of a call.
    fn note_pushes(&mut self, event: &EventRef<'_>, now: Timestamp) -> Vec<Event> {
        /// A harness's report of a call: its pushes, or its command.
        #[derive(Deserialize)]
        struct CallReport {
            #[serde(default)]
            pushed: Vec<Push>,
            command: Option<String>,
            #[serde(default)]
            in_background: bool,
        }
        let may_push = event.payload.contains("push") || event.payload.contains("pr ");
        let Some(session) = event.session.filter(|_| may_push && self.settings.is_on()) else {
            return Vec::new();
        };
        let Ok(CallReport { mut pushed, command, in_background }) = serde_json::from_str(event.payload)
        else {
            return Vec::new();
        };
        if let (Some(command), Some(folder)) = (command.filter(|_| !in_background), event.workspace) {
            pushed.extend(pushes(&command, folder));
        }
        let mut ended = Vec::new();
        let session = SessionId::new(session);
        for (number, push) in pushed.into_iter().enumerate() {
            let id = format!("ci{:016x}", hash_parts(&[event.source, event.id, &number.to_string()]));
            ended.extend(self.open(
                Follow {
                    workspace: event.workspace.map(Into::into),
                    from: push.from,
                    branch: push.branch,
                    due: now + gap(Duration::ZERO),
                    is_asked: self.settings.enabled != Switch::Auto,
                    may_repeat: push.opens_pr,
                    ..Follow::new(id.into(), Some(session.clone()), &push.folder, now)
                },
                now,
            ));
        }
        ended
    }

    /// Starts a requested follow, unless it exists.
    pub fn want(&mut self, wanted: &Wanted<'_>, now: Timestamp, to: &mut Effects) {
        let Wanted { by, session, workspace, folder, reference } = wanted;
        let is_it = |follow: &Arc<Follow>| follow.is_of(*session, *workspace) && follow.is_about(*reference);
        if !self.settings.is_on() || self.open.values().any(is_it) {
            return;
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
            ..Follow::new(format!("ci{:016x}", hash_parts(&[by])).into(), session.cloned(), folder, now)
        };
        to.publish(self.open(follow, now));
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

    /// Records the commit of a follow; older follows of the same branch end.
    fn note_found(&mut self, found: Found, now: Timestamp) -> Vec<Event> {
        let Found { follow: id, commit, branch, top, remote, error } = found;
        let Some(follow) = self.open.get(&id).filter(|follow| follow.commit.is_none()) else {
            return Vec::new();
        };
        let Some(commit) = commit else {
            let end = match error {
                Some(error) => End::Failed(error),
                None if top.is_none() => End::NoRepository,
                None => End::NoCommit,
            };
            return self.end(&id, end, now).into_iter().collect();
        };
        if remote.is_none() {
            return self.end(&id, End::NotOfGithub, now).into_iter().collect();
        }
        let branch = follow.branch.clone().or_else(|| branch.filter(|_| follow.from.is_none()));
        let found = Follow { commit: Some(commit), branch, top, remote, ..(**follow).clone() };
        let is_same_branch = |other: &Follow| {
            other.id != id && other.top == found.top && other.branch == found.branch && other.branch.is_some()
        };
        let others: Vec<_> = self.open.values().filter(|other| is_same_branch(other)).cloned().collect();
        let is_known = |other: &Arc<Follow>| other.session == found.session && other.commit == found.commit;
        let is_done = |done: &(u64, String)| done.0 == found.owner && found.commit.as_ref() == Some(&done.1);
        if others.iter().any(is_known) || !found.may_repeat && self.done.iter().any(is_done) {
            // The continuing follow reports it, or an ended one has.
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

    /// Whether checks of a push of the same owner are followed that is not older than the push whose
    /// follow `ended`.
    pub fn goes_on(&self, ended: &EventRef<'_>) -> bool {
        #[derive(Deserialize)]
        struct Ended {
            pushed_at: String,
        }
        let pushed_at = serde_json::from_str(ended.payload).ok();
        let pushed_at = pushed_at.and_then(|Ended { pushed_at }| pushed_at.parse::<Timestamp>().ok());
        let session = ended.session.map(SessionId::new);
        let is_it = |follow: &Arc<Follow>| {
            follow.is_of(session.as_ref(), ended.workspace) && pushed_at.is_some_and(|at| follow.began >= at)
        };
        self.open.values().any(is_it)
    }

    /// Takes an answer; returns the events for its new parts, and ends the follow or plans its next
    /// call.
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

    /// The events for the parts of an answer that were not yet reported.
    fn news(&mut self, follow: &mut Follow, checks: &Checks, now: Timestamp) -> Vec<Event> {
        follow.repo = Some(checks.repo.clone()).filter(|repo| !repo.is_empty()).or(follow.repo.take());
        follow.url = checks.url.clone().or(follow.url.take());
        follow.pr = checks.pr.as_ref().map(|pr| pr.number).or(follow.pr);
        follow.pending = checks.pending;
        let mut events = Vec::new();
        for failure in &checks.failures {
            if follow.failed.len() < FAILED_MAX && follow.failed.insert(failure.key()) {
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
                let oldest = seen.iter().min_by(|one, other| one.1.cmp(&other.1)).map(|(key, _)| key.clone());
                drop(oldest.and_then(|oldest| seen.remove(&oldest)));
            }
        }
        events
    }

    fn note_failing(&mut self, follow: &Follow, check: &str) {
        if self.failing.len() >= SEEN_MAX && !self.failing.contains_key(&follow.branch_key()) {
            self.failing.pop_first();
        }
        let failing = self.failing.get_or_default(follow.branch_key());
        if failing.len() < FAILED_MAX {
            failing.insert(check.to_owned());
        }
    }

    /// Whether all of `events` are about the state or end of checks of pushes of `session`.
    pub fn has_said(&self, session: &SessionId, events: &[Seq]) -> bool {
        let is_said = |seq: &Seq| self.said.iter().any(|(of, said)| of == session && said == seq);
        !self.said.is_empty() && !events.is_empty() && events.iter().all(is_said)
    }

    /// Whether [`Follows::has_said`] may be true for `session`.
    pub fn has_said_anything(&self, session: &SessionId) -> bool {
        self.said.iter().any(|(of, _)| of == session)
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

impl Fold for Follows {
    type Settings = Settings;

    /// Disabling ends all follows without an event.
    fn apply(&mut self, settings: &Settings, _: Option<&Settings>) {
        self.settings = settings.clone();
        if !settings.is_on() {
            self.open.clear();
        }
        self.has_changed = true;
    }

    fn observe(&mut self, dispatched: &Dispatched<'_>, _: &Settings, to: &mut Effects) -> bool {
        let Dispatched { seq, event, trust, now, .. } = *dispatched;
        if !trust.is_trusted() {
            return false;
        }
        if let Some(session) = event.session.filter(|_| events::is_of_checks(event)) {
            self.said.push_back((SessionId::new(session), seq));
            self.said.drain(..self.said.len().saturating_sub(SAID_MAX));
        }
        let events = match (event.event_type, event.provenance) {
            (CALL_SUCCEEDED, _) => self.note_pushes(event, now),
            (FOLLOWED, Provenance::Own) => match serde_json::from_str(event.payload) {
                Ok(found) => self.note_found(found, now),
                Err(_) => Vec::new(),
            },
            (ANSWERED, Provenance::Own) => match serde_json::from_str(event.payload) {
                Ok(answered) => self.note_answer(answered, now),
                Err(_) => Vec::new(),
            },
            _ => Vec::new(),
        };
        to.publish(events);
        false
    }

    /// The follows of an ended session move to its parent, or to its folder.
    fn follow(&mut self, change: &Succession, _: &mut Effects) {
        match change {
            Succession::Continued { from, to } => self.change_owner(from, Some(to)),
            Succession::Copied { .. } => {}
            Succession::Ended { session, parent } => self.change_owner(session, parent.as_ref()),
        }
    }
}

settings! {
    /// After an agent pushed, notifies it of the results of the checks of its commit, and of what
    /// others write in its pull request (`ci.**`, `pr.**`). `gh` asks for them over the network, after
    /// such a push and at no other time. `"auto"`: only if `gh` is logged in. `true`: a missing login
    /// is reported. `false`: never.
    enabled: Switch = Switch::Auto, switch();
    /// Most calls of `gh` in an hour, for all pushes together. A push causes at most 60.
    calls_per_hour: u32 = 200, number(1..=1_000);
}

impl Settings {
    /// Whether pushes are followed.
    pub fn is_on(&self) -> bool {
        self.enabled.into()
    }
}
