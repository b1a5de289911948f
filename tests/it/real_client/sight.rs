//! The user's view of notifications in the client: one sentence, for any notification and any
//! route.

use super::{api::Turn, bash, count, fail, place, terminal::Seat};

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn what_was_delivered_is_one_line_for_the_user_and_nothing_of_it_reaches_the_model() {
    let seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    let session = seat.idle_session();
    seat.fail_for(&session, "marker_delivered");
    let request = seat.prompt("and now");
    assert_eq!(count(&request, "marker_delivered"), 1);
    let line = "aside: marker_delivered timeout";
    assert!(seat.sees(line), "{}", seat.sight());
    let later = seat.prompt("and later");
    assert_eq!([place(&request, line), place(&later, line)], [None, None], "{later:?}");
}

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
    assert!(seat.sees("aside cancelled this call: critical: marker_held timeout"), "{}", seat.sight());
    assert!(seat.sees("aside: critical: marker_end timeout"), "{}", seat.sight());
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn a_wake_is_a_sentence_and_the_status_line_says_what_waits() {
    let seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    if seat.can_be_woken {
        seat.fail("critical", "marker_wake");
        seat.next_request(2);
        assert!(seat.sees("aside: critical: marker_wake timeout"), "{}", seat.sight());
    }
    let session = seat.idle_session();
    seat.fail_for(&session, "marker_waits");
    assert!(seat.sees("aside \u{25cf} 1 high"), "{}", seat.sight());
}
