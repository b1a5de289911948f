//! `aside demo`: a scripted agent against its own daemon, in four scenes with events and the agent's
//! view side by side.
//!
//! The agent and its budget are scripted. The files, the repository and the background command are
//! real: a file is saved, a branch is switched, and `aside run` runs a failing command. The daemon
//! is this program in a temporary folder, and the right column has its answers. No network.

use std::{
    env,
    ffi::OsStr,
    fs::{self, File, Permissions},
    io::{self, Read},
    os::{
        fd::OwnedFd,
        unix::{
            fs::{DirBuilderExt, PermissionsExt},
            net::UnixStream,
        },
    },
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    CliError, Context,
    harness::installable,
    parse,
    terminal::{Terminal, Tone},
};
use engine::event::Seq;
use hook::client::Client;
use toon::tokens;

use crate::daemon::monotonic_now;

/// The session of the scripted agent.
const SESSION: &str = "demo";
/// Timeout of the start and of an answer of the demo's daemon; longer than [`WAKE_TIMEOUT`].
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The background command: takes a while, and fails for a reason that only its last lines show.
const TESTS: &str = "#!/bin/sh
sleep 3
echo 'test login::expired_token ... FAILED'
echo '40 passed; 1 failed'
exit 1
";
/// The command line for it.
const TESTS_COMMAND: &str = "./tests.sh";
/// The initial files of the workspace.
const FILES: [(&str, &str); 2] = [
    ("src/login.rs", "use crate::token;\nfn login() {\n}\n"),
    ("src/token.rs", "fn expired() -> bool {\n    true\n}\n"),
];
/// Most exchanges while waiting for one look at the machine.
const LOOKS_MAX: usize = 200;
/// The settings of the demo's daemon: a nearly full disk is not part of the script.
const SETTINGS: &str = "[sources.disk]\nenabled = false\n";
const ORIGIN: &str = "The agent and its budget are scripted; files, git and ./tests.sh are real.";
/// Longest wait for the end of the background command.
const WAKE_TIMEOUT: &str = "20s";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Draw without colours; as $NO_COLOR does
    #[arg(long)]
    plain: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    context.terminal.has_colours &= !args.plain;
    let place = DemoFolder::make().map_err(CliError::Demo)?;
    let daemon = Daemon::start(&place).map_err(CliError::Demo)?;
    let screen = Screen::new(&context.terminal);
    let client = Client::new(place.socket(), ANSWER_TIMEOUT);
    let mut scenes = Scenes {
        context: Context {
            is_config_given: false,
            client,
            paths: context.paths.clone(),
            out: &mut *context.out,
            terminal: context.terminal.clone(),
        },
        screen,
        place: &place,
        begun: monotonic_now(),
        turn: 1,
        carriers: 0,
        observed: Vec::new(),
        last: 0,
        delivered: String::new(),
    };
    scenes.play()?;
    drop(daemon);
    Ok(())
}

/// The scenes, and what they cost.
struct Scenes<'a> {
    context: Context<'a>,
    screen: Screen,
    place: &'a DemoFolder,
    /// The machine's clock at the begin.
    begun: Duration,
    turn: u32,
    carriers: u32,
    /// Observations for the next exchange.
    observed: Vec<Value>,
    /// The position of the last published event.
    last: u64,
    delivered: String,
}

/// What an exchange released.
struct Released {
    text: String,
    priority: String,
}

