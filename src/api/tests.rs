//! Tests of the API: requests to the router, over a journal in memory and an engine that reads it to
//! answer queries. The tests themselves answer exchanges and wake sessions.

mod connections;
mod history;
mod publishing;
mod requesting;
mod waiting;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::{Body, BodyDataStream},
    http::{HeaderMap, Request, StatusCode},
};
use bytes::Bytes;
use futures_util::FutureExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::{mpsc, watch},
    task::AbortHandle,
};
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tower::ServiceExt;

use super::*;
use engine::{
    Engine,
    event::{Seq, SessionId, Severity},
    exchange::{Answer, Exchange, Format, Harness, Injection, InjectionId, Released, Role},
    io::{Input, Pending, RequestId},
    ledger::LedgerEntry,
    notification::{Notification, NotificationId, Priority, SubscriberId},
    records::{self, RecordInput, Records},
    rules::CompiledRules,
    session::{Wake, WakeKind},
};
use journal::{Clock, Journal, JournalSettings, memory::MemoryFiles, meter::Meters, time::Timestamp};

use crate::{
    config::{
        compile::compile,
        daemon::Durability,
        layers::{LayerKind, SourceFile, Sources},
    },
    daemon::publisher::Publisher,
    harness::kind::Kind,
    history::{Command, FILE_NAME, Projection},
};

/// A daemon without an event loop: its engine answers queries only.
pub(super) struct Daemon {
    pub(super) app: App,
    orders: mpsc::Receiver<Command>,
    stop: watch::Sender<bool>,
    /// The task that answers queries.
    answering: AbortHandle,
    /// Folder of the projection's file, once there is one.
    folder: TempDir,
}

struct Reply {
    status: StatusCode,
    headers: HeaderMap,
    body: String,
}

impl Reply {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or(Value::Null)
    }
}

fn daemon() -> Daemon {
    daemon_at(|| Timestamp::from_millis(1_000))
}

/// A daemon with the given clock.
fn daemon_at(clock: impl Fn() -> Timestamp + Send + Sync + 'static) -> Daemon {
    daemon_with(Registry::new(100), clock)
}

/// A daemon with the given registry and clock.
#[expect(clippy::disallowed_methods, reason = "queries are answered for as long as the test runs")]
pub(super) fn daemon_with(
    registry: Registry,
    clock: impl Fn() -> Timestamp + Send + Sync + 'static,
) -> Daemon {
    let clock: Clock = Arc::new(clock);
    let files = Arc::new(MemoryFiles::new());
    let settings = JournalSettings {
        names: Some(|found| records::name_of_record(found.kind.0, found.body)),
        ..JournalSettings::default()
    };
    let opened = Journal::open(files, settings, clock.clone(), &|_| None).expect("opened");
    let (engine, queries) = EngineHandle::new(monotonic);
    let (stop, shutdown) = watch::channel(false);
    let registry = Arc::new(registry);
    let journal = opened.journal;
    journal.consumed(Seq(u64::MAX));
    let answering = tokio::spawn(answer_queries(queries, journal.clone(), clock.clone())).abort_handle();
    // These tests need no transcripts; sent ones are dropped.
    let (transcripts, _) = mpsc::channel(1);
    let folder = tempfile::tempdir().expect("a folder");
    let (projection, orders) = Projection::new(&folder.path().join(FILE_NAME));
    let meters = Arc::new(Meters::new(|| std::time::Duration::ZERO));
    let app = App::from(AppParts {
        publisher: Publisher::new(journal.clone()),
        journal,
        engine,
        config: ConfigHandle::new(mpsc::channel(1).0, watch::channel(Arc::default()).1),
        projection,
        registry,
        transcripts,
        meters,
        rooms: Rooms::default(),
        clock,
        started_at: Timestamp::ZERO,
        durability: Durability::Sync,
        wall: || Timestamp::ZERO,
        utc_offset: |_| 0,
        since_boot: || std::time::Duration::ZERO,
        shutdown,
    });
    Daemon { app, orders, stop, answering, folder }
}

