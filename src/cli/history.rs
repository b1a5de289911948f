//! `aside history`: the events that a subscriber asked for, or the notifications, newest first.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{CliError, Context, parse, table};
use crate::client::percent_encode;

const DOING: &str = "read the history";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// List the notifications instead of the events
    #[arg(long)]
    notifications: bool,
    /// Only what concerns this session
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
    /// Only notifications that stand so: unclaimed, pending, injected, confirmed or ended
    #[arg(long, value_name = "STATE", requires = "notifications")]
    stands: Option<String>,
    /// Only from this time on: RFC 3339, or how long ago, such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Most entries, up to 1000
    #[arg(long, value_name = "COUNT", default_value = "20")]
    limit: String,
    /// Go on where the list before ended
    #[arg(long, value_name = "NEXT")]
    cursor: Option<String>,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    events: Vec<EventLine>,
    #[serde(default)]
    notifications: Vec<Notification>,
    next: Option<String>,
    projection: Projection,
}

#[derive(Deserialize)]
struct EventLine {
    event: Event,
    notifications: Vec<String>,
    ended: Vec<Ended>,
}

#[derive(Deserialize)]
struct Event {
    timestamp: String,
    #[serde(rename = "type")]
    event_type: String,
    severity: String,
    source: String,
    id: String,
}

#[derive(Deserialize)]
struct Ended {
    subscriber: Option<String>,
    reason: String,
}

#[derive(Deserialize)]
struct Notification {
    id: String,
    created_at: String,
    subscriber: String,
    priority: String,
    content: String,
    deliveries: Vec<Delivery>,
}

#[derive(Deserialize)]
struct Delivery {
    session: Option<String>,
    state: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Projection {
    /// Everything up to this record is in it.
    pub(super) seq: u64,
    behind: u64,
    failed: Option<String>,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let body = context.ask(DOING, "GET", &path(args), None)?;
    if args.json {
        let answer: Value = parse(DOING, &body)?;
        return context.print(&format!("{answer}\n"));
    }
    let page: Page = parse(DOING, &body)?;
    let rows: Vec<Value> = if args.notifications {
        page.notifications.iter().map(Notification::row).collect()
    } else {
        page.events.iter().map(EventLine::row).collect()
    };
    let mut text = match (rows.as_slice(), args.notifications) {
        ([], true) => "nothing\n".to_owned(),
        ([], false) => "nothing that a subscriber asked for; `aside why ID` finds any event\n".to_owned(),
        _ => table::table(&rows),
    };
    if let Some(next) = &page.next {
        text.push_str(&format!("\nolder ones: --cursor {next}\n"));
    }
    text.push_str(&page.projection.lag());
    context.print(&text)
}

fn path(args: &Args) -> String {
    let parameters = [
        ("session", &args.session),
        ("type", &args.event_type),
        ("source", &args.source),
        ("severity", &args.severity),
        ("until", &args.until),
        ("subscriber", &args.subscriber),
        ("priority", &args.priority),
        ("state", &args.stands),
        ("since", &args.since),
        ("cursor", &args.cursor),
        ("workspace", &args.workspace.as_deref().map(super::absolute_folder)),
    ];
    let mut path = format!(
        "/v1/{}?limit={}",
        if args.notifications { "notifications" } else { "events" },
        percent_encode(&args.limit)
    );
    for (name, value) in parameters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", percent_encode(value)));
        }
    }
    path
}

impl EventLine {
    fn row(&self) -> Value {
        let ended = self.ended.iter().map(|ended| match &ended.subscriber {
            Some(subscriber) => format!("{} ({subscriber})", ended.reason),
            None => ended.reason.clone(),
        });
        let mut became: Vec<String> = self.notifications.iter().cloned().chain(ended).collect();
        if became.is_empty() {
            became.push("in an open batch".to_owned());
        }
        let Event { timestamp, event_type, severity, source, id } = &self.event;
        json!({ "time": timestamp, "type": event_type, "severity": severity, "source": source, "id": id, "became": became.join(", ") })
    }
}

