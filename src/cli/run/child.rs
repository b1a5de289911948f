//! The child process: copies its output and keeps the end of it, forwards signals, and waits for
//! its exit.
//!
//! After the child has exited, its remaining output is still copied: at most a pipe's capacity. A
//! grandchild that holds the pipe open does not block: output ends when the pipe is silent for
//! [`QUIET`], or when more has arrived than the child can have left.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io::{self, IsTerminal, Read, Write},
    os::unix::process::ExitStatusExt,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use engine::event::{clean_text, terminal_line};
use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid},
};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::{Handle, Signals},
    low_level::signal_name,
};

use crate::capability::problem::collector::Stream;

/// How long a pipe may be silent after the child's exit. On a busy machine the last output may be
/// copied that late.
const QUIET: Duration = Duration::from_millis(500);
/// Capacity of a pipe, in bytes, unless it was enlarged.
const PIPE_BYTES: usize = 64 * 1024;
/// The signals of Ctrl-C and Ctrl-\, which a terminal sends to every process in its foreground.
const SENT_BY_TERMINAL: [i32; 2] = [SIGINT, SIGQUIT];

/// Destination of one of the child's outputs.
pub(super) type Sink = Box<dyn Write + Send>;
/// Source of one of the child's outputs.
type Pipe = Option<Box<dyn Read + Send>>;

/// The outcome of a command.
#[derive(Debug)]
pub(super) enum Ending {
    /// It ran.
    Ended { status: ExitStatus, last_lines: String },
    /// It could not be started.
    NotStarted(io::Error),
}

impl Ending {
    /// The exit code that a shell would return.
    pub(super) fn exit_code(&self) -> u8 {
        let code = match self {
            Self::Ended { status, .. } => {
                status.code().or_else(|| status.signal().map(|signal| 128 + signal))
            }
            Self::NotStarted(error) if error.kind() == io::ErrorKind::NotFound => Some(127),
            Self::NotStarted(_) => Some(126),
        };
        code.and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX)
    }

    pub(super) fn signal(&self) -> Option<String> {
        match self {
            Self::Ended { status, .. } => status
                .signal()
                .map(|signal| signal_name(signal).map_or_else(|| signal.to_string(), str::to_owned)),
            Self::NotStarted(_) => None,
        }
    }

    pub(super) fn last_lines(&self) -> String {
        match self {
            Self::Ended { last_lines, .. } => last_lines.clone(),
            Self::NotStarted(error) => error.to_string(),
        }
    }
}

pub(super) struct Running {
    child: Child,
    /// The target of signals; `None` once its id may be reused.
    target: Arc<Mutex<Option<Pid>>>,
    signals: Handle,
    output: Arc<Output>,
}

#[derive(Default)]
struct Output {
    state: Mutex<OutputState>,
    changed: Condvar,
}

#[derive(Default)]
struct OutputState {
    last_lines: LastLines,
    /// Pipes that have not ended.
    open: u32,
    /// Chunks that were read and are being written.
    writing: u32,
    /// Number of chunks read so far.
    chunks: u64,
    has_exited: bool,
}

impl Output {
    fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Starts `command`, whose stdout and stderr go to `sinks`.
    ///
    /// Shape: `tap` gets each piece after it is written; when it is full, the command waits.
    pub(super) fn start(
        command: &[OsString],
        sinks: [Sink; 2],
        tap: Option<&SyncSender<Piece>>,
    ) -> io::Result<Self> {
        let (program, args) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        // Before the child, so that no signal can end this process and leave the child alone.
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
        let mut child =
            Command::new(program).args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let target = Arc::new(Mutex::new(Some(Pid::from_child(&child))));
        let handle = signals.handle();
        let forward_to = target.clone();
        thread::spawn(move || forward(signals, &forward_to));
        let output = Arc::new(Output::default());
        output.lock().open = 2;
        let [stdout, stderr] = sinks;
        let pipes: [(Pipe, Sink, Stream); 2] = [
            (child.stdout.take().map(|pipe| Box::new(pipe) as _), stdout, Stream::Stdout),
            (child.stderr.take().map(|pipe| Box::new(pipe) as _), stderr, Stream::Stderr),
        ];
        for (pipe, sink, stream) in pipes {
            let pipe = pipe.expect("both outputs are piped");
            let output = output.clone();
            let tap = tap.cloned().map(|tap| (stream, tap));
            thread::spawn(move || pass(pipe, sink, tap.as_ref(), &output));
        }
        Ok(Self { child, target, signals: handle, output })
    }

