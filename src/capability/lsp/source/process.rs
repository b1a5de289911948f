//! The process of one language server: its pipes with their frames, and its end.

use std::{fs, io, mem, path::Path, process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::timeout,
};

use crate::{
    capability::{
        lsp::{RunId, message::Incoming},
        source::pause,
    },
    daemon::tasks::Task,
};

/// Most messages that wait to be written to a server. A server with more hangs, and is killed.
const SENDS_MAX: usize = 1_024;
/// How long a server may run after its stdin or stdout was closed.
const CLOSE_MAX: Duration = Duration::from_secs(2);
/// Bytes kept from the end of a server's stderr.
const SAID_BYTES_MAX: usize = 4 * 1024;
/// Longest last stderr line that is quoted, in characters.
const LAST_CHARS_MAX: usize = 200;
/// How long to wait for the rest of stderr after the end of a process.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 16 * 1024;

/// An event of a process.
#[derive(Debug)]
pub(super) enum Heard {
    /// It sent a message.
    Message(Incoming),
    /// It ended or was killed, for this reason.
    Ended(String),
}

/// A running process. It is killed, with its child processes, when this is dropped.
#[derive(Debug)]
pub(super) struct Process {
    pid: Option<u32>,
    /// Full when the process does not read; `None` once its stdin is closed.
    stdin: Option<mpsc::Sender<Vec<u8>>>,
    task: AbortHandle,
}

impl Process {
    pub(super) const fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Sends a message; returns `false` if the queue is full. Messages after the stdin was closed
    /// are dropped.
    pub(super) fn send(&self, message: &Value) -> bool {
        match self.stdin.as_ref().map(|stdin| stdin.try_send(framed(message))) {
            Some(Err(mpsc::error::TrySendError::Full(_))) => false,
            // The end of a process is reported separately.
            Some(Ok(()) | Err(mpsc::error::TrySendError::Closed(_))) | None => true,
        }
    }

    /// Closes its stdin; then the process should exit.
    pub(super) fn close(&mut self) {
        self.stdin = None;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Kills a process group when it is dropped, because a server starts compilers.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            kill_process_group(group, Signal::KILL).ok();
        }
    }
}

/// The memory of a process, in the system's form: `812340 kB`.
pub(super) fn memory(pid: u32) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(resident.trim().to_owned())
}

/// Starts a process in `folder`; sends its messages and its end to `hear`.
pub(super) fn start(
    run: RunId,
    program: &Path,
    arguments: &[String],
    folder: &str,
    hear: mpsc::Sender<(RunId, Heard)>,
    tasks: &mut JoinSet<()>,
) -> io::Result<Process> {
    let child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        // A signal from the daemon's terminal must not reach it, and its child processes end with
        // it.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let pid = child.id();
    let group = Group(pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw));
    let (stdin, to_write) = mpsc::channel(SENDS_MAX);
    let task: Task<()> = Box::pin(async move {
        let why = follow(child, group, to_write, run, &hear).await;
        // An error means that the source has ended.
        hear.send((run, Heard::Ended(why))).await.ok();
    });
    let task = tasks.spawn(task);
    Ok(Process { pid, stdin: Some(stdin), task })
}

/// Transfers bytes until the process has ended or sends invalid messages; returns the reason. Then
/// the process is killed.
async fn follow(
    mut child: Child,
    group: Group,
    to_write: mpsc::Receiver<Vec<u8>>,
    run: RunId,
    hear: &mpsc::Sender<(RunId, Heard)>,
) -> String {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stdout), Some(mut stderr)) = (stdin, stdout, stderr) else {
        return "it has no pipes".to_owned();
    };
    let mut said = Vec::new();
    let why = tokio::select! {
        why = read(stdout, run, hear) => why,
        () = write(stdin, to_write) => Some("it kept running after its stdin was closed".to_owned()),
        () = listen_for_ever(&mut stderr, &mut said) => None,
    };
    // Without a reason the process has closed its stdout, and should exit.
    let ended = if why.is_none() { timeout(CLOSE_MAX, child.wait()).await.ok() } else { None };
    // Its last stderr output may be unread; a child process may keep the pipe open.
    timeout(LAST_WORDS, listen(&mut stderr, &mut said)).await.ok();
    drop(group);
    let last = String::from_utf8_lossy(&said);
    let last = last.lines().rev().map(str::trim).find(|line| !line.is_empty());
    let last: String = last.unwrap_or_default().chars().take(LAST_CHARS_MAX).collect();
    let why = why.unwrap_or_else(|| match ended {
        Some(Ok(status)) => format!("it ended: {status}"),
        Some(Err(error)) => error.to_string(),
        None => "it closed its stdout".to_owned(),
    });
    if last.is_empty() { why } else { format!("{why}: {last}") }
}

