//! `aside history` and `aside tail`: events that a subscriber took, or notifications, newest first; and
//! events as they are journaled.

use engine::{
    event::{Pattern, Seq, Severity},
    sink,
    words::counted,
};
use hook::client::StreamEvent;
use serde::de::Error;
use serde_json::Value;

use super::{
    CliError, Context,
    context::with_query,
    ids::{self, Names, ShortIds},
    table::{Cell, Table},
    terminal::{self, Terminal, Tone, one_line},
};
use crate::api::wire::{
    event::EventView,
    history::{EventLine, EventPage, NotificationPage, NotificationView, ProjectionView},
};

const DOING: &str = "read the history";
/// Most pages read to fill one page, from which the probes of `aside doctor` are removed.
const PAGES_MAX: usize = 10;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List the notifications instead of the events
    #[arg(long)]
    notifications: bool,
    /// Only entries of this session, as in `aside sessions`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Only events of these types, such as `ci.**`
    #[arg(long = "type", value_name = "PATTERN", conflicts_with = "notifications")]
    event_type: Option<String>,
    /// Only events from this component
    #[arg(long, conflicts_with = "notifications")]
    source: Option<String>,
    /// Only events at least this severe
    #[arg(long, conflicts_with = "notifications")]
    severity: Option<String>,
    /// Only notices and questions for the user of this category, such as `safety`
    #[arg(long, conflicts_with = "notifications")]
    category: Option<String>,
    /// Only notices and questions for the user of at least this level: info, warn or error
    #[arg(long, conflicts_with = "notifications")]
    level: Option<String>,
    /// Only events of this folder or one in it
    #[arg(long, value_name = "DIR", conflicts_with = "notifications")]
    workspace: Option<String>,
    /// Only events up to this time
    #[arg(long, value_name = "TIME", conflicts_with = "notifications")]
    until: Option<String>,
    /// Only notifications of this subscriber
    #[arg(long, value_name = "ID", requires = "notifications")]
    subscriber: Option<String>,
    /// Only notifications of this priority
    #[arg(long, requires = "notifications")]
    priority: Option<String>,
    /// Only notifications with this state of a delivery: unclaimed, pending, injected, confirmed or
    /// ended
    #[arg(long, value_name = "STATE", requires = "notifications")]
    delivery: Option<String>,
    /// Only what ended for this reason, such as silenced; aside reference reasons lists them
    #[arg(long)]
    reason: Option<String>,
    /// Only from this time on: RFC 3339, or how long ago, such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Most entries, up to 1000
    #[arg(long, value_name = "COUNT", default_value = "20")]
    limit: String,
    /// Continue after the previous list
    #[arg(long, value_name = "NEXT")]
    cursor: Option<String>,
    /// List the probes of `aside doctor` too
    #[arg(long)]
    all: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

/// A page of events or of notifications.
struct Page {
    events: Vec<EventLine>,
    notifications: Vec<NotificationView>,
    next: Option<String>,
    projection: ProjectionView,
}

impl From<EventPage> for Page {
    fn from(page: EventPage) -> Self {
        let EventPage { events, next, projection, unmatched: _ } = page;
        Self { events, notifications: Vec::new(), next, projection }
    }
}

impl From<NotificationPage> for Page {
    fn from(page: NotificationPage) -> Self {
        let NotificationPage { notifications, next, projection } = page;
        Self { events: Vec::new(), notifications, next, projection }
    }
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let session = args.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    if args.json {
        let path = path(args, session.as_deref(), &args.limit, args.cursor.as_deref());
        let body = context.ask(DOING, "GET", &path, None)?;
        return context.print_json(DOING, &body);
    }
    let page = read(args, session.as_deref(), context)?;
    let table = if args.notifications {
        page.notifications_table(&Names::ask(context), context)
    } else {
        page.events_table(context)?
    };
    let mut text = match (table.is_empty(), args.notifications) {
        (true, true) => "nothing\n".to_owned(),
        (true, false) => "no events that a subscriber matched; `aside why ID` finds any event\n".to_owned(),
        (false, _) => table.text(&context.terminal),
    };
    if let Some(next) = &page.next {
        text.push_str(&format!("\nolder ones: --cursor {next}\n"));
    }
    text.push_str(&lag(&page.projection));
    context.print(&text)
}

