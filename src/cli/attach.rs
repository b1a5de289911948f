//! `aside attach`: wakes a session by printing the notifications for which its queue requests a
//! wake, one line each.
//!
//! A client runs this once per process and makes an event of each line, or of lines that arrive
//! together. It follows the queue as the session's monitor, and continues with the next session
//! when the client does. When the queue requests a wake, it makes the exchange and prints the text.
//! It claims only as much as the client shows; the hooks of the new turn deliver the rest. It
//! reports errors on stderr, because every line of stdout is an event, and waits for an absent
//! daemon.
//!
//! It ends only after its client: when its output pipe has no reader, or an ancestor process has
//! ended. A client also makes an event of its monitor's end and starts a turn for it, so an idle
//! monitor stays.

mod client_gone;
mod started_by;

use std::{
    env,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    thread,
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{CliError, of_harness::harness, terminal::one_line};
use crate::{
    client::{Client, Response, percent_encode},
    harness::{header, kind::Kind},
    wire::views::PendingView,
};
use started_by::StartedBy;

/// Most characters that are printed at once.
///
/// Source: measured with clients 2.1.329 and 2.1.330: a burst is cut at 3,000 characters. Each line
/// has a limit of its own, which the format `line` keeps.
const BURST_CHARS_MAX: u32 = 2_900;
/// Shortest and longest pause before a reconnect to the daemon.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness
    #[arg(value_parser = harness(|kind| kind.word))]
    harness: &'static Kind,
    /// The session [default: that of the client that starts this, from its variable]
    session: Option<String>,
}

pub(super) fn run(args: &Args, client: &Client) -> Result<(), CliError> {
    let above = client_gone::Above::now();
    // An explicit session is used wherever the client runs.
    let started_by =
        if args.session.is_none() { StartedBy::find(args.harness, above.client()) } else { None };
    let variable = args.harness.variables.forwarded_as(header::SESSION);
    let session = args.session.clone().or_else(|| env::var(variable?).ok());
    let Some(session) = session.filter(|session| !session.is_empty()) else {
        let or_set = variable.map(|variable| format!(", or set {variable}")).unwrap_or_default();
        return Err(CliError::Usage(format!("name the session{or_set}")));
    };
    let failed = |source| CliError::System { doing: "follow the queue", source };
    let (done, is_done) = io::pipe().map(|(read, write)| (write, read)).map_err(failed)?;
    let mut monitor = Monitor {
        client: client.clone(),
        session,
        started_by,
        name: RandomState::new().build_hasher().finish(),
        exchanges: 0,
    };
    let follow = move || {
        monitor.follow();
        drop(done);
    };
    // The thread may be in any call when the client ends; the process's exit ends it.
    thread::Builder::new().name("monitor".to_owned()).spawn(follow).map_err(failed)?;
    above.wait(&is_done).map_err(failed)
}

struct Monitor {
    client: Client,
    session: String,
    /// The client, if known.
    started_by: Option<StartedBy>,
    /// Unique prefix of this process's carriers; a process id is reused.
    name: u64,
    /// Number of answered exchanges. An unanswered one is repeated under the same carrier: a new
    /// carrier would prove that the first one arrived.
    exchanges: u64,
}

/// Why following the queue ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The daemon is gone.
    Lost,
    /// Another process is now the monitor.
    Replaced,
    /// The output has no reader.
    Unread,
}

#[derive(Deserialize)]
struct Answer {
    injection: String,
    text: String,
}