    /// Waits until the child has exited.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        let pid = Pid::from_child(&self.child);
        // The id stays valid until the child is reaped, so signals are stopped in between.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while waitid(WaitId::Pid(pid), options).is_err_and(|error| error == Errno::INTR) {}
        self.target.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.signals.close();
        self.child.wait()
    }

    /// Waits for the remaining output of a child that has exited; returns its last lines.
    pub(super) fn finish_output(&self) -> String {
        let mut state = self.output.lock();
        state.has_exited = true;
        while state.open > 0 {
            let before = state.chunks;
            let (next, wait) =
                self.output.changed.wait_timeout(state, QUIET).unwrap_or_else(PoisonError::into_inner);
            state = next;
            if wait.timed_out() && state.writing == 0 && state.chunks == before {
                break;
            }
        }
        state.last_lines.text()
    }
}

fn forward(mut signals: Signals, target: &Mutex<Option<Pid>>) {
    let has_terminal = io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal();
    let sent: &[i32] = if has_terminal { &SENT_BY_TERMINAL } else { &[] };
    for signal in signals.forever() {
        deliver(signal, sent, target);
    }
}

/// Forwards a signal, unless it is one of those that were `sent` to the child as well.
fn deliver(signal: i32, sent: &[i32], target: &Mutex<Option<Pid>>) {
    let target = target.lock().unwrap_or_else(PoisonError::into_inner);
    if let (false, Some(pid), Some(signal)) =
        (sent.contains(&signal), *target, Signal::from_named_raw(signal))
    {
        // A child that has exited needs no signal.
        kill_process(pid, signal).ok();
    }
}

/// Copies a pipe until it ends, or its sink fails; the child then gets the same error as it would
/// alone.
fn pass(
    mut pipe: impl Read,
    mut sink: impl Write,
    tap: Option<&(Stream, SyncSender<Piece>)>,
    output: &Output,
) {
    let mut buffer = vec![0; PIPE_BYTES];
    let mut left_behind = 0;
    while left_behind < PIPE_BYTES {
        let chunk = match pipe.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(count) => buffer.get(..count).expect("a read fills at most its buffer"),
        };
        {
            let mut state = output.lock();
            state.last_lines.push(chunk);
            state.writing += 1;
            state.chunks += 1;
            left_behind += if state.has_exited { chunk.len() } else { 0 };
        }
        let written = sink.write_all(chunk).and_then(|()| sink.flush());
        if let Some((stream, tap)) = tap {
            // After the end nobody reads it.
            tap.send(Piece::Output(*stream, chunk.to_vec())).ok();
        }
        output.lock().writing -= 1;
        output.changed.notify_all();
        if written.is_err() {
            break;
        }
    }
    drop(pipe);
    output.lock().open -= 1;
    output.changed.notify_all();
}

/// Most queued pieces of output, of at most 64 KiB each; the command waits when the queue is full.
const PIECES_MAX: usize = 64;

/// Input from the command.
#[derive(Debug)]
pub(super) enum Piece {
    /// A piece of output.
    Output(Stream, Vec<u8>),
    End,
}

/// Creates the queue of pieces.
pub(super) fn pieces() -> (SyncSender<Piece>, Receiver<Piece>) {
    sync_channel(PIECES_MAX)
}

/// Most kept lines.
const LINES_MAX: usize = 20;
/// Most kept characters. A longer last line is kept alone, as cut by [`clean_text`].
const CHARS_MAX: usize = 2_000;
/// Kept bytes of raw output, so that enough lines remain without escapes and progress bars.
const RAW_BYTES_MAX: usize = 32 * 1024;

/// Collects output and keeps its end.
#[derive(Debug, Default)]
pub(super) struct LastLines {
    raw: VecDeque<u8>,
    is_cut: bool,
}

impl LastLines {
    pub(super) fn push(&mut self, chunk: &[u8]) {
        let start = chunk.len().saturating_sub(RAW_BYTES_MAX);
        self.raw.extend(chunk.get(start..).expect("a start within the chunk"));
        let excess = self.raw.len().saturating_sub(RAW_BYTES_MAX);
        self.raw.drain(..excess);
        self.is_cut |= start > 0 || excess > 0;
    }

