//! Conditions of watches, as short strings: `exit 4711`, `port 3000`, `line log/dev.log
//! /panicked/`, `in 20m`, and the words of a delay; and the machines that they may contact.
//!
//! Parsing does not query the machine: [`Terms`] complete relative paths and times of day. The
//! caller adds the machine's state at the start of a watch (start of a process, content of a file).
//!
//! ```
//! use aside_engine::watch::condition::{Condition, Terms, parse};
//! use journal::time::Timestamp;
//!
//! let terms = Terms { now: Timestamp::ZERO, utc_offset: &|_| 0, folder: Some("/w") };
//! assert_eq!(parse("no file build.lock", &terms), Ok(Condition::File { path: "/w/build.lock".into(), exists: false }));
//! let error = parse("exti 4711", &terms).expect_err("no condition");
//! assert!(error.to_string().contains("did you mean `exit PID`?"), "{error}");
//! ```

#[cfg(test)]
mod tests;

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use journal::time::{Timestamp, duration_millis, parse_duration};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Pattern, SessionId, strip_text},
    hold::{Delay, Wait},
    nearest::nearest,
    settings::settings,
};

/// Longest text of a condition, in bytes: a path and a regular expression.
pub const TEXT_BYTES_MAX: usize = 512;
/// Most turns of a condition.
const TURNS_MAX: u32 = 1_000;
/// The default host of a port.
const HOST: &str = "localhost";
/// Displayed characters of an invalid text.
const SHOWN_CHARS: usize = 60;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The forms of conditions, each with its first words.
pub const FORMS: [(&str, &str); 15] = [
    ("exit", "exit PID"),
    ("port", "port [HOST:]PORT"),
    ("no port", "no port [HOST:]PORT"),
    ("http", "http URL [STATUS]"),
    ("file", "file PATH"),
    ("no file", "no file PATH"),
    ("change", "change PATH"),
    ("line", "line FILE /REGEX/"),
    ("ci", "ci [REF]"),
    ("event", "event PATTERN"),
    ("in", "in 20m, or in 3 turns"),
    ("at", "at 14:30"),
    ("idle", "idle SESSION"),
    ("tool:", "tool:NAME"),
    ("context:", "context:80%"),
];

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Condition {
    /// A process ends.
    Exit {
        /// Its id.
        pid: u32,
        /// Its start, in clock ticks since boot; its id may be reused later.
        started: Option<u64>,
    },
    /// A port has, or does not have, a listener.
    Port {
        /// Name or address.
        host: String,
        /// The port.
        port: u16,
        /// Whether it should have a listener.
        open: bool,
    },
    /// A server answers.
    Http {
        /// The URL, beginning with `http://`.
        url: String,
        /// The expected status; any below 400 if absent.
        status: Option<u16>,
    },
    /// A file exists, or does not exist.
    File {
        /// Absolute.
        path: String,
        /// Whether it should exist.
        exists: bool,
    },
    /// The content at a path changes.
    Change {
        /// Absolute.
        path: String,
        /// Its state when the watch was set; absent without a file.
        since: Option<String>,
    },
    /// A line is added to a file.
    Line {
        /// Absolute.
        path: String,
        /// A regular expression, without slashes.
        pattern: String,
        /// The end of the file when the watch was set; absent without a file.
        from: Option<ReadPosition>,
    },
    /// The checks of a pushed commit end.
    Ci {
        /// A branch, or at least seven digits of a commit. If absent, the session's last push, or else the
        /// checked-out branch.
        reference: Option<String>,
        /// The working folder of git and `gh`, absolute.
        folder: String,
    },
    /// An event is published in the scope of the watch's session or folder.
    Event {
        /// The matching types.
        pattern: String,
    },
    /// A time is reached.
    At {
        /// The time.
        time: Timestamp,
    },
    /// A number of the session's turns have ended.
    Turns {
        /// The number of turns left.
        left: u32,
    },
    /// A tool has run in the session.
    Tool {
        /// Its name; with `*` at its end any that begins so.
        name: String,
    },
    /// The session's context is used up to a share.
    Context {
        /// In percent.
        share: u8,
    },
    /// No turn of a session is in progress.
    Idle {
        /// The session.
        session: SessionId,
    },
}

