//! The user's view of notifications in the client: one sentence, for any notification and any
//! route.

use super::{api::Turn, bash, count, fail, place, terminal::Seat};

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn user_sees_delivery_sentence_and_model_does_not() {
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
fn cancelled_call_and_continued_turn_show_their_reason() {
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
fn wake_shows_sentence_and_status_line_shows_pending() {
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
