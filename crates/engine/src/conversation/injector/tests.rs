//! Stories in simulated time: the notifications that one session's exchanges release, confirm and
//! end.

use super::*;
use crate::{
    budget::Budgets,
    event::{Seq, Severity},
    exchange::{CarrierEffect, Replaces, Role},
    notification::{Activation, Cut, Detail, Interrupt, LeftOut, NotificationId, Tokens},
};

use InjectionPoint::{AfterTool, BeforeTool, Immediate, TurnEnd, TurnStart};
use Priority::{Critical, High, Low, Normal};
use strum::VariantArray;

pub(super) const TERMS: Terms<'_> = Terms {
    lease: Duration::from_millis(2_000),
    has_delivery_notice: true,
    for_user: None,
    starts_turn: false,
    budgets: &Budgets::NONE,
};
const QUEUE_LEN_MAX: u32 = 100;

/// An injector for stories: times in milliseconds, notifications by name, `subscriber#n` made by
/// `subscriber`.
pub(super) struct Story {
    pub(super) injector: Injector,
    injections: u32,
    max_notifications: u32,
}

impl Story {
    pub(super) fn new() -> Self {
        let injector = Injector::new(SessionId::new("s1"), QUEUE_LEN_MAX);
        Self { injector, injections: 0, max_notifications: 10 }
    }

    pub(super) fn push(&mut self, name: &str, priority: Priority, inject_at: InjectionPoint) -> bool {
        self.injector.push(Arc::new(notification(name, priority, inject_at)))
    }

    /// Makes an exchange without limits on the text, and returns the names of the released
    /// notifications.
    pub(super) fn exchange(&mut self, exchange: &Exchange, now: u64) -> Vec<String> {
        names(self.answer(exchange, now).injection.as_ref())
    }

    pub(super) fn answer(&mut self, exchange: &Exchange, now: u64) -> Answer {
        let now = Timestamp::from_millis(now);
        if let Some(replayed) = self.injector.replay(exchange, now) {
            return replayed.answer;
        }
        self.injector.confirm_by_exchange(exchange, Beginning::OfTurn, now);
        let limits = limits(self.max_notifications);
        self.injector.note_exchange(exchange, now);
        let offer = self.injector.offer(exchange, &limits);
        let decided = fit(offer, &limits, &Room::unlimited(), &Brief);
        self.injections += 1;
        let id = InjectionId::new(&format!("i{}", self.injections));
        self.injector.release(exchange, decided, || id, TERMS, now)
    }

    pub(super) fn timeout(&mut self, now: u64) {
        self.injector.handle_timeout(Timestamp::from_millis(now));
    }

    /// The ledger since the last call, as `name word` lines.
    pub(super) fn ledger(&mut self) -> Vec<String> {
        self.injector.take_outputs().iter().map(ledger_line).collect()
    }
}

/// Empty texts, and sentences that name subscribers.
pub(super) struct Brief;

impl Writer for Brief {
    fn write(&self, _: &[Candidate], _: LeftOut, _: Detail, _: Replaces) -> String {
        String::new()
    }

    fn sentence(&self, about: &[&Candidate]) -> String {
        let names: Vec<&str> = about.iter().map(|one| one.notification.subscriber.as_str()).collect();
        names.join(" ")
    }

    fn tokens(&self, _: &str) -> Tokens {
        Tokens(0)
    }

    fn shorten(&self, notification: &Notification, _: usize) -> Cut {
        panic!("{} fits", notification.id)
    }
}

pub(super) fn limits(max_notifications: u32) -> Limits {
    Limits::new(max_notifications, Tokens(u32::MAX), u32::MAX)
}