/// A position in a file, with the content before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadPosition {
    /// The file's inode number.
    pub inode: u64,
    /// The position, in bytes.
    pub offset: u64,
    /// A hash of the last bytes before it.
    pub recent: u64,
}

/// Context that completes relative conditions.
#[derive(Clone, Copy)]
pub struct Terms<'t> {
    /// When the condition was written; relative times count from it.
    pub now: Timestamp,
    /// Offset of the local wall clock from UTC at a time, in seconds.
    pub utc_offset: &'t (dyn Fn(Timestamp) -> i32 + Sync),
    /// The base of relative paths.
    pub folder: Option<&'t str>,
}

/// Why a text is not a condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConditionError {
    /// Its first word is not that of any form.
    #[error("`{found}` is not a condition; {}", hint(*.meant))]
    Unknown {
        /// The text.
        found: String,
        /// The form that was probably intended.
        meant: Option<&'static str>,
    },
    /// The rest does not match the form.
    #[error("`{found}`: {why}; it is written `{form}`")]
    Wrong {
        /// The text.
        found: String,
        /// What is wrong.
        why: String,
        /// The form.
        form: &'static str,
    },
    /// The text is longer than [`TEXT_BYTES_MAX`].
    #[error("a condition has at most {TEXT_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
}

fn hint(meant: Option<&str>) -> String {
    let all = || format!("the conditions are {}", FORMS.map(|(_, form)| format!("`{form}`")).join(", "));
    meant.map_or_else(all, |form| format!("did you mean `{form}`?"))
}

fn shown(text: &str) -> String {
    strip_text(text).chars().take(SHOWN_CHARS).collect()
}

/// Parses a condition.
///
/// Errors: it has no known form, or its rest does not match the form; the error names the nearest
/// form.
pub fn parse(text: &str, terms: &Terms<'_>) -> Result<Condition, ConditionError> {
    let text = text.trim();
    if text.len() > TEXT_BYTES_MAX {
        return Err(ConditionError::TooLong(text.len()));
    }
    if let Ok(delay) = text.parse::<Delay>() {
        let form = "in 20m, or in 3 turns";
        return of_delay(delay, terms).map_err(|why| ConditionError::Wrong { found: shown(text), why, form });
    }
    let (word, rest) = split_word(text);
    let (word, rest) = match (word, split_word(rest)) {
        ("no", (what @ ("port" | "file"), rest)) => {
            (if what == "port" { "no port" } else { "no file" }, rest)
        }
        (word, _) => (word, rest),
    };
    let Some((_, form)) = FORMS.into_iter().find(|(known, _)| *known == word) else {
        let words = FORMS.map(|(known, _)| known);
        let near = nearest(&word.to_ascii_lowercase(), words);
        let meant = FORMS.into_iter().find(|(known, _)| near == Some(*known)).map(|(_, form)| form);
        return Err(ConditionError::Unknown { found: shown(text), meant });
    };
    read(word, rest.trim(), terms).map_err(|why| ConditionError::Wrong { found: shown(text), why, form })
}

/// Between the conditions of a list.
const OR: &str = " or ";

/// Parses a condition, or a list of them such as `tool:Bash or 10m`, each with its text.
///
/// A text is a list if each part is a condition, so the expression of a line may have the word.
///
/// Errors: neither; the error is about a part if another one is a condition.
pub fn parse_list<'t>(text: &'t str, terms: &Terms<'_>) -> Result<Vec<(&'t str, Condition)>, ConditionError> {
    let parts = || text.split(OR).map(str::trim);
    let each = parts().map(|part| Ok((part, parse(part, terms)?))).collect();
    match (each, parse(text, terms)) {
        (Ok(list), _) => Ok(list),
        (Err(_), Ok(one)) => Ok(vec![(text.trim(), one)]),
        (Err(of_part), Err(whole)) => {
            Err(if parts().any(|part| parse(part, terms).is_ok()) { of_part } else { whole })
        }
    }
}

