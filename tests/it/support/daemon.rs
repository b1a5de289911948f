//! The real program in a folder of its own: the daemon as a process, the other commands, and
//! requests over its socket.
//!
//! Nothing here sleeps. The daemon's first line shows that it is ready, its output shows what it
//! did, and where there is no output [`eventually`] asks again within a bound.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use hook::client::{Client, ClientError, HOOK_TIMEOUT_VARIABLE, Response};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};
use serde_json::Value;
use tempfile::TempDir;

/// The longest time that anything may take before a test fails; far more than a loaded machine
/// needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Most unread lines of a log. No test makes a daemon write more; a daemon that does blocks on its
/// pipe.
const LOG_LINES_MAX: usize = 10_000;
/// Default settings of the daemons: segments so small that dozens of daemons do not keep the disk
/// busy with preparing files.
const SETTINGS: &str = "[journal]\nsegment_bytes = 1048576\n";
/// What every home adds to its settings: whether the machine's disk is nearly full is not part of a
/// test. A test of it names the table itself.
const WITHOUT_DISK: (&str, &str) = ("[sources.disk]", "enabled = false");
/// Lines that the daemon prints when it is ready.
const READY_LINES: usize = 4;

/// A folder with a daemon's configuration, state and socket, which outlives the daemon's process.
#[derive(Debug)]
pub(crate) struct Home {
    folder: TempDir,
    /// Variables of its programs in addition to its paths.
    variables: Vec<(&'static str, OsString)>,
}

/// A running daemon; it is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    /// Its output when it was ready.
    pub(crate) greeting: String,
    log: mpsc::Receiver<String>,
}

/// The end of a daemon.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Its unread output on stderr.
    pub(crate) log: String,
}

impl Home {
    pub(crate) fn new() -> Self {
        let home = Self { folder: TempDir::new().expect("a temporary folder"), variables: Vec::new() };
        fs::create_dir(home.path("work")).expect("a new folder");
        home.configure("aside.toml", SETTINGS);
        home
    }