fn ledger_line(entry: &LedgerEntry) -> String {
    match entry {
        LedgerEntry::Queued { notification, .. } => format!("{notification} queued"),
        LedgerEntry::Injected { notification, injection, redelivered, .. } => {
            format!(
                "{notification} {injection}{}",
                redelivered.map_or(String::new(), |why| format!(" {}", why.as_str()))
            )
        }
        LedgerEntry::Confirmed { notification, by, .. } => format!("{notification} {}", by.as_str()),
        LedgerEntry::Returned { notification, .. } => format!("{notification} returned"),
        LedgerEntry::Recalled { notification, .. } => format!("{notification} recalled"),
        LedgerEntry::Repeated { notification, number, .. } => match number {
            Some(number) => format!("{notification} repeats {number}"),
            None => format!("{notification} waits for an answer"),
        },
        LedgerEntry::Responded { notification, action, .. } => format!("{notification} {}", action.state()),
        LedgerEntry::NotificationEnded { notification, session, reason } => {
            assert_eq!(session.as_ref().map(SessionId::as_str), Some("s1"));
            format!("{notification} {}", reason.as_str())
        }
        LedgerEntry::Unmatched { .. }
        | LedgerEntry::Throttled { .. }
        | LedgerEntry::Skipped { .. }
        | LedgerEntry::Batched { .. }
        | LedgerEntry::EventEnded { .. }
        | LedgerEntry::Created { .. }
        | LedgerEntry::Unclaimed { .. }
        | LedgerEntry::ForUser { .. } => panic!("no business of the injector: {entry:?}"),
    }
}

pub(super) fn names(injection: Option<&Injection>) -> Vec<String> {
    let released = injection.map(|injection| injection.notifications.as_slice()).unwrap_or_default();
    released.iter().map(|released| released.id.to_string()).collect()
}

pub(super) fn notification(name: &str, priority: Priority, inject_at: InjectionPoint) -> Notification {
    let subscriber = SubscriberId::new(name.split('#').next().unwrap_or(name));
    Notification { subscriber, inject_at, ..Notification::example(name, priority) }
}

pub(super) fn exchange(point: InjectionPoint, carrier: &str) -> Exchange {
    Exchange::new(SessionId::new("s1"), point, carrier)
}

pub(super) fn in_turn(turn: &str, exchange: Exchange) -> Exchange {
    Exchange { turn: Some(turn.into()), ..exchange }
}

pub(super) fn in_step(step: &str, exchange: Exchange) -> Exchange {
    Exchange { step: Some(step.into()), ..exchange }
}

pub(super) fn continuing(carrier: &str) -> Exchange {
    Exchange { carrier_effect: CarrierEffect::Continue, ..exchange(TurnEnd, carrier) }
}

#[test]
fn notifications_leave_by_priority_then_by_age() {
    let mut story = Story::new();
    for (name, priority, inject_at, created_at) in [
        ("low", Low, TurnEnd, 1),
        ("normal#2", Normal, AfterTool, 3),
        ("normal#1", Normal, TurnStart, 2),
        ("normal#3", Normal, AfterTool, 3),
        ("high", High, TurnStart, 9),
        ("critical", Critical, Immediate, 10),
    ] {
        let created_at = Timestamp::from_millis(created_at);
        let made = Notification { created_at, ..notification(name, priority, inject_at) };
        story.injector.push(Arc::new(made));
    }
    let released = story.exchange(&exchange(TurnStart, "c1"), 20);
    assert_eq!(released, ["critical", "high", "normal#1", "normal#2", "normal#3", "low"]);
}

#[test]
fn a_point_leaves_what_is_not_its_own() {
    let mut story = Story::new();
    story.push("at_start", Normal, TurnStart);
    story.push("after_tool", Normal, AfterTool);
    story.push("at_end", Normal, TurnEnd);
    story.push("low", Low, TurnEnd);
    story.push("high", High, TurnStart);
    assert!(story.exchange(&exchange(BeforeTool, "c1"), 0).is_empty());
    assert_eq!(story.exchange(&exchange(AfterTool, "c2"), 1), ["high", "after_tool"]);
    assert_eq!(story.exchange(&exchange(TurnEnd, "c3"), 2), ["at_end", "low"]);
    assert_eq!(story.exchange(&exchange(TurnStart, "c4"), 3), ["at_start"]);
}

