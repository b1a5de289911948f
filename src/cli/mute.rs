//! `aside mute`, `unmute`, `disable`, `enable`: what the sessions of a user do not get.

use hook::client::percent_encode;
use serde_json::{Value, json};

use super::{
    CliError, Context, absolute_folder,
    configuration::doubts,
    context::object,
    ids, parse, sessions,
    terminal::{Terminal, one_line},
};
use crate::{
    api::wire::{
        settings::{OWN_USER, SettingsView, mute_of},
        silences::{SilenceList, SilenceView},
        views::SessionList,
    },
    config::lints::matched::Matched,
};
use engine::notification::SubscriberId;

/// Whose settings.
#[derive(Debug, clap::Args)]
struct User {
    /// The user, if sessions of several users report to this daemon [default: the one of --session,
    /// else the one who runs the daemon]
    #[arg(long, value_name = "USER")]
    user: Option<String>,
}

impl User {
    /// The user, without a session.
    fn name(&self) -> &str {
        self.user.as_deref().unwrap_or(OWN_USER)
    }

    /// The user of a session, unless one is named.
    fn of(
        &self,
        doing: &'static str,
        session: Option<&str>,
        context: &Context<'_>,
    ) -> Result<String, CliError> {
        let (None, Some(session)) = (&self.user, session) else { return Ok(self.name().to_owned()) };
        let list: SessionList = context.get(doing, sessions::PATH)?;
        let found = list.sessions.into_iter().find(|one| one.id == session);
        let user = found.and_then(|one| one.harness.user);
        Ok(user.as_deref().unwrap_or(OWN_USER).to_owned())
    }
}

#[derive(Debug, clap::Args)]
pub(super) struct MuteArgs {
    /// A subscriber, as in `aside subscribers`
    #[arg(long, value_name = "ID")]
    subscriber: Option<String>,
    /// Events of these types
    #[arg(long = "type", value_name = "PATTERN")]
    types: Vec<String>,
    /// Events of this source
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Events about this tool
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Events for which this is true: "payload.branch != 'main'"
    #[arg(long = "where", value_name = "EXPR")]
    condition: Option<String>,
    /// Only notifications below this priority
    #[arg(long, value_name = "PRIORITY")]
    below: Option<String>,
    /// Only in this session, as in `aside sessions`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only in the sessions of this folder
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    workspace: Option<String>,
    #[command(flatten)]
    user: User,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct UnmuteArgs {
    /// The numbers of the mutes, as in `aside mute`
    #[arg(value_name = "NUMBER", required_unless_present = "all")]
    numbers: Vec<usize>,
    /// All mutes
    #[arg(long, conflicts_with = "numbers")]
    all: bool,
    #[command(flatten)]
    user: User,
}

#[derive(Debug, clap::Args)]
pub(super) struct DisableArgs {
    /// The subscriber, as in `aside subscribers`
    #[arg(value_name = "ID")]
    id: String,
    /// Only for this time, by a silence
    #[arg(long = "for", value_name = "DURATION", conflicts_with = "user")]
    lasts: Option<String>,
    /// Only in this session, as in `aside sessions`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only in the sessions of this folder
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    workspace: Option<String>,
    #[command(flatten)]
    user: User,
}

#[derive(Debug, clap::Args)]
pub(super) struct EnableArgs {
    /// The subscriber
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    user: User,
}

pub(super) fn mute(args: &MuteArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = if args.has_matchers() { "mute it" } else { "read the settings" };
    if !args.has_matchers() {
        if args.json {
            let answer = context.ask(doing, "GET", &path(args.user.name()), None)?;
            return context.print_json(doing, &answer);
        }
        let view = current(doing, args.user.name(), context)?;
        return context.print(&shown(&view, &context.terminal));
    }
    let session = args.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    let user = args.user.of(doing, session.as_deref(), context)?;
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let own = object([
        ("subscriber", text(&args.subscriber)),
        ("types", (!args.types.is_empty()).then(|| json!(args.types))),
        ("source", text(&args.source)),
        ("tool", text(&args.tool)),
        ("where", text(&args.condition)),
        ("below", text(&args.below)),
        ("session", session.map(Value::from)),
        ("workspace", args.workspace.as_deref().map(absolute_folder).map(Value::from)),
    ]);
    let before = current(doing, &user, context)?;
    let mut body = body_of(&before);
    add(&mut body, "mute", own.clone());
    let answer = context.ask(doing, "PUT", &path(&user), Some(&body))?;
    if args.json {
        return context.print_json(doing, &answer);
    }
    let view: SettingsView = parse(doing, &answer)?;
    let (number, made) = view.find_mute(&own);
    let already = already(view.settings.mute.len() == before.settings.mute.len());
    let head =
        format!("{already}muted {}; undo it: aside unmute {number}{}", one_line(&made), with_user(&user));
    context.print(&format!("{}\n", context.terminal.wrap(&head, 0, 2)))?;
    let MuteArgs { subscriber, types, condition, .. } = args;
    let matched = Matched { subscriber: subscriber.as_deref(), types, condition: condition.as_deref() };
    context.print(&doubts(matched, context))
}

/// The word before what was done, if it was so before.
const fn already(was_so: bool) -> &'static str {
    if was_so { "already " } else { "" }
}

