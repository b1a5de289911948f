//! Compares the injector with a list that is scanned and sorted at every step: random inputs must
//! have the same result in both.

mod leases;
mod turns;

use std::collections::BTreeMap;

use proptest::prelude::*;
use strum::VariantArray;

use super::{
    tests::{Brief, exchange, limits, notification},
    *,
};
use crate::{
    budget::Budgets,
    event::Severity,
    exchange::{CarrierEffect, Trigger},
    notification::{Activation, Interrupt, NotificationId},
    session::WakeKind,
};

const LEASE_MS: u64 = 500;
const QUEUE_LEN_MAX: usize = 6;
const NOTIFICATIONS_MAX: u32 = 3;
type TurnAndStep = [Option<Arc<str>>; 2];

#[derive(Debug, Clone)]
enum Step {
    Push {
        id: u8,
        priority: usize,
        inject_at: usize,
        severity: usize,
        ttl: Option<u64>,
        by_itself: usize,
    },
    Exchange {
        point: usize,
        carrier: u8,
        turn: Option<u8>,
        step: Option<u8>,
        carrier_effect: CarrierEffect,
        trigger: Trigger,
    },
    Ack {
        injection: u8,
    },
    Undelivered {
        injection: u8,
    },
    Decide {
        id: u8,
        decision: usize,
    },
    Woken,
    Timeout,
}

/// An activation and an interrupt for each number below nine.
fn by_itself(number: usize) -> (Activation, Interrupt) {
    (Activation::VARIANTS[number % 3], Interrupt::VARIANTS[number / 3])
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let ttl = proptest::option::of(0_u64..800);
    let carrier_effect =
        prop_oneof![Just(CarrierEffect::None), Just(CarrierEffect::Continue), Just(CarrierEffect::Cancel)];
    let trigger = prop_oneof![8 => Just(Trigger::Agent), 1 => Just(Trigger::Pull), 1 => Just(Trigger::Wake)];
    let named = (proptest::option::of(0..2_u8), proptest::option::of(0..4_u8));
    let step = prop_oneof![
        6 => (0..40_u8, 0..4_usize, 0..5_usize, 0..5_usize, ttl, 0..9_usize).prop_map(
            |(id, priority, inject_at, severity, ttl, by_itself)| {
                Step::Push { id, priority, inject_at, severity, ttl, by_itself }
            }
        ),
        2 => (0..40_u8, 0..2_usize).prop_map(|(id, decision)| Step::Decide { id, decision }),
        5 => (0..5_usize, 0..60_u8, named, carrier_effect, trigger).prop_map(
            |(point, carrier, (turn, step), carrier_effect, trigger)| {
                Step::Exchange { point, carrier, turn, step, carrier_effect, trigger }
            }
        ),
        1 => (0..40_u8).prop_map(|injection| Step::Ack { injection }),
        1 => (0..40_u8).prop_map(|injection| Step::Undelivered { injection }),
        1 => Just(Step::Woken),
        2 => Just(Step::Timeout),
    ];
    (0_u64..200, step)
}

/// One notification of the reference, and its place.
#[derive(Debug, Clone)]
struct Known {
    notification: Notification,
    arrival: usize,
    place: Place,
    is_redelivered: bool,
    has_cancelled: bool,
    /// The user released it to the agent.
    is_discussed: bool,
}

impl Known {
    fn waits_for_user(&self) -> bool {
        self.notification.activation == Activation::Prompt && !self.is_discussed
    }

    /// The user wants it delivered to the agent.
    fn is_asked_for(&self) -> bool {
        self.notification.activation == Activation::Prompt && self.is_discussed
    }

    fn is_let_out_at(&self, point: InjectionPoint, is_woken: bool) -> bool {
        let Notification { priority, inject_at, interrupt, .. } = self.notification;
        if priority == Priority::Critical && interrupt == Interrupt::QueueForNext && !self.is_asked_for() {
            return point == InjectionPoint::TurnStart && !self.waits_for_user();
        }
        !self.waits_for_user() && (is_woken || point::releases(point, inject_at, priority))
    }

