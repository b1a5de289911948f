//! What the user sees of it in the client: one sentence, whatever was delivered and by which way.

use super::{api::Turn, bash, fail, terminal::Seat};

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_call_that_is_held_back_and_an_end_that_goes_on_say_why_in_their_first_line() {
    let home = Seat::home_with_plugin();
    let (held, ended) = (home.clone(), home.clone());
    let turns = vec![
        bash("toolu_1").after(move || fail(&held, "critical", "marker_held")),
        Turn::says("done").after(move || fail(&ended, "critical", "marker_end")),
        Turn::says("looked at it"),
    ];
    let seat = Seat::served_at(home, turns, &["go"]);
    seat.next_request(3);
    assert!(
        seat.sees("aside held this back: tool failure (critical): marker_held timeout"),
        "{}",
        seat.sight()
    );
    assert!(seat.sees("aside: tool failure (critical): marker_end timeout"), "{}", seat.sight());
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_wake_is_a_sentence() {
    let seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    if seat.can_be_woken {
        seat.fail("critical", "marker_wake");
        seat.next_request(2);
        assert!(seat.sees("aside: tool failure (critical): marker_wake timeout"), "{}", seat.sight());
    }
}
