//! Connection tests: clients that hold connections, and clients that get an early answer.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use axum::routing::{get, post};
use tokio::{
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    task::JoinSet,
    time::timeout,
};

use super::*;
use crate::api::{connections as listening, connections::CONNECTIONS_MAX, extract::EVENTS_BYTES_MAX};

/// A server that stops on drop.
struct Serving {
    _task: JoinSet<()>,
    _stop: watch::Sender<bool>,
}

impl Serving {
    fn start(listener: impl listening::Accept + 'static, router: Router) -> Self {
        let (stop, stopping) = watch::channel(false);
        let mut task = JoinSet::new();
        task.spawn(listening::serve(listener, router, stopping));
        Self { _task: task, _stop: stop }
    }
}

fn serve(folder: &Path, router: Router) -> (PathBuf, Serving) {
    let path = folder.join("socket");
    let serving = Serving::start(UnixListener::bind(&path).expect("bound"), router);
    (path, serving)
}

/// Reads one answer whose body has a length; returns its head and its body.
async fn read_answer(connection: &mut (impl AsyncReadExt + Unpin)) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(connection.read_u8().await.expect("an answer"));
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await.expect("the body");
    (head, String::from_utf8(body).expect("text"))
}

async fn ask(connection: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), path: &str) -> (String, String) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    connection.write_all(request.as_bytes()).await.expect("sent");
    read_answer(connection).await
}

#[tokio::test]
async fn connection_limit_evicts_the_longest_silent_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let router = Router::new().route("/", get(async || "here")).route("/body", post(async |_: Bytes| "all"));
    let (path, _serving) = serve(folder.path(), router);
    let mut held = Vec::new();
    // Four kinds of connections: answered and kept alive, silent, half a head, half a body. Each
    // kind alone fills every place.
    for count in 0..CONNECTIONS_MAX + CONNECTIONS_MAX / 4 {
        let mut connection = UnixStream::connect(&path).await.expect("connected");
        match count % 4 {
            0 => assert_eq!(ask(&mut connection, "/").await.1, "here"),
            1 => {}
            2 => connection.write_all(b"GET / HTTP/1.1\r\nho").await.expect("sent"),
            _ => {
                let part = b"POST /body HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx";
                connection.write_all(part).await.expect("sent");
            }
        }
        held.push(connection);
    }
    let mut connection = UnixStream::connect(&path).await.expect("connected");
    assert_eq!(ask(&mut connection, "/").await.1, "here");
    let mut end = [0];
    assert_eq!(held[0].read(&mut end).await.ok(), Some(0), "the one that was silent longest was closed");
}

#[tokio::test]
async fn early_answer_is_readable_after_sending_the_body() {
    let folder = tempfile::tempdir().expect("a folder");
    let Daemon { app, .. } = daemon();
    let router = router::router(app).merge(Router::new().route("/unread", post(async || "done")));
    let (path, _serving) = serve(folder.path(), router);
    let large = EVENTS_BYTES_MAX + 1;
    for (request, body, status) in [
        ("POST /nowhere", 2, 404),
        ("POST /healthz", 2, 405),
        ("POST /v1/events?results=x", 1_000_000, 400),
        ("POST /v1/events", large, 413),
        ("POST /unread", 2, 200),
    ] {
        let mut connection = UnixStream::connect(&path).await.expect("connected");
        let head = format!(
            "{request} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {body}\r\n\r\n"
        );
        connection.write_all(head.as_bytes()).await.expect("sent");
        // The answer arrives before the body was sent. A client reads it only after it has sent the
        // body.
        connection.readable().await.expect("answered");
        connection.write_all(&vec![b' '; body]).await.unwrap_or_else(|error| panic!("{request}: {error}"));
        let (head, body) = read_answer(&mut connection).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{request}: {head}");
        assert!(head.contains("\r\nconnection: close\r\n"), "{request}: {head}");
        assert!(status == 200 || body.starts_with("{\"error\":{"), "{request}: {body}");
        // The rest of a body is not a request, so nothing follows the answer.
        assert_eq!(connection.read(&mut [0]).await.ok(), Some(0), "{request}");
    }
}

#[tokio::test]
async fn refused_request_with_excess_body_gets_one_answer() {
    let folder = tempfile::tempdir().expect("a folder");
    let Daemon { app, .. } = daemon();
    let (path, _serving) = serve(folder.path(), router::router(app));
    let mut connection = UnixStream::connect(&path).await.expect("connected");
    // Its length is too small: the remaining bytes would be parsed as an invalid request.
    let request = b"POST /nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}, and more\r\n\r\n";
    connection.write_all(request).await.expect("sent");
    let mut answers = String::new();
    connection.read_to_string(&mut answers).await.expect("text");
    assert_eq!(answers.matches("HTTP/1.1 ").count(), 1, "{answers}");
    assert!(answers.starts_with("HTTP/1.1 404 ") && answers.contains("{\"error\":{"), "{answers}");
}

#[tokio::test]
async fn a_stranger_keeps_no_connection() {
    let Daemon { app, folder, .. } = daemon();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let _serving = Serving::start(listener, auth::token_only(router::router(app), tokens(&folder)));
    let mut connection = TcpStream::connect(address).await.expect("connected");
    let (head, _) = ask(&mut connection, "/healthz").await;
    assert!(head.starts_with("http/1.1 401 ") && head.contains("\r\nconnection: close\r\n"), "{head}");
    assert_eq!(connection.read(&mut [0]).await.ok(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn no_state_of_a_connection_lasts_for_ever() {
    let folder = tempfile::tempdir().expect("a folder");
    let daemon = daemon();
    let app = daemon.app.clone();
    let large = vec![b'x'; 4 * 1024 * 1024];
    let router = Router::new().route("/", get(async || "here")).route("/large", get(async || large));
    let (path, _serving) = serve(folder.path(), router::router(app).merge(router));
    let half = "POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 90000\r\n\r\n{";
    let lines = "POST /v1/events HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\ncontent-length: 90000\r\n\r\n{";
    for (sent, seconds, read) in [
        ("", 60, ""),
        ("GET / HTTP/1.1\r\nhost: x\r\n\r\n", 60, "here"),
        ("GET / HTTP/1.1\r\nhost: x\r\n\r\nGET /", 60, "here"),
        (half, 5, "too slowly\"}}"),
        (lines, 60, "too slowly\"}}"),
    ] {
        let mut connection = UnixStream::connect(&path).await.expect("connected");
        connection.write_all(sent.as_bytes()).await.expect("sent");
        let mut answer = Vec::new();
        {
            let reading = connection.read_to_end(&mut answer);
            tokio::pin!(reading);
            let early = timeout(Duration::from_secs(seconds - 1), reading.as_mut()).await;
            assert!(early.is_err(), "{sent}: {early:?}");
            timeout(Duration::from_secs(2), reading).await.expect("in time").expect("closed");
        }
        assert!(String::from_utf8_lossy(&answer).ends_with(read), "{sent}");
    }
    let mut connection = UnixStream::connect(&path).await.expect("connected");
    connection.write_all(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("sent");
    connection.readable().await.expect("answered");
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::task::yield_now().await;
    let mut answer = Vec::new();
    connection.read_to_end(&mut answer).await.ok();
    assert!(answer.len() < 1024 * 1024, "{}", answer.len());
}
