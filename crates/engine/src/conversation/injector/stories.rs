//! Redelivery, calls that are cancelled together, and lines for the user, as short stories in
//! simulated time.

use super::{
    tests::{Brief, Story, TERMS, continuing, exchange, in_step, in_turn, limits, names, notification},
    *,
};
use crate::{
    event::{Scope, Seq},
    exchange::{CarrierEffect, Trigger},
    notification::{Activation, Nature, Resolution, State, StateKey},
    session::WakeKind,
};

use InjectionPoint::{AfterTool, BeforeTool, Immediate, TurnEnd, TurnStart};
use Priority::{Critical, High, Low, Normal};

fn push(story: &mut Story, name: &str, priority: Priority, nature: Nature) {
    let unresolved = match nature {
        Nature::Occurrence => Vec::new(),
        Nature::Condition => vec![State { key: StateKey(1), seq: Seq(1), version: None }],
    };
    let made = Notification { nature, unresolved, ..notification(name, priority, AfterTool) };
    story.injector.push(Arc::new(made));
}

/// A session to which an occurrence and a condition were delivered and confirmed; one notification
/// is leased, one pending.
fn in_the_midst() -> Story {
    let mut story = Story::new();
    push(&mut story, "happened", High, Nature::Occurrence);
    push(&mut story, "holds", High, Nature::Condition);
    story.exchange(&in_step("1", exchange(AfterTool, "c1")), 0);
    push(&mut story, "sent", High, Nature::Occurrence);
    story.exchange(&in_step("2", exchange(AfterTool, "c2")), 1_000);
    push(&mut story, "waits", Normal, Nature::Occurrence);
    story.ledger();
    story
}

#[test]
fn compaction_redelivers_conditions_but_not_confirmed_occurrences() {
    let mut story = in_the_midst();
    story.injector.lose_context(Timestamp::from_millis(1_100));
    assert_eq!(story.exchange(&exchange(TurnStart, "c3"), 1_100), ["sent", "holds", "waits"]);
    assert_eq!(
        story.ledger(),
        ["sent returned", "holds recalled", "sent i3 unconfirmed", "holds i3 context_lost", "waits i3"]
    );
}

#[test]
fn a_resume_redelivers_only_unconfirmed_notifications() {
    let mut story = in_the_midst();
    story.injector.resume_context(Timestamp::from_millis(1_100));
    assert_eq!(story.exchange(&exchange(TurnStart, "c3"), 1_100), ["sent", "waits"]);
    assert_eq!(story.ledger(), ["sent returned", "sent i3 unconfirmed", "waits i3"]);
}

#[test]
fn a_condition_lost_after_compaction_is_redelivered_once() {
    let mut story = Story::new();
    push(&mut story, "holds", Critical, Nature::Condition);
    story.exchange(&in_step("1", exchange(AfterTool, "c1")), 0);
    story.exchange(&in_step("2", exchange(AfterTool, "c2")), 1_000);
    story.injector.lose_context(Timestamp::from_millis(2_000));
    story.exchange(&exchange(TurnStart, "c3"), 2_000);
    story.ledger();
    story.timeout(4_000);
    assert_eq!(story.ledger(), ["holds returned"]);
    assert_eq!(story.exchange(&exchange(TurnStart, "c4"), 4_000), ["holds"]);
    story.timeout(6_000);
    assert_eq!(story.ledger(), ["holds i4 unconfirmed", "holds uncertain"]);
}

/// Resolves the condition of [`push`].
fn resolve(story: &mut Story) {
    let keys = vec![StateKey(1)];
    let resolution = Resolution {
        subscriber: SubscriberId::new("holds"),
        seq: Seq(2),
        scope: Scope::All,
        keys,
        version: None,
    };
    story.injector.resolve(&resolution);
}

#[test]
fn a_resolved_condition_is_withdrawn_and_never_redelivered() {
    let mut pending = Story::new();
    push(&mut pending, "holds", High, Nature::Condition);
    resolve(&mut pending);
    assert_eq!(pending.ledger(), ["holds queued", "holds withdrawn"]);
    let mut leased = Story::new();
    push(&mut leased, "holds", Critical, Nature::Condition);
    leased.exchange(&exchange(AfterTool, "c1"), 0);
    resolve(&mut leased);
    leased.timeout(4_000);
    assert_eq!(leased.ledger(), ["holds queued", "holds i1", "holds returned", "holds withdrawn"]);
    let mut delivered = Story::new();
    push(&mut delivered, "holds", High, Nature::Condition);
    delivered.exchange(&in_step("1", exchange(AfterTool, "c1")), 0);
    delivered.exchange(&in_step("2", exchange(AfterTool, "c2")), 1_000);
    resolve(&mut delivered);
    delivered.injector.lose_context(Timestamp::from_millis(2_000));
    assert!(delivered.exchange(&exchange(TurnStart, "c3"), 2_000).is_empty());
}

