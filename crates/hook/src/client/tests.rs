use super::{
    fake::{FakeDaemon, Scratch},
    *,
};

fn client(socket: &Path) -> Client {
    Client::new(socket.to_owned(), Duration::from_secs(5))
}

#[test]
fn a_plain_http_request_reads_the_whole_answer() {
    let daemon = FakeDaemon::answering(&[
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nnope!",
    ]);
    let response = client(daemon.socket())
        .request("POST", "/v1/events", &[("content-type", "application/json")], b"{}")
        .expect("answer");
    assert_eq!(
        response,
        Response {
            status: 400,
            headers: vec![
                ("content-type".to_owned(), "application/json".to_owned()),
                ("content-length".to_owned(), "5".to_owned()),
            ],
            body: b"nope!".to_vec(),
        }
    );
    assert_eq!(
        daemon.requests(),
        [
            "POST /v1/events HTTP/1.1\r\nhost: aside\r\nconnection: close\r\ncontent-type: application/json\r\n\
          content-length:         2\r\n\r\n{}"
        ]
    );
}

#[test]
fn errors_name_the_fault_and_the_remedy() {
    let folder = Scratch::new();
    let absent = folder.path().join("absent.sock");
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).expect("bind"));
    for socket in [absent, stale] {
        let error = client(&socket).request("GET", "/v1/status", &[], b"").expect_err("nobody there");
        let expected = format!("no daemon at {}: start it with `aside up`", socket.display());
        assert_eq!(error.to_string(), expected);
    }
    let error = client(&folder.path().join("a".repeat(200))).request("GET", "/v1/status", &[], b"");
    let error = error.expect_err("a socket's path is short").to_string();
    assert!(error.ends_with("aaa cannot be used as a socket"), "{error}");
    for garbage in
        ["SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", "HTTP/1.1 200 OK\r\nno colon\r\n\r\n"]
    {
        let daemon = FakeDaemon::answering(&[garbage]);
        let error = client(daemon.socket()).request("GET", "/", &[], b"").expect_err(garbage);
        assert!(matches!(error, ClientError::NotHttp { .. }), "{garbage:?}: {error:?}");
    }
}

#[test]
fn an_answer_that_breaks_off_is_an_error() {
    for cut in [
        "HTTP/1.1 200 OK\r\ncontent-le",
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
    ] {
        let daemon = FakeDaemon::answering(&[cut]);
        let error = client(daemon.socket()).request("GET", "/", &[], b"").expect_err(cut);
        assert!(matches!(error, ClientError::Connection { doing: "answer", .. }), "{cut:?}: {error:?}");
    }
}

#[test]
fn a_request_to_a_silent_daemon_times_out() {
    let daemon = FakeDaemon::silent();
    let client = Client::new(daemon.socket().to_owned(), Duration::from_millis(20));
    let error = client.request("GET", "/v1/status", &[], b"").expect_err("silence");
    assert_eq!(error.to_string(), "the daemon took too long to answer");
}

#[test]
fn a_dripping_daemon_times_out_at_total_deadline() {
    // Each byte arrives long before the deadline. All of them together would take ten times the
    // deadline.
    let pause = Duration::from_millis(10);
    let daemon = FakeDaemon::dripping("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n", pause);
    let client = Client::new(daemon.socket().to_owned(), 10 * pause);
    let error = client.request("GET", "/v1/status", &[], b"").expect_err("it never ends");
    assert_eq!(error.to_string(), "the daemon took too long to answer");
}

#[test]
fn connecting_to_a_full_backlog_times_out() {
    let folder = Scratch::new();
    let path = folder.path().join("full.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
    rustix::net::listen(&listener, 0).expect("a small backlog");
    let _waiting = UnixStream::connect(&path).expect("there is room for one");
    let client = Client::new(path, Duration::from_millis(20));
    let error = client.request("GET", "/v1/status", &[], b"").expect_err("nobody takes it");
    assert_eq!(error.to_string(), "the daemon took too long to take the connection");
}

#[test]
fn a_stream_yields_events_across_chunk_borders() {
    let daemon = FakeDaemon::answering(&[
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "c\r\n: hello\n\nid:\r\n",
        "14;x=1\r\n 7\nevent: e\ndata: {\"\r\n",
        "F\r\na\":1}\ndata: b\n\n\r\n",
        "d\r\ndata: last\r\n\n\r\n",
        "0\r\ntrailer: 1\r\n\r\n",
    ]);
    let mut stream = client(daemon.socket()).stream("/v1/events/stream", &[]).expect("answer").expect("200");
    let mut events = Vec::new();
    while let Some(event) = stream.next_event().expect("stream") {
        events.push((event.id, event.kind, event.data));
    }
    let expected = [("7", "e", "{\"a\":1}\nb"), ("", "", "last")]
        .map(|(id, kind, data)| (id.into(), kind.into(), data.into()));
    assert_eq!(events, expected);
}

#[test]
fn a_refused_stream_is_an_answer() {
    let daemon = FakeDaemon::answering(&["HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n{}"]);
    let refused = client(daemon.socket()).stream("/v1/events/stream", &[]).expect("answer").expect_err("400");
    assert_eq!((refused.status, refused.body), (400, b"{}".to_vec()));
}

mod pump {
    use std::io::{BufRead, BufReader};

    use super::super::*;

    /// Both ends of a pipe: for writing, and for reading.
    fn pipe() -> (File, File) {
        let (reader, writer) = io::pipe().expect("a pipe");
        (File::from(std::os::fd::OwnedFd::from(writer)), File::from(std::os::fd::OwnedFd::from(reader)))
    }

    #[test]
    fn the_answer_continues_after_stdin_ends() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ((mut give, input), (output, take)) = (pipe(), pipe());
        let copying = thread::spawn(move || relay(&ours, b"hello\n", input, output));
        let mut lines = BufReader::new(take).lines();
        assert_eq!(lines.next().expect("a line").expect("read"), "hello");
        give.write_all(b"ask\n").expect("written");
        let mut asked = String::new();
        BufReader::new(&theirs).read_line(&mut asked).expect("read");
        assert_eq!(asked, "ask\n");
        drop(give);
        assert_eq!((&theirs).read(&mut [0; 8]).expect("the end"), 0);
        (&theirs).write_all(b"answer\n").expect("written");
        drop(theirs);
        assert_eq!(lines.next().expect("a line").expect("read"), "answer");
        assert_eq!(copying.join().expect("it ends").expect("relayed"), PumpEnd::ToTheEnd);
    }

    #[test]
    fn a_stopped_daemon_is_distinguished_from_client_end() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ((_give, input), (output, _take)) = (pipe(), pipe());
        drop(theirs);
        assert_eq!(relay(&ours, b"", input, output).expect("relayed"), PumpEnd::UntilTheDaemonStopped);
    }

    #[test]
    fn a_client_that_takes_no_more_ends_it() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let ((_give, input), (output, take)) = (pipe(), pipe());
        drop(take);
        (&theirs).write_all(b"answer\n").expect("written");
        assert_eq!(relay(&ours, b"", input, output).expect("relayed"), PumpEnd::ToTheEnd);
    }
}