    /// A folder with these files in its configuration.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let home = Self::new();
        for (name, text) in files {
            home.configure(name, text);
        }
        home
    }

    /// Sets a variable for its programs.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.variables.push((name, value.into()));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("socket")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// The working folder of the commands, as the program names it.
    pub(crate) fn work(&self) -> String {
        fs::canonicalize(self.path("work")).expect("it was made").to_string_lossy().into_owned()
    }

    /// Writes a file of the configuration; `aside.toml` with [`WITHOUT_DISK`] at its end.
    pub(crate) fn configure(&self, name: &str, text: &str) {
        let (table, setting) = WITHOUT_DISK;
        let text = if name == "aside.toml" && !text.contains(table) {
            format!("{text}\n{table}\n{setting}\n")
        } else {
            text.to_owned()
        };
        let path = self.path("config").join(name);
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder");
        fs::write(path, text).expect("written");
    }

    /// Writes a file that only its owner may read, and returns its path.
    pub(crate) fn write_secret(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its permissions");
        path
    }

    /// The program with this home's paths; of the environment it gets only `PATH`.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_aside"), args)
    }

    /// Like [`Self::command`], the small program for hooks.
    pub(crate) fn hook_command(&self, args: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_aside-hook"), args)
    }

    /// Python with this home's paths.
    pub(crate) fn python(&self, args: &[&str]) -> Command {
        self.command_of("python3", args)
    }

    fn command_of(&self, program: impl AsRef<OsStr>, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.path("work"))
            .env_clear()
            .env("PATH", self.programs())
            .env("ASIDE_SOCKET", self.socket())
            .env("ASIDE_CONFIG", self.path("config"))
            .env("ASIDE_STATE", self.state())
            // A hook waits for its answer even on a slow machine.
            .env(HOOK_TIMEOUT_VARIABLE, PATIENCE.as_millis().to_string())
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// The `PATH`: the test's folder `bin`, then the folders of the machine.
    pub(crate) fn programs(&self) -> OsString {
        let of_machine = std::env::var_os("PATH").unwrap_or_default();
        let folders = [self.path("bin")].into_iter().chain(std::env::split_paths(&of_machine));
        std::env::join_paths(folders).expect("no folder has a colon")
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program runs")
    }

    /// Runs a command that succeeds without warnings; returns its output.
    pub(crate) fn print(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {output:?}");
        text(&output.stdout)
    }

    /// Runs `aside-hook claude` with `stdin`, with this process as the client.
    pub(crate) fn hook(&self, stdin: &str) -> Output {
        self.hook_of(std::process::id(), stdin)
    }

    /// Like [`Self::hook`], with the process `pid` as the client.
    pub(crate) fn hook_of(&self, pid: u32, stdin: &str) -> Output {
        self.hook_within(PATIENCE, pid, stdin)
    }

    /// Like [`Self::hook_of`], by a hook that gives up after `limit`.
    pub(crate) fn hook_within(&self, limit: Duration, pid: u32, stdin: &str) -> Output {
        let mut child = self
            .hook_command(&["claude"])
            .env("CLAUDE_PID", pid.to_string())
            .env(HOOK_TIMEOUT_VARIABLE, limit.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program runs");
        let mut pipe = child.stdin.take().expect("piped");
        pipe.write_all(stdin.as_bytes()).expect("the hook reads its stdin");
        drop(pipe);
        child.wait_with_output().expect("it ends")
    }

    /// Starts the daemon and waits until it is ready.
    pub(crate) fn serve(&self) -> Daemon {
        self.serve_logging("info")
    }

    /// Starts the daemon with this filter for its log.
    pub(crate) fn serve_logging(&self, filter: &str) -> Daemon {
        self.serve_with(&["--log", filter])
    }

    /// Starts the daemon with these arguments.
    pub(crate) fn serve_with(&self, args: &[&str]) -> Daemon {
        self.try_serve(args).unwrap_or_else(|Ended { status, log }| {
            panic!("the daemon did not start: {status}\n{log}");
        })
    }

    /// Starts the daemon with these arguments; an error if it ends before it is ready.
    pub(crate) fn try_serve(&self, args: &[&str]) -> Result<Daemon, Ended> {
        self.try_serve_program(Path::new(env!("CARGO_BIN_EXE_aside")), args)
    }

    /// Starts the daemon of another build.
    pub(crate) fn serve_program(&self, program: &Path) -> Daemon {
        self.try_serve_program(program, &["--log", "info"]).expect("it starts")
    }

    fn try_serve_program(&self, program: &Path, args: &[&str]) -> Result<Daemon, Ended> {
        Self::try_start(&mut self.command_of(program, &[&["serve"], args].concat()))
    }

    /// Starts the daemon that `command` runs; an error if it ends before it is ready.
    ///
    /// # Panics
    /// If it is neither ready nor ended within [`PATIENCE`].
    pub(crate) fn try_start(command: &mut Command) -> Result<Daemon, Ended> {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
        let stderr = child.stderr.take().expect("piped");
        // The reader never waits for a test, so the daemon never waits for its log; it ends with
        // the daemon.
        let (lines, log) = mpsc::sync_channel(LOG_LINES_MAX);
        thread::spawn(move || {
            let read = BufReader::new(stderr).lines().map_while(Result::ok);
            read.map(|line| lines.send(line + "\n")).take_while(Result::is_ok).for_each(drop);
        });
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (ready, greeted) = mpsc::sync_channel(1);
        thread::spawn(move || {
            let mut greeting = String::new();
            for _ in 0..READY_LINES {
                stdout.read_line(&mut greeting).expect("text");
            }
            ready.send(greeting)
        });
        let mut daemon = Daemon { child, greeting: String::new(), log };
        daemon.greeting = greeted.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            panic!("it is neither ready nor ended after {PATIENCE:?}\n{}", daemon.killed().log);
        });
        if daemon.greeting.is_empty() { Err(daemon.end()) } else { Ok(daemon) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(self.socket(), PATIENCE)
    }

    /// Makes a request with a JSON body, or without one if it is empty.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.try_ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    pub(crate) fn try_ask(&self, method: &str, path: &str, body: &str) -> Result<Answer, ClientError> {
        self.client()
            .request(method, path, &[("content-type", "application/json")], body.as_bytes())
            .map(Answer)
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, "");
        assert_eq!(answer.0.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// Publishes `body`, which has to be accepted completely; returns the positions.
    pub(crate) fn publish(&self, body: &Value) -> Vec<u64> {
        let answer = self.ask("POST", "/v1/events", &body.to_string());
        assert_eq!(answer.0.status, 200, "{answer:?}");
        let answer = answer.json();
        let results = at(&answer, "/results").as_array().expect("verdicts").iter();
        results.map(|result| at(result, "/seq").as_u64().expect("a position")).collect()
    }

    /// Makes an exchange of `session` with the other fields in `body`.
    pub(crate) fn exchange(&self, session: &str, body: &Value) -> Answer {
        // The timeout is long, for a slow machine.
        let patience = PATIENCE.as_millis().to_string();
        let headers = [("content-type", "application/json"), ("aside-timeout-ms", &*patience)];
        let path = format!("/v1/sessions/{session}/exchange");
        let answer = self.client().request("POST", &path, &headers, body.to_string().as_bytes());
        Answer(answer.unwrap_or_else(|error| panic!("{path}: {error}")))
    }
}

