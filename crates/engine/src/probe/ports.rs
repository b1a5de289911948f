//! Closed ports of servers that an agent left running in the background.
//!
//! A port is tracked when the output of such a command names it as listening (`ports`), and a
//! connection was accepted. It is reported as closed when two looks at least `grace` apart find it
//! closed, so that a server that reloads its program is not reported. A closed port is not reported
//! if the client reports the end of its command, which has more detail, or if the session's own
//! command may have closed it.
//!
//! Only ports on this machine's addresses count. A line about a connection to another host, a port
//! in use, or a debugger is skipped: another program listens there, or a connection would disturb
//! the program.

#[cfg(test)]
mod tests;

use std::{path::Path, sync::LazyLock, time::Duration};

use journal::time::{Timestamp, short_duration};
use regex::Regex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    Entry, Facts, Finding, Moment,
    background::{ID_BYTES_MAX, reported_ends, running_commands, shown_command},
    kind::Probe,
};
use crate::{
    call::{Call, command::may_end_processes},
    event::{EventRef, Severity, first_bytes, strip_text},
    settings::settings,
    sorted::{SortedMap, SortedSet},
};

/// Default minimum time between two looks at a closed port: longer than a server takes to reload
/// its program.
const GRACE: Duration = Duration::from_secs(5);
/// Most known commands of a session; beyond it the longest-running one is evicted.
const SERVERS_MAX: usize = 8;
/// Most known ports of a session; further ones are ignored.
const PORTS_MAX: usize = 8;
/// Most searched bytes of an output: a server names its port at its start.
const SEARCHED_BYTES_MAX: u64 = 64 * 1024;
/// Bytes of an output read per look.
const READ_BYTES_MAX: u64 = 16 * 1024;
/// Longest accepted path, in bytes.
const PATH_BYTES_MAX: usize = 1_024;

settings! {
    /// Notifies an agent when a server that it left running in the background no longer accepts
    /// connections at its port (`tool.port.closed`), and when it does again (`tool.port.opened`).
    /// Only ports of this machine that the output of the command names are checked.
    enabled: bool = true, flag();
    /// The shortest time between the two checks that find a port closed: longer than a server needs
    /// to restart.
    grace: Duration = GRACE, duration(Duration::from_secs(1)..=Duration::from_secs(3_600));
}

/// The servers of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The background commands, by the harness's ids.
    servers: SortedMap<String, Server>,
    /// Ports reported as closed, and not seen open since.
    said: SortedSet<u16>,
    /// Whether the calls of the last look had a command that may end processes.
    has_ended_some: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Server {
    /// The first characters of the command.
    command: String,
    since: Timestamp,
    /// The path of its output file.
    output: String,
    /// The number of searched bytes of the output.
    searched: u64,
    ports: SortedMap<u16, State>,
}

/// The state of a port at the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Named by its server, and not seen open since.
    Named,
    /// It accepts connections.
    Open { since: Timestamp },
    /// It was open and is closed; this was not reported.
    Closing { since: Timestamp, at: Timestamp },
    /// It is closed; this was reported.
    Closed,
}

/// What may have closed the ports that are closed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClosedBy {
    /// A command of the session.
    Session,
    Unknown,
}

impl State {
    /// The state after a look that found it open.
    const fn opened(self, now: Timestamp) -> Self {
        match self {
            Self::Named | Self::Closed => Self::Open { since: now },
            Self::Closing { since, .. } | Self::Open { since } => Self::Open { since },
        }
    }

    /// The state after a look that found it closed.
    const fn closed(self, by: ClosedBy, now: Timestamp) -> Self {
        match (self, by) {
            (Self::Open { .. } | Self::Closing { .. }, ClosedBy::Session) => Self::Named,
            (Self::Open { since }, ClosedBy::Unknown) => Self::Closing { since, at: now },
            (Self::Named | Self::Closed, _) | (Self::Closing { .. }, ClosedBy::Unknown) => self,
        }
    }
}

impl Known {
    pub(super) fn outputs(&self) -> impl Iterator<Item = &str> {
        self.servers.values().map(|server| server.output.as_str())
    }