/// Reads messages until the end; returns the reason if it stops for another cause than the end of
/// the process.
async fn read(
    mut stdout: impl AsyncRead + Unpin,
    run: RunId,
    hear: &mpsc::Sender<(RunId, Heard)>,
) -> Option<String> {
    let (mut frames, mut bytes) = (Frames::default(), vec![0; READ_BYTES]);
    loop {
        let count = stdout.read(&mut bytes).await.unwrap_or(0);
        if count == 0 {
            return None;
        }
        frames.push(bytes.get(..count).expect("a read fills at most its buffer"));
        loop {
            match frames.next_message() {
                Ok(None) => break,
                Err(error) => return Some(error.to_string()),
                Ok(Some(message)) => match Incoming::read(&message) {
                    Err(error) => return Some(format!("it sent a message that cannot be read: {error}")),
                    // An error means that the source has ended.
                    Ok(message) => hear.send((run, Heard::Message(message))).await.ok()?,
                },
            }
        }
    }
}

/// Writes messages until the stdin is to be closed, closes it, and returns after the time that the
/// process has to exit.
async fn write(mut stdin: ChildStdin, mut to_write: mpsc::Receiver<Vec<u8>>) {
    while let Some(message) = to_write.recv().await {
        // The process has ended, or closed its stdin; its end is reported separately.
        if stdin.write_all(&message).await.is_err() {
            return std::future::pending().await;
        }
    }
    drop(stdin);
    pause(CLOSE_MAX).await;
}

async fn listen_for_ever(stderr: impl AsyncRead + Unpin, said: &mut Vec<u8>) {
    listen(stderr, said).await;
    std::future::pending().await
}

/// Reads stderr, and keeps its last bytes.
async fn listen(mut stderr: impl AsyncRead + Unpin, said: &mut Vec<u8>) {
    let mut bytes = vec![0; SAID_BYTES_MAX];
    loop {
        match stderr.read(&mut bytes).await {
            Ok(0) | Err(_) => return,
            Ok(count) => {
                said.extend_from_slice(bytes.get(..count).expect("a read fills at most its buffer"));
                said.drain(..said.len().saturating_sub(SAID_BYTES_MAX));
            }
        }
    }
}

/// Largest message, in bytes: the findings of some ten thousand files.
const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest header of a message, in bytes; the two existing fields take 100.
const HEADER_BYTES_MAX: usize = 4 * 1024;
const END_OF_HEADER: &[u8] = b"\r\n\r\n";
const LENGTH: &str = "content-length";

/// Takes bytes as they arrive and returns whole messages, from frames: `Content-Length: 2\r\n\r\n{}`.
///
/// Source: the section "Base Protocol" of version 3.17. The crate `lsp-server` reads from a blocking
/// stream and allocates any length that a peer states; this reads a frame in pieces, as they arrive,
/// with a bound.
#[derive(Debug, Default)]
struct Frames {
    bytes: Vec<u8>,
    /// The length of the message at the start of `bytes`, once its header is read.
    length: Option<usize>,
}

/// Why the stream cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum FrameError {
    #[error("its stdout has data other than messages")]
    NoHeader,
    /// The message is too large.
    #[error("it sent a message of {bytes} bytes; {MESSAGE_BYTES_MAX} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl Frames {
    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, if one has arrived.
    ///
    /// Errors: the stream is invalid from here on.
    fn next_message(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let Some(length) = self.take_header()? else { return Ok(None) };
                *self.length.insert(length)
            }
        };
        if self.bytes.len() < length {
            return Ok(None);
        }
        self.length = None;
        let rest = self.bytes.split_off(length);
        Ok(Some(mem::replace(&mut self.bytes, rest)))
    }

    /// The length in the header, if the whole header has arrived; removes the header.
    fn take_header(&mut self) -> Result<Option<usize>, FrameError> {
        let begin = self.bytes.get(..HEADER_BYTES_MAX).unwrap_or(&self.bytes);
        let Some(end) = begin.windows(END_OF_HEADER.len()).position(|window| window == END_OF_HEADER) else {
            return if begin.len() < HEADER_BYTES_MAX { Ok(None) } else { Err(FrameError::NoHeader) };
        };
        let header = begin.get(..end).and_then(|header| str::from_utf8(header).ok());
        let fields = header.into_iter().flat_map(str::lines).filter_map(|line| line.split_once(':'));
        let length = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case(LENGTH));
        let length: Option<usize> = length.filter_map(|(_, value)| value.trim().parse().ok()).next();
        match length.ok_or(FrameError::NoHeader)? {
            bytes if bytes > MESSAGE_BYTES_MAX => Err(FrameError::TooLarge { bytes }),
            length => {
                self.bytes.drain(..end + END_OF_HEADER.len());
                Ok(Some(length))
            }
        }
    }
}

