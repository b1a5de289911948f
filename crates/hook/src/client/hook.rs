//! The hook path: forwards a harness's stdin to the daemon, and the daemon's answer to stdout, both
//! unchanged.
//!
//! A harness runs this at every point of a turn and waits for it. So it never fails, prints no
//! errors and has its answer within [`hook_deadline`], regardless of the daemon. It needs no thread
//! for that: every read from stdin and every call on the socket has a time limit.

use std::{
    ffi::OsString,
    io::{self, BufReader, Read},
    ops::RangeInclusive,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::Path,
    time::Duration,
};

// The standard library's handles have buffers, which would only cost time.
use rustix::stdio::{stdin, stdout};

use super::{
    http::{self, Body, Request, encode_bytes, percent_encode},
    silence::{Silence, Wait},
    timed::{Deadline, Timed},
};

/// Longest wait of a harness, unless [`HOOK_TIMEOUT_VARIABLE`] is set.
pub const HOOK_DEADLINE: Duration = Duration::from_millis(150);
/// Environment variable with the longest wait of a harness in milliseconds, for machines on which
/// the default is too short or too long; within [`HOOK_TIMEOUT_MS_LIMITS`].
pub const HOOK_TIMEOUT_VARIABLE: &str = "ASIDE_HOOK_TIMEOUT_MS";
/// Range of [`HOOK_TIMEOUT_VARIABLE`]: from the duration of a process start to the harnesses' own
/// timeout of a hook. Other values mean the default.
pub const HOOK_TIMEOUT_MS_LIMITS: RangeInclusive<u64> = 10..=60_000;
/// Longest forwarded input, in bytes; a batch of tool results can be large, and a longer one would
/// not arrive in time.
pub const HOOK_STDIN_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Longest output, in bytes; harnesses accept far less.
const HOOK_STDOUT_BYTES_MAX: u64 = 1024 * 1024;

/// Room for a request with an input of the usual size, so that it takes one read, and for an
/// answer.
///
/// A single size, because the first allocation of each size costs the static build two page faults.
const REQUEST_BYTES: usize = 8 * 1024;

/// Header with the caller's total timeout in milliseconds, if it is not [`HOOK_DEADLINE`].
const TIMEOUT_HEADER: &str = "aside-timeout-ms";
/// Forwarded environment variables: the header, and the variable's name.
type Forwarded<'a> = &'a [(&'a str, &'a str)];

/// Sends stdin to the daemon's harness module `name`, and prints the answer.
///
/// Shape: `forwarded` has pairs of a header and the environment variable for it. In the values, `%`
/// and bytes other than printable ASCII are percent-encoded. Errors: none, by design. Nothing is
/// printed if the daemon is absent, broken or late.
pub fn hook(
    name: &str,
    forwarded: Forwarded<'_>,
    socket: &Path,
    variable: impl Fn(&str) -> Option<OsString>,
) {
    let deadline = hook_deadline(&variable);
    if let Some(output) =
        answer_within(deadline, request(name, deadline, forwarded, variable), socket, stdin())
    {
        // An error means that the harness has closed the pipe.
        print(&output).ok();
    }
}

/// Time limit of a hook or a status line.
pub fn hook_deadline(variable: impl Fn(&str) -> Option<OsString>) -> Duration {
    let said = variable(HOOK_TIMEOUT_VARIABLE).and_then(|said| said.to_str()?.parse().ok());
    said.filter(|ms| HOOK_TIMEOUT_MS_LIMITS.contains(ms)).map_or(HOOK_DEADLINE, Duration::from_millis)
}

fn print(output: &[u8]) -> io::Result<()> {
    let mut written = 0;
    while let Some(rest @ [_, ..]) = output.get(written..) {
        match rustix::io::write(stdout(), rest) {
            Err(rustix::io::Errno::INTR) => {}
            count => written += count?,
        }
    }
    Ok(())
}

/// The request up to the content of stdin.
fn request(
    name: &str,
    deadline: Duration,
    forwarded: Forwarded<'_>,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Request {
    let is_plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'%';
    let mut request = Request::new(REQUEST_BYTES, "POST", &["/v1/hooks/", &percent_encode(name)]);
    request.header("content-type", |value| value.extend_from_slice(b"application/json"));
    if deadline != HOOK_DEADLINE {
        request.header(TIMEOUT_HEADER, |value| {
            value.extend_from_slice(deadline.as_millis().to_string().as_bytes())
        });
    }
    for (header, name) in forwarded {
        if let Some(found) = variable(name) {
            request.header(header, |value| encode_bytes(found.as_bytes(), is_plain, value));
        }
    }
    request
}

fn answer_within(
    allowed: Duration,
    mut request: Request,
    socket: &Path,
    input: impl AsFd,
) -> Option<Vec<u8>> {
    let deadline = Deadline::within(allowed);
    // Stdin is read before connecting: a harness might fail to write if its hook does not read.
    Timed::new(input, deadline).take(HOOK_STDIN_BYTES_MAX + 1).read_to_end(request.body()).ok()?;
    if request.body_len() as u64 > HOOK_STDIN_BYTES_MAX {
        return None;
    }
    let mut silence = Silence::look(socket, Wait::Short)?;
    let has_patience = deadline.has_more_than(allowed / 2);
    let answer = ask(request, socket, deadline);
    // A client that was slow to write has left the daemon no time.
    if has_patience || answer.is_ok() {
        silence.note(answer.as_ref().err());
    }
    answer.ok().flatten()
}

