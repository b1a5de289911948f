//! MCP servers of a session's client: a server that a call found disconnected is connected again, a
//! server failed at its start, or several calls in a row got no answer from a connected server.
//!
//! The result of each call shows that it timed out. Only their number shows that the server, and not
//! one call, is stuck; the next answer ends that. A client reports some of these itself, by listing removed and added tools. It reports nothing if
//! the tools stayed listed, or if it lists none by name. In that case the client's own connection
//! log is read; without an entry there, there is no finding. Nothing is read while no server is
//! known to be disconnected, except for two looks at the logs in a session's first exchanges.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Facts, Finding, Moment,
    facts::{TRANSCRIPT_BYTES_MAX, end_of, end_of_file, shown_text},
    kind::Probe,
};
use journal::time::{Timestamp, duration_millis};

use crate::{
    call::{ServerCall, ServerOutcome},
    event::Severity,
    notification::InjectionPoint,
    settings::settings,
    sorted::SortedMap,
    transcript::{Connection, Connections, ServerSaid, ServerState, Transcript, WRITTEN_AFTER},
};

/// Most disconnected servers of a session; beyond it the one disconnected for the longest time is
/// evicted.
const SERVERS_MAX: usize = 8;
/// Longest accepted name, in bytes.
const NAME_BYTES_MAX: usize = 128;
/// Number of displayed characters of a name.
const NAME_CHARS_MAX: usize = 64;
/// The number of the look after calls at which the start of the servers is checked; earlier, the
/// client has not made its own report. If nothing failed, it is checked once more after
/// [`WRITTEN_AFTER`].
const START_LOOK: u8 = 2;
/// Most servers whose start is checked.
const STARTED_MAX: usize = 16;
/// Most logs that are read of a server, newest first: each process of the client creates one.
const LOGS_MAX: usize = 3;
/// Bytes read at the end of a log.
const LOG_BYTES_MAX: u64 = 16 * 1024;
/// Calls in a row without an answer that make a server unresponsive; one call may be too large.
const UNANSWERED_MIN: u32 = 2;
/// The reason for a server that was never connected.
const FAILED_AT_START: &str = "failed at start";

settings! {
    /// Notifies an agent when an MCP server of its client failed to start
    /// (`mcp.server.disconnected`) and when one is connected again (`mcp.server.reconnected`), if the
    /// client does not report this. It is read from the client's log of its connections. Two calls in
    /// a row without an answer are reported too (`mcp.server.unresponsive`).
    enabled: bool = true, flag();
}

/// The disconnected servers of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The time since which each server is disconnected, by the client's names. It is the start of
    /// the calls that found it disconnected, because it may be connected again before the last of
    /// them ends.
    gone: SortedMap<String, Timestamp>,
    /// The servers whose last calls got no answer, by the client's names.
    silent: SortedMap<String, Silent>,
    /// Number of looks after calls, up to [`START_LOOK`].
    looks: u8,
    /// Time of the first check of the start, while a second one is due.
    start_checked_at: Option<Timestamp>,
}

/// Calls in a row without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Silent {
    calls: u32,
    /// The start of the first of them.
    since: Timestamp,
}

/// The connection logs of a session's client.
struct Logs<'m> {
    connections: &'static Connections,
    transcript: Transcript<'m>,
    session: &'m str,
    folder: String,
}

impl<'m> Logs<'m> {
    fn find(moment: &Moment<'m>) -> Option<Self> {
        let (transcript, caches) = (moment.transcript?, moment.caches?);
        let connections = transcript.reader.connections?;
        let folder = (connections.folder)(transcript.path, caches)?;
        Some(Self { connections, transcript, session: moment.session.as_str(), folder })
    }