/// The condition that a delay waits for: the words of `deliver_after` are conditions too.
fn of_delay(delay: Delay, terms: &Terms<'_>) -> Result<Condition, String> {
    Ok(match delay {
        Delay::For(delay) => Condition::At { time: terms.now + delay },
        Delay::TimeOfDay(minutes) => {
            Condition::At { time: next_of_day(Duration::from_secs(u64::from(minutes) * 60), terms) }
        }
        Delay::Wait(Wait::Until(time)) if time <= terms.now => return Err("that time has passed".to_owned()),
        Delay::Wait(Wait::Until(time)) => Condition::At { time },
        Delay::Wait(Wait::Turns(left)) => Condition::Turns { left },
        Delay::Wait(Wait::Tool(name)) => Condition::Tool { name: name.as_ref().to_owned() },
        Delay::Wait(Wait::Event(pattern)) => Condition::Event { pattern: pattern.as_str().to_owned() },
        Delay::Wait(Wait::Context(share)) => Condition::Context { share },
    })
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

fn read(word: &str, rest: &str, terms: &Terms<'_>) -> Result<Condition, String> {
    if rest.is_empty() && word != "ci" {
        return Err("something is missing".to_owned());
    }
    Ok(match word {
        "exit" => Condition::Exit { pid: read_pid(rest)?, started: None },
        "port" | "no port" => {
            let (host, port) = read_address(rest)?;
            Condition::Port { host, port, open: word == "port" }
        }
        "http" => read_http(rest)?,
        "file" | "no file" => Condition::File { path: read_path(rest, terms)?, exists: word == "file" },
        "change" => Condition::Change { path: read_path(rest, terms)?, since: None },
        "line" => read_line(rest, terms)?,
        "ci" => read_ci(rest, terms)?,
        "event" => {
            let pattern = rest.parse::<Pattern>().map_err(|error| error.to_string())?;
            Condition::Event { pattern: pattern.as_str().to_owned() }
        }
        "in" => read_delay(rest, terms)?,
        "at" => Condition::At { time: read_time(rest, terms)? },
        // A right one is a delay.
        "tool:" | "context:" => return Err("nothing may stand between its parts".to_owned()),
        _ => Condition::Idle { session: SessionId::new(rest) },
    })
}

fn read_pid(text: &str) -> Result<u32, String> {
    let pid = text.parse().ok().filter(|pid| *pid > 0 && i32::try_from(*pid).is_ok());
    pid.ok_or_else(|| "a process is named by its number".to_owned())
}

fn read_address(text: &str) -> Result<(String, u16), String> {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host.trim_start_matches('[').trim_end_matches(']'), port),
        None => (HOST, text),
    };
    let port = port.parse().ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())?;
    if host.is_empty() || host.contains(|c: char| c.is_whitespace() || c == '/') {
        return Err("a host is a name or an address".to_owned());
    }
    Ok((host.to_owned(), port))
}

fn read_http(text: &str) -> Result<Condition, String> {
    let (url, status) = split_word(text);
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    if !url.starts_with("http://") {
        return Err("only http:// is supported; for https use its port".to_owned());
    }
    host_of(&url).ok_or_else(|| "the URL names no host".to_owned())?;
    let status = match status.trim() {
        "" => None,
        text => {
            let status = text.parse().ok().filter(|status| (100..600).contains(status));
            Some(status.ok_or_else(|| "a status is a number from 100 to 599".to_owned())?)
        }
    };
    Ok(Condition::Http { url, status })
}

