//! The daemon continues with a state folder that lost its oldest records, its snapshots or its rules.

use std::fs;

use serde_json::json;

use crate::support::daemon::{Home, at};

/// A journal of a few segments whose beginning was deleted, as by retention, and whose snapshots
/// are unusable.
#[test]
fn a_journal_without_its_beginning_and_without_snapshots_still_has_its_rules() {
    let each = "[subscriber]\nid = \"each\"\n[events]\ntypes = [\"test.each\"]\n[batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\n";
    let settings = "[journal]\nsegment_bytes = 1048576\nseal = false\n";
    let home = Home::with(&[("aside.toml", settings), ("subscribers/each.toml", each)]);
    let daemon = home.serve();
    let pad = "x".repeat(60_000);
    for n in 0..40 {
        home.publish(&json!({ "type": "nobody.asks", "payload": { "n": n, "pad": pad } }));
    }
    home.publish(&json!({ "type": "test.each", "payload": { "n": 41 } }));
    daemon.kill();
    let segments = || -> Vec<_> {
        let mut paths: Vec<_> = fs::read_dir(home.path("state/journal"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| {
                path.extension().is_some_and(|extension| extension == "seg") && !path.ends_with("next.seg")
            })
            .collect();
        paths.sort();
        paths
    };
    let first = segments().into_iter().next().expect("one");
    fs::remove_file(&first).expect("removed");
    fs::remove_dir_all(home.path("state/snapshots")).expect("removed");
    fs::remove_file(home.path("state/projection.db")).ok();

    let daemon = home.serve();
    daemon.said("the beginning of the journal was deleted");
    let answer = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c" })).json();
    assert_eq!(*at(&answer, "/notifications/0/subscriber"), json!("each"), "{answer}");
}

#[test]
fn rules_that_are_damaged_or_gone_stop_no_start_and_lose_nothing() {
    for damage in ["a bit of every file", "the folder"] {
        let each = "[subscriber]\nid = \"each\"\n[events]\ntypes = [\"test.each\"]\n[batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\n";
        let home = Home::with(&[("subscribers/each.toml", each)]);
        let daemon = home.serve();
        home.publish(&json!({ "type": "test.each", "payload": { "n": 1 } }));
        daemon.stop();
        let rules = home.path("state/rules");
        if damage == "the folder" {
            fs::remove_dir_all(&rules).expect("removed");
        } else {
            for entry in fs::read_dir(&rules).expect("a folder") {
                let path = entry.expect("an entry").path();
                let mut bytes = fs::read(&path).expect("read");
                if let Some(byte) = bytes.last_mut() {
                    *byte ^= 1;
                }
                fs::write(&path, bytes).expect("written");
            }
            let verified = home.run(&["journal", "verify"]);
            let said = String::from_utf8_lossy(&verified.stdout).into_owned();
            assert_eq!(verified.status.code(), Some(1), "{said}");
            assert!(
                said.contains("its content has another hash; the next start of the daemon rewrites it"),
                "{said}"
            );
        }
        // One of the files is replaced, so that the rules of the journal's time are lost
        // permanently.
        home.configure("subscribers/other.toml", &each.replace("each", "other"));
        let daemon = home.serve();
        daemon.said("earlier rules are lost; the nearest ones are used");
        let answer = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c" })).json();
        assert_eq!(*at(&answer, "/notifications/0/subscriber"), json!("each"), "{damage}: {answer}");
    }
}
