//! `aside inbox`: pending notifications of sessions, and the user's decisions about them.

pub(super) mod shown;

use std::mem;

use dialoguer::{Select, console::Term, theme::SimpleTheme};
use hook::client::percent_encode;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use self::shown::{Gathered, asked, collecting, taken_up};
use super::{
    CliError, Context,
    context::{object, with_query},
    ids::{self, Names, ShortIds},
    terminal::{Tone, one_line},
    why::rules::Rules,
};
use crate::api::wire::{
    ErrorView,
    inbox::{InboxList, WaitingView},
};

const DOING: &str = "list the pending notifications";

#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct Args {
    #[command(subcommand)]
    decision: Option<Decision>,
    #[command(flatten)]
    list: List,
}

#[derive(Debug, clap::Args)]
struct List {
    /// Only what is pending for this session, as in `aside sessions`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Print the whole list, also at a terminal, without the selection
    #[arg(long)]
    list: bool,
    /// Print the whole list with the texts for the agent
    #[arg(long)]
    text: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Decision {
    /// Dismiss a notification: it is not delivered
    Dismiss(Which),
    /// Hand a notification that waits for you to the agent; an idle agent is woken
    Discuss(Which),
    /// Answer a delivered notification: it is not repeated
    Acknowledge(Answered),
    /// The same, and mark it as taken up
    Investigate(Answered),
    /// Hold a notification for a time, at most 24 hours and three times
    Snooze(Snoozed),
}

#[derive(Debug, clap::Args)]
struct Answered {
    /// The notification, as in `aside history --notifications`, or a prefix of its id; `last` is the
    /// newest
    #[arg(value_name = "ID")]
    id: String,
}

#[derive(Debug, clap::Args)]
struct Snoozed {
    #[command(flatten)]
    which: Answered,
    /// How long
    #[arg(long = "for", value_name = "DURATION", default_value = "10m")]
    lasts: String,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    match &args.decision {
        None => list(&args.list, context),
        Some(Decision::Dismiss(which)) => dismiss(which, context),
        Some(Decision::Discuss(which)) => discuss(which, context),
        Some(Decision::Acknowledge(which)) => answer("acknowledge", &which.id, None, context),
        Some(Decision::Investigate(which)) => answer("investigate", &which.id, None, context),
        Some(Decision::Snooze(Snoozed { which, lasts })) => answer("snooze", &which.id, Some(lasts), context),
    }
}

/// Lets the user pick from the pending notifications, or prints them.
fn list(args: &List, context: &mut Context<'_>) -> Result<(), CliError> {
    let session = args.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    if args.json {
        let answer = all_pages(session.as_deref(), context)?;
        return context.print(&format!("{answer}\n"));
    }
    if context.terminal.is_interactive && !args.list && !args.text {
        return pick_each(session.as_deref(), context);
    }
    let names = Names::ask(context);
    let (mut all, mut open, mut taken, mut batches) = (Gathered::default(), 0, Vec::new(), 0);
    each_page(session.as_deref(), context, |page: InboxList, _| {
        let InboxList { notifications, taken_up, questions, batches_open, next } = page;
        notifications.into_iter().for_each(|one| all.add(one));
        taken.extend(taken_up);
        (open, batches) = (questions, batches_open);
        Ok(next)
    })?;
    let ids = ShortIds::of_notifications(all.notifications.iter().map(|(one, _)| &*one.id));
    let (terminal, rules) = (&context.terminal, Rules::new(context));
    let shown = |(one, sessions): &(WaitingView, Vec<String>)| {
        let text = if args.text { one.text_lines(terminal) } else { String::new() };
        one.shown(sessions, &ids.short(&one.id), &names, &rules, terminal) + &text
    };
    let text: String = all.notifications.iter().map(shown).collect();
    let text = text + &taken_up(&taken, &names, terminal) + &asked(open);
    context.print(&(or_none(text) + &collecting(batches)))
}

/// What is pending, or that nothing is.
fn or_none(text: String) -> String {
    if text.is_empty() { "no pending notifications\n".to_owned() } else { text }
}

/// The daemon's answers as one: the last page, with the notifications of all.
fn all_pages(session: Option<&str>, context: &mut Context<'_>) -> Result<Value, CliError> {
    let (mut all, mut last): (Vec<Value>, _) = (Vec::new(), Map::new());
    let mut taken_up = None;
    each_page(session, context, |mut page: Map<String, Value>, _| {
        if let Some(Value::Array(own)) = page.get_mut("notifications") {
            all.append(own);
        }
        taken_up = taken_up.take().or_else(|| page.remove("taken_up"));
        let next = page.remove("next").and_then(|next| next.as_str().map(str::to_owned));
        last = page;
        Ok(next)
    })?;
    last.insert("notifications".to_owned(), all.into());
    last.extend(taken_up.map(|taken| ("taken_up".to_owned(), taken)));
    Ok(last.into())
}

/// Passes each page to a callback, which returns the start of the next one.
fn each_page<'c, P: DeserializeOwned>(
    session: Option<&str>,
    context: &mut Context<'c>,
    mut take: impl FnMut(P, &mut Context<'c>) -> Result<Option<String>, CliError>,
) -> Result<(), CliError> {
    let mut from: Option<String> = None;
    loop {
        let page = context.get(DOING, &ids::inbox_page(session, from.as_deref()))?;
        from = take(page, context)?;
        if from.is_none() {
            return Ok(());
        }
    }
}

/// The notification that a decision is about.
#[derive(Debug, clap::Args)]
struct Which {
    /// The notification, as in `aside inbox`, or a prefix of its id; `last` is the newest
    id: String,
    /// Only in the queue of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
}

fn dismiss(which: &Which, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "dismiss the notification";
    let id = match decide(doing, "dismiss", which, context) {
        // It may be delivered already.
        Err(refused @ CliError::Refused { .. }) => {
            let Ok(Some(id)) = ids::of_history(&which.id, context) else { return Err(refused) };
            let path = format!("/v1/notifications/{}/respond", percent_encode(&id));
            let answered = context.ask(doing, "POST", &path, Some(&json!({ "action": "dismiss" })));
            answered.map_err(|_| refused)?;
            id
        }
        done => done?,
    };
    confirm("dismissed", &id, context)
}

fn discuss(which: &Which, context: &mut Context<'_>) -> Result<(), CliError> {
    let id = decide("hand the notification to the agent", "discuss", which, context)?;
    confirm("handed to the agent:", &id, context)
}

/// Answers a notification.
fn answer(action: &str, text: &str, lasts: Option<&str>, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "answer the notification";
    let id = ids::of_history(text, context)?.unwrap_or_else(|| text.to_owned());
    let body = object([
        ("action", Some(json!(action))),
        ("for", lasts.map(Value::from)),
        ("by", std::env::var("USER").ok().filter(|user| !user.is_empty()).map(Value::from)),
    ]);
    let path = format!("/v1/notifications/{}/respond", percent_encode(&id));
    context.ask(doing, "POST", &path, Some(&body))?;
    let done = match action {
        "acknowledge" => "acknowledged",
        "investigate" => "taken up:",
        _ => "snoozed",
    };
    confirm(done, &id, context)
}

/// Prints the completed action.
fn confirm(done: &str, id: &str, context: &mut Context<'_>) -> Result<(), CliError> {
    let done = context.terminal.paint(Tone::Good, done);
    context.print(&format!("{done} {}\n", one_line(id)))
}

/// Sends the decision; returns the notification's whole id.
fn decide(doing: &'static str, verb: &str, which: &Which, context: &Context<'_>) -> Result<String, CliError> {
    let session = which.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    let send = |id: &str| {
        let path = format!("/v1/notifications/{}/{verb}", percent_encode(id));
        let path = with_query(&path, &[("session", session.as_deref())]);
        context.ask(doing, "POST", &path, None).map(drop)
    };
    let nothing = || CliError::Refused {
        doing,
        refusal: ErrorView { field: None, message: "no pending notifications".to_owned() },
    };
    if which.id == ids::LAST {
        let newest = ids::waiting(&which.id, session.as_deref(), context)?.ok_or_else(nothing)?;
        return send(&newest).map(|()| newest);
    }
    match send(&which.id) {
        Err(refused @ CliError::Refused { .. }) => {
            match ids::waiting(&which.id, session.as_deref(), context)?.filter(|id| *id != which.id) {
                Some(id) => send(&id).map(|()| id),
                None => Err(refused),
            }
        }
        done => done.map(|()| which.id.clone()),
    }
}

/// An action for a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Leave,
    Dismiss,
    Discuss,
    /// Print its text, and choose again.
    Text,
}