impl Scenes<'_> {
    fn play(&mut self) -> Result<(), CliError> {
        let header = self.screen.header();
        self.context.print(&format!("{ORIGIN}\n\n{header}"))?;
        self.ask("turn_start")?;
        let mut tests = self.start_tests().map_err(CliError::Demo)?;
        let read = FILES.map(|(path, _)| json!({ "path": path, "by": "read" }));
        self.observe(&["read"], &json!({ "files": read }));
        self.ask("after_tool")?;
        self.await_look()?;

        for line in ["fn login() -> bool {", "fn login() -> Session {"] {
            self.place.save(line).map_err(CliError::Demo)?;
        }
        self.find("You save a file that it has read, twice.")?;

        if self.place.switch() {
            self.find("You switch the branch.")?;
        } else {
            let search = json!({ "subject": "expired_token", "args": "a1", "result": "r1" });
            self.observe(&["grep"; 4], &search);
            self.find("It makes the same search four times.")?;
        }

        let exceeded = json!({ "budget_type": "token", "current": 100_250, "limit": 100_000,
            "percentage": 100, "remaining": 0 });
        self.publish("budget.token.exceeded", &exceeded)?;
        let cancelled = self.ask("before_tool")?;
        self.show("Its budget is used up: a call is cancelled.", "before_tool", cancelled)?;

        self.ask("turn_end")?;
        self.wait_for_wake()?;
        tests.wait().map_err(CliError::Demo)?;
        self.turn += 1;
        let woken = self.ask("turn_start")?;
        self.show("Its tests fail while it is idle: it is woken.", "turn_start", woken)?;
        self.sum_up()
    }

    /// Starts the background command like a user: `aside run -- ...`.
    fn start_tests(&self) -> io::Result<Child> {
        self.place
            .command(["run", "--session", SESSION, "--name", "tests", "--", TESTS_COMMAND])?
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    }

    fn publish(&mut self, event_type: &str, payload: &Value) -> Result<(), CliError> {
        let event = json!({ "type": event_type, "source": "cli", "session": SESSION, "payload": payload });
        let answer: Value =
            parse("publish", &self.context.ask("publish", "POST", "/v1/events", Some(&event))?)?;
        self.last = answer.pointer("/results/0/seq").and_then(Value::as_u64).unwrap_or(self.last);
        Ok(())
    }

    /// Adds one call of each of `tools` to the next exchange, with their reported text.
    fn observe(&mut self, tools: &[&str], said: &Value) {
        for tool in tools {
            let mut payload = json!({ "tool_name": tool });
            if let (Some(payload), Some(said)) = (payload.as_object_mut(), said.as_object()) {
                payload.extend(said.clone());
            }
            self.observed.push(json!({ "type": "tool.call.success", "payload": payload }));
        }
    }

    /// Makes exchanges until there is text, and shows it: a detector's finding arrives with the next
    /// exchange, and so does a slow look on a busy machine.
    fn find(&mut self, happens: &str) -> Result<(), CliError> {
        let point = "after_tool";
        let mut released = None;
        for _ in 0..LOOKS_MAX {
            released = self.ask(point)?;
            if released.is_some() {
                break;
            }
        }
        self.show(happens, point, released)
    }

    /// Waits until the idle agent is to be woken, as a loop does.
    fn wait_for_wake(&mut self) -> Result<(), CliError> {
        let path = format!("/v1/sessions/{SESSION}/wait?for=wake&timeout={WAKE_TIMEOUT}");
        self.context.ask("wait", "GET", &path, None).map(drop)
    }

    /// Makes exchanges until the read files are known; the first one is enough unless the machine
    /// is busy.
    fn await_look(&mut self) -> Result<(), CliError> {
        let doing = "read the history";
        for _ in 0..LOOKS_MAX {
            let noted = self.context.ask(doing, "GET", "/v1/events?type=probe.noted&limit=9", None)?;
            if memchr::memmem::find(&noted, b"login.rs").is_some() {
                break;
            }
            self.ask("after_tool")?;
        }
        Ok(())
    }

    fn show(&mut self, happens: &str, point: &str, released: Option<Released>) -> Result<(), CliError> {
        let Released { text, priority } = released
            .unwrap_or_else(|| Released { text: "(nothing)".to_owned(), priority: "none".to_owned() });
        let happens = format!("{happens}\n[{point}, {priority}]");
        self.delivered.push_str(&text);
        let drawn =
            self.screen.scene(monotonic_now().saturating_sub(self.begun), &happens, &text, tone(&priority));
        self.context.print(&drawn)
    }

    fn ask(&mut self, point: &str) -> Result<Option<Released>, CliError> {
        self.carriers += 1;
        let effect = if point == "before_tool" { "cancel" } else { "none" };
        let harness = json!({ "name": SESSION, "workspace": self.place.work() });
        let request = json!({
            "point": point, "carrier": format!("message-{}", self.carriers), "turn": self.turn.to_string(),
            "carrier_effect": effect, "harness": harness, "observe": std::mem::take(&mut self.observed),
        });
        let path = format!("/v1/sessions/{SESSION}/exchange");
        let body = self.context.ask("exchange", "POST", &path, Some(&request))?;
        let answer: Value = if body.is_empty() { Value::Null } else { parse("exchange", &body)? };
        let word = |at: &str| answer.pointer(at).and_then(Value::as_str).map(str::to_owned);
        Ok(word("/text")
            .map(|text| Released { text, priority: word("/notifications/0/priority").unwrap_or_default() }))
    }

    fn sum_up(&mut self) -> Result<(), CliError> {
        let published = self.published()?;
        let raw = tokens::estimate(&published.concat()).0;
        let delivered = tokens::estimate(&self.delivered).0;
        let summary = self.screen.heading(&format!(
            "{} events, about {raw} tokens raw, about {delivered} delivered, each once",
            published.len()
        ));
        let harness = installable();
        self.context.print(&format!("{summary}In your sessions: aside up && aside install {harness}\n"))
    }

    /// Every event of the journal up to the last one of the turn, as a follower of the stream gets
    /// it.
    fn published(&self) -> Result<Vec<String>, CliError> {
        let doing = "read the journal";
        let failed = |source| CliError::Client { doing, source };
        let mut stream =
            self.context.stream(doing, &format!("/v1/events/stream?from={}", Seq::ZERO.next()))?;
        let mut published = Vec::new();
        while let Some(event) = stream.next_event().map_err(failed)? {
            published.push(event.data);
            if event.id == self.last.to_string() {
                break;
            }
        }
        Ok(published)
    }
}

