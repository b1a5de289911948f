//! Probes compare the known state of a session with the current state. They run inside an exchange,
//! so nothing is watched and nothing wakes an idle machine.
//!
//! A probe is a pure function: its inputs are the known state ([`Known`]), the moment ([`Moment`]),
//! and access to the machine ([`Facts`]). It returns the events to publish ([`Finding`]) and the
//! new known state ([`Noted`]). Both are journaled in one batch with the exchange, and before it.
//! The engine observes the journal ([`Memory`]), so a restart loses nothing. File contents
//! never enter the journal. A new probe is a file here and a row in the table `probes!`; its file
//! defines its settings, its known state, and its look.

pub mod background;
pub mod context;
pub mod disk;
pub mod facts;
pub mod files;
pub mod git;
mod kind;
pub mod late;
pub mod mcp;
pub mod memory;
pub mod others;
pub mod pause;
pub mod ports;
pub mod rate_limits;
pub mod waiting;

#[cfg(test)]
mod world;

use std::{borrow::Cow, path::Path, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::kind::Probe;
pub use self::{
    facts::{Entry, Facts, Finding, Fingerprint, Space, name_towards},
    kind::{Moment, OtherSession, Pushed},
    memory::{Memory, View},
};
use journal::time::Timestamp;

use crate::{
    call::{Call, TouchKind},
    event::{Event, EventRef, Severity},
    exchange::{ContextChange, Exchange, Trigger},
    notification::InjectionPoint,
    settings::sources,
    sorted::SortedSet,
};

/// Type of the event with a probe's notes.
pub const NOTED: &str = "probe.noted";
/// Most files in one event that notes them; each takes some 4,400 bytes with a path of maximum
/// length.
const NOTED_FILES_MAX: usize = 100;

/// The share of its session's context that is used, in percent, if an event reports it.
pub fn used_context(event: &EventRef<'_>) -> Option<u64> {
    #[derive(Deserialize)]
    struct Budget<'a> {
        budget_type: Cow<'a, str>,
        percentage: u64,
    }
    if !event.event_type.starts_with("budget.") {
        return None;
    }
    let budget: Budget<'_> = serde_json::from_str(event.payload).ok()?;
    (budget.budget_type == context::BUDGET).then_some(budget.percentage)
}

/// The known state of a session, as noted by its probes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The files that it read or wrote.
    pub files: files::Known,
    /// All other known state.
    pub around: Surroundings,
    /// Time since which the session has calls without a reported end.
    pub calling_since: Option<Timestamp>,
    /// Time of the last report on its turns and calls.
    pub heard_at: Timestamp,
    /// Its working folder.
    pub workspace: Option<Arc<str>>,
    /// Changed paths reported by an ended watch, until the next look notes their state.
    pub watched: SortedSet<Arc<str>>,
    /// Outcomes of the checks of its pushes, newest last.
    pub pushed: Vec<Pushed>,
}

impl Known {
    /// Earliest start of the calls that end now; `missed`: the same for calls of an earlier look
    /// that timed out.
    pub fn calls_since(&self, missed: Option<Timestamp>) -> Timestamp {
        let known = self.calling_since.unwrap_or(self.heard_at);
        missed.map_or(known, |missed| missed.min(known))
    }

    /// Last activity of the session before the prompt of an exchange at `point`, or before an
    /// earlier prompt whose look timed out: `missed`.
    pub fn prompt_after(&self, point: InjectionPoint, missed: Option<Timestamp>) -> Option<Timestamp> {
        let is_later_prompt = point == InjectionPoint::TurnStart && self.heard_at > Timestamp::ZERO;
        missed.or(is_later_prompt.then_some(self.heard_at))
    }

    /// The known paths of a look: the files, the repository's folders, and the outputs of
    /// background commands.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.files
            .paths()
            .map(|path| &**path)
            .chain(self.around.git.folders())
            .chain(self.around.ports.outputs())
            .chain(self.around.waiting.outputs())
    }

    /// The folders that it works in: its own, and the top of its repository.
    pub fn folders(&self) -> impl Iterator<Item = &str> {
        self.workspace.as_deref().into_iter().chain(self.around.git.top())
    }

    /// The same after these events of a look.
    #[must_use]
    pub fn noting(&self, events: &[Event]) -> Self {
        let mut known = self.clone();
        let notes = events.iter().filter(|event| event.event_type.as_str() == NOTED);
        for noted in notes.filter_map(|event| serde_json::from_str(event.payload.as_str()).ok()) {
            known.apply(noted);
        }
        known
    }

    /// Whether it knows a repository, and all of it is in `folder`.
    pub fn has_repository_in(&self, folder: &str) -> bool {
        let mut folders = self.around.git.folders().peekable();
        folders.peek().is_some() && folders.all(|own| Path::new(own).starts_with(folder))
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

/// Changes of a session's known state; the payload of a [`NOTED`] event.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Noted {
    /// Changes of files.
    #[serde(skip_serializing_if = "files::Noted::is_empty")]
    pub files: files::Noted,
    /// All other state, if it changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub around: Option<Surroundings>,
}

impl Noted {
    /// Splits the changes into parts that fit into one record each.
    fn into_parts(self) -> Vec<Self> {
        let Self { files, around } = self;
        let files = files.into_parts(NOTED_FILES_MAX).into_iter().map(|files| Self { files, around: None });
        let around = around.map(|around| Self { around: Some(around), ..Self::default() });
        files.chain(around).collect()
    }
}

