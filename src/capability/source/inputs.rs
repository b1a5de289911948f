//! Inputs of sources, published by the event loop. A source that needs something new from the
//! engine gets a field here.

use std::sync::Arc;

use engine::{
    ci::Plan,
    sink::{Outbound, Question},
    watch::Watch,
};
use tokio::sync::watch::Sender;

use super::troubles::Troubles;
use crate::capability::{lsp::source::writes::Writes, outside};

/// The open watches, from the engine.
pub type OpenWatches = Arc<[Arc<Watch>]>;

/// The working folders of open sessions, sorted.
pub type OpenFolders = Arc<[Arc<str>]>;

/// The newest value of each input. A receiver may miss intermediate values.
#[derive(Debug, Default)]
pub struct Inputs {
    /// The open watches.
    pub watches: Sender<OpenWatches>,
    /// The notices that are due at the sinks.
    pub outbound: Sender<Outbound>,
    /// The questions that wait for an answer.
    pub questions: Sender<Arc<[Arc<Question>]>>,
    /// The next requests about pushed commits.
    pub ci: Sender<Plan>,
    /// The `[sources]` settings of the rules in force.
    pub settings: Sender<Arc<outside::Settings>>,
    /// The working folders of sessions, without those of subagents.
    pub folders: Sender<OpenFolders>,
    /// The session calls that changed files, from the hooks; not persisted.
    pub writes: Arc<Writes>,
    /// Problems that keep list entries from working: an output of sources, not an input.
    pub troubles: Arc<Troubles>,
}

impl Inputs {
    /// The newest settings.
    pub fn settings(&self) -> Arc<outside::Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// Publishes the settings, if they are from other rules than before.
    pub fn publish_settings(&self, settings: &Arc<outside::Settings>) {
        self.settings.send_if_modified(|known| {
            let is_new = !Arc::ptr_eq(known, settings);
            *known = Arc::clone(settings);
            is_new
        });
    }
}
