//! `aside run -- CMD`: runs a command transparently, and publishes its start and its outcome.
//!
//! Output passes through unchanged as it arrives, stdin and signals go to the command, and its exit
//! code becomes that of `aside run`: 128 plus the signal if one killed it, 127 if the command does
//! not exist, 126 if it cannot be run. The command does not wait for the daemon; without one it
//! runs anyway, after one line of warning.
//!
//! The output is parsed as it passes: problems in it are published too, at the end or, with
//! `--watch`, on each change.

mod child;
mod problems;
mod task;

use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    path::Path,
    sync::{OnceLock, mpsc::SyncSender},
    thread,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{CliError, Context, ids, workspace_or_current};
use journal::time::{Timestamp, duration_millis};

use child::{Ending, Piece, Running, Sink, pieces};
use hook::client::Client;
use problems::{Follower, Mode, Plan};
use task::{Publishing, Task, TaskScope, command_line};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The name of the task [default: the name of the program]
    #[arg(long)]
    name: Option<String>,
    /// The session that the events are for: its whole id, or `b1c2@shop` as in `aside sessions`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The folder that the events concern [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// The events are for all sessions in any folder
    #[arg(long, conflicts_with_all = ["session", "workspace"])]
    everywhere: bool,
    /// The command does not end: publish changes of its problems whenever its output is quiet
    #[arg(long)]
    watch: bool,
    /// The matchers for the output: a tool such as `tsc`, a format, a file of matchers, or `none`
    /// [default: by the command]
    #[arg(long = "matcher", value_name = "NAME|FILE.json")]
    matchers: Vec<String>,
    /// A file with problems that the command writes: junit, sarif, eslint-json, cargo-json,
    /// go-test-json
    #[arg(long = "report", value_name = "FORMAT=FILE")]
    reports: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Runs the command; returns the exit code.
pub(super) fn run(mut args: Args, context: &Context<'_>) -> Result<u8, CliError> {
    args.session = match args.session.as_deref().map(|text| ids::addressee(text, context)).transpose() {
        // Without a daemon the command runs, and the warning about its events has the reason.
        Err(CliError::Client { .. }) => args.session,
        found => found?,
    };
    let config = context.paths.as_ref().ok().map(|paths| paths.config.as_path());
    let plan = Plan::new(&args.matchers, &args.reports, &args.command, config).map_err(CliError::Usage)?;
    let sinks: [Sink; 2] = [Box::new(io::stdout()), Box::new(io::stderr())];
    run_with(&args, plan, &context.client, sinks, &mut io::stderr())
}

fn run_with(
    args: &Args,
    plan: Plan,
    client: &Client,
    sinks: [Sink; 2],
    warnings: &mut (dyn Write + Send),
) -> Result<u8, CliError> {
    let task = task_of(args);
    let publishing = Publishing::new(client, &task, warnings);
    plan.warnings.iter().for_each(|warning| publishing.warn(warning));
    let mode = if args.watch { Mode::Watch } else { Mode::AtEnd };
    let clock = stopwatch();
    let (tap, pieces) = pieces();
    let ran = thread::scope(|scope| {
        let starting = scope.spawn(|| publishing.publish_start());
        let is_read = !plan.is_empty();
        let follower = Follower::new(plan, mode, &task, &publishing, &clock);
        let following = is_read.then(|| scope.spawn(move || follower.run(&pieces)));
        let ran = watch(&args.command, sinks, is_read.then_some(&tap));
        // A panic there is a bug of ours, and must not hide the command's exit code.
        starting.join().ok();
        if let Some(following) = following {
            tap.send(Piece::End).ok();
            following.join().ok();
        }
        ran
    });
    let (ending, duration) = ran.map_err(CliError::Run)?;
    publishing.publish(&task.ended(&ending, duration));
    if let Ending::NotStarted(error) = &ending {
        let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
        publishing.say(&format!("{program:?} cannot be run: {error}"));
    }
    publishing.finish();
    Ok(ending.exit_code())
}