impl Choice {
    fn of(waiting: &WaitingView) -> Vec<Self> {
        let is_for_user = waiting.waits_for == WaitingView::USER;
        [Some(Self::Leave), is_for_user.then_some(Self::Discuss), Some(Self::Dismiss), Some(Self::Text)]
            .into_iter()
            .flatten()
            .collect()
    }

    const fn shown(self) -> &'static str {
        match self {
            Self::Leave => "keep it",
            Self::Dismiss => "dismiss it: the agent is not notified",
            Self::Discuss => "hand it to the agent",
            Self::Text => "show the text for the agent",
        }
    }
}

/// Prompts until nothing is pending or nothing is picked.
fn pick_each(session: Option<&str>, context: &mut Context<'_>) -> Result<(), CliError> {
    let (mut at, mut is_first) = (0, true);
    loop {
        let page = ids::inbox_page(session, None);
        let InboxList { notifications, taken_up: taken, questions, batches_open, .. } =
            context.get(DOING, &page)?;
        let names = Names::ask(context);
        let taken = taken_up(&taken, &names, &context.terminal);
        if notifications.is_empty() {
            return context.print(&(or_none(taken + &asked(questions)) + &collecting(batches_open)));
        }
        if mem::take(&mut is_first) {
            context.print(&taken)?;
        }
        let ids = ShortIds::of_notifications(notifications.iter().map(|one| &*one.id));
        let line = |one: &WaitingView| {
            let shown = one.head(&ids.short(&one.id), &names, &context.terminal);
            // The list puts two columns before each line; the last column stays free.
            context.terminal.cut_after(3, &one_line(&format!("{shown}: {}", one.sentence))).into_owned()
        };
        let lines: Vec<String> = notifications.iter().map(line).collect();
        let Some(picked) = pick("pending notifications (Esc quits)", &lines, at)? else { return Ok(()) };
        let Some(one) = notifications.get(picked) else { return Ok(()) };
        let shown = one.shown(&[], &ids.short(&one.id), &names, &Rules::new(context), &context.terminal);
        context.print(&shown)?;
        let which = || Which { id: one.id.clone(), session: queue(one).map(str::to_owned) };
        match choose(one, context)? {
            Choice::Dismiss => dismiss(&which(), context)?,
            Choice::Discuss => discuss(&which(), context)?,
            Choice::Leave | Choice::Text => at = picked.saturating_add(1) % notifications.len(),
        }
    }
}

