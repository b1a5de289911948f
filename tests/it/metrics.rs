//! What the daemon reports about itself: `/metrics`, and its log.

mod openmetrics;

use std::{collections::BTreeSet, fs, path::Path};

use serde_json::{Value, json};

use crate::support::daemon::{Home, text};
use openmetrics::Page;

fn page(home: &Home) -> Page {
    let answer = home.ask("GET", "/metrics", "");
    assert_eq!(answer.status(), 200);
    let text = text(&answer.0.body);
    openmetrics::read(&text).unwrap_or_else(|wrong| panic!("{wrong}\n{text}"))
}

fn failure(n: u64) -> Value {
    json!({ "type": "tool.call.failure", "payload": {
        "tool_name": "grep", "error_type": "timeout", "call_id": format!("call-{n}"), "error_message": "took 30 s",
    } })
}

#[test]
fn metrics_follow_activity_and_totals_survive_restart() {
    let home = Home::new();
    let daemon = home.serve();
    let before = page(&home);
    assert_eq!(before.value("aside_exchange_duration_seconds_count"), 0.0);
    assert_eq!(before.value("aside_injected_tokens_total"), 0.0);

    home.publish(&json!([failure(1), failure(2), { "type": "nobody.asked.for", "payload": {} }]));
    let delivered = home.exchange("s", &json!({ "point": "after_tool", "carrier": "c1" })).json();
    assert!(delivered["text"].is_string(), "{delivered}");
    let after = page(&home);
    let moved = |series: &str| after.value(series) - before.samples.get(series).copied().unwrap_or_default();
    for (series, by) in [
        ("aside_events_total", 3.0),
        ("aside_events_unmatched_total", 1.0),
        ("aside_notifications_created_total", 1.0),
        ("aside_notifications_injected_total", 1.0),
        ("aside_subscriber_notifications_total{subscriber=\"tool_failure\"}", 1.0),
        ("aside_sessions_open", 1.0),
        ("aside_injections_unconfirmed", 1.0),
        ("aside_publish_duration_seconds_count", 1.0),
        ("aside_exchange_duration_seconds_count", 1.0),
        ("aside_hook_duration_seconds_count", 0.0),
        ("process_start_time_seconds", 0.0),
    ] {
        assert_eq!(moved(series), by, "{series}");
    }
    assert!(moved("aside_commit_duration_seconds_count") >= 1.0);
    assert!(moved("aside_publish_duration_seconds_sum") > 0.0);
    let tokens = moved("aside_injected_tokens_total");
    let own = moved("aside_subscriber_injected_tokens_total{subscriber=\"tool_failure\"}");
    assert!(own > 0.0 && tokens > own, "{tokens} with the wrapper, {own} without");
    let payloads: usize = [1, 2].map(|n| failure(n)["payload"].to_string().len()).iter().sum();
    assert_eq!(moved("aside_raw_bytes_total"), payloads as f64);
    assert_eq!(after.value("aside_saved_tokens"), (payloads as f64 / 5.0).floor() - tokens);

    home.exchange("s", &json!({ "point": "after_tool", "carrier": "c1" }));
    assert_eq!(
        page(&home).value("aside_injected_tokens_total"),
        tokens,
        "the same carrier costs nothing more"
    );
    home.exchange("s", &json!({ "point": "after_tool", "carrier": "c2", "ack": [delivered["injection"]] }));
    assert_eq!(page(&home).value("aside_notifications_confirmed_total"), 1.0);
    assert_eq!(
        home.hook(r#"{"hook_event_name":"Stop","session_id":"s2","cwd":"/w"}"#).status.code(),
        Some(0)
    );
    assert_eq!(page(&home).value("aside_hook_duration_seconds_count"), 1.0);

    daemon.stop();
    let _daemon = home.serve();
    let again = page(&home);
    for series in
        ["aside_injected_tokens_total", "aside_raw_bytes_total", "aside_notifications_injected_total"]
    {
        assert_eq!(again.value(series), after.value(series), "{series}");
    }
    assert_eq!(again.value("aside_exchange_duration_seconds_count"), 0.0);
}

#[test]
fn the_documentation_lists_every_metric_and_no_other() {
    let home = Home::new();
    let _daemon = home.serve();
    let sample = |(name, kind): (&String, &String)| match kind.as_str() {
        "counter" => format!("{name}_total"),
        "info" => format!("{name}_info"),
        _ => name.clone(),
    };
    let shown: BTreeSet<String> = page(&home).types.iter().map(sample).collect();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = fs::read_to_string(root.join("docs/operations.md")).expect("it is there");
    let rows = document.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let names = rows.map(|(name, _)| name.split('{').next().unwrap_or(name));
    let is_metric = |name: &&str| name.starts_with("aside_") || name.starts_with("process_");
    let listed: BTreeSet<String> = names.filter(is_metric).map(str::to_owned).collect();
    assert_eq!(listed, shown);
}

#[test]
fn json_log_is_valid_without_payloads_or_secrets() {
    const MARK: &str = "zebra-in-a-payload";
    let home = Home::with(&[
        ("aside.toml", "[http]\nlisten = \"127.0.0.1:0\"\n"),
        ("subscribers/broken.toml", "[subscriber]\nid = 7\n"),
    ]);
    let daemon = home.serve_with(&["--log", "trace", "--log-format", "json"]);
    let mut event = failure(1);
    event["payload"]["error_message"] = json!(MARK);
    home.publish(&json!([event]));
    assert!(
        home.exchange("s", &json!({ "point": "after_tool", "carrier": "c1" })).json()["text"].is_string()
    );
    // Each input has an error whose description repeats a part of it.
    for stdin in [
        format!(r#"{{"hook_event_name":"Stop","session_id":"s","stop_hook_active":"{MARK}"}}"#),
        format!(r#"{{"hook_event_name":"UserPromptSubmit","session_id":"s","prompt":["{MARK}"]}}"#),
        format!(r#"{{"hook_event_name":"Stop","session_id":"{MARK}\n"}}"#),
        MARK.to_owned(),
    ] {
        home.hook(&stdin);
    }
    home.ask("POST", "/v1/events", &format!(r#"{{"type":"a.b","severity":"{MARK}"}}"#));
    let token = fs::read_to_string(home.path("state/token")).expect("the daemon made one");
    let log = daemon.stop().log;
    assert!(!log.contains(MARK) && !log.contains(token.trim()), "{log}");

    let lines: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    let of = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("`{message}` in {log}"))
    };
    for line in &lines {
        let levels = ["error", "warn", "info", "debug", "trace"];
        assert!(levels.contains(&line["level"].as_str().expect("a level")), "{line}");
        assert!(line["timestamp"].is_string() && line["target"].is_string(), "{line}");
    }
    assert_eq!((&of("ready")["level"], &of("ready")["pid"].is_u64()), (&json!("info"), &true));
    assert_eq!(of("publish")["events"], 1);
    let exchange = of("exchange");
    assert_eq!((&exchange["session"], &exchange["notifications"]), (&json!("s"), &json!(1)));
    assert_eq!(of("a hook call cannot be read")["level"], "warn");
    let is_at = |line: &Value| line["at"].as_str().is_some_and(|at| at.ends_with("broken.toml:2:6"));
    let broken = lines.iter().find(|line| is_at(line)).unwrap_or_else(|| panic!("{log}"));
    assert_eq!((&broken["level"], &broken["key"]), (&json!("error"), &json!("subscriber.id")));
}
