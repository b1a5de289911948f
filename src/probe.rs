//! Probes: what did a session last know, and what is true now? Asked inside an exchange, so that nothing is watched and nothing wakes
//! an idle machine.
//!
//! A probe decides purely: it is given what the session knows ([`Known`]), the moment ([`Moment`]), and answers about the machine
//! ([`Facts`]). It says what is to be published ([`Finding`]) and what the session knows from now on ([`Noted`]). Both go into
//! the journal in one batch with the exchange, and before it; the engine learns from it ([`Memory::learn`]), so a restart forgets nothing.
//! The content of files never enters the journal. Another probe is a file here and its row in the
//! table `probes!`; its file says what its settings are, what a session knows of it, and how it looks.

pub mod background;
pub mod context;
pub mod disk;
pub mod facts;
pub mod files;
pub mod git;
pub mod mcp;
pub mod memory;
pub mod others;
pub mod pause;
pub mod ports;
mod published;

#[cfg(test)]
mod world;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::{
    facts::{Entry, Facts, Fingerprint, Space},
    memory::{Memory, View},
};
use crate::{
    call::{Call, TouchKind},
    event::{Event, EventRef, OWN_SOURCE, SessionId, Severity, cut_text, strip_text},
    exchange::{ContextChange, Exchange, Trigger},
    notification::InjectionPoint,
    settings::sources,
    time::Timestamp,
    transcript::{Gauge, Transcript},
};

/// The type of the event that carries what a probe noted.
pub const NOTED: &str = "probe.noted";
/// The source of what probes publish: the program itself.
const SOURCE: &str = OWN_SOURCE;
/// Most characters of a path that is shown.
const PATH_CHARS_MAX: usize = 200;
/// How much of a session's name is shown.
const NAME_CHARS: usize = 8;
/// Most files in one event that notes them, at some 4,400 bytes each when their paths are as long as they may be.
const NOTED_FILES_MAX: usize = 100;

/// When and where a probe is asked.
#[derive(Debug)]
pub struct Moment<'a> {
    /// Who asks.
    pub session: &'a SessionId,
    /// At which point: `turn_start` or `after_tool`.
    pub point: InjectionPoint,
    /// When.
    pub now: Timestamp,
    /// The folder that the session works in, absolute.
    pub workspace: Option<&'a str>,
    /// The top folder of the repository that it works in, as far as the session knows one.
    pub repository: Option<&'a str>,
    /// The calls that ended since the last exchange, oldest first; before a tool, the one that begins.
    pub calls: &'a [Call],
    /// Since when those calls may have run, as [`Known::calls_since`] says.
    pub calls_since: Timestamp,
    /// When the session was heard of last before its user's prompt, if this is the first look since then.
    pub prompt_after: Option<Timestamp>,
    /// What the harness writes down of the conversation, and what the client says by itself.
    pub transcript: Option<Transcript<'a>>,
    /// How full the context is, as far as the client says so elsewhere.
    pub gauge: Option<Gauge>,
    /// Whether the context begins anew: it was compacted or cleared.
    pub has_new_context: bool,
    /// With how many tokens the context of each model is full, as sessions have learnt.
    pub limits: &'a BTreeMap<String, u64>,
    /// The folder of temporary files.
    pub temporary: &'a str,
    /// The folder of the user's caches.
    pub caches: Option<&'a str>,
    /// The other sessions that work in, under or above the same folder, the one that was heard of last first.
    pub others: &'a [Other],
    /// What the wall clock here is ahead of UTC, in seconds.
    pub utc_offset: i32,
}

impl<'a> Moment<'a> {
    /// One of which nothing else is known: nobody else works there, and no call has ended.
    pub const fn new(session: &'a SessionId, point: InjectionPoint, now: Timestamp) -> Self {
        static NO_LIMITS: BTreeMap<String, u64> = BTreeMap::new();
        Self {
            session,
            point,
            now,
            workspace: None,
            repository: None,
            calls: &[],
            calls_since: Timestamp::ZERO,
            prompt_after: None,
            transcript: None,
            gauge: None,
            has_new_context: false,
            limits: &NO_LIMITS,
            temporary: "/tmp",
            caches: None,
            others: &[],
            utc_offset: 0,
        }
    }
}

/// Another session that works here.
#[derive(Debug, Clone)]
pub struct Other {
    /// Which.
    pub session: SessionId,
    /// What it knows.
    pub known: Arc<Known>,
    /// Whether it is open; otherwise it has ended.
    pub is_open: bool,
}

/// What a session knows, as its probes left it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The files that it read or wrote.
    pub files: files::Known,
    /// Everything else.
    pub around: Surroundings,
    /// Since when calls are made whose end was not heard of.
    pub calling_since: Option<Timestamp>,
    /// When something was last heard of its turns and calls.
    pub heard_at: Timestamp,
    /// The folder that it works in.
    pub workspace: Option<Arc<str>>,
    /// The paths of which the end of a watch has said that they changed, until the next look notes how they are.
    pub watched: BTreeSet<Arc<str>>,
    /// How the checks of what it pushed ended, the newest last.
    pub pushed: Vec<Pushed>,
}

