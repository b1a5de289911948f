//! The client in a terminal of its own (tmux), as a person has it.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    api::{Api, Turn},
    client::{aside, environment, program, settle},
    count, fail,
};
use crate::support::daemon::Home;

/// How long a client may take to start on a loaded machine.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// What a person takes for at once.
const WAKE_MAX: Duration = Duration::from_secs(2);
/// How often a state that nobody announces is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A tmux server with one window; it ends with the test.
struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    fn running(home: &Home, command: &[String], environment: &[(String, String)]) -> Self {
        let terminal = Self { socket: home.path("tmux") };
        let mut tmux = terminal.tmux();
        tmux.args(["-f", "/dev/null", "new-session", "-d", "-x", "180", "-y", "50", "-c", &home.work()]);
        tmux.args(["env", "-i"]).args(environment.iter().map(|(name, value)| format!("{name}={value}")));
        let status = tmux.args(command).stdin(Stdio::null()).status().expect("tmux runs");
        assert!(status.success(), "tmux: {status}");
        terminal
    }

    fn tmux(&self) -> Command {
        let mut tmux = Command::new("tmux");
        tmux.arg("-S").arg(&self.socket);
        tmux
    }

    fn screen(&self) -> String {
        let output = self.tmux().args(["capture-pane", "-p"]).output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The client's process.
    fn pid(&self) -> Pid {
        let output = self.tmux().args(["display-message", "-p", "#{pane_pid}"]).output().expect("tmux runs");
        let pid = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
        Pid::from_raw(pid).expect("a process")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux().arg("kill-server").status().ok();
    }
}

/// Looks every [`LOOK_EVERY`] until `is_so`; false when it is not so within `patience`.
fn within(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let (_never, nothing) = mpsc::sync_channel::<()>(0);
    let mut waited = Duration::ZERO;
    while !is_so() {
        if waited >= patience {
            return false;
        }
        nothing.recv_timeout(LOOK_EVERY).ok();
        waited += LOOK_EVERY;
    }
    true
}

/// How many of our watchers of this home are alive.
fn watchers(home: &Home) -> usize {
    let socket = format!("ASIDE_SOCKET={}", home.socket().display());
    let processes = std::fs::read_dir("/proc").expect("a process table").flatten();
    let is_ours = |folder: PathBuf| {
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap_or_default();
        let has =
            |bytes: &[u8], words: &str| bytes.split(|byte| *byte == 0).any(|part| part == words.as_bytes());
        has(&read("cmdline"), "attach") && has(&read("environ"), &socket)
    };
    processes.filter(|process| is_ours(process.path())).count()
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_idle_session_is_woken_and_its_watcher_ends_with_the_client() {
    let home = Arc::new(Home::new());
    settle(&home);
    let plugin = home.path("plugin").to_string_lossy().into_owned();
    aside(&home, &["install", "claude-code", "--plugin", &plugin]);
    let _daemon = home.serve();
    let api = Api::playing(vec![Turn::says("waiting"), Turn::says("seen")]);
    let client = program().to_string_lossy().into_owned();
    let command = [&client, "--plugin-dir", &plugin, "--permission-mode", "default", "go"].map(str::to_owned);
    let terminal = Terminal::running(&home, &command, &environment(&home, &api.url()));
    assert!(api.wait_for(1, START_PATIENCE), "no request; the screen:\n{}", terminal.screen());
    let is_idle = || home.get("/v1/sessions")["sessions"][0]["state"] == "idle";
    assert!(within(START_PATIENCE, is_idle), "{}", home.get("/v1/sessions"));
    assert!(
        within(START_PATIENCE, || watchers(&home) == 1),
        "no watcher; the screen:\n{}",
        terminal.screen()
    );

    #[expect(clippy::disallowed_methods, reason = "how long a person waits is what is asked here")]
    let begin = Instant::now();
    fail(&home, "critical", "marker_wake");
    assert!(api.wait_for(2, WAKE_MAX), "not woken in {WAKE_MAX:?}; the screen:\n{}", terminal.screen());
    let woken_after = begin.elapsed();
    writeln!(std::io::stderr(), "woken after {woken_after:?}").expect("somebody reads");
    let conversation = api.conversation();
    assert_eq!(count(&conversation[1], "marker_wake"), 1, "{:?}", conversation[1].last());

    kill_process(terminal.pid(), Signal::KILL).expect("it runs");
    assert!(within(START_PATIENCE, || watchers(&home) == 0), "the watcher outlives its client");
}
