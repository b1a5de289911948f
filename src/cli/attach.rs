//! `aside attach`: wakes a session by printing what its queue asks to be told, one line an event.
//!
//! A client runs this once a session and makes an event of each line. It follows the queue as the session's monitor; when the
//! queue asks for a wake, it makes the exchange and prints the text. It is silent about trouble, as every line is an event, and
//! waits for a daemon that is away. It ends when the session ends, when another process takes its place, and when its client
//! has gone: then the pipe it writes to has no reader, or a process it was started by is no more.

mod client_gone;

use std::{
    env,
    hash::{BuildHasher, Hasher, RandomState},
    io::{self, Write},
    thread,
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};

use super::CliError;
use crate::client::{Client, percent_encode};

/// The variable in which the client names the session.
const SESSION_VARIABLE: &str = "CLAUDE_CODE_SESSION_ID";
/// Most characters of a line: it comes unasked, and stays in the context.
const CHARS_MAX: u32 = 2_000;
/// Shortest and longest pause before the daemon is looked for again.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The harness: claude
    #[arg(value_parser = ["claude"])]
    name: String,
    /// The session [default: $CLAUDE_CODE_SESSION_ID]
    session: Option<String>,
}

pub(super) fn run(args: &Args, client: &Client) -> Result<(), CliError> {
    let session = args.session.clone().or_else(|| env::var(SESSION_VARIABLE).ok());
    let Some(session) = session.filter(|session| !session.is_empty()) else {
        let message = format!("name the session, or set {SESSION_VARIABLE}");
        return Err(CliError::Usage(message));
    };
    let (done, is_done) = io::pipe().map(|(read, write)| (write, read)).map_err(CliError::Run)?;
    let mut monitor = Monitor {
        client: client.clone(),
        session,
        name: RandomState::new().build_hasher().finish(),
        exchanges: 0,
    };
    let follow = move || {
        monitor.follow();
        drop(done);
    };
    // The thread may be in the middle of anything when the client goes; the process ends it.
    thread::Builder::new().name("monitor".to_owned()).spawn(follow).map_err(CliError::Run)?;
    client_gone::wait(&is_done).map_err(CliError::Run)
}

struct Monitor {
    client: Client,
    session: String,
    /// What no other process names its carriers by; an id of a process comes again.
    name: u64,
    /// How many were made.
    exchanges: u64,
}

/// How following the queue ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The daemon is away.
    Lost,
    /// There is nothing left to do here.
    Done,
}

#[derive(Deserialize)]
struct Pending {
    wake: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    injection: String,
    text: String,
}

impl Monitor {
    /// Follows the queue until there is nothing left to do.
    fn follow(&mut self) {
        let mut pause = PAUSES.0;
        loop {
            let (end, was_there) = self.follow_once();
            if end == End::Done {
                return;
            }
            pause = if was_there { PAUSES.0 } else { pause };
            thread::park_timeout(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Follows the queue as long as the daemon is there; whether it was.
    fn follow_once(&mut self) -> (End, bool) {
        let path = format!("/v1/sessions/{}/stream?door=monitor", percent_encode(&self.session));
        let Ok(Ok(mut events)) = self.client.stream(&path, &[]) else { return (End::Lost, false) };
        while let Ok(Some(event)) = events.next_event() {
            let asks = || serde_json::from_str::<Pending>(&event.data).ok()?.wake;
            let end = match event.kind.as_str() {
                "closed" | "replaced" => End::Done,
                // In a turn the client's hooks are the door.
                "pending" if asks().as_deref() == Some("start_turn") => self.wake(),
                _ => End::Lost,
            };
            if end == End::Done {
                return (End::Done, true);
            }
        }
        (End::Lost, true)
    }

    /// Makes the exchange for a wake and prints what it releases. [`End::Done`] when nobody reads it.
    fn wake(&mut self) -> End {
        self.exchanges += 1;
        let body = json!({
            "point": "turn_start",
            "carrier": format!("monitor:{:x}:{}", self.name, self.exchanges),
            "budget": { "max_chars": CHARS_MAX },
            "format": "line",
        });
        let Some(answer) = self.ask("exchange", &body) else { return End::Lost };
        // One write, and no line break but its own: the client makes an event of each.
        let line = answer.text.replace(['\n', '\r'], " ") + "\n";
        let mut stdout = io::stdout().lock();
        match stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => End::Lost,
            Err(_) => {
                self.ask(&format!("undelivered/{}", percent_encode(&answer.injection)), &Value::Null);
                End::Done
            }
        }
    }

    fn ask(&self, what: &str, body: &Value) -> Option<Answer> {
        let path = format!("/v1/sessions/{}/{what}", percent_encode(&self.session));
        let headers = [("content-type", "application/json")];
        let response = self.client.request("POST", &path, &headers, body.to_string().as_bytes()).ok()?;
        (response.status == 200).then(|| serde_json::from_slice(&response.body).ok()).flatten()
    }
}
