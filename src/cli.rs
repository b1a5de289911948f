//! The commands for users and scripts, one file each.
//!
//! A command parses its arguments, makes requests to the daemon and prints the answers; the daemon
//! makes all decisions. Output goes to stdout and is short and aligned, or JSON with `--json`;
//! `terminal.rs` formats it for a terminal or a pipe. `main` prints an error once. Exit codes: 0, 1
//! for a failure, 2 for invalid arguments, 3 for an unanswered question.

mod access;
mod attach;
mod budgets;
mod check;
mod clients;
mod configuration;
mod context;
mod demo;
mod dev;
mod doctor;
mod edit;
mod error;
mod explain;
mod files;
mod generated;
mod harness;
mod help;
mod history;
mod holds;
mod ids;
mod inbox;
mod install;
mod junit;
mod logs;
mod matchers;
mod mute;
mod new;
mod notices;
mod overview;
mod preview;
mod publish;
mod reference;
mod region;
mod replay;
mod rules;
mod run;
mod saves;
mod schema;
mod serve;
mod sessions;
mod silence;
mod sources;
mod state;
mod status;
mod subscribers;
mod table;
mod terminal;
mod test;
mod trust;
mod up;
mod watch;
mod why;

use std::{env, ffi::OsString, io, process::ExitCode, time::Duration};

use clap::{CommandFactory, Parser, Subcommand};
use hook::{client::Client, paths::Paths};
use jiff::tz::TimeZone;

use crate::daemon::version;
use context::{Context, absolute_folder, parse, workspace_or_current};
pub use context::{complain, printable};
pub use error::CliError;
use error::refused;
use terminal::Terminal;

