//! `aside why`: the outcome of one event, notification or injection, on one page.

pub(super) mod rules;
pub(super) mod words;

use engine::sorted::SortedSet;
use hook::client::percent_encode;
use serde_json::value::RawValue;

use self::rules::Rules;
use super::{
    CliError, Context, history,
    ids::{self, Names},
    parse, status,
    terminal::{self, Tone, one_line},
};
use crate::{
    api::wire::{
        ErrorView,
        event::EventView,
        history::{
            EventWithHistory, InjectionLine, LedgerLine, NamedInjections, NotificationView,
            NotificationWithHistory, OtherEvent,
        },
        inbox::{HoldView, PendingIn, WaitingView},
    },
    daemon::causes::with_causes,
};

const DOING: &str = "look it up";
/// The text for entries that the history has deleted.
const FORGOTTEN: &str = "unknown: it is older than the history";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The id of an event, a notification or an injection, a prefix if it is one of the newest
    /// thousand, or an event's position in the journal; `last` is the newest notification
    id: String,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

/// The entry with the id.
enum Entry {
    Notification(Vec<u8>),
    Event(Vec<u8>),
    Injection(Vec<u8>),
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let found = look_up(&args.id, context)?;
    if args.json {
        let (Entry::Notification(body) | Entry::Event(body) | Entry::Injection(body)) = &found;
        return context.print_json(DOING, body);
    }
    let names = Names::ask(context);
    let page = Page { context, names, rules: Rules::new(context) };
    let text = match found {
        Entry::Notification(body) => {
            let NotificationWithHistory { notification, events, history, pending, projection } =
                parse(DOING, &body)?;
            let held = page.held(&pending, &notification.subscriber);
            let next = if held.is_empty() {
                words::next(&history)
            } else {
                Some(words::next_of_held(&notification.id))
            };
            page.notification(&notification, &events)?
                + &page.became(&history, Some(&notification.subscriber), FORGOTTEN)
                + &held
                + &page.note()
                + &page.next(next)
                + &history::lag(&projection)
        }
        Entry::Event(body) => {
            let EventWithHistory { event, history, others, projection } = parse(DOING, &body)?;
            let event: EventView<'_> = parse(DOING, event.get().as_bytes())?;
            let none = unknown(history::seq(DOING, &event)?, projection.seq);
            let (held, next) = page.held_of_event(&history);
            page.line(0, &format!("event {}", page.event(&event)?))
                + &page.line(2, event.payload.get())
                + &page.became(&history, None, none)
                + &held
                + &page.others(&others)
                + &page.note()
                + &page.next(next)
                + &history::lag(&projection)
        }
        Entry::Injection(body) => {
            let NamedInjections { injections, projection: _ } = parse(DOING, &body)?;
            let texts: Result<Vec<String>, CliError> =
                injections.iter().map(|injection| page.injection(injection)).collect();
            let notification = injections.iter().find_map(|injection| injection.notifications.first());
            let next = notification.map(|id| format!("aside why {id} shows its events"));
            texts?.join("\n") + &page.note() + &page.next(next)
        }
    };
    context.print(&text)
}

/// Looks up `text` as a whole id, else as a prefix.
fn look_up(text: &str, context: &Context<'_>) -> Result<Entry, CliError> {
    let refused = match text {
        ids::LAST => CliError::Refused { doing: DOING, refusal: ErrorView::default() },
        _ => match look_up_id(text, context) {
            Err(refused @ CliError::Refused { .. }) => refused,
            other => return other,
        },
    };
    match ids::of_history(text, context) {
        Ok(Some(id)) => look_up_id(&id, context),
        Err(error @ (CliError::Ambiguous { .. } | CliError::Answer { .. })) => Err(error),
        // For `last` this was the first request.
        Err(error) if text == ids::LAST => Err(error),
        // An unreadable history was reported before.
        Ok(None) | Err(_) => Err(none(text, refused)),
    }
}

/// Looks up a notification, an event and an injection, in this order; if the history is unreadable,
/// the journal may still have an event.
fn look_up_id(id: &str, context: &Context<'_>) -> Result<Entry, CliError> {
    let name = percent_encode(id);
    let ask = |what: &str| context.ask(DOING, "GET", &format!("/v1/{what}/{name}"), None);
    let refused = match ask("notifications") {
        Err(CliError::Refused { .. }) => match ask("events") {
            Err(refused @ CliError::Refused { .. }) => refused,
            other => return other.map(Entry::Event),
        },
        other => return other.map(Entry::Notification),
    };
    match ask("injections") {
        Err(CliError::Refused { .. }) => Err(refused),
        other => other.map(Entry::Injection),
    }
}

