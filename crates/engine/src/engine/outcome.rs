//! The outcome that an event would have: an engine that is used for nothing else takes it, and its
//! outputs are read.
//!
//! The stages are the engine's own. If the event is in an open batch, the batch is closed at its time,
//! by its own pipeline alone, so that no session expires meanwhile. What the engine publishes itself
//! is not taken.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{
    io::{Input, Output},
    parts::{Engine, pipeline, resources},
};
use crate::{
    event::{Event, Pattern, Seq, SessionId},
    hold::Hold,
    ledger::{FilteredBy, LedgerEntry, Reason, ThrottledBy},
    notification::{Notification, NotificationId, SubscriberId},
    pipeline::{
        progress::Progress,
        remainder,
        rule::{Activity, Subscriber},
        territory,
    },
    sorted::SortedMap,
};

/// Most times at which a batch is looked at until it closes. Each time is that of its end, which only
/// quiet hours move.
const CLOSES_MAX: usize = 16;

/// What would become of an event.
#[derive(Debug)]
pub struct Outcome {
    /// Whether its source is trusted.
    pub is_trusted: bool,
    /// Why it would not be dispatched.
    pub throttled: Option<ThrottledBy>,
    /// The open sessions in its scope, by id.
    pub sessions: Vec<SessionId>,
    /// What each subscriber would do with it, by id.
    pub subscribers: Vec<SubscriberOutcome>,
}

/// What a subscriber would do with an event.
#[derive(Debug)]
pub struct SubscriberOutcome {
    /// The subscriber.
    pub subscriber: SubscriberId,
    /// The types that it takes.
    pub types: Vec<Pattern>,
    /// What becomes of the event.
    pub fate: Fate,
    /// What the stages did; `None` if none of them took it.
    pub progress: Option<Progress>,
    /// Number of its pending notifications and rows whose condition the event resolves.
    pub withdrawn: usize,
    /// Number of its pending notifications that the new one replaces.
    pub replaced: usize,
    /// What suppresses it.
    pub inhibitor: Option<Inhibitor>,
    /// The notification that it becomes a part of.
    pub notification: Option<Arc<Notification>>,
    /// Where that goes.
    pub deliveries: Vec<Delivery>,
    /// The messages of its parts that fail for the event.
    pub failures: Vec<String>,
}

/// What becomes of an event in a subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its type is not among the subscriber's.
    OtherType,
    /// Its sessions are in other folders than the subscriber's, or another one replaces it there.
    OtherFolder,
    /// A later file of the subscriber's id takes it.
    OfLaterFile,
    /// It was not dispatched.
    NotDispatched,
    /// It is a row of a notification.
    Taken,
    /// It ends.
    Ended(Reason),
}

/// An event that inhibits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inhibitor {
    /// Its position.
    pub seq: Seq,
    /// The types of the events that end what it inhibits.
    pub ended_by: Vec<Pattern>,
    /// When that ends at the latest.
    pub until: Timestamp,
}

/// Where a notification goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The session; `None` for the next one that opens.
    pub session: Option<SessionId>,
    /// What keeps it from being released, and until when at the latest.
    pub holds: Vec<(Hold, Option<Timestamp>)>,
    /// Why it ends there.
    pub reason: Option<Reason>,
}

/// What the engine reported about an event.
struct Taken {
    seq: Seq,
    event: Arc<Event>,
    now: Timestamp,
    is_throttled: bool,
    entries: Vec<LedgerEntry>,
    made: Vec<Arc<Notification>>,
    /// The subscribers of what was pending before.
    pending: SortedMap<NotificationId, SubscriberId>,
}

