//! Sessions of the client whose hooks report less than happened: it was killed, its turn was
//! stopped, or it began before the daemon.

use std::{
    sync::{Mutex, mpsc},
    time::Duration,
};

use super::{
    api::Turn,
    count,
    terminal::{PATIENCE, Seat, within},
    waking::woken_within,
};

/// Time within which a critical notification reaches a session whose turn was stopped, or whose
/// first hook started the daemon.
const ARRIVES_WITHIN: Duration = Duration::from_secs(5);

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn event_after_client_kill_reaches_the_next_session() {
    let mut seat = Seat::taken(&[], &["go"]);
    seat.next_request(1);
    let first = seat.idle_session();
    seat.replaced();
    seat.fail("error", "marker_mail");
    seat.session_other_than(&first);
    let request = seat.prompt("what now");
    assert_eq!(count(&request, "marker_mail"), 1, "{:?}", request.last());
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn critical_event_after_stopped_turn_is_delivered() {
    let (hold, held) = mpsc::sync_channel::<()>(0);
    let held = Mutex::new(held);
    let endless = move || {
        held.lock().expect("no panic").recv_timeout(PATIENCE).ok();
    };
    let seat = Seat::playing(vec![Turn::says("never said").after(endless)], &["go"]);
    assert!(seat.api.wait_for(1, PATIENCE), "{}", seat.sight());
    seat.stop_turn();
    woken_within(ARRIVES_WITHIN, &seat, "marker_stopped", 2);
    drop(hold);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn session_starting_the_daemon_by_hook_is_woken() {
    let seat = Seat::taken_first();
    let is_up = || seat.home.try_ask("GET", "/healthz", "").is_ok();
    assert!(within(PATIENCE, is_up), "no daemon was started");
    let request = woken_within(ARRIVES_WITHIN, &seat, "marker_first", 1);
    assert_eq!(count(&request, "marker_first"), 1);
}
