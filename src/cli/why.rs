//! `aside why`: what became of one event, notification or injection, in words on a page.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use super::{CliError, Context, failing, history::Projection, parse, table::one_line};
use crate::client::percent_encode;

const DOING: &str = "look it up";
/// What is said of what the history has no line of any more.
const FORGOTTEN: &str = "nobody knows any more: it is older than the history";
/// Width of a time to the millisecond; a whole second is written shorter.
const TIME_WIDTH: usize = 24;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The id of an event, a notification or an injection, or an event's position in the journal
    id: String,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct EventAnswer {
    event: Box<RawValue>,
    history: Vec<Line>,
    projection: Projection,
}

#[derive(Deserialize)]
struct NotificationAnswer {
    notification: Notification,
    events: Vec<Box<RawValue>>,
    history: Vec<Line>,
    projection: Projection,
}

#[derive(Deserialize)]
struct InjectionAnswer {
    injections: Vec<Injection>,
}

#[derive(Deserialize)]
struct Injection {
    id: String,
    session: String,
    timestamp: String,
    role: String,
    text: String,
    notifications: Vec<String>,
}

#[derive(Deserialize)]
struct Event {
    seq: u64,
    id: String,
    #[serde(rename = "type")]
    event_type: String,
    severity: String,
    source: String,
    timestamp: String,
    payload: Box<RawValue>,
}

#[derive(Deserialize)]
struct Notification {
    id: String,
    subscriber: String,
    priority: String,
    inject_at: String,
    tokens: u64,
    content: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Line {
    at: Option<String>,
    what: String,
    subscriber: Option<String>,
    notification: Option<String>,
    session: Option<String>,
    injection: Option<String>,
    by: Option<String>,
    reason: Option<String>,
    detail: Option<String>,
    events: Vec<u64>,
}

/// What the id names.
enum Found {
    Notification(Vec<u8>),
    Event(Vec<u8>),
    Injection(Vec<u8>),
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let found = look_up(&args.id, context)?;
    if args.json {
        let (Found::Notification(body) | Found::Event(body) | Found::Injection(body)) = &found;
        let answer: Value = parse(DOING, body)?;
        return context.print(&format!("{answer}\n"));
    }
    let text = match found {
        Found::Notification(body) => {
            let NotificationAnswer { notification, events, history, projection } = parse(DOING, &body)?;
            notification.text(&events)? + &became(&history, FORGOTTEN, context) + &projection.lag()
        }
        Found::Event(body) => {
            let EventAnswer { event, history, projection } = parse(DOING, &body)?;
            let event: Event = parse(DOING, event.get().as_bytes())?;
            let head = format!("event {}\n  {}\n", event.line(), one_line(event.payload.get()));
            let none = unknown(event.seq, projection.seq);
            head + &became(&history, none, context) + &projection.lag()
        }
        Found::Injection(body) => {
            let InjectionAnswer { injections } = parse(DOING, &body)?;
            let texts: Result<Vec<String>, CliError> =
                injections.iter().map(|injection| injection.text(context)).collect();
            texts?.join("\n")
        }
    };
    context.print(&text)
}

/// Asks for a notification, an event and an injection, in this order; the history may not be readable, then the journal may know an
/// event.
fn look_up(id: &str, context: &Context<'_>) -> Result<Found, CliError> {
    let name = percent_encode(id);
    let ask = |what: &str| context.ask(DOING, "GET", &format!("/v1/{what}/{name}"), None);
    let refused = match ask("notifications") {
        Err(CliError::Refused { .. }) => match ask("events") {
            Err(refused @ CliError::Refused { .. }) => refused,
            other => return other.map(Found::Event),
        },
        other => return other.map(Found::Notification),
    };
    match ask("injections") {
        Err(CliError::Refused { .. }) => Err(none(id, refused)),
        other => other.map(Found::Injection),
    }
}

/// What was written down, or that there is `none`, and what is still to come.
fn became(history: &[Line], none: &str, context: &Context<'_>) -> String {
    let mut text = "\nwhat became of it\n".to_owned();
    if history.is_empty() {
        text.push_str(&format!("  {none}\n"));
    }
    for line in history {
        let at = line.at.as_deref().unwrap_or("-");
        text.push_str(&format!("  {at:TIME_WIDTH$}  {}\n", one_line(&line.words())));
    }
    text.extend(history.last().and_then(Line::outlook));
    let failing = failing::lines(context).unwrap_or_default();
    let concerned: BTreeSet<&str> = history.iter().filter_map(|line| line.subscriber.as_deref()).collect();
    for line in concerned.into_iter().filter_map(|id| failing.get(id)).flatten() {
        text.push_str(&format!("\nfailing now: {line}\n"));
    }
    text
}

/// What is said of an event of which nothing is known, when the history has come to `projected`.
fn unknown(event: u64, projected: u64) -> &'static str {
    if projected < event { "not known yet: the history has not come to it" } else { FORGOTTEN }
}

