//! The state of everything, computed from the inputs and outputs alone, and the invariants.
//!
//! Matching, scopes and the lengths of chains are computed by plain loops, as a reference. The
//! place of a notification in a session is followed entry by entry through the ledger, and must
//! agree with the engine's views.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use engine::{
    Engine, Output,
    event::{Event, Scope, Seq, SessionId},
    exchange::{Answer, CarrierEffect, ContextChange, Directive, Exchange, InjectionId},
    ledger::{LedgerEntry, Reason, ThrottledBy},
    notification::{InjectionPoint, NotificationId, Priority, SubscriberId, repeat::Action},
    rules::CompiledRules,
};
use journal::time::Timestamp;

use super::{
    Content, Record,
    answers::is_put_off,
    budgets::Spending,
    carriers::{self, Carriers},
    conditions::Conditions,
    offers::LeftBy,
    regions::Regions,
};
use crate::support::generations;

/// Longest chain of causes that is dispatched.
const CHAIN_MAX: u32 = 8;
/// Most times in a row that an agent is asked to continue.
const CONTINUATIONS_MAX: u32 = 2;

/// The place of a notification in one session. `again`: a lease of it expired before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Queued { again: bool },
    Leased { injection: InjectionId, again: bool },
    Over,
}

#[derive(Debug)]
pub(super) struct Made {
    pub(super) scope: Scope,
    pub(super) created_at: Timestamp,
    pub(super) is_unclaimed: bool,
    pub(super) subscriber: SubscriberId,
    pub(super) events: Vec<Seq>,
}

#[derive(Debug)]
pub(super) struct Known {
    pub(super) workspace: Option<Arc<str>>,
    pub(super) parent: Option<SessionId>,
    pub(super) pid: Option<u32>,
    /// The sessions that it continues.
    pub(super) former: BTreeSet<SessionId>,
    pub(super) last_seen: Timestamp,
    /// Its number, in the order in which they opened for the first time.
    pub(super) number: usize,
    /// How often it was asked to continue since the last start of a turn.
    pub(super) continuations: u32,
}

/// The account of one timeline.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) rules: Arc<CompiledRules>,
    pub(super) scopes: BTreeMap<Seq, Scope>,
    chains: BTreeMap<Arc<str>, u32>,
    /// Events that a subscriber has not accounted for yet, and whether each is a row of an open
    /// batch.
    unended: BTreeMap<(Seq, SubscriberId), bool>,
    pub(super) conditions: Conditions,
    pub(super) made: BTreeMap<NotificationId, Made>,
    pub(super) open: BTreeMap<SessionId, Known>,
    /// Number of sessions so far.
    pub(super) met: usize,
    /// The suspended sessions.
    pub(super) away: BTreeMap<SessionId, Known>,
    /// The predecessor of the session of the current input, and whether it ends with that input.
    pub(super) goes_on_from: Option<(SessionId, bool)>,
    /// The notifications that were sent to a session, or are in the context that it has a copy of.
    pub(super) delivered: BTreeMap<SessionId, BTreeSet<NotificationId>>,
    /// Notifications that came in place of a tool call, or were delivered in a lost context, and
    /// did not return as undelivered.
    pub(super) cancelled: BTreeSet<(SessionId, NotificationId)>,
    /// Sessions in which a call was cancelled, so that the other calls of its batch are cancelled
    /// too.
    pub(super) held: BTreeSet<SessionId>,
    pub(super) places: BTreeMap<SessionId, BTreeMap<NotificationId, Place>>,
    /// Notifications that an ended session left for others, and that no other session has got
    /// since.
    pub(super) left: BTreeMap<NotificationId, LeftBy>,
    /// Notifications that each session left and has not got since.
    pub(super) was_left: BTreeSet<(SessionId, NotificationId)>,
    /// The last answer to each carrier, with the exchange and its time.
    carriers: Carriers,
    pub(super) spending: Spending,
    pub(super) regions: Regions,
    /// Delivered conditions that were recalled, and have not returned since.
    pub(super) recalled: BTreeSet<(SessionId, NotificationId)>,
    /// What waits for its repetition, or was snoozed after it had arrived.
    pub(super) repeated: BTreeSet<(SessionId, NotificationId)>,
    /// The newest notification, and the sessions that have not got it yet.
    pub(super) routed: Option<(NotificationId, BTreeSet<SessionId>)>,
}

