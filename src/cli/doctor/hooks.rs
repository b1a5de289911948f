//! Whether this program can run hooks in time, and a live round trip: publishes an event, and expects
//! its text from a hook.
//!
//! The session is an invented subagent without a known parent. Such a session gets only
//! notifications addressed to it, so the test takes none of a real session.

use std::{
    env, fs,
    io::{self, Read, Write},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use hook::client::{Client, hook_deadline};
use serde_json::json;
use uuid::Uuid;

use super::Check;
use crate::{
    api::wire::sources::{DOCTOR_AGENT as AGENT, DOCTOR_SESSION as SESSION},
    cli::{ids::PROBE_SOURCE, run::timed},
    harness::kind::{Hooked, Kind, MadeUp, RoundTrip},
};

pub(super) const ROUND_TRIP: &str = "round trip";
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

pub(super) fn round_trip(kind: &'static Kind, client: &Client) -> Check {
    let Some(hooked) = kind.hooked() else {
        return Check::ok(ROUND_TRIP, format!("not tried: {}", kind.without_hooks()));
    };
    let Some(hooks) = &hooked.hooks.round_trip else {
        let found = format!("not tried: the hooks of {} do not support an artificial subagent", kind.title);
        return Check::ok(ROUND_TRIP, found);
    };
    let id = format!("{SESSION}{}", Uuid::now_v7());
    let way = Way { hooked, hooks, made_up: MadeUp { conversation: &id, agent: AGENT }, client };
    let outcome = way.try_out();
    // The daemon closes an unused session; until then this one should not be visible.
    let closed = way.hook(&(hooks.end)(&way.made_up));
    match (outcome, closed) {
        (Ok(characters), Ok(_)) => {
            Check::ok(ROUND_TRIP, format!("an event was delivered once, as {characters} characters of text"))
        }
        (Err(trouble), _) => Check::fail(ROUND_TRIP, trouble, "aside status, and the daemon's log"),
        (Ok(_), Err(error)) => Check::warn(
            ROUND_TRIP,
            format!("the session {id} could not be closed: {error}"),
            "aside sessions",
        ),
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

const HOOK_TIME: &str = "hook time";
/// Most bytes read of the program's file, which starts with its headers.
const HEADER_BYTES_MAX: u64 = 64 * 1024;
/// Number of runs by which a hook is measured.
const RUNS: usize = 9;
/// The duration from which users notice hooks; they complain of 35 ms and more.
const NOTICED: Duration = Duration::from_millis(30);

/// Whether the program that hooks run needs a dynamic loader, which slows down every hook.
pub(super) fn program() -> Check {
    const NAME: &str = "program";
    let own = env::current_exe();
    let found = own.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let mut head = Vec::new();
    let program = own.map(|own| hook::small_program(&own).unwrap_or(own));
    let read =
        program.and_then(fs::File::open).and_then(|file| file.take(HEADER_BYTES_MAX).read_to_end(&mut head));
    if let Err(error) = read {
        return Check::warn(NAME, format!("{found} cannot be read: {error}"), "check its permissions");
    }
    let version = env!("CARGO_PKG_VERSION");
    if cfg!(debug_assertions) {
        let remedy = "cargo install --path . builds an optimized one";
        return Check::warn(NAME, format!("{found}, version {version}, built for debugging"), remedy);
    }
    Check::ok(
        NAME,
        match is_static(&head) {
            Some(true) => format!("{found}, version {version}, static"),
            Some(false) => format!("{found}, version {version}, dynamic; a static one starts faster"),
            None => format!("{found}, version {version}"),
        },
    )
}

/// Duration of a hook of the harness, from the start of its process to its end.
pub(super) fn time(hooked: Hooked, socket: &Path) -> Check {
    let mut times: Vec<Duration> = Vec::new();
    for _ in 0..RUNS {
        match timed(|| run_hook(hooked, socket)) {
            (Ok(()), time) => times.push(time),
            (Err(error), _) => {
                let found = format!("this program cannot be run: {error}");
                return Check::fail(HOOK_TIME, found, "install it again");
            }
        }
    }
    times.sort_unstable();
    // The measured hooks have inherited the variable.
    let deadline = hook_deadline(|name| env::var_os(name));
    hook_time(times.get(RUNS / 2).copied().unwrap_or_default(), deadline)
}

fn hook_time(median: Duration, deadline: Duration) -> Check {
    let found = format!("{:.1} ms, the median of {RUNS}", median.as_secs_f64() * 1_000.0);
    if median >= deadline {
        let limit = deadline.as_millis();
        Check::fail(
            HOOK_TIME,
            found,
            format!("a hook times out after {limit} ms; check the load of the machine and the daemon"),
        )
    } else if median >= NOTICED {
        Check::warn(HOOK_TIME, found, "every step of the agent waits for this; check the load of the machine")
    } else {
        Check::ok(HOOK_TIME, found)
    }
}

/// The command that an installation makes the client run.
fn hook_command(kind: &Kind) -> io::Result<Command> {
    let own = env::current_exe()?;
    let (program, args) = match hook::small_program(&own) {
        Some(small) => (small, &[kind.word][..]),
        None => (own, &["hook", kind.word][..]),
    };
    let mut command = Command::new(program);
    command.args(args);
    Ok(command)
}

fn run_hook(hooked: Hooked, socket: &Path) -> io::Result<()> {
    let (input, mut writer) = io::pipe()?;
    let mut child = hook_command(hooked.kind)?
        .env("ASIDE_SOCKET", socket)
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    io::Write::write_all(&mut writer, hooked.hooks.harmless.as_bytes())?;
    drop(writer);
    child.wait().map(drop)
}

/// Whether an ELF file needs no loader; `None` if it is not a 64-bit little-endian ELF file.
///
/// Source: the ELF specification: the program headers begin at the offset at byte 32, their size
/// and count are at 54 and 56, and one of type 3 names the loader.
fn is_static(file: &[u8]) -> Option<bool> {
    const INTERPRETER: u32 = 3;
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let start = usize::try_from(u64::from_le_bytes(file.get(32..40)?.try_into().ok()?)).ok()?;
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?)));
    let (size, count) = (half(54)?, half(56)?);
    let header_type = |index: usize| {
        let at = start.checked_add(index.checked_mul(size)?)?;
        Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?))
    };
    let types: Option<Vec<u32>> = (0..count).map(header_type).collect();
    Some(!types?.contains(&INTERPRETER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::check::Verdict;

    #[test]
    fn hook_time_is_judged_by_its_own_deadline() {
        for (median, deadline, verdict) in [
            (29, 150, Verdict::Ok),
            (30, 150, Verdict::Warn),
            (150, 150, Verdict::Fail),
            (200, 1_000, Verdict::Warn),
            (20, 20, Verdict::Fail),
        ] {
            let check = hook_time(Duration::from_millis(median), Duration::from_millis(deadline));
            assert_eq!(check.verdict, verdict, "{median} of {deadline}");
            let limit = format!("times out after {deadline} ms");
            let names_limit = check.remedy.is_some_and(|remedy| remedy.contains(&limit));
            assert_eq!(names_limit, verdict == Verdict::Fail, "{median} of {deadline}");
        }
    }

    /// An ELF header and program headers of these types.
    fn elf(types: &[u32]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0);
        file[32] = 64;
        file[54] = 8;
        file[56] = u8::try_from(types.len()).expect("few");
        for header in types {
            file.extend(header.to_le_bytes());
            file.extend([0; 4]);
        }
        file
    }

    #[test]
    fn program_without_loader_header_is_static() {
        assert_eq!(is_static(&elf(&[6, 1, 2])), Some(true));
        assert_eq!(is_static(&elf(&[6, 3, 1])), Some(false));
        assert_eq!(is_static(&elf(&[6, 3, 1])[..66]), None);
        assert_eq!(is_static(b"#!/bin/sh"), None);
        let own = fs::read(env::current_exe().expect("this test")).expect("readable");
        assert!(is_static(&own).is_some());
    }
}
