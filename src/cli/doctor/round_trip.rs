//! A live round trip: publishes an event, and expects its text from a hook.
//!
//! The session is an invented subagent without a known parent. Such a session gets only
//! notifications addressed to it, so the test takes none of a real session.

use std::{
    fs,
    io::{self, Write},
    path::Path,
    process::Stdio,
};

use hook::client::Client;
use serde_json::json;
use uuid::Uuid;

use crate::{
    api::wire::sources::{DOCTOR_AGENT as AGENT, DOCTOR_SESSION as SESSION},
    cli::{
        doctor::{Check, binary::hook_command},
        ids::PROBE_SOURCE,
    },
    harness::kind::{Hooked, Kind, MadeUp, RoundTrip},
};

pub(super) const NAME: &str = "round trip";
/// The event type: of a core subscriber, which cannot be disabled.
const EVENT_TYPE: &str = "tool.call.failure";
/// Most changes of a file until one is noticed; a look that times out is skipped.
const LOOKS_MAX: u32 = 3;

/// Hooks of one harness for the round trip.
struct Way<'a> {
    hooked: Hooked,
    hooks: &'static RoundTrip,
    made_up: MadeUp<'a>,
    client: &'a Client,
}

pub(super) fn check(kind: &'static Kind, client: &Client) -> Check {
    let Some(hooked) = kind.hooked() else {
        return Check::ok(NAME, format!("not tried: {}", kind.without_hooks()));
    };
    let Some(hooks) = &hooked.hooks.round_trip else {
        let found = format!("not tried: the hooks of {} do not support an artificial subagent", kind.title);
        return Check::ok(NAME, found);
    };
    let id = format!("{SESSION}{}", Uuid::now_v7());
    let way = Way { hooked, hooks, made_up: MadeUp { conversation: &id, agent: AGENT }, client };
    let outcome = way.try_out();
    // The daemon closes an unused session; until then this one should not be visible.
    let closed = way.hook(&(hooks.end)(&way.made_up));
    match (outcome, closed) {
        (Ok(characters), Ok(_)) => {
            Check::ok(NAME, format!("an event was delivered once, as {characters} characters of text"))
        }
        (Err(trouble), _) => Check::fail(NAME, trouble, "aside status, and the daemon's log"),
        (Ok(_), Err(error)) => {
            Check::warn(NAME, format!("the session {id} could not be closed: {error}"), "aside sessions")
        }
    }
}

/// Changes a file in `folder` that an invented subagent has read, and checks whether the subagent
/// is notified; `None` if the harness's hooks support no subagents.
///
/// Errors: the problem, in words.
pub(super) fn change_a_file(
    kind: &'static Kind,
    client: &Client,
    folder: &Path,
) -> Option<Result<(), String>> {
    let hooked = kind.hooked()?;
    let hooks = hooked.hooks.round_trip.as_ref()?;
    let id = format!("{SESSION}{}", Uuid::now_v7());
    let path = folder.join(&id);
    let way = Way { hooked, hooks, made_up: MadeUp { conversation: &id, agent: AGENT }, client };
    let outcome = way.try_to_change(&path);
    drop((way.hook(&(hooks.end)(&way.made_up)), fs::remove_file(&path)));
    Some(outcome)
}

impl Way<'_> {
    fn try_to_change(&self, path: &Path) -> Result<(), String> {
        let write = |number: u32| {
            let cannot = |error| format!("{} cannot be written: {error}", path.display());
            fs::write(path, format!("{number}\n")).map_err(cannot)
        };
        write(0)?;
        for number in 1..=LOOKS_MAX {
            let before = self.ask(&format!("read-{number}"), Some(path))?;
            write(number)?;
            let after = self.ask(&format!("look-{number}"), None)?;
            let is_named = |text: &String| text.contains(self.made_up.conversation);
            if [before, after].iter().flatten().any(is_named) {
                return Ok(());
            }
        }
        Err("a changed file was not detected in time".to_owned())
    }

    /// Returns the number of characters that the agent would have received.
    fn try_out(&self) -> Result<usize, String> {
        let MadeUp { conversation: id, agent } = self.made_up;
        let event = json!({
            "id": id, "type": EVENT_TYPE, "source": PROBE_SOURCE, "session": format!("{id}/{agent}"),
            "payload": { "tool_name": "doctor", "error_type": "none", "error_message": "a delivery test" },
        });
        let headers = [("content-type", "application/json")];
        let answer = self
            .client
            .request("POST", "/v1/events", &headers, event.to_string().as_bytes())
            .map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("the event was refused with HTTP status {}", answer.status));
        }
        let characters =
            match self.ask("first", None)? {
                None => Err("the hook printed nothing: no answer in time, or no notification for the event"
                    .to_owned()),
                Some(text) => Ok(text.chars().count()),
            }?;
        // Also confirms the delivery, so that the text is not redelivered.
        match self.ask("second", None)? {
            None => Ok(characters),
            Some(_) => Err("the event was delivered twice".to_owned()),
        }
    }

    /// Runs a hook that carries text; returns the text for the agent, if any.
    fn ask(&self, call: &str, read: Option<&Path>) -> Result<Option<String>, String> {
        let output = self
            .hook(&(self.hooks.ask)(&self.made_up, call, read))
            .map_err(|error| format!("the hook cannot be run: {error}"))?;
        if output.is_empty() {
            return Ok(None);
        }
        let text = (self.hooks.text)(&output).ok_or("the hook printed no text for the agent")?;
        Ok(Some(text))
    }

    /// Runs the hook as the client does, without the caller's own client variables; returns its
    /// output.
    fn hook(&self, stdin: &str) -> io::Result<Vec<u8>> {
        let mut command = hook_command(self.hooked.kind)?;
        for (_, variable) in self.hooked.hooks.client.variables.forwarded {
            command.env_remove(variable);
        }
        let mut child = command
            .env("ASIDE_SOCKET", self.client.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            pipe.write_all(stdin.as_bytes())?;
        }
        child.wait_with_output().map(|output| output.stdout)
    }
}