/// The body of a whole answer with the status 200.
fn ask(request: Request, socket: &Path, deadline: Deadline) -> io::Result<Option<Vec<u8>>> {
    let mut connection = Timed::connect(socket, deadline)?;
    request.send(&mut connection)?;
    let mut reader = BufReader::with_capacity(REQUEST_BYTES, connection);
    let head = http::read_head(&mut reader, |_, _| ())?;
    if head.status != 200 {
        return Ok(None);
    }
    let mut output = Vec::with_capacity(head.framing.room(HOOK_STDOUT_BYTES_MAX));
    Body::new(reader, head.framing).take(HOOK_STDOUT_BYTES_MAX + 1).read_to_end(&mut output)?;
    Ok((output.len() as u64 <= HOOK_STDOUT_BYTES_MAX).then_some(output))
}

#[cfg(test)]
mod tests {
    use std::{os::unix::net::UnixListener, thread};

    use super::*;
    use crate::client::fake::{FakeDaemon, Scratch};

    const PLENTY: Duration = Duration::from_secs(10);

    fn answer(socket: &Path, deadline: Duration, input: impl AsFd) -> Option<Vec<u8>> {
        answer_within(deadline, request("loop", HOOK_DEADLINE, &[], |_| None), socket, input)
    }

    /// A pipe that is fed with `input` while it is read.
    fn pipe(mut input: impl Read + Send + 'static) -> io::PipeReader {
        let (reader, mut writer) = io::pipe().expect("pipe");
        thread::spawn(move || io::copy(&mut input, &mut writer));
        reader
    }

    #[test]
    fn the_environment_sets_the_deadline_within_limits() {
        for (said, ms) in
            [(None, 150), (Some("2000"), 2_000), (Some("9"), 150), (Some("60001"), 150), (Some("x"), 150)]
        {
            let variable = |name: &str| {
                assert_eq!(name, "ASIDE_HOOK_TIMEOUT_MS");
                said.map(OsString::from)
            };
            assert_eq!(hook_deadline(variable), Duration::from_millis(ms), "{said:?}");
        }
    }

    #[test]
    fn hook_input_and_answer_pass_through_unchanged() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\": \"b\"}"]);
        let variable = |name: &str| (name == "LOOP_DIR").then(|| OsString::from("/home/\u{fc}/100% a\n"));
        let input = pipe(b"{ \"not\": even JSON \xff".as_slice());
        let request = request(
            "loop",
            Duration::from_secs(2),
            &[("aside-project", "LOOP_DIR"), ("aside-session", "LOOP_SESSION")],
            variable,
        );
        assert_eq!(answer_within(PLENTY, request, daemon.socket(), input), Some(b"{\"a\": \"b\"}".to_vec()));
        assert_eq!(
            daemon.requests(),
            [
                "POST /v1/hooks/loop HTTP/1.1\r\nhost: aside\r\nconnection: close\r\ncontent-type: application/json\r\n\
              aside-timeout-ms: 2000\r\naside-project: /home/%C3%BC/100%25 a%0A\r\ncontent-length:        20\r\n\r\n{ \"not\": even JSON \u{fffd}"
            ]
        );
    }

    #[test]
    fn anything_but_a_whole_200_is_silence() {
        for said in [
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\noops",
            "HTTP/1.1 500 Internal Server Error\r\n\r\noops",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut",
            "garbage\r\n\r\n",
            "",
        ] {
            let daemon = FakeDaemon::answering(&[said]);
            let found = answer(daemon.socket(), PLENTY, pipe(b"{}".as_slice()));
            assert_eq!(found, None, "{said:?}");
        }
    }

    #[test]
    fn without_a_daemon_there_is_silence() {
        let folder = Scratch::new();
        assert_eq!(answer(&folder.path().join("absent.sock"), PLENTY, pipe(b"{}".as_slice())), None);
    }

    #[test]
    fn a_silent_daemon_or_open_stdin_times_out() {
        let deadline = Duration::from_millis(20);
        let daemon = FakeDaemon::silent();
        assert_eq!(answer(daemon.socket(), deadline, pipe(b"{}".as_slice())), None);
        let (open, _writer) = io::pipe().expect("pipe");
        assert_eq!(answer(daemon.socket(), deadline, open), None);
    }

    #[test]
    fn an_unaccepted_connection_or_request_times_out() {
        let deadline = Duration::from_millis(20);
        let folder = Scratch::new();
        let path = folder.path().join("full.sock");
        let listener = UnixListener::bind(&path).expect("bind");
        // More than the buffer of a socket can hold.
        let large = io::repeat(b' ').take(HOOK_STDIN_BYTES_MAX);
        assert_eq!(answer(&path, PLENTY / 50, pipe(large)), None);
        // The listener accepts no connection, so the abandoned one fills this backlog, and the next
        // connect waits.
        rustix::net::listen(&listener, 0).expect("a small backlog");
        assert_eq!(answer(&path, deadline, pipe(b"{}".as_slice())), None);
    }

    #[test]
    fn a_silent_daemon_costs_two_waits() {
        let daemon = FakeDaemon::silent();
        for _ in 0..5 {
            assert_eq!(answer(daemon.socket(), Duration::from_millis(50), pipe(b"{}".as_slice())), None);
        }
        let mark = daemon.socket().with_file_name("fake.sock.silent");
        assert_eq!(std::fs::read(mark).expect("a mark"), b"..");
    }

    #[test]
    fn an_input_over_the_limit_is_not_sent() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"]);
        assert_eq!(answer(daemon.socket(), PLENTY, pipe(io::repeat(b' '))), None);
        let largest = io::repeat(b' ').take(HOOK_STDIN_BYTES_MAX);
        assert_eq!(answer(daemon.socket(), PLENTY, pipe(largest)), Some(b"{}".to_vec()));
        assert_eq!(daemon.requests().len(), 1);
    }
}