/// The text for an event without an outcome, when the history has reached `projected`.
fn unknown(event: u64, projected: u64) -> &'static str {
    if projected < event { "not known yet: it is not in the history yet" } else { FORGOTTEN }
}

/// Reports that the id is unknown; other errors of the daemon stay unchanged.
fn none(text: &str, mut error: CliError) -> CliError {
    if let CliError::Refused { refusal, .. } = &mut error {
        if text == ids::LAST {
            refusal.message = "no notification was made yet".to_owned();
        } else if refusal.message.starts_with("there is no event") {
            refusal.message = format!("there is no event, notification or injection `{text}`");
        }
    }
    error
}

/// The output, and its inputs.
struct Page<'p, 'c> {
    context: &'p Context<'c>,
    names: Names,
    rules: Rules<'p, 'c>,
}

impl Page<'_, '_> {
    /// A line of any text, without control sequences; wrapped on a terminal.
    fn line(&self, indent: usize, text: &str) -> String {
        let blanks = " ".repeat(indent);
        format!("{blanks}{}\n", self.context.terminal.wrap(&one_line(text), indent, indent + 2))
    }

    /// The lines of a text, indented; empty for an empty one.
    fn lines(&self, text: &str) -> String {
        text.lines().map(|line| self.line(2, line)).collect()
    }

    fn event(&self, event: &EventView<'_>) -> Result<String, CliError> {
        let EventView { id, event_type, severity, source, timestamp, .. } = event;
        let (seq, severity) = (history::seq(DOING, event)?, severity.as_str());
        let at = self.context.terminal.moment(timestamp);
        Ok(format!("{id} ({seq}): {event_type}, {severity}, from {source}, {at}"))
    }

    /// A line about it, and its sentence.
    fn head(&self, notification: &NotificationView) -> String {
        let NotificationView { id, subscriber, priority, inject_at, tokens, sentence, .. } = notification;
        self.line(
            0,
            &format!("notification {id}: {subscriber}, {priority}, {inject_at}, about {tokens} tokens"),
        ) + &self.lines(sentence)
    }

    fn notification(
        &self,
        notification: &NotificationView,
        events: &[Box<RawValue>],
    ) -> Result<String, CliError> {
        let mut text =
            self.head(notification) + "\ntext\n" + &self.lines(&notification.content) + "\nevents\n";
        for event in events {
            let event: EventView<'_> = parse(DOING, event.get().as_bytes())?;
            text.push_str(&self.line(2, &self.event(&event)?));
        }
        Ok(text)
    }

    /// The delivered text, and the outcome of each notification in it.
    fn injection(&self, injection: &InjectionLine) -> Result<String, CliError> {
        let InjectionLine { id, session, timestamp, role, text, started_by, notifications } = injection;
        let (session, at) = (self.names.name(session), self.context.terminal.moment(timestamp));
        let started = if started_by.is_some() { ", with a turn that aside asked for" } else { "" };
        let head = format!("injection {id}: released to session {session}, {at}, role {role}{started}");
        let mut page = self.line(0, &head) + &self.lines(text);
        for notification in notifications {
            let path = format!("/v1/notifications/{}", percent_encode(notification));
            let NotificationWithHistory { notification, history, .. } = self.context.get(DOING, &path)?;
            let became = self.became(&history, Some(&notification.subscriber), FORGOTTEN);
            page.push_str(&format!("\n{}{became}", self.head(&notification)));
        }
        Ok(page)
    }

    /// The recorded history, or `none` if empty, and current failures. `own`: the subscriber of the
    /// notification, if it is that of one.
    fn became(&self, history: &[LedgerLine], own: Option<&str>, none: &str) -> String {
        let terminal = &self.context.terminal;
        let mut text = "\noutcome\n".to_owned();
        if history.is_empty() {
            text.push_str(&self.line(2, none));
        }
        let at = |line: &LedgerLine| {
            line.at.as_ref().map_or_else(|| "-".to_owned(), |at| terminal.moments.exact(at))
        };
        let width = history.iter().map(|line| terminal::width(&at(line))).max().unwrap_or(0);
        for line in history {
            let rule = self.rules.of_line(line, subscriber_of(line, history).or(own));
            let words = one_line(&words::sentence(line, &self.names)) + &rule;
            let (at, begin) = (format!("{:width$}", at(line)), 2 + width + 2);
            let at = terminal.paint(Tone::Dim, &at);
            text.push_str(&format!("  {at}  {}\n", terminal.wrap(&words, begin, begin)));
        }
        let concerned: SortedSet<&str> =
            history.iter().filter_map(|line| line.subscriber.as_deref()).collect();
        for line in self.failing(&concerned) {
            text.push_str(&format!("\n{}", self.line(0, &line)));
        }
        text
    }