impl Account {
    pub(super) fn new(rules: Arc<CompiledRules>) -> Self {
        Self {
            rules,
            scopes: BTreeMap::new(),
            chains: BTreeMap::new(),
            unended: BTreeMap::new(),
            conditions: Conditions::default(),
            made: BTreeMap::new(),
            open: BTreeMap::new(),
            away: BTreeMap::new(),
            goes_on_from: None,
            met: 0,
            delivered: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            held: BTreeSet::new(),
            places: BTreeMap::new(),
            left: BTreeMap::new(),
            was_left: BTreeSet::new(),
            carriers: Carriers::default(),
            spending: Spending::default(),
            regions: Regions::default(),
            recalled: BTreeSet::new(),
            repeated: BTreeSet::new(),
            routed: None,
        }
    }

    /// Checks the outputs of one input; without a record the engine was woken.
    pub(super) fn check(
        &mut self,
        record: Option<&Record>,
        outputs: &[Output],
        engine: &Engine,
        now: Timestamp,
    ) {
        let content = record.map(|record| &record.content);
        let mut unheard = record.and_then(|record| self.note(record, now));
        let answered_before = self.answered_before(content, now);
        for output in outputs {
            match output {
                Output::Record(entry @ (LedgerEntry::Unmatched { .. } | LedgerEntry::Throttled { .. })) => {
                    assert_eq!(unheard.take().as_ref(), Some(entry));
                }
                Output::Record(entry) => self.follow(entry, content),
                Output::Answer { session, answer, .. } => {
                    let Some(Content::Exchange(exchange)) = content else { panic!("nobody asked") };
                    assert_eq!(*session, exchange.session);
                    match &answered_before {
                        Some(before) => carriers::assert_same(answer, before),
                        None => {
                            self.check_answer(exchange, answer, outputs, engine);
                            self.charge(exchange, answer, now);
                            self.carriers.note(exchange, answer, now + self.rules.injection.lease);
                        }
                    }
                }
                Output::Publish(_)
                | Output::Refuse { .. }
                | Output::Wake(_)
                | Output::Made(_)
                | Output::Said(_)
                | Output::Session(..) => {}
            }
        }
        assert_eq!(unheard, None, "an event that nobody takes is said to be so");
        assert!(self.routed.take().is_none_or(|(_, missing)| missing.is_empty()));
        let answers = outputs.iter().filter(|output| matches!(output, Output::Answer { .. })).count();
        assert_eq!(answers, usize::from(matches!(content, Some(Content::Exchange(_)))));
        self.assert_rows_wait();
        self.close_silent(content, engine, now);
        self.compare(engine, now);
        self.check_regions(content, engine, now);
    }

    /// Every event without an outcome is a row of an open batch of an existing subscriber.
    fn assert_rows_wait(&self) {
        for ((seq, subscriber), is_batched) in &self.unended {
            let exists = self.rules.subscribers.iter().any(|rule| rule.id == *subscriber);
            assert!(*is_batched && exists, "event {seq} is lost in {subscriber}");
        }
    }

    /// After a shutdown no batch is open, but for those that their time alone closes.
    pub(super) fn assert_no_row_waits(&self) {
        let may_wait = |id: &SubscriberId| generations::OPEN_AFTER_SHUTDOWN.contains(&id.as_str());
        let waiting: Vec<_> = self.unended.keys().filter(|(_, id)| !may_wait(id)).collect();
        assert!(waiting.is_empty(), "{waiting:?}");
    }

    /// After the end of every session and of everything pending, nothing is without an outcome.
    pub(super) fn assert_all_ended(&self) {
        assert_eq!(self.unended, BTreeMap::new());
        let unclaimed: Vec<_> = self.made.iter().filter(|(_, made)| made.is_unclaimed).collect();
        assert!(unclaimed.is_empty(), "still unclaimed: {unclaimed:?}");
        assert!(self.places.values().flat_map(BTreeMap::values).all(|place| *place == Place::Over));
    }

