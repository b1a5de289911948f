//! `aside tail`: prints events as they are journaled.

use engine::event::{Pattern, Seq, Severity};
use hook::client::{StreamEvent, percent_encode};
use serde_json::Value;

use super::{
    CliError, Context, refused,
    terminal::{self, Terminal, Tone, one_line},
};

const DOING: &str = "follow the events";
/// Width of a time without a date, to the millisecond.
const TIME_WIDTH: usize = 12;
/// Width of the longest severity.
const SEVERITY_WIDTH: usize = 8;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
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
pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let failed = |source| CliError::Client { doing: DOING, source };
    let accept = [("accept", "text/event-stream")];
    let stream = context.client.stream(&path(args), &accept).map_err(failed)?;
    let mut stream = stream.map_err(|response| refused(DOING, response.status, &response.body))?;
    while let Some(event) = stream.next_event().map_err(failed)? {
        let value: Value = super::parse(DOING, event.data.as_bytes())?;
        let line = if args.json { event.data } else { line(&event, &value, &context.terminal) };
        context.print(&format!("{line}\n"))?;
    }
    Err(CliError::Ended { doing: DOING })
}

fn path(args: &Args) -> String {
    let pattern =
        args.pattern.as_ref().map(|pattern| format!("pattern={}", percent_encode(&pattern.to_string())));
    let severity = args.severity.map(|severity| format!("severity={severity}"));
    let from = args.from.map(|from| format!("from={}", Seq(from)));
    let query: Vec<String> = [pattern, severity, from].into_iter().flatten().collect();
    match query.as_slice() {
        [] => "/v1/events/stream".to_owned(),
        query => format!("/v1/events/stream?{}", query.join("&")),
    }
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