/// A message with its header.
fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_their_bytes_arrive() {
        let all = b"Content-Length: 2\r\n\r\n{}Content-Type: x\r\ncontent-length:  4\r\n\r\n1234Content-Length: 0\r\n\r\n";
        for size in [1, 2, 3, 7, all.len()] {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in all.chunks(size) {
                frames.push(piece);
                while let Some(message) = frames.next_message().expect("frames") {
                    found.push(String::from_utf8(message).expect("text"));
                }
            }
            assert_eq!(found, ["{}", "1234", ""], "{size}");
        }
    }

    #[test]
    fn invalid_or_oversized_frame_ends_the_stream() {
        let long = "x".repeat(HEADER_BYTES_MAX);
        for (text, expected) in [
            ("Starting server...\r\n\r\n", Err(FrameError::NoHeader)),
            ("Content-Length: two\r\n\r\n{}", Err(FrameError::NoHeader)),
            ("Content-Length: -2\r\n\r\n{}", Err(FrameError::NoHeader)),
            (&*long, Err(FrameError::NoHeader)),
            ("Content-Length: 16777217\r\n\r\n", Err(FrameError::TooLarge { bytes: 16_777_217 })),
            ("Content-Length: 16777216\r\n\r\n{", Ok(None)),
            ("Content-Length: 2\r\n", Ok(None)),
        ] {
            let mut frames = Frames::default();
            frames.push(text.as_bytes());
            assert_eq!(frames.next_message(), expected, "{text}");
        }
    }

    #[test]
    fn framed_message_can_be_read_back() {
        let message = serde_json::json!({ "text": "\u{e4}\n" });
        let mut frames = Frames::default();
        frames.push(&framed(&message));
        let read = frames.next_message().expect("a frame").expect("whole");
        assert_eq!(serde_json::from_slice::<Value>(&read).expect("JSON"), message);
    }

    #[tokio::test]
    async fn why_a_process_is_no_server_is_said() {
        for (script, expected) in [
            ("echo one >&2; echo oops >&2; exit 3", "it ended: exit status: 3: oops"),
            ("printf 'Starting\\r\\n\\r\\n'; sleep 100", "its stdout has data other than messages"),
            (
                "printf 'Content-Length: 99999999\\r\\n\\r\\n'",
                "it sent a message of 99999999 bytes; 16777216 are allowed",
            ),
            ("printf 'Content-Length: 2\\r\\n\\r\\nno'", "it sent a message that cannot be read: expected"),
            ("printf 'Content-Length: 9\\r\\n\\r\\n{'", "it ended: exit status: 0"),
        ] {
            let (hear, mut heard) = mpsc::channel(1);
            let arguments = ["-c", script].map(str::to_owned);
            let mut tasks = JoinSet::new();
            let _process =
                start(1, Path::new("sh"), &arguments, "/", hear, &mut tasks).expect("a shell is there");
            match heard.recv().await {
                Some((1, Heard::Ended(why))) => assert!(why.starts_with(expected), "{script}: {why}"),
                other => panic!("{script}: {other:?}"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn process_ignoring_closed_stdin_is_killed_on_timeout() {
        let (hear, mut heard) = mpsc::channel(1);
        let arguments = ["100".to_owned()];
        let mut tasks = JoinSet::new();
        let mut process = start(1, Path::new("sleep"), &arguments, "/", hear, &mut tasks).expect("it runs");
        process.close();
        // The time is simulated: it passes while all tasks wait.
        match timeout(Duration::from_secs(3), heard.recv()).await {
            Ok(Some((1, Heard::Ended(why)))) => assert_eq!(why, "it kept running after its stdin was closed"),
            other => panic!("{other:?}"),
        }
    }
}