fn watch(
    command: &[OsString],
    sinks: [Sink; 2],
    tap: Option<&SyncSender<Piece>>,
) -> io::Result<(Ending, Duration)> {
    let mut running = match Running::start(command, sinks, tap) {
        Ok(running) => running,
        Err(error) => return Ok((Ending::NotStarted(error), Duration::ZERO)),
    };
    let (status, duration) = timed(|| running.wait());
    Ok((Ending::Ended { status: status?, last_lines: running.finish_output() }, duration))
}

/// The time since this call.
#[expect(clippy::disallowed_methods, reason = "when a command has settled is known here and nowhere else")]
fn stopwatch() -> impl Fn() -> Timestamp + Sync {
    let start = Instant::now();
    move || Timestamp::from_millis(duration_millis(start.elapsed()))
}

/// The result of `work`, and its duration.
#[expect(clippy::disallowed_methods, reason = "how long a process ran is known here and nowhere else")]
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

/// The fields that all events of this run share.
fn task_of(args: &Args) -> Task {
    let program = args.command.first().map_or(OsStr::new(""), OsString::as_os_str);
    let program_name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let is_given = args.session.is_some() || args.workspace.is_some() || args.everywhere;
    Task {
        start_id: Uuid::now_v7().to_string(),
        name: args.name.clone().unwrap_or_else(|| program_name.into_owned()),
        command: command_line(&args.command),
        session: args.session.clone(),
        scope: if is_given { TaskScope::Given } else { TaskScope::Default },
        own_session: OnceLock::new(),
        workspace: if args.everywhere { None } else { workspace_or_current(args.workspace.as_deref()) },
        is_watch: args.watch,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{child::tests::Collected, task::PUBLISH_TIMEOUT, *};
    use crate::cli::tests::bodies;
    use hook::client::fake::{FakeDaemon, Scratch};

    struct Ran {
        code: u8,
        stdout: String,
        stderr: String,
        warnings: String,
    }

    fn run_command(socket: &Path, command: &[&str]) -> Ran {
        let args = Args {
            name: None,
            session: Some("s1".to_owned()),
            workspace: Some("/w".to_owned()),
            everywhere: false,
            watch: false,
            matchers: Vec::new(),
            reports: Vec::new(),
            command: command.iter().map(Into::into).collect(),
        };
        let (stdout, stderr, mut warnings) = (Collected::default(), Collected::default(), Vec::new());
        let sinks: [Sink; 2] = [Box::new(stdout.clone()), Box::new(stderr.clone())];
        let client = Client::new(socket.to_owned(), PUBLISH_TIMEOUT);
        let code = run_with(&args, Plan::default(), &client, sinks, &mut warnings).expect("watched");
        let warnings = String::from_utf8(warnings).expect("text");
        Ran { code, stdout: stdout.text(), stderr: stderr.text(), warnings }
    }

    fn published() -> FakeDaemon {
        FakeDaemon::answering_json(200, r#"{"results":[{"seq":1,"id":"e"}]}"#)
    }

    /// The events without their variable fields, which are checked here.
    fn events(daemon: &FakeDaemon) -> [Value; 2] {
        let [mut started, mut ended]: [Value; 2] = bodies(daemon).try_into().expect("two events");
        let take = |event: &mut Value, key: &str| event.as_object_mut().and_then(|event| event.remove(key));
        assert_eq!(take(&mut ended, "cause"), take(&mut started, "id"));
        assert!(take(&mut ended, "id").is_some());
        assert!(take(&mut ended["payload"], "duration_ms").is_some_and(|duration| duration.is_u64()));
        [started, ended]
    }

    #[test]
    fn a_command_that_ends_well_is_completed() {
        let daemon = published();
        let ran = run_command(daemon.socket(), &["sh", "-c", "echo out; echo err >&2"]);
        assert_eq!(
            (ran.code, ran.stdout.as_str(), ran.stderr.as_str(), ran.warnings.as_str()),
            (0, "out\n", "err\n", "")
        );
        let [started, ended] = events(&daemon);
        let command = "sh -c 'echo out; echo err >&2'";
        let around = |event_type: &str, payload: Value| json!({ "type": event_type, "source": "run", "session": "s1", "workspace": "/w", "payload": payload });
        assert_eq!(started, around("task.started", json!({ "task": "sh", "command": command })));
        let tail = ended["payload"]["tail"].clone();
        assert!(tail == "out\nerr" || tail == "err\nout", "{tail}");
        let payload = json!({ "task": "sh", "command": command, "exit_code": 0, "tail": tail });
        assert_eq!(ended, around("task.completed", payload));
    }

    #[test]
    fn failures_say_how_the_command_ended() {
        for (command, code, payload) in [
            (
                &["sh", "-c", "echo no; exit 3"][..],
                3,
                json!({ "task": "sh", "command": "sh -c 'echo no; exit 3'", "exit_code": 3, "tail": "no" }),
            ),
            (
                &["sh", "-c", "kill -TERM $$"],
                143,
                json!({ "task": "sh", "command": "sh -c 'kill -TERM $$'", "exit_code": 143, "tail": "", "signal": "SIGTERM" }),
            ),
            (
                &["/absent/it's"],
                127,
                json!({ "task": "it's", "command": r"'/absent/it'\''s'", "exit_code": 127,
                    "tail": "No such file or directory (os error 2)" }),
            ),
            (
                &["/etc/passwd"],
                126,
                json!({ "task": "passwd", "command": "/etc/passwd", "exit_code": 126, "tail": "Permission denied (os error 13)" }),
            ),
        ] {
            let daemon = published();
            let ran = run_command(daemon.socket(), command);
            let said = match payload["exit_code"].as_u64() {
                Some(126 | 127) => {
                    format!(
                        "aside: {:?} cannot be run: {}\n",
                        command[0],
                        payload["tail"].as_str().expect("text")
                    )
                }
                _ => String::new(),
            };
            assert_eq!((ran.code, ran.warnings), (code, said), "{command:?}");
            let [_, ended] = events(&daemon);
            assert_eq!((&ended["type"], &ended["payload"]), (&json!("task.failed"), &payload), "{command:?}");
        }
    }

    #[test]
    fn run_without_daemon_warns_and_runs_the_command() {
        let folder = Scratch::new();
        let socket = folder.path().join("absent.sock");
        let ran = run_command(&socket, &["sh", "-c", "echo out; exit 4"]);
        assert_eq!((ran.code, ran.stdout.as_str()), (4, "out\n"));
        let expected = format!(
            "aside: warning: \"sh\" is not published: no daemon at {}: start it with `aside up`\n",
            socket.display()
        );
        assert_eq!(ran.warnings, expected);
    }

    #[test]
    fn a_silent_daemon_delays_a_run_once() {
        let daemon = FakeDaemon::silent();
        let ran = run_command(daemon.socket(), &["true"]);
        let warning = "aside: warning: \"true\" is not published: the daemon took too long to answer\n";
        assert_eq!((ran.code, ran.warnings.as_str(), daemon.requests().len()), (0, warning, 1));
        let again = run_command(daemon.socket(), &["true"]);
        let warning = "aside: warning: \"true\" is not published: the daemon does not answer\n";
        assert_eq!((again.code, again.warnings.as_str(), daemon.requests().len()), (0, warning, 1));
    }

    #[test]
    fn a_refused_event_is_a_warning() {
        let daemon = FakeDaemon::answering_json(
            400,
            r#"{"results":[{"error":{"field":"workspace","message":"is odd"}}]}"#,
        );
        let ran = run_command(daemon.socket(), &["true"]);
        assert_eq!(
            (ran.code, ran.warnings.as_str()),
            (0, "aside: warning: \"true\" is not published: workspace: is odd\n")
        );
    }
}
