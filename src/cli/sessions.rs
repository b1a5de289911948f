//! `aside sessions` and `aside exchange`: the sessions that the daemon knows, and one manual exchange of
//! one, for harnesses that can run a command and for experiments.

use std::cmp::Reverse;

use clap::builder::PossibleValuesParser;
use engine::{
    exchange::{Dialect, Format},
    notification::InjectionPoint,
    words::Words,
};
use hook::client::percent_encode;
use journal::time::Timestamp;
use serde_json::{Value, json};

use super::{
    CliError, Context,
    context::object,
    ids::{self, Names},
    parse,
    table::{Cell, Table},
    terminal::{Terminal, Tone},
    workspace_or_current,
};
use crate::api::wire::views::{SessionList, SessionView};

pub(super) const PATH: &str = "/v1/sessions";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "list the sessions";
    let body = context.ask(doing, "GET", PATH, None)?;
    if args.json {
        return context.print_json(doing, &body);
    }
    let list = Sessions::read(doing, &body)?;
    let text = match list.len() {
        0 => "no sessions\n".to_owned(),
        all => list.table("NAME", all, &context.terminal).text(&context.terminal),
    };
    context.print(&text)
}

/// The sessions of a daemon: open ones first, then by last activity.
pub(super) struct Sessions {
    listed: Vec<SessionView>,
    pub(super) names: Names,
}

impl Sessions {
    /// Parses the daemon's list.
    pub(super) fn read(doing: &'static str, body: &[u8]) -> Result<Self, CliError> {
        let SessionList { sessions: mut listed } = parse(doing, body)?;
        listed.sort_by_cached_key(|session| {
            let seen: Option<Timestamp> = session.seen_at.parse().ok();
            (Reverse(session.is_open), Reverse(seen), session.id.clone())
        });
        let names = Names::of(listed.iter().map(ids::Session::from).collect());
        Ok(Self { listed, names })
    }

    /// The open session that was active last.
    pub(super) fn last_active(&self) -> Option<&str> {
        self.listed.first().filter(|session| session.is_open).map(|session| &*session.id)
    }

    pub(super) fn len(&self) -> usize {
        self.listed.len()
    }

    /// A table of at most `most` sessions, whose first column is headed `name`.
    pub(super) fn table(&self, name: &'static str, most: usize, terminal: &Terminal) -> Table {
        let mut table = Table::new([name, "FOLDER", "STATE", "WAITS", "SEEN"]);
        for session in self.listed.iter().take(most) {
            let folder = session.harness.workspace.as_deref().unwrap_or("-");
            table.row([
                Cell::plain(&self.names.name(&session.id)),
                Cell::path(&terminal.folder(folder)),
                Cell::word(&session.state()),
                Cell::toned(session.urgency(), &session.waits()),
                Cell::dim(&terminal.moment(&session.seen_at)),
            ]);
        }
        table
    }
}

impl SessionView {
    fn state(&self) -> String {
        if self.is_open { self.state.replace('_', " ") } else { "suspended".to_owned() }
    }

    fn urgency(&self) -> Tone {
        let top = self.queue.as_ref().and_then(|queue| queue.top.as_deref());
        top.map_or(Tone::Plain, Tone::of)
    }

