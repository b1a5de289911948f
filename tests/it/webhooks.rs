//! Webhooks and alerts with a real daemon: accepted over TCP with a signature or a token, once
//! each, and refused otherwise.

use std::{fmt::Write as _, fs, net::TcpStream, os::unix::fs::PermissionsExt};

use aside::capability::webhook::signature::hmac_sha256;
use serde_json::{Value, json};

use crate::support::daemon::{Daemon, Home, at, eventually, roundtrip};

const SECRET: &str = "It's a Secret to Everybody";
const TOKEN: &str = "6b1f0c2e81b7a94d36384a3e139a2dfa";

struct Served {
    home: Home,
    _daemon: Daemon,
    port: u16,
}

fn served() -> Served {
    let home = Home::new();
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let (secret, tokens) = (home.path("github.secret"), home.path("tokens"));
    home.write_secret("github.secret", &format!("{SECRET}\n"));
    home.write_secret("tokens", &format!("{TOKEN}  publish  alerts\n"));
    home.configure(
        "aside.toml",
        &format!(
            "[http]\nlisten = \"127.0.0.1:{port}\"\ntoken_file = {tokens:?}\n[webhooks.github]\nenabled = true\n\
             secret_file = {secret:?}\nworkspace = {:?}\n[webhooks.alertmanager]\nenabled = true\n",
            home.work()
        ),
    );
    let daemon = home.serve();
    Served { home, _daemon: daemon, port }
}

impl Served {
    /// Sends a request over TCP; returns the status and the body of the answer.
    fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> (u16, Value) {
        let mut request = format!(
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n",
            body.len()
        );
        for (name, value) in headers {
            write!(request, "{name}: {value}\r\n").expect("text");
        }
        let connection = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let answer = roundtrip(&connection, &format!("{request}\r\n{body}"));
        let status = answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("{answer}"));
        let body = answer.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    fn github(&self, event: &str, id: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let signature = signed(SECRET, &body);
        self.post(
            "/v1/webhooks/github",
            &[("x-github-event", event), ("x-github-delivery", id), ("x-hub-signature-256", &signature)],
            &body,
        )
    }

    /// The published events, at least one.
    fn events(&self, pattern: &str) -> Vec<Value> {
        eventually("an event", || Some(self.listed(pattern)).filter(|events| !events.is_empty()))
    }

    fn listed(&self, pattern: &str) -> Vec<Value> {
        self.home.get(&format!("/v1/events?type={pattern}&limit=100"))["events"]
            .as_array()
            .expect("a list")
            .clone()
    }
}

fn signed(secret: &str, body: &str) -> String {
    let bytes = hmac_sha256(secret.as_bytes(), &[body.as_bytes()]);
    bytes.iter().fold("sha256=".to_owned(), |hex, byte| format!("{hex}{byte:02x}"))
}

fn failed_check() -> Value {
    json!({ "action": "completed", "repository": { "full_name": "acme/shop" }, "check_run": {
        "conclusion": "failure", "name": "unit", "html_url": "https://github.com/acme/shop/runs/1",
        "check_suite": { "head_branch": "fix-cart" }, "output": { "title": "3 of 218 tests failed" },
        "pull_requests": [{ "number": 412 }] } })
}

