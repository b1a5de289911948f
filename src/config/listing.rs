//! The subscribers in force as plain data, each with its layers, its state and its keys.

use engine::pipeline::rule::{Activity, Subscriber};
use strum::IntoStaticStr;

use crate::config::{
    compile::{Compiled, template_name},
    effective::{self, KeyInForce},
    layers::{FileKind, LayerKind, SourceFile, Sources},
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

/// The template of its name, if that is its text.
fn template<'s>(rule: &Subscriber, sources: &'s Sources) -> Option<&'s SourceFile> {
    let name = rule.output.layout.template()?;
    let is_own = name.strip_suffix(TEMPLATE_SUFFIX) == Some(rule.id.as_str());
    let files = sources.of_kind(FileKind::Template);
    files.filter(|file| is_own && template_name(file) == name).last()
}