/// The option of a command for this user.
fn with_user(user: &str) -> String {
    if user == OWN_USER { String::new() } else { format!(" --user {}", one_line(user)) }
}

impl MuteArgs {
    fn has_matchers(&self) -> bool {
        let Self { subscriber, types, source, tool, condition, below, session, workspace, .. } = self;
        let texts = [subscriber, source, tool, condition, below, session, workspace];
        !types.is_empty() || texts.iter().any(|text| text.is_some())
    }
}

pub(super) fn unmute(args: &UnmuteArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "unmute it";
    let user = args.user.name();
    let mut view = current(doing, user, context)?;
    let count = view.settings.mute.len();
    if let Some(wrong) = args.numbers.iter().find(|number| **number == 0 || **number > count) {
        let message = format!("there is no mute {wrong}; `aside mute` lists {count}");
        return Err(CliError::Usage(message));
    }
    let mut number = 0;
    let mut ended = Vec::new();
    view.settings.mute.retain(|mute| {
        number += 1;
        let is_ended = args.all || args.numbers.contains(&number);
        if is_ended {
            ended.push(mute.to_string());
        }
        !is_ended
    });
    replace(doing, user, &view, context)?;
    for mute in ended {
        let line = format!("unmuted {}", one_line(&mute));
        context.print(&format!("{}\n", context.terminal.wrap(&line, 0, 2)))?;
    }
    Ok(())
}

pub(super) fn disable(args: &DisableArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "disable it";
    let session = args.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    let workspace = args.workspace.as_deref().map(absolute_folder);
    let id = one_line(&args.id);
    if let Some(lasts) = &args.lasts {
        let body = object([
            ("subscriber", Some(json!(args.id))),
            ("for", Some(json!(lasts))),
            ("session", session.map(Value::from)),
            ("workspace", workspace.map(Value::from)),
        ]);
        let answer = context.ask(doing, "POST", "/v1/silences", Some(&body))?;
        let made: SilenceView = parse(doing, &answer)?;
        let until = context.terminal.moment(&made.until);
        let line = format!("{} silences {id}, ends {until}; undo it: aside enable {id}", one_line(&made.id));
        return context.print(&format!("{}\n", context.terminal.wrap(&line, 0, 2)));
    }
    let user = args.user.of(doing, session.as_deref(), context)?;
    let before = current(doing, &user, context)?;
    let mut view = before.clone();
    let place = match (&session, &workspace) {
        (Some(session), _) => format!(" in session {}", one_line(session)),
        (None, Some(folder)) => format!(" in {}", one_line(folder)),
        (None, None) => String::new(),
    };
    let own = mute_of(&args.id, session.as_deref(), workspace.as_deref());
    if place.is_empty() {
        view.settings.disabled.insert(SubscriberId::new(&args.id));
    } else if !view.settings.mute.contains(&own) {
        view.settings.mute.push(own);
    }
    replace(doing, &user, &view, context)?;
    let already = already(view == before);
    let line = format!("{already}disabled {id}{place}; undo it: aside enable {id}{}", with_user(&user));
    context.print(&format!("{}\n", context.terminal.wrap(&line, 0, 2)))
}