/// Says that the name is of none of them; what else the daemon says stays.
fn none(id: &str, mut error: CliError) -> CliError {
    if let CliError::Refused { refusal, .. } = &mut error
        && refusal.message.starts_with("there is no event")
    {
        refusal.message = format!("there is no event, notification or injection `{id}`");
    }
    error
}

impl Injection {
    /// The text as it was given, and what became of each notification in it.
    fn text(&self, context: &Context<'_>) -> Result<String, CliError> {
        let Self { id, session, timestamp, role, .. } = self;
        let head = format!("injection {id}: given to session {session} at {timestamp}, role {role}");
        let mut text = one_line(&head) + "\n";
        for line in self.text.lines() {
            text.push_str(&format!("  {}\n", one_line(line)));
        }
        for notification in &self.notifications {
            let path = format!("/v1/notifications/{}", percent_encode(notification));
            let body = context.ask(DOING, "GET", &path, None)?;
            let NotificationAnswer { notification, history, .. } = parse(DOING, &body)?;
            text.push_str(&format!("\n{}", notification.head()));
            text.push_str(&became(&history, FORGOTTEN, context));
        }
        Ok(text)
    }
}

impl Event {
    fn line(&self) -> String {
        let Self { seq, id, event_type, severity, source, timestamp, .. } = self;
        one_line(&format!("{id} ({seq}): {event_type}, {severity}, from {source} at {timestamp}"))
    }
}

impl Notification {
    fn head(&self) -> String {
        let Self { id, subscriber, priority, inject_at, tokens, .. } = self;
        format!("notification {id}: {subscriber}, {priority}, {inject_at}, about {tokens} tokens\n")
    }

    fn text(&self, events: &[Box<RawValue>]) -> Result<String, CliError> {
        let mut text = self.head();
        for line in self.content.lines() {
            text.push_str(&format!("  {}\n", one_line(line)));
        }
        text.push_str("\nmade of\n");
        for event in events {
            let event: Event = parse(DOING, event.get().as_bytes())?;
            text.push_str(&format!("  {}\n", event.line()));
        }
        Ok(text)
    }
}

impl Line {
    fn words(&self) -> String {
        let of = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
        let (subscriber, notification) = (of(&self.subscriber), of(&self.notification));
        let session = of(&self.session);
        match self.what.as_str() {
            "unmatched" => "no subscriber asked for it".to_owned(),
            "held_back" if self.reason.as_deref() == Some("source_rate") => {
                "held back: its source was over its rate".to_owned()
            }
            "held_back" => "held back: its chain of causes is too long".to_owned(),
            "batched" => format!("waited in a batch of {subscriber}"),
            "event_ended" => format!("{subscriber} {}", self.end_of_event()),
            "created" => {
                let count = self.events.len();
                let events = if count == 1 { "event" } else { "events" };
                format!("{subscriber} made {notification} of {count} {events}")
            }
            "unclaimed" => format!("{notification} waits for a session: none that it concerns is open"),
            "queued" => format!("{notification} waits in session {session}"),
            "injected" => {
                let (injection, point) = (of(&self.injection), of(&self.by));
                let again = match self.detail.as_deref() {
                    None => "",
                    Some("context_lost") => ", once more, as the context that it was in is gone",
                    Some(_) => ", once more, as nothing showed that it had arrived",
                };
                format!(
                    "{notification} was given to session {session} at {point} in injection {injection}{again}"
                )
            }
            "confirmed" => {
                let how = match self.by.as_deref() {
                    Some("ack") => "the harness said so",
                    Some("seen") => "it stands in the transcript",
                    _ => "the session went on after it",
                };
                format!("{notification} arrived in session {session}: {how}")
            }
            "returned" => {
                format!("{notification} went back to the queue of session {session}: it did not arrive")
            }
            "recalled" => {
                format!(
                    "{notification} waits once more for session {session}: it still holds, and the context that it was in is gone"
                )
            }
            "notification_ended" => {
                let place = self.session.as_ref().map(|session| format!(" in session {session}"));
                format!("{notification} ended{}: {}", place.unwrap_or_default(), self.end_of_notification())
            }
            other => format!("{other} {}", of(&self.reason)),
        }
    }

