//! The client side of the daemon's Unix socket: sends and receives bytes.
//!
//! Everything here is system calls and hand-written HTTP/1.1, because the hook path runs once per
//! tool call and its time includes everything that it links and starts. [`hook`] is that path;
//! [`Client`] serves the users' commands. This module does not interpret the bytes.

mod hook;
mod http;
mod percent;
mod pump;
mod silence;
mod start;
mod timed;

pub mod fake;

use std::{
    error, fmt,
    io::{self, BufRead, BufReader, Read},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

pub use hook::{
    HOOK_DEADLINE, HOOK_STDIN_BYTES_MAX, HOOK_TIMEOUT_MS_LIMITS, HOOK_TIMEOUT_VARIABLE, hook, hook_deadline,
};
pub use percent::percent_encode;
pub use pump::PumpEnd;
pub use start::{HOOK_PROGRAM, PROGRAM, start_if_absent};

use http::{Body, Head, Request};
use percent::encode_bytes;
use silence::{Silence, Wait};
use timed::{Deadline, Timed, is_timeout};

/// Largest accepted body of an answer, in bytes; far above any list of the daemon.
pub const ANSWER_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Room for the head of a request, in bytes.
const HEAD_BYTES: usize = 512;
/// Longest line of an event stream, in bytes: an event of 64 KiB with every byte escaped, and its
/// envelope.
const LINE_BYTES_MAX: u64 = 512 * 1024;

/// Lower-case names and values, in order.
type Headers = Vec<(String, String)>;

/// The body of an answer, read incrementally.
type AnswerBody = Body<BufReader<Timed<UnixStream>>>;

/// Makes requests to one daemon, each on its own connection.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
    /// Why there is no socket to connect to.
    no_socket: Option<Box<str>>,
    timeout: Duration,
    patience: Patience,
}

/// Whether a request waits for a daemon that did not answer just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// For a user who asked for the answer.
    Waits,
    /// For a caller whose own work must not be delayed again.
    Skips(Wait),
}

/// The daemon's answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Lower-case names and values, in order.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

/// Why a request got no answer.
#[derive(Debug)]
pub enum ClientError {
    /// Nothing listens at the socket.
    NoDaemon {
        /// Its path.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The path of the socket is not known or too long; the text says why.
    NoSocket(Box<str>),
    /// The socket cannot be used.
    Socket {
        /// Its path.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The connection broke or timed out.
    Connection {
        /// Its purpose.
        doing: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The daemon did not answer within the last seconds, so this request was not made.
    Silent,
    /// The answer is not HTTP.
    NotHttp {
        /// The problem.
        source: io::Error,
    },
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDaemon { socket, .. } => {
                write!(f, "no daemon at {}: start it with `aside up`", socket.display())
            }
            Self::NoSocket(why) => f.write_str(why),
            Self::Socket { socket, .. } => write!(f, "{} cannot be used as a socket", socket.display()),
            Self::Connection { doing, source } if is_timeout(source) => {
                write!(f, "the daemon took too long to {doing}")
            }
            Self::Connection { doing, .. } => write!(f, "the connection to the daemon failed to {doing}"),
            Self::Silent => f.write_str("the daemon does not answer"),
            Self::NotHttp { .. } => f.write_str("the process at the socket does not answer as a daemon"),
        }
    }
}

impl error::Error for ClientError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            // The message needs no cause.
            Self::NoDaemon { .. } | Self::NoSocket(_) | Self::Silent => None,
            Self::Connection { source, .. } if is_timeout(source) => None,
            Self::Socket { source, .. } | Self::Connection { source, .. } | Self::NotHttp { source } => {
                Some(source)
            }
        }
    }
}

impl Client {
    /// A client for `socket`; a request with its answer may take `timeout` in total.
    pub fn new(socket: PathBuf, timeout: Duration) -> Self {
        Self { socket, no_socket: None, timeout, patience: Patience::Waits }
    }

    /// A client whose requests all fail with this reason.
    pub fn without_socket(why: String, timeout: Duration) -> Self {
        Self { no_socket: Some(why.into()), ..Self::new(PathBuf::new(), timeout) }
    }

    /// The same with `timeout`, for a caller that must not be delayed: a daemon that did not answer
    /// within the last seconds is not asked ([`ClientError::Silent`]).
    pub fn impatient(&self, timeout: Duration) -> Self {
        let wait = if timeout > HOOK_DEADLINE { Wait::Long } else { Wait::Short };
        Self { timeout, patience: Patience::Skips(wait), ..self.clone() }
    }