    /// Notes an input; returns the expected entry for an event that matches no subscriber.
    fn note(&mut self, record: &Record, now: Timestamp) -> Option<LedgerEntry> {
        match &record.content {
            Content::Event(event) => return self.note_event(record.seq, event),
            Content::Exchange(exchange) => {
                self.meet(&exchange.session, &exchange.harness, now);
                self.expect_restart(exchange);
                if self.answered_before(Some(&record.content), now).is_none() {
                    self.expect_succession(exchange, now);
                }
            }
            Content::Opened(session, harness) => self.meet(session, harness, now),
            Content::Rules(generation) => {
                self.rules = generations::rules(*generation);
                self.spending.forget();
            }
            Content::Undelivered(session, injection) => {
                self.forget_answer(session, injection);
                self.note_undelivered(session, injection);
            }
            Content::Responded(id, response) if response.action == Action::Dismiss => {
                if let Some(made) = self.made.get(id) {
                    self.conditions.dismiss(&made.subscriber, &made.events);
                }
            }
            Content::Ack(..)
            | Content::Closed(..)
            | Content::Silence(_)
            | Content::SilenceEnd(_)
            | Content::Responded(..)
            | Content::Settings(_)
            | Content::Tick
            | Content::ShuttingDown => {}
        }
        None
    }

    fn note_event(&mut self, seq: Seq, event: &Event) -> Option<LedgerEntry> {
        let chain = event.cause.as_ref().map_or(0, |cause| self.chains.get(cause).copied().unwrap_or(0) + 1);
        self.chains.insert(event.id.clone(), chain);
        self.scopes.insert(seq, event.scope());
        if chain > CHAIN_MAX {
            return Some(LedgerEntry::Throttled { seq, by: ThrottledBy::Causes });
        }
        let types: Vec<&str> = event.event_type.as_str().split('.').collect();
        let asks = |pattern: String| is_match(&pattern.split('.').collect::<Vec<_>>(), &types);
        let asked = self.rules.subscribers.iter().filter(|rule| {
            let resolving = rule.resolve.iter().flat_map(|resolve| &resolve.by);
            let inhibiting = rule.inhibit.iter().flat_map(|inhibit| inhibit.by.iter().chain(&inhibit.until));
            let mut patterns = rule.types.iter().chain(resolving).chain(inhibiting);
            patterns.any(|pattern| asks(pattern.to_string()))
        });
        self.conditions.note(&self.rules, seq, event);
        let before = self.unended.len();
        self.unended.extend(asked.map(|rule| ((seq, rule.id.clone()), false)));
        // The notice about one that nobody answered is for the user.
        let is_taken = self.unended.len() > before || event.event_type.as_str() == "user.notice";
        (!is_taken).then_some(LedgerEntry::Unmatched { seq })
    }

    /// The answer to a carrier is not repeated if its text never left while the injection was
    /// leased.
    fn forget_answer(&mut self, session: &SessionId, injection: &InjectionId) {
        let on_its_way =
            |place: &Place| matches!(place, Place::Leased { injection: of, .. } if of == injection);
        if self.places.get(session).is_some_and(|places| places.values().any(on_its_way)) {
            self.carriers.forget(session, injection);
            self.spending.take_back(session, injection);
        }
    }

    /// The answer to the same message.
    fn answered_before(&self, content: Option<&Content>, now: Timestamp) -> Option<Answer> {
        let Some(Content::Exchange(exchange)) = content else { return None };
        self.carriers.find(exchange, now)
    }

    fn take_back(&mut self, notification: &NotificationId, session: &SessionId, content: Option<&Content>) {
        let never_left = matches!(content, Some(Content::Undelivered(of, _)) if of == session);
        let place = self.place(session, notification);
        let Place::Leased { again, .. } = *place else { panic!("{notification} returned from {place:?}") };
        let was_recalled = !never_left && self.recalled.remove(&(session.clone(), *notification));
        let may_return = !again || was_recalled || loses_context(content);
        assert!(never_left || may_return, "{notification} goes back once");
        let place = self.place(session, notification);
        *place = Place::Queued { again: again || !never_left };
        if never_left {
            self.cancelled.remove(&(session.clone(), *notification));
        }
    }

