//! `aside silence`: what a user suppresses for a time.

use hook::client::percent_encode;
use serde_json::{Value, json};

use super::{
    CliError, Context, absolute_folder,
    configuration::{Configuration, doubts},
    context::{object, with_query},
    ids, parse,
    table::{Cell, Table},
    terminal::{Tone, one_line},
};
use crate::{
    api::wire::{
        history::{NotificationPage, NotificationView},
        silences::{SilenceList, SilenceView},
    },
    config::lints::matched::Matched,
};

const PATH: &str = "/v1/silences";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Those too that ended in the last 7 days
    #[arg(long)]
    all: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Suppress what all of these match, for a time
    Add(Box<Add>),
    /// Suppress more of what was delivered last: its subscriber, for events with the same key
    Last(Last),
    /// Let a silence end later
    Extend(Extend),
    /// End silences now; what they hold is released
    Expire(Expire),
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("matchers").required(true).multiple(true)))]
struct Add {
    /// A subscriber, as in `aside subscribers`; '*' for all
    #[arg(long, value_name = "ID", group = "matchers")]
    subscriber: Option<String>,
    /// Events of these types
    #[arg(long = "type", value_name = "PATTERN", group = "matchers")]
    types: Vec<String>,
    /// Events of this source
    #[arg(long, value_name = "NAME", group = "matchers")]
    source: Option<String>,
    /// Events for which this is true: "payload.zone == 'eu'"
    #[arg(long = "where", value_name = "EXPR", group = "matchers")]
    condition: Option<String>,
    /// Only in this session, as in `aside sessions`
    #[arg(long, value_name = "ID", group = "matchers")]
    session: Option<String>,
    /// Only in the sessions of this folder
    #[arg(long, value_name = "DIR", group = "matchers", conflicts_with = "session")]
    workspace: Option<String>,
    /// How long, at most 30 days
    #[arg(long = "for", value_name = "DURATION", default_value = "1h", conflicts_with = "until")]
    lasts: String,
    /// When it ends, such as 2026-11-28T18:00:00Z
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
    /// Critical ones too; those of core subscribers pass all the same
    #[arg(long)]
    critical: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
struct Last {
    /// How long, at most 30 days
    #[arg(long = "for", value_name = "DURATION", default_value = "1h")]
    lasts: String,
    /// Why
    #[arg(long, value_name = "TEXT")]
    comment: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Extend {
    /// The silence
    #[arg(value_name = "ID")]
    id: String,
    /// How long from now
    #[arg(long = "for", value_name = "DURATION")]
    lasts: String,
}

#[derive(Debug, clap::Args)]
struct Expire {
    /// The silences
    #[arg(value_name = "ID", required_unless_present = "all")]
    ids: Vec<String>,
    /// All in force
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    match &args.action {
        None => list(&args.list, context),
        Some(Action::Add(add)) => self::add(add, context),
        Some(Action::Last(last)) => self::last(last, context),
        Some(Action::Extend(extend)) => self::extend(extend, context),
        Some(Action::Expire(expire)) => self::expire(expire, context),
    }
}

fn add(args: &Add, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "silence it";
    let session = args.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let lasts = args.until.is_none().then(|| args.lasts.clone());
    let body = object([
        ("subscriber", text(&args.subscriber)),
        ("types", (!args.types.is_empty()).then(|| json!(args.types))),
        ("source", text(&args.source)),
        ("where", text(&args.condition)),
        ("session", session.map(Value::from)),
        ("workspace", args.workspace.as_deref().map(absolute_folder).map(Value::from)),
        ("critical", args.critical.then(|| json!(true))),
        ("for", lasts.map(Value::from)),
        ("until", text(&args.until)),
        ("comment", text(&args.comment)),
        ("by", std::env::var("USER").ok().filter(|user| !user.is_empty()).map(Value::from)),
    ]);
    let answer = context.ask(doing, "POST", PATH, Some(&body))?;
    if args.json {
        return context.print_json(doing, &answer);
    }
    print_made(&parse(doing, &answer)?, context)?;
    let Add { subscriber, types, condition, .. } = args;
    let matched = Matched { subscriber: subscriber.as_deref(), types, condition: condition.as_deref() };
    context.print(&doubts(matched, context))
}

/// Most delivered notifications that are looked through.
const LOOKED_THROUGH: usize = 100;
/// The keys of a subscriber that tell its notifications apart, the best first.
const KEYS: [&str; 4] = ["limits.supersede_key", "limits.equal", "batching.group_by", "batching.dedupe_key"];

fn last(args: &Last, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "silence it";
    let page: NotificationPage = context.get(doing, &format!("/v1/notifications?limit={LOOKED_THROUGH}"))?;
    let is_delivered = |one: &&NotificationView| {
        one.deliveries.iter().any(|delivery| matches!(&*delivery.state, "injected" | "confirmed"))
    };
    let Some(newest) = page.notifications.iter().find(is_delivered) else {
        return Err(CliError::Usage("nothing was delivered yet".to_owned()));
    };
    let condition = match newest.events.last() {
        Some(event) => condition(&newest.subscriber, *event, context)?,
        None => None,
    };
    let body = object([
        ("subscriber", Some(json!(newest.subscriber))),
        ("where", condition.map(Value::from)),
        ("for", Some(json!(args.lasts))),
        ("comment", args.comment.clone().map(Value::from)),
        ("by", std::env::var("USER").ok().filter(|user| !user.is_empty()).map(Value::from)),
    ]);
    let answer = context.ask(doing, "POST", PATH, Some(&body))?;
    print_made(&parse(doing, &answer)?, context)
}

/// The condition that an event has the same key; `None` if its subscriber has none in the payload.
fn condition(subscriber: &str, event: u64, context: &Context<'_>) -> Result<Option<String>, CliError> {
    let Ok(one) = Configuration::read(context)?.subscriber(subscriber) else { return Ok(None) };
    let key = KEYS.into_iter().find_map(|name| one.keys.iter().find(|key| key.key == name));
    let Some(key) = key else { return Ok(None) };
    let found: Value = context.get("silence it", &format!("/v1/events/{event}"))?;
    let is_field = |field: &&str| field.starts_with("payload.") && !field.contains('|');
    let equal = key.value.trim_matches('"').split(':').filter(is_field).filter_map(|field| {
        let pointer = format!("/event/{}", field.replace('.', "/"));
        let value = found.pointer(&pointer).filter(|value| !value.is_object() && !value.is_array())?;
        Some(format!("{field} == {value}"))
    });
    let equal: Vec<String> = equal.collect();
    Ok((!equal.is_empty()).then(|| equal.join(" and ")))
}

/// Prints a silence that was made, and what it concerns now.
fn print_made(made: &SilenceView, context: &mut Context<'_>) -> Result<(), CliError> {
    let until = context.terminal.moment(&made.until);
    let head = format!("{} silences {}, ends {until}", one_line(&made.id), one_line(&made.suppresses));
    let passes = if made.matchers.critical { "" } else { "; critical ones pass" };
    let now = format!("now: {} pending and {} in open batches{passes}", made.pending, made.rows);
    let (head, now) = (context.terminal.wrap(&head, 0, 2), context.terminal.wrap(&now, 2, 4));
    context.print(&format!("{head}\n  {now}\n"))
}

fn extend(args: &Extend, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "extend the silence";
    let silences = all(doing, false, context)?;
    let Some(one) = silences.iter().find(|one| one.id == args.id) else {
        let message = format!("no silence `{}` is in force; `aside silence` lists them", one_line(&args.id));
        return Err(CliError::Usage(message));
    };
    let mut body = serde_json::to_value(&one.matchers).unwrap_or_default();
    if let Value::Object(fields) = &mut body {
        fields.insert("id".to_owned(), json!(one.id));
        fields.insert("extend".to_owned(), json!(true));
        fields.insert("for".to_owned(), json!(args.lasts));
        fields.insert("by".to_owned(), json!(one.by));
    }
    let answer = context.ask(doing, "POST", PATH, Some(&body))?;
    let made: SilenceView = parse(doing, &answer)?;
    let until = context.terminal.moment(&made.until);
    context.print(&format!("{} ends {until}\n", one_line(&made.id)))
}

fn expire(args: &Expire, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "end the silence";
    let ids = match args.all {
        true => all(doing, false, context)?.into_iter().map(|one| one.id).collect(),
        false => args.ids.clone(),
    };
    for id in ids {
        context.ask(doing, "DELETE", &format!("{PATH}/{}", percent_encode(&id)), None)?;
        context.print(&format!("ended {}\n", one_line(&id)))?;
    }
    Ok(())
}

fn all(
    doing: &'static str,
    with_ended: bool,
    context: &mut Context<'_>,
) -> Result<Vec<SilenceView>, CliError> {
    let path = with_query(PATH, &[("all", with_ended.then_some("true"))]);
    context.get::<SilenceList>(doing, &path).map(|list| list.silences)
}

fn list(args: &List, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "list the silences";
    if args.json {
        let path = with_query(PATH, &[("all", args.all.then_some("true"))]);
        let body = context.ask(doing, "GET", &path, None)?;
        return context.print_json(doing, &body);
    }
    let mut table = Table::new(["ID", "ENDS", "BY", "HELD", "ENDED", "WHAT"]);
    for silence in all(doing, args.all, context)? {
        let comment =
            if silence.comment.is_empty() { String::new() } else { format!(": {}", silence.comment) };
        let ends = silence.ended_at.as_ref().unwrap_or(&silence.until);
        let ends = Cell::toned(
            if silence.ended_at.is_some() { Tone::Dim } else { Tone::Plain },
            &context.terminal.moment(ends),
        );
        table.row([
            Cell::plain(&silence.id),
            ends,
            Cell::plain(&silence.by),
            Cell::plain(&silence.held.to_string()),
            Cell::plain(&silence.ended.to_string()),
            Cell::plain(&format!("{}{comment}", silence.suppresses)),
        ]);
    }
    let text = if table.is_empty() { "no silences\n".to_owned() } else { table.text(&context.terminal) };
    context.print(&text)
}