    fn is_active(&self, least: Priority) -> bool {
        let notification = &self.notification;
        let is_active = notification.activation == Activation::Active;
        self.place == Place::Queue && is_active && notification.priority >= least
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Queue,
    Lease(usize),
    Ended,
}

/// The answer to a carrier, and its release.
#[derive(Debug)]
struct Answered {
    exchange: Exchange,
    at: u64,
    release: usize,
    /// Number of the agent's exchanges, this one included.
    history_len: usize,
}

#[derive(Debug)]
struct Released {
    turn: Option<Arc<str>>,
    /// The turn for which it counts, and how many steps of it had been named, this one included.
    counts_for: (usize, usize),
    is_at_end: bool,
    is_pushed: bool,
    expires_at: u64,
    /// Number of answers that hold it and were not lost.
    answers: u32,
}

/// The reference: every notification in one list, and every release.
#[derive(Debug, Default)]
struct Naive {
    known: Vec<Known>,
    releases: Vec<Released>,
    answered: Vec<Answered>,
    /// All exchanges of the agent that were no repetitions.
    history: Vec<Exchange>,
    is_woken: bool,
    /// The release that replaced the first call of a batch, its turn and step, and when.
    held: Option<(usize, TurnAndStep, u64)>,
    turn: Option<Arc<str>>,
    continuations: u32,
}

impl Naive {
    fn goes_before(a: &Known, b: &Known) -> std::cmp::Ordering {
        let rank = |known: &Known| {
            (std::cmp::Reverse(known.notification.priority), known.notification.created_at, known.arrival)
        };
        rank(a).cmp(&rank(b))
    }

    fn push(&mut self, notification: Notification) {
        if self.known.iter().any(|known| known.notification.id == notification.id) {
            return;
        }
        let arrival = self.known.len();
        self.known.push(Known {
            notification,
            arrival,
            place: Place::Queue,
            is_redelivered: false,
            has_cancelled: false,
            is_discussed: false,
        });
        self.evict();
    }

    fn evict(&mut self) {
        let waiting = self.known.iter_mut().filter(|known| known.place == Place::Queue);
        let mut waiting: Vec<&mut Known> = waiting.collect();
        waiting.sort_by(|a, b| {
            let rank =
                |known: &Known| (known.notification.priority, known.notification.created_at, known.arrival);
            rank(a).cmp(&rank(b))
        });
        let too_many = waiting.len().saturating_sub(QUEUE_LEN_MAX);
        for known in waiting.into_iter().take(too_many) {
            known.place = Place::Ended;
        }
    }

    fn expire(&mut self, now: u64) {
        for known in &mut self.known {
            let is_over = known.notification.expires_at.is_some_and(|at| at.as_millis() <= now);
            if known.place == Place::Queue && is_over {
                known.place = Place::Ended;
            }
        }
    }

    fn is_other_turn(one: Option<&Arc<str>>, other: Option<&Arc<str>>) -> bool {
        one.is_some() && other.is_some() && one != other
    }

    /// A batch that is being cancelled ends with its turn, with the next results, or after a while.
    fn end_batch(&mut self, exchange: &Exchange, now: u64) {
        let Some((_, [turn, step], at)) = &self.held else { return };
        let other_turn = Self::is_other_turn(turn.as_ref(), exchange.turn.as_ref())
            || Self::is_other_turn(step.as_ref(), exchange.step.as_ref());
        let is_later = !matches!(exchange.point, InjectionPoint::BeforeTool | InjectionPoint::Immediate);
        if other_turn || is_later || now - at >= 10_000 {
            self.held = None;
        }
    }

    /// The names that `exchange` releases, in order, and whether the harness gets a directive.
    fn exchange(&mut self, exchange: &Exchange, now: u64) -> (Vec<NotificationId>, bool) {
        self.end_batch(exchange, now);
        let pulls = exchange.trigger == Trigger::Pull;
        if exchange.trigger == Trigger::Agent {
            self.confirm(exchange, now);
        } else {
            self.renew(exchange, now);
        }
        self.expire(now);
        let changes_turn = self.turn.is_some() && exchange.turn.is_some() && self.turn != exchange.turn;
        if exchange.point == InjectionPoint::TurnStart || changes_turn {
            self.continuations = 0;
        }
        self.turn = exchange.turn.clone().or(self.turn.take());
        let point = if pulls { InjectionPoint::TurnStart } else { exchange.point };
        let is_pending = |known: &&Known| known.place == Place::Queue;
        let takes_all = self.known.iter().filter(is_pending).any(|known| {
            known.notification.priority == Priority::Critical && known.is_let_out_at(point, false)
        });
        let is_woken = self.is_woken || takes_all;
        let waiting = self.known.iter_mut().filter(|known| known.place == Place::Queue);
        let mut due: Vec<&mut Known> = waiting.filter(|known| known.is_let_out_at(point, is_woken)).collect();
        due.sort_by(|a, b| Self::goes_before(a, b));
        let is_critical = |known: &Known| known.notification.priority == Priority::Critical;
        let criticals = due.iter().filter(|known| is_critical(known)).count();
        let at_end = exchange.point == InjectionPoint::TurnEnd;
        if at_end && criticals == 0 {
            self.continuations = 0;
        }
        let goes_on = at_end && criticals > 0 && self.continuations < CONTINUATIONS_MAX;
        if at_end && exchange.carrier_effect == CarrierEffect::Continue && !goes_on {
            return (Vec::new(), false);
        }
        let fresh = due.iter().any(|known| is_critical(known) && !known.has_cancelled);
        let before_tool = exchange.point == InjectionPoint::BeforeTool;
        let cancels = before_tool && (fresh || self.held.is_some());
        if before_tool && exchange.carrier_effect == CarrierEffect::Cancel && !fresh {
            return (Vec::new(), cancels);
        }
        self.is_woken = false;
        self.continuations += u32::from(goes_on);
        due.truncate(criticals.max(usize::try_from(NOTIFICATIONS_MAX).expect("small")));
        let lease = self.releases.len();
        if before_tool && fresh {
            self.held = Some((lease, [exchange.turn.clone(), exchange.step.clone()], now));
        }
        let names = due.iter().map(|known| known.notification.id).collect();
        for known in due {
            known.place = Place::Lease(lease);
            known.has_cancelled |= cancels;
        }
        (names, goes_on || cancels)
    }