/// Reads the requested number of entries, without those of probes unless requested; so it may need
/// several pages.
fn read(args: &Args, session: Option<&str>, context: &Context<'_>) -> Result<Page, CliError> {
    let ask = |limit: &str, cursor: Option<&str>| -> Result<Page, CliError> {
        let path = path(args, session, limit, cursor);
        match args.notifications {
            true => context.get::<NotificationPage>(DOING, &path).map(Page::from),
            false => context.get::<EventPage>(DOING, &path).map(Page::from),
        }
    };
    let mut page = ask(&args.limit, args.cursor.as_deref())?;
    let Some(limit) = args.limit.parse::<usize>().ok().filter(|_| args.leaves_out_probes()) else {
        return Ok(page);
    };
    page.leave_out_probes();
    for _ in 1..PAGES_MAX {
        let missing = limit.saturating_sub(page.len());
        let Some(next) = page.next.take_if(|_| missing > 0) else { break };
        let mut older = ask(&missing.to_string(), Some(&next))?;
        older.leave_out_probes();
        page.events.append(&mut older.events);
        page.notifications.append(&mut older.notifications);
        page.next = older.next;
    }
    Ok(page)
}

impl Args {
    /// Whether probes are left out: not with `--all`, a session, or the probes' source.
    fn leaves_out_probes(&self) -> bool {
        !self.all && self.session.is_none() && self.source.as_deref() != Some(ids::PROBE_SOURCE)
    }
}

impl Page {
    fn len(&self) -> usize {
        self.events.len() + self.notifications.len()
    }

    fn leave_out_probes(&mut self) {
        self.events.retain(|line| !line.view().is_ok_and(|event| ids::is_probe(event.session.as_deref())));
        self.notifications.retain(|one| !ids::is_probe(one.session.as_deref()));
    }

    fn notifications_table(&self, names: &Names, context: &Context<'_>) -> Table {
        let terminal = &context.terminal;
        let ids = ShortIds::of_notifications(self.notifications.iter().map(|one| one.id.as_str()));
        let mut table = Table::new(["TIME", "ID", "SUBSCRIBER", "PRIORITY", "STATE", "SENTENCE"]);
        for one in &self.notifications {
            table.row([
                Cell::dim(&terminal.moment(&one.created_at)),
                Cell::dim(&ids.short(&one.id)),
                Cell::plain(&one.subscriber),
                Cell::word(&one.priority),
                Cell::plain(&one.state(names)),
                Cell::plain(&one.sentence),
            ]);
        }
        table
    }

    fn events_table(&self, context: &Context<'_>) -> Result<Table, CliError> {
        let terminal = &context.terminal;
        let made = self.events.iter().flat_map(|line| &line.notifications);
        let ids = ShortIds::of_notifications(made.map(String::as_str));
        let mut table = Table::new(["TIME", "SEQ", "SEVERITY", "TYPE", "SOURCE", "OUTCOME"]);
        for line in &self.events {
            let event = line.view().map_err(|source| CliError::Answer { doing: DOING, source })?;
            table.row([
                Cell::dim(&terminal.moment(&event.timestamp)),
                Cell::dim(&seq(DOING, &event)?.to_string()),
                Cell::word(event.severity.as_str()),
                Cell::plain(&event.event_type),
                Cell::plain(&event.source),
                Cell::plain(&line.outcome(&event.event_type, &ids)),
            ]);
        }
        Ok(table)
    }
}

/// The position of an event in the journal.
///
/// Errors: the answer has none.
pub(super) fn seq(doing: &'static str, event: &EventView<'_>) -> Result<u64, CliError> {
    event.seq.ok_or_else(|| CliError::Answer { doing, source: Error::missing_field("seq") })
}

fn path(args: &Args, session: Option<&str>, limit: &str, cursor: Option<&str>) -> String {
    let workspace = args.workspace.as_deref().map(super::absolute_folder);
    let parameters = [
        ("limit", Some(limit)),
        ("session", session),
        ("type", args.event_type.as_deref()),
        ("source", args.source.as_deref()),
        ("severity", args.severity.as_deref()),
        ("category", args.category.as_deref()),
        ("level", args.level.as_deref()),
        ("until", args.until.as_deref()),
        ("subscriber", args.subscriber.as_deref()),
        ("priority", args.priority.as_deref()),
        ("state", args.delivery.as_deref()),
        ("reason", args.reason.as_deref()),
        ("since", args.since.as_deref()),
        ("cursor", cursor),
        ("workspace", workspace.as_deref()),
    ];
    with_query(if args.notifications { "/v1/notifications" } else { "/v1/events" }, &parameters)
}