/// Time limit of a request with its answer; a publish may wait for a slow disk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Debug, Parser)]
#[command(
    name = "aside",
    version,
    long_version = version::FULL_VERSION,
    about = "Notifies AI agents of events at the next safe point of their turn.",
    after_help = "Without a command: open sessions, what is pending, and what was delivered.\n\
        `aside help COMMAND` has examples; `aside help places` says where the files are."
)]
struct Cli {
    /// Socket of the daemon [default: $ASIDE_SOCKET, or aside.sock in the state folder]
    #[arg(long, global = true, value_name = "PATH", hide = true)]
    socket: Option<OsString>,
    /// Folder of the configuration [default: $ASIDE_CONFIG, or aside in the XDG config folder]
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    config: Option<OsString>,
    /// Folder of the journal [default: $ASIDE_STATE, or aside in the XDG state folder]
    #[arg(long, global = true, value_name = "DIR", hide = true)]
    state: Option<OsString>,
    /// Write times exactly and in UTC, not as `3m ago`
    #[arg(long, global = true)]
    utc: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install aside in an agent's client, or in systemd
    Install(install::Args),
    /// Remove aside from a client or systemd
    Uninstall(install::RemoveArgs),
    /// Find what keeps notifications from their agent
    Doctor(doctor::Args),
    /// Start the daemon in the background, unless it runs
    Up(up::Args),
    /// Stop the daemon
    Down,
    /// Run the daemon in the foreground
    Serve(serve::Args),
    /// Make the daemon read its configuration again
    Reload(check::ReloadArgs),
    /// Show the daemon's status, or its counts
    ///
    /// As `aside` alone does.
    Status(status::Args),
    /// Show the last lines of the daemon's log
    Logs(logs::Args),
    /// Publish an event
    Publish(publish::Args),
    /// Follow events as they are published
    Tail(history::TailArgs),
    /// List the sessions
    Sessions(sessions::Args),
    /// List the sources that publish, and what their events cost
    ///
    /// Whether each can publish, its last event, its deliveries, and their tokens.
    Sources(sources::Args),
    /// List past events or notifications, and their outcome
    History(history::Args),
    /// Explain the outcome of an event or a notification
    Why(why::Args),
    /// Rebuild the history's file from the journal
    Rebuild(state::RebuildArgs),
    /// Take a session's pending notifications, as a client does
    Exchange(sessions::ExchangeArgs),
    /// List pending notifications, and decide about them
    ///
    /// Those for the agent, and those for you.
    Inbox(inbox::Args),
    /// Show what is true for a session now
    ///
    /// As its prompt would have it: conditions that hold, retained states, the editor, changed files.
    Region(region::Args),
    /// Suppress notifications for a time, or list what is suppressed
    ///
    /// Without a change of a file. Without a subcommand: the silences in force.
    Silence(silence::Args),
    /// Do not deliver a kind of notification, for good
    ///
    /// Without a matcher: what is muted and disabled.
    Mute(mute::MuteArgs),
    /// End mutes
    Unmute(mute::UnmuteArgs),
    /// Deliver nothing of a subscriber, without a change of a file
    Disable(mute::DisableArgs),
    /// Deliver what a disabled subscriber makes from now on
    Enable(mute::EnableArgs),
    /// Be notified once when a condition comes true
    ///
    /// A process ends, a port opens, a file changes, checks end. Without a condition: the open
    /// watches.
    Watch(watch::Args),
    /// Be reminded once at a time
    Remind(watch::RemindArgs),
    /// Speak MCP on stdio: aside's tools for an agent
    Mcp(clients::McpArgs),
    /// Send a notice to the user
    ///
    /// By the client's line, a desktop notification, a log, or a server of theirs.
    Notify(notices::NotifyArgs),
    /// Ask the user a question, and wait for the answer
    ///
    /// With 2 to 4 choices. Prints the answer; exits with 3 without one in time.
    Ask(notices::AskArgs),
    /// Answer a question, or list the open ones
    Answer(notices::AnswerArgs),
    /// Print what a model should know about the texts of aside
    Instructions(clients::InstructionsArgs),
    /// Print what wakes a session's agent, one line an event
    ///
    /// An extension's follower runs this.
    Attach(attach::Args),
    /// Print the number of pending notifications, for a status line
    Statusline(clients::StatusLineArgs),
    /// Run a command, and publish its outcome and its problems
    Run(run::Args),
    /// Create and list the tokens for TCP
    Token(access::TokenArgs),
    /// Write a subscriber, an event type, a test or a fixture
    ///
    /// From real events, a file or the catalogue.
    New(new::Args),
    /// Check configuration, subscribers and templates for errors
    Check(check::Args),
    /// Run the tests of subscribers in simulated time
    Test(test::Args),
    /// Show what a subscriber makes of events, before it is live
    Preview(preview::Args),
    /// Show findings, failed tests and changed texts at each save
    ///
    /// Of the files in the configuration folder, until Ctrl-C. It is the only thing that watches them;
    /// the daemon does not.
    Dev(dev::Args),
    /// Show what would become of an event, without publishing it
    ///
    /// Step by step, each with the file and line of its rule. TYPE with KEY=VALUE pairs is an event as `aside publish` makes it, FILE or `-` one as JSON, and ID a
    /// past event, whose outcome is compared. With a daemon its present state counts; without one, or
    /// with --config, a fresh start from the files.
    Explain(explain::Args),
    /// Compare what the journal led to with what other rules would
    ///
    /// With the files of --config, by subscriber: notifications, deliveries, tokens and delays. Nothing is
    /// delivered or changed.
    Replay(replay::Args),
    /// Trust the files of a workspace, which then hold for its agents
    ///
    /// Shows what they do, and asks.
    Trust(trust::Args),
    /// List the subscribers, or show one: its keys, its state, its tests
    ///
    /// What each took, made and cost in the last 7 days; of one, each key with its origin.
    Subscribers(subscribers::Args),
    /// Write the smallest file that changes a subscriber that ships
    Edit(edit::Args),
    /// Print a JSON schema for editors, or write all of them
    Schema(schema::Args),
    /// Explain keys, variables, filters, lints and other names
    ///
    /// Also functions, tests and the reasons why something ended.
    Reference(reference::Args),
    /// Check the files of the journal, or repair them
    Journal(state::JournalArgs),
    /// Write the daemon's state to one file; also while it runs
    Backup(state::BackupArgs),
    /// Restore a backup into an empty state folder
    Restore(state::RestoreArgs),
    /// Show what an agent receives, without a daemon or an agent
    ///
    /// It takes a few seconds, and has a daemon of its own.
    Demo(demo::Args),
    /// Handle a client's hook on stdin
    ///
    /// It always succeeds.
    Hook {
        #[arg(help = format!("The harness: {}", harness::with_hooks()))]
        name: String,
        /// Start the daemon in the background if none listens
        #[arg(long)]
        start: bool,
    },
    /// Print a shell's completions
    Completions(generated::CompletionsArgs),
    /// Print a shell's startup code, which reports failed commands
    ///
    /// So that an agent is notified of the commands that its user runs.
    ShellInit(generated::ShellInitArgs),
    /// Report a command that a shell has run
    #[command(hide = true)]
    ShellReport(generated::ShellReportArgs),
    /// Print or write the manual pages
    Man(generated::ManArgs),
    /// Print where the daemon's socket and files are
    #[command(hide = true, after_help = access::PLACES_HELP)]
    Places,
}