static STEADY_MS: AtomicU64 = AtomicU64::new(0);

/// A clock that advances only in the pulse test.
fn monotonic() -> Duration {
    Duration::from_millis(STEADY_MS.load(Ordering::SeqCst))
}

/// A token with all scopes, and one for publishing.
fn tokens(folder: &TempDir) -> Tokens {
    let path = folder.path().join("token");
    let text = "secret-secret-secret\nof-a-publisher-only publish\n";
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its own");
    Tokens::open(&path).expect("readable")
}

fn post(path: &str, content_type: &str, body: impl Into<Body>) -> Request<Body> {
    let builder = Request::post(path).header("content-type", content_type);
    builder.body(body.into()).expect("a request")
}

fn get(path: &str) -> Request<Body> {
    Request::get(path).body(Body::empty()).expect("a request")
}

async fn send_to(router: Router, request: Request<Body>) -> Reply {
    let response = router.oneshot(request).await.expect("infallible");
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.expect("a body");
    let body = String::from_utf8(body.to_vec()).expect("text");
    Reply { status: parts.status, headers: parts.headers, body }
}

async fn send(app: &App, request: Request<Body>) -> Reply {
    send_to(router::router(app.clone()), request).await
}

fn open_stream(response: axum::response::Response) -> BodyDataStream {
    assert_eq!(response.status(), StatusCode::OK);
    response.into_body().into_data_stream()
}

async fn next_text(stream: &mut BodyDataStream) -> Option<String> {
    let chunk: Bytes = stream.next().await?.expect("a chunk");
    Some(String::from_utf8(chunk.to_vec()).expect("text"))
}

/// The records from `from` on, each as its kind and content.
fn journaled(app: &App, from: u64) -> Vec<(&'static str, String)> {
    let mut reader = app.journal.read_from(Seq(from));
    let records = reader.next_batch(1_000).expect("readable");
    let show = |found: journal::record::Record<'_>| {
        let kind = records::kind_name(found.kind.0).expect("known");
        let said = match records::decode(found.kind.0, found.seq, found.body).expect("readable") {
            RecordInput::Input(Input::Event { event, .. }) => event.event_type.to_owned(),
            RecordInput::Input(Input::Exchange { exchange, .. }) => exchange.carrier.to_string(),
            RecordInput::Input(Input::SessionSuspended { session } | Input::SessionEnded { session }) => {
                session.to_string()
            }
            other @ (RecordInput::Input(_)
            | RecordInput::Rules { .. }
            | RecordInput::Released(_)
            | RecordInput::Skipped(_)) => format!("{other:?}"),
        };
        (kind, said)
    };
    records.iter().map(show).collect()
}

fn injection() -> Answer {
    let released = Released {
        id: NotificationId::new("n1"),
        subscriber: SubscriberId::new("ci"),
        priority: Priority::High,
        severity: Severity::Error,
        redelivered: false,
        tokens: engine::notification::Tokens(3),
        first_event: None,
    };
    let injection = Injection {
        id: InjectionId::new("a1"),
        format: Format::default(),
        text: "ci: failed".into(),
        sentence: "ci (high): failed".into(),
        role: Role::Tool,
        notifications: vec![released],
        starts_turn: false,
    };
    Answer { injection: Some(injection), pending: 1, ..Answer::default() }
}

fn nothing() -> Answer {
    Answer { pending: 2, check_before_tool: true, ..Answer::default() }
}

/// The next exchange in the journal from `from` on, once it is there.
async fn next_exchange(app: &App, from: u64) -> (RequestId, Exchange) {
    let mut reader = app.journal.read_from(Seq(from));
    loop {
        for found in reader.next_batch(100).expect("readable").iter() {
            if let Ok(RecordInput::Input(Input::Exchange { request, exchange, .. })) =
                records::decode(found.kind.0, found.seq, found.body)
            {
                return (request, *exchange);
            }
        }
        reader.wait().await.expect("open");
    }
}

