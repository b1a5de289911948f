//! Detection with the client's own hooks alone: an agent that repeats itself gets a notification,
//! one that makes progress does not.

use super::{
    api::Turn,
    calls::{bash, delivered},
    home, play,
};

const CALLS: usize = 6;

/// How often each request of a conversation contains `loop_detected`, if `command` is run
/// repeatedly.
fn repeat(command: &str) -> Vec<usize> {
    let home = home();
    let _daemon = home.serve();
    let calls = (1..=CALLS).map(|number| bash(number, command));
    delivered(&play(&home, calls.chain([Turn::says("done")]).collect()), "loop_detected")
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_agent_that_repeats_itself_gets_one_notification() {
    assert_eq!(repeat("echo the same"), [0, 0, 0, 0, 0, 1, 1]);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn repeated_failures_notify_once_and_again_after_doubling() {
    // A failure has a hook of its own, before that of its batch: its notification leaves with the
    // same call.
    assert_eq!(repeat("echo the same; exit 3"), [0, 0, 0, 1, 1, 1, 2]);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn calls_with_changing_results_get_no_notification() {
    assert_eq!(repeat("echo x >> log; wc -l < log"), [0; CALLS + 1]);
}