/// How the checks of a branch that a session pushed ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pushed {
    /// When.
    pub at: Timestamp,
    /// The branch, if it is known.
    pub branch: Option<String>,
    /// How, in a few words.
    pub ended: String,
}

impl Known {
    /// Since when calls that end now may have run; `missed`: since when those may have that an earlier look came too late for.
    pub fn calls_since(&self, missed: Option<Timestamp>) -> Timestamp {
        let known = self.calling_since.unwrap_or(self.heard_at);
        missed.map_or(known, |missed| missed.min(known))
    }

    /// When the session was heard of last before the prompt of an exchange at `point`, or before one whose look came too late:
    /// `missed`.
    pub fn prompt_after(&self, point: InjectionPoint, missed: Option<Timestamp>) -> Option<Timestamp> {
        let is_later_prompt = point == InjectionPoint::TurnStart && self.heard_at > Timestamp::ZERO;
        missed.or(is_later_prompt.then_some(self.heard_at))
    }

    /// Where a look goes, as far as is known: the files, the repository's folders, and what commands in the background write.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files
            .paths()
            .map(|path| &**path)
            .chain(self.around.git.folders())
            .chain(self.around.ports.outputs())
    }

    fn apply(&mut self, noted: Noted) {
        let Noted { files, around } = noted;
        if !files.is_empty() {
            self.watched.clear();
        }
        self.files.apply(files);
        if let Some(around) = around {
            self.around = around;
        }
    }
}

/// What changed of what a session knows; the payload of a [`NOTED`] event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Noted {
    /// Of files.
    #[serde(skip_serializing_if = "files::Noted::is_empty")]
    pub files: files::Noted,
    /// Everything else, if some of it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub around: Option<Surroundings>,
}

impl Noted {
    /// Parts that are small enough for a record each.
    fn into_parts(self) -> Vec<Self> {
        let Self { files, around } = self;
        let files = files.into_parts(NOTED_FILES_MAX).into_iter().map(|files| Self { files, around: None });
        let around = around.map(|around| Self { around: Some(around), ..Self::default() });
        files.chain(around).collect()
    }
}

