//! The subscribers in force as plain data, each with its layers, its state and its keys.

use std::sync::Arc;

use engine::{
    event::Severity,
    notification::{Activation, Audience, InjectionPoint, Priority},
    pipeline::rule::{Activity, Subscriber},
};
use strum::IntoStaticStr;

use crate::config::{
    compile::{Compiled, template_name},
    effective::{self, KeyInForce},
    layers::{FileKind, LayerKind, SourceFile, Sources, Workspace},
    layout::TEMPLATE_SUFFIX,
    report::Place,
};

engine::words::impl_as_str!(ListedState);

/// Whether a subscriber runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ListedState {
    /// It runs, and cannot be switched off.
    Core,
    /// It has what later files of its id leave to it.
    Remainder,
    /// It runs.
    On,
    /// It is switched off.
    Off,
}

/// A subscriber in force.
#[derive(Debug)]
pub struct Listed {
    /// Its id.
    pub id: String,
    /// Its name for people.
    pub name: String,
    /// Its purpose.
    pub description: String,
    /// Whether it runs.
    pub state: ListedState,
    /// The workspace for whose sessions it is; `None` for all.
    pub folder: Option<String>,
    /// The layers of its files and of its text, the latest last.
    pub layers: Vec<LayerKind>,
    /// Its files: the whole one, then those that inherit from it.
    pub files: Vec<SourceFile>,
    /// The keys in force, sections together. A template of a later layer is in the place of the keys
    /// of the text.
    pub keys: Vec<KeyInForce>,
}

/// Every subscriber of `compiled`, which `sources` compile to, by id.
pub fn subscribers(sources: &Sources, compiled: &Compiled) -> Vec<Listed> {
    compiled.rules.subscribers.iter().map(|rule| listed(rule, sources, compiled)).collect()
}

fn listed(rule: &Subscriber, sources: &Sources, compiled: &Compiled) -> Listed {
    let files = compiled.files.get(&rule.id).cloned().unwrap_or_default();
    let template = template(rule, sources);
    let mut keys = effective::keys(&files);
    if let Some(file) = template {
        keys.retain(|key| !effective::is_text(key));
        keys.push(KeyInForce {
            key: "output.template".to_owned(),
            value: format!("\"{}\"", file.name).into(),
            place: Place::file(&file.path),
            value_place: Place::file(&file.path),
        });
    }
    let mut layers: Vec<_> = files.iter().chain(template).map(|file| file.layer).collect();
    layers.sort_unstable();
    layers.dedup();
    Listed {
        id: rule.id.to_string(),
        name: rule.name.clone(),
        description: rule.description.clone(),
        state: state(rule),
        folder: rule.territory.as_ref().map(|own| own.folder.to_string()),
        layers,
        files,
        keys,
    }
}

fn state(rule: &Subscriber) -> ListedState {
    match rule.activity {
        Activity::Core if !rule.later.is_empty() => ListedState::Remainder,
        Activity::Core => ListedState::Core,
        Activity::Enabled => ListedState::On,
        Activity::Disabled => ListedState::Off,
    }
}

/// A subscriber of a workspace, as its user is asked about it.
#[derive(Debug)]
pub struct Asked {
    /// Its id in its file.
    pub id: String,
    /// The state of the subscriber that it changes; `None` if it is new.
    pub changes: Option<ListedState>,
    /// The types of its events.
    pub types: Vec<String>,
    /// The priority of its notifications.
    pub priority: Priority,
    /// The point at which they may enter the context.
    pub inject_at: InjectionPoint,
    /// What they do.
    pub does: Vec<&'static str>,
}

/// The subscribers of all workspaces of `compiled`.
pub fn asked_about(compiled: &Compiled) -> Vec<Asked> {
    let rules = &compiled.rules.subscribers;
    let asked = |rule: &Arc<Subscriber>| {
        let id = rule.id.in_file();
        let changed = rules.iter().find(|one| one.territory.is_none() && one.id.as_str() == id);
        Asked {
            id: id.to_owned(),
            changes: changed.map(|one| state(one)),
            types: rule.types.iter().map(ToString::to_string).collect(),
            priority: rule.output.priority,
            inject_at: rule.output.inject_at,
            does: does(rule),
        }
    };
    compiled.workspaces.iter().flat_map(|own| &own.subscribers).map(asked).collect()
}

fn does(rule: &Subscriber) -> Vec<&'static str> {
    let output = &rule.output;
    let reader = match output.audience {
        _ if rule.activity == Activity::Disabled => return vec!["is switched off"],
        Audience::Agent => "tells the agent",
        Audience::User => "tells you",
        Audience::Both => "tells the agent and you",
    };
    let wakes = match output.activation {
        Activation::Passive => None,
        Activation::Prompt => Some("prompts you"),
        Activation::Active => Some("wakes the agent"),
    };
    // A critical event of a trusted source interrupts by any subscriber.
    let is_below_critical = output.escalate_at.is_some_and(|least| least < Severity::Critical);
    let interrupts =
        (output.priority == Priority::Critical || is_below_critical).then_some("interrupts the agent");
    [Some(reader), wakes, interrupts].into_iter().flatten().collect()
}

/// The template of its name, if that is its text.
fn template<'s>(rule: &Subscriber, sources: &'s Sources) -> Option<&'s SourceFile> {
    let name = rule.output.layout.template()?;
    let mut own = sources.workspaces().iter().flat_map(Workspace::files);
    if let Some(file) = own.find(|file| *file.path == *name) {
        return Some(file);
    }
    let is_own = name.strip_suffix(TEMPLATE_SUFFIX) == Some(rule.id.as_str());
    let files = sources.of_kind(FileKind::Template);
    files.filter(|file| is_own && template_name(file) == name).last()
}