    /// The entries for a server in the newest log that mentions this session.
    fn connections_of(&self, name: &str, facts: &dyn Facts) -> Vec<Connection> {
        let folder = format!("{}/{name}", self.folder);
        for log in facts.names(Path::new(&folder), LOGS_MAX).into_iter().rev() {
            let path = format!("{folder}/{log}");
            let Some(end) = end_of_file(Path::new(&path), LOG_BYTES_MAX, facts) else { continue };
            let found = (self.connections.read)(&end, self.session);
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }

    /// The client's reports to its agent about servers.
    fn said(&self, facts: &dyn Facts) -> Vec<ServerSaid> {
        let end = end_of(self.transcript, TRANSCRIPT_BYTES_MAX, facts);
        end.map(|end| (self.transcript.reader.servers)(&end)).unwrap_or_default()
    }
}

impl Known {
    /// Applies the outcome of a call that began at `since`; returns the finding, if there is one.
    fn follow(&mut self, call: &ServerCall, since: Timestamp, now: Timestamp) -> Option<Finding> {
        let ServerCall { server, outcome } = call;
        match outcome {
            ServerOutcome::Answered => {
                self.gone.remove(server);
                let silent = self.silent.remove(server).filter(|silent| silent.calls >= UNANSWERED_MIN)?;
                // The agent has the answer itself; this withdraws what is pending.
                let payload = json!({ "server": shown_text(server, NAME_CHARS_MAX), "calls": silent.calls });
                Some(Finding::dated("mcp.server.responsive", Severity::Debug, server, now, payload))
            }
            ServerOutcome::TimedOut if server.len() <= NAME_BYTES_MAX => self.note_silent(server, since),
            ServerOutcome::NotConnected if server.len() <= NAME_BYTES_MAX => {
                self.silent.remove(server);
                self.note_gone(server, since);
                None
            }
            ServerOutcome::TimedOut | ServerOutcome::NotConnected => None,
        }
    }

    /// Counts a call without an answer; the count that makes the server unresponsive is a finding.
    fn note_silent(&mut self, server: &str, since: Timestamp) -> Option<Finding> {
        if self.silent.len() >= SERVERS_MAX && !self.silent.contains_key(server) {
            self.silent.pop_least(|silent| silent.since);
        }
        let silent = self.silent.get_or_insert_with(server.to_owned(), || Silent { calls: 0, since });
        silent.calls = silent.calls.saturating_add(1);
        (silent.calls == UNANSWERED_MIN).then(|| {
            let payload = json!({ "server": shown_text(server, NAME_CHARS_MAX), "calls": silent.calls });
            Finding::dated("mcp.server.unresponsive", Severity::Warning, server, silent.since, payload)
        })
    }

    fn note_gone(&mut self, server: &str, since: Timestamp) {
        self.gone.insert(server.to_owned(), since);
        if self.gone.len() > SERVERS_MAX {
            self.gone.pop_least(|since| *since);
        }
    }

    /// Findings for servers that are connected again.
    fn returned(&mut self, logs: &Logs<'_>, facts: &dyn Facts) -> Vec<Finding> {
        let is_back = |(server, since): &(String, Timestamp)| {
            let last = logs.connections_of(&(logs.connections.name)(server), facts).pop()?;
            (last.is_up && last.at > *since).then(|| (server.clone(), *since, last.at))
        };
        let back: Vec<(String, Timestamp, Timestamp)> = self.gone.iter().filter_map(is_back).collect();
        if back.is_empty() {
            return Vec::new();
        }
        let (said, mut findings) = (logs.said(facts), Vec::new());
        for (server, since, at) in back {
            self.gone.remove(&server);
            let last = said.iter().rfind(|said| is_same(&said.server, &server));
            // If the client reported the tools as removed, it will also report them as added, with
            // this request or the next.
            if last.is_some_and(|last| last.state == ServerState::Gone || last.at >= since) {
                continue;
            }
            let payload = json!({ "server": shown_text(&server, NAME_CHARS_MAX), "down_ms": duration_millis(at.since(since)) });
            findings.push(Finding::dated("mcp.server.reconnected", Severity::Info, &server, at, payload));
        }
        findings
    }

