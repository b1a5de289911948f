//! `aside notify`, `aside ask` and `aside answer`: notices and questions to the user.
//!
//! In the session of an agent both are from that session, which the daemon derives from the requesting
//! process; elsewhere they are from the folder of the command. `ask` requests the end of the question
//! until it gets it, also across a restart of the daemon, and then confirms it. If it is interrupted,
//! the question stays open, and its answer goes to the session or folder of origin.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    thread,
    time::Duration,
};

use clap::builder::PossibleValuesParser;
use engine::{notification::Category, sink::question::short, words::Words};
use hook::client::{ClientError, percent_encode};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    CliError, Context,
    context::object,
    ids::{self, Names},
    parse, refused,
    table::{Cell, Table},
    terminal::{Tone, one_line},
    workspace_or_current,
};
use crate::api::wire::{
    notify::NotifyAnswer,
    questions::{Asked, QuestionEnd, QuestionList, QuestionView},
};

const NOTIFY: &str = "notify the user";

#[derive(Debug, clap::Args)]
struct Labels {
    /// The level: info, warn or error; any other value is info
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    level: String,
    /// Its context, such as a component
    #[arg(long, value_name = "TEXT", default_value = "llm")]
    context: String,
    /// Its category
    #[arg(long, value_parser = PossibleValuesParser::new(Category::words()))]
    category: Option<String>,
}

#[derive(Debug, clap::Args)]
struct OriginFolder {
    /// The folder of origin [default: the current one, outside of a session]
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    workspace: Option<String>,
}

