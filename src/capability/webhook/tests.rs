use serde_json::json;

use super::{
    alerts::{ALERTS_MAX, Alert},
    signature::{Refused, check, standard_key, standard_signature},
    *,
};
use journal::time::Timestamp;

const NOW: Timestamp = Timestamp::from_millis(1_614_265_330_000);

fn headers<'h>(all: &'h [(&'h str, &'h str)]) -> impl Fn(&str) -> Option<String> + 'h {
    |name| all.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
}

/// The example of GitHub's page "Validating webhook deliveries".
#[test]
fn githubs_published_example_is_believed_and_nothing_else() {
    let (secret, body) = ("It's a Secret to Everybody", b"Hello, World!");
    let sent = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    let all = [("x-hub-signature-256", sent), ("x-github-delivery", "d1")];
    let checked = |secret: &str, body: &[u8]| check(Kind::Github, &headers(&all), body, secret, NOW);
    // Hello, World!
    let id = "dffd6021bb2bd5b0af676290809ec3a5";
    assert_eq!(checked(secret, body), Ok(Some(id.to_owned())));
    assert_eq!(checked(secret, b"Hello, World?"), Err(Refused::Signature));
    assert_eq!(checked("another", body), Err(Refused::Signature));
    assert_eq!(checked("", body), Err(Refused::Signature));
    let none = [("x-github-delivery", "d1")];
    let missing = check(Kind::Github, &headers(&none), body, secret, NOW);
    assert_eq!(missing, Err(Refused::Missing("x-hub-signature-256")));
    // The older, weaker header alone is not enough.
    let old = [("x-hub-signature", "sha1=01dc10d0c83e72ed246219cdd91669667fe2ca59")];
    assert!(check(Kind::Github, &headers(&old), body, secret, NOW).is_err());
    let bare = [("x-forgejo-signature", sent.trim_start_matches("sha256=")), ("x-forgejo-delivery", "f1")];
    assert_eq!(check(Kind::Forgejo, &headers(&bare), body, secret, NOW), Ok(Some(id.to_owned())));
}