impl EventLine {
    fn outcome(&self, event_type: &str, ids: &ShortIds) -> String {
        let ended = self.ended.iter().map(|ended| match &ended.subscriber {
            Some(subscriber) => format!("{} ({subscriber})", ended.reason),
            None => ended.reason.clone(),
        });
        let made = self.notifications.iter().map(|id| ids.short(id));
        let outcome: Vec<String> = made.chain(ended).collect();
        match outcome.as_slice() {
            [] if event_type == sink::NOTICE => "in delivery".to_owned(),
            [] => "in an open batch".to_owned(),
            some => some.join(", "),
        }
    }
}

impl NotificationView {
    fn state(&self, names: &Names) -> String {
        let states = self.deliveries.iter().map(|delivery| {
            let state =
                delivery.answered.response.as_ref().or(delivery.reason.as_ref()).unwrap_or(&delivery.state);
            let named = delivery.session.as_ref().map(|session| names.name(session));
            named.map_or_else(|| state.clone(), |session| format!("{session}: {state}"))
        });
        states.collect::<Vec<_>>().join(", ")
    }
}

/// A note when an answer lacks the newest records.
pub(super) fn lag(projection: &ProjectionView) -> String {
    let behind = counted(projection.behind, "record");
    match (&projection.failed, projection.behind) {
        (Some(why), _) => format!("\nthe history is {behind} behind and not updated: {why}\n"),
        (None, 0) => String::new(),
        (None, _) => format!("\nthe history is {behind} behind\n"),
    }
}

const FOLLOW: &str = "follow the events";
/// Width of a time without a date, to the millisecond.
const TIME_WIDTH: usize = 12;
/// Width of the longest severity.
const SEVERITY_WIDTH: usize = 8;

#[derive(Debug, clap::Args)]
pub(super) struct TailArgs {
    /// Types to show; `*` is one segment, a final `**` one or more [default: all]
    pattern: Option<Pattern>,
    /// Start at this position of the journal, then follow [default: new events only]
    #[arg(long, value_name = "SEQ")]
    from: Option<u64>,
    /// Lowest severity to show
    #[arg(long)]
    severity: Option<Severity>,
    /// Print each event as a line of JSON
    #[arg(long)]
    json: bool,
}

/// Prints events until the daemon stops or the output is closed.
pub(super) fn tail(args: &TailArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let failed = |source| CliError::Client { doing: FOLLOW, source };
    let mut stream = context.stream(FOLLOW, &stream_path(args))?;
    while let Some(event) = stream.next_event().map_err(failed)? {
        let value: Value = super::parse(FOLLOW, event.data.as_bytes())?;
        let line = if args.json { event.data } else { line(&event, &value, &context.terminal) };
        context.print(&format!("{line}\n"))?;
    }
    Err(CliError::Ended { doing: FOLLOW })
}

fn stream_path(args: &TailArgs) -> String {
    let pattern = args.pattern.as_ref().map(ToString::to_string);
    let from = args.from.map(|from| Seq(from).to_string());
    let severity = args.severity.map(Severity::as_str);
    let parameters = [("pattern", pattern.as_deref()), ("severity", severity), ("from", from.as_deref())];
    with_query("/v1/events/stream", &parameters)
}