#[test]
fn the_first_exchange_after_a_wake_releases_everything() {
    let mut story = Story::new();
    story.push("first", Normal, TurnStart);
    story.injector.woken();
    assert_eq!(story.exchange(&exchange(AfterTool, "c1"), 0), ["first"]);
    story.push("second", Normal, TurnStart);
    assert!(story.exchange(&exchange(AfterTool, "c2"), 1_000).is_empty());
}

#[test]
fn a_wake_survives_an_exchange_without_injection() {
    let mut story = Story::new();
    story.push("first", Normal, TurnStart);
    story.injector.woken();
    assert!(story.exchange(&continuing("c1"), 0).is_empty());
    assert_eq!(story.exchange(&exchange(AfterTool, "c2"), 1), ["first"]);
}

#[test]
fn a_repeated_carrier_gets_the_same_answer() {
    let mut story = Story::new();
    let nothing = story.answer(&exchange(AfterTool, "c1"), 0);
    assert_eq!(nothing, Answer::default());
    story.push("n", Normal, AfterTool);
    assert_eq!(story.answer(&exchange(AfterTool, "c1"), 1), nothing);
    let first = story.answer(&exchange(AfterTool, "c2"), 2);
    assert_eq!(first.injection.as_ref().map(|injection| injection.role), Some(Role::Tool));
    assert_eq!(story.answer(&exchange(AfterTool, "c2"), 900), first);
    assert_eq!(story.ledger(), ["n queued", "n i2"]);
}

#[test]
fn the_oldest_answer_is_forgotten_beyond_the_bound() {
    let mut story = Story::new();
    for carrier in 0..=CARRIERS_MAX {
        story.exchange(&exchange(AfterTool, &format!("c{carrier}")), 0);
    }
    let asks_again = |carrier: &str| exchange(AfterTool, carrier);
    assert_eq!(story.injector.replay(&asks_again("c0"), Timestamp::ZERO), None);
    assert!(story.injector.replay(&asks_again("c1"), Timestamp::ZERO).is_some());
}

#[test]
fn parallel_carriers_get_disjoint_injections() {
    let mut story = Story::new();
    story.max_notifications = 1;
    story.push("a", Normal, AfterTool);
    story.push("b", Normal, AfterTool);
    assert_eq!(story.exchange(&exchange(AfterTool, "c1"), 0), ["a"]);
    assert_eq!(story.exchange(&exchange(AfterTool, "c2"), 5), ["b"]);
    assert!(story.exchange(&exchange(TurnEnd, "c3"), 900).is_empty());
    assert_eq!(story.ledger(), ["a queued", "b queued", "a i1", "b i2", "a turn", "b turn"]);
    assert_eq!(story.injector.poll_timeout(), None);
}

#[test]
fn an_ack_confirms_once() {
    let mut story = Story::new();
    story.push("n", Normal, AfterTool);
    story.exchange(&exchange(AfterTool, "c1"), 0);
    story.injector.ack(&InjectionId::new("i1"), ConfirmedBy::Ack, Timestamp::ZERO);
    story.injector.ack(&InjectionId::new("i1"), ConfirmedBy::Ack, Timestamp::ZERO);
    story.injector.ack(&InjectionId::new("never"), ConfirmedBy::Ack, Timestamp::ZERO);
    assert_eq!(story.ledger(), ["n queued", "n i1", "n ack"]);
}