impl Engine {
    /// The outcome that `event` would have if it were published at `now`, as the record `seq`. The
    /// engine has changed afterwards.
    ///
    /// Units: `now` is not before the time of the last input.
    pub fn outcome_of(mut self, seq: Seq, event: &Event, now: Timestamp) -> Outcome {
        self.handle(Input::Tick, now);
        self.sessions.catch_up_all();
        self.drain_sessions();
        self.reported();
        let pending = self.pending();
        let is_trusted = self.rules.wake.trust_in(event).is_trusted();
        let addressed = event.session.as_ref().and_then(|name| self.sessions.by_full_name(name));
        let session = addressed.or_else(|| event.session.clone());
        let event = Arc::new(Event { session, ..event.clone() });
        let sessions = self.sessions.all_concerned(&event.scope());
        self.handle(Input::Event { seq, event: event.as_ref().as_ref() }, now);
        self.sessions.catch_up_all();
        self.drain_sessions();
        let (entries, made) = self.reported();
        let throttled = entries.iter().find_map(|entry| throttled(entry, seq));
        let is_throttled = throttled.is_some();
        let taken = Taken { seq, event, now, is_throttled, entries, made, pending };
        let rules = Arc::clone(&self.rules);
        let subscribers = (0_u32..).zip(&rules.subscribers);
        let subscribers = subscribers.map(|(index, rule)| self.outcome_in(index, rule, &taken)).collect();
        Outcome { is_trusted, throttled, sessions, subscribers }
    }

    /// The subscribers of everything that is pending.
    fn pending(&self) -> SortedMap<NotificationId, SubscriberId> {
        let queued = self.sessions.views().flat_map(|session| session.injector.view(self.now).pending);
        let queued = queued.map(|pending| pending.notification);
        let unclaimed = self.sessions.unclaimed().into_iter().cloned();
        queued.chain(unclaimed).map(|one| (one.id, one.subscriber.clone())).collect()
    }

    fn outcome_in(&mut self, index: u32, rule: &Arc<Subscriber>, taken: &Taken) -> SubscriberOutcome {
        let ended = |entry: &LedgerEntry, reason: &Reason| match entry {
            LedgerEntry::EventEnded { subscriber, reason: own, .. } => {
                *subscriber == rule.id && own == reason
            }
            LedgerEntry::NotificationEnded { notification, reason: own, .. } => {
                own == reason && taken.pending.get(notification) == Some(&rule.id)
            }
            LedgerEntry::Unmatched { .. }
            | LedgerEntry::Throttled { .. }
            | LedgerEntry::Skipped { .. }
            | LedgerEntry::Batched { .. }
            | LedgerEntry::Created { .. }
            | LedgerEntry::Unclaimed { .. }
            | LedgerEntry::Queued { .. }
            | LedgerEntry::Injected { .. }
            | LedgerEntry::Confirmed { .. }
            | LedgerEntry::Returned { .. }
            | LedgerEntry::Recalled { .. }
            | LedgerEntry::Repeated { .. }
            | LedgerEntry::Responded { .. }
            | LedgerEntry::ForUser { .. } => false,
        };
        let count = |reason: &Reason| taken.entries.iter().filter(|entry| ended(entry, reason)).count();
        let mut outcome = SubscriberOutcome {
            subscriber: rule.id.clone(),
            types: rule.types.clone(),
            fate: self.fate(rule, taken),
            progress: None,
            withdrawn: count(&Reason::Withdrawn),
            replaced: count(&Reason::Superseded),
            inhibitor: None,
            notification: None,
            deliveries: Vec::new(),
            failures: Vec::new(),
        };
        if outcome.fate.is_of_a_pipeline() && rule.activity != Activity::Disabled {
            self.follow(index, rule, taken, &mut outcome);
        }
        outcome
    }