/// The session whose queue has it; a session that is not open yet has none.
fn queue(waiting: &WaitingView) -> Option<&str> {
    let has_queue = ![WaitingView::NEXT_SESSION, WaitingView::SINKS].contains(&waiting.waits_for.as_str());
    waiting.session.as_deref().filter(|_| has_queue)
}

/// What to do with a notification: never [`Choice::Text`], which prints the text and prompts again.
fn choose(one: &WaitingView, context: &mut Context<'_>) -> Result<Choice, CliError> {
    let choices = Choice::of(one);
    let words: Vec<&str> = choices.iter().map(|choice| choice.shown()).collect();
    loop {
        let chosen = pick("what to do with it?", &words, 0)?.and_then(|chosen| choices.get(chosen).copied());
        let chosen = chosen.unwrap_or(Choice::Leave);
        if chosen != Choice::Text {
            return Ok(chosen);
        }
        let text = one.text_lines(&context.terminal);
        context.print(&text)?;
    }
}

/// The index of the picked line, if any.
fn pick<T: std::fmt::Display>(prompt: &str, lines: &[T], at: usize) -> Result<Option<usize>, CliError> {
    let select = Select::with_theme(&SimpleTheme).with_prompt(prompt).items(lines).default(at).report(false);
    select.interact_on_opt(&Term::stdout()).map_err(CliError::Ask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn pending_notifications_are_shown_with_their_sentences() {
        let daemon = FakeDaemon::answering_paths(&[(
            "/v1/inbox?session=s%201",
            r#"{"notifications":[{"id":"n1","session":"s1","subscriber":"ci_check","priority":"high","waits_for":"user",
                "age_ms":125000,"sentence":"unit failed\u001b[31m on fix","text":"ci: a\u001b[31m\nb: 2"},
                {"id":"n2","workspace":"/w","subscriber":"ci_check","priority":"low","waits_for":"next_session","age_ms":0,"sentence":"c is 3","text":"c: 3"},
                {"id":"n3","subscriber":"ci_check","priority":"low","waits_for":"next_session","age_ms":0,"sentence":"c is 3","text":"c: 3"},
                {"id":"n4","session":"s9","subscriber":"ci_check","priority":"low","waits_for":"next_session","age_ms":0,"sentence":"c is 3","text":"c: 3"}],"questions":0}"#,
        )]);
        assert_eq!(
            run_against(&daemon, &["inbox", "--session", "s 1"]).as_deref(),
            Ok("n1  high ci_check, 2m ago, for the user of s1\n    unit failed on fix\n\
                n2  low ci_check, 0s ago, for the next session in /w\n    c is 3\n\
                n3  low ci_check, 0s ago, for the next session\n    c is 3\n\
                n4  low ci_check, 0s ago, for s9, which is not open\n    c is 3\n")
        );
        let with_text = run_against(&daemon, &["inbox", "--session", "s 1", "--text"]).expect("shown");
        let begin = "n1  high ci_check, 2m ago, for the user of s1\n    unit failed on fix\n      ci: a\n      b: 2\nn2  ";
        assert!(with_text.starts_with(begin), "{with_text}");
        let asked = daemon.requests();
        assert!(asked.last().expect("one").starts_with("GET /v1/inbox?session=s%201 HTTP/1.1\r\n"));
        let daemon = FakeDaemon::answering_json(200, r#"{"notifications":[],"questions":0}"#);
        assert_eq!(run_against(&daemon, &["inbox"]).as_deref(), Ok("no pending notifications\n"));
        let daemon =
            FakeDaemon::answering_json(200, r#"{"notifications":[],"questions":0,"batches_open":1}"#);
        let said = "no pending notifications\n1 open batch: events are collected for a notification\n";
        assert_eq!(run_against(&daemon, &["inbox"]).as_deref(), Ok(said));
        let daemon = FakeDaemon::answering_json(200, r#"{"notifications":[],"questions":2}"#);
        let said = "2 questions wait for your answer: aside answer\n";
        assert_eq!(run_against(&daemon, &["inbox"]).as_deref(), Ok(said));
    }

    #[test]
    fn a_notification_is_listed_once_with_its_sessions() {
        let waiting = |id: &str, session: &str, holds: &str| {
            format!(
                r#"{{"id":"{id}","session":"{session}","subscriber":"x","priority":"high","waits_for":"agent","age_ms":0,"sentence":"a is 1","holds":{holds}}}"#
            )
        };
        let held = r#"[{"kind":"silenced","cause":"s7f3a"}]"#;
        let first = [waiting("n1", "s1", "[]"), waiting("n2", "s1", "[]"), waiting("n1", "s2", "[]")];
        let second = [waiting("n1", "s3", "[]"), waiting("n1", "s4", held)];
        let pages = [
            ("/v1/inbox", format!(r#"{{"notifications":[{}],"questions":0,"next":"p"}}"#, first.join(","))),
            ("/v1/inbox?from=p", format!(r#"{{"notifications":[{}],"questions":0}}"#, second.join(","))),
        ];
        let pages = pages.each_ref().map(|(path, body)| (*path, &**body));
        let printed = run_against(&FakeDaemon::answering_paths(&pages), &["inbox"]).expect("printed");
        let heads: Vec<&str> = printed.lines().filter(|line| line.starts_with('n')).collect();
        let expected = [
            "n1  high x, 0s ago, for the agent of s1, s2, s3",
            "n2  high x, 0s ago, for the agent of s1",
            "n1  high x, 0s ago, for the agent of s4",
        ];
        assert_eq!(heads, expected, "{printed}");
    }

    #[test]
    fn all_pages_are_shown() {
        let waiting = |id: &str| {
            format!(
                r#"{{"id":"{id}","session":"s1","subscriber":"x","priority":"high","waits_for":"agent","age_ms":0,"text":"a: 1","new":7}}"#
            )
        };
        let first = format!(r#"{{"notifications":[{}],"questions":0,"next":"1:s 1"}}"#, waiting("n1"));
        let second = format!(r#"{{"notifications":[{}],"questions":1,"new":8}}"#, waiting("n2"));
        let paths = [
            ("/v1/inbox", &*first),
            ("/v1/inbox?from=1%3As%201", &*second),
            ("/v1/inbox?session=s1", &*first),
            ("/v1/inbox?session=s1&from=1%3As%201", &*second),
        ];
        let daemon = FakeDaemon::answering_paths(&paths);
        for args in [&["inbox"][..], &["inbox", "--session", "s1"]] {
            let printed = run_against(&daemon, args).expect("printed");
            assert!(printed.starts_with("n1  high") && printed.contains("\nn2  high"), "{printed}");
        }
        let printed = run_against(&daemon, &["inbox", "--json"]).expect("printed");
        let found: serde_json::Value = serde_json::from_str(&printed).expect("one object");
        let expected =
            format!(r#"{{"notifications":[{},{}],"questions":1,"new":8}}"#, waiting("n1"), waiting("n2"));
        assert_eq!(found, serde_json::from_str::<serde_json::Value>(&expected).expect("one object"));
    }

    #[test]
    fn a_decision_names_its_notification() {
        for (verb, session, done) in
            [("dismiss", None, "dismissed n1\n"), ("discuss", Some("s1"), "handed to the agent: n1\n")]
        {
            let path = format!("POST /v1/notifications/n1/{verb}");
            let daemon = FakeDaemon::answering_paths(&[(
                &format!("{path}{}", session.map(|_| "?session=s1").unwrap_or_default()),
                "",
            )]);
            let mut args = vec!["inbox", verb, "n1"];
            args.extend(session.iter().flat_map(|session| ["--session", *session]));
            assert_eq!(run_against(&daemon, &args).as_deref(), Ok(done));
            let expected = format!(
                "POST /v1/notifications/n1/{verb}{} HTTP/1.1\r\n",
                session.map(|session| format!("?session={session}")).unwrap_or_default()
            );
            let asked = daemon.requests();
            assert!(asked.last().expect("one").starts_with(&expected), "{asked:?}");
        }
    }

    #[test]
    fn inbox_decision_accepts_id_prefix_or_last() {
        let waiting = [("na71da67fe2fd", 90), ("na71ffffffff0", 20), ("nb02da67fe2fd", 50)]
            .map(|(id, age_ms)| WaitingView { id: id.to_owned(), age_ms, ..WaitingView::default() });
        let list = InboxList { notifications: waiting.to_vec(), ..InboxList::default() };
        let list = serde_json::to_string(&list).expect("text and numbers");
        for (text, asked_for) in [
            ("na71d", Ok("na71da67fe2fd")),
            ("last", Ok("na71ffffffff0")),
            ("na71", Err("identify `na71`: several ids begin with it: na71da67fe2fd, na71ffffffff0")),
            ("nc02", Err("dismiss the notification: there is none")),
        ] {
            let done = format!("POST /v1/notifications/{}/dismiss", asked_for.unwrap_or("-"));
            let daemon = FakeDaemon::answering_paths(&[("/v1/inbox", &list), (&done, "")]);
            let said = run_against(&daemon, &["inbox", "dismiss", text]);
            let expected = asked_for.map(|id| format!("dismissed {id}\n")).map_err(str::to_owned);
            assert_eq!(said, expected, "{text}");
        }
        let nothing = FakeDaemon::answering_paths(&[("/v1/inbox", r#"{"notifications":[],"questions":0}"#)]);
        let said = run_against(&nothing, &["inbox", "discuss", "last"]);
        assert_eq!(said, Err("hand the notification to the agent: no pending notifications".to_owned()));
    }

    #[test]
    fn a_session_not_open_yet_has_no_queue() {
        for (waits_for, expected) in [
            (WaitingView::AGENT, Some("s1")),
            (WaitingView::USER, Some("s1")),
            (WaitingView::NEXT_SESSION, None),
        ] {
            let session = Some("s1".to_owned());
            let waiting = WaitingView { session, waits_for: waits_for.to_owned(), ..WaitingView::default() };
            assert_eq!(queue(&waiting), expected, "{waits_for}");
        }
    }

    #[test]
    fn discuss_is_offered_only_for_user_notifications() {
        let waiting = |who: &str| WaitingView { waits_for: who.to_owned(), ..WaitingView::default() };
        assert_eq!(
            Choice::of(&waiting(WaitingView::USER)),
            [Choice::Leave, Choice::Discuss, Choice::Dismiss, Choice::Text]
        );
        assert_eq!(Choice::of(&waiting("agent")), [Choice::Leave, Choice::Dismiss, Choice::Text]);
    }
}