    fn follow(&mut self, entry: &LedgerEntry, content: Option<&Content>) {
        match entry {
            LedgerEntry::Unmatched { .. } | LedgerEntry::Throttled { .. } | LedgerEntry::Skipped { .. } => {
                unreachable!("checked before, or not in this model")
            }
            LedgerEntry::ForUser { .. } => {}
            LedgerEntry::Repeated { notification, session, .. } => self.repeat(notification, session),
            LedgerEntry::Responded { notification, session, action, .. } => {
                self.answer(notification, session, *action);
            }
            LedgerEntry::Batched { seq, subscriber } => {
                let unended = self.unended.get_mut(&(*seq, subscriber.clone()));
                assert_eq!(unended.map(|is_batched| std::mem::replace(is_batched, true)), Some(false));
            }
            LedgerEntry::EventEnded { seq, subscriber, reason } => {
                self.settle(*seq, subscriber);
                if let Reason::Duplicate { of } = reason {
                    assert_eq!(self.scopes.get(of), self.scopes.get(seq), "a repeat concerns the same");
                    assert!(of < seq);
                }
            }
            LedgerEntry::Created { notification, subscriber, events, created_at } => {
                let is_settled = |seq: &Seq| !self.unended.contains_key(&(*seq, subscriber.clone()));
                if events.iter().all(is_settled) {
                    self.create_summarised(notification, subscriber, events, content);
                } else {
                    self.create(notification, subscriber, events, *created_at);
                }
            }
            LedgerEntry::Unclaimed { notification } => {
                if !self.left.contains_key(notification) {
                    let routed = self.routed.take().expect("it was just made");
                    assert_eq!(routed, (*notification, BTreeSet::new()), "nobody is concerned");
                }
                self.made.get_mut(notification).expect("made").is_unclaimed = true;
            }
            LedgerEntry::Queued { notification, session } => self.queue(notification, session),
            LedgerEntry::Injected { notification, session, injection, redelivered, .. } => {
                let made = &self.made[notification];
                assert!(!self.conditions.are_resolved(&made.subscriber, &made.events), "{entry:?}");
                let place = self.place(session, notification);
                let Place::Queued { again } = *place else { panic!("injected from {place:?}: {entry:?}") };
                let is_marked = redelivered.is_some();
                *place = Place::Leased { injection: *injection, again: is_marked };
                assert!(again == is_marked || self.is_retaining(notification), "{entry:?}");
                self.delivered.entry(session.clone()).or_default().insert(*notification);
            }
            LedgerEntry::Recalled { notification, session } => {
                assert!(loses_context(content), "{entry:?}");
                self.recall(notification, session);
            }
            LedgerEntry::Confirmed { notification, session, .. } if self.made[notification].is_unclaimed => {
                self.confirm_left(notification, session);
            }
            LedgerEntry::Confirmed { notification, session, .. } => {
                self.confirm(notification, session);
            }
            LedgerEntry::Returned { notification, session } => self.take_back(notification, session, content),
            LedgerEntry::NotificationEnded { notification, session, reason } => {
                self.end_notification(notification, session.as_ref(), reason);
            }
        }
    }

    fn end_notification(
        &mut self,
        notification: &NotificationId,
        session: Option<&SessionId>,
        reason: &Reason,
    ) {
        match (session, reason) {
            (Some(session), Reason::Unanswered) => self.end_unanswered(notification, session),
            (Some(session), Reason::Summarised { by }) => self.end_as_summarised(notification, session, by),
            (Some(session), reason) => self.end(notification, session, reason),
            (None, Reason::InRegion) => self.end_in_region(notification),
            (None, Reason::Dismissed) if self.routed.as_ref().is_some_and(|(id, _)| id == notification) => {
                self.routed = None;
                let made = &self.made[notification];
                assert!(self.conditions.are_dismissed(&made.subscriber, &made.events), "{notification}");
            }
            (None, reason) => {
                let made = self.made.get_mut(notification).expect("made");
                assert!(std::mem::replace(&mut made.is_unclaimed, false), "{notification}: {reason:?}");
            }
        }
    }

    /// An event ends once in a subscriber.
    fn settle(&mut self, seq: Seq, subscriber: &SubscriberId) {
        assert!(
            self.unended.remove(&(seq, subscriber.clone())).is_some(),
            "event {seq} ends twice in {subscriber}"
        );
    }