#[test]
fn an_expired_lease_returns_important_notifications_once() {
    let mut story = Story::new();
    story.push("critical", Critical, Immediate);
    let severity = Severity::Error;
    story.injector.push(Arc::new(Notification { severity, ..notification("error", Normal, AfterTool) }));
    story.push("high", High, AfterTool);
    story.exchange(&exchange(AfterTool, "c1"), 0);
    story.ledger();
    assert_eq!(story.injector.poll_timeout(), Some(Timestamp::from_millis(2_000)));
    story.timeout(1_999);
    assert!(story.ledger().is_empty());
    story.timeout(2_000);
    assert_eq!(story.ledger(), ["critical returned", "high uncertain", "error returned"]);
    let again = story.answer(&exchange(AfterTool, "c2"), 2_000).injection.expect("two came back");
    let redelivered: Vec<_> =
        again.notifications.iter().map(|released| (released.id.as_str(), released.redelivered)).collect();
    assert_eq!(redelivered, [("critical", true), ("error", true)]);
    story.timeout(4_000);
    assert_eq!(
        story.ledger(),
        ["critical i2 unconfirmed", "error i2 unconfirmed", "critical uncertain", "error uncertain"]
    );
    assert_eq!(story.injector.pending(), (0, None));
}

#[test]
fn a_full_lease_table_expires_the_oldest_lease() {
    let mut story = Story::new();
    for turn in 0..=lease::LEASES_MAX {
        story.push(&format!("a#{turn}"), if turn == 0 { Critical } else { High }, AfterTool);
        story.ledger();
        let released = story.exchange(&exchange(AfterTool, &turn.to_string()), 0);
        assert_eq!(released, [format!("a#{turn}")]);
    }
    assert_eq!(story.ledger(), ["a#64 i65", "a#0 returned"]);
    assert_eq!(usize::try_from(story.injector.unconfirmed()), Ok(lease::LEASES_MAX));
    assert_eq!(story.exchange(&exchange(AfterTool, "later"), 0), ["a#0"]);
    assert_eq!(story.ledger(), ["a#0 i66 unconfirmed", "a#1 uncertain"]);
}

#[test]
fn an_early_expired_lease_sets_no_timeout() {
    let mut story = Story::new();
    for turn in 0..=lease::LEASES_MAX {
        story.push(&format!("a#{turn}"), Low, AfterTool);
        let exchange = exchange(AfterTool, &turn.to_string());
        story.exchange(&exchange, if turn == 0 { 0 } else { 500 });
    }
    assert_eq!(story.injector.poll_timeout(), Some(Timestamp::from_millis(500) + TERMS.lease));
    story.timeout(2_000);
    assert_eq!(story.injector.poll_timeout(), Some(Timestamp::from_millis(500) + TERMS.lease));
}

#[test]
fn a_late_ack_removes_the_returned_notification() {
    let mut story = Story::new();
    story.push("critical", Critical, Immediate);
    story.exchange(&exchange(AfterTool, "c1"), 0);
    story.timeout(2_000);
    story.injector.ack(&InjectionId::new("i1"), ConfirmedBy::Ack, Timestamp::ZERO);
    assert_eq!(story.ledger(), ["critical queued", "critical i1", "critical returned", "critical ack"]);
    assert!(story.exchange(&exchange(TurnStart, "c2"), 3_000).is_empty());
}

#[test]
fn an_undelivered_injection_requeues_its_notifications() {
    let mut story = Story::new();
    story.push("a", Normal, AfterTool);
    story.push("b", Normal, AfterTool);
    story.max_notifications = 1;
    story.exchange(&exchange(AfterTool, "c1"), 0);
    story.injector.undelivered(&InjectionId::new("i1"), Timestamp::ZERO);
    story.injector.undelivered(&InjectionId::new("i1"), Timestamp::ZERO);
    assert_eq!(story.exchange(&exchange(AfterTool, "c1"), 1), ["a"]);
    assert_eq!(story.ledger(), ["a queued", "b queued", "a i1", "a returned", "a i2"]);
}

