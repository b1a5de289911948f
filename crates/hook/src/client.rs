//! The client side of the daemon's Unix socket: sends and receives bytes.
//!
//! Everything here is system calls and hand-written HTTP/1.1, because the hook path runs once per
//! tool call and its time includes everything that it links and starts. [`hook`] is that path;
//! [`Client`] serves the users' commands. This module does not interpret the bytes.

pub mod fake;
mod hook;
mod http;
mod silence;
#[cfg(test)]
mod tests;
mod timed;

use std::{
    env, error, fmt,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    net::Shutdown,
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use http::{Body, Head, Request, encode_bytes};
use silence::{Silence, Wait};
use timed::{Deadline, Timed, is_absent, is_timeout};

pub use hook::{
    HOOK_DEADLINE, HOOK_STDIN_BYTES_MAX, HOOK_TIMEOUT_MS_LIMITS, HOOK_TIMEOUT_VARIABLE, hook, hook_deadline,
};
pub use http::percent_encode;

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
/// The head of an answer, its other headers, and its unread body.
type Answer = (Head, Headers, AnswerBody);

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
        read_whole(self.open(method, path, headers, body)?)
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
        read_whole((head, headers, reader)).map(Err)
    }

    fn open(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer, ClientError> {
        let mut request = Request::new(body.len() + HEAD_BYTES, method, &[path]);
        for (name, value) in headers {
            request.header(name, |head| head.extend_from_slice(value.as_bytes()));
        }
        request.body().extend_from_slice(body);
        self.send(request)
    }

    fn send(&self, request: Request) -> Result<Answer, ClientError> {
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

    fn attempt(&self, request: Request) -> Result<Answer, ClientError> {
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
        let (head, headers, reader) = self.send(request)?;
        if head.status != 101 {
            return read_whole((head, headers, reader)).map(Err);
        }
        let reader = reader.into_inner();
        let first = reader.buffer().to_vec();
        let end = between_stdio_and(&reader.into_inner().into_inner(), &first);
        end.map(Ok).map_err(|source| ClientError::Connection { doing: "relay bytes", source })
    }
}

/// Reads the body of an answer.
fn read_whole((head, headers, reader): Answer) -> Result<Response, ClientError> {
    let mut body = Vec::new();
    reader.take(ANSWER_BYTES_MAX).read_to_end(&mut body).map_err(answer_error)?;
    Ok(Response { status: head.status, headers, body })
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

/// File name of the program.
pub const PROGRAM: &str = "aside";
/// File name of the small program for hooks, which has no daemon and is next to the one that has.
pub const HOOK_PROGRAM: &str = "aside-hook";

/// Starts the daemon in the background if nothing listens at `socket`, without waiting for it.
///
/// Shape: `places` are variables with the paths of the daemon, set in addition to the environment.
/// Returns the starting process, which ends when the daemon answers; `None` if no process was
/// started. Errors: none, by design, as for every step of a hook. A daemon that does not start
/// logs the reason.
pub fn start_if_absent(socket: &Path, places: &[(&str, &Path)]) -> Option<Child> {
    let own = is_absent(socket).then(env::current_exe)?.ok()?;
    let is_small = own.file_name().is_some_and(|name| name == HOOK_PROGRAM);
    let program = if is_small { own.with_file_name(PROGRAM) } else { own };
    let command = &mut Command::new(program);
    // A harness may end the process group of a hook with the hook.
    command.process_group(0);
    command.arg("up").envs(places.iter().copied());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().ok()
}

/// Why copying between stdio and the daemon ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PumpEnd {
    /// The process at stdin or stdout has closed it.
    ToTheEnd,
    /// The daemon closed the connection.
    UntilTheDaemonStopped,
}

/// Bytes per read: the capacity of a pipe.
const BUFFER_BYTES: usize = 64 * 1024;

/// Copies stdin to `socket`, and `first` and then the socket's data to stdout.
///
/// Shape: after the end of stdin, it waits for the remaining data of the socket. A thread that
/// reads stdin may remain; it ends with the process. Errors: the socket, stdin or stdout cannot be
/// used.
fn between_stdio_and(socket: &UnixStream, first: &[u8]) -> io::Result<PumpEnd> {
    // Uses the files themselves, because the standard library's buffers could retain a line.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    relay(socket, first, input, output)
}

fn relay(socket: &UnixStream, first: &[u8], mut input: File, mut output: File) -> io::Result<PumpEnd> {
    socket.set_nonblocking(false)?;
    let has_ended = std::sync::Arc::new(AtomicBool::new(false));
    let (mut to, ended) = (socket.try_clone()?, std::sync::Arc::clone(&has_ended));
    thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let copied = copy(&mut input, &mut to);
        // A failed write means that the daemon has closed the connection, which the other direction
        // detects.
        ended.store(copied.is_ok(), Ordering::Release);
        to.shutdown(Shutdown::Write).ok();
    })?;
    let mut from = socket;
    let copied = output.write_all(first).and_then(|()| copy(&mut from, &mut output));
    match copied {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(PumpEnd::ToTheEnd),
        Err(error) if error.kind() != io::ErrorKind::ConnectionReset => Err(error),
        Ok(_) | Err(_) if has_ended.load(Ordering::Acquire) => Ok(PumpEnd::ToTheEnd),
        Ok(_) | Err(_) => Ok(PumpEnd::UntilTheDaemonStopped),
    }
}

/// Copies data as soon as it arrives, until the end.
///
/// The standard library's copy leaves the copying to the kernel where possible, and holds a line
/// until the next one arrives.
fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(buffer.get(..count).ok_or(io::ErrorKind::InvalidData)?)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