    /// Path of the daemon's socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Makes one request and reads the whole answer.
    ///
    /// Shape: `path` is percent-encoded, as in the request line; header values are printable ASCII.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Response, ClientError> {
        let (head, headers, mut reader) = self.open(method, path, headers, body)?;
        let mut body = Vec::new();
        reader.by_ref().take(ANSWER_BYTES_MAX).read_to_end(&mut body).map_err(answer_error)?;
        Ok(Response { status: head.status, headers, body })
    }

    /// Requests a stream of server-sent events, which may be silent for any time.
    ///
    /// Errors: also an answer other than 200, which is returned whole.
    pub fn stream(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Result<EventStream, Response>, ClientError> {
        let (head, headers, mut reader) = self.open("GET", path, headers, b"")?;
        if head.status == 200 {
            reader.get_mut().get_mut().set_deadline(Deadline::never());
            return Ok(Ok(EventStream { lines: BufReader::new(reader) }));
        }
        let mut body = Vec::new();
        reader.by_ref().take(ANSWER_BYTES_MAX).read_to_end(&mut body).map_err(answer_error)?;
        Ok(Err(Response { status: head.status, headers, body }))
    }

    fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(Head, Headers, AnswerBody), ClientError> {
        let mut request = Request::new(body.len() + HEAD_BYTES, method, &[path]);
        for (name, value) in headers {
            request.header(name, |head| head.extend_from_slice(value.as_bytes()));
        }
        request.body().extend_from_slice(body);
        self.send(request)
    }

    fn send(&self, request: Request) -> Result<(Head, Headers, AnswerBody), ClientError> {
        if let Some(why) = &self.no_socket {
            return Err(ClientError::NoSocket(why.clone()));
        }
        let Patience::Skips(wait) = self.patience else { return self.attempt(request) };
        let mut silence = Silence::look(&self.socket, wait).ok_or(ClientError::Silent)?;
        let answer = self.attempt(request);
        silence.note(match &answer {
            Err(ClientError::Connection { source, .. }) => Some(source),
            _ => None,
        });
        answer
    }

    fn attempt(&self, request: Request) -> Result<(Head, Headers, AnswerBody), ClientError> {
        let failed = |doing| move |source| ClientError::Connection { doing, source };
        let deadline = Deadline::within(self.timeout);
        let mut connection = Timed::connect(&self.socket, deadline).map_err(|source| {
            let socket = self.socket.clone();
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) {
                ClientError::NoDaemon { socket, source }
            } else if is_timeout(&source) {
                failed("take the connection")(source)
            } else {
                ClientError::Socket { socket, source }
            }
        })?;
        let sent = request.send(&mut connection);
        let mut reader = BufReader::new(connection);
        let mut headers = Headers::new();
        let keep = |name: &str, value: &str| headers.push((name.to_ascii_lowercase(), value.to_owned()));
        // A daemon that refuses a large body answers before it has read the whole body, so the
        // answer has precedence over a write error.
        match (http::read_head(&mut reader, keep), sent) {
            (Ok(head), _) => Ok((head, headers, Body::new(reader, head.framing))),
            (Err(_), Err(source)) => Err(failed("take the request")(source)),
            (Err(error), Ok(())) => Err(answer_error(error)),
        }
    }
}

impl Client {
    /// Upgrades to `protocol` at `path`, and copies bytes between the daemon and stdio until either
    /// ends.
    ///
    /// Shape: `headers` as for [`Client::request`], but values may be any text. Errors: also an
    /// answer other than 101, which is returned whole.
    pub fn relay(
        &self,
        path: &str,
        protocol: &str,
        headers: &[(&str, &str)],
    ) -> Result<Result<PumpEnd, Response>, ClientError> {
        let mut request = Request::upgrade(HEAD_BYTES, path, protocol);
        let is_plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'%';
        for (name, value) in headers {
            request.header(name, |head| encode_bytes(value.as_bytes(), is_plain, head));
        }
        request.body();
        let (head, headers, mut reader) = self.send(request)?;
        if head.status != 101 {
            let mut body = Vec::new();
            reader.by_ref().take(ANSWER_BYTES_MAX).read_to_end(&mut body).map_err(answer_error)?;
            return Ok(Err(Response { status: head.status, headers, body }));
        }
        let reader = reader.into_inner();
        let first = reader.buffer().to_vec();
        let end = pump::between_stdio_and(&reader.into_inner().into_inner(), &first);
        end.map(Ok).map_err(|source| ClientError::Connection { doing: "relay bytes", source })
    }
}

fn answer_error(source: io::Error) -> ClientError {
    if source.kind() == io::ErrorKind::InvalidData {
        ClientError::NotHttp { source }
    } else {
        ClientError::Connection { doing: "answer", source }
    }
}

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamEvent {
    /// Its `id` field, or empty.
    pub id: String,
    /// Its `event` field, or empty.
    pub kind: String,
    /// Its `data` lines, joined by newlines.
    pub data: String,
}

/// A stream of server-sent events.
#[derive(Debug)]
pub struct EventStream {
    lines: BufReader<AnswerBody>,
}

impl EventStream {
    /// Waits for the next event; `None` when the daemon ended the stream.
    ///
    /// Shape: keep-alive events without data are skipped.
    pub fn next_event(&mut self) -> Result<Option<StreamEvent>, ClientError> {
        let mut event = StreamEvent::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            let length = self.lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            if length.map_err(answer_error)? == 0 {
                return Ok(None);
            }
            if line.pop_if(|last| *last == b'\n').is_none() {
                let source =
                    io::Error::new(io::ErrorKind::InvalidData, "a line of the stream is cut or too long");
                return Err(ClientError::NotHttp { source });
            }
            line.pop_if(|last| *last == b'\r');
            if line.is_empty() && !event.data.is_empty() {
                event.data.pop();
                return Ok(Some(event));
            }
            take_field(&mut event, &String::from_utf8_lossy(&line));
        }
    }
}

fn take_field(event: &mut StreamEvent, line: &str) {
    let (name, value) = line.split_once(':').unwrap_or((line, ""));
    let value = value.strip_prefix(' ').unwrap_or(value);
    match name {
        "id" => value.clone_into(&mut event.id),
        "event" => value.clone_into(&mut event.kind),
        "data" => event.data.extend([value, "\n"]),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
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
        let mut stream =
            client(daemon.socket()).stream("/v1/events/stream", &[]).expect("answer").expect("200");
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
        let refused =
            client(daemon.socket()).stream("/v1/events/stream", &[]).expect("answer").expect_err("400");
        assert_eq!((refused.status, refused.body), (400, b"{}".to_vec()));
    }
}
