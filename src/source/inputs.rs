//! What sources work by, as the event loop publishes it. A source that needs something new of the
//! engine gets a field here.

use std::sync::Arc;

use tokio::sync::watch::Sender;

use super::{lsp::writes::Writes, troubles::Troubles, watching::Open};
use crate::{
    ci::Plan,
    rules::outside,
    sink::{Outbound, Question},
};

/// The folders that open sessions work in, sorted.
pub type Folders = Arc<[Arc<str>]>;

/// The newest value of each; who subscribes sees changes, and not each one.
#[derive(Debug, Default)]
pub struct Inputs {
    /// The open watches.
    pub watches: Sender<Open>,
    /// What is due at the sinks.
    pub outbound: Sender<Outbound>,
    /// The questions that wait for an answer.
    pub questions: Sender<Arc<[Arc<Question>]>>,
    /// What is to be asked next of what was pushed.
    pub ci: Sender<Plan>,
    /// What `[sources]` says in the rules in force.
    pub settings: Sender<Arc<outside::Settings>>,
    /// Where sessions work, without subagents.
    pub folders: Sender<Folders>,
    /// What the calls of sessions did to files; it comes from the hooks, and nothing of it is kept.
    pub writes: Arc<Writes>,
    /// What keeps entries of lists from working: what the sources say, not what they work by.
    pub troubles: Arc<Troubles>,
}

impl Inputs {
    /// Takes over the settings, if they are of other rules than before.
    pub fn publish_settings(&self, settings: &Arc<outside::Settings>) {
        self.settings.send_if_modified(|known| {
            let is_new = !Arc::ptr_eq(known, settings);
            *known = Arc::clone(settings);
            is_new
        });
    }
}