#[test]
fn a_notification_comes_to_a_session_once() {
    let mut story = Story::new();
    assert!(story.push("n", Normal, AfterTool));
    assert!(!story.push("n", Normal, AfterTool));
    story.exchange(&exchange(AfterTool, "c1"), 0);
    assert!(!story.push("n", Normal, AfterTool));
    story.injector.ack(&InjectionId::new("i1"), ConfirmedBy::Ack, Timestamp::ZERO);
    assert!(!story.push("n", Normal, AfterTool));
    assert_eq!(story.ledger(), ["n queued", "n i1", "n ack"]);
}

#[test]
fn a_leased_notification_is_never_accepted_again() {
    let mut story = Story::new();
    story.push("n", Normal, AfterTool);
    story.exchange(&exchange(AfterTool, "c1"), 0);
    story.injector.set_queue_len_max(0);
    for other in 0..=delivered::RECENT_IDS_MAX {
        story.push(&format!("other#{other}"), Normal, AfterTool);
        assert!(story.ledger().last().is_some_and(|line| line.ends_with(" queue_overflow")));
    }
    assert!(!story.push("n", Normal, AfterTool));
    story.injector.ack(&InjectionId::new("i1"), ConfirmedBy::Ack, Timestamp::ZERO);
    assert!(!story.push("n", Normal, AfterTool));
}

#[test]
fn a_lower_bound_takes_effect_at_once() {
    let mut story = Story::new();
    for (name, priority) in [("low", Low), ("high", High), ("normal#1", Normal), ("normal#2", Normal)] {
        story.push(name, priority, AfterTool);
    }
    story.ledger();
    story.injector.set_queue_len_max(1);
    let ended = ["low queue_overflow", "normal#1 queue_overflow", "normal#2 queue_overflow"];
    assert_eq!(story.ledger(), ended);
}

#[test]
fn a_full_queue_evicts_oldest_of_lowest_priority() {
    let mut story = Story::new();
    story.injector.set_queue_len_max(3);
    story.push("low#1", Low, TurnEnd);
    story.push("normal#1", Normal, TurnStart);
    story.push("normal#2", Normal, AfterTool);
    for (name, priority) in [
        ("normal#3", Normal),
        ("critical#1", Critical),
        ("low#2", Low),
        ("critical#2", Critical),
        ("critical#3", Critical),
        ("critical#4", Critical),
    ] {
        assert!(story.push(name, priority, AfterTool), "{name}");
    }
    let overflowed: Vec<String> = story
        .ledger()
        .into_iter()
        .filter_map(|line| line.strip_suffix(" queue_overflow").map(str::to_owned))
        .collect();
    assert_eq!(overflowed, ["low#1", "normal#1", "low#2", "normal#2", "normal#3", "critical#1"]);
    assert_eq!(story.injector.pending(), (3, Some(Critical)));
}

#[test]
fn evicted_events_are_counted_until_reported() {
    let mut story = Story::new();
    story.injector.set_queue_len_max(1);
    for (name, events) in [("reminder#1", 15), ("reminder#2", 7), ("ci#1", 2)] {
        let events = (1..=events).map(Seq).collect();
        story.injector.push(Arc::new(Notification { events, ..notification(name, Normal, AfterTool) }));
    }
    let evicted = SortedMap::from([(SubscriberId::new("reminder"), 22)]);
    assert_eq!(*story.injector.evicted(), evicted);
    story.exchange(&exchange(AfterTool, "c1"), 0);
    assert_eq!(*story.injector.evicted(), SortedMap::new());
    story.injector.undelivered(&InjectionId::new("i1"), Timestamp::ZERO);
    assert_eq!(*story.injector.evicted(), evicted);
}