impl OriginFolder {
    fn json(&self) -> Option<Value> {
        workspace_or_current(self.workspace.as_deref()).map(Value::from)
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct NotifyArgs {
    /// The message, on one line
    #[arg(value_name = "MESSAGE")]
    message: String,
    /// Read **bold**, *italic*, `code` and [text](url) in the message; else each character is shown
    /// unchanged
    #[arg(long)]
    markdown: bool,
    /// A web address to open
    #[arg(long, value_name = "URL")]
    link: Option<String>,
    /// A name for the work; a newer message with the same name replaces the older one
    #[arg(long)]
    key: Option<String>,
    /// Progress in percent
    #[arg(long, value_name = "PERCENT", requires = "key", value_parser = clap::value_parser!(u8).range(..=100))]
    progress: Option<u8>,
    #[command(flatten)]
    labels: Labels,
    /// The session that it comes from, as `aside sessions` names it [default: the one this runs in]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    folder: OriginFolder,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn notify(args: &NotifyArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let session = args.session.as_deref().map(|text| ids::addressee(text, context)).transpose()?;
    let Labels { level, context: component, category } = &args.labels;
    let fields = object([
        ("message", Some(json!(args.message))),
        ("link", args.link.clone().map(Value::from)),
        ("key", args.key.clone().map(Value::from)),
        ("level", Some(json!(level))),
        ("context", Some(json!(component))),
        ("category", category.clone().map(Value::from)),
        ("session", session.map(Value::from)),
        ("workspace", args.folder.json()),
        ("progress", args.progress.map(Value::from)),
        ("markdown", args.markdown.then_some(true.into())),
    ]);
    let body = context.ask(NOTIFY, "POST", "/v1/notify", Some(&fields))?;
    if args.json {
        return context.print_json(NOTIFY, &body);
    }
    let NotifyAnswer { text, .. } = parse(NOTIFY, &body)?;
    context.print(&format!("{}\n", one_line(&text)))
}

const QUESTIONS: &str = "/v1/questions";
/// The exit code of a question that nobody answered in time.
const EXPIRED: u8 = 3;
/// How long one request waits for the end; shorter than the timeout of an answer.
const WAIT: &str = "20s";
/// Pause between two attempts to reach a daemon that was reachable before.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Most consecutive attempts; together they take longer than a restart.
const TRIES_MAX: u32 = 60;

#[derive(Debug, clap::Args)]
pub(super) struct AskArgs {
    /// The question, on one line
    #[arg(value_name = "QUESTION")]
    message: String,
    /// A choice, 2 to 4 times: --choice yes --choice no
    #[arg(long = "choice", value_name = "TEXT", required = true)]
    choices: Vec<String>,
    /// Its lifetime, such as 20m, 7d at most
    #[arg(long = "for", value_name = "DURATION", default_value = "1h")]
    expires: String,
    /// Print the question's id and do not wait: the session or folder is notified of the answer
    #[arg(long)]
    no_wait: bool,
    /// Read **bold**, *italic*, `code` and [text](url) in the question; else each character is
    /// shown unchanged
    #[arg(long)]
    markdown: bool,
    /// A web address to open
    #[arg(long, value_name = "URL")]
    link: Option<String>,
    #[command(flatten)]
    labels: Labels,
    /// The session that asks, as `aside sessions` names it [default: the one this runs in]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    #[command(flatten)]
    folder: OriginFolder,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct AnswerArgs {
    /// The question: its id as it is listed
    #[arg(value_name = "ID", requires = "answer")]
    id: Option<String>,
    /// One of its choices
    #[arg(value_name = "CHOICE")]
    answer: Option<String>,
    /// Answer a question that this session asked, as instructed by the user
    #[arg(long, requires = "answer")]
    own: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn ask(args: &AskArgs, context: &mut Context<'_>) -> Result<ExitCode, CliError> {
    let doing = "ask the user";
    let session = args.session.as_deref().map(|text| ids::addressee(text, context)).transpose()?;
    let Labels { level, context: component, category } = &args.labels;
    let (_, random) = Uuid::now_v7().as_u64_pair();
    let fields = object([
        ("id", Some(format!("q{random:016x}").into())),
        ("choices", Some(json!(args.choices))),
        ("awaited", Some(json!(!args.no_wait))),
        ("message", Some(json!(args.message))),
        ("expires", Some(json!(args.expires))),
        ("link", args.link.clone().map(Value::from)),
        ("level", Some(json!(level))),
        ("context", Some(json!(component))),
        ("category", category.clone().map(Value::from)),
        ("session", session.map(Value::from)),
        ("workspace", args.folder.json()),
        ("markdown", args.markdown.then_some(true.into())),
    ]);
    let body = send(doing, &fields, context)?;
    let Asked { question, .. } = parse(doing, &body)?;
    if args.no_wait {
        match args.json {
            true => context.print_json(doing, &body)?,
            false => context.print(&format!("{}\n", question.id))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    say_how(&question, context);
    let body = end_of(&question.id, context)?;
    let QuestionEnd { answer, .. } = parse(doing, &body)?;
    match (&answer, args.json) {
        (_, true) => context.print_json(doing, &body)?,
        (Some(answer), false) => context.print(&format!("{}\n", one_line(answer)))?,
        (None, false) => {}
    }
    // After this request the daemon does not announce the answer to the session. If the daemon is
    // down, it announces the answer after its next start.
    context.ask(doing, "POST", &format!("{QUESTIONS}/{}/taken", percent_encode(&question.id)), None).ok();
    Ok(if answer.is_some() { ExitCode::SUCCESS } else { ExitCode::from(EXPIRED) })
}

/// Sends the question, and repeats it if the outcome is unknown; its id identifies the repetition.
///
/// Errors: there is no daemon, it refuses, or its answers are lost [`TRIES_MAX`] times.
fn send(doing: &'static str, body: &Value, context: &Context<'_>) -> Result<Vec<u8>, CliError> {
    let mut is_sent = false;
    for _ in 0..TRIES_MAX {
        match context.ask(doing, "POST", QUESTIONS, Some(body)) {
            Err(CliError::Client { source: ClientError::Connection { .. }, .. }) => is_sent = true,
            // The daemon is restarting.
            Err(CliError::Client { source: ClientError::NoDaemon { .. }, .. }) if is_sent => {}
            answered => return answered,
        }
        thread::park_timeout(RETRY_AFTER);
    }
    context.ask(doing, "POST", QUESTIONS, Some(body))
}

/// Prints on stderr how to answer the question: stdout is for the answer.
fn say_how(question: &QuestionView, context: &Context<'_>) {
    let (id, until) = (short(&question.id), context.terminal.moment(&question.expires_at));
    let choices = question.choices.join(" | ");
    // Without a stderr nobody reads it.
    writeln!(io::stderr(), "{}", one_line(&format!("aside answer {id} {choices}; it ends {until}"))).ok();
}

/// Waits for the end of a question, and returns the daemon's JSON.
///
/// Errors: the daemon does not know the question, or was not reached for a while.
fn end_of(id: &str, context: &Context<'_>) -> Result<Vec<u8>, CliError> {
    let doing = "wait for the answer";
    let path = format!("{QUESTIONS}/{}/wait?timeout={WAIT}", percent_encode(id));
    let mut tries = 0;
    loop {
        match context.client.request("GET", &path, &[], b"") {
            Ok(response) if response.status == 200 => return Ok(response.body),
            // The wait of one request is over.
            Ok(response) if response.status == 204 => tries = 0,
            Ok(response) if response.status != 503 => {
                return Err(refused(doing, response.status, &response.body));
            }
            // The daemon has no room for another wait, stops, or restarts.
            Ok(_) | Err(_) if tries < TRIES_MAX => {
                tries += 1;
                thread::park_timeout(RETRY_AFTER);
            }
            Ok(response) => return Err(refused(doing, response.status, &response.body)),
            Err(source) => return Err(CliError::Client { doing, source }),
        }
    }
}

pub(super) fn answer(args: &AnswerArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let (Some(id), Some(answer)) = (&args.id, &args.answer) else { return list(args, context) };
    let doing = "answer the question";
    let path = format!("{QUESTIONS}/{}", percent_encode(id));
    let fields = object([("answer", Some(json!(answer))), ("own", args.own.then_some(true.into()))]);
    let body = context.ask(doing, "POST", &path, Some(&fields))?;
    if args.json {
        return context.print_json(doing, &body);
    }
    let QuestionEnd { answer, .. } = parse(doing, &body)?;
    let done = context.terminal.paint(Tone::Good, "answered");
    context.print(&format!("{done} {}: {}\n", one_line(id), one_line(&answer.unwrap_or_default())))
}

fn list(args: &AnswerArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "list the questions";
    let body = context.ask(doing, "GET", QUESTIONS, None)?;
    if args.json {
        return context.print_json(doing, &body);
    }
    let QuestionList { questions } = parse(doing, &body)?;
    let names = Names::ask(context);
    let mut table = Table::new(["QUESTION", "FROM", "ENDS", "ASKS", "CHOICES"]);
    for question in &questions {
        let from = match (&question.session, &question.workspace) {
            (Some(session), _) => names.name(session),
            (None, Some(folder)) => context.terminal.folder(folder),
            (None, None) => "-".to_owned(),
        };
        table.row([
            Cell::plain(short(&question.id)),
            Cell::plain(&from),
            Cell::dim(&context.terminal.moment(&question.expires_at)),
            Cell::plain(&question.message),
            Cell::plain(&question.choices.join(" | ")),
        ]);
    }
    let text = if table.is_empty() { "no questions\n".to_owned() } else { table.text(&context.terminal) };
    context.print(&text)
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    const ASKED: &str = r#"{"question":{"id":"q5f0c2e81b7a94d36","message":"Deploy?","choices":["yes","no"],"level":"info","context":"llm",
        "asked_at":"2026-11-21T12:00:00Z","expires_at":"2026-11-21T13:00:00Z"},"sinks":["log"]}"#;

    fn ok(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn ask_prints_and_confirms_the_answer() {
        let end = r#"{"question":"q5f0c2e81b7a94d36","state":"answered","answer":"yes","by":"desktop"}"#;
        let id = "/v1/questions/q5f0c2e81b7a94d36";
        let (wait, taken) = (format!("{id}/wait?timeout=20s"), format!("POST {id}/taken"));
        let daemon =
            FakeDaemon::answering_paths(&[("POST /v1/questions", ASKED), (&wait, end), (&taken, "{}")]);
        let said =
            run_against(&daemon, &["ask", "Deploy?", "--choice", "yes", "--choice", "no", "--for", "20m"]);
        assert_eq!(said.as_deref(), Ok("yes\n"));
        let requests = daemon.requests();
        assert!(
            requests[0]
                .contains(r#","choices":["yes","no"],"awaited":true,"message":"Deploy?","expires":"20m""#)
        );
        assert!(requests[1].starts_with("GET /v1/questions/q5f0c2e81b7a94d36/wait?timeout=20s HTTP/1.1\r\n"));
        assert!(requests[2].starts_with("POST /v1/questions/q5f0c2e81b7a94d36/taken HTTP/1.1\r\n"));
    }

    #[test]
    fn ask_retries_with_same_id_after_lost_answer() {
        let daemon = FakeDaemon::losing(ASKED);
        let said = run_against(&daemon, &["ask", "Deploy?", "--choice", "a", "--choice", "b", "--no-wait"]);
        assert_eq!(said.as_deref(), Ok("q5f0c2e81b7a94d36\n"));
        let requests = daemon.requests();
        let bodies: Vec<_> = requests.iter().filter_map(|request| request.split("\r\n\r\n").nth(1)).collect();
        assert_eq!(bodies.len(), 2);
        assert!(bodies[0].starts_with(r#"{"id":"q"#) && bodies[0] == bodies[1], "{bodies:?}");
    }

    #[test]
    fn ask_without_waiting_prints_the_question_id() {
        let daemon = FakeDaemon::answering(&[&ok("201 Created", ASKED)]);
        let said =
            run_against(&daemon, &["ask", "Deploy?", "--choice", "yes", "--choice", "no", "--no-wait"]);
        assert_eq!(said.as_deref(), Ok("q5f0c2e81b7a94d36\n"));
        assert!(run_against(&daemon, &["ask", "Deploy?"]).is_err());
    }

    #[test]
    fn open_questions_are_listed_and_answered() {
        let body = r#"{"questions":[{"id":"q5f0c2e81b7a94d36","message":"Deploy?","choices":["yes","no"],
            "level":"info","context":"llm","asked_at":"2026-11-21T12:00:00Z","expires_at":"2026-11-21T12:29:30Z","session":"s1"}]}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let expected = "QUESTION  FROM  ENDS     ASKS     CHOICES
q5f0c2e   s1    30s ago  Deploy?  yes | no
";
        assert_eq!(run_against(&daemon, &["answer"]).as_deref(), Ok(expected));
        let end = r#"{"question":"q5f0c2e81b7a94d36","state":"answered","answer":"yes","by":"user"}"#;
        let daemon = FakeDaemon::answering_json(200, end);
        assert_eq!(run_against(&daemon, &["answer", "q5f0", "yes"]).as_deref(), Ok("answered q5f0: yes\n"));
        assert!(daemon.requests()[0].starts_with("POST /v1/questions/q5f0 HTTP/1.1\r\n"));
        assert!(run_against(&daemon, &["answer", "q5f0"]).is_err(), "which choice?");
    }
}