/// The colour of a priority.
fn tone(priority: &str) -> Tone {
    let tone = Tone::of(priority);
    if tone == Tone::Plain { Tone::Good } else { tone }
}

/// The folder of the demo's daemon, deleted on drop.
struct DemoFolder {
    folder: PathBuf,
}

impl DemoFolder {
    fn make() -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("aside-demo-{}", process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        let place = Self { folder };
        fs::create_dir_all(place.work().join("src"))?;
        fs::create_dir(place.folder.join("config"))?;
        fs::write(place.folder.join("config/aside.toml"), SETTINGS)?;
        for (path, content) in FILES {
            fs::write(place.work().join(path), content)?;
        }
        let script = place.work().join(TESTS_COMMAND);
        fs::write(&script, TESTS)?;
        fs::set_permissions(&script, Permissions::from_mode(0o700))?;
        place.make_repository();
        Ok(place)
    }

    fn work(&self) -> PathBuf {
        self.folder.join("work")
    }

    /// Creates two branches that differ in a file; nothing without git.
    fn make_repository(&self) {
        let commit =
            ["-c", "user.name=demo", "-c", "user.email=demo@localhost", "commit", "-q", "-a", "-m", "x"];
        let made = self.git(&["init", "-q", "-b", "main"])
            && self.git(&["add", "src"])
            && self.git(&commit)
            && self.git(&["checkout", "-q", "-b", "fix-login"])
            && fs::write(self.work().join("src/token.rs"), "fn expired() -> bool {\n    false\n}\n").is_ok()
            && self.git(&commit)
            && self.git(&["checkout", "-q", "main"]);
        tracing::debug!(made, "the demo's repository");
    }

    /// Saves a file with another second line, as the user.
    fn save(&self, line: &str) -> io::Result<()> {
        fs::write(self.work().join("src/login.rs"), format!("use crate::token;\n{line}\n}}\n"))
    }

    /// Switches the branch, as the user; false where that is impossible.
    fn switch(&self) -> bool {
        self.git(&["checkout", "-q", "fix-login"])
    }