impl Notification {
    fn row(&self) -> Value {
        let stands = self.deliveries.iter().map(|delivery| {
            let state = delivery.reason.as_ref().unwrap_or(&delivery.state);
            delivery.session.as_ref().map_or_else(|| state.clone(), |session| format!("{session}: {state}"))
        });
        let Self { id, created_at, subscriber, priority, content, .. } = self;
        json!({ "time": created_at, "id": id, "subscriber": subscriber, "priority": priority,
            "stands": stands.collect::<Vec<_>>().join(", "), "content": content })
    }
}

impl Projection {
    /// What has to be said when the answer does not tell of the last moments.
    pub(super) fn lag(&self) -> String {
        match (&self.failed, self.behind) {
            (Some(why), behind) => {
                format!("\nthe history is {behind} records behind and does not go on: {why}\n")
            }
            (None, 0) => String::new(),
            (None, behind) => format!("\nthe history is {behind} records behind\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{cli::tests::run_against, client::fake::FakeDaemon};

    fn asked(daemon: &FakeDaemon) -> String {
        daemon.requests()[0].lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn events_are_listed_with_what_became_of_them_and_how_far_the_list_goes() {
        let body = r#"{"events":[
            {"event":{"seq":9,"id":"e9","type":"ci.check.failed","source":"ci","severity":"error","timestamp":"2026-11-21T12:00:00Z","payload":{}},
             "notifications":["n1","n2"],"ended":[{"subscriber":"large","reason":"filtered"}]},
            {"event":{"seq":8,"id":"e8","type":"fs.file.modified","source":"fs","severity":"info","timestamp":"2026-11-21T11:00:00Z","payload":{}},
             "notifications":[],"ended":[]}],
            "next":"8","unmatched":3,"projection":{"seq":9,"behind":4}}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let expected = "\
time                  type              severity  source  id  became
2026-11-21T12:00:00Z  ci.check.failed   error     ci      e9  n1, n2, filtered (large)
2026-11-21T11:00:00Z  fs.file.modified  info      fs      e8  in an open batch

older ones: --cursor 8

the history is 4 records behind
";
        let shown = run_against(&daemon, &["history", "--type", "ci.**", "--since", "2h", "--limit", "2"]);
        assert_eq!(shown.as_deref(), Ok(expected));
        assert_eq!(asked(&daemon), "GET /v1/events?limit=2&type=ci.%2A%2A&since=2h HTTP/1.1");
    }

    #[test]
    fn notifications_are_listed_with_where_they_stand() {
        let body = r#"{"notifications":[{"id":"n1","created_at":"2026-11-21T12:00:00Z","subscriber":"ci","priority":"high","content":"ci: failed",
            "deliveries":[{"session":"s1","state":"ended","reason":"expired","at":"x"},{"state":"unclaimed","at":"x"}]}],
            "projection":{"seq":9,"behind":0}}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let expected = "\
time                  id  subscriber  priority  stands                  content
2026-11-21T12:00:00Z  n1  ci          high      s1: expired, unclaimed  ci: failed
";
        let shown =
            run_against(&daemon, &["history", "--notifications", "--session", "s1", "--stands", "ended"]);
        assert_eq!(shown.as_deref(), Ok(expected));
        assert_eq!(asked(&daemon), "GET /v1/notifications?limit=20&session=s1&state=ended HTTP/1.1");
    }

    #[test]
    fn an_empty_history_and_one_that_failed_say_so() {
        let body =
            r#"{"events":[],"unmatched":0,"projection":{"seq":0,"behind":7,"failed":"the disk is full"}}"#;
        let shown = run_against(&FakeDaemon::answering_json(200, body), &["history"]);
        let expected = "nothing that a subscriber asked for; `aside why ID` finds any event\n\n\
                        the history is 7 records behind and does not go on: the disk is full\n";
        assert_eq!(shown.as_deref(), Ok(expected));
        let body = r#"{"notifications":[],"projection":{"seq":9,"behind":0}}"#;
        let shown = run_against(&FakeDaemon::answering_json(200, body), &["history", "--notifications"]);
        assert_eq!(shown.as_deref(), Ok("nothing\n"));
    }
}
