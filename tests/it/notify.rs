//! Notices for the user with a real daemon and real sinks: a file, servers, commands in the PATH,
//! and the line of a hook.

mod command;
mod selection;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::support::daemon::{Home, at, eventually};

/// The longest time that an exchange may take while other clients call without pause, in an
/// unoptimised build on a busy machine.
const EXCHANGE_MAX: Duration = Duration::from_millis(1_500);
/// Times that the daemon is killed.
const KILLS: usize = 6;
/// Calls in the loop.
const CALLS: usize = 10_000;

/// All sinks, in the order in which they are asked.
const SINKS: [&str; 7] = ["harness", "desktop", "log", "ntfy", "webhook", "apprise", "command"];
/// The secret of the webhook's receiver, and its decoded bytes.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SECRET_BYTES: [u8; 24] =
    [49, 242, 144, 246, 191, 6, 41, 138, 171, 79, 8, 212, 60, 63, 8, 44, 246, 72, 163, 98, 218, 45, 164, 176];
/// The answer of an overloaded server.
const BUSY: &str = "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n";

/// A server on this machine that keeps the requests that it gets.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts one that answers each request with the next of `answers`, and repeats the last one.
    fn start(answers: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        // The thread ends with the process; requests to it end with the test's daemon.
        thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let Some(request) = read_request(&mut connection) else { continue };
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                let answer = answers.get(kept.len()).or(answers.last()).expect("an answer");
                kept.push(request);
                connection.write_all(answer.as_bytes()).ok();
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read_request(connection: &mut TcpStream) -> Option<String> {
    let (mut text, mut part) = (String::new(), [0; 4_096]);
    loop {
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
            if body.len() >= length.parse::<usize>().ok()? {
                return Some(text);
            }
        }
        let count = connection.read(&mut part).ok().filter(|count| *count > 0)?;
        text.push_str(std::str::from_utf8(part.get(..count)?).ok()?);
    }
}

fn body(request: &str) -> Value {
    serde_json::from_str(request.split_once("\r\n\r\n").expect("a body").1).expect("JSON")
}

fn header<'r>(request: &'r str, name: &str) -> &'r str {
    let found = request.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    found.unwrap_or_else(|| panic!("no {name}: {request}"))
}