    fn git(&self, args: &[&str]) -> bool {
        let mut git = Command::new("git");
        git.args(args)
            .current_dir(self.work())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The user's own settings must not affect the demo.
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        git.status().is_ok_and(|status| status.success())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// This program with the demo's paths.
    fn command<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command
            .args(args)
            .current_dir(self.work())
            .env("ASIDE_SOCKET", self.socket())
            .env("ASIDE_STATE", self.folder.join("state"))
            .env("ASIDE_CONFIG", self.folder.join("config"))
            .stdin(Stdio::null());
        Ok(command)
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // A folder that cannot be deleted stays with the other temporary files.
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// The demo's daemon, killed on drop.
struct Daemon {
    child: Child,
}

impl Daemon {
    /// Starts it and waits until it listens.
    ///
    /// Errors: it does not start in time, or at all; with the last line that it wrote.
    fn start(place: &DemoFolder) -> io::Result<Self> {
        let log = place.folder.join("daemon.log");
        // A socket supports a read timeout, a pipe does not.
        let (mut ready, stdout) = UnixStream::pair()?;
        ready.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        let mut command = place.command(["serve", "--log", "error"])?;
        command.stdout(OwnedFd::from(stdout)).stderr(File::create(&log)?);
        let daemon = Self { child: command.spawn()? };
        // The daemon's end of the pair is closed here, so that its end is noticed.
        drop(command);
        match ready.read(&mut [0]) {
            Ok(1..) => Ok(daemon),
            Ok(0) => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                let last = said.lines().last().unwrap_or("its log is empty").trim_start_matches("aside: ");
                Err(io::Error::other(format!("its daemon did not start: {last}")))
            }
            Err(_) => {
                let seconds = ANSWER_TIMEOUT.as_secs();
                let message = format!("its daemon was not ready after {seconds} s; is the machine busy?");
                Err(io::Error::new(io::ErrorKind::TimedOut, message))
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its state is deleted too, so it need not shut down cleanly.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Widest picture, in columns: the width of a default terminal.
const WIDTH_MAX: usize = 80;
/// Fewest columns in which both sides are readable; a narrower terminal wraps them.
const WIDTH_MIN: usize = 60;
/// Width of the margin with the time.
const MARGIN: usize = 6;
/// Separator of the two sides.
const GAP: &str = " | ";

/// Layout of the picture.
#[derive(Debug, Clone)]
struct Screen {
    left: usize,
    right: usize,
    terminal: Terminal,
}

impl Screen {
    /// As wide as the terminal, but at most [`WIDTH_MAX`].
    fn new(terminal: &Terminal) -> Self {
        let width = terminal.columns.unwrap_or(WIDTH_MAX).clamp(WIDTH_MIN, WIDTH_MAX);
        let width = width - MARGIN - GAP.len();
        let left = width / 3;
        Self { left, right: width - left, terminal: terminal.clone() }
    }

    /// The titles of the two sides, and a line below them.
    fn header(&self) -> String {
        let names = self.row("", ("what happens", Tone::Heading), ("what the agent reads", Tone::Heading));
        names + &"-".repeat(MARGIN + self.left) + "-+-" + &"-".repeat(self.right) + "\n"
    }

    /// One scene, `at` after the begin: `happens` on the left, and on the right what the agent reads.
    fn scene(&self, at: Duration, happens: &str, reads: &str, tone: Tone) -> String {
        let (left, right) = (wrap(happens, self.left), wrap(reads, self.right));
        let mut drawn = String::new();
        for line in 0..left.len().max(right.len()) {
            let of = |side: &[String]| side.get(line).cloned().unwrap_or_default();
            let time = if line == 0 { format!("{:.1}s", at.as_secs_f64()) } else { String::new() };
            drawn.push_str(&self.row(&time, (&of(&left), Tone::Plain), (&of(&right), tone)));
        }
        drawn.push_str(&self.row("", ("", Tone::Plain), ("", Tone::Plain)));
        drawn
    }

    /// A line across both sides.
    fn heading(&self, text: &str) -> String {
        format!("{}\n", self.terminal.paint(Tone::Heading, text))
    }

    fn row(&self, time: &str, left: (&str, Tone), right: (&str, Tone)) -> String {
        let time = self.terminal.paint(Tone::Dim, &format!("{time:MARGIN$}"));
        let padding = " ".repeat(self.left.saturating_sub(left.0.chars().count()));
        let paint = |(text, tone): (&str, Tone)| self.terminal.paint(tone, text);
        format!("{}\n", format!("{time}{}{padding}{GAP}{}", paint(left), paint(right)).trim_end())
    }
}

/// Wraps long lines, at a space where possible; continuations are indented by two more columns than
/// their line.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for line in text.lines() {
        let indent = line.chars().take_while(|c| *c == ' ').count();
        let mut rest = line.to_owned();
        while rest.chars().count() > width {
            let limit = rest.char_indices().nth(width).map_or(rest.len(), |(at, _)| at);
            let head = rest.get(..limit).expect("the start of a character, or the end");
            let begins = head.len() - head.trim_start().len();
            let cut = head.rfind(' ').filter(|at| *at > begins).unwrap_or(limit);
            let (head, tail) = rest.split_at(cut);
            lines.push(head.to_owned());
            rest = format!("{}{}", " ".repeat(indent + 2), tail.trim_start());
        }
        lines.push(rest);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::terminal::tests::{of_width, pipe};

    const AT: Duration = Duration::from_millis(1_250);

    #[test]
    fn both_sides_are_next_to_each_other() {
        let screen = Screen::new(&of_width(78));
        let text =
            "tool_fail: grep timeout\nerror: a message that is so long that it does not fit into the column";
        let drawn = screen.header() + &screen.scene(AT, "grep fails", text, Tone::Good);
        let expected = [
            "      what happens            | what the agent reads",
            "------------------------------+-----------------------------------------------",
            "1.2s  grep fails              | tool_fail: grep timeout",
            "                              | error: a message that is so long that it does",
            "                              |   not fit into the column",
            "                              |",
            "",
        ];
        let expected = expected.join("\n");
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_word_longer_than_the_column_is_cut() {
        assert_eq!(wrap("  abcdefgh", 6), ["  abcd", "    ef", "    gh"]);
    }

    #[test]
    fn colours_change_no_width() {
        let drawn = |terminal: &Terminal| Screen::new(terminal).scene(AT, "a", "b", Tone::Good);
        let (plain, coloured) = (drawn(&pipe()), drawn(&Terminal { has_colours: true, ..pipe() }));
        assert_ne!(coloured, plain);
        let codes = ["\u{1b}[32m", "\u{1b}[2m", "\u{1b}[0m"];
        assert_eq!(codes.iter().fold(coloured, |text, code| text.replace(code, "")), plain);
    }

    #[test]
    fn the_usual_terminal_is_wide_enough() {
        let long = "a word or two, ".repeat(10);
        for terminal in [pipe(), of_width(80), of_width(200)] {
            let screen = Screen::new(&terminal);
            let drawn = screen.header() + &screen.scene(AT, &long, &long, Tone::Good);
            assert!(drawn.lines().all(|line| line.chars().count() <= 80), "{drawn}");
        }
    }
}