    fn create(
        &mut self,
        id: &NotificationId,
        subscriber: &SubscriberId,
        events: &[Seq],
        created_at: Timestamp,
    ) {
        assert!(self.routed.take().is_none_or(|(_, missing)| missing.is_empty()));
        assert!(!events.is_empty() && events.is_sorted());
        let scope = self.scopes[&events[0]].clone();
        for seq in events {
            assert_eq!(self.scopes[seq], scope, "the rows of a notification concern the same");
            self.settle(*seq, subscriber);
        }
        let is_there = |session: &SessionId| !self.has_just_ended(session) && self.concerns(&scope, session);
        let concerned = self.open.keys().filter(|session| is_there(session)).cloned().collect();
        self.routed = Some((*id, concerned));
        let (subscriber, events) = (subscriber.clone(), events.to_vec());
        let made = Made { scope, created_at, is_unclaimed: false, subscriber, events };
        assert!(self.made.insert(*id, made).is_none(), "{id} was made before");
    }

    pub(super) fn place(&mut self, session: &SessionId, id: &NotificationId) -> &mut Place {
        let place = self.places.get_mut(session).and_then(|places| places.get_mut(id));
        place.unwrap_or_else(|| panic!("{id} never came to {session}"))
    }

    /// Whether `session` gets events of this scope; a child gets only those that name it.
    pub(super) fn concerns(&self, scope: &Scope, session: &SessionId) -> bool {
        let Some(open) = self.open.get(session) else { return false };
        match scope {
            Scope::Session(id) => id == session || open.former.contains(id),
            Scope::All => open.parent.is_none(),
            Scope::Part(_) => panic!("the rules of the model are those of no folder"),
            Scope::Workspace(folder) => {
                let parts = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
                let (wanted, own) = (parts(folder), open.workspace.as_deref().map(parts));
                open.parent.is_none()
                    && own.is_some_and(|own| own.iter().zip(&wanted).all(|(own, wanted)| own == wanted))
            }
        }
    }

    fn check_answer(&mut self, exchange: &Exchange, answer: &Answer, outputs: &[Output], engine: &Engine) {
        let session = &exchange.session;
        let view = engine.sessions().view(session).expect("an exchange opens its session");
        assert_eq!(answer.pending, view.injector.left());
        let open = self.open.get_mut(session).expect("met");
        let is_continued = matches!(answer.directive, Some(Directive::Continue { .. }));
        let is_cancelled = matches!(answer.directive, Some(Directive::Cancel { .. }));
        let waits_to_continue = exchange.point == InjectionPoint::TurnEnd
            && exchange.carrier_effect == CarrierEffect::Continue
            && !is_continued;
        let waits_to_cancel = exchange.point == InjectionPoint::BeforeTool
            && exchange.carrier_effect == CarrierEffect::Cancel
            && answer.injection.is_none();
        let waiting = view.injector.view(Timestamp::ZERO).pending;
        let mut critical = waiting.iter().filter(|waiting| {
            waiting.notification.priority == Priority::Critical && !is_put_off(&waiting.holds)
        });
        let released = answer.injection.iter().flat_map(|injection| &injection.notifications);
        // The carrier's size bounds critical ones too; then no less urgent one may take the room.
        let is_full = exchange.budget.max_chars.is_some()
            && released.clone().all(|released| released.priority == Priority::Critical);
        let may_wait = |id: &NotificationId| {
            is_full
                || waits_to_continue && open.continuations >= CONTINUATIONS_MAX
                || waits_to_cancel && self.cancelled.contains(&(session.clone(), *id))
        };
        assert!(
            critical.all(|waiting| may_wait(&waiting.notification.id)),
            "what is critical waits for nothing"
        );
        open.continuations += u32::from(is_continued);
        assert!(!waits_to_continue && !waits_to_cancel || answer.injection.is_none());
        if matches!(
            exchange.point,
            InjectionPoint::AfterTool | InjectionPoint::TurnStart | InjectionPoint::TurnEnd
        ) {
            self.held.remove(session);
        }
        if is_cancelled {
            let waiting = waiting.iter().map(|waiting| &*waiting.notification);
            self.note_cancelled(session, answer, waiting);
        }

        let left: Vec<NotificationId> = outputs.iter().filter_map(injected).collect();
        assert_eq!(
            released.map(|delivered| delivered.id).collect::<Vec<_>>(),
            left,
            "the ledger has what was delivered"
        );
        if let Some(injection) = &answer.injection {
            self.check_injection(exchange, injection, answer.directive.as_ref());
        }
    }