    /// What keeps a notification of `subscriber` from being released, in each of its queues.
    fn held(&self, pending: &[PendingIn], subscriber: &str) -> String {
        let terminal = &self.context.terminal;
        let mut text = String::new();
        for PendingIn { session, waits_for, holds } in pending {
            let queue = match session {
                Some(session) => format!("in session {}", self.names.name(session)),
                None if waits_for == WaitingView::SINKS => "for you".to_owned(),
                None => "for the next session".to_owned(),
            };
            if waits_for == WaitingView::USER {
                let key = HoldView { cause: "output.activation".to_owned(), ..HoldView::default() };
                let place = self.rules.of_hold(&key, subscriber);
                text.push_str(
                    &self.line(2, &format!("{queue}: prompt by {}{place}, until you decide", key.cause)),
                );
            }
            for hold in holds {
                let hold = hold.whole(subscriber, &self.rules, terminal);
                text.push_str(&self.line(2, &format!("{queue}: {hold}")));
            }
        }
        if text.is_empty() { text } else { format!("\nheld\n{text}") }
    }

    /// What keeps a notification of an event from being released, and the user's next step.
    fn held_of_event(&self, history: &[LedgerLine]) -> (String, Option<String>) {
        let made: SortedSet<&str> = history.iter().filter_map(|line| line.notification.as_deref()).collect();
        for id in made.iter() {
            let path = format!("/v1/notifications/{}", percent_encode(id));
            // What is not known any more holds nothing.
            let Ok(found) = self.context.get::<NotificationWithHistory>(DOING, &path) else { continue };
            let held = self.held(&found.pending, &found.notification.subscriber);
            if !held.is_empty() {
                return (held, Some(words::next_of_held(id)));
            }
        }
        (String::new(), words::next(history))
    }

    /// Current failures of these subscribers, or why they are not known.
    fn failing(&self, subscribers: &SortedSet<&str>) -> Vec<String> {
        if subscribers.is_empty() {
            return Vec::new();
        }
        match status::failing(self.context) {
            Ok(lines) => {
                let lines = subscribers.iter().filter_map(|id| lines.get(*id)).flatten();
                lines.map(|line| format!("failing now: {line}")).collect()
            }
            Err(error) => {
                vec![format!("what is failing now is not known: failed to {}", with_causes(&error))]
            }
        }
    }

    /// The other events of the same id.
    fn others(&self, others: &[OtherEvent]) -> String {
        let sentence = |OtherEvent { source, seq }: &OtherEvent| {
            self.line(0, &format!("another event of this id is from {source}: aside why {seq}"))
        };
        others.iter().map(sentence).collect()
    }

    /// A line about files that are not in force yet.
    fn note(&self) -> String {
        self.rules.note().lines().map(|note| format!("\n{}", self.line(0, note))).collect()
    }

    /// The user's next step.
    fn next(&self, next: Option<String>) -> String {
        next.map_or_else(String::new, |next| format!("\n{}", self.line(0, &format!("next: {next}"))))
    }
}

/// The subscriber of a line: its own, else that of its notification, as the history names it.
fn subscriber_of<'l>(line: &'l LedgerLine, history: &'l [LedgerLine]) -> Option<&'l str> {
    let made = |other: &&LedgerLine| other.subscriber.is_some() && other.notification == line.notification;
    let of_notification = || history.iter().find(|other| line.notification.is_some() && made(other));
    line.subscriber.as_deref().or_else(|| of_notification()?.subscriber.as_deref())
}

#[cfg(test)]
mod tests {
    use crate::{
        api::wire::history::{Delivery, NotificationPage, NotificationView},
        cli::tests::run_against,
    };
    use hook::client::fake::FakeDaemon;

    const EVENT: &str = r#"{"seq":12,"id":"e1","type":"ci.check.failed","severity":"error","source":"ci","timestamp":"2026-11-21T12:00:00Z","payload":{"job":"build"}}"#;