#[test]
fn a_notification_covering_an_occurrence_survives_resolution() {
    let mut story = Story::new();
    let unresolved = vec![State { key: StateKey(1), seq: Seq(1), version: None }];
    story.injector.push(Arc::new(Notification { unresolved, ..notification("holds", High, AfterTool) }));
    resolve(&mut story);
    assert_eq!(story.exchange(&in_step("1", exchange(AfterTool, "c1")), 0), ["holds"]);
    story.exchange(&in_step("2", exchange(AfterTool, "c2")), 1_000);
    story.injector.lose_context(Timestamp::from_millis(2_000));
    assert!(story.exchange(&exchange(TurnStart, "c3"), 2_000).is_empty());
}

fn cancelling(turn: &str, carrier: &str) -> Exchange {
    in_turn(turn, Exchange { carrier_effect: CarrierEffect::Cancel, ..exchange(BeforeTool, carrier) })
}

fn cancel(subscriber: &str) -> Option<Directive> {
    Some(Directive::Cancel { reason: subscriber.into() })
}

#[test]
fn cancellation_stops_every_batched_call_with_one_text() {
    let mut story = Story::new();
    push(&mut story, "budget", Critical, Nature::Occurrence);
    let first = story.answer(&cancelling("t1", "call1"), 0);
    assert_eq!((first.injection.is_some(), first.directive), (true, cancel("budget")));
    for (carrier, now) in [("call2", 5), ("call3", 900)] {
        let other = story.answer(&cancelling("t1", carrier), now);
        assert_eq!(
            (other.injection, other.directive, other.check_before_tool),
            (None, cancel("budget"), true)
        );
    }
    assert_eq!(story.ledger(), ["budget queued", "budget i1"], "nothing shows that it was read");
    let after = story.answer(&in_turn("t1", exchange(AfterTool, "batch")), 1_000);
    assert_eq!((after.directive, after.check_before_tool), (None, false));
    assert!(story.ledger().is_empty(), "the batch itself proves nothing");
    assert_eq!(story.answer(&cancelling("t1", "call1 again"), 2_000).directive, None);
}

#[test]
fn a_batch_ends_with_its_step_or_turn() {
    for (what, next, now) in [
        ("another turn", cancelling("t2", "c2"), 100),
        ("another step", in_step("2", cancelling("t1", "c2")), 100),
        ("a while", cancelling("t1", "c2"), 10_000),
    ] {
        let mut story = Story::new();
        push(&mut story, "budget", Critical, Nature::Occurrence);
        story.answer(&in_step("1", cancelling("t1", "c1")), 0);
        assert_eq!(story.answer(&next, now).directive, None, "{what}");
    }
}

#[test]
fn an_undelivered_cancellation_goes_to_the_next_call() {
    let mut story = Story::new();
    push(&mut story, "budget", Critical, Nature::Occurrence);
    story.answer(&cancelling("t1", "c1"), 0);
    story.injector.undelivered(&InjectionId::new("i1"), Timestamp::ZERO);
    let next = story.answer(&cancelling("t1", "c2"), 5);
    assert_eq!((next.injection.is_some(), next.directive), (true, cancel("budget")));
}

#[test]
fn critical_notifications_cancel_calls_even_on_text_carriers() {
    let mut story = Story::new();
    push(&mut story, "high", High, Nature::Occurrence);
    assert_eq!(story.answer(&exchange(BeforeTool, "c1"), 0).directive, None);
    push(&mut story, "budget", Critical, Nature::Occurrence);
    let answer = story.answer(&exchange(BeforeTool, "c2"), 100);
    assert_eq!(
        (answer.injection.map(|injection| injection.notifications.len()), answer.directive),
        (Some(2), cancel("budget"))
    );
}