    /// Sessions end when they are closed or silent for too long, and leave nothing behind.
    fn close_silent(&mut self, content: Option<&Content>, engine: &Engine, now: Timestamp) {
        let (mut just_away, mut closed) = (None, None);
        if let Some(Content::Closed(session, may_return)) = content {
            let is_root = self.open.get(session).is_some_and(|open| open.parent.is_none());
            if *may_return && is_root {
                let mut ended = self.open.remove(session).expect("open");
                ended.last_seen = now;
                self.away.insert(session.clone(), ended);
                just_away = Some(session);
            } else if !may_return || self.open.contains_key(session) {
                closed = Some(session);
            }
        }
        let idle = self.rules.sessions.idle_close;
        let succeeded = self.goes_on_from.take().filter(|(_, ends)| *ends).map(|(from, _)| from);
        let is_over = |id: &SessionId, known: &Known| {
            let is_child_of_ended = just_away.is_some() && known.parent.as_ref() == just_away;
            let is_gone = closed == Some(id) || succeeded.as_ref() == Some(id) || is_child_of_ended;
            is_gone || known.last_seen + idle <= now
        };
        let known = self.open.iter().chain(&self.away);
        let over: Vec<SessionId> =
            known.filter(|(id, known)| is_over(id, known)).map(|(id, _)| id.clone()).collect();
        for id in over {
            self.open.remove(&id);
            self.away.remove(&id);
            self.delivered.remove(&id);
            self.cancelled.retain(|(session, _)| *session != id);
            self.carriers.close(&id);
            self.spending.close(&id);
            self.recalled.retain(|(session, _)| *session != id);
            let mut left = self.places.remove(&id).unwrap_or_default();
            left.retain(|_, place| *place != Place::Over);
            assert!(left.is_empty(), "{id} is closed and leaves {left:?}");
        }
        for (is_open, known) in [(true, &self.open), (false, &self.away)] {
            let shown = engine.sessions().views().filter(|session| session.is_open == is_open);
            let shown: Vec<&SessionId> = shown.map(|session| session.id).collect();
            assert_eq!(shown, known.keys().collect::<Vec<_>>(), "the sessions at {now}, open: {is_open}");
        }
    }

    /// The ledger agrees with the queues and leases.
    fn compare(&self, engine: &Engine, now: Timestamp) {
        for session in engine.sessions().views() {
            let view = session.injector.view(now);
            let mut held = BTreeMap::new();
            for pending in view.pending {
                let id = pending.notification.id;
                let again = match self.places[session.id].get(&id) {
                    Some(Place::Queued { again }) if self.is_retaining(&id) => *again,
                    _ => pending.redelivered,
                };
                held.insert(id, Place::Queued { again });
            }
            for lease in view.leases {
                for id in lease.notifications {
                    let before = self.places[session.id].get(&id);
                    let again = matches!(before, Some(Place::Leased { again: true, .. }));
                    let place = Place::Leased { injection: lease.injection, again };
                    assert_eq!(held.insert(id, place), None, "in two places");
                }
            }
            let places = self.places.get(session.id).into_iter().flatten();
            let known = places.filter(|(_, place)| **place != Place::Over);
            let known: BTreeMap<_, _> = known.map(|(id, place)| (*id, place.clone())).collect();
            assert_eq!(held, known, "of {}", session.id);
        }
        let unclaimed = self.made.values().filter(|made| made.is_unclaimed).count();
        assert_eq!(engine.sessions().unclaimed_len(), unclaimed);
    }
}

/// Whether a type matches a pattern, segment by segment.
fn is_match(pattern: &[&str], segments: &[&str]) -> bool {
    match (pattern, segments) {
        ([], []) => true,
        (["**"], [_, ..]) => true,
        ([wanted, pattern @ ..], [segment, segments @ ..]) => {
            (*wanted == "*" || wanted == segment) && is_match(pattern, segments)
        }
        ([], _) | (_, []) => false,
    }
}

fn loses_context(content: Option<&Content>) -> bool {
    let Some(Content::Exchange(exchange)) = content else { return false };
    matches!(exchange.context, ContextChange::Compacted | ContextChange::Resumed)
}

fn injected(output: &Output) -> Option<NotificationId> {
    match output {
        Output::Record(LedgerEntry::Injected { notification, .. }) => Some(*notification),
        Output::Record(_)
        | Output::Made(_)
        | Output::Said(_)
        | Output::Session(..)
        | Output::Answer { .. }
        | Output::Publish(_)
        | Output::Refuse { .. }
        | Output::Wake(_) => None,
    }
}