/// Makes a request and answers its exchange with `answer`.
async fn send_answered(app: &App, request: Request<Body>, from: u64, answer: Answer) -> (Reply, Exchange) {
    let answering = async {
        let (request, exchange) = next_exchange(app, from).await;
        assert!(app.registry.answer(request, answer));
        exchange
    };
    tokio::join!(send(app, request), answering)
}

/// Answers queries as the event loop does: each after all written records were applied. What the
/// engine puts out is dropped, because the tests answer exchanges and wake sessions themselves.
async fn answer_queries(mut queries: mpsc::Receiver<Query>, journal: Journal, clock: Clock) {
    let (mut engine, mut reader) = (Engine::new(rules()), journal.read_from(Seq(1)));
    while let Some(query) = queries.recv().await {
        loop {
            let records = reader.next_batch(1_000).expect("readable");
            if records.is_empty() {
                break;
            }
            for found in records.iter() {
                let decoded = records::decode(found.kind.0, found.seq, found.body).expect("readable");
                if let RecordInput::Input(input) = decoded {
                    engine.handle(input, found.time);
                }
                while engine.poll_output().is_some() {}
            }
        }
        let applied = Seq(reader.position().0 - 1);
        query(&EngineView { engine: &engine, applied, now: clock() });
    }
}

/// The rules of the tests: `orders` are for the agent and `offers` for the user, at once.
fn rules() -> Arc<CompiledRules> {
    let files = [("order", "passive"), ("offer", "prompt")].map(|(of, activation)| {
        let text = format!(
            "[subscriber]\nid = \"{of}s\"\n[events]\ntypes = [\"shop.{of}.*\"]\nseverity_filter = \"debug\"\n\
             [batching]\nwindow_ms = 0\n[output]\npriority = \"high\"\nactivation = \"{activation}\"\n\
             sentence = \"{{{{ payload.note }}}}\"\none = \"note: {{{{ payload.note }}}}\"\n"
        );
        let name: Arc<str> = format!("subscribers/{of}s.toml").into();
        SourceFile { layer: LayerKind::User, name: Arc::clone(&name), path: name, text: text.into() }
    });
    let compiled = compile(&Sources::new(files), &[]);
    assert!(compiled.report.diagnostics().is_empty(), "{}", compiled.report);
    compiled.into_generation().rules
}

impl Daemon {
    /// Opens a session, as a follower does.
    async fn open(&self, session: &str) {
        let (session, harness) = (SessionId::new(session), Harness::default());
        let opened = Records::build(|records| records.session_opened(&session, &harness));
        self.app.append(opened).await.expect("appended");
    }

    /// Publishes `count` events of a type for a session, from a process of this machine.
    async fn publish(&self, event_type: &str, session: &str, count: usize) {
        let event = json!({ "type": event_type, "session": session, "payload": { "note": "value" } });
        for _ in 0..count {
            let mut request = post("/v1/events", "application/json", event.to_string());
            request.extensions_mut().insert(auth::Route::Unix);
            let sent = send(&self.app, request).await;
            assert_eq!(sent.status, StatusCode::OK, "{}", sent.body);
        }
    }
}

/// Makes each request, and expects a refusal with this status, field (empty for none) and message.
async fn check_refused<const N: usize>(cases: [(Request<Body>, u16, &str, &str); N]) {
    let Daemon { app, .. } = daemon();
    for (request, status, field, message) in cases {
        let path = request.uri().clone();
        let reply = send(&app, request).await;
        let mut error = json!({ "message": message });
        if !field.is_empty() {
            error["field"] = json!(field);
        }
        assert_eq!((reply.status.as_u16(), reply.json()["error"].clone()), (status, error), "{path}");
    }
    assert_eq!(journaled(&app, 1), []);
}