impl Command {
    /// Whether it does its work also where the path of the socket is not known or cannot be used.
    const fn works_without_socket(&self) -> bool {
        matches!(
            self,
            Self::Run(_)
                | Self::Demo(_)
                | Self::New(_)
                | Self::Check(_)
                | Self::Test(_)
                | Self::Preview(_)
                | Self::Dev(_)
                | Self::Explain(_)
                | Self::Replay(_)
                | Self::Subscribers(_)
                | Self::Edit(_)
                | Self::Schema(_)
                | Self::Reference(_)
                | Self::Token(_)
                | Self::Journal(_)
                | Self::Backup(_)
                | Self::Restore(_)
                | Self::Completions(_)
                | Self::Man(_)
                | Self::Instructions(_)
                | Self::ShellInit(_)
                | Self::Places
        )
    }
}

/// The program's commands with their help.
fn definition() -> clap::Command {
    help::with_groups(Cli::command())
}

/// Runs the command in `args`, whose first element is the program's name.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<ExitCode, CliError> {
    let args: Vec<OsString> = args.into_iter().collect();
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(error) => {
            // Most starts show no help, so its groups and examples are added only here.
            let error = definition().try_get_matches_from(&args).err().unwrap_or(error);
            error::print(&error).map_err(CliError::Output)?;
            // A harness treats exit code 2 as an order to stop its agent.
            let is_hook = command_name(&args).as_deref() == Some("hook");
            return Ok(ExitCode::from(if is_hook {
                0
            } else {
                u8::try_from(error.exit_code()).unwrap_or(1)
            }));
        }
    };
    let variable = |name: &str| {
        let flag = match name {
            "ASIDE_SOCKET" => &cli.socket,
            "ASIDE_CONFIG" => &cli.config,
            "ASIDE_STATE" => &cli.state,
            _ => &None,
        };
        flag.clone().or_else(|| env::var_os(name))
    };
    if let Some(Command::Hook { name, start }) = &cli.command {
        if *start {
            hook::start_daemon(variable);
        }
        hook::forward(name, variable);
        return Ok(ExitCode::SUCCESS);
    }
    let client = match Paths::socket_from_env(variable) {
        Ok(socket) => Client::new(socket, ANSWER_TIMEOUT),
        Err(error) if cli.command.as_ref().is_some_and(Command::works_without_socket) => {
            Client::without_socket(error.to_string(), ANSWER_TIMEOUT)
        }
        Err(error) => return Err(CliError::Paths(error)),
    };
    // Not locked, because threads of `run` write the child's output.
    let mut stdout = io::stdout();
    let zone: Option<fn() -> TimeZone> = if cli.utc { None } else { Some(TimeZone::system) };
    let terminal = Terminal::of_stdout(zone, |name| env::var_os(name));
    let is_config_given = cli.config.is_some();
    let context =
        Context { paths: Paths::named(variable), is_config_given, client, out: &mut stdout, terminal };
    dispatch(cli.command, context)
}

