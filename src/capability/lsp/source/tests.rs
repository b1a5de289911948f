//! Processes that are not language servers.

use std::{path::Path, time::Duration};

use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::process::{self, Heard};

#[tokio::test]
async fn why_a_process_is_no_server_is_said() {
    for (script, expected) in [
        ("echo one >&2; echo oops >&2; exit 3", "it ended: exit status: 3: oops"),
        ("printf 'Starting\\r\\n\\r\\n'; sleep 100", "its stdout has data other than messages"),
        (
            "printf 'Content-Length: 99999999\\r\\n\\r\\n'",
            "it sent a message of 99999999 bytes; 16777216 are allowed",
        ),
        ("printf 'Content-Length: 2\\r\\n\\r\\nno'", "it sent a message that cannot be read: expected"),
        ("printf 'Content-Length: 9\\r\\n\\r\\n{'", "it ended: exit status: 0"),
    ] {
        let (hear, mut heard) = mpsc::channel(1);
        let arguments = ["-c", script].map(str::to_owned);
        let mut tasks = JoinSet::new();
        let _process =
            process::start(1, Path::new("sh"), &arguments, "/", hear, &mut tasks).expect("a shell is there");
        match heard.recv().await {
            Some((1, Heard::Ended(why))) => assert!(why.starts_with(expected), "{script}: {why}"),
            other => panic!("{script}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn process_ignoring_closed_stdin_is_killed_on_timeout() {
    let (hear, mut heard) = mpsc::channel(1);
    let arguments = ["100".to_owned()];
    let mut tasks = JoinSet::new();
    let mut process =
        process::start(1, Path::new("sleep"), &arguments, "/", hear, &mut tasks).expect("it runs");
    process.close();
    // The time is simulated: it passes while all tasks wait.
    match timeout(Duration::from_secs(3), heard.recv()).await {
        Ok(Some((1, Heard::Ended(why)))) => assert_eq!(why, "it kept running after its stdin was closed"),
        other => panic!("{other:?}"),
    }
}
