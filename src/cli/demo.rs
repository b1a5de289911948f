//! `aside demo`: one turn of a scripted agent against its own daemon, with events and the agent's
//! view side by side.
//!
//! The agent and its budget are scripted. The files, the repository and the background command are
//! real: a file is saved, a branch is switched, and `aside run` runs a failing command. The daemon
//! is this program in a temporary folder, and the right column has its answers. No network.

mod screen;

use std::{
    env,
    ffi::OsStr,
    fs::{self, Permissions},
    io::{self, BufRead, BufReader},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::PathBuf,
    process::{self, Child, Command, Stdio},
    time::Duration,
};

use serde_json::{Value, json};

use super::{CliError, Context, of_harness::listed, parse, refused};
use crate::{client::Client, event::Seq, tokens};
use screen::Screen;

/// The session of the scripted agent.
const SESSION: &str = "demo";
/// Timeout of an answer of the demo's daemon.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The background command: takes a while, and fails for a reason that only its last lines show.
const TESTS: &str = "#!/bin/sh
echo 'running 41 tests'
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
/// The introduction.
const ORIGIN: &str = "The agent and its budget are scripted; files, git and ./tests.sh are real.";
/// Sources of events outside of the demo.
const FOR_REAL: &str = "In a session, events come from `aside run`, from hooks and from publishers.
For real: aside up && aside install";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Draw without colours; as $NO_COLOR does
    #[arg(long)]
    plain: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    context.terminal.has_colours &= !args.plain;
    let place = Place::make().map_err(CliError::Demo)?;
    let daemon = Daemon::start(&place).map_err(CliError::Demo)?;
    let screen = Screen::new(&context.terminal);
    let client = Client::new(place.socket(), ANSWER_TIMEOUT);
    let mut turn = Turn {
        context: Context {
            client,
            paths: context.paths.clone(),
            out: &mut *context.out,
            terminal: context.terminal.clone(),
        },
        screen,
        place: &place,
        carriers: 0,
        observed: Vec::new(),
        last: 0,
        delivered: String::new(),
    };
    turn.play()?;
    drop(daemon);
    Ok(())
}

/// The current turn, and its cost.
struct Turn<'a> {
    context: Context<'a>,
    screen: Screen,
    place: &'a Place,
    carriers: u32,
    /// Observations for the next exchange.
    observed: Vec<Value>,
    /// The position of the last published event.
    last: u64,
    delivered: String,
}

impl Turn<'_> {
    fn play(&mut self) -> Result<(), CliError> {
        let header = self.screen.header();
        self.context.print(&format!("{ORIGIN}\n\n{header}"))?;
        self.exchange("turn_start", "The user asks: fix the login.\n[turn_start]")?;

        let mut tests = self.start_tests().map_err(CliError::Demo)?;
        let read = FILES.map(|(path, _)| json!({ "path": path, "by": "read" }));
        self.observe(&["read"], &json!({ "files": read }));
        self.exchange(
            "after_tool",
            &format!("The agent starts {TESTS_COMMAND} in the background and reads two files.\n[after_tool]"),
        )?;

        self.await_look()?;
        for line in ["fn login() -> bool {", "fn login() -> Session {"] {
            self.place.save(line).map_err(CliError::Demo)?;
        }
        self.exchange_that_finds("You save src/login.rs in your editor, twice.\n[after_tool]")?;

        if self.place.switch() {
            self.exchange_that_finds("You switch to the branch fix-login.\n[after_tool]")?;
        }

        self.observe(&["grep"; 4], &json!({ "subject": "expired_token", "args": "a1", "result": "r1" }));
        self.exchange_that_finds("The agent makes the same search four times.\n[after_tool]")?;

        tests.wait().map_err(CliError::Demo)?;
        self.exchange("after_tool", &format!("{TESTS_COMMAND} fails in the background.\n[after_tool]"))?;

        let exceeded = json!({ "budget_type": "token", "current": 100_250, "limit": 100_000,
            "percentage": 100, "remaining": 0 });
        self.publish("budget.token.exceeded", &exceeded)?;
        self.exchange(
            "before_tool",
            "The token budget is used up: the agent's next call is cancelled, once.\n[before_tool]",
        )?;
        self.exchange("turn_end", "The agent answers the user.\n[turn_end]")?;
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

    /// Makes an exchange at `point`, and shows the answer next to `happens`.
    fn exchange(&mut self, point: &str, happens: &str) -> Result<(), CliError> {
        let text = self.ask(point)?;
        self.show(happens, text.as_deref())
    }

    /// The same, repeated until there is text: a detector's finding arrives with the next exchange,
    /// and so does a slow look on a busy machine.
    fn exchange_that_finds(&mut self, happens: &str) -> Result<(), CliError> {
        let mut text = None;
        for _ in 0..LOOKS_MAX {
            text = self.ask("after_tool")?;
            if text.is_some() {
                break;
            }
        }
        self.show(happens, text.as_deref())
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

    fn show(&mut self, happens: &str, text: Option<&str>) -> Result<(), CliError> {
        self.delivered.push_str(text.unwrap_or_default());
        let drawn = self.screen.step(happens, text);
        self.context.print(&drawn)
    }

    fn ask(&mut self, point: &str) -> Result<Option<String>, CliError> {
        self.carriers += 1;
        let effect = if point == "before_tool" { "cancel" } else { "none" };
        let harness = json!({ "name": SESSION, "workspace": self.place.work() });
        let request = json!({
            "point": point, "carrier": format!("message-{}", self.carriers), "turn": "1", "carrier_effect": effect,
            "harness": harness, "observe": std::mem::take(&mut self.observed),
        });
        let path = format!("/v1/sessions/{SESSION}/exchange");
        let body = self.context.ask("exchange", "POST", &path, Some(&request))?;
        let answer: Value = if body.is_empty() { Value::Null } else { parse("exchange", &body)? };
        Ok(answer.get("text").and_then(Value::as_str).map(str::to_owned))
    }

    fn sum_up(&mut self) -> Result<(), CliError> {
        let published = self.published()?;
        let raw = tokens::estimate(&published.concat()).0;
        let delivered = tokens::estimate(&self.delivered).0;
        let summary = self.screen.heading(&format!(
            "{} events, about {raw} tokens unprocessed.\nThe agent received them in about {delivered}, each item once.",
            published.len()
        ));
        let harness = listed(|kind| kind.caps.name);
        self.context.print(&format!("{summary}{FOR_REAL} {harness}\n"))
    }

    /// Every event of the journal up to the last one of the turn, as a follower of the stream gets
    /// it.
    fn published(&self) -> Result<Vec<String>, CliError> {
        let doing = "read the journal";
        let failed = |source| CliError::Client { doing, source };
        let path = format!("/v1/events/stream?from={}", Seq::ZERO.next());
        let accept = [("accept", "text/event-stream")];
        let stream = self.context.client.stream(&path, &accept).map_err(failed)?;
        let mut stream = stream.map_err(|response| refused(doing, response.status, &response.body))?;
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

/// The folder of the demo's daemon, deleted on drop.
struct Place {
    folder: PathBuf,
}

impl Place {
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

impl Drop for Place {
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
    fn start(place: &Place) -> io::Result<Self> {
        let mut child = place
            .command(["serve", "--log", "error"])?
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdout = child.stdout.take();
        let daemon = Self { child };
        let mut ready = String::new();
        stdout.map(|stdout| BufReader::new(stdout).read_line(&mut ready)).transpose()?;
        if ready.is_empty() {
            return Err(io::Error::other("its daemon did not start"));
        }
        Ok(daemon)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Its state is deleted too, so it need not shut down cleanly.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