    #[test]
    fn why_explains_a_notification_from_events_to_end() {
        let body = format!(
            r#"{{"notification":{{"id":"n1","severity":"error","created_at":"2026-11-21T12:00:02Z","events":[12],"deliveries":[],"subscriber":"ci","priority":"high","inject_at":"after_tool","tokens":9,"sentence":"build failed\u001b[1m on main","content":"ci: failed\njob: build"}},
            "events":[{EVENT}],"projection":{{"seq":20,"behind":0}},"history":[
            {{"at":"2026-11-21T12:00:02Z","what":"created","subscriber":"ci","notification":"n1","events":[12]}},
            {{"at":"2026-11-21T12:00:02Z","what":"queued","notification":"n1","session":"s1"}},
            {{"at":"2026-11-21T12:00:05Z","what":"injected","notification":"n1","session":"s1","injection":"abc123","by":"after_tool"}},
            {{"at":"2026-11-21T12:00:09Z","what":"confirmed","notification":"n1","session":"s1","by":"step"}}]}}"#
        );
        let expected = "\
notification n1: ci, high, after_tool, about 9 tokens
  build failed on main

text
  ci: failed
  job: build

events
  e1 (12): ci.check.failed, error, from ci, 30m ago

outcome
  12:00:02.000  ci made n1 from 1 event
  12:00:02.000  n1 waits in session s1
  12:00:05.000  n1 was delivered to session s1 at after_tool in injection abc123
  12:00:09.000  n1 arrived in session s1 (step): the model has answered since, in the same turn

next: nothing to do; aside why abc123 shows the text that the agent received
";
        let status = r#"{"subscribers":{"ci":{}}}"#;
        let daemon = FakeDaemon::answering_paths(&[("/v1/notifications/n1", &body), ("/v1/status", status)]);
        assert_eq!(run_against(&daemon, &["why", "n1"]).as_deref(), Ok(expected));
    }

    #[test]
    fn why_shows_outcome_of_each_injected_notification() {
        let injection = r#"{"injections":[{"id":"abc123","session":"s1","timestamp":"2026-11-21T12:00:05Z","role":"tool",
            "text":"ci: failed\njob: build","notifications":["n1"]}],"projection":{"seq":20,"behind":0}}"#;
        let notification = r#"{"notification":{"id":"n1","severity":"error","created_at":"2026-11-21T12:00:02Z","events":[12],"deliveries":[],"subscriber":"ci","priority":"high","inject_at":"after_tool","tokens":9,"sentence":"build failed on main","content":"ci: failed"},
            "events":[],"projection":{"seq":20,"behind":0},"history":[
            {"at":"2026-11-21T12:00:05Z","what":"injected","notification":"n1","session":"s1","injection":"abc123","by":"after_tool"},
            {"at":"2026-11-21T12:00:09Z","what":"confirmed","notification":"n1","session":"s1","by":"seen"}]}"#;
        let daemon = FakeDaemon::answering_paths(&[
            ("/v1/injections/abc123", injection),
            ("/v1/notifications/n1", notification),
        ]);
        let expected = "\
injection abc123: released to session s1, 29m ago, role tool
  ci: failed
  job: build

notification n1: ci, high, after_tool, about 9 tokens
  build failed on main

outcome
  12:00:05.000  n1 was delivered to session s1 at after_tool in injection abc123
  12:00:09.000  n1 arrived in session s1 (seen): its id is in the agent's input

