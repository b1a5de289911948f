//! What `[[sources.log]]` says, and which lines of a log are said: pure over lines and the time.
//!
//! A line that matches is said at once, and then one a second at most: the newest of those that
//! came meanwhile, with how many further ones there were. So a log that is written to fast neither
//! hides a line without a count nor floods anybody.

use std::{fmt, sync::Arc, time::Duration};

use regex::bytes::{Regex, RegexBuilder};
use serde_json::{Map, Value, json};

use crate::{
    event::{Event, Provenance, Severity, cut_text, mask_secrets, strip_text},
    settings::{Entries, Entry, Keys, entry_folder, entry_name, entry_text},
    time::Timestamp,
};

/// Between two events of a log.
const EVENT_EVERY: Duration = Duration::from_secs(1);
/// How much of a line is said, in characters.
const LINE_CHARS_MAX: usize = 500;
/// How much of what its pattern picks out of a line is said, in characters.
const PICKED_CHARS_MAX: usize = 100;
/// Largest compiled pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;
const MATCHED: &str = "log.line.matched";

/// `[[sources.log]]`.
pub type Settings = Entries<Log>;

/// A log whose lines are looked through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    name: Arc<str>,
    path: Arc<str>,
    wanted: Pattern,
    ignored: Option<Pattern>,
    workspace: Option<Arc<str>>,
}

/// One file of a log, and whom its lines concern.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its absolute path.
    pub path: Arc<str>,
    /// The folder for whose sessions it is; `None` for all.
    pub workspace: Option<Arc<str>>,
}

/// A regular expression, which takes time in proportion to the line.
#[derive(Clone)]
struct Pattern(Regex);

/// What is said of one file's lines, and when.
#[derive(Debug, Default)]
pub struct Lines {
    said_at: Option<Timestamp>,
    said: Option<String>,
    /// The newest line that was not said, and how many there are.
    waiting: Option<(Matched, u64)>,
    events: u64,
}

/// A line that is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matched {
    line: String,
    /// What the first group of the pattern matched.
    picked: Option<String>,
}

impl Log {
    /// The files to look at while sessions are open in `folders`.
    pub fn places(&self, folders: &[Arc<str>]) -> Vec<Place> {
        let in_folder = |folder: &Arc<str>| {
            let path = format!("{}/{}", folder.trim_end_matches('/'), self.path.trim_start_matches("./"));
            Place { path: path.into(), workspace: Some(Arc::clone(folder)) }
        };
        match &self.workspace {
            _ if self.path.starts_with('/') => {
                vec![Place { path: Arc::clone(&self.path), workspace: self.workspace.clone() }]
            }
            Some(folder) => vec![in_folder(folder)],
            None => folders.iter().map(in_folder).collect(),
        }
    }

    /// What is to be said of a line; `None` if it is not wanted.
    pub fn pick(&self, line: &[u8]) -> Option<Matched> {
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
        let (path, wanted) = (keys.needed("path", entry_text), keys.needed("match", Pattern::read));
        let (ignored, name) = (keys.parsed("ignore", Pattern::read), keys.parsed("name", entry_name));
        let workspace = keys.parsed("workspace", entry_folder);
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
}

impl Pattern {
    fn read(text: &str) -> Result<Self, String> {
        let built = RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).build();
        // The last line says what is wrong; those before show where, in a picture.
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
    /// Takes a line that is wanted; [`Lines::poll`] says it.
    pub fn push(&mut self, matched: Matched) {
        let count = self.waiting.as_ref().map_or(0, |(_, count)| *count) + 1;
        let is_known = self.said.as_ref() == Some(&matched.line);
        let newest = match self.waiting.take() {
            // What says something new is kept before what was said already.
            Some((waiting, _)) if is_known => waiting,
            Some(_) | None => matched,
        };
        self.waiting = Some((newest, count));
    }

    /// When [`Lines::poll`] has something to say; `None` if nothing waits.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.waiting.as_ref()?;
        Some(self.said_at.map_or(Timestamp::ZERO, |at| at + EVENT_EVERY))
    }

    /// The event of what waits, if its time has come. It is not trusted, as anybody may have
    /// written the line.
    pub fn poll(&mut self, log: &Log, place: &Place, now: Timestamp) -> Option<Event> {
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
        Some(Event { provenance: Provenance::Remote, workspace: place.workspace.clone(), ..event })
    }
}

#[cfg(test)]
mod tests;