/// One line about an event, cut to the width of a terminal.
fn line(event: &StreamEvent, value: &Value, terminal: &Terminal) -> String {
    let text = |name| value.get(name).and_then(Value::as_str).map_or("-".to_owned(), one_line);
    let payload = value.get("payload").map_or(String::new(), |payload| one_line(&payload.to_string()));
    let addressee =
        |name| value.get(name).and_then(Value::as_str).map(|text| format!(" {name}={}", one_line(text)));
    let scope = addressee("session").or_else(|| addressee("workspace")).unwrap_or_default();
    let place =
        format!("{:>6} {:TIME_WIDTH$}", one_line(&event.id), terminal.moments.exact(&text("timestamp")));
    let (severity, what) =
        (text("severity"), format!("{} {}{scope} {payload}", text("type"), text("source")));
    let begin = terminal::width(&place) + 1 + terminal::width(&severity).max(SEVERITY_WIDTH) + 1;
    format!(
        "{} {} {}",
        terminal.paint(Tone::Dim, &place),
        terminal.paint(Tone::of(&severity), &format!("{severity:SEVERITY_WIDTH$}")),
        terminal.cut_after(begin, &what),
    )
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    /// The history requests to the daemon.
    fn asked(daemon: &FakeDaemon) -> Vec<String> {
        let requests = daemon.requests();
        let lines = requests.iter().filter_map(|request| request.lines().next());
        let asked = lines.filter_map(|line| line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1"));
        asked.filter(|path| !path.contains("sessions")).map(str::to_owned).collect()
    }

    #[test]
    fn history_lists_events_with_outcomes_and_cursor() {
        let body = r#"{"events":[
            {"event":{"seq":9,"id":"e9","type":"ci.check.failed","source":"ci","severity":"error","timestamp":"2026-11-21T12:00:00Z","payload":{}},
             "notifications":["n1","na71da67fe2fd"],"ended":[{"subscriber":"large","reason":"filtered"}]},
            {"event":{"seq":8,"id":"e8","type":"fs.file.modified","source":"fs","severity":"info","timestamp":"2026-11-21T11:00:00Z","payload":{}},
             "notifications":[],"ended":[]}],
            "next":"8","unmatched":3,"projection":{"seq":9,"behind":4}}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let expected = "\
TIME     SEQ  SEVERITY  TYPE              SOURCE  OUTCOME
30m ago  9    error     ci.check.failed   ci      n1, na71da, filtered (large)
1h ago   8    info      fs.file.modified  fs      in an open batch

older ones: --cursor 8

the history is 4 records behind
";
        let shown = run_against(&daemon, &["history", "--type", "ci.**", "--since", "2h", "--limit", "2"]);
        assert_eq!(shown.as_deref(), Ok(expected));
        assert_eq!(asked(&daemon), ["/v1/events?limit=2&type=ci.%2A%2A&since=2h"]);
    }

    #[test]
    fn notifications_are_listed_with_their_states() {
        let body = r#"{"notifications":[{"id":"n1","created_at":"2026-11-20T12:00:00Z","severity":"error","inject_at":"after_tool","tokens":9,"events":[9],"subscriber":"ci","priority":"high","sentence":"build failed on main","content":"ci: failed\njob: build",
            "deliveries":[{"session":"s1","state":"ended","reason":"expired","at":"x"},{"state":"unclaimed","at":"x"}]}],
            "projection":{"seq":9,"behind":0}}"#;
        let path = "/v1/notifications?limit=20&session=s1&state=ended";
        let daemon = FakeDaemon::answering_paths(&[(path, body)]);
        let expected = "\
TIME             ID  SUBSCRIBER  PRIORITY  STATE                   SENTENCE
yesterday 12:00  n1  ci          high      s1: expired, unclaimed  build failed on main
";
        let shown =
            run_against(&daemon, &["history", "--notifications", "--session", "s1", "--delivery", "ended"]);
        assert_eq!(shown.as_deref(), Ok(expected));
        assert_eq!(asked(&daemon), ["/v1/notifications?limit=20&session=s1&state=ended"]);
    }

    #[test]
    fn history_hides_doctor_events_and_refills_the_page() {
        let event = |seq: u64, session: &str| {
            format!(
                r#"{{"event":{{"seq":{seq},"id":"e","type":"a.b","source":"s","severity":"info","timestamp":"2026-11-21T12:00:00Z","payload":{{}},"session":"{session}"}},
                "notifications":[],"ended":[]}}"#
            )
        };
        let page = |events: &[String], next: &str| {
            format!(
                r#"{{"events":[{}],"next":"{next}","unmatched":0,"projection":{{"seq":9,"behind":0}}}}"#,
                events.join(",")
            )
        };
        let probe = |seq: u64| event(seq, "doctor-0199/doctor");
        let daemon = FakeDaemon::answering_paths(&[
            ("/v1/events?limit=3", &page(&[probe(9), event(8, "doctor-work"), probe(7)], "7")),
            ("/v1/events?limit=2&cursor=7", &page(&[event(6, "s1"), probe(5)], "5")),
            ("/v1/events?limit=1&cursor=5", &page(&[event(4, "s1")], "4")),
        ]);
        let seqs = |args: &[&str]| -> Vec<String> {
            let shown = run_against(&daemon, &[&["history", "--limit", "3"], args].concat()).expect("shown");
            assert!(shown.contains("older ones: --cursor "), "{shown}");
            let rows = shown.lines().skip(1).take_while(|line| !line.is_empty());
            rows.filter_map(|row| row.split_whitespace().nth(2).map(str::to_owned)).collect()
        };
        assert_eq!(seqs(&[]), ["8", "6", "4"]);
        assert_eq!(seqs(&["--all"]), ["9", "8", "7"]);
    }

    #[test]
    fn an_event_without_a_position_is_an_error() {
        let body = r#"{"events":[{"event":{"id":"e9","type":"a.b","source":"ci","severity":"error","timestamp":"2026-11-21T12:00:00Z","payload":{}},
            "notifications":[],"ended":[]}],"unmatched":0,"projection":{"seq":9,"behind":0}}"#;
        let expected = "read the history: the daemon's answer has a format that this version does not know";
        let shown = run_against(&FakeDaemon::answering_json(200, body), &["history"]);
        assert_eq!(shown, Err(expected.to_owned()));
    }

    #[test]
    fn history_reports_empty_list_and_failed_projection() {
        let body =
            r#"{"events":[],"unmatched":0,"projection":{"seq":0,"behind":7,"failed":"the disk is full"}}"#;
        let shown = run_against(&FakeDaemon::answering_json(200, body), &["history"]);
        let expected = "no events that a subscriber matched; `aside why ID` finds any event\n\n\
                        the history is 7 records behind and not updated: the disk is full\n";
        assert_eq!(shown.as_deref(), Ok(expected));
        let body = r#"{"notifications":[],"projection":{"seq":9,"behind":0}}"#;
        let shown = run_against(&FakeDaemon::answering_json(200, body), &["history", "--notifications"]);
        assert_eq!(shown.as_deref(), Ok("nothing\n"));
    }

    const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: hello\n\n\
        id: 7\ndata: {\"id\":\"e1\",\"type\":\"task.failed\",\"source\":\"run\",\"severity\":\"error\",\
        \"timestamp\":\"2026-11-21T12:00:00Z\",\"payload\":{\"task\":\"t\\n\"},\"workspace\":\"/w\"}\n\n\
        id: 8\ndata: {\"id\":\"e2\",\"type\":\"task.started\",\"source\":\"run\",\"severity\":\"debug\"}\n\n";

    #[test]
    fn tail_prints_events_until_the_daemon_stops() {
        let daemon = FakeDaemon::answering(&[STREAM]);
        let ended = "follow the events: the daemon has stopped";
        assert_eq!(
            run_against(&daemon, &["tail"]),
            Err(format!(
                "     7 12:00:00.000 error    task.failed run workspace=/w {{\"task\":\"t\\n\"}}\n\
                 \x20    8 -            debug    task.started run \n{ended}"
            ))
        );
        assert_eq!(
            run_against(&daemon, &["tail", "--json"]),
            Err(format!(
                "{{\"id\":\"e1\",\"type\":\"task.failed\",\"source\":\"run\",\"severity\":\"error\",\
                 \"timestamp\":\"2026-11-21T12:00:00Z\",\"payload\":{{\"task\":\"t\\n\"}},\"workspace\":\"/w\"}}\n\
                 {{\"id\":\"e2\",\"type\":\"task.started\",\"source\":\"run\",\"severity\":\"debug\"}}\n{ended}"
            ))
        );
    }

    #[test]
    fn tail_sends_its_filters_to_the_daemon() {
        let daemon =
            FakeDaemon::answering_json(400, r#"{"error":{"field":"from","message":"is in the future"}}"#);
        for args in [&["tail"][..], &["tail", "tool.**", "--from", "5", "--severity", "warn"]] {
            let error = run_against(&daemon, args).expect_err("refused");
            assert_eq!(error, "follow the events: from: is in the future");
        }
        let lines: Vec<String> = daemon
            .requests()
            .iter()
            .filter_map(|request| request.lines().next().map(str::to_owned))
            .collect();
        assert_eq!(
            lines,
            [
                "GET /v1/events/stream HTTP/1.1",
                "GET /v1/events/stream?pattern=tool.%2A%2A&severity=warning&from=5 HTTP/1.1"
            ]
        );
        assert!(run_against(&daemon, &["tail", "tool.**.x"]).is_err());
    }
}
