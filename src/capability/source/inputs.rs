//! Inputs of sources, published by the event loop. A source that needs something new from the
//! engine gets a field here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{
    ci::Plan,
    sink::{Outbound, Question},
    sorted::{SortedMap, SortedSet},
    watch::Watch,
};
use tokio::sync::watch::Sender;

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

/// Most kept problems of a source.
const TROUBLES_MAX: usize = 64;

/// By source, then by entry and part of the entry.
type BySource = SortedMap<&'static str, SortedMap<(String, String), String>>;

/// The problems of all sources, which keep entries of `[[sources.NAME]]` from working. The commands
/// `aside sources` and `aside doctor` show them.
#[derive(Debug, Default)]
pub struct Troubles(Mutex<BySource>);

impl Troubles {
    /// Sets or removes the problem of an entry with `what`, such as a path; returns whether that is
    /// a change.
    pub fn set(&self, source: &'static str, entry: &str, what: &str, trouble: Option<String>) -> bool {
        let mut known = self.lock();
        let of_source = known.get_or_default(source);
        let key = (entry.to_owned(), what.to_owned());
        match trouble {
            Some(trouble) if of_source.len() < TROUBLES_MAX || of_source.contains_key(&key) => {
                of_source.insert(key, trouble.clone()).is_none_or(|before| before != trouble)
            }
            Some(_) => false,
            None => of_source.remove(&key).is_some(),
        }
    }

    /// Removes the problems of all other entries of a source.
    pub fn keep(&self, source: &'static str, entries: &SortedSet<&str>) {
        self.lock().get_or_default(source).retain(|(entry, _), _| entries.contains(&**entry));
    }

    /// The problems of a source, each with the name of its entry.
    pub fn of(&self, source: &str) -> Vec<String> {
        let known = self.lock();
        let troubles = known.get(source).into_iter().flatten();
        troubles.map(|((entry, _), trouble)| format!("{entry}: {trouble}")).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BySource> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_new_once_and_removed_with_entry() {
        let troubles = Troubles::default();
        let set =
            |trouble: Option<&str>| troubles.set("log", "dev", "/w/dev.log", trouble.map(str::to_owned));
        assert_eq!(
            [set(Some("a")), set(Some("a")), set(Some("b")), set(None), set(None)],
            [true, false, true, true, false]
        );
        set(Some("c"));
        assert_eq!((troubles.of("log"), troubles.of("paths")), (vec!["dev: c".to_owned()], vec![]));
        troubles.keep("log", &SortedSet::from(["other"]));
        assert_eq!(troubles.of("log"), Vec::<String>::new());
    }

    #[test]
    fn many_troubles_are_bounded() {
        let troubles = Troubles::default();
        for number in 0..TROUBLES_MAX + 5 {
            troubles.set("log", "dev", &number.to_string(), Some("x".to_owned()));
        }
        assert_eq!(troubles.of("log").len(), TROUBLES_MAX);
    }
}