    fn decide(&mut self, id: &NotificationId, decision: Decision) -> bool {
        let is_it = |known: &&mut Known| known.place == Place::Queue && known.notification.id == *id;
        let Some(known) = self.known.iter_mut().find(is_it) else { return false };
        let waits_for_user = known.waits_for_user();
        match decision {
            Decision::Dismiss => known.place = Place::Ended,
            Decision::Discuss => known.is_discussed |= waits_for_user,
        }
        decision == Decision::Dismiss || waits_for_user
    }

    fn wake(&self, state: SessionState) -> Option<WakeKind> {
        let is_wanted = |interrupt| {
            let active = self.known.iter().filter(|known| known.is_active(Priority::Critical));
            active.map(|known| known.notification.interrupt).any(|found| found == interrupt)
        };
        if state == SessionState::Idle {
            let is_worth_a_turn = |known: &Known| {
                known.is_active(Priority::High) || known.place == Place::Queue && known.is_asked_for()
            };
            return self.known.iter().any(is_worth_a_turn).then_some(WakeKind::StartTurn);
        }
        if is_wanted(Interrupt::CancelAndRestart) {
            return Some(WakeKind::CancelAndRestart);
        }
        is_wanted(Interrupt::InjectAndContinue).then_some(WakeKind::InjectAndContinue)
    }

    fn pending(&self) -> Vec<NotificationId> {
        let mut waiting: Vec<&Known> =
            self.known.iter().filter(|known| known.place == Place::Queue).collect();
        waiting.sort_by(|a, b| Self::goes_before(a, b));
        waiting.into_iter().map(|known| known.notification.id).collect()
    }
}

/// The injector and the reference, driven through the same steps.
struct Pair {
    injector: Injector,
    naive: Naive,
    ledger: Vec<LedgerEntry>,
    now: u64,
}

impl Pair {
    fn step(&mut self, step: Step) {
        let now = Timestamp::from_millis(self.now);
        match step {
            Step::Push { id, priority, inject_at, severity, ttl, by_itself: number } => {
                let (activation, interrupt) = by_itself(number);
                let made = Notification {
                    activation,
                    interrupt,
                    severity: Severity::VARIANTS[severity],
                    created_at: now,
                    expires_at: ttl.map(|ttl| now + Duration::from_millis(ttl)),
                    ..notification(
                        &format!("n#{id}"),
                        Priority::VARIANTS[priority],
                        InjectionPoint::VARIANTS[inject_at],
                    )
                };
                self.injector.push(Arc::new(made.clone()));
                self.naive.push(made);
            }
            Step::Exchange { point, carrier, turn, step, carrier_effect, trigger } => {
                let carrier = format!("c{carrier}");
                let exchange = Exchange {
                    turn: turn.map(|turn| turn.to_string().into()),
                    step: step.map(|step| step.to_string().into()),
                    carrier_effect,
                    trigger,
                    ..exchange(InjectionPoint::VARIANTS[point], &carrier)
                };
                self.exchange(&exchange, now);
            }
            Step::Ack { injection } => {
                self.injector.ack(
                    &InjectionId::new(&format!("i{injection}")),
                    ConfirmedBy::Ack,
                    Timestamp::ZERO,
                );
                self.ack(usize::from(injection));
            }
            Step::Undelivered { injection } => {
                self.injector.undelivered(&InjectionId::new(&format!("i{injection}")), Timestamp::ZERO);
                self.undelivered(usize::from(injection));
            }
            Step::Decide { id, decision } => {
                let (id, decision) = (NotificationId::new(&format!("n#{id}")), Decision::VARIANTS[decision]);
                assert_eq!(self.injector.decide(&id, decision), self.naive.decide(&id, decision));
            }
            Step::Woken => {
                self.injector.woken();
                self.naive.is_woken = true;
            }
            Step::Timeout => {
                self.injector.handle_timeout(now);
                self.naive.run_out(self.now);
            }
        }
        self.ledger.extend(self.injector.take_outputs());
    }

