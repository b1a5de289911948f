//! `aside watch` and `aside remind`: one notification when a condition becomes true, or at a time.
//!
//! In an agent's session the watch is for that session, which the daemon derives from the
//! requesting process; elsewhere it is for the command's folder.

use clap::builder::PossibleValuesParser;
use engine::{
    notification::Priority,
    watch::{Needs, ReminderKind, condition::FORMS},
    words::Words,
};
use hook::client::percent_encode;
use serde_json::{Value, json};

use super::{
    CliError, Context, absolute_folder,
    context::{object, with_query},
    ids::{self, Names},
    parse,
    table::{Cell, Table},
    terminal::{Tone, one_line},
    workspace_or_current,
};
use crate::api::wire::watches::{ConditionView, WatchAnswer, WatchList, WatchView};

const PATH: &str = "/v1/watches";
/// Displayed characters of a watch's id; the daemon accepts a prefix.
const ID_CHARS: usize = 7;

/// The forms of conditions, a line each.
fn conditions() -> String {
    let forms = FORMS.iter().map(|(_, form)| format!("\n  {form}"));
    format!("Conditions:{}", forms.collect::<String>())
}

#[derive(Debug, clap::Args)]
#[command(after_help = conditions())]
pub(super) struct Args {
    /// The conditions, one quoted text each: 'exit 4711' 'port 3000'; or a list: 'exit 4711 or 10m'
    #[arg(value_name = "CONDITION")]
    conditions: Vec<String>,
    /// Wait until all conditions are met, not only one
    #[arg(long, requires = "conditions")]
    all: bool,
    /// A note for the notification
    #[arg(long, value_name = "TEXT", requires = "conditions")]
    note: Option<String>,
    /// The priority of the notification; `critical` is not for an agent [default: high]
    #[arg(long, requires = "conditions", value_parser = PossibleValuesParser::new(Priority::words()))]
    priority: Option<String>,
    /// End a watch: its id as listed
    #[arg(long, value_name = "ID", conflicts_with = "conditions")]
    cancel: Option<String>,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Debug, clap::Args)]
#[command(after_help = conditions())]
pub(super) struct RemindArgs {
    /// When, a condition: `in 20m`, `in 3 turns`, `at 14:30`; or the first of several: `tool:Bash or 10m`
    #[arg(value_name = "WHEN")]
    when: String,
    /// The text
    #[arg(value_name = "TEXT")]
    text: String,
    /// The kind of reminder
    #[arg(long, value_parser = PossibleValuesParser::new(ReminderKind::words()))]
    kind: Option<String>,
    /// The priority of the notification; `critical` is not for an agent [default: high]
    #[arg(long, value_parser = PossibleValuesParser::new(Priority::words()))]
    priority: Option<String>,
    #[command(flatten)]
    whose: Whose,
}

#[derive(Debug, clap::Args)]
struct Whose {
    /// Longest wait, such as 20m [default: 1h, or a minute after the last given time]
    #[arg(long, value_name = "DURATION")]
    expires: Option<String>,
    /// The session that is notified, as in `aside sessions` [default: the one this runs in]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The folder whose sessions are notified [default: the current one, outside of a session]
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    workspace: Option<String>,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    if let Some(id) = &args.cancel {
        return cancel(id, context);
    }
    if args.conditions.is_empty() {
        return list(&args.whose, context);
    }
    let needs = if args.all { "all" } else { "any" };
    let own = [
        ("conditions", Some(json!(args.conditions))),
        ("needs", Some(needs.into())),
        ("note", args.note.clone().map(Value::from)),
        ("priority", args.priority.clone().map(Value::from)),
    ];
    set("set the watch", own, &args.whose, context)
}

pub(super) fn remind(args: &RemindArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let own = [
        ("conditions", Some(json!([args.when]))),
        ("note", Some(json!(args.text))),
        ("kind", args.kind.clone().map(Value::from)),
        ("priority", args.priority.clone().map(Value::from)),
    ];
    set("set the reminder", own, &args.whose, context)
}

fn set(
    doing: &'static str,
    [first, second, third, fourth]: [(&str, Option<Value>); 4],
    whose: &Whose,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let session = whose.session.as_deref().map(|text| ids::addressee(text, context)).transpose()?;
    let fields = object([
        first,
        second,
        third,
        fourth,
        ("session", session.map(Value::from)),
        ("workspace", whose.workspace.as_deref().map(absolute_folder).map(Value::from)),
        ("cwd", workspace_or_current(None).map(Value::from)),
        ("expires", whose.expires.clone().map(Value::from)),
    ]);
    let body = context.ask(doing, "POST", PATH, Some(&fields))?;
    if whose.json {
        return context.print_json(doing, &body);
    }
    let answer: WatchAnswer = parse(doing, &body)?;
    let text = match &answer.watch {
        Some(watch) => {
            let ends = context.terminal.moment(&watch.expires_at);
            let for_whom = for_whom(watch, &Names::ask(context), context);
            let id = short(&watch.id);
            let done = context.terminal.paint(Tone::Good, "watching");
            format!("{done} {id} for {for_whom}, ends {ends}\n")
        }
        None => {
            let so = answer.already.iter().map(|condition| {
                let state = condition.state.as_deref().unwrap_or("it is true");
                format!("already: {} ({})\n", one_line(&condition.text), one_line(state))
            });
            so.collect()
        }
    };
    context.print(&text)
}

