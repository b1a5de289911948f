//! `aside demo`: one turn of a scripted agent against a daemon of its own, with what happens and what the agent sees side by
//! side.
//!
//! The agent is scripted, and so is its budget. The files, the repository and the background command are real: a file is saved, a branch is
//! switched, and `aside run` runs what fails. The daemon is this program in a folder that goes away afterwards, and what is shown on the
//! right is what it answered. No network.

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

use super::{CliError, Context, of_harness::listed, parse, refusal};
use crate::{client::Client, event::Seq, tokens};
use screen::Screen;

/// The scripted agent's conversation.
const SESSION: &str = "demo";
/// How long an answer of the demo's own daemon may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The background command: takes a while, and fails for a reason that only its last lines tell.
const TESTS: &str = "#!/bin/sh
echo 'running 41 tests'
sleep 3
echo 'test login::expired_token ... FAILED'
echo '40 passed; 1 failed'
exit 1
";
/// How it is called.
const TESTS_COMMAND: &str = "./tests.sh";
/// The files of the workspace, as they are at first.
const FILES: [(&str, &str); 2] = [
    ("src/login.rs", "use crate::token;\nfn login() {\n}\n"),
    ("src/token.rs", "fn expired() -> bool {\n    true\n}\n"),
];
/// Most exchanges for one look at the machine.
const LOOKS_MAX: usize = 200;
/// The settings of the demo's daemon: a disk that is nearly full is not a part of the story.
const SETTINGS: &str = "[sources.disk]\nenabled = false\n";
/// What is said first.
const ORIGIN: &str = "The agent and its budget are scripted; files, git and ./tests.sh are real.";
/// Where events come from otherwise.
const FOR_REAL: &str = "In a session, events come from `aside run`, from hooks and from publishers.
For real: aside up && aside install";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Draw without colours; $NO_COLOR does the same
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
        told: String::new(),
    };
    turn.play()?;
    drop(daemon);
    Ok(())
}

/// The turn as it goes, and what it has cost.
struct Turn<'a> {
    context: Context<'a>,
    screen: Screen,
    place: &'a Place,
    carriers: u32,
    /// What its next exchange observes.
    observed: Vec<Value>,
    /// The position of the event that was published last.
    last: u64,
    told: String,
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
            "The token budget is used up: the agent's next call is held back, once.\n[before_tool]",
        )?;
        self.exchange("turn_end", "The agent answers the user.\n[turn_end]")?;
        self.sum_up()
    }

    /// Starts the background command as a user would: `aside run -- ...`.
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

    /// Has the next exchange report one call of each of `tools`, with what is said of it.
    fn observe(&mut self, tools: &[&str], said: &Value) {
        for tool in tools {
            let mut payload = json!({ "tool_name": tool });
            if let (Some(payload), Some(said)) = (payload.as_object_mut(), said.as_object()) {
                payload.extend(said.clone());
            }
            self.observed.push(json!({ "type": "tool.call.success", "payload": payload }));
        }
    }

    /// Asks as a harness does at `point`, and shows the answer beside what happened.
    fn exchange(&mut self, point: &str, happens: &str) -> Result<(), CliError> {
        let text = self.ask(point)?;
        self.show(happens, text.as_deref())
    }

    /// The same for what is found out: a detector's finding comes with the next exchange, and so does what a busy machine takes long to
    /// look at.
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

    /// Makes exchanges until the files that were read are known; so the first one will do, unless the machine is busy.
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
        self.told.push_str(text.unwrap_or_default());
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
        let told = tokens::estimate(&self.told).0;
        let summary = self.screen.heading(&format!(
            "{} events, about {raw} tokens as they came.\nThe agent got them in about {told}, each thing once.",
            published.len()
        ));
        let harness = listed(|kind| kind.caps.name);
        self.context.print(&format!("{summary}{FOR_REAL} {harness}\n"))
    }

    /// Every event of the journal up to the last one of the turn, as whoever follows it gets it.
    fn published(&self) -> Result<Vec<String>, CliError> {
        let doing = "read the journal";
        let failed = |source| CliError::Client { doing, source };
        let path = format!("/v1/events/stream?from={}", Seq::ZERO.next());
        let accept = [("accept", "text/event-stream")];
        let mut stream = self.context.client.stream(&path, &accept).map_err(failed)?.map_err(|response| {
            CliError::Refused { doing, refusal: refusal(response.status, &response.body) }
        })?;
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

/// A folder for the demo's daemon; it goes away with the demo.
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

    /// Two branches that differ in a file; nothing where there is no git.
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

    /// The user saves a file with another second line.
    fn save(&self, line: &str) -> io::Result<()> {
        fs::write(self.work().join("src/login.rs"), format!("use crate::token;\n{line}\n}}\n"))
    }

    /// The user switches the branch; false where that cannot be done.
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
        // The user's own settings are not a part of the story.
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        git.status().is_ok_and(|status| status.success())
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// This program with the demo's places.
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
        // What is left in the folder for temporary files is of no use to anyone and goes with the others there.
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// The demo's daemon; it is gone when this is dropped.
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
        // Its state goes away as well, so there is nothing that it would have to bring to an end.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