    /// What a subscriber did with the event, and what becomes of its row.
    fn follow(&mut self, index: u32, rule: &Arc<Subscriber>, taken: &Taken, outcome: &mut SubscriberOutcome) {
        let Taken { seq, event, now, .. } = taken;
        let progress = pipeline(&mut self.pipelines, index).progress(*seq, event, &self.zone, *now);
        outcome.progress = Some(progress.until(&outcome.fate));
        let closed = self.close_batch(index, rule, taken);
        let (entries, made) = closed.unwrap_or_default();
        let entries: Vec<&LedgerEntry> = taken.entries.iter().chain(&entries).collect();
        if let Some(reason) = entries.iter().rev().find_map(|entry| end(entry, *seq, &rule.id)) {
            outcome.fate = Fate::Ended(reason.clone());
        }
        let is_its = |one: &&Arc<Notification>| one.subscriber == rule.id && one.events.contains(seq);
        outcome.notification = taken.made.iter().chain(&made).find(is_its).cloned();
        if let Some(notification) = &outcome.notification {
            outcome.deliveries =
                entries.iter().filter_map(|entry| self.delivery(entry, notification)).collect();
        }
        let pipeline = pipeline(&mut self.pipelines, index);
        let held =
            outcome.deliveries.iter().flat_map(|delivery| &delivery.holds).find_map(|(hold, _)| match hold {
                Hold::Inhibited { by, .. } => Some(*by),
                Hold::Quiet { .. }
                | Hold::Deferred { .. }
                | Hold::Snoozed { .. }
                | Hold::Budget { .. }
                | Hold::Silenced { .. } => None,
            });
        let by = if let Fate::Ended(Reason::Inhibited { by }) = &outcome.fate { Some(*by) } else { held };
        outcome.inhibitor = by.and_then(|by| {
            let (ended_by, until) = pipeline.inhibition(by)?;
            Some(Inhibitor { seq: by, ended_by: ended_by.to_vec(), until })
        });
        let failed = pipeline.failing().filter(|(_, failing)| failing.last_at >= *now);
        outcome.failures =
            failed.map(|(part, failing)| format!("{}: {}", part.file(&rule.id), failing.message)).collect();
    }

    /// Closes the open batch with the row of the event, at its time; `None` if there is none.
    fn close_batch(
        &mut self,
        index: u32,
        rule: &Subscriber,
        taken: &Taken,
    ) -> Option<(Vec<LedgerEntry>, Vec<Arc<Notification>>)> {
        let mut reported = None;
        for _ in 0..CLOSES_MAX {
            let pipeline = pipeline(&mut self.pipelines, index);
            let Some(waiting) = pipeline.waiting(taken.seq, rule, &self.zone, taken.now) else { break };
            pipeline.handle_timeout(resources(&self.rules, &self.zone, &self.silences), waiting.ends_at);
            self.drain_pipeline(index, waiting.ends_at);
            self.sessions.catch_up_all();
            self.drain_sessions();
            let (entries, made) = reported.get_or_insert_with(Default::default);
            let (more, others): (Vec<_>, Vec<_>) = self.reported();
            Vec::extend(entries, more);
            Vec::extend(made, others);
        }
        reported
    }

    /// What becomes of the event in a subscriber, before its batch closes.
    fn fate(&self, rule: &Subscriber, taken: &Taken) -> Fate {
        let Taken { seq, event, entries, .. } = taken;
        if let Some(reason) = entries.iter().rev().find_map(|entry| end(entry, *seq, &rule.id)) {
            return Fate::Ended(reason.clone());
        }
        let selects = rule.types.iter().any(|pattern| pattern.matches(&event.event_type));
        let workspace = event.session.as_ref().and_then(|session| self.folder_of(session));
        match () {
            () if entries.iter().any(|entry| is_row(entry, *seq, &rule.id)) => Fate::Taken,
            () if !selects => Fate::OtherType,
            () if taken.is_throttled => Fate::NotDispatched,
            () if !remainder::is_left(rule, event) => Fate::OfLaterFile,
            () if !territory::holds_for(rule, event, workspace.as_deref()) => Fate::OtherFolder,
            () => Fate::NotDispatched,
        }
    }