/// The command in invalid arguments, in which options may precede it.
fn command_name(args: &[OsString]) -> Option<String> {
    let found = definition().ignore_errors(true).try_get_matches_from(args).ok()?;
    found.subcommand_name().map(str::to_owned)
}

fn dispatch(command: Option<Command>, mut context: Context<'_>) -> Result<ExitCode, CliError> {
    let Some(command) = command else {
        return status::welcome(&mut context).map(|()| ExitCode::SUCCESS);
    };
    match command {
        Command::Install(args) => install::run(&args, &mut context)?,
        Command::Uninstall(args) => install::remove(&args, &mut context)?,
        Command::Doctor(args) => return doctor::run(&args, &mut context),
        Command::Up(args) => up::run(&args, &mut context)?,
        Command::Down => up::down(&mut context)?,
        Command::Completions(args) => generated::completions(&args, &mut definition(), &mut context)?,
        Command::Man(args) => generated::man(&args, definition(), &mut context)?,
        Command::Serve(args) => serve::run(&args, context.paths.map_err(CliError::Paths)?)?,
        Command::Reload(args) => check::reload(&args, &mut context)?,
        Command::Status(args) => status::run(&args, &mut context)?,
        Command::Logs(args) => logs::run(&args, &mut context)?,
        Command::Publish(args) => publish::run(&args, &mut context)?,
        Command::Tail(args) => history::tail(&args, &mut context)?,
        Command::Sessions(args) => sessions::run(&args, &mut context)?,
        Command::Sources(args) => sources::run(&args, &mut context)?,
        Command::History(args) => history::run(&args, &mut context)?,
        Command::Why(args) => why::run(&args, &mut context)?,
        Command::Rebuild(args) => state::rebuild(&args, &mut context)?,
        Command::Exchange(args) => sessions::exchange(&args, &mut context)?,
        Command::Inbox(args) => inbox::run(&args, &mut context)?,
        Command::Region(args) => region::run(&args, &mut context)?,
        Command::Silence(args) => silence::run(&args, &mut context)?,
        Command::Mute(args) => mute::mute(&args, &mut context)?,
        Command::Unmute(args) => mute::unmute(&args, &mut context)?,
        Command::Disable(args) => mute::disable(&args, &mut context)?,
        Command::Enable(args) => mute::enable(&args, &mut context)?,
        Command::Watch(args) => watch::run(&args, &mut context)?,
        Command::Remind(args) => watch::remind(&args, &mut context)?,
        Command::Mcp(args) => clients::mcp(&args, &context)?,
        Command::ShellInit(args) => generated::shell_init(&args, &mut context)?,
        Command::ShellReport(args) => generated::shell_report(&args, &context)?,
        Command::Notify(args) => notices::notify(&args, &mut context)?,
        Command::Ask(args) => return notices::ask(&args, &mut context),
        Command::Answer(args) => notices::answer(&args, &mut context)?,
        Command::Instructions(args) => clients::instructions(&args, &mut context)?,
        Command::Attach(args) => attach::run(&args, &context.client)?,
        Command::Statusline(args) => clients::status_line(&args, context.client.socket())?,
        Command::Run(args) => return run::run(args, &context).map(ExitCode::from),
        Command::Token(args) => access::token(&args, &mut context)?,
        Command::New(args) => new::run(&args, &mut context)?,
        Command::Test(args) => test::run(&args, &mut context)?,
        Command::Preview(args) => preview::run(&args, &mut context)?,
        Command::Dev(args) => dev::run(&args, &mut context)?,
        Command::Explain(args) => explain::run(&args, &mut context)?,
        Command::Replay(args) => replay::run(&args, &mut context)?,
        Command::Trust(args) => trust::run(&args, &mut context)?,
        Command::Check(args) => check::run(&args, &mut context)?,
        Command::Subscribers(args) => subscribers::run(&args, &mut context)?,
        Command::Edit(args) => edit::run(&args, &mut context)?,
        Command::Schema(args) => schema::run(&args, &mut context)?,
        Command::Reference(args) => reference::run(&args, &mut context)?,
        Command::Journal(args) => state::journal(&args, &mut context)?,
        Command::Backup(args) => state::backup(&args, &mut context)?,
        Command::Restore(args) => state::restore(&args, &mut context)?,
        Command::Demo(args) => demo::run(&args, &mut context)?,
        Command::Places => access::places(&mut context)?,
        Command::Hook { .. } => {}
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{error::refusal, *};
    use hook::client::fake::FakeDaemon;

    /// Runs a command against `daemon`; returns its output, or its error as one line.
    pub(super) fn run_against(daemon: &FakeDaemon, args: &[&str]) -> Result<String, String> {
        run_in(daemon, std::path::Path::new("c"), args)
    }

    /// The same, with this folder as the user's configuration.
    pub(super) fn run_in(
        daemon: &FakeDaemon,
        config: &std::path::Path,
        args: &[&str],
    ) -> Result<String, String> {
        let cli = Cli::try_parse_from([&["aside"], args].concat()).map_err(|error| error.to_string())?;
        let mut out = Vec::new();
        let mut context = context(daemon, &mut out);
        if let Ok(paths) = &mut context.paths {
            paths.config = config.to_owned();
        }
        let outcome = dispatch(cli.command, context);
        let out = String::from_utf8(out).expect("text");
        outcome.map(|_| out.clone()).map_err(|error| format!("{out}{error}"))
    }

    pub(super) fn context<'a>(daemon: &FakeDaemon, out: &'a mut Vec<u8>) -> Context<'a> {
        let paths = Paths { socket: daemon.socket().to_owned(), config: "c".into(), state: "s".into() };
        let client = Client::new(paths.socket.clone(), ANSWER_TIMEOUT);
        let terminal = terminal::tests::pipe();
        Context { client, paths: Ok(paths), is_config_given: false, out, terminal }
    }

    /// The JSON bodies of the requests to `daemon`.
    pub(super) fn bodies(daemon: &FakeDaemon) -> Vec<Value> {
        let body = |request: &String| request.split_once("\r\n\r\n").expect("a head").1.to_owned();
        daemon.requests().iter().map(|request| serde_json::from_str(&body(request)).expect("JSON")).collect()
    }

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_command_of_invalid_arguments_is_known() {
        for (args, expected) in [
            (&["hook"][..], Some("hook")),
            (&["hook", "--nonsense"], Some("hook")),
            (&["hook", "claude", "extra"], Some("hook")),
            (&["--socket", "/s", "hook"], Some("hook")),
            (&["--utc", "--state=s", "hook", "claude", "--bad"], Some("hook")),
            (&["publish", "hook"], Some("publish")),
            (&["--socket", "hook", "publish", "hook"], Some("publish")),
            (&["--nonsense"], None),
        ] {
            let args: Vec<OsString> = ["aside"].iter().chain(args).map(OsString::from).collect();
            assert_eq!(command_name(&args).as_deref(), expected, "{args:?}");
        }
    }

    #[test]
    fn refusal_names_its_field_or_http_status() {
        for (body, expected) in [
            (r#"{"error":{"field":"payload","message":"must be an object"}}"#, "payload: must be an object"),
            (r#"{"error":{"field":null,"message":"no such\nsession"}}"#, "no such session"),
            ("<html>", "the daemon answered with HTTP status 502"),
        ] {
            assert_eq!(refusal(502, body.as_bytes()).to_string(), expected);
        }
    }
}