    /// Applies the ended calls: the commands that they started and ended.
    fn follow(&mut self, calls: &[Call], now: Timestamp) {
        for call in calls {
            if let (Some(id), Some(output)) = (&call.started, &call.output)
                && id.len() <= ID_BYTES_MAX
                && output.len() <= PATH_BYTES_MAX
            {
                self.start(id, output, call, now);
            }
            for id in &call.ended {
                self.servers.remove(id);
            }
        }
    }

    fn start(&mut self, id: &str, output: &str, call: &Call, now: Timestamp) {
        if self.servers.len() >= SERVERS_MAX {
            self.servers.pop_least(|server| server.since);
        }
        let (command, output, ports) = (shown_command(call), output.to_owned(), SortedMap::new());
        self.servers.insert(id.to_owned(), Server { command, since: now, output, searched: 0, ports });
    }

    /// Finds the ports in the outputs. A port belongs to the last command that names it.
    fn search(&mut self, facts: &dyn Facts) {
        let found: Vec<_> = self
            .servers
            .iter_mut()
            .flat_map(|(id, server)| server.search(facts).into_iter().map(|port| (id.clone(), port)))
            .collect();
        for (id, port) in found {
            let count: usize = self.servers.values().map(|server| server.ports.len()).sum();
            let owner = self.servers.values_mut().find(|server| server.ports.contains_key(&port));
            match owner {
                Some(owner) => owner.ports.remove(&port),
                None if count >= PORTS_MAX => continue,
                None => None,
            };
            if let Some(server) = self.servers.get_mut(&id) {
                server.ports.insert(port, State::Named);
            }
        }
    }

    /// Checks each port, until a check times out: the next ones would take as long.
    fn ask(&mut self, by: ClosedBy, now: Timestamp, facts: &dyn Facts) -> Vec<Finding> {
        let mut findings = Vec::new();
        for server in self.servers.values_mut() {
            for (port, state) in server.ports.iter_mut() {
                let Some(is_open) = facts.accepts(*port) else { return findings };
                let after = if is_open { state.opened(now) } else { state.closed(by, now) };
                let before = std::mem::replace(state, after);
                if is_open && self.said.remove(port) {
                    // If another command of the session has opened it, this only withdraws the
                    // report, so it is `Debug`.
                    let severity = if before == State::Closed { Severity::Info } else { Severity::Debug };
                    let payload = json!({ "port": port, "was": server.command });
                    findings.push(Finding::dated("tool.port.opened", severity, *port, now, payload));
                }
            }
        }
        findings
    }

    /// Findings for ports that stay closed.
    fn say(&mut self, grace: Duration, moment: &Moment<'_>, facts: &dyn Facts) -> Vec<Finding> {
        let is_late = |state: &State| match state {
            State::Closing { at, .. } => moment.now.since(*at) >= grace,
            State::Named | State::Open { .. } | State::Closed => false,
        };
        if !self.servers.values().flat_map(|server| server.ports.values()).any(is_late) {
            return Vec::new();
        }
        let reported = reported_ends(moment, facts);
        self.servers.retain(|id, _| !reported.contains(id));
        let mut findings = Vec::new();
        for server in self.servers.values_mut() {
            for (port, state) in server.ports.iter_mut().filter(|(_, state)| is_late(state)) {
                let State::Closing { since, at } = std::mem::replace(state, State::Closed) else { continue };
                let up = short_duration(at.since(since));
                let payload = json!({ "port": port, "was": server.command, "up": up });
                findings.push(Finding::dated("tool.port.closed", Severity::Warning, *port, since, payload));
                self.said.insert(*port);
            }
        }
        // Ports without a command are evicted first.
        while self.said.len() > PORTS_MAX {
            let has = |port: &u16| self.servers.values().any(|server| server.ports.contains_key(port));
            let lost = self.said.iter().copied().find(|port| !has(port));
            let Some(port) = lost.or_else(|| self.said.first().copied()) else { break };
            self.said.remove(&port);
        }
        findings
    }
}

