//! A journal whose time is ahead of the wall clock: others get and send times of the wall clock.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpListener,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use aside::capability::webhook::signature::standard_signature;
use engine::records;
use journal::{
    AppendBatch, Journal, JournalSettings, Level, files::DirFiles, record::RecordKind, time::Timestamp,
};

use crate::support::daemon::{Home, text};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SECRET: &str = "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

#[expect(clippy::disallowed_methods, reason = "signatures are made by the wall clock")]
fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Writes a record with the time of tomorrow, as a start with a wrong clock does.
fn write_tomorrow(home: &Home) {
    let files = Arc::new(DirFiles::new(&home.state().join("journal")).expect("a folder"));
    let tomorrow = Timestamp::from_millis(seconds() * 1_000) + DAY;
    let opened = Journal::open(files, JournalSettings::default(), Arc::new(move || tomorrow), &|_| None);
    let opened = opened.expect("a sound journal");
    let mut tick = Vec::new();
    records::encode_bare(&mut tick);
    let batch = AppendBatch::of(RecordKind(records::TICK), &tick, None).expect("small");
    opened.journal.append_blocking(batch, Level::Synced).expect("appended");
    opened.journal.close_blocking().expect("closed");
}

#[test]
fn others_get_times_of_the_wall_clock() {
    let home = Home::new();
    let receiver = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = receiver.local_addr().expect("bound").port();
    let secret = home.write_secret("secret", SECRET);
    home.configure(
        "aside.toml",
        &format!(
            "[sinks]\ndefault = [\"webhook\"]\nwebhook = {{ url = \"http://127.0.0.1:{port}/\", secret_file = {secret:?} }}\n\
             [webhooks.standard]\nenabled = true\nsecret_file = {secret:?}\n"
        ),
    );
    home.serve().stop();
    write_tomorrow(&home);
    let daemon = home.serve();
    let said = daemon.said("ahead of the wall clock");
    assert!(said.contains("23h") || said.contains("24h"), "{said}");

    let (body, now) = (r#"{"type":"invoice.paid"}"#, seconds().to_string());
    let key = base64_of(SECRET);
    let signature = standard_signature(&key, "m1", &now, body.as_bytes());
    let headers = [
        ("content-type", "application/json"),
        ("webhook-id", "m1"),
        ("webhook-timestamp", &*now),
        ("webhook-signature", &*signature),
    ];
    let answer = home.client().request("POST", "/v1/webhooks/standard", &headers, body.as_bytes());
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 202, "{}", text(&answer.body));

    home.print(&["notify", "hello"]);
    let (mut connection, _) = receiver.accept().expect("a notice");
    let lines = BufReader::new(connection.try_clone().expect("a socket")).lines();
    let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").expect("taken");
    let sent = head.iter().find_map(|line| line.strip_prefix("webhook-timestamp: ")).expect("a time");
    let sent: u64 = sent.parse().expect("seconds");
    assert!(sent.abs_diff(seconds()) < 300, "{sent}");

    let shown = text(&home.run(&["status"]).stdout);
    assert!(shown.contains("ahead of the wall clock"), "{shown}");
    let found = text(&home.run(&["doctor", "--verbose"]).stdout);
    assert!(found.contains("ahead of the wall clock"), "{found}");
    let metrics = home.ask("GET", "/metrics", "");
    let metrics = text(&metrics.0.body);
    let ahead =
        metrics.lines().find_map(|line| line.strip_prefix("aside_clock_ahead_seconds ")).expect("a gauge");
    assert!(ahead.parse::<f64>().expect("a number") > 80_000.0, "{ahead}");
}

fn base64_of(secret: &str) -> Vec<u8> {
    aside::capability::webhook::signature::standard_key(secret).expect("base64")
}
