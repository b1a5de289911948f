//! The hook path: what a harness says on stdin goes to the daemon as it is, and the daemon's answer to stdout as it is.
//!
//! A harness runs this at every point of a turn and waits for it, so it never fails, never speaks of trouble and is over by
//! [`HOOK_DEADLINE`], whatever the daemon does. One thread does the work while the first one waits for it: neither reading
//! stdin nor connecting to a full backlog can be given a time limit in the standard library.

use std::{
    ffi::OsString,
    io::{self, BufReader, Read, Write},
    os::unix::{ffi::OsStrExt, net::UnixStream},
    path::{Path, PathBuf},
    sync::mpsc::sync_channel,
    thread,
    time::Duration,
};

use super::{
    encode_bytes,
    http::{self, Body},
    percent_encode,
};

/// How long a harness waits at most (semantics 7.5).
pub const HOOK_DEADLINE: Duration = Duration::from_millis(150);
/// Longest input that is forwarded, in bytes; a batch of tool results can be large, and nothing longer arrives in time.
pub const HOOK_STDIN_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest output, in bytes; what a harness accepts is far less.
const HOOK_STDOUT_BYTES_MAX: u64 = 1024 * 1024;

/// The environment variables that go along, each as the header it becomes.
///
/// Shape: bytes other than printable ASCII, and `%`, are percent-encoded.
/// Source: the variables a Claude Code hook process gets.
pub const HOOK_HEADERS: [(&str, &str); 6] = [
    ("aside-pid", "CLAUDE_PID"),
    ("aside-entrypoint", "CLAUDE_CODE_ENTRYPOINT"),
    ("aside-project", "CLAUDE_PROJECT_DIR"),
    ("aside-session", "CLAUDE_CODE_SESSION_ID"),
    ("aside-inbox", "CLAUDE_CODE_MESSAGING_SOCKET"),
    ("aside-inbox-token", "CLAUDE_CODE_MESSAGING_TOKEN"),
];

/// Hands stdin to the daemon's harness module `name`, and prints what it answers.
///
/// Errors: none, by design. Without a daemon, with a broken one or a late one, nothing is printed.
pub fn hook(name: &str, socket: &Path, variable: impl Fn(&str) -> Option<OsString>) {
    let call = Call {
        path: format!("/v1/hooks/{}", percent_encode(name)),
        headers: headers(variable),
        socket: socket.to_owned(),
    };
    if let Some(output) = call.answer_within(HOOK_DEADLINE, io::stdin()) {
        let mut stdout = io::stdout().lock();
        // A harness that has closed the pipe has gone; there is nobody to tell.
        stdout.write_all(&output).and_then(|()| stdout.flush()).ok();
    }
}

fn headers(variable: impl Fn(&str) -> Option<OsString>) -> Vec<(&'static str, String)> {
    let is_plain = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && byte != b'%';
    HOOK_HEADERS
        .into_iter()
        .filter_map(|(header, name)| Some((header, encode_bytes(variable(name)?.as_bytes(), is_plain))))
        .collect()
}

struct Call {
    path: String,
    headers: Vec<(&'static str, String)>,
    socket: PathBuf,
}

impl Call {
    fn answer_within(self, deadline: Duration, input: impl Read + Send + 'static) -> Option<Vec<u8>> {
        // Holds the one answer, so the worker never waits; an answer after the deadline is dropped with the channel.
        let (sender, receiver) = sync_channel(1);
        let worker = move || drop(sender.send(self.answer(input)));
        thread::Builder::new().name("hook".to_owned()).spawn(worker).ok()?;
        receiver.recv_timeout(deadline).ok()?
    }

    fn answer(&self, input: impl Read) -> Option<Vec<u8>> {
        // Read before connecting: a harness whose hook does not read might fail to write.
        let mut body = Vec::new();
        input.take(HOOK_STDIN_BYTES_MAX + 1).read_to_end(&mut body).ok()?;
        if body.len() as u64 > HOOK_STDIN_BYTES_MAX {
            return None;
        }
        let mut connection = UnixStream::connect(&self.socket).ok()?;
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(self.headers.iter().map(|(name, value)| (*name, value.as_str())));
        http::write_request(&mut connection, "POST", &self.path, &headers, &body).ok()?;
        let mut reader = BufReader::new(connection);
        let head = http::read_head(&mut reader).ok()?;
        if head.status != 200 {
            return None;
        }
        let mut output = Vec::new();
        Body::new(reader, head.framing).take(HOOK_STDOUT_BYTES_MAX + 1).read_to_end(&mut output).ok()?;
        (output.len() as u64 <= HOOK_STDOUT_BYTES_MAX).then_some(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake::{FakeDaemon, Scratch};

    const PLENTY: Duration = Duration::from_secs(10);

    fn call(socket: &Path) -> Call {
        Call { path: "/v1/hooks/claude".to_owned(), headers: Vec::new(), socket: socket.to_owned() }
    }

    #[test]
    fn stdin_goes_as_it_is_and_the_answer_comes_as_it_is() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{\"a\": \"b\"}"]);
        let variable =
            |name: &str| (name == "CLAUDE_PROJECT_DIR").then(|| OsString::from("/home/\u{fc}/100% a\n"));
        let call = Call { headers: headers(variable), ..call(daemon.socket()) };
        let input: &[u8] = b"{ \"not\": even JSON \xff";
        assert_eq!(call.answer_within(PLENTY, input), Some(b"{\"a\": \"b\"}".to_vec()));
        assert_eq!(
            daemon.requests(),
            [
                "POST /v1/hooks/claude HTTP/1.1\r\nhost: aside\r\nconnection: close\r\ncontent-type: application/json\r\n\
              aside-project: /home/%C3%BC/100%25 a%0A\r\ncontent-length: 20\r\n\r\n{ \"not\": even JSON \u{fffd}"
            ]
        );
    }

    #[test]
    fn anything_but_a_whole_200_is_silence() {
        for answer in [
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\n\r\noops",
            "HTTP/1.1 500 Internal Server Error\r\n\r\noops",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\ncut",
            "garbage\r\n\r\n",
            "",
        ] {
            let daemon = FakeDaemon::answering(&[answer]);
            assert_eq!(call(daemon.socket()).answer_within(PLENTY, &b"{}"[..]), None, "{answer:?}");
        }
    }

    #[test]
    fn without_a_daemon_there_is_silence() {
        let folder = Scratch::new();
        assert_eq!(call(&folder.path().join("absent.sock")).answer_within(PLENTY, &b"{}"[..]), None);
    }

    #[test]
    fn a_silent_daemon_and_a_stdin_that_stays_open_are_given_up() {
        let deadline = Duration::from_millis(20);
        let daemon = FakeDaemon::silent();
        assert_eq!(call(daemon.socket()).answer_within(deadline, &b"{}"[..]), None);
        let (open, _writer) = io::pipe().expect("pipe");
        assert_eq!(call(daemon.socket()).answer_within(deadline, open), None);
    }

    #[test]
    fn an_input_over_the_limit_is_not_sent() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"]);
        assert_eq!(call(daemon.socket()).answer_within(PLENTY, io::repeat(b' ')), None);
        let largest = io::repeat(b' ').take(HOOK_STDIN_BYTES_MAX);
        assert_eq!(call(daemon.socket()).answer_within(PLENTY, largest), Some(b"{}".to_vec()));
        assert_eq!(daemon.requests().len(), 1);
    }
}