/// Generates from the table of probes their settings, the known state of each [`Probe`], and the
/// calls to them.
macro_rules! probes {
    ($($module:ident $name:literal $about:literal $needs:literal $($probe:ident)?;)*) => {
        sources! { $($module $name $about $needs;)* }

        /// The known state of a session besides its files; small enough to be noted completely on
        /// each change.
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
        #[serde(default)]
        pub struct Surroundings {
            /// The repository that it works in.
            pub git: git::Known,
            /// The folder that it works in.
            pub folder: files::folder::Known,
            $($(#[doc = concat!("What `[sources.", $name, "]` is about.")] pub $module: $module::$probe,)?)*
        }

        impl Surroundings {
            /// Runs each enabled [`Probe`], in the order of the table.
            fn look(&mut self, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Finding> {
                let (moment, mut findings) = (&Moment { repository: self.git.top(), ..*moment }, Vec::new());
                $($(if settings.$module.enabled {
                    findings.extend($module::$probe::look(&mut self.$module, moment, &settings.$module, facts));
                } else {
                    $module::$probe::forget(&mut self.$module);
                })?)*
                findings
            }

            /// Passes an event about the session's calls and turns to each probe.
            fn observe(&mut self, event: &EventRef<'_>, now: Timestamp) {
                $($($module::$probe::observe(&mut self.$module, event, now);)?)*
            }
        }
    };
}

probes! {
    // Module, name in `[sources]`, topic of its events, precondition of its findings, and its
    // `Probe`, which runs at every look. Probes without one are called explicitly in `look`.
    files      "files"      "changed files"           "calls that name their files";
    git        "git"        "moves of the repository" "a repository";
    others     "sessions"   "other sessions"          "a session's folder"                           Known;
    pause      "time"       "pauses"                  "exchanges at `turn_start`";
    disk       "disk"       "full disks"              "a session's folder"                           Known;
    context    "context"    "full contexts"           "a transcript or a status line"                Known;
    rate_limits "rate_limits" "limits of the user's plan" "a status line with `rate_limits`"             Known;
    background "background" "lost ends of background commands"    "a transcript, and turns that list running commands"  Known;
    ports      "ports"      "closed ports"            "background commands whose output is a file"   Known;
    waiting    "waiting"    "commands that wait for input"    "background commands whose output is a file"   Known;
    mcp        "mcp"        "MCP servers"             "a client's log of its connections"            Known;
}

fn event(event_type: &str, severity: Severity, name: &str, payload: Value, moment: &Moment<'_>) -> Event {
    let id = format!("{}:{event_type}:{name}", moment.session);
    Event {
        session: Some(moment.session.clone()),
        workspace: moment.workspace.map(Arc::from),
        ..Event::own(event_type, id, severity, payload, moment.now)
    }
}

/// Whether findings would be delivered with this exchange; `calls` are those that ended, or, before
/// a tool, the one that begins.
pub fn is_asked(exchange: &Exchange, calls: &[Call]) -> bool {
    match exchange.point {
        // A resumed session is checked at its first prompt.
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

/// Runs every probe, and returns the events to publish before the exchange, in order: each finding
/// before the note about it. After a crash between the two, the same finding is published again
/// under the same id.
pub fn look(known: &Known, moment: &Moment<'_>, settings: &Settings, facts: &dyn Facts) -> Vec<Event> {
    if moment.point == InjectionPoint::BeforeTool {
        return look_before_a_call(known, moment, settings, facts);
    }
    let mut around = known.around.clone();
    let mut paths = known.files.paths().map(|path| &**path);
    let git = if settings.git.enabled {
        let has = |path: &str, content| known.files.has(path, content);
        let files = git::KnownFiles { paths: &mut paths, has: &has };
        git::look(&known.around.git, moment, files, facts)
    } else {
        git::Looked::default()
    };
    let removed = if settings.files.enabled {
        around.folder.look(known.files.paths(), moment, facts)
    } else {
        files::folder::Looked::default()
    };
    around.git = git.known.unwrap_or(around.git);
    let explained = git.explained.iter().chain(&known.watched).chain(&removed.explained);
    let given = files::Given {
        settings: &settings.files,
        heard_at: known.heard_at,
        calls_since: moment.calls_since,
        explained: &explained.cloned().collect(),
    };
    let files = files::look(&known.files, moment, &given, facts);
    let findings =
        [git.findings, removed.findings, files.findings, around.look(moment, settings, facts)].concat();
    let findings = pause::sum_up(findings, moment, &known.pushed, &settings.pause);
    let around = (around != known.around).then_some(around);
    events(findings, Noted { files: files.noted, around }, moment)
}

/// Checks only whether the call that begins would overwrite a change unknown to the agent.
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
        explained: &SortedSet::new(),
    };
    let files = files::calls::look(&known.files, moment, &given, facts);
    events(files.findings, Noted { files: files.noted, around: None }, moment)
}

fn events(findings: Vec<Finding>, noted: Noted, moment: &Moment<'_>) -> Vec<Event> {
    let found = findings.into_iter().map(|Finding { event_type, severity, name, payload }| {
        event(event_type, severity, &name, payload, moment)
    });
    let parts = noted.into_parts().into_iter().enumerate().map(|(number, part)| note(&part, number, moment));
    found.chain(parts).collect()
}

fn note(noted: &Noted, number: usize, moment: &Moment<'_>) -> Event {
    let payload = serde_json::to_value(noted).expect("texts and numbers always serialize");
    let name = format!("{}:{}:{number}", moment.point, moment.now.as_millis());
    event(NOTED, Severity::Debug, &name, payload, moment)
}