#[test]
fn cached_answers_expire_with_point_turn_or_lease() {
    for (what, exchange, now) in [
        ("another point", in_turn("t1", exchange(TurnEnd, "main")), 500),
        ("another turn", in_turn("t2", exchange(AfterTool, "main")), 500),
        ("after the lease", in_turn("t1", exchange(AfterTool, "main")), 2_000),
    ] {
        let mut story = Story::new();
        push(&mut story, "first", High, Nature::Occurrence);
        story.exchange(&in_turn("t1", super::tests::exchange(AfterTool, "main")), 0);
        push(&mut story, "second", High, Nature::Occurrence);
        assert_eq!(story.exchange(&exchange, now), ["second"], "{what}");
    }
}

#[test]
fn a_carrier_that_never_changes_is_noticed_once() {
    let mut story = Story::new();
    let same = exchange(AfterTool, "main");
    let id = InjectionId::new("i1");
    let terms = Terms {
        lease: Duration::from_secs(900),
        has_delivery_notice: true,
        for_user: None,
        starts_turn: false,
        budgets: &Budgets::NONE,
    };
    story.injector.release(&same, Decided::default(), || id, terms, Timestamp::ZERO);
    let mut shown = Vec::new();
    for second in (0..200).step_by(10) {
        let now = Timestamp::from_millis(second * 1_000);
        let replayed = story.injector.replay(&same, now).expect("it was answered");
        if replayed.shows_fixed_carrier {
            shown.push(second);
        }
    }
    assert_eq!(shown, [90], "the tenth time, and more than a minute after the first");
}

#[test]
fn critical_notifications_continue_a_turn_at_most_twice() {
    let go_on = |subscriber: &str| Some(Directive::Continue { reason: subscriber.into() });
    let mut story = Story::new();
    story.push("normal", Normal, AfterTool);
    assert!(story.exchange(&continuing("c1"), 0).is_empty());
    for (carrier, name) in [("c2", "budget#1"), ("c3", "budget#2")] {
        story.push(name, Critical, Immediate);
        let answer = story.answer(&continuing(carrier), 1_000);
        assert_eq!(answer.directive, go_on("budget"), "{carrier}");
        assert_eq!(names(answer.injection.as_ref()).first().map(String::as_str), Some(name));
    }
    story.push("budget#3", Critical, Immediate);
    let third = story.answer(&continuing("c4"), 2_000);
    assert_eq!((third.injection, third.directive, third.pending), (None, None, 1));
    assert!(third.check_before_tool);
    story.push("normal#2", Normal, TurnStart);
    assert_eq!(story.exchange(&exchange(TurnStart, "c5"), 3_000), ["budget#3", "normal#2"]);
    story.push("budget#4", Critical, Immediate);
    assert_eq!(story.answer(&continuing("c6"), 4_000).directive, go_on("budget"));
}

#[test]
fn text_carriers_share_the_cap_on_turn_continuations() {
    let mut story = Story::new();
    story.push("normal", Normal, TurnEnd);
    let quiet = story.answer(&exchange(TurnEnd, "c0"), 0);
    assert_eq!((names(quiet.injection.as_ref()), quiet.directive), (vec!["normal".to_owned()], None));
    let mut directives = Vec::new();
    for n in 1..=3 {
        story.push(&format!("loop#{n}"), Critical, Immediate);
        let answer = story.answer(&exchange(TurnEnd, &format!("c{n}")), n * 1_000);
        assert_eq!(names(answer.injection.as_ref()), [format!("loop#{n}")]);
        directives.push(answer.directive.is_some());
    }
    assert_eq!(directives, [true, true, false]);
}

#[test]
fn a_turn_end_without_continuation_resets_the_count() {
    let mut story = Story::new();
    let mut is_continued = Vec::new();
    for (n, is_asked) in [(1, true), (2, true), (3, false), (4, true), (5, true), (6, true)] {
        if is_asked {
            story.push(&format!("loop#{n}"), Critical, Immediate);
        }
        let answer = story.answer(&continuing(&format!("c{n}")), n * 1_000);
        is_continued.push(answer.directive.is_some());
    }
    assert_eq!(is_continued, [true, true, false, true, true, false]);
}