/// Makes of the table of probes their settings, what a session knows of those that have a [`Probe`], and what asks these.
macro_rules! probes {
    ($($module:ident $name:literal $about:literal $needs:literal $($probe:ident)?;)*) => {
        sources! { $($module $name $about $needs;)* }

        /// What a session knows besides its files: so little that all of it is noted when some of it changes.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Surroundings {
            /// The repository that it works in.
            pub git: git::Known,
            $($(#[doc = concat!("What `[sources.", $name, "]` is about.")] pub $module: $module::$probe,)?)*
        }

        impl Surroundings {
            /// Asks each [`Probe`] that is on, in the order of the table.
            fn look(&mut self, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Finding> {
                let (moment, mut findings) = (&Moment { repository: self.git.top(), ..*moment }, Vec::new());
                $($(if settings.$module.enabled {
                    findings.extend($module::$probe::look(&mut self.$module, moment, &settings.$module, facts));
                } else {
                    $module::$probe::forget(&mut self.$module);
                })?)*
                findings
            }

            /// Lets each take an event about the session's calls and turns.
            fn learn(&mut self, event: &EventRef<'_>, now: Timestamp) {
                $($($module::$probe::learn(&mut self.$module, event, now);)?)*
            }
        }
    };
}

probes! {
    // Module, its name in `[sources]`, what its events are about, without what it finds nothing, and its `Probe`, which every look asks.
    // Those that have none have their own places in `look`.
    files      "files"      "changed files"           "calls that name their files";
    git        "git"        "moves of the repository" "a repository";
    others     "sessions"   "other sessions"          "a session's folder"                           Known;
    pause      "time"       "pauses"                  "exchanges at `turn_start`";
    disk       "disk"       "full disks"              "a session's folder"                           Known;
    context    "context"    "full contexts"           "a transcript or a status line"                Known;
    background "background" "lost background ends"    "a transcript, and turns that list what runs"  Known;
    ports      "ports"      "closed ports"            "background commands whose output is a file"   Known;
    mcp        "mcp"        "MCP servers"             "a client's log of its connections"            Known;
}

/// What a session knows of one thing, which every look compares with what is true then.
trait Probe {
    /// Those of its module.
    type Settings;
    /// Says what is to be published, and knows from then on that it was.
    fn look(&mut self, moment: &Moment<'_>, settings: &Self::Settings, facts: &dyn Facts) -> Vec<Finding>;
    /// Takes an event about the session's calls and turns.
    fn learn(&mut self, _event: &EventRef<'_>, _now: Timestamp) {}
    /// Forgets what it cannot follow while it is off.
    fn forget(&mut self) {}
}

/// What a probe found that is to be published.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The type of the event that says so.
    pub event_type: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What tells it from all other findings of its type and session: the same state found again has the same name.
    pub name: String,
    /// What it says.
    pub payload: Value,
}

impl Finding {
    fn into_event(self, moment: &Moment<'_>) -> Event {
        event(self.event_type, self.severity, &self.name, self.payload, moment)
    }
}

fn event(event_type: &str, severity: Severity, name: &str, payload: Value, moment: &Moment<'_>) -> Event {
    let id = format!("{}:{event_type}:{name}", moment.session);
    Event {
        session: Some(moment.session.clone()),
        workspace: moment.workspace.map(Arc::from),
        ..Event::own(event_type, id, severity, payload, moment.now)
    }
}

/// A path for a reader.
fn shown_path(path: &str) -> String {
    cut_text(strip_text(path), PATH_CHARS_MAX).replace(char::is_whitespace, " ")
}

/// What another session is called towards the agent of `own`: `session` and the beginning of its id, or what it is to that agent.
pub fn name_towards(own: &SessionId, other: &SessionId) -> String {
    let (own, other) = (own.as_str(), other.as_str());
    let short = |name: &str| strip_text(name).chars().take(NAME_CHARS).collect::<String>();
    match (other.strip_prefix(own), own.strip_prefix(other)) {
        (Some(agent), _) if agent.starts_with('/') => {
            format!("your subagent {}", short(agent.trim_start_matches('/')))
        }
        (_, Some(agent)) if agent.starts_with('/') => "your parent session".to_owned(),
        _ => format!("session {}", short(other)),
    }
}

/// Whether what probes find would be delivered with this exchange; `calls` are those that ended, or, before a tool, the one that begins.
pub fn is_asked(exchange: &Exchange, calls: &[Call]) -> bool {
    match exchange.point {
        // A session that is resumed is asked with its first prompt.
        InjectionPoint::TurnStart => {
            exchange.context != ContextChange::Resumed && exchange.trigger == Trigger::Agent
        }
        InjectionPoint::AfterTool => true,
        InjectionPoint::BeforeTool => {
            calls.iter().flat_map(|call| &call.touched).any(|touch| touch.by == TouchKind::Written)
        }
        InjectionPoint::Immediate | InjectionPoint::TurnEnd => false,
    }
}

/// Asks every probe, and gives the events to be published before the exchange, in their order: what was found, then what is noted of it. A
/// crash between two of them leads to the same finding again, under the same id.
pub fn look(known: &Known, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Event> {
    if moment.point == InjectionPoint::BeforeTool {
        return look_before_a_call(known, moment, settings, facts);
    }
    let mut around = known.around.clone();
    let mut paths = known.files.paths().map(|path| &**path);
    let git = if settings.git.enabled {
        git::look(&known.around.git, git::Window { since: moment.calls_since }, moment, &mut paths, facts)
    } else {
        git::Looked::default()
    };
    around.git = git.known.unwrap_or(around.git);
    let given = files::Given {
        settings: &settings.files,
        heard_at: known.heard_at,
        calls_since: moment.calls_since,
        explained: &git.explained.union(&known.watched).cloned().collect(),
    };
    let files = files::look(&known.files, moment, &given, facts);
    let findings = [git.findings, files.findings, around.look(moment, settings, facts)].concat();
    let findings = pause::sum_up(findings, moment, &known.pushed, &settings.pause);
    let around = (around != known.around).then_some(around);
    events(findings, Noted { files: files.noted, around }, moment)
}

/// Asks only whether the call that begins would overwrite what the agent does not know.
fn look_before_a_call(
    known: &Known,
    moment: &Moment<'_>,
    settings: &Settings,
    facts: &dyn Facts,
) -> Vec<Event> {
    let given = files::Given {
        settings: &settings.files,
        heard_at: known.heard_at,
        calls_since: moment.now,
        explained: &BTreeSet::new(),
    };
    let files = files::guard::look(&known.files, moment, &given, facts);
    events(files.findings, Noted { files: files.noted, around: None }, moment)
}

fn events(findings: Vec<Finding>, noted: Noted, moment: &Moment<'_>) -> Vec<Event> {
    let found = findings.into_iter().map(|finding| finding.into_event(moment));
    let parts = noted.into_parts().into_iter().enumerate().map(|(number, part)| note(&part, number, moment));
    found.chain(parts).collect()
}

/// The last `max` bytes of a transcript; `None` when it cannot be read.
fn end_of(transcript: Transcript<'_>, max: u64, facts: &dyn Facts) -> Option<Vec<u8>> {
    end_of_file(Path::new(transcript.path), max, facts)
}

/// The last `max` bytes of a file; `None` when it cannot be read.
fn end_of_file(path: &Path, max: u64, facts: &dyn Facts) -> Option<Vec<u8>> {
    let Entry::File(print) = facts.entry(path) else { return None };
    facts.read(path, print.size.saturating_sub(max), max)
}

fn note(noted: &Noted, number: usize, moment: &Moment<'_>) -> Event {
    let payload = serde_json::to_value(noted).expect("texts and numbers always serialize");
    let name = format!("{}:{}:{number}", moment.point, moment.now.as_millis());
    event(NOTED, Severity::Debug, &name, payload, moment)
}