impl Server {
    /// Reads new output, up to the end of its last complete line, and returns its new ports.
    fn search(&mut self, facts: &dyn Facts) -> Vec<u16> {
        if self.searched >= SEARCHED_BYTES_MAX {
            return Vec::new();
        }
        let path = Path::new(&self.output);
        let Entry::File(print) = facts.entry(path) else { return Vec::new() };
        if print.size <= self.searched {
            return Vec::new();
        }
        let Some(text) = facts.read(path, self.searched, READ_BYTES_MAX) else { return Vec::new() };
        let is_full = text.len() as u64 >= READ_BYTES_MAX;
        let end = memchr::memrchr(b'\n', &text).map(|at| at + 1).or_else(|| is_full.then_some(text.len()));
        let Some(lines) = end.and_then(|end| text.get(..end)) else { return Vec::new() };
        self.searched += lines.len() as u64;
        let text = String::from_utf8_lossy(lines);
        let ports = ports(&strip_text(&text));
        ports.into_iter().filter(|port| !self.ports.contains_key(port)).collect()
    }
}

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Finding> {
        self.follow(moment.calls, moment.now);
        if self.servers.is_empty() {
            self.has_ended_some = false;
            return Vec::new();
        }
        self.search(facts);
        let mut commands = moment.calls.iter().filter_map(|call| call.command.as_deref());
        let has_ended_some = commands.any(may_end_processes);
        // A process may take some time to end, so the next look counts too.
        let is_own = std::mem::replace(&mut self.has_ended_some, has_ended_some) || has_ended_some;
        let by = if is_own { ClosedBy::Session } else { ClosedBy::Unknown };
        let opened = self.ask(by, moment.now, facts);
        [opened, self.say(settings.grace, moment, facts)].concat()
    }

    /// Applies the end of a turn, which lists the running commands. The client or `background`
    /// reports the end of one.
    fn observe(&mut self, event: &EventRef<'_>, _now: Timestamp) {
        if self.servers.is_empty() {
            return;
        }
        if let Some(running) = running_commands(event) {
            self.servers.retain(|id, _| running.contains(id));
        }
    }

    fn forget(&mut self) {
        *self = Self::default();
    }
}

/// Bytes read of a line.
const LINE_BYTES_MAX: usize = 500;

/// An address with a port. Only loopback and wildcard addresses: others are not checked.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:^|[^\w.:-])(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1?\]|\*):(\d{1,5})(?:[^\w.:]|\.\s|\.?$)",
    )
});
/// A port without an address, after words for a started server.
static PORT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:listen|running|start|serv|ready|available).{0,60}?(?:\bport(?:\(s\))?[ :=]{1,3}|[ (]:{1,3})(\d{1,5})\b",
    )
});
/// Words of lines about ports of other programs.
static OF_OTHERS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)connect|econn|eaddr|in use|already|refused|upstream|proxy|forward|debugger|not listen|stop|clos",
    )
});
/// An IPv4 address. One that does not begin with an entry of [`OWN`] is of another machine.
static ELSEWHERE: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"));
/// Prefixes of this machine's addresses.
const OWN: [&str; 2] = ["127.", "0.0.0.0"];

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("it is tested")
}

/// The ports in a text, in order, each once.
fn ports(text: &str) -> Vec<u16> {
    let mut found = Vec::new();
    for line in text.split(['\n', '\r']).map(|line| first_bytes(line.trim(), LINE_BYTES_MAX)) {
        if !line.contains(|c: char| c.is_ascii_digit()) || OF_OTHERS.is_match(line) {
            continue;
        }
        let is_elsewhere = |address: &str| !OWN.iter().any(|own| address.starts_with(own));
        let alone = (!ELSEWHERE.find_iter(line).any(|found| is_elsewhere(found.as_str()))).then_some(&*PORT);
        let matches =
            [Some(&*ADDRESS), alone].into_iter().flatten().flat_map(|regex| regex.captures_iter(line));
        for port in matches.filter_map(|found| found.get(1)?.as_str().parse().ok()) {
            if port > 0 && !found.contains(&port) {
                found.push(port);
            }
        }
    }
    found
}