#[tokio::test]
async fn invalid_request_error_names_its_field() {
    let words: Vec<String> = Kind::hook_words().map(|word| format!("`{word}`")).collect();
    let no_harness = format!("unknown harness `vim`; known: {}", words.join(", "));
    let json = "application/json";
    check_refused([
        (
            post("/v1/sessions/s1/exchange", json, r#"{"point":"x"}"#),
            400,
            "point",
            "`x` is not allowed; use one of immediate, turn_start, before_tool, after_tool, turn_end",
        ),
        (
            post("/v1/sessions/a%0Ab/exchange", json, "{}"),
            400,
            "session",
            "must be made of printable characters: no line breaks, control or invisible ones",
        ),
        (
            get("/v1/sessions/s1/wait?timeout=soon"),
            400,
            "timeout",
            "must be a duration such as `30s` or `500ms`, 600s at most",
        ),
        (
            get("/v1/events/stream?severity=bad"),
            400,
            "severity",
            "`bad` is not a severity; use debug, info, warning (or warn), error or critical",
        ),
        (
            get("/v1/events/stream?form=1"),
            400,
            "query",
            "form: unknown field `form`, expected one of `pattern`, `severity`, `from`, `until`",
        ),
        (get("/nowhere"), 404, "", "unknown path `/nowhere`; see /v1/openapi.json"),
        (get("/v1/sessions/s1/exchange"), 405, "", "`/v1/sessions/s1/exchange` does not support GET"),
        (post("/v1/hooks/vim", json, "{}"), 404, "", &no_harness),
    ])
    .await;
}

// The projection is empty, so the wait ends by its timeout.
#[tokio::test(start_paused = true)]
async fn unknown_session_or_event_returns_not_found() {
    let daemon = daemon();
    let event = r#"{"id":"e1","type":"a.b","payload":{"n":1}}"#;
    send(&daemon.app, post("/v1/events", "application/json", event)).await;
    daemon.open("s1").await;
    let list = send(&daemon.app, get("/v1/sessions")).await;
    assert_eq!(list.json()["sessions"][0]["id"], "s1");
    let one = send(&daemon.app, get("/v1/sessions/s1")).await;
    assert_eq!((one.status, one.json()), (StatusCode::OK, list.json()["sessions"][0].clone()));
    for path in ["/v1/events/e1", "/v1/events/1"] {
        let shown = send(&daemon.app, get(path)).await;
        let expected = json!({
            "event": { "seq": 1, "id": "e1", "type": "a.b", "source": "api", "severity": "info",
                "timestamp": "1970-01-01T00:00:01Z", "payload": { "n": 1 } },
            "history": [],
            "projection": { "seq": 0, "behind": 2 },
        });
        assert_eq!(shown.json(), expected, "{path}");
    }
    for (path, message) in [
        ("/v1/sessions/s9", "there is no session `s9`; did you mean `s1`?"),
        ("/v1/events/e9", "there is no event `e9`"),
        ("/v1/events/7", "there is no event `7`"),
    ] {
        let reply = send(&daemon.app, get(path)).await;
        assert_eq!(
            (reply.status, reply.json()),
            (StatusCode::NOT_FOUND, json!({ "error": { "message": message } }))
        );
    }
    let status = send(&daemon.app, get("/v1/status")).await.json();
    assert_eq!((&status["sessions"]["open"], &status["events"]["published"]), (&json!(1), &json!(1)));
    daemon.answering.abort();
    let status = send(&daemon.app, get("/v1/status")).await;
    assert_eq!(status.status, StatusCode::SERVICE_UNAVAILABLE, "a loop that drops a query is stopping");
}

#[tokio::test]
async fn an_unprojected_event_is_found_by_its_id() {
    let daemon = daemon();
    let app = &daemon.app;
    let lines = "{\"type\":\"a.b\",\"id\":\"one\"}\n".to_owned() + &"{\"type\":\"a.b\"}\n".repeat(100_001);
    let published = send(app, post("/v1/events", "application/x-ndjson", lines)).await;
    assert_eq!(published.status, StatusCode::OK, "{}", published.body);
    // Another source has the same id.
    let other = r#"{"type":"a.b","id":"one","source":"other"}"#;
    send(app, post("/v1/events", "application/json", other)).await;
    let newest = send(app, get("/v1/events/one")).await.json();
    assert_eq!(newest["event"]["seq"], 100_003);
    assert_eq!(newest["others"], json!([{ "source": "api", "seq": 1 }]));
    let first = send(app, get("/v1/events/one?source=api")).await.json();
    assert_eq!((&first["event"]["seq"], &first["others"][0]["source"]), (&json!(1), &json!("other")));
    for unknown in ["/v1/events/nobody", "/v1/events/one?source=nobody"] {
        assert_eq!(send(app, get(unknown)).await.status, StatusCode::NOT_FOUND, "{unknown}");
    }
}

#[tokio::test]
async fn health_check_reports_a_stalled_event_loop() {
    let daemon = daemon();
    let pulse = daemon.app.engine.pulse();
    let health = async || send(&daemon.app, get("/healthz")).await;
    let reply = health().await;
    assert_eq!(reply.json(), json!({ "status": "ok", "lag": 0, "held_up_ms": 0 }));
    pulse.begin();
    STEADY_MS.fetch_add(4_999, Ordering::SeqCst);
    assert_eq!(health().await.json()["held_up_ms"], 4_999);
    STEADY_MS.fetch_add(1, Ordering::SeqCst);
    let reply = health().await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(reply.json()["error"]["message"], "the event loop made no progress for 5 seconds");
    pulse.wait();
    assert_eq!(health().await.status, StatusCode::OK);
}

#[tokio::test]
async fn tcp_requires_token_and_unix_socket_same_user() {
    let Daemon { app, folder, .. } = daemon();
    let guarded = auth::token_only(router::router(app.clone()), tokens(&folder));
    for (authorization, status) in [
        (None, StatusCode::UNAUTHORIZED),
        (Some("Bearer wrong"), StatusCode::UNAUTHORIZED),
        (Some("Bearer "), StatusCode::UNAUTHORIZED),
        (Some("Bearer secret-secret-secre"), StatusCode::UNAUTHORIZED),
        (Some("Basic secret-secret-secret"), StatusCode::UNAUTHORIZED),
        (Some("bearer secret-secret-secret"), StatusCode::OK),
    ] {
        let mut request = get("/v1/openapi.json");
        if let Some(value) = authorization {
            request.headers_mut().insert("authorization", value.parse().expect("a value"));
        }
        let reply = send_to(guarded.clone(), request).await;
        assert_eq!(reply.status, status, "{authorization:?}");
        assert_eq!(reply.headers.contains_key("www-authenticate"), status == StatusCode::UNAUTHORIZED);
    }
    for (secret, path, status) in [
        ("of-a-publisher-only", "/v1/events/stream", StatusCode::FORBIDDEN),
        ("of-a-publisher-only", "/v1/sessions/s1/wait", StatusCode::FORBIDDEN),
        ("secret-secret-secret", "/v1/nowhere", StatusCode::NOT_FOUND),
    ] {
        let mut request = get(path);
        let value = format!("Bearer {secret}").parse().expect("a value");
        request.headers_mut().insert("authorization", value);
        let reply = send_to(guarded.clone(), request).await;
        assert_eq!(reply.status, status, "{path}");
        if status == StatusCode::FORBIDDEN {
            let scope = if path.contains("stream") { "read" } else { "exchange" };
            assert_eq!(reply.json()["error"]["message"], format!("this token lacks the scope `{scope}`"));
        }
    }
    let unknown = send_to(auth::same_user_only(router::router(app)), get("/v1/openapi.json")).await;
    assert_eq!(unknown.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn unix_socket_is_private_and_closes_on_stop() {
    let Daemon { app, stop, .. } = daemon();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run/aside.sock");
    let listener = bind_unix(&path).expect("bound");
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(path.parent().expect("a folder"))), (0o600, 0o700));
    let client = async {
        let mut stream = tokio::net::UnixStream::connect(&path).await.expect("connected");
        stream
            .write_all(b"GET /v1/openapi.json HTTP/1.1\r\nhost: aside\r\nconnection: close\r\n\r\n")
            .await
            .expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("answered");
        stop.send_replace(true);
        answer
    };
    let (served, answer) = tokio::join!(serve_unix(listener, app), client);
    served.expect("served");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
}