pub(super) fn enable(args: &EnableArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "enable it";
    let id = one_line(&args.id);
    let user = args.user.name();
    let mut view = current(doing, user, context)?;
    let before = view.settings.clone();
    view.settings.disabled.remove(&SubscriberId::new(&args.id));
    view.settings.mute.retain(|mute| {
        let session = mute.session.as_ref().map(|session| session.as_str());
        *mute != mute_of(&args.id, session, mute.workspace.as_deref())
    });
    let silences: SilenceList = context.get(doing, "/v1/silences")?;
    let is_its = |one: &&SilenceView| {
        one.matchers.subscriber.as_ref().is_some_and(|own| own.as_str() == args.id)
            && one.matchers.types.is_empty()
            && one.matchers.source.is_none()
            && one.matchers.condition.is_none()
    };
    let ended: Vec<&SilenceView> = silences.silences.iter().filter(is_its).collect();
    for silence in &ended {
        context.ask(doing, "DELETE", &format!("/v1/silences/{}", percent_encode(&silence.id)), None)?;
    }
    if view.settings != before {
        replace(doing, user, &view, context)?;
    } else if ended.is_empty() {
        let message = format!("{id} is not disabled; aside subscribers {id} shows its state");
        return Err(CliError::Usage(message));
    }
    context.print(&format!("enabled {id}; it delivers what comes from now on\n"))
}

fn path(user: &str) -> String {
    let user = percent_encode(user);
    format!("/v1/users/{user}/settings")
}

fn current(doing: &'static str, user: &str, context: &Context<'_>) -> Result<SettingsView, CliError> {
    context.get(doing, &path(user))
}

/// The body of a request that sets what `view` has.
fn body_of(view: &SettingsView) -> Value {
    let mut body = json!({ "disabled": [], "mute": [] });
    if let (Value::Object(body), Ok(Value::Object(own))) = (&mut body, serde_json::to_value(&view.settings)) {
        body.extend(own);
    }
    body
}

fn add(body: &mut Value, list: &str, item: Value) {
    if let Some(items) = body.get_mut(list).and_then(Value::as_array_mut) {
        items.push(item);
    }
}

fn replace(
    doing: &'static str,
    user: &str,
    view: &SettingsView,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    context.ask(doing, "PUT", &path(user), Some(&body_of(view))).map(drop)
}

/// The settings, a line each.
fn shown(view: &SettingsView, terminal: &Terminal) -> String {
    let SettingsView { user: _, settings, configured } = view;
    let mut lines: Vec<String> = Vec::new();
    lines.extend((1..).zip(&settings.mute).map(|(number, mute)| format!("{number}  {mute}")));
    lines.extend(configured.iter().map(|mute| format!("-  {mute} (aside.toml)")));
    lines.extend(settings.disabled.iter().map(|id| format!("disabled {id}")));
    if !settings.quiet.is_empty() {
        lines.push(format!("quiet {}", settings.quiet));
    }
    lines.extend(settings.level.map(|level| format!("level {}", level.as_str())));
    if lines.is_empty() {
        return "nothing is muted or disabled\n".to_owned();
    }
    lines.iter().map(|line| format!("{}\n", terminal.wrap(&one_line(line), 0, 3))).collect()
}