    fn exchange(&mut self, exchange: &Exchange, now: Timestamp) {
        let replayed = self.injector.replay(exchange, now).is_some();
        let release = self.naive.replays(exchange, self.now);
        assert_eq!(replayed, release.is_some());
        if let Some(release) = release {
            self.naive.releases[release].answers += 1;
            self.naive.renew(exchange, self.now);
            return;
        }
        if exchange.trigger == Trigger::Agent {
            self.injector.confirm_by_exchange(exchange, Beginning::OfTurn, now);
        } else {
            self.injector.renew_leases(exchange, now);
        }
        let limits = limits(NOTIFICATIONS_MAX);
        self.injector.note_exchange(exchange, now);
        let offer = self.injector.offer(exchange, &limits);
        let due: u32 = offer.due.values().sum();
        assert!(usize::try_from(due).expect("small") >= offer.candidates.len());
        let decided = fit(offer, &limits, &Room::unlimited(), &Brief);
        let id = InjectionId::new(&format!("i{}", self.naive.releases.len()));
        let terms = Terms {
            lease: Duration::from_millis(LEASE_MS),
            has_delivery_notice: true,
            for_user: None,
            starts_turn: false,
            budgets: &Budgets::NONE,
        };
        let answer = self.injector.release(exchange, decided, || id, terms, now);
        let (expected, goes_on) = self.naive.exchange(exchange, self.now);
        let released = answer.injection.map_or(Vec::new(), |injection| injection.notifications);
        let names: Vec<NotificationId> = released.iter().map(|released| released.id).collect();
        assert_eq!((names, answer.directive.is_some()), (expected, goes_on));
        let release = self.naive.releases.len();
        self.naive.answered.retain(|answered| {
            let before = &answered.exchange;
            before.carrier != exchange.carrier
                || Naive::is_other_turn(before.turn.as_ref(), exchange.turn.as_ref())
        });
        let history_len = self.naive.history.len();
        self.naive.answered.push(Answered { exchange: exchange.clone(), at: self.now, release, history_len });
        let is_present =
            exchange.trigger == Trigger::Agent && self.naive.turns().last().copied().flatten().is_some();
        self.naive.releases.push(Released {
            turn: if is_present { exchange.turn.clone() } else { self.naive.turn_name() },
            counts_for: self.naive.place(exchange),
            is_at_end: exchange.point == InjectionPoint::TurnEnd,
            is_pushed: exchange.trigger == Trigger::Wake,
            expires_at: self.now + LEASE_MS,
            answers: 1,
        });
    }

    fn ack(&mut self, injection: usize) {
        let mut is_open = false;
        for known in self.naive.known.iter_mut().filter(|known| known.place == Place::Lease(injection)) {
            known.place = Place::Ended;
            is_open = true;
        }
        if is_open {
            return;
        }
        // A lost release counts as if it had not been made.
        let is_lost = |name: &InjectionId| {
            let release = name.as_str().strip_prefix('i').and_then(|number| number.parse::<usize>().ok());
            release.is_some_and(|release| self.naive.releases[release].answers == 0)
        };
        let name = InjectionId::new(&format!("i{injection}"));
        for known in self.naive.known.iter_mut().filter(|known| known.place == Place::Queue) {
            let injection_of = |entry: &LedgerEntry| {
                if let LedgerEntry::Injected { notification, injection, .. } = entry
                    && *notification == known.notification.id
                {
                    return Some(*injection).filter(|injection| !is_lost(injection));
                }
                None
            };
            let left_with = self.ledger.iter().rev().find_map(injection_of);
            if known.is_redelivered && left_with.as_ref() == Some(&name) {
                known.place = Place::Ended;
            }
        }
    }