    /// The number of notifications for the agent, how many of them have the highest priority if
    /// that matters, and the number for the user: `2 (1 high), 1 for you`. `private` for another
    /// session than that of this process.
    fn waits(&self) -> String {
        let Some(queue) = &self.queue else { return "private".to_owned() };
        let top = queue.top.as_deref().filter(|top| matches!(*top, "critical" | "high"));
        let agent = match (queue.pending, top, queue.top_count) {
            (0, _, _) => None,
            (pending, None, _) => Some(pending.to_string()),
            (pending, Some(top), 0) => Some(format!("{pending} ({top})")),
            (pending, Some(top), count) => Some(format!("{pending} ({count} {top})")),
        };
        let user = (queue.for_user > 0).then(|| format!("{} for you", queue.for_user));
        let parts: Vec<String> = agent.into_iter().chain(user).collect();
        if parts.is_empty() { "-".to_owned() } else { parts.join(", ") }
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct ExchangeArgs {
    /// The conversation, which the first exchange opens: its whole id, or `b1c2@shop` as in `aside
    /// sessions`
    session: String,
    /// The agent's point: turn_start, before_tool, after_tool, turn_end or immediate
    point: InjectionPoint,
    /// Id of the message that will carry the text; a repeated one gets the same text [default: a
    /// new one]
    #[arg(long, value_name = "ID")]
    carrier: Option<String>,
    /// The harness's name of the turn
    #[arg(long, value_name = "ID")]
    turn: Option<String>,
    /// The harness's name of the step: another one each time the model has answered
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// The tool in question
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// The session's working folder [default: the current one]
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// The harness
    #[arg(long, value_name = "NAME")]
    harness: Option<String>,
    /// Format of the injection [default: as configured]
    #[arg(long, value_parser = PossibleValuesParser::new(Format::words()))]
    format: Option<String>,
    /// API of the model, for a message in its words
    #[arg(long, value_parser = PossibleValuesParser::new(Dialect::words()))]
    dialect: Option<String>,
    /// An injection that has arrived; may be given more than once
    #[arg(long, value_name = "ID")]
    ack: Vec<String>,
    /// Print the daemon's whole answer as JSON, even when nothing is released
    #[arg(long)]
    json: bool,
}

pub(super) fn exchange(args: &ExchangeArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "exchange";
    let session = ids::addressee(&args.session, context)?;
    let path = format!("/v1/sessions/{}/exchange", percent_encode(&session));
    let body = context.ask(doing, "POST", &path, Some(&request(args)))?;
    if body.is_empty() {
        return context.print(if args.json { "{}\n" } else { "" });
    }
    if args.json {
        return context.print_json(doing, &body);
    }
    let answer: Value = parse(doing, &body)?;
    let carrier = ["text", "message", "block", "messages"].into_iter().find_map(|field| answer.get(field));
    match carrier {
        Some(Value::String(text)) => context.print(&format!("{}\n", text.trim_end_matches('\n'))),
        Some(json) => context.print(&format!("{json}\n")),
        None => Ok(()),
    }
}

/// The request's body, without absent arguments.
fn request(args: &ExchangeArgs) -> Value {
    let workspace = workspace_or_current(args.workspace.as_deref());
    let new_carrier = || format!("cli-{}", uuid::Uuid::now_v7());
    let harness =
        object([("name", args.harness.clone().map(Value::from)), ("workspace", workspace.map(Value::from))]);
    object([
        ("point", Some(json!(args.point.as_str()))),
        ("carrier", Some(json!(args.carrier.clone().unwrap_or_else(new_carrier)))),
        ("turn", args.turn.clone().map(Value::from)),
        ("step", args.step.clone().map(Value::from)),
        ("harness", Some(harness)),
        ("tool", args.tool.clone().map(Value::from)),
        ("ack", (!args.ack.is_empty()).then(|| json!(args.ack))),
        ("format", args.format.clone().map(Value::from)),
        ("dialect", args.dialect.clone().map(Value::from)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::{bodies, run_against};
    use hook::client::fake::FakeDaemon;

    #[test]
    fn sessions_are_listed_open_first_then_by_recency() {
        let body = r#"{"sessions":[
            {"id":"b1c2d3e4-0000-4000-8000-000000000001","is_open":true,"harness":{"workspace":"/home/u/work/shop"},
             "seen_at":"2026-11-21T12:27:00Z","pending":2,"top":"high","top_count":1,"for_user":1,"state":"tool_pending"},
            {"id":"demo","is_open":false,"harness":{},"seen_at":"2026-11-21T12:29:00Z","pending":0,"for_user":0,"state":"idle"},
            {"id":"b1c2ffff-0000-4000-8000-000000000001/a7f3e2d1c0b9a8f7","is_open":true,"harness":{"workspace":"/srv"},
             "seen_at":"2026-11-21T12:29:30.5Z","pending":3,"top":"low","top_count":3,"for_user":0,"state":"idle"}]}"#;
        let expected = "NAME            FOLDER       STATE         WAITS                  SEEN
b1c2f/a7f3@srv  /srv         idle          3                      30s ago
b1c2d@shop      ~/work/shop  tool pending  2 (1 high), 1 for you  3m ago
demo            -            suspended     -                      1m ago
";
        let daemon = FakeDaemon::answering_json(200, body);
        assert_eq!(run_against(&daemon, &["sessions"]).as_deref(), Ok(expected));
        assert!(daemon.requests()[0].starts_with("GET /v1/sessions HTTP/1.1\r\n"));
    }

    #[test]
    fn session_list_tolerates_another_daemon_version() {
        let daemon = FakeDaemon::answering_json(
            200,
            r#"{"sessions":[{"id":"s1","is_open":true,"pending":2,"top":"high"}]}"#,
        );
        let expected = "NAME  FOLDER  STATE  WAITS     SEEN\ns1    -              2 (high)\n";
        assert_eq!(run_against(&daemon, &["sessions"]).as_deref(), Ok(expected));
        let daemon = FakeDaemon::answering_json(200, r#"{"sessions":[]}"#);
        assert_eq!(run_against(&daemon, &["sessions"]).as_deref(), Ok("no sessions\n"));
        let daemon = FakeDaemon::answering_json(200, "[1]");
        let error = run_against(&daemon, &["sessions"]).expect_err("another shape");
        assert!(error.starts_with("list the sessions: the daemon's answer has a format"), "{error}");
    }

    #[test]
    fn exchange_prints_text_or_full_json_answer() {
        let answer = r#"{"injection":"i1","text":"tool_fail: grep\n","pending":0}"#;
        let daemon = FakeDaemon::answering_json(200, answer);
        assert_eq!(
            run_against(&daemon, &["exchange", "s1", "after_tool"]).as_deref(),
            Ok("tool_fail: grep\n")
        );
        let whole = run_against(&daemon, &["exchange", "s1", "after_tool", "--json"]);
        assert_eq!(whole, Ok(format!("{answer}\n")));
    }

    #[test]
    fn exchange_without_release_prints_no_text() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 204 No Content\r\n\r\n"]);
        assert_eq!(run_against(&daemon, &["exchange", "s1", "turn_end"]).as_deref(), Ok(""));
        assert_eq!(run_against(&daemon, &["exchange", "s1", "turn_end", "--json"]).as_deref(), Ok("{}\n"));
        let pending = FakeDaemon::answering_json(200, r#"{"pending":3,"check_before_tool":false}"#);
        assert_eq!(run_against(&pending, &["exchange", "s1", "turn_end"]).as_deref(), Ok(""));
    }

    #[test]
    fn arguments_become_the_documented_request() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 204 No Content\r\n\r\n"]);
        let args = [
            "exchange",
            "s1/a b",
            "after_tool",
            "--carrier",
            "c1",
            "--turn",
            "t1",
            "--step",
            "3",
            "--tool",
            "Bash",
            "--workspace",
            "/w",
            "--harness",
            "loop",
            "--format",
            "toon",
            "--ack",
            "i1",
            "--ack",
            "i2",
        ];
        run_against(&daemon, &args).expect("success");
        assert!(daemon.requests()[0].starts_with("POST /v1/sessions/s1%2Fa%20b/exchange HTTP/1.1\r\n"));
        assert_eq!(
            bodies(&daemon),
            [
                json!({ "point": "after_tool", "carrier": "c1", "turn": "t1", "step": "3", "harness": { "name": "loop", "workspace": "/w" },
                "tool": "Bash", "ack": ["i1", "i2"], "format": "toon" })
            ]
        );
    }

    #[test]
    fn exchange_defaults_to_new_carrier_and_current_folder() {
        let daemon = FakeDaemon::answering(&["HTTP/1.1 204 No Content\r\n\r\n"]);
        run_against(&daemon, &["exchange", "s1", "turn_start"]).expect("success");
        run_against(&daemon, &["exchange", "s1", "turn_start"]).expect("success");
        let [first, second] = bodies(&daemon).try_into().expect("two requests");
        assert_ne!(first["carrier"], second["carrier"]);
        assert_eq!(first["harness"]["workspace"].as_str(), workspace_or_current(None).as_deref());
    }

    #[test]
    fn unknown_point_or_format_error_lists_valid_values() {
        let daemon = FakeDaemon::silent();
        let error = run_against(&daemon, &["exchange", "s1", "midway"]).expect_err("no point");
        assert!(error.contains("`midway` is not one of immediate, turn_start"), "{error}");
        let error =
            run_against(&daemon, &["exchange", "s1", "turn_end", "--format", "yaml"]).expect_err("no format");
        assert!(error.contains("[possible values: xml, xml_each, markdown"), "{error}");
    }
}
