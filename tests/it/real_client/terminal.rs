//! The client in a terminal of its own (tmux), as a person runs it.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Arc, mpsc},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{
    api::{Api, Turn},
    client::{aside, can_be_woken, environment, program, settle},
    fail, fail_for,
};
use crate::support::daemon::{Daemon, Home};

/// Longest time that a client may take for anything on a loaded machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Interval between checks of a state that is not announced.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The text before the line that is being typed.
const PROMPT_SIGN: &str = "❯";

/// A tmux server with one window, in which the client runs; it ends with the test.
pub(super) struct Terminal {
    socket: PathBuf,
}

impl Terminal {
    /// Starts the client with `args` in a home, connected to the API at `url`.
    pub(super) fn of_client(home: &Home, url: &str, args: &[&str]) -> Self {
        let program = program().to_string_lossy().into_owned();
        let args = ["--permission-mode", "default"].iter().chain(args).map(|arg| (*arg).to_owned());
        let command: Vec<String> = [program].into_iter().chain(args).collect();
        Self::running(home, &command, &environment(home, url))
    }

    fn running(home: &Home, command: &[String], environment: &[(String, String)]) -> Self {
        // A new terminal starts before the previous one is gone, so it needs a socket of its own.
        let socket = (1..).map(|number| home.path(&format!("tmux{number}"))).find(|path| !path.exists());
        let terminal = Self { socket: socket.expect("there are numbers enough") };
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

    pub(super) fn screen(&self) -> String {
        let output = self.tmux().args(["capture-pane", "-p"]).output().expect("tmux runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(super) fn press(&self, keys: &[&str]) {
        let status = self.tmux().arg("send-keys").args(keys).status().expect("tmux runs");
        assert!(status.success(), "tmux: {status}");
    }

    pub(super) fn pid(&self) -> Pid {
        let output = self.tmux().args(["display-message", "-p", "#{pane_pid}"]).output().expect("tmux runs");
        let pid = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
        Pid::from_raw(pid).expect("a process")
    }

    /// Types a line and enters it; false if there is no prompt, or the line does not appear in it.
    pub(super) fn enter(&self, line: &str) -> bool {
        let sees = |words: &str| within(PATIENCE, || self.screen().contains(words));
        if !sees(PROMPT_SIGN) {
            return false;
        }
        self.press(&["-l", line]);
        let is_seen = sees(line);
        if is_seen {
            self.press(&["Enter"]);
        }
        is_seen
    }

    /// The content of the client's own file about itself; null if the file does not exist.
    pub(super) fn file(&self, home: &Home) -> Value {
        let path = home.path("claude").join(format!("sessions/{}.json", self.pid().as_raw_nonzero()));
        fs::read(path).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Whether the client's own file reports that no turn is under way.
    pub(super) fn says_idle(&self, home: &Home) -> bool {
        let status = &self.file(home)["status"];
        status == "idle" || status == "shell"
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Fails if the client has ended, which ends its terminal.
        self.tmux().arg("kill-server").stderr(Stdio::null()).status().ok();
    }
}

/// A user at a terminal in which the client runs, with aside as its plugin, a daemon, and the API
/// of the client.
pub(super) struct Seat {
    /// Dropped first: it is ended through a socket in the home.
    terminal: Terminal,
    daemon: Option<Daemon>,
    pub(super) api: Api,
    pub(super) home: Arc<Home>,
    /// Whether the client can be woken; otherwise it gets pending notifications with the next
    /// prompt.
    pub(super) can_be_woken: bool,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.daemon.is_none() {
            // A daemon started by a hook is not a child of this process.
            self.home.run(&["down"]);
        }
    }
}

impl Seat {
    /// Starts the client with `args`; its model answers with the texts `says` in order.
    pub(super) fn taken(says: &[&str], args: &[&str]) -> Self {
        Self::playing(says.iter().map(|text| Turn::says(text)).collect(), args)
    }

    /// Like [`Self::taken`], with a model that plays `turns`.
    pub(super) fn playing(turns: Vec<Turn>, args: &[&str]) -> Self {
        Self::with_plugin(turns, args, |_| ())
    }

    /// Like [`Self::playing`], with tools for the agent.
    pub(super) fn playing_with_tools(turns: Vec<Turn>) -> Self {
        Self::served_at(Arc::new(Self::home(&["--tools"])), turns, &[])
    }

    /// Without a daemon until a hook starts one.
    pub(super) fn taken_first() -> Self {
        let home = Self::home(&["--autostart"]);
        Self::at(Arc::new(home), None, Vec::new(), &[])
    }

    /// Like [`Self::taken`], with a client that starts no monitors.
    pub(super) fn taken_without_monitor(says: &[&str], args: &[&str]) -> Self {
        let turns = says.iter().map(|text| Turn::says(text)).collect();
        Self::with_plugin(turns, args, |home| {
            let manifest = home.path("plugin/aside/.claude-plugin/plugin.json");
            let text = fs::read_to_string(&manifest).expect("the plugin was written");
            let mut json: Value = serde_json::from_str(&text).expect("JSON");
            let removed = json.as_object_mut().and_then(|fields| fields.remove("experimental"));
            assert!(removed.is_some(), "the plugin has a monitor");
            fs::write(&manifest, json.to_string()).expect("written");
        })
    }

    fn with_plugin(turns: Vec<Turn>, args: &[&str], change: impl FnOnce(&Home)) -> Self {
        let home = Self::home_with_plugin();
        change(&home);
        Self::served_at(home, turns, args)
    }

    /// A home for [`Self::served_at`], for turns with actions in it.
    pub(super) fn home_with_plugin() -> Arc<Home> {
        Arc::new(Self::home(&[]))
    }

    /// Like [`Self::playing`], with a daemon in this home.
    pub(super) fn served_at(home: Arc<Home>, turns: Vec<Turn>, args: &[&str]) -> Self {
        let daemon = home.serve();
        Self::at(home, Some(daemon), turns, args)
    }

    /// A home in which aside is installed as a plugin, with these options, and as the status line.
    fn home(options: &[&str]) -> Home {
        let home = Home::new();
        settle(&home);
        aside(&home, &[&["install", "claude-code", "--extension", &plugin(&home)], options].concat());
        let settings = home.path("claude/settings.json");
        let text = fs::read_to_string(&settings).expect("it is settled");
        let mut json: Value = serde_json::from_str(&text).expect("JSON");
        json["statusLine"] = json!({
            "type": "command", "command": concat!(env!("CARGO_BIN_EXE_aside"), " statusline claude"), "refreshInterval": 1,
        });
        fs::write(&settings, json.to_string()).expect("written");
        home
    }

    fn at(home: Arc<Home>, daemon: Option<Daemon>, turns: Vec<Turn>, args: &[&str]) -> Self {
        let api = Api::playing(turns);
        let terminal = start(&home, &api, args);
        Self { terminal, daemon, api, home, can_be_woken: can_be_woken() }
    }

    /// Kills the client and starts another one.
    pub(super) fn replaced(&mut self) {
        kill_process(self.pid(), Signal::KILL).expect("it runs");
        assert!(within(PATIENCE, || self.open_sessions().is_empty()), "{}", self.sight());
        self.terminal = start(&self.home, &self.api, &[]);
    }

    /// Stops the turn that is under way.
    pub(super) fn stop_turn(&self) {
        self.terminal.press(&["Escape"]);
        // The prompt of the turn may be in the line again.
        assert!(within(PATIENCE, || self.terminal.says_idle(&self.home)), "{}", self.sight());
        self.terminal.press(&["C-u"]);
    }

    /// Leaves the client and starts it again with `args`.
    pub(super) fn come_back(&mut self, args: &[&str]) {
        self.enter("/exit");
        assert!(within(PATIENCE, || self.open_sessions().is_empty()), "{}", self.sight());
        assert!(within(PATIENCE, || self.watchers() == 0), "the watcher outlives its client");
        self.terminal = start(&self.home, &self.api, args);
    }

    /// Types a line and enters it.
    pub(super) fn enter(&self, line: &str) {
        assert!(self.terminal.enter(line), "`{line}` is not seen:\n{}", self.sight());
    }

    /// Enters a prompt, and waits until its turn is over; returns the messages of its request.
    pub(super) fn prompt(&self, line: &str) -> Vec<Value> {
        let before = self.api.conversation().len();
        self.enter(line);
        self.next_request(before + 1)
    }

    /// The messages of the request `number`, counted from one, once its turn is over; it has to be
    /// the last one.
    pub(super) fn next_request(&self, number: usize) -> Vec<Value> {
        assert!(self.api.wait_for(number, PATIENCE), "no request {number}; {}", self.sight());
        self.idle_session();
        let mut conversation = self.api.conversation();
        assert_eq!(conversation.len(), number, "a turn that nobody asked for");
        conversation.pop().expect("one is there")
    }

    /// Publishes a failure for every session in the client's folder.
    pub(super) fn fail(&self, severity: &str, words: &str) {
        fail(&self.home, severity, words);
    }

    /// Publishes an error for `session` and waits until it is pending there.
    pub(super) fn fail_for(&self, session: &str, words: &str) {
        fail_for(&self.home, ("session", session), "error", words);
        let waits = || self.home.get(&format!("/v1/sessions/{session}"))["pending"] == 1;
        assert!(within(PATIENCE, waits), "{}", self.sight());
    }

    /// The only open session, once no turn is under way there.
    pub(super) fn idle_session(&self) -> String {
        self.session_other_than("")
    }

    /// The only open session, once it is not `old` and is idle.
    pub(super) fn session_other_than(&self, old: &str) -> String {
        let mut found = None;
        let is_there = || match self.open_sessions().as_slice() {
            [session] if session["state"] == "idle" && session["id"] != old => {
                found = session["id"].as_str().map(str::to_owned);
                true
            }
            _ => false,
        };
        assert!(within(PATIENCE, is_there), "no session but `{old}`; {}", self.sight());
        found.expect("found")
    }

    fn open_sessions(&self) -> Vec<Value> {
        let mut list = self.home.get("/v1/sessions");
        let sessions = list["sessions"].as_array_mut().expect("a list");
        sessions.retain(|session| session["is_open"] == true);
        std::mem::take(sessions)
    }

    /// The client's process.
    pub(super) fn pid(&self) -> Pid {
        self.terminal.pid()
    }

    /// The number of running watchers of this home.
    pub(super) fn watchers(&self) -> usize {
        self.running("attach")
    }

    /// The number of MCP servers of aside that the client has started in this home.
    pub(super) fn servers(&self) -> usize {
        self.running("mcp")
    }

    /// The number of processes of aside that run this command in this home.
    fn running(&self, command: &str) -> usize {
        let socket = format!("ASIDE_SOCKET={}", self.home.socket().display());
        let processes = fs::read_dir("/proc").expect("a process table").flatten();
        let is_ours = |folder: PathBuf| {
            let read = |name: &str| fs::read(folder.join(name)).unwrap_or_default();
            let has = |bytes: &[u8], words: &str| {
                bytes.split(|byte| *byte == 0).any(|part| part == words.as_bytes())
            };
            has(&read("cmdline"), command) && has(&read("environ"), &socket)
        };
        processes.filter(|process| is_ours(process.path())).count()
    }

    /// Whether `words` appear within the time limit.
    pub(super) fn sees(&self, words: &str) -> bool {
        within(PATIENCE, || self.terminal.screen().contains(words))
    }

    /// The screen and the state, for the message of a failed test.
    pub(super) fn sight(&self) -> String {
        format!("the sessions: {}\nthe screen:\n{}", self.home.get("/v1/sessions"), self.terminal.screen())
    }
}

fn plugin(home: &Home) -> String {
    home.path("plugin").to_string_lossy().into_owned()
}

fn start(home: &Home, api: &Api, args: &[&str]) -> Terminal {
    let plugin = plugin(home) + "/aside";
    Terminal::of_client(home, &api.url(), &[&["--plugin-dir", &plugin], args].concat())
}

/// Checks every [`LOOK_EVERY`] until `is_so`; false after `patience`.
pub(super) fn within(patience: Duration, mut is_so: impl FnMut() -> bool) -> bool {
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
