//! Follows the files of `[[sources.log]]`, and publishes the lines that match: one task per file.
//!
//! A task wakes at events in the file's folder, and when a matched line is due to be published. It
//! polls only where changes are not reported, as on a network mount.

use std::{convert::Infallible, io, ops::ControlFlow, path::Path, sync::Arc, time::Duration};

use engine::{settings::Entry, sorted::SortedSet};
use tokio::sync::{Notify, watch};
use tokio_stream::StreamExt;

use crate::capability::{
    log::{Lines, Log, LogFile},
    outside,
    source::{
        Outlet, Parts, Running, Source, SourceError, changes,
        files::{Folders, LOOK_EVERY, LOOK_MAX, is_remote, on_thread, watch_around},
        inputs::{self, Troubles},
        pause, pause_if,
        tail::Tail,
    },
};

/// Most followed files.
const FILES_MAX: usize = 256;
/// Writes within this time are read together.
const SETTLES: Duration = Duration::from_millis(100);

/// The source.
#[derive(Debug)]
pub struct Following {
    settings: watch::Receiver<Arc<outside::Settings>>,
    folders: watch::Receiver<inputs::OpenFolders>,
    troubles: Arc<Troubles>,
}

impl Following {
    /// Follows the files that the settings name.
    pub fn new(Parts { inputs, .. }: &Parts<'_>) -> Self {
        Self {
            settings: inputs.settings.subscribe(),
            folders: inputs.folders.subscribe(),
            troubles: Arc::clone(&inputs.troubles),
        }
    }
}

#[derive(Debug, Clone)]
struct Follow {
    log: Log,
    place: LogFile,
    folders: Arc<Folders>,
    troubles: Arc<Troubles>,
}

impl Source for Following {
    const NAME: &'static str = "log";

    async fn run(self: Arc<Self>, out: Outlet) -> Result<Infallible, SourceError> {
        let mut changes = changes(&self.settings).merge(changes(&self.folders));
        let folders = Arc::new(Folders::default());
        let mut running = Running::default();
        loop {
            let logs = Arc::clone(&self.settings.borrow().log.list);
            let open = Arc::clone(&self.folders.borrow());
            let wanted = self.wanted(&logs, &open);
            folders.renew(wanted.len());
            running.renew(&wanted, |(log, place)| {
                let (folders, troubles) = (Arc::clone(&folders), Arc::clone(&self.troubles));
                Follow { log, place, folders, troubles }.run(out.clone())
            });
            loop {
                tokio::select! {
                    changed = changes.next() => break changed.ok_or(SourceError::Ended)?,
                    ended = running.ended("a log could not be followed") => ended?,
                    () = folders.changed() => {}
                }
            }
        }
    }
}

impl Following {
    /// Every file to follow, with its entry.
    fn wanted(&self, logs: &[Log], open: &inputs::OpenFolders) -> Vec<(Log, LogFile)> {
        let names: SortedSet<&str> = logs.iter().map(Entry::name).collect();
        self.troubles.keep(Self::NAME, &names);
        let mut wanted = Vec::new();
        for log in logs {
            let mut places = log.places(open);
            let room = FILES_MAX - wanted.len();
            if places.len() > room {
                let trouble = format!("only {FILES_MAX} files are followed; {} are not", places.len() - room);
                self.troubles.set(Self::NAME, log.name(), "", Some(trouble));
                places.truncate(room);
            } else {
                self.troubles.set(Self::NAME, log.name(), "", None);
            }
            wanted.extend(places.into_iter().map(|place| (log.clone(), place)));
        }
        wanted
    }
}

/// The read position in a file, and its matched lines.
#[derive(Default)]
struct Progress {
    /// `None` before the first look.
    tail: Option<Tail>,
    lines: Lines,
}

/// The result of a look.
struct LookResult {
    is_behind: bool,
    needs_polling: bool,
}

impl Follow {
    async fn run(self, out: Outlet) {
        let who = Arc::new(Notify::new());
        let mut progress = Progress::default();
        loop {
            let looked = self.look(std::mem::take(&mut progress), &who).await;
            let looked = looked.and_then(|(kept, found)| {
                progress = kept;
                found
            });
            self.note(looked.as_ref().err());
            let LookResult { is_behind, needs_polling } = looked.unwrap_or_else(|error| LookResult {
                is_behind: false,
                // A file that did not answer in time may answer later without a reported change.
                needs_polling: error.kind() == io::ErrorKind::TimedOut || !self.folders.is_reporting(),
            });
            if let Some(event) = progress.lines.poll(&self.log, &self.place, (out.clock)()) {
                out.publish(event).await;
            }
            if is_behind {
                continue;
            }
            let due = progress.lines.deadline().map(|at| at.since((out.clock)()));
            tokio::select! {
                () = who.notified() => pause(SETTLES).await,
                () = pause_if(due) => {}
                () = pause_if(needs_polling.then_some(LOOK_EVERY)) => {}
            }
        }
    }

    /// Reads the lines since the last look; the first look starts at the end of the file.
    ///
    /// Errors: the file does not answer in time, and the read position is lost. If the file cannot
    /// be read, the inner result is the error.
    async fn look(
        &self,
        mut progress: Progress,
        who: &Arc<Notify>,
    ) -> io::Result<(Progress, io::Result<LookResult>)> {
        let (follow, who) = (self.clone(), Arc::clone(who));
        on_thread(&self.place.path, LOOK_MAX, move || {
            let path = Path::new(&*follow.place.path);
            // Asked first: if reports begin meanwhile, the next poll adds the folders.
            let needs_polling = !follow.folders.is_reporting() || is_remote(path);
            watch_around(path, &follow.folders, &who);
            let is_behind = follow.read(&mut progress);
            Ok((progress, is_behind.map(|is_behind| LookResult { is_behind, needs_polling })))
        })
        .await
    }

    /// Returns whether there are more lines to read.
    fn read(&self, progress: &mut Progress) -> io::Result<bool> {
        let path = &*self.place.path;
        let tail = match &mut progress.tail {
            Some(tail) => tail,
            None => progress.tail.insert(Tail::at_end(path)?),
        };
        tail.read(path, |line| {
            if let Some(matched) = self.log.pick(line) {
                progress.lines.push(matched);
            }
            ControlFlow::Continue(())
        })
    }

    /// Records whether the file can be read, and logs a new error once.
    fn note(&self, error: Option<&io::Error>) {
        let trouble = error.map(|error| format!("{} cannot be read: {error}", self.place.path));
        if self.troubles.set(Following::NAME, self.log.name(), &self.place.path, trouble)
            && let Some(error) = error
        {
            tracing::warn!(log = self.log.name(), path = &*self.place.path, %error, "a log cannot be read");
        }
    }
}