/// Host and port of an `http://` URL.
pub fn host_of(url: &str) -> Option<(String, u16)> {
    let rest = url.strip_prefix("http://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or(rest);
    if authority.contains('@') || authority.contains(|c: char| c.is_control() || c.is_whitespace()) {
        return None;
    }
    let has_port =
        authority.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    let with_port = if has_port { authority.to_owned() } else { format!("{authority}:80") };
    read_address(&with_port).ok()
}

fn read_path(text: &str, terms: &Terms<'_>) -> Result<String, String> {
    if text.starts_with('/') {
        return Ok(text.to_owned());
    }
    let folder =
        terms.folder.ok_or_else(|| "a path has to begin with `/`, as no folder is known".to_owned())?;
    let relative = text.strip_prefix("./").unwrap_or(text);
    Ok(format!("{}/{relative}", folder.trim_end_matches('/')))
}

fn read_line(text: &str, terms: &Terms<'_>) -> Result<Condition, String> {
    let missing = || "a file and a regular expression between slashes are needed".to_owned();
    let (path, pattern) =
        text.strip_suffix('/').and_then(|text| text.split_once(" /")).ok_or_else(missing)?;
    if path.trim().is_empty() || pattern.is_empty() {
        return Err(missing());
    }
    if let Err(error) = Regex::new(pattern) {
        // The last line is the message; earlier ones show the position.
        let why = error.to_string();
        return Err(why.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned());
    }
    Ok(Condition::Line { path: read_path(path.trim(), terms)?, pattern: pattern.to_owned(), from: None })
}

fn read_ci(text: &str, terms: &Terms<'_>) -> Result<Condition, String> {
    let reference = text.strip_prefix("refs/heads/").unwrap_or(text);
    // Characters that git forbids in branch names, and a leading `-`, which programs would parse as
    // an option.
    let is_wrong = |c: char| c.is_whitespace() || c.is_control() || "~^:?*[\\".contains(c);
    if reference.starts_with('-') || reference.contains("..") || reference.contains(is_wrong) {
        return Err("a branch or a commit is one name".to_owned());
    }
    let folder = terms.folder.ok_or_else(|| "no folder is known in which git could look".to_owned())?;
    let reference = Some(reference.to_owned()).filter(|reference| !reference.is_empty());
    Ok(Condition::Ci { reference, folder: folder.to_owned() })
}

fn read_delay(text: &str, terms: &Terms<'_>) -> Result<Condition, String> {
    let turns = text.strip_suffix("turns").or_else(|| text.strip_suffix("turn")).map(str::trim);
    if let Some(count) = turns {
        let left = count.parse().ok().filter(|left| (1..=TURNS_MAX).contains(left));
        let left = left.ok_or_else(|| format!("a count of turns is a number from 1 to {TURNS_MAX}"))?;
        return Ok(Condition::Turns { left });
    }
    let delay =
        parse_duration(text).ok_or_else(|| "a duration has its unit, such as 90s or 1h30m".to_owned())?;
    Ok(Condition::At { time: terms.now + delay })
}

/// Parses a local time of day (the next one), a local date and time, or RFC 3339.
fn read_time(text: &str, terms: &Terms<'_>) -> Result<Timestamp, String> {
    let wrong = || "a time is written 14:30, 2026-11-25 14:30, or as RFC 3339".to_owned();
    let date_time = text.parse::<jiff::civil::DateTime>().ok().filter(|_| !text.ends_with(['Z', 'z']));
    let time = if let Ok(time) = text.parse::<Timestamp>() {
        time
    } else if let Some(at) = date_time {
        let civil = at.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| wrong())?;
        let millis = u64::try_from(civil.timestamp().as_millisecond()).map_err(|_| wrong())?;
        from_wall(millis, terms)
    } else {
        let at = text.parse::<jiff::civil::Time>().map_err(|_| wrong())?;
        let in_day = Duration::from_secs(
            u64::from(at.hour().unsigned_abs()) * 3_600
                + u64::from(at.minute().unsigned_abs()) * 60
                + u64::from(at.second().unsigned_abs()),
        );
        next_of_day(in_day, terms)
    };
    if time <= terms.now {
        return Err("that time has passed".to_owned());
    }
    Ok(time)
}

fn next_of_day(in_day: Duration, terms: &Terms<'_>) -> Timestamp {
    let (day, in_day) = (duration_millis(DAY), duration_millis(in_day));
    let midnight = wall(terms.now, terms) / day * day;
    let today = from_wall(midnight + in_day, terms);
    if today > terms.now { today } else { from_wall(midnight + day + in_day, terms) }
}