/// HMAC-SHA256, implemented here (RFC 2104), so that the receiver shares no code with the sender.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let pad = |byte: u8| {
        let mut block = [byte; 64];
        block.iter_mut().zip(key).for_each(|(padded, key)| *padded ^= key);
        block
    };
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            (0..3).fold(0_u32, |bits, index| bits << 8 | u32::from(chunk.get(index).copied().unwrap_or(0)));
        for index in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * index) & 63) as usize];
            text.push(if index <= chunk.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

/// Writes a program into the folder that comes first in the PATH.
fn put_program(home: &Home, name: &str, script: &str) {
    let path = home.path("bin").join(name);
    fs::create_dir_all(home.path("bin")).expect("a folder");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// A home with programs in its PATH, the address of a bus, and these settings.
fn home(settings: &str) -> Home {
    let mut home = Home::new();
    let before = std::env::var("PATH").unwrap_or_default();
    home.set("PATH", format!("{}:{before}", home.path("bin").display()));
    home.set("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere");
    let out = home.path("shown");
    let record = format!("{{ printf '%s|' \"$@\"; cat; echo; }} >> {}.", out.display());
    put_program(&home, "notify-send", &format!("{record}desktop"));
    put_program(&home, "apprise", &format!("{record}apprise"));
    put_program(&home, "show", &format!("{record}command"));
    home.configure("aside.toml", &format!("[journal]\nsegment_bytes = 1048576\n{settings}"));
    home
}

fn shown(home: &Home, by: &str) -> String {
    fs::read_to_string(home.path(&format!("shown.{by}"))).unwrap_or_default()
}

/// The lines of the log.
fn logged(home: &Home) -> Vec<Value> {
    let text = fs::read_to_string(home.state().join("notices.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

fn notify(home: &Home, body: &Value) -> Value {
    let answer = home.ask("POST", "/v1/notify", &body.to_string());
    assert_eq!(answer.status(), 200, "{answer:?}");
    answer.json()
}

/// The steps of an event in the ledger, a line each: the step and the sink.
fn steps(home: &Home, id: &str) -> Vec<String> {
    let found = home.get(&format!("/v1/events/{id}"));
    let lines = found["history"].as_array().expect("a list").iter();
    let word = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    lines.map(|line| format!("{} {}", word(line, "what"), word(line, "by"))).collect()
}

fn exchange(home: &Home, carrier: &str) -> Value {
    let asked = json!({
        "point": "after_tool", "carrier": carrier, "turn": "t1", "shows_notices": true,
        "harness": { "name": "loop", "workspace": home.work() },
    });
    home.exchange("s1", &asked).json()
}

/// A home in which every sink is on, with these servers.
fn home_with_all(ntfy: &Server, webhook: &Server) -> Home {
    let home = home("");
    let secret = home.write_secret("secret", &format!("{SECRET}\n"));
    let settings = format!(
        "[journal]\nsegment_bytes = 1048576\n\
         [sinks]\ndefault = [\"harness\", \"desktop\", \"log\", \"ntfy\", \"webhook\", \"apprise\", \"command\"]\n\
         retry = [\"1s\", \"1s\"]\n\
         command = {{ command = [\"show\", \"-l\", \"{{level}}: {{text}}\"] }}\n\
         ntfy = {{ url = \"http://127.0.0.1:{}/alerts\" }}\n\
         [sinks.webhook]\nurl = \"http://localhost:{}/hook\"\nsecret_file = {secret:?}\n",
        ntfy.port, webhook.port
    );
    home.configure("aside.toml", &settings);
    home
}

/// Checks each request as a receiver with the secret does.
fn check_signatures(requests: &[String]) {
    for request in requests {
        let (id, time) = (header(request, "webhook-id"), header(request, "webhook-timestamp"));
        let signed = format!("{id}.{time}.{}", request.split_once("\r\n\r\n").expect("a body").1);
        let signature = format!("v1,{}", base64(&hmac(&SECRET_BYTES, signed.as_bytes())));
        assert_eq!(header(request, "webhook-signature"), signature);
        let sent = body(request);
        assert_eq!((&sent["data"]["id"], &sent["type"]), (&json!(id), &json!("user.notice")));
    }
}

#[test]
fn notice_reaches_every_sink_and_why_shows_attempts() {
    let ntfy = Server::start(&["HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{\"id\":\"xE73I\"}"]);
    let webhook = Server::start(&[BUSY, BUSY, "HTTP/1.1 204 No Content\r\n\r\n"]);
    let home = home_with_all(&ntfy, &webhook);
    let _daemon = home.serve();
    exchange(&home, "c1");
    let message = "A <b>decision</b> & more.";
    let said = notify(
        &home,
        &json!({ "message": message, "level": "error", "category": "safety", "session": "s1" }),
    );
    let id = said["id"].as_str().expect("an id").to_owned();
    assert_eq!(said["text"], format!("Notification sent: {message}"));
    assert_eq!(said["sinks"], json!(SINKS));
    assert_eq!(exchange(&home, "c2")["notice"], format!("aside: llm (error): {message}"));
    assert_eq!(exchange(&home, "c3")["notice"], Value::Null, "once");
    let all = eventually("its way to the webhook", || {
        let steps = steps(&home, &id);
        steps.iter().any(|step| step == "user_sent webhook").then_some(steps)
    });
    for sink in SINKS {
        let of = |step: &str| all.iter().filter(|found| **found == format!("{step} {sink}")).count();
        let failures = if sink == "webhook" { 2 } else { 0 };
        let found = (of("user_queued"), of("user_failed"), of("user_sent"));
        assert_eq!(found, (1, failures, 1), "{sink}: {all:?}");
    }
    assert_eq!(all.len(), 16, "{all:?}");
    assert_eq!(shown(&home, "command"), format!("-l|error: {message}|{message}\n"));
    let title = format!("llm @ {}", home.work().rsplit('/').next().expect("a name"));
    let escaped = "A &lt;b&gt;decision&lt;/b&gt; &amp; more.";
    assert_eq!(
        shown(&home, "desktop"),
        format!("--app-name=aside|--urgency=critical|--|{title}|{escaped}|\n")
    );
    let apprise = format!("--title={title}|--notification-type=failure|{message}\n");
    assert_eq!(shown(&home, "apprise"), apprise);
    let [line] = logged(&home).try_into().expect("one line");
    assert_eq!((&line["id"], &line["level"], &line["session"]), (&json!(id), &json!("error"), &json!("s1")));
    let mode = fs::metadata(home.state().join("notices.jsonl")).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let [request] = ntfy.requests().try_into().expect("one request");
    let sent = body(&request);
    assert_eq!((&sent["topic"], &sent["priority"]), (&json!("alerts"), &json!(5)));
    assert_eq!(webhook.requests().len(), 3);
    check_signatures(&webhook.requests());
    let why = home.print(&["why", &id]);
    for line in [
        "harness accepted it, as c2",
        "ntfy accepted it, as xE73I",
        "webhook did not accept it: it answered 503; retried at 20",
        "webhook accepted it, as 204",
    ] {
        assert!(why.contains(line), "{line}: {why}");
    }
}

#[test]
fn markdown_and_link_are_rendered_for_each_sink() {
    let home = home("[sinks]\ndefault = [\"harness\", \"desktop\", \"log\", \"apprise\"]\n");
    let _daemon = home.serve();
    exchange(&home, "c1");
    let (message, link) = ("**All** <i>green</i>: `a_b`", "https://ci.example/run?a=1&b=2");
    home.print(&["notify", message, "--session", "s1", "--markdown", "--link", link]);
    let [line] = eventually("its line", || logged(&home).try_into().ok());
    let line: Value = line;
    let plain = "All <i>green</i>: a_b";
    assert_eq!((at(&line, "/message"), at(&line, "/link")), (&json!(plain), &json!(link)));
    let marked = "**All** &lt;i>green&lt;/i>: `a_b`";
    assert_eq!(at(&line, "/markdown"), &json!(marked));
    assert_eq!(exchange(&home, "c2")["notice"], format!("aside: llm: {plain} ({link})"));
    let title =
        at(&line, "/workspace").as_str().expect("a folder").rsplit('/').next().expect("a name").to_owned();
    let href = "https://ci.example/run?a=1&amp;b=2";
    let desktop = format!("<b>All</b> &lt;i&gt;green&lt;/i&gt;: a_b (<a href=\"{href}\">{href}</a>)");
    eventually("the desktop", || shown(&home, "desktop").ends_with(&format!("|{desktop}|\n")).then_some(()));
    let apprise = format!(
        "--title=llm @ {title}|--notification-type=info|--input-format=markdown|{marked} (<{link}>)\n"
    );
    eventually("apprise", || (shown(&home, "apprise") == apprise).then_some(()));
    let wrong = home.run(&["notify", "x", "--link", "javascript:alert(1)"]);
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && said.contains("link: must begin with https:// or http://"), "{said}");
    // Without markdown each character is shown unchanged.
    home.print(&["notify", "**x** [y](https://h/)", "--session", "s1"]);
    assert_eq!(exchange(&home, "c3")["notice"], "aside: llm: **x** [y](https://h/)");
}

#[test]
fn progress_notice_replaces_the_open_desktop_window() {
    let home = home("[sinks]\ndefault = [\"harness\", \"desktop\"]\n");
    // An older version, which cannot replace a notice.
    let record = format!("{{ printf '%s|' \"$@\"; echo; }} >> {}", home.path("shown.old").display());
    put_program(&home, "notify-send", &format!("{record}\ncase \"$*\" in *--replace-id*) exit 1;; esac"));
    let _daemon = home.serve();
    exchange(&home, "c1");
    let say = |percent: &str| {
        let args = ["notify", "Copies", "--session", "s1", "--key", "copy", "--progress", percent, "--json"];
        let said: Value = serde_json::from_str(&home.print(&args)).expect("JSON");
        said["id"].as_str().expect("an id").to_owned()
    };
    let first = say("0");
    eventually("a window", || {
        steps(&home, &first).iter().any(|step| step == "user_sent desktop").then_some(())
    });
    let (second, third) = (say("40"), say("100"));
    assert_eq!(exchange(&home, "c2")["notice"], "aside: llm: Copies 100 %");
    eventually("the last window", || {
        steps(&home, &third).iter().any(|step| step == "user_sent desktop").then_some(())
    });
    let ended = |id: &str| steps(&home, id).iter().filter(|step| step.starts_with("user_ended")).count();
    assert_eq!((ended(&first), ended(&second), ended(&third)), (1, 2, 0));
    let why = home.print(&["why", &second]);
    assert!(why.contains("desktop did not get it: a newer one replaces it"), "{why}");
    let calls = shown(&home, "old");
    let ids: BTreeSet<&str> = calls
        .split('|')
        .filter(|arg| arg.starts_with("--replace-id=") || arg.contains("synchronous"))
        .collect();
    assert_eq!((calls.lines().count(), ids.len()), (4, 2), "{calls}");
    assert!(calls.contains("--hint=int:value:100|") && calls.ends_with("|Copies 100 %|\n"), "{calls}");
    let wrong = home.run(&["notify", "x", "--progress", "4"]);
    assert!(!wrong.status.success(), "it needs a key");
}

#[test]
fn restart_retries_failed_sinks_without_repeating_sent_notices() {
    let webhook = Server::start(&[BUSY, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]);
    let home = home("");
    let secret = home.write_secret("secret", "YW55IHRleHQ=");
    home.configure(
        "aside.toml",
        &format!(
            "[sinks]\ndefault = [\"log\", \"webhook\", \"apprise\"]\nretry = [\"2s\"]\n\
         [sinks.webhook]\nurl = \"http://127.0.0.1:{}/\"\nsecret_file = {secret:?}\n",
            webhook.port
        ),
    );
    let daemon = home.serve();
    let id = notify(&home, &json!({ "message": "x", "workspace": "/w" }))["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    eventually("a failure", || {
        let steps = steps(&home, &id);
        let has = |step: &str| steps.iter().any(|found| found == step);
        (has("user_failed webhook") && has("user_sent log") && has("user_sent apprise")).then_some(())
    });
    daemon.kill();
    let _daemon = home.serve();
    eventually("the second try", || {
        steps(&home, &id).iter().any(|step| step == "user_sent webhook").then_some(())
    });
    assert_eq!(
        (logged(&home).len(), shown(&home, "apprise").lines().count(), webhook.requests().len()),
        (1, 1, 2)
    );
    assert_eq!(steps(&home, &id).len(), 7);
}

#[test]
fn kill_at_any_moment_logs_each_notice_once() {
    let home = home("[sinks]\ndefault = [\"log\"]\n");
    let mut answered = Vec::new();
    for round in 0..KILLS {
        let daemon = home.serve();
        let (said, heard) = mpsc::sync_channel(64);
        let home = &home;
        thread::scope(|scope| {
            scope.spawn(move || {
                // Each folder has its own rate; all together have 60 a minute.
                for number in 0..60 / KILLS {
                    let body = json!({ "message": "x", "workspace": format!("/w/{round}/{number}") });
                    let Ok(answer) = home.try_ask("POST", "/v1/notify", &body.to_string()) else { return };
                    said.send(answer.json()["id"].as_str().expect("an id").to_owned()).expect("heard");
                }
            });
            answered.extend(heard.iter().take(1 + round));
            daemon.kill();
            answered.extend(heard);
        });
    }
    let _daemon = home.serve();
    eventually("every line", || {
        let lines = logged(&home);
        let has = |id: &String| lines.iter().any(|line| line["id"] == **id);
        answered.iter().all(has).then_some(())
    });
    let lines = logged(&home);
    let ids: BTreeSet<&str> = lines.iter().filter_map(|line| line["id"].as_str()).collect();
    assert_eq!(ids.len(), lines.len());
}

#[test]
fn template_notice_is_logged_once_despite_kills() {
    let home = home("[sinks]\ndefault = [\"log\"]\n");
    let subscriber =
        "[subscriber]\nid = \"orders\"\n[events]\ntypes = [\"shop.order.*\"]\n[batching]\nwindow_ms = 300\n";
    home.configure("subscribers/orders.toml", subscriber);
    home.configure(
        "templates/orders.toon.j2",
        "orders: {{ count }}\n{{ notify(\"order \" ~ events[0].payload.n, level=\"warn\") }}\n",
    );
    for round in 0..3 {
        let daemon = home.serve();
        for folder in 0..2 {
            // Each has its own batch, also one that survives a restart.
            let (number, folder) = (format!("n={round}-{folder}"), format!("/w/{round}/{folder}"));
            home.print(&["publish", "shop.order.placed", &number, "--workspace", &folder]);
        }
        if round == 2 {
            eventually("each of them", || (logged(&home).len() >= 6).then_some(()));
        }
        daemon.kill();
    }
    let _daemon = home.serve();
    notify(&home, &json!({ "message": "the end", "workspace": "/w" }));
    let mut lines = eventually("the end", || {
        let lines = logged(&home);
        lines.iter().any(|line| line["message"] == "the end").then_some(lines)
    });
    lines.retain(|line| line["message"] != "the end");
    let mut messages: Vec<&str> = lines.iter().filter_map(|line| line["message"].as_str()).collect();
    messages.sort_unstable();
    assert_eq!(messages, ["order 0-0", "order 0-1", "order 1-0", "order 1-1", "order 2-0", "order 2-1"]);
    let ids: BTreeSet<&str> = lines.iter().filter_map(|line| line["id"].as_str()).collect();
    assert_eq!(ids.len(), 6);
    assert!(ids.iter().all(|id| id.starts_with('n') && id.ends_with(":1")), "{ids:?}");
    assert!(lines.iter().all(|line| line["context"] == "orders" && line["level"] == "warn"), "{lines:?}");
}

#[test]
fn notify_burst_is_limited_and_delays_no_exchange() {
    let home = home("durability = \"interval\"\n[sinks]\ndefault = [\"log\"]\n");
    let _daemon = home.serve();
    exchange(&home, "c1");
    let is_over = AtomicBool::new(false);
    let slowest = thread::scope(|scope| {
        let call = |from: usize| {
            for number in (from..CALLS).step_by(4) {
                let message = format!("call {}", number % 9);
                let said = notify(&home, &json!({ "message": message, "session": "s1" }));
                let text = said["text"].as_str().expect("a text");
                let is_sent = said["suppressed"].is_null();
                let begin = if is_sent { "Notification sent: call " } else { "Notification not sent: call " };
                assert!(text.starts_with(begin), "{text}");
            }
        };
        let callers: Vec<_> = (0..4).map(|from| scope.spawn(move || call(from))).collect();
        let others = scope.spawn(|| slowest_exchange(&home, &is_over));
        for caller in callers {
            caller.join().expect("each call succeeded");
        }
        is_over.store(true, Ordering::Relaxed);
        others.join().expect("each exchange was answered")
    });
    assert!(slowest < EXCHANGE_MAX, "an exchange took {slowest:?}");
    let ends = eventually("the whole history", || Some(ends(&home)).filter(|ends| ends.len() == CALLS));
    let count = |end: &str| ends.iter().filter(|found| *found == end).count();
    let (sent, repeats, rate_limited) = (count("sent"), count("repeat"), count("rate_limited"));
    assert_eq!(sent + repeats + rate_limited, CALLS, "{ends:?}");
    assert!(sent >= 6 && repeats > 0 && rate_limited > 0, "{sent} {repeats} {rate_limited}");
    assert_eq!(logged(&home).len(), sent);
    // Six per minute.
    assert!(sent <= 60, "{sent}");
}

/// The longest duration of an exchange; makes exchanges until `is_over`.
#[expect(clippy::disallowed_methods, reason = "how long a client waits is what is tested")]
fn slowest_exchange(home: &Home, is_over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let began = Instant::now();
        exchange(home, &format!("k{number}"));
        slowest = slowest.max(began.elapsed());
    }
    slowest
}

/// How each notice in the history ended; fails if one is still on its way.
fn ends(home: &Home) -> Vec<String> {
    let (mut ends, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = home.get(&format!("/v1/events?type=user.notice&limit=1000{cursor}"));
        for event in page["events"].as_array().expect("a list") {
            ends.extend(event["ended"][0]["reason"].as_str().map(str::to_owned));
        }
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return ends,
        }
    }
}

#[test]
fn notice_is_sanitised_to_a_single_line_everywhere() {
    let home = home("[sinks]\ndefault = [\"harness\", \"log\", \"desktop\"]\n");
    let daemon = home.serve();
    // This process counts as the client, as its number is in the exchange.
    let harness = json!({ "name": "loop", "workspace": home.work(), "pid": std::process::id() });
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1", "turn": "t1", "harness": harness }));
    let hostile = "done\u{1b}[2J\n2026-11-25T00:00:00Z error forged: x\r\u{202e} ghp_0123456789abcdefABCDEF0123456789abcd";
    let clean = "done 2026-11-25T00:00:00Z error forged: x ghp_[masked]";
    let said = home.print(&["notify", hostile, "--level", "loud", "--context", "build\n"]);
    assert_eq!(said, format!("Notification sent: {clean}\n"));
    let again = home.print(&["notify", hostile, "--context", "build"]);
    assert!(again.starts_with(&format!("Notification not sent: {clean} (already sent ")), "{again}");
    let line = daemon.said("llm_notify");
    assert!(line.contains(&format!(" info llm_notify: {clean} ")), "{line}");
    let lines = eventually("its line", || Some(logged(&home)).filter(|lines| !lines.is_empty()));
    assert_eq!((at(&lines[0], "/message"), at(&lines[0], "/session")), (&json!(clean), &json!("s1")));
    assert_eq!((at(&lines[0], "/context"), at(&lines[0], "/level")), (&json!("build"), &json!("info")));
    let empty = home.run(&["notify", " \n "]);
    assert!(
        !empty.status.success() && String::from_utf8_lossy(&empty.stderr).contains("message: is empty"),
        "{empty:?}"
    );
}

#[test]
fn unusable_sinks_are_reported_and_delay_no_request() {
    let mut home =
        home("[sinks]\ndefault = [\"desktop\", \"apprise\", \"log\"]\nlog = { path = \"/dev/null\" }\n");
    home.set("DBUS_SESSION_BUS_ADDRESS", "");
    fs::remove_file(home.path("bin").join("apprise")).expect("it was put there");
    let _daemon = home.serve();
    let id = notify(&home, &json!({ "message": "x" }))["id"].as_str().expect("an id").to_owned();
    eventually("three failures", || (steps(&home, &id).len() == 6).then_some(()));
    let why = home.print(&["why", &id]);
    for line in [
        "desktop did not accept it: no desktop: no session bus",
        "apprise did not accept it: apprise is not in the daemon's PATH; not retried",
        "log did not accept it: /dev/null: it is not a regular file; retried at ",
    ] {
        assert!(why.replace("\n               ", " ").contains(line), "{line}: {why}");
    }
}

#[test]
fn quiet_hours_delay_notices_below_error_level() {
    let mut home = home("[sinks]\ndefault = [\"log\", \"apprise\"]\n");
    home.set("TZ", "UTC0");
    let daemon = home.serve();
    notify(&home, &json!({ "message": "before", "workspace": "/w" }));
    let first = eventually("its line", || logged(&home).into_iter().next());
    let hour: u32 = at(&first, "/at").as_str().expect("a time")[11..13].parse().expect("an hour");
    // Two hours, in case the hour ends before the test does.
    let quiet = format!("quiet = \"{hour:02}:00-{:02}:00\"", (hour + 2) % 24);
    home.configure("aside.toml", &format!("[sinks]\ndefault = [\"log\", \"apprise\"]\n{quiet}\n"));
    home.print(&["reload"]);
    let shows = |message: &str| shown(&home, "apprise").contains(message);
    let waiting = notify(&home, &json!({ "message": "later", "workspace": "/w" }));
    let id = waiting["id"].as_str().expect("an id").to_owned();
    eventually("its wait", || steps(&home, &id).contains(&"user_waits apprise".to_owned()).then_some(()));
    notify(&home, &json!({ "message": "on fire", "level": "error", "workspace": "/w" }));
    eventually("the error", || shows("on fire").then_some(()));
    let why = home.print(&["why", &id]);
    assert!(why.contains("waits for apprise until the quiet hours end, at 20"), "{why}");
    daemon.kill();
    // Twelve hours away it is day; a waiting notice keeps its original time.
    home.set("TZ", "FAR-12");
    let _daemon = home.serve();
    notify(&home, &json!({ "message": "far away", "workspace": "/w" }));
    let shows = |message: &str| shown(&home, "apprise").contains(message);
    eventually("what is said by day", || shows("far away").then_some(()));
    // A file is written also in quiet hours, possibly after the other sink has shown the same
    // notice.
    eventually("all lines", || (logged(&home).len() >= 4).then_some(()));
    assert_eq!((shows("later"), logged(&home).len()), (false, 4));
    // Without quiet hours it is sent.
    home.configure("aside.toml", "[sinks]\ndefault = [\"log\", \"apprise\"]\n");
    home.print(&["reload"]);
    eventually("what waited", || shows("later").then_some(()));
    assert_eq!(shown(&home, "apprise").matches("later").count(), 1);
}
