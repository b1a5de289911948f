//! Waits for conditions that require looking at the machine: one task per open condition of a watch
//! (docs/design/watches.md).
//!
//! The engine sends the open watches. A condition that came true is published as `watch.met`. If a
//! check fails three times in a row, it ends the watch with `watch.failed`. The engine decides
//! whether enough conditions are met, and what to publish then.

mod look;

use std::{collections::HashSet, convert::Infallible, sync::Arc, time::Duration};

use engine::watch::{Condition, Watch};
use tokio::sync::watch;
use tokio_stream::StreamExt;

pub use self::look::{Look, LookError, look};
use crate::capability::source::{
    Outlet, Parts, Running, Source, SourceError, files::Folders, inputs::OpenWatches, pause, values,
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

impl Watching {
    /// Waits for the conditions of the open watches.
    pub fn new(parts: &Parts<'_>) -> Self {
        Self { open: parts.inputs.watches.subscribe() }
    }
}

impl Source for Watching {
    const NAME: &'static str = "watch";

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        let mut values = values(&self.open);
        let mut list = values.next().await.ok_or(SourceError::Ended)?;
        let folders = Arc::new(Folders::default());
        let mut running: Running<Key> = Running::default();
        loop {
            let wanted: HashSet<Key> = conditions(&list).map(|(key, ..)| key).collect();
            running.keep(|key| wanted.contains(key));
            folders.renew(conditions(&list).filter(|(_, condition, _)| condition.path().is_some()).count());
            for (key, condition, watch) in conditions(&list) {
                // A finished condition stays in the list until the engine has read its event.
                let (folders, out, index) = (Arc::clone(&folders), out.clone(), key.1);
                running.start(key, || wait(Arc::clone(watch), index, condition.clone(), folders, out));
            }
            list = loop {
                tokio::select! {
                    newest = values.next() => break newest.ok_or(SourceError::Ended)?,
                    ended = running.ended("a condition could not be watched") => ended?,
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
