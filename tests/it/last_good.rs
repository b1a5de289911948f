//! Starts with files that have errors or are unreadable: the previous version stays in force, and
//! the error is reported.

use std::fs;

use serde_json::json;

use crate::support::daemon::{Home, text};

const EACH: &str = r#"
[subscriber]
id = "each"
[events]
types = ["message.agent.sent"]
[batching]
window_ms = 0
[output]
priority = "high"
"#;

/// The subscribers that deliver a message that is published now.
fn delivered(home: &Home, carrier: &str) -> Vec<String> {
    home.publish(&json!({ "type": "message.agent.sent", "payload": { "from": carrier, "text": carrier } }));
    let answer = home.exchange("s", &json!({ "point": "turn_start", "carrier": carrier })).json();
    let notifications = answer["notifications"].as_array().cloned().unwrap_or_default();
    notifications.iter().map(|one| one["subscriber"].as_str().expect("an id").to_owned()).collect()
}

#[test]
fn start_uses_previous_version_of_invalid_subscriber_file() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    assert!(home.serve().stop().status.success());
    let file = home.path("config/subscribers/each.toml").display().to_string();
    home.configure("subscribers/each.toml", &EACH.replace("types", "typs"));
    home.configure("aside.toml", "[injection]\nmax_notifications = 3\n");
    for _ in 0..2 {
        let daemon = home.serve();
        daemon.said(&format!("its previous version is used until its errors are fixed file={file}"));
        assert!(delivered(&home, "a").contains(&"each".to_owned()));
        let status = home.print(&["status"]);
        assert!(status.contains("PROBLEM: configuration read with 1 error at "), "{status}");
        assert!(
            status.contains(&format!("PROBLEM: {file}:5:1: unknown key `typs`; did you mean `types`?")),
            "{status}"
        );
        assert!(status.contains(&format!("PROBLEM: {file}: its previous version is used")), "{status}");
        let doctor = home.run(&["doctor", "--verbose"]);
        assert!(text(&doctor.stdout).contains("fail  config "), "{doctor:?}");
        let metrics = text(&home.ask("GET", "/metrics", "").0.body);
        assert!(metrics.contains("aside_config_last_reload_successful 0.0\n"), "{metrics}");
        let stream = home.client().stream("/v1/events/stream?pattern=config.reload.failed&from=1", &[]);
        let event = stream.expect("answered").expect("a stream").next_event().expect("it goes on");
        assert!(event.expect("it has not ended").data.contains(&file));
        assert_eq!(home.run(&["reload"]).status.code(), Some(1));
        assert!(daemon.stop().status.success());
    }
    let _daemon = home.serve();
    home.configure("subscribers/each.toml", EACH);
    assert!(home.print(&["reload"]).contains("in force"));
    assert!(!home.print(&["status"]).contains("PROBLEM"));
}

#[test]
fn missing_config_folder_keeps_its_files_in_force() {
    let home = Home::with(&[("subscribers/each.toml", EACH)]);
    assert!(home.serve().stop().status.success());
    fs::rename(home.path("config"), home.path("unmounted")).expect("moved");
    let daemon = home.serve();
    daemon.said("it is missing, but files of it are in force");
    assert!(delivered(&home, "a").contains(&"each".to_owned()));
    let refused = home.run(&["reload"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(text(&refused.stdout).contains("create it, empty to remove them"), "{refused:?}");
    fs::create_dir(home.path("config")).expect("made");
    assert!(home.print(&["reload"]).contains("in force: "));
    assert!(!delivered(&home, "b").contains(&"each".to_owned()));
}

#[test]
fn settings_that_cannot_be_read_delete_nothing() {
    let home = Home::with(&[("aside.toml", "[journal]\nretain_age = 30d\n")]);
    let daemon = home.serve();
    daemon.said("settings could not be read, so retention is off");
    let status = home.print(&["status"]);
    assert!(status.contains("PROBLEM: settings could not be read, so retention is off"), "{status}");
}
