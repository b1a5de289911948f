//! Turns that go on at their end for something critical, told as short stories in simulated time.

use super::{
    tests::{Story, exchange, in_turn, names, only_to_continue},
    *,
};

use InjectionPoint::{AfterTool, Immediate, TurnEnd, TurnStart};
use Priority::{Critical, Normal};

#[test]
fn the_end_of_a_turn_goes_on_only_for_something_critical_and_twice_in_a_row_at_most() {
    let go_on =
        |subscriber: &str| Some(Directive::Continue { reason: format!("critical: {subscriber}").into() });
    let mut story = Story::new();
    story.push("normal", Normal, AfterTool);
    assert!(story.exchange(&only_to_continue("c1"), 0).is_empty());
    for (carrier, name) in [("c2", "budget#1"), ("c3", "budget#2")] {
        story.push(name, Critical, Immediate);
        let answer = story.answer(&only_to_continue(carrier), 1_000);
        assert_eq!(answer.directive, go_on("budget"), "{carrier}");
        assert_eq!(names(answer.injection.as_ref()).first().map(String::as_str), Some(name));
    }
    story.push("budget#3", Critical, Immediate);
    let third = story.answer(&only_to_continue("c4"), 2_000);
    assert_eq!((third.injection, third.directive, third.pending), (None, None, 1));
    assert!(third.check_before_tool);
    story.push("normal#2", Normal, TurnStart);
    assert_eq!(story.exchange(&exchange(TurnStart, "c5"), 3_000), ["budget#3", "normal#2"]);
    story.push("budget#4", Critical, Immediate);
    assert_eq!(story.answer(&only_to_continue("c6"), 4_000).directive, go_on("budget"));
}

#[test]
fn a_carrier_that_takes_text_anyway_is_told_to_go_on_under_the_same_cap() {
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
fn an_end_that_nothing_asks_to_go_on_from_begins_the_count_anew() {
    let mut story = Story::new();
    let mut is_continued = Vec::new();
    for (n, is_asked) in [(1, true), (2, true), (3, false), (4, true), (5, true), (6, true)] {
        if is_asked {
            story.push(&format!("loop#{n}"), Critical, Immediate);
        }
        let answer = story.answer(&only_to_continue(&format!("c{n}")), n * 1_000);
        is_continued.push(answer.directive.is_some());
    }
    assert_eq!(is_continued, [true, true, false, true, true, false]);
}

#[test]
fn a_turn_with_another_name_begins_the_count_of_continuations_anew() {
    let mut story = Story::new();
    let mut is_continued = Vec::new();
    for (n, turn) in [(1, "t1"), (2, "t1"), (3, "t1"), (4, "t2")] {
        story.push(&format!("loop#{n}"), Critical, Immediate);
        let at_end = in_turn(turn, only_to_continue(&format!("c{n}")));
        is_continued.push(story.answer(&at_end, n * 1_000).directive.is_some());
    }
    assert_eq!(is_continued, [true, true, false, true]);
}