    fn end_of_event(&self) -> String {
        let detail = self.detail.as_deref().unwrap_or_default();
        match self.reason.as_deref() {
            Some("filtered") if detail.contains(' ') => format!("did not take it: its {detail}"),
            Some("filtered") => format!("did not take it: its {detail} did not let it pass"),
            Some("duplicate") => format!("counted it as a repeat {detail}"),
            Some("over_rate") => {
                format!("was over its rate ({detail}) and counts it in its next notification")
            }
            Some("subscriber_off") => "is switched off".to_owned(),
            Some("superseded") => "has a newer one about the same state".to_owned(),
            Some("withdrawn") => "withdrew it: what it says was resolved".to_owned(),
            Some("resolves") => "withdraws what this resolves, if it is pending".to_owned(),
            Some(other) => format!("ended it: {other} {detail}").trim_end().to_owned(),
            None => "ended it".to_owned(),
        }
    }

    fn end_of_notification(&self) -> String {
        match self.reason.as_deref() {
            Some("expired") => "it was not worth telling any more".to_owned(),
            Some("queue_overflow") => {
                "the queue was full, and it was the oldest of the least important".to_owned()
            }
            Some("session_gone") => "the session ended before".to_owned(),
            Some("uncertain") => "nothing showed that it arrived, and it is not told twice".to_owned(),
            Some("subscriber_off") => "its subscriber was switched off".to_owned(),
            Some("superseded") => "a newer one about the same state took its place".to_owned(),
            Some("withdrawn") => "what it says was resolved".to_owned(),
            Some("dismissed") => "you dismissed it".to_owned(),
            Some(other) => other.to_owned(),
            None => "for no known reason".to_owned(),
        }
    }