#[test]
fn pulls_at_turn_end_obey_the_continuation_cap() {
    let mut story = Story::new();
    let mut is_continued = Vec::new();
    for (n, trigger) in [(1, Trigger::Agent), (2, Trigger::Agent), (3, Trigger::Pull)] {
        story.push(&format!("loop#{n}"), Critical, if n == 3 { TurnStart } else { Immediate });
        let at_end = Exchange { trigger, ..exchange(TurnEnd, &format!("c{n}")) };
        is_continued.push(story.answer(&at_end, n * 1_000).directive.is_some());
    }
    assert_eq!(is_continued, [true, true, false]);
}

#[test]
fn a_new_turn_resets_the_continuation_count() {
    let mut story = Story::new();
    let mut is_continued = Vec::new();
    for (n, turn) in [(1, "t1"), (2, "t1"), (3, "t1"), (4, "t2")] {
        story.push(&format!("loop#{n}"), Critical, Immediate);
        let at_end = in_turn(turn, continuing(&format!("c{n}")));
        is_continued.push(story.answer(&at_end, n * 1_000).directive.is_some());
    }
    assert_eq!(is_continued, [true, true, false, true]);
}

fn shown(carrier: &str) -> Exchange {
    Exchange { shows_notices: true, ..exchange(AfterTool, carrier) }
}

#[test]
fn user_notice_names_deliveries_and_waiting_inbox_items() {
    let for_user =
        |name: &str| Notification { activation: Activation::Prompt, ..notification(name, Normal, AfterTool) };
    let mut story = Story::new();
    story.push("low", Low, AfterTool);
    assert_eq!(story.answer(&shown("c1"), 0).notice, None);
    story.push("low#2", Low, AfterTool);
    story.push("file", Normal, AfterTool);
    assert_eq!(story.answer(&shown("c2"), 200).notice.as_deref(), Some("aside: file low"));
    assert_eq!(story.answer(&shown("c2"), 300).notice.as_deref(), Some("aside: file low"), "the same again");
    story.injector.push(Arc::new(for_user("offer")));
    assert_eq!(story.answer(&shown("c3"), 400).notice.as_deref(), Some("aside: 1 waiting for you: offer"));
    story.injector.push(Arc::new(for_user("plan")));
    story.push("ci", High, AfterTool);
    let both = "aside: 2 waiting for you: plan; delivered: ci";
    assert_eq!(story.answer(&shown("c4"), 600).notice.as_deref(), Some(both));
    story.push("ci#2", High, AfterTool);
    assert_eq!(story.answer(&exchange(AfterTool, "c5"), 800).notice, None, "nobody can be shown it");
    story.push("budget", Critical, Immediate);
    let held = story.answer(&Exchange { shows_notices: true, ..exchange(BeforeTool, "c6") }, 1_000);
    assert_eq!((held.notice, held.directive.is_some()), (None, true), "the harness shows the reason");
}

#[test]
fn disabled_delivery_notices_are_not_shown() {
    let mut story = Story::new();
    story.push("ci", High, AfterTool);
    let limits = limits(10);
    let decided = fit(story.injector.offer(&shown("c1"), &limits), &limits, &Room::unlimited(), &Brief);
    let terms = Terms { has_delivery_notice: false, ..TERMS };
    let answer =
        story.injector.release(&shown("c1"), decided, || InjectionId::new("i1"), terms, Timestamp::ZERO);
    let sentence = answer.injection.map(|injection| injection.sentence);
    assert_eq!((sentence.as_deref(), answer.notice), (Some("ci"), None));
}

#[test]
fn critical_or_requested_ones_wake_after_an_interrupt() {
    let wakes = |made: Notification, state: SessionState| {
        let mut injector = Injector::new(SessionId::new("s"), 100);
        injector.push(Arc::new(made));
        injector.wake(state, High).map(|wake| wake.kind)
    };
    let active = |name: &str, priority| Notification {
        activation: Activation::Active,
        ..notification(name, priority, AfterTool)
    };
    let start = Some(WakeKind::StartTurn);
    for (made, when_idle, when_interrupted) in [
        (active("task", High), start, None),
        (Notification { is_asked: true, ..active("watch", High) }, start, start),
        (Notification { is_asked: true, ..notification("passive", High, AfterTool) }, None, None),
        (active("critical", Critical), start, start),
        (active("normal", Normal), None, None),
    ] {
        let id = made.id;
        assert_eq!(wakes(made.clone(), SessionState::Idle), when_idle, "{id}");
        assert_eq!(wakes(made, SessionState::Interrupted), when_interrupted, "{id}");
    }
}