    /// The last lines, without escapes and trailing empty lines, joined by newlines.
    pub(super) fn text(&self) -> String {
        let raw: Vec<u8> = self.raw.iter().copied().collect();
        let text = String::from_utf8_lossy(&raw);
        let whole = match text.split_once('\n') {
            Some((_, whole)) if self.is_cut => whole,
            _ => &text,
        };
        let mut lines: VecDeque<String> = VecDeque::new();
        let mut chars = 0;
        for line in whole.trim_end().rsplit('\n') {
            let line = clean_text(&terminal_line(line.as_bytes())).trim_end().to_owned();
            chars += line.chars().count() + 1;
            if lines.len() == LINES_MAX || (chars > CHARS_MAX && !lines.is_empty()) {
                break;
            }
            lines.push_front(line);
        }
        Vec::from(lines).join("\n")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::BufRead;

    use super::*;

    /// A sink that collects its input.
    #[derive(Debug, Clone, Default)]
    pub(in crate::cli::run) struct Collected(Arc<Mutex<Vec<u8>>>);

    impl Collected {
        pub(in crate::cli::run) fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.lock().expect("lock")).into_owned()
        }
    }

    impl Write for Collected {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("lock").extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn start(script: &str, stdout: Sink) -> Running {
        let command = ["sh", "-c", script].map(OsString::from);
        Running::start(&command, [stdout, Box::new(io::sink())], None).expect("sh runs")
    }

    #[test]
    fn output_passes_byte_for_byte() {
        let stdout = Collected::default();
        let script =
            r"printf 'a\000\377\r'; i=0; while [ $i -lt 20000 ]; do echo 0123456789; i=$((i+1)); done";
        let mut running = start(script, Box::new(stdout.clone()));
        assert_eq!(running.wait().expect("status").code(), Some(0));
        running.finish_output();
        let expected = [&b"a\0\xff\r"[..], "0123456789\n".repeat(20_000).as_bytes()].concat();
        assert!(*stdout.0.lock().expect("lock") == expected, "{} bytes", expected.len());
    }

    #[test]
    fn a_grandchild_that_keeps_the_pipe_keeps_nobody() {
        for script in ["echo early; sleep 600 & echo $!", "yes chatter & echo $!; sleep 0.05"] {
            let stdout = Collected::default();
            let mut running = start(script, Box::new(stdout.clone()));
            running.wait().expect("status");
            running.finish_output();
            let text = stdout.text();
            let number = text.lines().find_map(|line| line.parse().ok()).and_then(Pid::from_raw);
            // The one that writes may have ended already, by a broken pipe.
            kill_process(number.expect("its number"), Signal::KILL).ok();
        }
    }

    #[test]
    fn closed_sink_ends_child_with_sigpipe() {
        let (reader, writer) = io::pipe().expect("pipe");
        drop(reader);
        let mut running = start("exec yes", Box::new(writer));
        assert_eq!(running.wait().expect("status").signal(), Some(13));
        assert_eq!(running.finish_output().lines().next(), Some("y"));
    }

    #[test]
    fn signal_already_sent_by_terminal_is_not_forwarded() {
        let (reader, writer) = io::pipe().expect("pipe");
        let script = "trap 'echo INT' INT; trap 'kill $!; exit 9' TERM; sleep 600 & echo ready; wait";
        let mut running = start(script, Box::new(writer));
        let mut ready = String::new();
        io::BufReader::new(reader).read_line(&mut ready).expect("output");
        deliver(SIGINT, &SENT_BY_TERMINAL, &running.target);
        deliver(SIGTERM, &SENT_BY_TERMINAL, &running.target);
        assert_eq!(running.wait().expect("status").code(), Some(9));
        assert_eq!(running.finish_output(), "ready");
        assert_eq!(*running.target.lock().expect("lock"), None);
    }

    fn shown(output: &[u8]) -> String {
        let mut lines = LastLines::default();
        output.chunks(7).for_each(|chunk| lines.push(chunk));
        lines.text()
    }

    #[test]
    fn the_end_is_what_a_terminal_would_show() {
        for (output, expected) in [
            (&b""[..], ""),
            (b"one\ntwo\n\n", "one\ntwo"),
            (b"no newline", "no newline"),
            (b"\x1b[1mbold\x1b[0m\r\nplain\r\n", "bold\nplain"),
            (b" 10%\r 50%\r100%\ndone\n", "100%\ndone"),
            (b"10%\r\x1b[K100%\nspin |\x08/\x08\x08: ok\n", "100%\nspin: ok"),
            (b"not \xff text\n", "not \u{fffd} text"),
        ] {
            assert_eq!(shown(output), expected, "{output:?}");
        }
    }

    #[test]
    fn only_so_many_lines_and_characters_are_kept() {
        let numbered: String = (1..=30).map(|number| format!("{number}\n")).collect();
        let expected: Vec<String> = (11..=30).map(|number| number.to_string()).collect();
        assert_eq!(shown(numbered.as_bytes()), expected.join("\n"));

        let wide = format!("{}\n", "x".repeat(600)).repeat(10);
        assert_eq!(shown(wide.as_bytes()).lines().count(), 3);

        let endless = shown("y".repeat(100_000).as_bytes());
        assert!(endless.starts_with("yyy") && endless.ends_with("chars]"), "{endless}");
    }

    #[test]
    fn line_with_lost_beginning_is_omitted() {
        let output = format!("{}\nlast\n", "z".repeat(RAW_BYTES_MAX));
        assert_eq!(shown(output.as_bytes()), "last");
        let mut at_once = LastLines::default();
        at_once.push(output.as_bytes());
        assert_eq!(at_once.text(), "last");
    }
}
