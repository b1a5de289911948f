//! `aside sessions`: lists the sessions that the daemon knows.

use std::cmp::Reverse;

use serde_json::Value;

use super::{
    CliError, Context,
    ids::{self, Names},
    parse,
    table::{Cell, Table},
    terminal::{Terminal, Tone},
};
use journal::time::Timestamp;

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
        let answer: Value = parse(doing, &body)?;
        return context.print(&format!("{answer}\n"));
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

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_against;
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
}