    /// What is still to come, if the last line leaves something open.
    fn outlook(&self) -> Option<String> {
        let open = match self.what.as_str() {
            "batched" => "its batch is still open",
            "injected" => "nothing has shown yet that it arrived",
            "queued" | "returned" | "recalled" => "it waits for an exchange that may carry it",
            _ => return None,
        };
        Some(format!("\n{open}\n"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{cli::tests::run_against, client::fake::FakeDaemon};

    const EVENT: &str = r#"{"seq":12,"id":"e1","type":"ci.check.failed","severity":"error","source":"ci","timestamp":"2026-11-21T12:00:00Z","payload":{"job":"build"}}"#;

    #[test]
    fn a_notification_is_told_from_its_events_to_its_end() {
        let body = format!(
            r#"{{"notification":{{"id":"n1","subscriber":"ci","priority":"high","inject_at":"after_tool","tokens":9,"content":"ci: failed\njob: build"}},
            "events":[{EVENT}],"projection":{{"seq":20,"behind":0}},"history":[
            {{"at":"2026-11-21T12:00:02Z","what":"created","subscriber":"ci","notification":"n1","events":[12]}},
            {{"at":"2026-11-21T12:00:02Z","what":"queued","notification":"n1","session":"s1"}},
            {{"at":"2026-11-21T12:00:05Z","what":"injected","notification":"n1","session":"s1","injection":"abc123","by":"after_tool"}},
            {{"at":"2026-11-21T12:00:09Z","what":"confirmed","notification":"n1","session":"s1","by":"later_exchange"}}]}}"#
        );
        let expected = "\
notification n1: ci, high, after_tool, about 9 tokens
  ci: failed
  job: build

made of
  e1 (12): ci.check.failed, error, from ci at 2026-11-21T12:00:00Z

what became of it
  2026-11-21T12:00:02Z      ci made n1 of 1 event
  2026-11-21T12:00:02Z      n1 waits in session s1
  2026-11-21T12:00:05Z      n1 was given to session s1 at after_tool in injection abc123
  2026-11-21T12:00:09Z      n1 arrived in session s1: the session went on after it
";
        let daemon = FakeDaemon::answering_json(200, &body);
        assert_eq!(run_against(&daemon, &["why", "n1"]).as_deref(), Ok(expected));
    }

    #[test]
    fn every_way_an_event_ends_has_its_words() {
        for (line, words) in [
            (r#"{"what":"unmatched"}"#, "no subscriber asked for it"),
            (r#"{"what":"held_back","reason":"causes"}"#, "held back: its chain of causes is too long"),
            (r#"{"what":"held_back","reason":"source_rate"}"#, "held back: its source was over its rate"),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"severity_filter"}"#,
                "ci did not take it: its severity_filter did not let it pass",
            ),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"duplicate","detail":"of 7"}"#,
                "ci counted it as a repeat of 7",
            ),
            (
                r#"{"what":"event_ended","subscriber":"ci","reason":"filtered","detail":"where could not be evaluated"}"#,
                "ci did not take it: its where could not be evaluated",
            ),
            (r#"{"what":"event_ended","subscriber":"ci","reason":"subscriber_off"}"#, "ci is switched off"),
            (
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"i1","by":"turn_start","detail":"context_lost"}"#,
                "n1 was given to session s1 at turn_start in injection i1, once more, as the context that it was in is gone",
            ),
            (
                r#"{"what":"injected","notification":"n1","session":"s1","injection":"i1","by":"turn_start","detail":"unconfirmed"}"#,
                "n1 was given to session s1 at turn_start in injection i1, once more, as nothing showed that it had arrived",
            ),
            (
                r#"{"what":"notification_ended","notification":"n1","session":"s1","reason":"uncertain"}"#,
                "n1 ended in session s1: nothing showed that it arrived, and it is not told twice",
            ),
        ] {
            let line: super::Line = serde_json::from_str(line).expect("a line");
            assert_eq!(line.words(), words);
        }
    }

    #[test]
    fn an_injection_is_shown_with_what_became_of_each_of_its_notifications() {
        let injection = r#"{"injections":[{"id":"abc123","session":"s1","timestamp":"2026-11-21T12:00:05Z","role":"tool",
            "text":"ci: failed\njob: build","notifications":["n1"]}],"projection":{"seq":20,"behind":0}}"#;
        let notification = r#"{"notification":{"id":"n1","subscriber":"ci","priority":"high","inject_at":"after_tool","tokens":9,"content":"ci: failed"},
            "events":[],"projection":{"seq":20,"behind":0},"history":[
            {"at":"2026-11-21T12:00:05Z","what":"injected","notification":"n1","session":"s1","injection":"abc123","by":"after_tool"},
            {"at":"2026-11-21T12:00:09Z","what":"confirmed","notification":"n1","session":"s1","by":"seen"}]}"#;
        let daemon = FakeDaemon::answering_paths(&[
            ("/v1/injections/abc123", injection),
            ("/v1/notifications/n1", notification),
        ]);
        let expected = "\
injection abc123: given to session s1 at 2026-11-21T12:00:05Z, role tool
  ci: failed
  job: build

notification n1: ci, high, after_tool, about 9 tokens

what became of it
  2026-11-21T12:00:05Z      n1 was given to session s1 at after_tool in injection abc123
  2026-11-21T12:00:09Z      n1 arrived in session s1: it stands in the transcript
";
        assert_eq!(run_against(&daemon, &["why", "abc123"]).as_deref(), Ok(expected));
    }

    #[test]
    fn a_name_that_nothing_has_is_said_to_be_none() {
        let daemon = FakeDaemon::answering_json(404, r#"{"error":{"message":"there is no event `x`"}}"#);
        let error = run_against(&daemon, &["why", "x"]);
        assert_eq!(error, Err("look it up: there is no event, notification or injection `x`".to_owned()));
    }
}
