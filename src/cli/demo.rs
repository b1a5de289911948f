//! `aside demo`: one turn of a scripted agent against a daemon of its own, with what happens and what the agent sees side by
//! side.
//!
//! The agent is made up, and so are the events, but for those of its background command, which is run by `aside run` and really
//! fails. The daemon is this program in a folder that goes away afterwards, and what is shown on the right is what it answered.
//! No network.

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

use super::{CliError, Context, parse, refusal};
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
/// What is said first.
const ORIGIN: &str = "The agent is scripted and the events are made up; only ./tests.sh really runs.";
/// Where events come from otherwise.
const FOR_REAL: &str = "In a session, events come from `aside run`, from hooks and from publishers.
For real: aside up && aside install claude-code
";

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
        self.exchange(
            "after_tool",
            &format!("The agent starts {TESTS_COMMAND} in the background and reads a file.\n[after_tool]"),
        )?;

        for call in 1..=3 {
            let failure = json!({ "tool_name": "grep", "error_type": "timeout",
                "error_message": "no answer in 30 s", "call_id": format!("call-{call}") });
            self.publish("tool.call.failure", failure)?;
        }
        let refused = json!({ "tool_name": "fetch", "error_type": "http_503",
            "error_message": "service unavailable, try again later" });
        self.publish("tool.call.failure", refused)?;
        self.exchange(
            "after_tool",
            "grep times out three times, fetch is refused once: four events.\n[after_tool]",
        )?;

        // In one request: on a busy machine the window could end between two.
        let saves = (0..20).map(|index| {
            let path = if index % 2 == 0 { "src/login.rs" } else { "src/token.rs" };
            event("fs.file.modified", json!({ "path": path, "kind": "modified" }))
        });
        self.publish_all(saves.collect())?;
        self.wait()?;
        self.exchange(
            "after_tool",
            "Somebody else saves two files the agent works on, ten times each.\n[after_tool]",
        )?;

        tests.wait().map_err(CliError::Demo)?;
        self.exchange("after_tool", &format!("{TESTS_COMMAND} fails in the background.\n[after_tool]"))?;

        let exceeded = json!({ "budget_type": "token", "current": 100_250, "limit": 100_000,
            "percentage": 100, "remaining": 0 });
        self.publish("budget.token.exceeded", exceeded)?;
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

    fn publish(&mut self, event_type: &str, payload: Value) -> Result<(), CliError> {
        self.publish_all(vec![event(event_type, payload)])
    }

    fn publish_all(&mut self, events: Vec<Value>) -> Result<(), CliError> {
        let events = Value::from(events);
        let answer: Value =
            parse("publish", &self.context.ask("publish", "POST", "/v1/events", Some(&events))?)?;
        let results = answer.get("results").and_then(Value::as_array).into_iter().flatten();
        let last = results.filter_map(|result| result.get("seq")?.as_u64()).max();
        self.last = self.last.max(last.unwrap_or_default());
        Ok(())
    }

    /// Waits until something is pending.
    fn wait(&self) -> Result<(), CliError> {
        let path = format!("/v1/sessions/{SESSION}/wait?timeout=5s");
        self.context.ask("wait", "GET", &path, None).map(drop)
    }

    /// Asks as a harness does at `point`, and shows the answer beside what happened.
    fn exchange(&mut self, point: &str, happens: &str) -> Result<(), CliError> {
        self.carriers += 1;
        let carries = if point == "before_tool" { "only_to_cancel" } else { "always" };
        let carrier = format!("message-{}", self.carriers);
        let request = json!({ "point": point, "carrier": carrier, "turn": "1", "carries": carries });
        let path = format!("/v1/sessions/{SESSION}/exchange");
        let body = self.context.ask("exchange", "POST", &path, Some(&request))?;
        let answer: Value = if body.is_empty() { Value::Null } else { parse("exchange", &body)? };
        let text = answer.get("text").and_then(Value::as_str);
        self.told.push_str(text.unwrap_or_default());
        let drawn = self.screen.step(happens, text);
        self.context.print(&drawn)
    }

    fn sum_up(&mut self) -> Result<(), CliError> {
        let published = self.published()?;
        let raw = tokens::estimate(&published.concat()).0;
        let told = tokens::estimate(&self.told).0;
        let summary = self.screen.heading(&format!(
            "{} events, about {raw} tokens as they came.\nThe agent was told in about {told}, each thing once.",
            published.len()
        ));
        self.context.print(&format!("{summary}{FOR_REAL}"))
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

fn event(event_type: &str, payload: Value) -> Value {
    json!({ "type": event_type, "source": "cli", "session": SESSION, "payload": payload })
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
        let script = place.folder.join(TESTS_COMMAND);
        fs::write(&script, TESTS)?;
        fs::set_permissions(&script, Permissions::from_mode(0o700))?;
        Ok(place)
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// This program with the demo's places.
    fn command<I: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = I>) -> io::Result<Command> {
        let mut command = Command::new(env::current_exe()?);
        command
            .args(args)
            .current_dir(&self.folder)
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