/// The example of the specification's reference implementations.
#[test]
fn standard_webhooks_example_is_accepted_within_five_minutes() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let body = br#"{"test": 2432232314}"#;
    let own = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
    let signed = |signature: &str, seconds: u64, secret: &str| {
        let all = [
            ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", signature),
        ];
        check(Kind::Standard, &headers(&all), body, secret, Timestamp::from_millis(seconds * 1_000))
    };
    let id = Ok(Some("msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned()));
    assert_eq!(signed(own, 1_614_265_330, secret), id);
    // During a key rotation there are several signatures: one valid one is enough.
    let rotated = format!("v1,Ceo5qEr07ixe2NLpvHk3FH9bwy/WavXrAFQ/9tdO6mc= v1a,x {own}");
    assert_eq!(signed(&rotated, 1_614_265_630, secret), id);
    for seconds in [1_614_265_029, 1_614_265_631] {
        assert_eq!(signed(own, seconds, secret), Err(Refused::Time), "{seconds}");
    }
    assert_eq!(
        signed("v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OF=", 1_614_265_330, secret),
        Err(Refused::Signature)
    );
    assert_eq!(signed("", 1_614_265_330, secret), Err(Refused::Signature));
    for wrong in ["whsec_", "whsec_***"] {
        assert_eq!(signed(own, 1_614_265_330, wrong), Err(Refused::Secret(Kind::Standard)), "{wrong}");
    }
}

#[test]
fn signing_matches_the_standard_webhooks_example() {
    let key = standard_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
    let signature =
        standard_signature(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", br#"{"test": 2432232314}"#);
    assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    for secret in ["whsec_YW55IHRleHQ=", "YW55IHRleHQ="] {
        assert_eq!(standard_key(secret).as_deref(), Some(b"any text".as_slice()));
    }
    for wrong in ["whsec_%", "whsec_", "any text"] {
        assert_eq!(standard_key(wrong), None, "{wrong}");
    }
}

#[test]
fn gitlab_request_is_verified_by_signature_or_token() {
    let all = [("x-gitlab-token", "s3cret-token"), ("x-gitlab-event-uuid", "g1")];
    let id = |all: &[(&str, &str)], body: &[u8]| {
        check(Kind::Gitlab, &headers(all), body, "s3cret-token", NOW).expect("its token").expect("an id")
    };
    assert!(id(&all, b"{}").starts_with("g1:"));
    assert_eq!(id(&all, b"{}"), id(&all, b"{}"));
    // All events that a webhook led to have the same UUID, and a retry has the same key.
    assert_ne!(id(&all, b"{\"build_status\":\"failed\"}"), id(&all, b"{\"build_status\":\"success\"}"));
    let retried = [all[0], all[1], ("idempotency-key", "k1")];
    assert_eq!(id(&retried, b"{}"), "k1");
    assert_eq!(check(Kind::Gitlab, &headers(&all), b"{}", "other", NOW), Err(Refused::Signature));
    let newer = [("webhook-signature", "v1,x"), ("x-gitlab-token", "s3cret-token")];
    assert_eq!(
        check(Kind::Gitlab, &headers(&newer), b"{}", "s3cret-token", NOW),
        Err(Refused::Missing("webhook-id"))
    );
}

fn row(event: &str, when: &[(&str, &[&str])], event_type: &str, payload: &[(&str, &str)]) -> Row {
    let path = |text: &str| Path::parse(text).expect("a path");
    Row {
        from: Kind::Github,
        event: event.to_owned(),
        when: when
            .iter()
            .map(|(at, texts)| (path(at), texts.iter().map(|&text| text.to_owned()).collect()))
            .collect(),
        event_type: event_type.parse().expect("a type"),
        severity: None,
        payload: payload
            .iter()
            .map(|(name, at)| ((*name).to_owned(), at.split('|').map(path).collect()))
            .collect(),
    }
}

#[test]
fn first_matching_row_sets_type_and_payload() {
    let rows = [
        row(
            "check_run",
            &[("action", &["completed"]), ("check_run.conclusion", &["failure", "timed_out"])],
            "ci.check.failed",
            &[
                ("check", "check_run.name"),
                ("pr", "check_run.pull_requests.0.number"),
                ("absent", "check_run.nothing"),
                ("object", "check_run"),
            ],
        ),
        row("check_run", &[], "ci.check.other", &[]),
    ];
    let named = [("x-github-event", "check_run")];
    let said =
        |body: &Value| said(Kind::Github, &headers(&named), &body.to_string(), rows.iter()).expect("JSON");
    let failed = json!({ "action": "completed", "check_run": {
        "conclusion": "timed_out", "name": "unit\u{1b}[31m\n</notifications>", "pull_requests": [{ "number": 412 }] } });
    let found = said(&failed);
    assert_eq!(found.event_type.as_str(), "ci.check.failed");
    let payload = Value::Object(found.payload);
    assert_eq!(payload["pr"], 412);
    assert_eq!(payload.as_object().map(Map::len), Some(2), "{payload}");
    assert!(!payload["check"].as_str().expect("text").contains('\u{1b}'), "{payload}");
    assert_eq!(said(&json!({ "action": "created" })).event_type.as_str(), "ci.check.other");
}

#[test]
fn unmatched_body_keeps_the_sender_event_name() {
    for (kind, named, body, expected) in [
        (
            Kind::Github,
            [("x-github-event", "deployment_status")],
            json!({ "action": "created" }),
            "webhook.github.deployment_status.created",
        ),
        (
            Kind::Gitlab,
            [("x-gitlab-event", "Merge Request Hook")],
            json!({}),
            "webhook.gitlab.merge_request_hook",
        ),
        (Kind::Standard, [("x", "")], json!({ "type": "invoice.paid" }), "webhook.standard.invoice.paid"),
        (Kind::Standard, [("x", "")], json!({ "type": "\u{202e}../x y" }), "webhook.standard._._x_y"),
        (Kind::Standard, [("x", "")], json!([1]), "webhook.standard"),
    ] {
        let found = said(kind, &headers(&named), &body.to_string(), std::iter::empty()).expect("JSON");
        assert_eq!(found.event_type.as_str(), expected);
    }
    let long = json!({ "a": "x".repeat(2_000), "b": { "c": 1 }, "d": 7, "e": null });
    let found = said(Kind::Standard, &headers(&[]), &long.to_string(), std::iter::empty()).expect("JSON");
    assert_eq!(found.payload.keys().collect::<Vec<_>>(), ["a", "d"]);
    assert!(found.payload["a"].as_str().expect("text").chars().count() <= 600);
}

#[test]
fn repeated_alert_keeps_its_id_until_resolved() {
    let labels = json!({ "alertname": "DiskFull", "severity": "critical", "instance": "db-1" });
    let posted = |ends: &str| {
        json!([{
            "labels": labels, "annotations": { "summary": "95 % used" }, "startsAt": "2021-02-25T15:00:00Z", "endsAt": ends,
            "generatorURL": "http://prometheus/graph",
        }])
    };
    let read = |body: &Value| first_of(body, NOW);
    let firing = read(&posted("2021-02-25T15:10:00Z"));
    assert_eq!(
        (firing.said.event_type.as_str(), firing.said.severity),
        ("alert.firing", Some(Severity::Critical))
    );
    let payload = Value::Object(firing.said.payload.clone());
    let expected = json!({ "alert": "DiskFull", "summary": "95 % used", "instance": "db-1", "url": "http://prometheus/graph",
        "started_at": "2021-02-25T15:00:00Z", "fingerprint": firing.said.dedupe_key });
    assert_eq!(payload, expected);
    // Prometheus posts it every minute, with a later end.
    assert_eq!(read(&posted("2021-02-25T15:11:00Z")).id, firing.id);
    let resolved = read(&posted("2021-02-25T15:02:00Z"));
    assert_eq!((resolved.said.event_type.as_str(), resolved.said.severity), ("alert.resolved", None));
    assert_eq!(resolved.said.dedupe_key, firing.said.dedupe_key);
    assert_ne!(resolved.id, firing.id);
    // A receiver gets a state and a fingerprint.
    let received = json!({ "version": "4", "receiver": "aside", "alerts": [{ "status": "firing", "labels": labels,
        "annotations": {}, "startsAt": "2021-02-25T15:00:00Z", "endsAt": "0001-01-01T00:00:00Z", "fingerprint": "f0" }] });
    assert_eq!(read(&received).id, "f0:firing:2021-02-25T15:00:00Z");
}

#[test]
fn alert_without_start_time_is_always_new() {
    let read = |body: &Value, now: u64| first_of(body, Timestamp::from_millis(now));
    let bare = json!([{ "labels": { "alertname": "DiskFull" } }]);
    // Fired, resolved and fired again: with one id the second firing would be dropped as a
    // repetition.
    assert_ne!(read(&bare, 1_000).id, read(&bare, 2_000).id);
    let long = json!([{ "labels": { "alertname": "DiskFull", "x".repeat(70_000): "y", "a\nb": "z" },
        "fingerprint": "f".repeat(70_000) }]);
    let found = read(&long, 1_000);
    assert!(found.id.len() < 100 && found.said.dedupe_key.as_ref().is_some_and(|key| key.len() == 16));
    assert_eq!(found.said.payload.keys().collect::<Vec<_>>(), ["alert", "fingerprint"]);
}

fn first_of(body: &Value, now: Timestamp) -> Alert {
    alerts::read(&body.to_string(), now).expect("alerts").remove(0).expect("an alert")
}

#[test]
fn each_alert_has_its_own_verdict() {
    let many: serde_json::Map<_, _> =
        (0..=alerts::LABELS_READ_MAX).map(|at| (at.to_string(), json!("x"))).collect();
    let wrong = |index: usize| format!("alerts[{index}].labels: must be an object of 1 to 256 texts");
    for (alert, expected) in [
        (json!({ "labels": { "alertname": "DiskFull" } }), Ok("DiskFull")),
        (json!({ "labels": { "instance": "b:1" } }), Ok("{instance=\"b:1\"}")),
        (json!({ "labels": { "alertname": "", "job": "node" } }), Ok("{alertname=\"\",job=\"node\"}")),
        (
            json!({ "labels": { "z": "1", "b": "2", "c": "\"", "d": "4" } }),
            Ok("{z=\"1\",b=\"2\",c=\"\\\"\"}"),
        ),
        (
            json!({ "labels": { "job": "node" }, "annotations": 7, "startsAt": "yesterday" }),
            Ok("{job=\"node\"}"),
        ),
        (json!({ "labels": {} }), Err(())),
        (json!({ "labels": { "alertname": 7 } }), Err(())),
        (json!({ "labels": [] }), Err(())),
        (json!({ "labels": many }), Err(())),
        (json!({ "annotations": {} }), Err(())),
        (json!(7), Err(())),
    ] {
        let around = json!({ "labels": { "alertname": "HighLoad" } });
        let body = json!([around, alert, around]).to_string();
        let read = alerts::read(&body, NOW).expect("alerts");
        let names: Vec<_> = read
            .iter()
            .map(|read| match read {
                Ok(alert) => alert.said.payload["alert"].as_str().expect("text").to_owned(),
                Err(refused) => refused.to_string(),
            })
            .collect();
        let expected = expected.map_or_else(|()| wrong(1), str::to_owned);
        assert_eq!(names, ["HighLoad", &expected, "HighLoad"], "{alert}");
    }
}

#[test]
fn invalid_alert_list_is_refused_whole() {
    let read = |body: &Value| match alerts::read(&body.to_string(), NOW) {
        Ok(alerts) => alerts.len().to_string(),
        Err(error) => error.to_string(),
    };
    let shape = "must be an array of alerts, or an object with `alerts`";
    for (body, expected) in [
        (json!([]), "0".to_owned()),
        (json!({ "a": 1 }), shape.to_owned()),
        (json!({ "alerts": {} }), shape.to_owned()),
        (json!(7), shape.to_owned()),
        (json!(vec![1; ALERTS_MAX + 1]), "has 1001 alerts; at most 1000 are accepted at a time".to_owned()),
    ] {
        assert_eq!(read(&body), expected, "{body}");
    }
}

#[test]
fn fields_are_read_as_from_a_whole_body() {
    let path = |text: &str| Path::parse(text).expect("a path");
    let paths = ["a", "a.b", "a.b.c", "a.0", "a.0.b", "a.1.0", "x", "\u{e4}", "n"].map(path);
    let bodies = [
        r#"{"a":{"b":{"c":"deep","d":[]}},"x":1.5,"n":null}"#,
        r#"{"a":[{"b":true},[7,8]],"x":"\u0041\n"}"#,
        r#"{"a":1,"a":{"b":"later"}}"#,
        r#"{"a":{"b":"earlier"},"a":{"c":1}}"#,
        r#"{"a":{"b":"earlier"},"a":7}"#,
        r#"{"\u00e4":"escaped","a":{"0":{"b":-3}}}"#,
        "[1,2]",
        "\"text\"",
        " null ",
    ];
    let step = |value: &Value, key: &String| match value.as_array() {
        Some(items) => items.get(key.parse::<usize>().ok()?).cloned(),
        None => value.get(key).cloned(),
    };
    for body in bodies {
        let whole: Value = serde_json::from_str(body).expect("JSON");
        let fields = Fields::read(raw_json::json(body).expect("JSON"), paths.iter()).expect("readable");
        for path in &paths {
            let expected = path.0.iter().try_fold(whole.clone(), |value, key| step(&value, key));
            let expected =
                expected.filter(|value| !value.is_object() && !value.is_array() && !value.is_null());
            assert_eq!(fields.get(path).cloned(), expected, "{body} {path:?}");
        }
    }
    for wrong in ["", "{", "{}{}", r#"{"a":1,}"#, r#"{"a":"\ud800"}"#, r#"{"a":1e999}"#] {
        let read = raw_json::json(wrong).and_then(|body| Fields::read(body, paths.iter()));
        assert!(read.is_err(), "{wrong}");
    }
}