/// A response, as tests read it.
#[derive(Debug)]
pub(crate) struct Answer(pub(crate) Response);

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.0.status
    }

    /// The body; null if there is none.
    pub(crate) fn json(&self) -> Value {
        if self.0.body.is_empty() {
            return Value::Null;
        }
        serde_json::from_slice(&self.0.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Daemon {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Reads the log until a line contains `words`; returns that line.
    pub(crate) fn said(&self, words: &str) -> String {
        loop {
            let line = self.log.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("`{words}`: {error}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    /// Its unread output on stderr so far.
    pub(crate) fn said_so_far(&self) -> String {
        self.log.try_iter().collect()
    }

    /// Asks it to stop as a service manager does.
    pub(crate) fn stop(mut self) -> Ended {
        self.signal(Signal::TERM);
        self.end()
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.signal(Signal::KILL);
        self.end();
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// If it has not ended within [`PATIENCE`].
    pub(crate) fn end(&mut self) -> Ended {
        if self.has_ended() {
            return self.waited();
        }
        let process = pidfd_open(self.pid(), PidfdFlags::empty()).expect("it is not waited for yet");
        let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let ended = poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)).expect("it waits");
        if ended == 0 {
            panic!("it has not ended after {PATIENCE:?}\n{}", self.killed().log);
        }
        self.waited()
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it was started here").is_some()
    }

    fn killed(&mut self) -> Ended {
        self.child.kill().expect("it was started here");
        self.waited()
    }

    fn waited(&mut self) -> Ended {
        let status = self.child.wait().expect("it was started here");
        Ended { status, log: self.log.iter().collect() }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended before; it must be gone afterwards.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The value at `pointer`, or null.
pub(crate) fn at<'v>(value: &'v Value, pointer: &str) -> &'v Value {
    value.pointer(pointer).unwrap_or(&Value::Null)
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Sends `request` to `connection`, whose other end then closes it; returns the whole response.
pub(crate) fn roundtrip(mut connection: impl Read + Write, request: &str) -> String {
    connection.write_all(request.as_bytes()).expect("taken");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("text");
    answer
}

/// Checks again until there is a result; the only such loop of the tests.
///
/// # Panics
/// If there is no result within [`PATIENCE`].
#[expect(clippy::disallowed_methods, reason = "it decides nothing how long a test waits")]
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
    }
}
