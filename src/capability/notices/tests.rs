//! Real sinks, each with a notice.

use std::{
    fs,
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::Path,
    thread::{self, JoinHandle},
};

use engine::{
    event::SessionId,
    notification::{Category, Level},
    settings::Url,
    sink::{NotSent, Notice, Progress},
};
use serde_json::{Value, json};
use strum::VariantArray;

use super::{
    kind::{fields, never},
    *,
};

fn notice() -> Notice {
    Notice {
        level: Level::Warn,
        category: Some(Category::Workflow),
        session: Some(SessionId::new("s1")),
        workspace: Some("/home/u/shop".into()),
        held: NotSent { repeats: 2, rate_limited: 0 },
        ..Notice::new("u1", "Tests \"pass\".", Timestamp::from_millis(1_763_726_400_000))
    }
}

/// Writes a file without permissions for other users.
fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("it is ours");
}

/// A server that answers one request with `answer`, and returns the request.
fn server(answer: &'static str) -> (Url, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let url = Url {
        is_secure: false,
        host: "127.0.0.1".into(),
        port,
        authority: format!("127.0.0.1:{port}").into(),
        path: "/base/alerts".into(),
    };
    let taken = thread::spawn(move || {
        let (mut connection, _) = listener.accept().expect("a client");
        let (mut text, mut part) = (String::new(), [0; 4_096]);
        let is_whole = |text: &str| {
            let (head, body) = text.split_once("\r\n\r\n")?;
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            (body.len() >= length.parse::<usize>().ok()?).then_some(())
        };
        while is_whole(&text).is_none() {
            let count = connection.read(&mut part).expect("readable");
            assert!(count > 0, "it broke off: {text}");
            text.push_str(std::str::from_utf8(&part[..count]).expect("text"));
        }
        connection.write_all(answer.as_bytes()).expect("written");
        text
    });
    (url, taken)
}

#[test]
fn each_sink_has_its_row() {
    let rows: Vec<Sink> = KINDS.iter().map(|kind| kind.sink).collect();
    assert_eq!(rows, Sink::VARIANTS);
}

#[tokio::test]
async fn ntfy_request_carries_topic_and_returns_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    write_secret(&token, "tk_secret\n");
    let (url, taken) = server("HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"id\":\"xE73I\"}");
    let answered = ntfy::send(&url, token.to_str(), &notice()).await;
    assert_eq!(answered, Answered::Took(Some("xE73I".to_owned())));
    let request = taken.join().expect("it ended");
    assert!(request.starts_with("POST /base/ HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("authorization: Bearer tk_secret\r\n"), "{request}");
    let body: Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    let expected = json!({
        "topic": "alerts", "title": "llm @ shop", "message": "Tests \"pass\". [not sent before: 2 repeats]",
        "priority": 4, "tags": ["warning", "workflow"],
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn ntfy_reads_markdown_and_opens_the_link() {
    let (url, taken) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    let message = "**All** <b>green</b>, see [the run](https://h/1)";
    let said = Notice {
        is_markdown: true,
        link: Some("https://h/pr/7".into()),
        ..Notice::new("u1", message, Timestamp::from_millis(0))
    };
    assert_eq!(ntfy::send(&url, None, &said).await, Answered::Took(None));
    let request = taken.join().expect("it ended");
    let body: Value = serde_json::from_str(request.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
    assert_eq!((&body["markdown"], &body["click"]), (&json!(true), &json!("https://h/pr/7")));
    assert_eq!(body["message"], "**All** &lt;b>green&lt;/b>, see [the run](https://h/1)");
    let fields = fields(&said);
    assert_eq!(fields["message"], "All <b>green</b>, see the run (https://h/1)");
    assert_eq!((&fields["markdown"], &fields["link"]), (&body["message"], &body["click"]));
}

#[tokio::test]
async fn ntfy_replaces_what_has_the_same_sequence() {
    let mut sequences = Vec::new();
    for (percent, level, priority) in [(40, Level::Info, 2), (40, Level::Warn, 4), (100, Level::Info, 3)] {
        let (url, taken) = server("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
        let progress = Progress { line: "00ff00ff00ff00ff".into(), ..Progress::new("copy", Some(percent)) };
        let said = Notice { progress: Some(progress), level, ..Notice::new("u1", "Copies", notice().at) };
        assert_eq!(ntfy::send(&url, None, &said).await, Answered::Took(None));
        let request = taken.join().expect("it ended");
        let body: Value =
            serde_json::from_str(request.split("\r\n\r\n").nth(1).expect("a body")).expect("JSON");
        assert_eq!(body["message"], format!("Copies {percent} %"));
        assert_eq!(body["priority"], priority);
        sequences.push(body["sequence_id"].as_str().expect("a text").to_owned());
        let fields = fields(&said);
        assert_eq!((&fields["key"], &fields["progress"]), (&json!("copy"), &json!(percent)));
    }
    assert_eq!(sequences, ["00ff00ff00ff00ff"; 3]);
}

#[tokio::test]
async fn ntfy_failure_states_its_reason() {
    let (url, taken) = server("HTTP/1.1 507 Full\r\ncontent-length: 11\r\n\r\nno room\nnow");
    assert_eq!(ntfy::send(&url, None, &notice()).await, failed("it answered 507 no room".to_owned()));
    taken.join().expect("it ended");
    let Answered::Refused { error, is_final: false } = ntfy::send(&url, None, &notice()).await else {
        panic!("nobody listens")
    };
    assert!(error.contains("Connection refused"), "{error}");
    let missing = ntfy::send(&url, Some("/no/such/token"), &notice()).await;
    assert!(
        matches!(missing, Answered::Refused { error, .. } if error.starts_with("/no/such/token cannot be read"))
    );
}

#[tokio::test]
async fn a_receiver_that_is_gone_gets_nothing_more() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    write_secret(&secret, "YW55IHRleHQ=");
    let secret = secret.to_str().expect("text");
    let (url, taken) = server("HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n");
    let now = Timestamp::from_millis(1_763_726_405_000);
    let times = webhook::Times { notice: now, now };
    assert_eq!(webhook::post(&url, secret, &notice(), times).await, never("it answered 410 ".to_owned()));
    let request = taken.join().expect("it ended");
    assert!(request.starts_with("POST /base/alerts HTTP/1.1\r\n"), "{request}");
    assert!(
        request.contains("webhook-id: u1\r\nwebhook-timestamp: 1763726405\r\nwebhook-signature: v1,"),
        "{request}"
    );
}
