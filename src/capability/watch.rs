//! Waits for conditions that require looking at the machine: one task per open condition of a watch
//! (docs/design/watches.md).
//!
//! The engine sends the open watches. A condition that came true is published as `watch.met`. If a
//! check fails three times in a row, it ends the watch with `watch.failed`. The engine decides
//! whether enough conditions are met, and what to publish then.

mod look;

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};

use engine::{
    event::Event,
    watch::{Condition, Watch},
};
use tokio::{
    sync::watch,
    task::{AbortHandle, JoinSet},
};
use tokio_stream::{Stream, StreamExt};

pub use self::look::{Look, LookError, look};
use crate::{
    capability::source::{
        Clocks, Outlet, Parts, Source, events_of, files::Folders, inputs::OpenWatches, pause, values,
    },
    daemon::tasks::Task,
};

/// Most failed checks of a condition in a row.
const FAILURES_MAX: u32 = 3;
/// The wait after a failed check.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A condition: the id of its watch, and its index.
type Key = (Arc<str>, usize);

/// The source.
#[derive(Debug)]
pub struct Watching {
    open: watch::Receiver<OpenWatches>,
}

/// Why the source ended.
#[derive(Debug, thiserror::Error)]
pub enum WatchingError {
    /// The sender of the open watches was dropped.
    #[error("the event loop has ended")]
    Ended,
    /// A task panicked.
    #[error("a condition could not be watched")]
    Task(#[source] tokio::task::JoinError),
}

impl Watching {
    /// Waits for the conditions of the open watches.
    pub fn new(parts: &Parts<'_>) -> Self {
        Self { open: parts.inputs.watches.subscribe() }
    }
}

impl Source for Watching {
    const NAME: &'static str = "watch";
    type Error = WatchingError;

    fn events(
        self: Arc<Self>,
        clocks: Clocks,
    ) -> impl Stream<Item = Result<Vec<Event>, WatchingError>> + Send {
        events_of(clocks, |out| self.run(out))
    }
}

impl Watching {
    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, WatchingError> {
        let mut values = values(&self.open);
        let mut list = values.next().await.ok_or(WatchingError::Ended)?;
        let folders = Arc::new(Folders::default());
        let mut tasks = JoinSet::new();
        let mut running: HashMap<Key, AbortHandle> = HashMap::new();
        loop {
            let wanted: HashSet<Key> = conditions(&list).map(|(key, ..)| key).collect();
            running.retain(|key, task| {
                let is_wanted = wanted.contains(key);
                if !is_wanted {
                    task.abort();
                }
                is_wanted
            });
            folders.renew(conditions(&list).filter(|(_, condition, _)| condition.path().is_some()).count());
            for (key, condition, watch) in conditions(&list) {
                // A finished condition stays in the list until the engine has read its event.
                running.entry(key.clone()).or_insert_with(|| {
                    let (folders, out) = (Arc::clone(&folders), out.clone());
                    let task: Task<()> =
                        Box::pin(wait(Arc::clone(watch), key.1, condition.clone(), folders, out));
                    tasks.spawn(task)
                });
            }
            list = loop {
                tokio::select! {
                    newest = values.next() => break newest.ok_or(WatchingError::Ended)?,
                    Some(ended) = tasks.join_next(), if !tasks.is_empty() => match ended {
                        Err(error) if error.is_panic() => return Err(WatchingError::Task(error)),
                        Ok(()) | Err(_) => {}
                    },
                    () = folders.changed() => {}
                }
            };
        }
    }
}

/// The open conditions that require looking at the machine.
fn conditions(open: &OpenWatches) -> impl Iterator<Item = (Key, &Condition, &Arc<Watch>)> {
    open.iter().flat_map(|watch| {
        let parts = watch.parts.iter().enumerate();
        let parts = parts.filter(|(_, part)| part.met.is_none() && part.condition.is_of_machine());
        parts.map(move |(index, part)| ((Arc::clone(&watch.id), index), &part.condition, watch))
    })
}

/// Waits for one condition, and publishes that it came true or cannot be checked.
async fn wait(watch: Arc<Watch>, index: usize, condition: Condition, folders: Arc<Folders>, out: Outlet) {
    let mut failures = 0;
    let event = loop {
        match look::until_met(&condition, &folders, &mut failures).await {
            Ok(state) => break watch.met_event(index, &state, (out.clock)()),
            Err(error) => {
                failures += 1;
                tracing::debug!(watch = %watch.id, %error, failures, "a condition cannot be checked");
                if failures >= FAILURES_MAX {
                    break watch.failed_event(index, &error.to_string(), (out.clock)());
                }
            }
        }
        pause(RETRY_AFTER).await;
    };
    out.publish(event).await;
}

#[cfg(test)]
mod tests;