#[test]
fn signed_webhook_is_delivered_once_as_untrusted() {
    let served = served();
    let harness = json!({ "name": "loop", "workspace": served.home.work() });
    served
        .home
        .exchange("s1", &json!({ "point": "turn_start", "carrier": "c1", "turn": "t1", "harness": harness }));
    assert_eq!(
        served.github("check_run", "d1", &failed_check()),
        (202, json!({ "published": 1, "duplicates": 0 }))
    );
    // GitHub repeats a delivery if the answer is late; other senders may do so too.
    assert_eq!(
        served.github("check_run", "d1", &failed_check()),
        (202, json!({ "published": 0, "duplicates": 1 }))
    );
    // A captured delivery: neither its id nor its event is signed.
    for (event, id) in [("check_run", "d9"), ("ping", "d1")] {
        let again = served.github(event, id, &failed_check());
        assert_eq!(again, (202, json!({ "published": 0, "duplicates": 1 })), "{event} {id}");
    }
    let events = served.events("ci.**");
    assert_eq!(events.len(), 1, "{events:?}");
    let text = eventually("the check", || {
        let taken = served.home.exchange(
            "s1",
            &json!({ "point": "turn_start", "carrier": "c2", "turn": "t2", "trigger": "pull" }),
        );
        (taken.status() == 200).then(|| taken.json()["text"].as_str().expect("text").to_owned())
    });
    assert!(text.contains("ci_failed: unit") && text.contains("pr: 412"), "{text}");
    assert!(text.contains("github"), "its source is there, as nobody trusts it: {text}");
    let (_, taken) = served.github("ping", "d2", &json!({ "zen": "Keep it logically awesome.", "hook": {} }));
    assert_eq!(taken["published"], 1, "{taken}");
}