/// The local wall clock at `at`, in milliseconds since its own epoch.
fn wall(at: Timestamp, terms: &Terms<'_>) -> u64 {
    shift(at.as_millis(), i64::from((terms.utc_offset)(at)))
}

/// The time at which the local wall clock shows `millis`; one of the two if it shows it twice, as
/// in autumn.
fn from_wall(millis: u64, terms: &Terms<'_>) -> Timestamp {
    let back = |at: Timestamp| Timestamp::from_millis(shift(millis, -i64::from((terms.utc_offset)(at))));
    back(back(Timestamp::from_millis(millis)))
}

fn shift(millis: u64, seconds: i64) -> u64 {
    millis.saturating_add_signed(seconds.saturating_mul(1_000))
}

impl Condition {
    /// Whether it says when, and not what: a time, turns, a tool or the use of the context.
    pub const fn is_time(&self) -> bool {
        matches!(self, Self::At { .. }) || self.of_session().is_some()
    }

    /// What only a session can meet, as the beginning of a sentence; `None` for other conditions.
    pub const fn of_session(&self) -> Option<&'static str> {
        match self {
            Self::Turns { .. } => Some("turns need"),
            Self::Tool { .. } => Some("a tool's result needs"),
            Self::Context { .. } => Some("the use of a context needs"),
            Self::Exit { .. }
            | Self::Port { .. }
            | Self::Http { .. }
            | Self::File { .. }
            | Self::Change { .. }
            | Self::Line { .. }
            | Self::Ci { .. }
            | Self::Event { .. }
            | Self::At { .. }
            | Self::Idle { .. } => None,
        }
    }

    /// Whether it needs a check of the machine; the engine decides the others.
    pub const fn is_of_machine(&self) -> bool {
        match self {
            Self::Exit { .. }
            | Self::Port { .. }
            | Self::Http { .. }
            | Self::File { .. }
            | Self::Change { .. }
            | Self::Line { .. } => true,
            Self::Ci { .. }
            | Self::Event { .. }
            | Self::At { .. }
            | Self::Turns { .. }
            | Self::Tool { .. }
            | Self::Context { .. }
            | Self::Idle { .. } => false,
        }
    }

    /// The path that it waits for, if it is about a file.
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::File { path, .. } | Self::Change { path, .. } | Self::Line { path, .. } => Some(path),
            Self::Exit { .. }
            | Self::Port { .. }
            | Self::Http { .. }
            | Self::Ci { .. }
            | Self::Event { .. }
            | Self::At { .. }
            | Self::Turns { .. }
            | Self::Tool { .. }
            | Self::Context { .. }
            | Self::Idle { .. } => None,
        }
    }

    /// The time that it waits for, if it is a time.
    pub const fn time(&self) -> Option<Timestamp> {
        if let Self::At { time } = self { Some(*time) } else { None }
    }
}

settings! {
    /// Lets agents and users wait until something comes true (`aside watch`, `aside remind`).
    /// Earlier watches continue while this is off.
    enabled: bool = true, flag();
    /// Allows connections to ports and servers of other machines.
    remote: bool = false, flag();
}

/// The addresses of `localhost`: some servers listen on only one of the two.
pub const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The host that a condition connects to, if it is another machine.
pub fn remote_host(condition: &Condition) -> Option<String> {
    let host = if let Condition::Port { host, .. } = condition {
        host.clone()
    } else if let Condition::Http { url, .. } = condition {
        host_of(url)?.0
    } else {
        return None;
    };
    (!is_here(&host)).then_some(host)
}

/// Whether a name or address refers to this machine.
pub fn is_here(host: &str) -> bool {
    !addresses(host).is_empty() || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The addresses to ask, one after the other, for a host that means this machine by several;
/// empty for any other one.
///
/// Source: RFC 6761, 6.3, for names; and the addresses of "all interfaces", which servers print.
pub fn addresses(host: &str) -> &'static [IpAddr] {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let is_all = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    if is_all || name == "localhost" || name.ends_with(".localhost") { &LOCALHOST } else { &[] }
}