    fn undelivered(&mut self, injection: usize) {
        if !self.naive.known.iter().any(|known| known.place == Place::Lease(injection)) {
            return;
        }
        let release = &mut self.naive.releases[injection];
        release.answers -= 1;
        if release.answers > 0 {
            return;
        }
        self.naive.answered.retain(|answered| answered.release != injection);
        if self.naive.held.as_ref().is_some_and(|(held, ..)| *held == injection) {
            self.naive.held = None;
        }
        for index in 0..self.naive.known.len() {
            if self.naive.known[index].place == Place::Lease(injection) {
                self.naive.known[index].place = Place::Queue;
                self.naive.known[index].has_cancelled = false;
                self.naive.evict();
            }
        }
    }

    fn check(&self) {
        let view = self.injector.view(Timestamp::from_millis(self.now));
        let pending: Vec<_> = view.pending.into_iter().map(|waiting| waiting.notification.id).collect();
        assert_eq!(pending, self.naive.pending());
        for state in [SessionState::Idle, SessionState::ToolPending] {
            let wake = self.injector.wake(state, Priority::High).map(|wake| wake.kind);
            assert_eq!(wake, self.naive.wake(state), "{state:?}");
        }
        let waiting = self.naive.known.iter().filter(|known| known.place == Place::Queue);
        let (for_user, for_agent): (Vec<&Known>, Vec<&Known>) =
            waiting.partition(|known| known.waits_for_user());
        let top = for_agent.iter().map(|known| known.notification.priority).max();
        let count = |of: &[&Known]| u32::try_from(of.len()).expect("few");
        assert_eq!(self.injector.pending(), (count(&for_agent), top));
        for priority in Priority::VARIANTS.iter().copied() {
            let of_it = for_agent.iter().filter(|known| known.notification.priority == priority).count();
            assert_eq!(self.injector.pending_of(priority), u32::try_from(of_it).expect("few"));
        }
        assert_eq!(self.injector.for_user(), count(&for_user));
        let on_its_way = view.leases.into_iter().flat_map(|lease| lease.notifications).count();
        let leased = |known: &&Known| matches!(known.place, Place::Lease(_));
        assert_eq!(on_its_way, self.naive.known.iter().filter(leased).count());
        let expires_at = |known: &Known| match known.place {
            Place::Queue => known.notification.expires_at.map(Timestamp::as_millis),
            Place::Lease(lease) => Some(self.naive.releases[lease].expires_at),
            Place::Ended => None,
        };
        let next = self.naive.known.iter().filter_map(expires_at).min();
        assert_eq!(self.injector.poll_timeout().map(Timestamp::as_millis), next);
    }

    /// Every notification is queued once and ends at most once; those that ended have an entry for
    /// it.
    fn check_ledger(&self) {
        let mut endings: BTreeMap<&NotificationId, (u32, u32)> = BTreeMap::new();
        for entry in &self.ledger {
            if let LedgerEntry::Queued { notification, .. } = entry {
                endings.entry(notification).or_default().0 += 1;
            }
            if let LedgerEntry::Confirmed { notification, .. }
            | LedgerEntry::NotificationEnded { notification, .. } = entry
            {
                endings.entry(notification).or_default().1 += 1;
            }
        }
        for known in &self.naive.known {
            let is_ended = u32::from(known.place == Place::Ended);
            assert_eq!(endings.get(&known.notification.id), Some(&(1, is_ended)), "{known:?}");
        }
    }
}

fn run(steps: impl IntoIterator<Item = (u64, Step)>) {
    let queue_len_max = u32::try_from(QUEUE_LEN_MAX).expect("small");
    let mut pair = Pair {
        injector: Injector::new(SessionId::new("s1"), queue_len_max),
        naive: Naive::default(),
        ledger: Vec::new(),
        now: 0,
    };
    for (pause, step) in steps {
        pair.now += pause;
        pair.step(step);
        pair.check();
    }
    pair.check_ledger();
}

/// A notification returned from a lease and was released again, and that release was lost: the
/// first one can still be confirmed.
#[test]
fn a_late_ack_counts_after_a_lost_redelivery() {
    let exchange = |carrier| Step::Exchange {
        point: 0,
        carrier,
        turn: None,
        step: None,
        carrier_effect: CarrierEffect::None,
        trigger: Trigger::Agent,
    };
    run([
        (0, Step::Push { id: 0, priority: 0, inject_at: 0, severity: 3, ttl: None, by_itself: 2 }),
        (0, exchange(0)),
        (LEASE_MS, Step::Timeout),
        (0, exchange(1)),
        (0, Step::Undelivered { injection: 1 }),
        (0, Step::Ack { injection: 0 }),
    ]);
}

proptest! {
    #[test]
    fn the_injector_matches_a_naive_list_model(steps in proptest::collection::vec(step(), 1..120)) {
        run(steps);
    }
}
