//! What an exchange proves about earlier releases, as short stories in simulated time.

use super::{
    tests::{Story, exchange, in_step, in_turn},
    *,
};
use crate::exchange::Trigger;

use InjectionPoint::{AfterTool, BeforeTool, Immediate, TurnEnd, TurnStart};
use Priority::{Critical, High, Low, Normal};

/// The ledger after `later`, of a notification that `released` delivered at 0.
fn after(story: &mut Story, released: &Exchange, later: &Exchange) -> Vec<String> {
    story.push("n", High, AfterTool);
    assert_eq!(story.exchange(released, 0), ["n"]);
    story.ledger();
    story.exchange(later, 1_000);
    story.ledger()
}

#[test]
fn another_step_or_turn_confirms_a_release() {
    let tool = |carrier| exchange(AfterTool, carrier);
    for (case, released, later, expected) in [
        ("a call, much later", tool("c1"), tool("c2"), None),
        ("the next call begins", tool("c1"), exchange(BeforeTool, "c2"), None),
        ("an interruption", tool("c1"), exchange(Immediate, "c2"), None),
        ("the same step", in_step("1", tool("c1")), in_step("1", tool("c2")), None),
        ("another step", in_step("1", tool("c1")), in_step("2", tool("c2")), Some("step")),
        (
            "a step before a call",
            in_step("1", tool("c1")),
            in_step("2", exchange(BeforeTool, "c2")),
            Some("step"),
        ),
        ("the first step that is named", tool("c1"), in_step("1", tool("c2")), None),
        ("no step after one", in_step("1", tool("c1")), tool("c2"), None),
        ("the end", tool("c1"), exchange(TurnEnd, "c2"), Some("turn")),
        (
            "the end, in the same step",
            in_step("1", tool("c1")),
            in_step("1", exchange(TurnEnd, "c2")),
            Some("turn"),
        ),
        ("the next start", tool("c1"), exchange(TurnStart, "c2"), Some("turn")),
        ("a prompt in the turn", in_turn("t1", tool("c1")), in_turn("t1", exchange(TurnStart, "c2")), None),
        (
            "the start of another turn",
            in_turn("t1", tool("c1")),
            in_turn("t2", exchange(TurnStart, "c2")),
            Some("turn"),
        ),
        ("a call of another turn", in_turn("t1", tool("c1")), in_turn("t2", tool("c2")), Some("turn")),
        (
            "an interruption of another turn",
            in_turn("t1", tool("c1")),
            in_turn("t2", exchange(Immediate, "c2")),
            None,
        ),
    ] {
        let found = after(&mut Story::new(), &released, &later);
        let expected: Vec<String> = expected.map(|by| format!("n {by}")).into_iter().collect();
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn a_release_without_step_waits_for_two() {
    let mut story = Story::new();
    story.push("n", High, AfterTool);
    story.exchange(&exchange(TurnStart, "c1"), 0);
    story.ledger();
    story.exchange(&in_step("1", exchange(AfterTool, "c2")), 1);
    assert!(story.ledger().is_empty());
    story.exchange(&in_step("2", exchange(AfterTool, "c3")), 2);
    assert_eq!(story.ledger(), ["n step"]);
}

#[test]
fn late_call_of_an_earlier_step_proves_nothing() {
    let mut story = Story::new();
    story.exchange(&in_step("1", exchange(AfterTool, "c1")), 0);
    let released = in_step("2", exchange(AfterTool, "c2"));
    assert!(after(&mut story, &released, &in_step("1", exchange(AfterTool, "slow"))).is_empty());
    story.exchange(&in_step("3", exchange(AfterTool, "c3")), 2_000);
    assert_eq!(story.ledger(), ["n step"]);
}

#[test]
fn late_call_of_an_earlier_turn_proves_nothing() {
    for point in [AfterTool, TurnEnd] {
        let mut story = Story::new();
        story.exchange(&in_turn("t1", exchange(TurnStart, "c1")), 0);
        let released = in_turn("t2", exchange(TurnStart, "c2"));
        let late = in_step("7", in_turn("t1", exchange(point, "late")));
        assert!(after(&mut story, &released, &late).is_empty(), "{point}");
        story.exchange(&in_turn("t2", exchange(TurnEnd, "c3")), 2_000);
        assert_eq!(story.ledger(), ["n turn"], "{point}");
    }
}

#[test]
fn release_to_late_call_counts_for_the_present() {
    let mut story = Story::new();
    story.exchange(&in_turn("t1", exchange(TurnStart, "c1")), 0);
    story.exchange(&in_turn("t2", exchange(TurnStart, "c2")), 0);
    let late = in_turn("t1", exchange(AfterTool, "late"));
    assert!(after(&mut story, &late, &in_turn("t2", exchange(AfterTool, "c3"))).is_empty());
    story.exchange(&in_turn("t2", exchange(TurnEnd, "c4")), 2_000);
    assert_eq!(story.ledger(), ["n turn"]);
}

/// A session whose harness reports ends of turns.
fn reporting_ends() -> Story {
    let mut story = Story::new();
    story.exchange(&exchange(TurnStart, "first"), 0);
    story.exchange(&exchange(TurnEnd, "first end"), 0);
    story
}

#[test]
fn an_interrupted_turn_is_confirmed_by_the_next() {
    let mut story = reporting_ends();
    story.exchange(&exchange(TurnStart, "c0"), 0);
    assert!(after(&mut story, &exchange(AfterTool, "c1"), &exchange(TurnStart, "c2")).is_empty());
    story.exchange(&exchange(AfterTool, "of either turn"), 1_500);
    assert!(story.ledger().is_empty());
    story.exchange(&exchange(TurnEnd, "c3"), 2_000);
    assert_eq!(story.ledger(), ["n turn"]);
}

#[test]
fn named_turn_is_confirmed_by_call_of_next() {
    let mut story = reporting_ends();
    let (released, next) =
        (in_turn("t1", exchange(AfterTool, "c1")), in_turn("t2", exchange(TurnStart, "c2")));
    assert!(after(&mut story, &released, &next).is_empty());
    story.exchange(&in_turn("t2", exchange(BeforeTool, "c3")), 2_000);
    assert_eq!(story.ledger(), ["n turn"]);
}

#[test]
fn release_at_end_waits_for_the_next_turn() {
    let mut story = Story::new();
    let (released, again) = (exchange(TurnEnd, "c1"), exchange(TurnEnd, "c2"));
    assert!(after(&mut story, &released, &again).is_empty(), "a hook may be installed twice");
    story.exchange(&exchange(TurnStart, "c3"), 2_000);
    assert!(story.ledger().is_empty(), "the model was not called yet");
    story.exchange(&exchange(TurnEnd, "c4"), 3_000);
    assert_eq!(story.ledger(), ["n turn"]);
}

#[test]
fn the_next_end_confirms_a_continued_one() {
    let mut story = Story::new();
    assert!(after(&mut story, &exchange(TurnEnd, "c1"), &exchange(AfterTool, "c2")).is_empty());
    story.exchange(&exchange(TurnEnd, "c3"), 2_000);
    assert_eq!(story.ledger(), ["n turn"]);
}

#[test]
fn the_start_of_a_session_is_no_turn() {
    let mut story = Story::new();
    story.push("n", High, AfterTool);
    let now = Timestamp::from_millis(1);
    let start = exchange(TurnStart, "session");
    story.injector.confirm_by_exchange(&start, Beginning::OfSession, now);
    let limits = super::tests::limits(10);
    let decided =
        fit(story.injector.offer(&start, &limits), &limits, &Room::unlimited(), &super::tests::Brief);
    let id = InjectionId::new("i0");
    story.injector.release(&start, decided, || id, super::tests::TERMS, now);
    story.ledger();
    story.exchange(&exchange(TurnStart, "prompt"), 2);
    assert!(story.ledger().is_empty(), "the first prompt carries both");
    story.exchange(&exchange(TurnEnd, "end"), 3);
    assert_eq!(story.ledger(), ["n turn"]);
}

fn pushed(carrier: &str) -> Exchange {
    Exchange { trigger: Trigger::Wake, ..exchange(TurnStart, carrier) }
}

#[test]
fn an_unseen_pushed_text_is_pending_again() {
    for later in [exchange(TurnStart, "c2"), exchange(TurnEnd, "c2"), in_step("2", exchange(AfterTool, "c2"))]
    {
        let mut story = Story::new();
        story.push("n", Critical, AfterTool);
        assert_eq!(
            story.answer(&pushed("w1"), 0).injection.map(|injection| injection.notifications.len()),
            Some(1)
        );
        story.ledger();
        let again = story.answer(&later, 1_000).injection.expect("it comes by the agent's exchange");
        assert!(again.notifications[0].redelivered, "it may stand in the context");
        assert_eq!(story.ledger(), ["n returned", "n i2 unconfirmed"]);
        story.injector.ack(&InjectionId::new("i2"), ConfirmedBy::Ack, Timestamp::ZERO);
        assert_eq!(story.ledger(), ["n ack"]);
    }
}

#[test]
fn a_pushed_text_that_is_seen_has_arrived() {
    let mut story = Story::new();
    story.push("n", Critical, AfterTool);
    story.push("later", Normal, TurnEnd);
    story.answer(&pushed("w1"), 0);
    story.ledger();
    story.injector.ack(&InjectionId::new("i1"), ConfirmedBy::Seen, Timestamp::ZERO);
    assert!(story.exchange(&exchange(TurnStart, "c2"), 1_000).is_empty());
    assert_eq!(story.ledger(), ["n seen", "later seen"]);
}

#[test]
fn a_pushed_text_seen_late_is_not_repeated() {
    let mut story = Story::new();
    story.push("n", High, AfterTool);
    story.answer(&pushed("w1"), 0);
    assert!(story.exchange(&exchange(BeforeTool, "c2"), 1_000).is_empty());
    story.ledger();
    story.injector.ack(&InjectionId::new("i1"), ConfirmedBy::Seen, Timestamp::ZERO);
    assert_eq!(story.ledger(), ["n seen"]);
    assert_eq!(story.injector.pending(), (0, None));
}

#[test]
fn a_wake_proves_nothing_and_returns_nothing() {
    let mut story = Story::new();
    story.push("n", High, AfterTool);
    story.exchange(&exchange(AfterTool, "c1"), 0);
    story.ledger();
    // The engine confirms by no exchange of a wake route.
    assert!(story.injector.offer(&pushed("w1"), &super::tests::limits(10)).candidates.is_empty());
    assert_eq!((story.injector.unconfirmed(), story.ledger().len()), (1, 0));
}

#[test]
fn a_start_opens_a_new_space_for_carriers() {
    let mut story = Story::new();
    for turn in ["1", "2", "3"] {
        for (point, carrier, priority, inject_at) in [
            (TurnStart, "start", High, TurnStart),
            (AfterTool, "call_0", High, AfterTool),
            (AfterTool, "call_1", Normal, AfterTool),
            (TurnEnd, "end", Low, TurnEnd),
        ] {
            let name = format!("n#{turn}{carrier}");
            story.push(&name, priority, inject_at);
            assert_eq!(story.exchange(&exchange(point, carrier), 0), std::slice::from_ref(&name));
            assert_eq!(story.exchange(&exchange(point, carrier), 1), [name], "the answer was lost");
        }
        // A repetition that comes late in the turn.
        let late = story.exchange(&exchange(AfterTool, "call_0"), 2);
        assert_eq!(late, [format!("n#{turn}call_0")]);
    }
}

#[test]
fn a_turns_name_tells_its_carriers_apart() {
    let mut story = Story::new();
    for turn in ["t1", "t2"] {
        story.exchange(&in_turn(turn, exchange(TurnStart, "start")), 0);
        story.push(&format!("n#{turn}"), High, AfterTool);
        let released = story.exchange(&in_turn(turn, exchange(AfterTool, "call_0")), 0);
        assert_eq!(released, [format!("n#{turn}")]);
    }
    for turn in ["t1", "t2"] {
        let repeated = story.exchange(&in_turn(turn, exchange(AfterTool, "call_0")), 1);
        assert_eq!(repeated, [format!("n#{turn}")], "its answer was lost");
    }
    story.exchange(&in_turn("t2", exchange(TurnStart, "prompt")), 2);
    story.push("n#3", High, AfterTool);
    assert_eq!(story.exchange(&in_turn("t2", exchange(AfterTool, "call_0")), 3), ["n#3"]);
}

#[test]
fn a_lease_lasts_while_exchanges_go_on() {
    let mut story = Story::new();
    story.push("n", High, AfterTool);
    story.exchange(&exchange(AfterTool, "c0"), 0);
    story.ledger();
    for second in 1..=10 {
        story.exchange(&exchange(AfterTool, &format!("c{second}")), second * 1_000);
        story.timeout(second * 1_000);
    }
    assert!(story.ledger().is_empty());
    assert_eq!(story.injector.poll_timeout(), Some(Timestamp::from_millis(12_000)));
    story.timeout(12_000);
    assert_eq!(story.ledger(), ["n uncertain"]);
}

#[test]
fn repeated_and_requested_exchanges_renew_a_lease() {
    for (trigger, expected) in [(Trigger::Agent, 5_000), (Trigger::Pull, 5_000), (Trigger::Wake, 2_000)] {
        let mut story = Story::new();
        story.push("n", High, AfterTool);
        let first = Exchange { trigger, ..exchange(AfterTool, "c0") };
        story.exchange(&first, 0);
        assert_eq!(story.exchange(&first, 1_500), ["n"], "it is repeated");
        let requested = Exchange { trigger, ..exchange(AfterTool, "c1") };
        story.injector.renew_leases(&requested, Timestamp::from_millis(3_000));
        assert_eq!(story.injector.poll_timeout(), Some(Timestamp::from_millis(expected)), "{trigger:?}");
    }
}

#[test]
fn a_lease_is_not_renewed_for_ever() {
    let mut story = Story::new();
    story.push("n", High, AfterTool);
    story.exchange(&exchange(AfterTool, "c0"), 0);
    let last = u64::try_from(RENEWED_MAX.as_millis()).expect("a day");
    story.exchange(&exchange(AfterTool, "c1"), last - 1);
    assert_eq!(story.injector.poll_timeout(), Some(Timestamp::from_millis(last)));
}

#[test]
fn a_resumed_process_gets_low_ones_again() {
    let mut story = Story::new();
    story.push("low", Low, TurnEnd);
    story.exchange(&exchange(TurnEnd, "c1"), 0);
    story.injector.resume_context(Timestamp::from_millis(1));
    story.ledger();
    assert_eq!(story.exchange(&exchange(TurnStart, "c2"), 1), ["low"]);
    assert_eq!(story.ledger(), ["low i2 unconfirmed"]);
}