next: aside why n1 shows its events
";
        assert_eq!(run_against(&daemon, &["why", "abc123"]).as_deref(), Ok(expected));
    }

    #[test]
    fn failures_that_cannot_be_read_are_reported() {
        let body = r#"{"notification":{"id":"n1"},"events":[],"projection":{"seq":20,"behind":0},"history":[
            {"at":"2026-11-21T12:00:02Z","what":"created","subscriber":"ci","notification":"n1","events":[12]}]}"#;
        let paths = [("/v1/notifications/n1", body), ("/v1/status", r#"{"subscribers":[]}"#)];
        let shown = run_against(&FakeDaemon::answering_paths(&paths), &["why", "n1"]).expect("shown");
        let expected = "\nwhat is failing now is not known: failed to read the status: the daemon's answer has a format that this version does not know: ";
        assert!(shown.contains(expected), "{shown}");
    }

    #[test]
    fn history_of_another_version_is_a_format_error() {
        let daemon = FakeDaemon::answering_paths(&[("/v1/notifications?limit=1000", "{}")]);
        let expected = "find the id: the daemon's answer has a format that this version does not know";
        assert_eq!(run_against(&daemon, &["why", "na71"]), Err(expected.to_owned()));
    }

    #[test]
    fn why_last_reports_an_unready_history() {
        let unready = r#"{"error":{"message":"the history is not ready"}}"#;
        let error = run_against(&FakeDaemon::answering_json(503, unready), &["why", "last"]);
        assert_eq!(error, Err("find the id: the history is not ready".to_owned()));
    }

    #[test]
    fn an_event_without_a_position_is_an_error() {
        let event = EVENT.replace(r#""seq":12,"#, "");
        let body = format!(r#"{{"event":{event},"history":[],"projection":{{"seq":20,"behind":0}}}}"#);
        let daemon = FakeDaemon::answering_paths(&[("/v1/events/e1", &body)]);
        let expected = "look it up: the daemon's answer has a format that this version does not know";
        assert_eq!(run_against(&daemon, &["why", "e1"]), Err(expected.to_owned()));
    }

    #[test]
    fn unknown_id_is_reported_as_not_found() {
        let daemon = FakeDaemon::answering_json(404, r#"{"error":{"message":"there is no event `x`"}}"#);
        let error = run_against(&daemon, &["why", "x"]);
        assert_eq!(error, Err("look it up: there is no event, notification or injection `x`".to_owned()));
    }

    #[test]
    fn why_accepts_id_prefix_and_last() {
        let notification = |id: &str| {
            format!(
                r#"{{"notification":{{"id":"{id}","severity":"error","created_at":"2026-11-21T12:00:02Z","events":[12],"deliveries":[],"subscriber":"ci","priority":"high","inject_at":"after_tool","tokens":9,"content":"a: 1"}},
                "events":[],"projection":{{"seq":20,"behind":0}},"history":[]}}"#
            )
        };
        let listed = |id: &str, injection: Option<&str>, session: Option<&str>| NotificationView {
            id: id.to_owned(),
            session: session.map(str::to_owned),
            deliveries: vec![Delivery { injection: injection.map(str::to_owned), ..Delivery::default() }],
            ..NotificationView::default()
        };
        let list = |notifications: &[NotificationView]| {
            let page =
                NotificationPage { notifications: notifications.to_vec(), ..NotificationPage::default() };
            serde_json::to_string(&page).expect("text and numbers")
        };
        let real = [listed("na71da67fe2fd", Some("abc123"), None), listed("nb02da67fe2fd", None, None)];
        let probe = listed("nffffffffffff", None, Some("doctor-1/doctor"));
        let event =
            |id: &str| format!(r#"{{"event":{},"notifications":[],"ended":[]}}"#, EVENT.replace("e1", id));
        let events = format!(
            r#"{{"events":[{{"event":{{"of":"another version"}}}},{},{}],"unmatched":0,"projection":{{"seq":20,"behind":0}}}}"#,
            event("abc9"),
            event("nb02da67ffff")
        );
        let daemon = FakeDaemon::answering_paths(&[
            ("/v1/notifications/na71da67fe2fd", &notification("na71da67fe2fd")),
            ("/v1/notifications/nb02da67fe2fd", &notification("nb02da67fe2fd")),
            ("/v1/injections/abc123", r#"{"injections":[],"projection":{"seq":20,"behind":0}}"#),
            ("/v1/notifications?limit=100", &list(&[&[probe], &real[..]].concat())),
            ("/v1/notifications?limit=1000", &list(&real)),
            ("/v1/events?limit=1000", &events),
        ]);
        for (text, begin) in [
            ("last", "notification na71da67fe2fd: "),
            ("na71", "notification na71da67fe2fd: "),
            ("nb02da67fe", "notification nb02da67fe2fd: "),
        ] {
            let said = run_against(&daemon, &["why", text]).expect("found");
            assert!(said.starts_with(begin), "{text}: {said}");
        }
        assert_eq!(run_against(&daemon, &["why", "abc1"]).as_deref(), Ok(""));
        let error = run_against(&daemon, &["why", "nb02"]).expect_err("it could be two");
        assert!(error.ends_with("begin with it: nb02da67fe2fd, nb02da67ffff"), "{error}");
        let none = FakeDaemon::answering_json(200, &list(&[]));
        let error = run_against(&none, &["why", "last"]);
        assert_eq!(error, Err("look it up: no notification was made yet".to_owned()));
    }
}