#[test]
fn critical_notification_releases_the_queue_at_any_point() {
    for point in InjectionPoint::VARIANTS.iter().copied() {
        let mut story = Story::new();
        for (name, priority, inject_at) in
            [("low", Low, TurnEnd), ("start", Normal, TurnStart), ("critical", Critical, Immediate)]
        {
            story.push(name, priority, inject_at);
        }
        let prompt =
            Notification { activation: Activation::Prompt, ..notification("prompt", High, AfterTool) };
        story.injector.push(Arc::new(prompt));
        let next_turn =
            Notification { interrupt: Interrupt::QueueForNext, ..notification("next", Critical, Immediate) };
        story.injector.push(Arc::new(next_turn));
        let expected: &[&str] = if point == TurnStart {
            &["critical", "next", "start", "low"]
        } else {
            &["critical", "start", "low"]
        };
        assert_eq!(story.exchange(&exchange(point, "c1"), 0), expected, "{point}");
    }
}

#[test]
fn an_expired_notification_is_not_delivered() {
    let mut story = Story::new();
    for (name, expires_at) in [("early", 100), ("late", 200)] {
        let expires_at = Some(Timestamp::from_millis(expires_at));
        story.injector.push(Arc::new(Notification { expires_at, ..notification(name, Normal, AfterTool) }));
    }
    assert_eq!(story.injector.poll_timeout(), Some(Timestamp::from_millis(100)));
    story.timeout(99);
    assert_eq!(story.injector.pending(), (2, Some(Normal)));
    assert_eq!(story.exchange(&exchange(AfterTool, "c1"), 100), ["late"]);
    assert_eq!(story.ledger(), ["early queued", "late queued", "early expired", "late i1"]);
}

#[test]
fn the_count_cap_spares_critical_notifications() {
    let mut story = Story::new();
    for n in 0..12 {
        story.push(&format!("fire#{n:02}"), Critical, Immediate);
    }
    story.push("ci#1", Normal, AfterTool);
    story.push("ci#2", Normal, AfterTool);
    story.push("later", Normal, TurnStart);
    let offer = story.injector.offer(&exchange(AfterTool, "c1"), &limits(10));
    let offered: Vec<&str> =
        offer.candidates.iter().map(|candidate| candidate.notification.id.as_str()).collect();
    assert_eq!(offered.len(), 12);
    assert!(offered.iter().all(|name| name.starts_with("fire#")));
    let due = [("ci", 2), ("fire", 12), ("later", 1)].map(|(id, count)| (SubscriberId::new(id), count));
    assert_eq!(offer.due, due.into());
}

#[test]
fn closing_a_session_hands_over_pending_notifications() {
    let mut story = Story::new();
    story.push("sent", Critical, AfterTool);
    story.exchange(&exchange(AfterTool, "c1"), 0);
    story.push("normal", Normal, AfterTool);
    story.push("high", High, TurnEnd);
    story.ledger();
    let left: Vec<String> =
        story.injector.close().into_iter().map(|left| left.notification.id.to_string()).collect();
    assert_eq!(left, ["high", "normal"]);
    assert_eq!(story.ledger(), ["sent uncertain"]);
    assert_eq!((story.injector.pending(), story.injector.poll_timeout()), ((0, None), None));
}

#[test]
fn the_view_shows_pending_and_leased_notifications() {
    let mut story = Story::new();
    story.push("sent", Normal, AfterTool);
    story.exchange(&exchange(AfterTool, "c1"), 100);
    story.push("waits", High, TurnEnd);
    assert_eq!(
        story.injector.view(Timestamp::from_millis(600)),
        InjectorView {
            pending: vec![PendingView {
                notification: Arc::new(notification("waits", High, TurnEnd)),
                is_for_user: false,
                age: Duration::from_millis(600),
                redelivered: false,
                holds: Vec::new(),
            }],
            leases: vec![LeaseView {
                injection: InjectionId::new("i1"),
                point: AfterTool,
                carrier: "c1".into(),
                age: Duration::from_millis(500),
                expires_at: Timestamp::from_millis(2_100),
                notifications: vec![NotificationId::new("sent")],
            }],
        }
    );
}
