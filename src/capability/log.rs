//! The settings of `[[sources.log]]`, and the selection of log lines to report. Pure: the result
//! depends only on the lines and the time.
//!
//! A matching line is reported at once. Further matches are reported at most once a second: the
//! newest line, with the number of the others. So a log that grows fast never loses a line without
//! counting it, and never floods its readers.

pub mod source;

use std::{fmt, sync::Arc, time::Duration};

use journal::time::Timestamp;
use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};

use engine::{
    event::{Event, Provenance, Severity, cut_text, mask_secrets, strip_text, terminal_line},
    settings::{Entries, Entry, Keys, Table, entry_folder, entry_name, entry_text, settings},
};

/// The minimum time between two events of a log.
const EVENT_EVERY: Duration = Duration::from_secs(1);
/// Most characters of a reported line.
const LINE_CHARS_MAX: usize = 500;
/// Most characters of the text that the pattern's first group matches.
const PICKED_CHARS_MAX: usize = 100;
/// Most bytes of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;
const MATCHED: &str = "log.line.matched";

/// The entries of `[[sources.log]]`.
pub type Settings = Entries<Log>;

settings! {
    /// Logs whose lines agents are notified of (`log.line.matched`): at most one line a second, with
    /// the number of the others. A log that is renamed or truncated is followed. Lines from before
    /// the start are ignored.
    struct Written from impl Keys {
        /// The file: an absolute path, or a path in the folder of each open session.
        path: Arc<str>, needed(entry_text), like "\"log/dev.log\"";
        /// A regular expression for the lines to report. The text that its first group matches is
        /// reported separately.
        wanted "match": Pattern, needed(Pattern::read), like "\"ERROR|panicked\"";
        /// A regular expression for lines to ignore among them.
        ignored "ignore": Pattern, parsed(Pattern::read), like "\"ERROR: retrying\"";
        /// The name of the entry; without this key, its path.
        name: Arc<str>, parsed(entry_name), like "\"dev\"";
        /// The folder whose sessions are notified; a relative path is in this folder.
        workspace: Arc<str>, parsed(entry_folder), like "\"/home/me/shop\"";
    }
}

/// One entry: a log whose lines are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    name: Arc<str>,
    path: Arc<str>,
    wanted: Pattern,
    ignored: Option<Pattern>,
    workspace: Option<Arc<str>>,
}

/// One file of a log, and the sessions for its events.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogFile {
    /// The absolute path.
    pub path: Arc<str>,
    /// The folder whose sessions receive the events; `None` for all sessions.
    pub workspace: Option<Arc<str>>,
}

/// A regular expression whose run time is linear in the length of the line.
#[derive(Clone)]
struct Pattern(Regex);

/// Decides which lines of one file are reported, and when.
#[derive(Debug, Default)]
pub struct Lines {
    said_at: Option<Timestamp>,
    said: Option<String>,
    /// The newest line that is not reported yet, and the number of such lines.
    waiting: Option<(Matched, u64)>,
    events: u64,
}

/// A line that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    line: String,
    /// The text that the pattern's first group matched.
    picked: Option<String>,
}

impl Log {
    /// The files to read while sessions are open in `folders`.
    pub fn places(&self, folders: &[Arc<str>]) -> Vec<LogFile> {
        let in_folder = |folder: &Arc<str>| {
            let path = format!("{}/{}", folder.trim_end_matches('/'), self.path.trim_start_matches("./"));
            LogFile { path: path.into(), workspace: Some(Arc::clone(folder)) }
        };
        match &self.workspace {
            _ if self.path.starts_with('/') => {
                vec![LogFile { path: Arc::clone(&self.path), workspace: self.workspace.clone() }]
            }
            Some(folder) => vec![in_folder(folder)],
            None => folders.iter().map(in_folder).collect(),
        }
    }

    /// Selects a line for a report; `None` if it does not match, as a terminal shows it.
    pub fn pick(&self, line: &[u8]) -> Option<Matched> {
        let line = terminal_line(line);
        let line = line.as_bytes();
        let groups = self.wanted.0.captures(line)?;
        if self.ignored.as_ref().is_some_and(|ignored| ignored.0.is_match(line)) {
            return None;
        }
        let picked = groups.get(1).map(|group| shown(group.as_bytes(), PICKED_CHARS_MAX));
        Some(Matched { line: shown(line, LINE_CHARS_MAX), picked })
    }
}

impl Entry for Log {
    fn read(keys: &mut impl Keys) -> Option<Self> {
        let Written { path, wanted, ignored, name, workspace } = Written::read(keys);
        let path = path?;
        Some(Self {
            name: name.unwrap_or_else(|| Arc::clone(&path)),
            path,
            wanted: wanted?,
            ignored,
            workspace,
        })
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn table() -> Table {
        Written::table()
    }
}

impl Pattern {
    fn read(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
        // The last line has the cause; the lines before it mark the position in the pattern.
        let why = |error: regex::Error| error.to_string().lines().last().unwrap_or_default().to_owned();
        built.map(Self).map_err(|error| why(error).trim_start_matches("error: ").to_owned())
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_str().fmt(f)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

fn shown(bytes: &[u8], max: usize) -> String {
    let text = String::from_utf8_lossy(bytes);
    cut_text(mask_secrets(&strip_text(text.trim())), max).into()
}

impl Lines {
    /// Adds a matching line; [`Lines::poll`] reports it.
    pub fn push(&mut self, matched: Matched) {
        let count = self.waiting.as_ref().map_or(0, |(_, count)| *count) + 1;
        let is_known = self.said.as_ref() == Some(&matched.line);
        let newest = match self.waiting.take() {
            // A line that differs from the last reported one is kept in preference to a repetition.
            Some((waiting, _)) if is_known => waiting,
            Some(_) | None => matched,
        };
        self.waiting = Some((newest, count));
    }

    /// The time from which [`Lines::poll`] returns an event; `None` if no line waits.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.waiting.as_ref()?;
        Some(self.said_at.map_or(Timestamp::ZERO, |at| at + EVENT_EVERY))
    }

    /// Returns the event for the waiting lines, if it is due. It is untrusted, because anybody may
    /// have written the line.
    pub fn poll(&mut self, log: &Log, place: &LogFile, now: Timestamp) -> Option<Event> {
        self.deadline().filter(|at| *at <= now)?;
        let (Matched { line, picked }, count) = self.waiting.take()?;
        let mut payload = Map::new();
        let mut add = |key: &str, value: Value| payload.insert(key.to_owned(), value);
        add("name", json!(log.name));
        add("path", json!(shown(place.path.as_bytes(), LINE_CHARS_MAX)));
        add("line", json!(line));
        if let Some(picked) = picked {
            add("match", json!(picked));
        }
        if count > 1 {
            add("further", json!(count - 1));
        }
        self.said_at = Some(now);
        self.said = Some(line);
        self.events += 1;
        let id = format!("log:{}:{}:{}", place.path, now.as_millis(), self.events);
        let event = Event::own(MATCHED, id, Severity::Info, payload.into(), now);
        Some(Event { provenance: Provenance::Quoted, workspace: place.workspace.clone(), ..event })
    }
}

#[cfg(test)]
mod tests;