#[test]
fn unsigned_webhook_is_refused_before_parsing() {
    let served = served();
    let (body, event) = (failed_check().to_string(), ("x-github-event", "check_run"));
    let refused = |path: &str, headers: &[(&str, &str)], body: &str| {
        let (status, answer) = served.post(path, headers, body);
        (status, answer["error"]["message"].as_str().unwrap_or_default().to_owned())
    };
    let github = "/v1/webhooks/github";
    let (status, said) = refused(github, &[event], &body);
    assert_eq!((status, said.as_str()), (401, "the header `x-hub-signature-256` is missing"));
    let (status, said) =
        refused(github, &[event, ("x-hub-signature-256", &signed("guess", &body))], "{not json");
    assert_eq!((status, said.as_str()), (401, "the signature is not that of this secret and this body"));
    // A token is not enough where a signature is required.
    let bearer = format!("Bearer {TOKEN}");
    let (status, _) = refused(github, &[event, ("authorization", &bearer)], &body);
    assert_eq!(status, 401);
    let (status, said) = refused("/v1/webhooks/githb", &[], &body);
    assert_eq!((status, said.as_str()), (404, "unknown sender `githb`; did you mean `github`?"));
    let (status, said) = refused("/v1/webhooks/gitlab", &[], &body);
    assert!(status == 404 && said.contains("[webhooks.gitlab]"), "{said}");
    let (status, said) = refused("/v1/webhooks/alertmanager", &[], "[]");
    assert!(status == 401 && said.contains("scope `publish`"), "{said}");
    let (status, said) = refused(
        github,
        &[event, ("x-hub-signature-256", &signed(SECRET, "payload=%7B%7D"))],
        "payload=%7B%7D",
    );
    assert!(status == 400 && said.contains("application/json"), "{said}");
    assert!(served.listed("ci.**").is_empty());
    // A secret that other users can read is refused.
    let secret = served.home.path("github.secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).expect("changed");
    let (status, said) = refused(github, &[event, ("x-hub-signature-256", &signed(SECRET, &body))], &body);
    assert_eq!((status, said.as_str()), (503, "the secret cannot be read; the log has the reason"));
}

#[test]
fn alert_change_is_published_once_over_both_routes() {
    let served = served();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let labels = json!({ "alertname": "DiskFull", "severity": "warning", "instance": "db-1" });
    let posted = json!([{ "labels": labels, "annotations": { "summary": "95 % used" },
        "startsAt": "2026-11-25T10:00:00Z", "endsAt": "2199-01-01T00:00:00Z" }])
    .to_string();
    let (status, taken) = served.post("/api/v2/alerts", &headers, &posted);
    assert_eq!((status, taken), (200, json!({ "published": 1, "duplicates": 0 })));
    let (_, taken) = served.post("/api/v2/alerts", &headers, &posted);
    assert_eq!(taken["duplicates"], 1);
    let received =
        json!({ "version": "4", "status": "resolved", "alerts": [{ "status": "resolved", "labels": labels,
        "annotations": {}, "startsAt": "2026-11-25T10:00:00Z", "endsAt": "2026-11-25T11:00:00Z" }] })
        .to_string();
    assert_eq!(served.post("/v1/webhooks/alertmanager", &headers, &received).0, 202);
    assert_eq!(served.events("alert.resolved").len(), 1);
    let (status, answer) = served.post("/api/v2/alerts", &headers, "[{\"labels\":{}}]");
    assert!(
        status == 400 && answer["error"]["message"].as_str().expect("text").contains("alerts[0].labels"),
        "{answer}"
    );
    assert_eq!(served.post("/api/v2/alerts", &[], &posted).0, 401);
}

#[test]
fn a_bad_alert_refuses_no_other_one() {
    let served = served();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let labelled = |labels: Value| json!({ "labels": labels, "startsAt": "2026-11-25T10:00:00Z" });
    let posted = json!({ "version": "4", "alerts": [
        labelled(json!({ "alertname": "DiskFull" })), labelled(json!({ "instance": "b:1" })),
        labelled(json!({})), labelled(json!({ "alertname": "HighLoad" })),
    ] });
    let (status, taken) = served.post("/v1/webhooks/alertmanager", &headers, &posted.to_string());
    let error = json!({ "field": "alerts[2].labels", "message": "must be an object of 1 to 256 texts" });
    let expected = json!({ "published": 3, "duplicates": 0, "refused": 1,
        "errors": [{ "number": 3, "error": error }] });
    assert_eq!((status, taken), (202, expected));
    let listed =
        eventually("three alerts", || Some(served.listed("alert.firing")).filter(|events| events.len() == 3));
    let mut names: Vec<&str> =
        listed.iter().map(|found| at(found, "/event/payload/alert").as_str().expect("a name")).collect();
    names.sort_unstable();
    assert_eq!(names, ["DiskFull", "HighLoad", "{instance=\"b:1\"}"]);
}

#[test]
fn a_change_back_is_new_after_a_restart() {
    let Served { home, _daemon: daemon, port } = served();
    let bearer = format!("Bearer {TOKEN}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = |status: &str, began: &str, ended: &str| {
        json!({ "version": "4", "alerts": [{ "status": status, "labels": { "alertname": "DiskFull" },
            "fingerprint": "f0", "startsAt": began, "endsAt": ended }] })
        .to_string()
    };
    let (ten, eleven) = ("2026-11-25T10:00:00Z", "2026-11-25T11:00:00Z");
    let firing = body("firing", ten, "0001-01-01T00:00:00Z");
    let replica = body("firing", "2026-11-25T10:00:15Z", "0001-01-01T00:00:00Z");
    let resolved = body("resolved", ten, "2026-11-25T10:30:00Z");
    let again = body("resolved", ten, eleven);
    let mut served = Served { home, _daemon: daemon, port };
    for (step, (posted, is_new)) in [
        (&firing, true),
        (&firing, false),
        (&replica, true),
        (&firing, false),
        (&replica, false),
        (&resolved, true),
        (&resolved, false),
        (&firing, true),
        (&firing, false),
        (&again, true),
        (&again, false),
    ]
    .into_iter()
    .enumerate()
    {
        let (_, taken) = served.post("/v1/webhooks/alertmanager", &headers, posted);
        let expected = json!({ "published": u8::from(is_new), "duplicates": u8::from(!is_new) });
        assert_eq!(taken, expected, "{step}");
        if step == 5 || step == 7 {
            let Served { home, _daemon: daemon, port } = served;
            drop(daemon);
            let daemon = home.serve();
            served = Served { home, _daemon: daemon, port };
        }
    }
}