    /// Whether a check of the start is due, now or later.
    fn is_starting(&self) -> bool {
        self.looks < START_LOOK || self.start_checked_at.is_some()
    }

    /// Counts this look; returns whether the check of the start is due now.
    fn is_start_due(&mut self, moment: &Moment<'_>) -> bool {
        if let Some(at) = self.start_checked_at {
            let is_due = moment.now.since(at) >= WRITTEN_AFTER;
            self.start_checked_at.take_if(|_| is_due);
            return is_due;
        }
        if moment.point != InjectionPoint::AfterTool || self.looks >= START_LOOK {
            return false;
        }
        self.looks += 1;
        let is_due = self.looks == START_LOOK;
        self.start_checked_at = is_due.then_some(moment.now);
        is_due
    }

    /// Findings for servers that failed at their start, unless the client reports them.
    fn failed(&mut self, moment: &Moment<'_>, logs: &Logs<'_>, facts: &dyn Facts) -> Vec<Finding> {
        // A subagent has the servers of its parent.
        let is_subagent = moment.session.as_str().contains('/');
        if is_subagent || !self.is_start_due(moment) {
            return Vec::new();
        }
        let last_failure = |name: String| {
            let server = (logs.connections.server)(&name)?;
            let found = logs.connections_of(&name, facts);
            let last = found.last().filter(|_| !found.iter().any(|found| found.is_up))?;
            Some((server, last.at))
        };
        let names = facts.names(Path::new(&logs.folder), STARTED_MAX);
        let failed: Vec<_> = names.into_iter().filter_map(last_failure).collect();
        if failed.is_empty() {
            return Vec::new();
        }
        self.start_checked_at = None;
        let (said, mut findings) = (logs.said(facts), Vec::new());
        for (server, at) in failed {
            if said.iter().any(|said| is_same(&said.server, &server)) {
                continue;
            }
            let payload = json!({ "server": shown_text(&server, NAME_CHARS_MAX), "reason": FAILED_AT_START });
            findings.push(Finding::dated("mcp.server.disconnected", Severity::Warning, &server, at, payload));
            self.note_gone(&server, at);
        }
        findings
    }
}

/// Whether two names are of the same server: punctuation is replaced in names of tools and folders.
fn is_same(one: &str, other: &str) -> bool {
    let is_equal = |(one, other): (u8, u8)| {
        one == other || !one.is_ascii_alphanumeric() && !other.is_ascii_alphanumeric()
    };
    one.len() == other.len() && one.bytes().zip(other.bytes()).all(is_equal)
}

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, _: &Settings, facts: &dyn Facts) -> Vec<Finding> {
        let calls = moment.calls.iter().filter_map(|call| call.server.as_ref());
        let silent: Vec<Finding> =
            calls.filter_map(|call| self.follow(call, moment.calls_since, moment.now)).collect();
        if self.gone.is_empty() && !self.is_starting() {
            return silent;
        }
        let Some(logs) = Logs::find(moment) else { return silent };
        [silent, self.returned(&logs, facts), self.failed(moment, &logs, facts)].concat()
    }

    fn forget(&mut self) {
        self.gone.clear();
        self.silent.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        super::world::{World, ran},
        *,
    };
    use crate::call::Call;

    const NONE: [&str; 0] = [];

    fn world() -> World {
        let mut world = World::with_transcript();
        world.write("/transcript", "");
        world
    }

    fn called(server: &str, is_connected: bool) -> Call {
        let outcome = if is_connected { ServerOutcome::Answered } else { ServerOutcome::NotConnected };
        call_of(server, outcome)
    }

    fn call_of(server: &str, outcome: ServerOutcome) -> Call {
        let server = Some(ServerCall { server: server.to_owned(), outcome });
        Call { server, ..Call::default() }
    }

    /// Adds the client's log entry of a connection attempt, now.
    fn logs(world: &mut World, server: &str, state: &str) {
        let path = format!("/caches/p/logs-{server}/2026.jsonl");
        let before = if world.contains(&path) { world.content(&path) } else { String::new() };
        world.wait(Duration::from_millis(10));
        let now = world.now_ms;
        world.write(&path, &format!("{before}{state} {now} s\n"));
    }

    /// Adds the client's report about a server to its agent, now.
    fn says(world: &mut World, state: &str, server: &str) {
        let line = format!("{}{state} {} {server}\n", world.content("/transcript"), world.now_ms);
        world.write("/transcript", &line);
    }

    fn go_on(world: &mut World) -> Vec<String> {
        world.end_calls("s", vec![ran("ls")])
    }

    #[test]
    fn a_reconnected_server_is_reported_once() {
        let mut world = world();
        logs(&mut world, "depot", "up");
        go_on(&mut world);
        logs(&mut world, "depot", "down");
        assert_eq!(world.end_calls("s", vec![called("depot", false)]), NONE, "the result says so");
        assert_eq!(go_on(&mut world), NONE);
        logs(&mut world, "depot", "down");
        assert_eq!(go_on(&mut world), NONE, "it was tried in vain");
        logs(&mut world, "depot", "up");
        let found = go_on(&mut world);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("reconnected server=depot down_ms="), "{found:?}");
        assert_eq!((go_on(&mut world), world.prompt("s")), (vec![], vec![]), "once");
    }

    #[test]
    fn reconnections_visible_to_the_agent_are_not_reported() {
        type Happens = fn(&mut World);
        let rows: [(&str, Happens); 6] = [
            ("its tools are gone, so it says that they are back", |world| {
                says(world, "gone", "depot");
                logs(world, "depot", "up");
            }),
            ("its tools are back", |world| {
                logs(world, "depot", "up");
                says(world, "back", "depot");
            }),
            ("a call that is answered", |world| {
                logs(world, "depot", "up");
                assert_eq!(world.end_calls("s", vec![called("depot", true)]), NONE);
            }),
            ("a log of another session", |world| {
                let now = world.now_ms + 10;
                world.write("/caches/p/logs-depot/2026.jsonl", &format!("up {now} t\n"));
            }),
            ("another server", |world| logs(world, "store", "up")),
            ("no log", |world| world.remove("/caches/p/logs-depot/2026.jsonl")),
        ];
        for (what, happens) in rows {
            let mut world = world();
            logs(&mut world, "depot", "up");
            go_on(&mut world);
            world.end_calls("s", vec![called("depot", false)]);
            world.wait(Duration::from_secs(1));
            happens(&mut world);
            assert_eq!([go_on(&mut world), go_on(&mut world)].concat(), NONE, "{what}");
        }
    }

    #[test]
    fn a_server_without_answers_is_reported_once() {
        let mut world = world();
        let mut call = |server: &str, outcome| {
            world.wait(Duration::from_secs(60));
            world.end_calls("s", vec![call_of(server, outcome)])
        };
        use ServerOutcome::{Answered, NotConnected, TimedOut};
        assert_eq!(call("depot", TimedOut), NONE, "it may be this call");
        assert_eq!(call("store", TimedOut), NONE, "another server");
        assert_eq!(call("depot", TimedOut), ["unresponsive server=depot calls=2"]);
        assert_eq!(call("depot", TimedOut), NONE);
        assert_eq!(call("depot", Answered), ["responsive server=depot calls=3"]);
        assert_eq!(call("depot", Answered), NONE);
        // An answer, or a lost connection, begins another count.
        for between in [Answered, NotConnected] {
            assert_eq!(call("depot", TimedOut), NONE);
            assert_eq!(call("depot", between), NONE);
        }
        assert_eq!(call("depot", TimedOut), NONE);
        assert_eq!(call("depot", TimedOut), ["unresponsive server=depot calls=2"]);
    }

    #[test]
    fn a_server_failed_at_start_is_reported_once() {
        let mut world = world();
        logs(&mut world, "my-depot", "down");
        logs(&mut world, "store", "up");
        assert_eq!(go_on(&mut world), NONE, "the client may say it");
        assert_eq!(go_on(&mut world), ["disconnected server=my-depot reason=failed at start"]);
        assert_eq!((go_on(&mut world), go_on(&mut world)), (vec![], vec![]), "once");
        logs(&mut world, "my-depot", "up");
        assert_eq!(go_on(&mut world).len(), 1);
    }

    #[test]
    fn a_late_logged_start_failure_is_still_reported() {
        for calls in [2, 3, 12] {
            let mut world = world();
            for _ in 0..calls {
                assert_eq!(go_on(&mut world), NONE);
            }
            logs(&mut world, "depot", "down");
            assert_eq!(go_on(&mut world), NONE, "the logs are not read with every call");
            world.wait(WRITTEN_AFTER);
            assert_eq!(go_on(&mut world), ["disconnected server=depot reason=failed at start"]);
            logs(&mut world, "store", "down");
            world.wait(WRITTEN_AFTER);
            assert_eq!(go_on(&mut world), NONE, "it is no start any more");
        }
    }

    #[test]
    fn server_logs_are_checked_twice_at_session_start() {
        let mut world = world();
        go_on(&mut world);
        go_on(&mut world);
        world.wait(WRITTEN_AFTER);
        assert_eq!(world.prompt("s"), NONE);
        logs(&mut world, "depot", "down");
        for _ in 0..8 {
            world.wait(WRITTEN_AFTER);
            assert_eq!(go_on(&mut world), NONE);
        }
    }

    #[test]
    fn state_of_earlier_version_needs_no_start_check() {
        for looks in [2, 8] {
            let mut old: Known =
                serde_json::from_str(&format!(r#"{{"gone":{{}},"looks":{looks}}}"#)).expect("read");
            let session = crate::event::SessionId::new("s");
            for point in [InjectionPoint::AfterTool, InjectionPoint::TurnStart] {
                assert!(!old.is_start_due(&Moment::new(&session, point, Timestamp::from_millis(1 << 40))));
            }
            assert!(!old.is_starting());
        }
    }

    #[test]
    fn announced_or_false_start_failures_are_not_reported() {
        type Begins = fn(&mut World);
        let rows: [(&str, Begins); 4] = [
            ("the client says it", |world| {
                logs(world, "my-depot", "down");
                says(world, "failed", "my_depot");
            }),
            ("it was connected once", |world| {
                logs(world, "depot", "up");
                logs(world, "depot", "down");
            }),
            ("it is no log", |world| world.write("/caches/p/other/1", "down 5 s\n")),
            ("a subagent", |world| {
                logs(world, "depot", "down");
                world.end_calls("s/a", vec![ran("ls")]);
                assert_eq!(world.end_calls("s/a", vec![ran("ls")]), NONE);
                world.remove("/caches/p/logs-depot/2026.jsonl");
            }),
        ];
        for (what, begins) in rows {
            let mut world = world();
            begins(&mut world);
            assert_eq!([go_on(&mut world), go_on(&mut world), go_on(&mut world)].concat(), NONE, "{what}");
        }
    }

    #[test]
    fn the_table_of_disconnected_servers_is_bounded() {
        let mut world = world();
        for server in 0..SERVERS_MAX + 2 {
            world.wait(Duration::from_secs(1));
            world.end_calls("s", vec![called(&format!("s{server}"), false)]);
        }
        world.end_calls("s", vec![called(&"x".repeat(NAME_BYTES_MAX + 1), false)]);
        let session = crate::event::SessionId::new("s");
        let view = world.memory.view(&session, None, |_| true, Timestamp::ZERO);
        let gone: Vec<&str> = view.known.around.mcp.gone.keys().map(String::as_str).collect();
        assert_eq!(gone, ["s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9"]);
        world.settings.mcp.enabled = false;
        go_on(&mut world);
        let view = world.memory.view(&session, None, |_| true, Timestamp::ZERO);
        assert_eq!(view.known.around.mcp.gone.len(), 0);
    }
}