impl Monitor {
    /// Follows the queue until the output has no reader.
    fn follow(&mut self) {
        let mut pause = PAUSES.0;
        loop {
            let (end, was_there) = self.follow_once();
            match end {
                End::Lost => {}
                End::Replaced => loop {
                    thread::park();
                },
                End::Unread => return,
            }
            pause = if was_there { PAUSES.0 } else { pause };
            thread::park_timeout(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Follows the queue until the daemon is gone; also returns whether it was reachable.
    fn follow_once(&mut self) -> (End, bool) {
        let file = self.started_by.as_ref().and_then(StartedBy::session_file);
        if let Some(file) = &file {
            self.session.clone_from(&file.session_id);
        }
        // A daemon that does not know the session yet opens it from these facts.
        let facts = self.started_by.as_ref().map(|client| client.facts(file.as_ref())).unwrap_or_default();
        let path = format!("/v1/sessions/{}/stream?wake_route=monitor{facts}", percent_encode(&self.session));
        let Ok(Ok(mut events)) = self.client.stream(&path, &[]) else { return (End::Lost, false) };
        while let Ok(Some(event)) = events.next_event() {
            let end = match event.kind.as_str() {
                "replaced" => Some(End::Replaced),
                "pending" => self.on_pending(&event.data),
                _ => None,
            };
            if let Some(end) = end {
                return (end, true);
            }
        }
        (End::Lost, true)
    }

    /// Updates the session, and makes the exchange if the queue requests a wake. Returns an end if
    /// the output has no reader.
    fn on_pending(&mut self, data: &str) -> Option<End> {
        let pending: PendingView = match serde_json::from_str(data) {
            Ok(pending) => pending,
            Err(error) => {
                let error = error.to_string();
                // A closed stderr is not an error.
                writeln!(
                    io::stderr(),
                    "aside attach: the queue's state cannot be read: {}",
                    one_line(&error)
                )
                .ok();
                return None;
            }
        };
        self.session = pending.session;
        // During a turn the client's hooks are the wake route.
        (pending.wake.as_deref() == Some("start_turn")).then(|| self.wake()).flatten()
    }

    /// Makes the exchange for a wake and prints the released text. Returns an end if the output has
    /// no reader.
    fn wake(&mut self) -> Option<End> {
        let body = json!({
            "point": "turn_start",
            "carrier": format!("monitor:{:x}:{}", self.name, self.exchanges),
            "budget": { "max_chars": BURST_CHARS_MAX },
            "format": "line",
            "trigger": "wake",
        });
        let response = self.ask("exchange", &body)?;
        self.exchanges += u64::from(response.status < 500);
        let answer = answer(&response)?;
        // One write: the client makes one event of lines that arrive together.
        let lines = answer.text + "\n";
        let mut stdout = io::stdout().lock();
        match stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => None,
            Err(_) => {
                self.ask(&format!("undelivered/{}", percent_encode(&answer.injection)), &Value::Null);
                Some(End::Unread)
            }
        }
    }

    fn ask(&self, what: &str, body: &Value) -> Option<Response> {
        let path = format!("/v1/sessions/{}/{what}", percent_encode(&self.session));
        let headers = [("content-type", "application/json")];
        self.client.request("POST", &path, &headers, body.to_string().as_bytes()).ok()
    }
}

/// The released text, if any.
fn answer(response: &Response) -> Option<Answer> {
    (response.status == 200).then(|| serde_json::from_slice(&response.body).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::fake::FakeDaemon;

    #[test]
    fn the_queue_s_state_of_another_version_is_used_as_far_as_it_goes() {
        let daemon = FakeDaemon::answering_json(204, "");
        let client = Client::new(daemon.socket().to_owned(), Duration::from_secs(5));
        let mut monitor =
            Monitor { client, session: "s1".to_owned(), started_by: None, name: 7, exchanges: 0 };
        for (data, session, exchanges) in [
            (r#"{"session":"s2","new":[1]}"#, "s2", 0),
            ("{}", "s2", 0),
            ("[", "s2", 0),
            (r#"{"session":"s3","pending":"many","wake":"start_turn"}"#, "s2", 0),
            (r#"{"session":"s3","wake":"start_turn"}"#, "s3", 1),
        ] {
            assert_eq!(monitor.on_pending(data), None, "{data}");
            assert_eq!((&*monitor.session, monitor.exchanges), (session, exchanges), "{data}");
        }
    }
}