fn cancel(id: &str, context: &mut Context<'_>) -> Result<(), CliError> {
    context.ask("end the watch", "DELETE", &format!("{PATH}/{}", percent_encode(id)), None)?;
    context.print(&format!("ended {}\n", one_line(id)))
}

fn list(whose: &Whose, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "list the watches";
    let session = whose.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    let path = with_query(PATH, &[("session", session.as_deref())]);
    let body = context.ask(doing, "GET", &path, None)?;
    if whose.json {
        return context.print_json(doing, &body);
    }
    let WatchList { watches } = parse(doing, &body)?;
    let names = Names::ask(context);
    let mut table = Table::new(["WATCH", "FOR", "ENDS", "WAITS FOR"]);
    for watch in &watches {
        table.row([
            Cell::plain(&short(&watch.id)),
            Cell::plain(&for_whom(watch, &names, context)),
            Cell::dim(&context.terminal.moment(&watch.expires_at)),
            Cell::plain(&waits_for(watch)),
        ]);
    }
    let text = if table.is_empty() { "no watches\n".to_owned() } else { table.text(&context.terminal) };
    context.print(&text)
}

fn short(id: &str) -> String {
    one_line(&id.chars().take(ID_CHARS).collect::<String>())
}

fn for_whom(watch: &WatchView, names: &Names, context: &Context<'_>) -> String {
    match (&watch.session, &watch.workspace) {
        (Some(session), _) => names.name(session),
        (None, Some(folder)) => context.terminal.folder(folder),
        (None, None) => "all".to_owned(),
    }
}

/// Its conditions, met ones in parentheses, and its note.
fn waits_for(watch: &WatchView) -> String {
    let text = |condition: &ConditionView| match &condition.state {
        Some(_) => format!("({})", condition.text),
        None => condition.text.clone(),
    };
    let joint = match watch.needs {
        Needs::All => " and ",
        Needs::Any => " or ",
    };
    let conditions = watch.conditions.iter().map(text).collect::<Vec<_>>().join(joint);
    let note = watch.note.as_deref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("{conditions}{note}")
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn watch_is_set_for_the_current_folder() {
        let body = r#"{"watch":{"id":"w5f0c2e81b7a94d36","conditions":[{"text":"exit 4711"}],"needs":"any","set_at":"2026-11-21T12:30:00Z",
            "expires_at":"2026-11-21T13:30:00Z","workspace":"/home/u/work/shop"}}"#;
        let daemon = FakeDaemon::answering(&[
            &format!("HTTP/1.1 201 Created\r\ncontent-length: {}\r\n\r\n{body}", body.len()),
            "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"sessions\":[]}",
        ]);
        let said = run_against(&daemon, &["watch", "exit 4711", "in 20m", "--all", "--note", "go on"]);
        assert!(
            said.as_deref()
                .is_ok_and(|said| said.starts_with("watching w5f0c2e for ~/work/shop, ends in 1h00m")),
            "{said:?}"
        );
        let request = &daemon.requests()[0];
        assert!(request.starts_with("POST /v1/watches HTTP/1.1\r\n"), "{request}");
        assert!(
            request.contains(r#""conditions":["exit 4711","in 20m"],"needs":"all","note":"go on","cwd":"/"#)
        );
    }

    #[test]
    fn already_true_condition_is_reported() {
        let body = r#"{"already":[{"text":"port 3000","state":"a process listens"}]}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let said = run_against(&daemon, &["watch", "port 3000"]);
        assert_eq!(said.as_deref(), Ok("already: port 3000 (a process listens)\n"));
    }

    #[test]
    fn open_watches_are_listed_and_ended() {
        let body = r#"{"watches":[{"id":"w5f0c2e81b7a94d36","conditions":[{"text":"exit 4711","state":"it has ended"},{"text":"port 3000"}],
            "needs":"all","note":"go on","set_at":"2026-11-21T12:30:00Z","expires_at":"2026-11-21T12:29:30Z","session":"s1"}]}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let expected = "WATCH    FOR  ENDS     WAITS FOR
w5f0c2e  s1   30s ago  (exit 4711) and port 3000: go on
";
        assert_eq!(run_against(&daemon, &["watch"]).as_deref(), Ok(expected));
        let daemon = FakeDaemon::answering(&["HTTP/1.1 204 No Content\r\n\r\n"]);
        assert_eq!(run_against(&daemon, &["watch", "--cancel", "w5f0"]).as_deref(), Ok("ended w5f0\n"));
        assert!(daemon.requests()[0].starts_with("DELETE /v1/watches/w5f0 HTTP/1.1\r\n"));
    }

    #[test]
    fn reminder_is_a_watch_with_time_and_kind() {
        let body = r#"{"error":{"field":"conditions[0]","message":"a duration has its unit"}}"#;
        let daemon = FakeDaemon::answering_json(400, body);
        let said = run_against(&daemon, &["remind", "in 20", "Push.", "--kind", "checkpoint"]);
        assert_eq!(said, Err("set the reminder: conditions[0]: a duration has its unit".to_owned()));
        let request = &daemon.requests()[0];
        assert!(
            request.contains(r#"{"conditions":["in 20"],"note":"Push.","kind":"checkpoint","cwd":"#),
            "{request}"
        );
        assert!(run_against(&daemon, &["remind", "in 20m", "x", "--kind", "remindr"]).is_err());
    }
}