    /// Where an entry says that a notification goes.
    fn delivery(&self, entry: &LedgerEntry, notification: &Arc<Notification>) -> Option<Delivery> {
        let until = |hold: Hold| {
            let until = self.ends(&hold);
            (hold, until)
        };
        let is_it = |id: &NotificationId| *id == notification.id;
        match entry {
            LedgerEntry::Queued { notification: id, session } if is_it(id) => {
                let pending = self.sessions.view(session)?.injector.view(self.now).pending;
                let holds = pending.into_iter().find(|one| is_it(&one.notification.id))?.holds;
                let holds = holds.into_iter().map(until).collect();
                Some(Delivery { session: Some(session.clone()), holds, reason: None })
            }
            LedgerEntry::Unclaimed { notification: id } if is_it(id) => {
                let holds = self.sessions.holds_of_unclaimed(notification).into_iter().map(until).collect();
                Some(Delivery { session: None, holds, reason: None })
            }
            LedgerEntry::NotificationEnded { notification: id, session, reason } if is_it(id) => {
                let (session, reason) = (session.clone(), Some(reason.clone()));
                Some(Delivery { session, holds: Vec::new(), reason })
            }
            LedgerEntry::Unmatched { .. }
            | LedgerEntry::Throttled { .. }
            | LedgerEntry::Skipped { .. }
            | LedgerEntry::Batched { .. }
            | LedgerEntry::EventEnded { .. }
            | LedgerEntry::Created { .. }
            | LedgerEntry::Unclaimed { .. }
            | LedgerEntry::Queued { .. }
            | LedgerEntry::Injected { .. }
            | LedgerEntry::Confirmed { .. }
            | LedgerEntry::Returned { .. }
            | LedgerEntry::Recalled { .. }
            | LedgerEntry::Repeated { .. }
            | LedgerEntry::Responded { .. }
            | LedgerEntry::NotificationEnded { .. }
            | LedgerEntry::ForUser { .. } => None,
        }
    }

    /// What was recorded and made since the last call.
    fn reported(&mut self) -> (Vec<LedgerEntry>, Vec<Arc<Notification>>) {
        let (mut entries, mut notifications) = (Vec::new(), Vec::new());
        while let Some(output) = self.poll_output() {
            match output {
                Output::Record(entry) => entries.push(entry),
                Output::Made(notification) => notifications.push(notification),
                Output::Said(_)
                | Output::Session(..)
                | Output::Answer { .. }
                | Output::Refuse { .. }
                | Output::Publish(_)
                | Output::Wake(_) => {}
            }
        }
        (entries, notifications)
    }
}

impl Fate {
    /// Whether a pipeline took the event.
    fn is_of_a_pipeline(&self) -> bool {
        match self {
            Self::Taken => true,
            Self::OtherType | Self::OtherFolder | Self::OfLaterFile | Self::NotDispatched => false,
            Self::Ended(reason) => !matches!(reason, Reason::Resolves | Reason::Inhibits),
        }
    }
}

impl Progress {
    /// Without what the stages after the one that ended the event did not do.
    fn until(self, fate: &Fate) -> Self {
        let Fate::Ended(reason) = fate else { return self };
        let is_before_where =
            matches!(reason, Reason::FilteredOut(FilteredBy::Source | FilteredBy::Severity));
        let is_before_dedupe = matches!(
            reason,
            Reason::FilteredOut(_) | Reason::Stale | Reason::Silenced { .. } | Reason::Inhibited { .. }
        );
        let comparisons = if is_before_where { Vec::new() } else { self.comparisons };
        let dedupe_key = self.dedupe_key.filter(|_| !is_before_dedupe);
        let count = self.count.filter(|_| !is_before_dedupe);
        Self { comparisons, dedupe_key, count, ..self }
    }
}

fn throttled(entry: &LedgerEntry, seq: Seq) -> Option<ThrottledBy> {
    if let LedgerEntry::Throttled { seq: own, by } = entry { Some(*by).filter(|_| *own == seq) } else { None }
}

/// Why the event `seq` ended in a subscriber.
fn end<'e>(entry: &'e LedgerEntry, seq: Seq, id: &SubscriberId) -> Option<&'e Reason> {
    let LedgerEntry::EventEnded { seq: own, subscriber, reason } = entry else { return None };
    (*own == seq && subscriber == id).then_some(reason)
}

/// Whether the event `seq` became a row of a subscriber's batch or notification.
fn is_row(entry: &LedgerEntry, seq: Seq, id: &SubscriberId) -> bool {
    if let LedgerEntry::Batched { seq: own, subscriber } = entry {
        return *own == seq && subscriber == id;
    }
    if let LedgerEntry::Created { subscriber, events, .. } = entry {
        return subscriber == id && events.contains(&seq);
    }
    false
}
