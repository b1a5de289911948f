//! Keeps the projection: writes the notes that the event loop feeds, and reads missed records from
//! the journal.
//!
//! The event loop never waits for it. When the feed overflows, the loop cuts it. The projection
//! then folds the journal with the same code, up to the journal's end, and resubscribes from there.
//! A start that is far behind, a missing or broken file, and a command to rebuild are handled the
//! same way. It has its own thread, because SQLite blocks.
//!
//! ```text
//! Opening -> Subscribing -> Following      the feed begins at the file's cursor
//!                  ^  |         |
//!                  |  v         |          the feed is cut, or the file is replaced
//!              CatchingUp <-----+
//! ```
//!
//! `Opening` goes to `Following` at once with the notes of a start's own replay. An error in any
//! phase leads to `Failed`, which leads to `Opening`.

mod catch_up;
mod feed;
#[cfg(test)]
mod tests;

use std::{
    io,
    path::Path,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::timeout,
};

pub use self::catch_up::ProjectorError;
use self::{
    catch_up::{CatchUp, JOURNAL_END},
    feed::{KEPT_BYTES_MAX, Subscribed, Subscription, TRANSACTION_NOTES_MAX},
};
pub(super) use self::{
    catch_up::{ReplaySource, open, rebuild},
    feed::Feed,
};
use super::fold::Fold;
use engine::{event::Seq, notes::Notes};
use journal::background;

use crate::history::{Command, Projection, ProjectionError, Writer};

/// How long the first notes wait for more to share their transaction: each transaction takes some
/// twenty pages, however small. This delay of the history is not noticeable.
const GATHER: Duration = Duration::from_millis(20);
/// Most records that the file may be behind at a start for the start's own replay to complete it.
pub(super) const REPLAY_RECORDS_MAX: u64 = 65_536;
/// First and longest backoff after a failure; each is twice the one before.
const BACKOFF_MIN: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(60);

/// The phases of the thread. Each phase owns the open file, so an error closes it.
enum Phase {
    /// The file is to be opened.
    Opening(Option<AtStart>),
    /// The file is to be fed from its cursor; `fold` has applied the records up to it.
    Subscribing { writer: Writer, fold: Option<CatchUp> },
    /// The file is behind.
    CatchingUp { writer: Writer, fold: CatchUp, target: Target },
    /// The event loop feeds.
    Following { writer: Writer, feed: mpsc::Receiver<Notes> },
    /// An error is logged; the next try is after the backoff, or with a command.
    Failed,
}

/// The file that a start found.
struct AtStart {
    /// The file; the thread checks whether it belongs to this journal.
    writer: Writer,
    /// The notes of the start's replay for it, and all later notes; `None` if the replay took no
    /// notes.
    feed: Option<mpsc::Receiver<Notes>>,
}

/// The position up to which a file catches up.
enum Target {
    /// The end of the journal. There is no feed meanwhile, because the event loop would have to
    /// buffer it.
    End,
    /// The position where a feed has started.
    Feed(Seq, mpsc::Receiver<Notes>),
}

/// An open file after a command.
enum Handled {
    Kept(Writer),
    /// It is a new, empty one.
    Replaced(Writer),
}

/// The thread's state.
pub(super) struct Projector {
    projection: Projection,
    commands: mpsc::Receiver<Command>,
    /// Closed when the event loop has ended.
    subscribe: mpsc::Sender<Subscription>,
    source: ReplaySource,
    at_start: Option<AtStart>,
    /// How long the thread waits after the next failure.
    backoff: Duration,
}

impl Projector {
    /// A projector, and the event loop's end of it; nothing runs yet.
    ///
    /// `opened` is the existing file. If `fold` has notes, they are those that the file lacks, and
    /// are fed first.
    pub(super) fn new(
        projection: Projection,
        commands: mpsc::Receiver<Command>,
        source: ReplaySource,
        opened: Option<Writer>,
        fold: &mut Fold,
    ) -> (Self, Feed) {
        let (mut feed, subscribe) = Feed::new(projection.clone());
        // The file is passed on even without notes, because closing it would write its log into it
        // on this thread.
        let at_start = opened.map(|writer| AtStart { writer, feed: feed.start_with_replay(fold) });
        (Self { projection, commands, subscribe, source, at_start, backoff: BACKOFF_MIN }, feed)
    }

    /// Starts the thread, which ends after the event loop.
    ///
    /// Errors: the thread cannot be started.
    pub(super) fn start(mut self) -> io::Result<JoinHandle<()>> {
        let runtime = Handle::current();
        let ended = Ended(self.projection.clone());
        thread::Builder::new().name("projection".to_owned()).spawn(move || {
            background::lower_priority(background::LOW);
            runtime.block_on(self.run());
            drop(ended);
        })
    }

    async fn run(&mut self) {
        let mut phase = Phase::Opening(self.at_start.take());
        loop {
            phase = match self.step(phase).await {
                Ok(Some(next)) => next,
                Ok(None) => return,
                Err(error) => self.fail(&error),
            };
        }
    }

    /// Does one step of a phase; returns the next phase, `None` when the daemon stops.
    async fn step(&mut self, phase: Phase) -> Result<Option<Phase>, ProjectorError> {
        match phase {
            Phase::Opening(at_start) => self.open(at_start).map(Some),
            Phase::Subscribing { writer, fold } => self.subscribe(writer, fold).await,
            Phase::CatchingUp { writer, fold, target } => self.catch_up(writer, fold, target),
            Phase::Following { writer, feed } => self.follow(writer, feed).await,
            Phase::Failed => self.wait().await,
        }
    }

    fn open(&mut self, at_start: Option<AtStart>) -> Result<Phase, ProjectorError> {
        let (opened, feed) = at_start.map(|AtStart { writer, feed }| (writer, feed)).unzip();
        if self.take_damage() {
            return Ok(Phase::Subscribing { writer: self.replace(opened)?, fold: None });
        }
        let cursor = opened.as_ref().map(Writer::cursor);
        let mut writer = self.with_no_reader(|path| {
            let opened = opened.map_or_else(|| catch_up::open(path), Ok)?;
            catch_up::keep_or_replace(opened, &self.source.journal, path)
        })?;
        writer.set_bytes_max(self.projection.bytes_max());
        // The limit may be lower than before.
        while writer.shrink()? {}
        self.report_progress(&writer);
        // A replaced file lacks more than the feed has.
        if let Some(feed) = feed.flatten()
            && cursor == Some(writer.cursor())
        {
            return Ok(self.start_following(writer, feed));
        }
        // A fold takes long, so check first that the disk can be written.
        writer.probe()?;
        // Removes the records that the journal has deleted: the command for that may have arrived
        // while no file was open.
        let first = self.source.journal.stored().map_err(ProjectorError::List)?.first;
        if first > Seq::ZERO.next() {
            writer.forget_before(first)?;
        }
        Ok(Phase::Subscribing { writer, fold: None })
    }

    /// Subscribes to the notes after the cursor; a file that is behind the feed's start catches up.
    async fn subscribe(
        &mut self,
        mut writer: Writer,
        fold: Option<CatchUp>,
    ) -> Result<Option<Phase>, ProjectorError> {
        let (subscription, Subscribed { notes, started }) = Subscription::new(writer.cursor());
        if self.subscribe.send(subscription).await.is_err() {
            return Ok(None);
        }
        let Ok(started) = started.await else { return Ok(None) };
        if writer.cursor() >= started {
            return Ok(Some(self.start_following(writer, notes)));
        }
        if let Some(fold) = fold {
            return Ok(Some(Phase::CatchingUp { writer, fold, target: Target::Feed(started, notes) }));
        }
        drop(notes);
        let fold = CatchUp::start(&self.source, &mut writer)?;
        Ok(Some(Phase::CatchingUp { writer, fold, target: Target::End }))
    }

    /// Folds records of the journal, and writes about one transaction.
    fn catch_up(
        &mut self,
        mut writer: Writer,
        mut fold: CatchUp,
        target: Target,
    ) -> Result<Option<Phase>, ProjectorError> {
        if self.subscribe.is_closed() {
            return Ok(None);
        }
        while let Ok(command) = self.commands.try_recv() {
            writer = match self.handle(command, writer)? {
                Handled::Kept(writer) => writer,
                Handled::Replaced(writer) => return Ok(Some(Phase::Subscribing { writer, fold: None })),
            };
        }
        let until = match &target {
            Target::End => JOURNAL_END,
            Target::Feed(started, _) => *started,
        };
        let has_more = fold.advance(&mut writer, until)?;
        self.report_progress(&writer);
        Ok(Some(match target {
            target if has_more => Phase::CatchingUp { writer, fold, target },
            Target::End => Phase::Subscribing { writer, fold: Some(fold) },
            Target::Feed(_, feed) => self.start_following(writer, feed),
        }))
    }

    fn start_following(&mut self, writer: Writer, feed: mpsc::Receiver<Notes>) -> Phase {
        self.projection.set_failed(None);
        self.backoff = BACKOFF_MIN;
        Phase::Following { writer, feed }
    }

    /// Handles one command, or writes the notes that were fed.
    async fn follow(
        &mut self,
        mut writer: Writer,
        mut feed: mpsc::Receiver<Notes>,
    ) -> Result<Option<Phase>, ProjectorError> {
        let handled = tokio::select! {
            Some(command) = self.commands.recv() => self.handle(command, writer)?,
            notes = feed.recv() => match notes {
                Some(notes) => {
                    let batches = gather(notes, &mut feed).await;
                    if writer.is_in_place() {
                        writer.write(&batches)?;
                        self.report_progress(&writer);
                        Handled::Kept(writer)
                    } else {
                        Handled::Replaced(self.replace(Some(writer))?)
                    }
                }
                None if self.subscribe.is_closed() => return Ok(None),
                None => return Ok(Some(Phase::Subscribing { writer, fold: None })),
            },
        };
        Ok(Some(match handled {
            Handled::Kept(writer) => Phase::Following { writer, feed },
            Handled::Replaced(writer) => Phase::Subscribing { writer, fold: None },
        }))
    }

    fn handle(&self, command: Command, mut writer: Writer) -> Result<Handled, ProjectorError> {
        match command {
            Command::Rebuild(reply) => {
                return self.rebuild(reply, Some(writer)).map(Handled::Replaced);
            }
            Command::ForgetBefore(seq) => writer.forget_before(seq)?,
            Command::Check => {
                if self.take_damage() || !writer.is_in_place() {
                    return Ok(Handled::Replaced(self.replace(Some(writer))?));
                }
            }
        }
        Ok(Handled::Kept(writer))
    }

    /// Takes the damage that readers found, logs it and publishes it. Returns whether there was
    /// any.
    fn take_damage(&self) -> bool {
        let damage = self.projection.take_damage();
        if let Some(damage) = &damage {
            tracing::error!(damage, "the history is broken and is rebuilt from the journal");
            self.projection.set_failed(Some(format!("{damage}; it is rebuilt from the journal")));
        }
        damage.is_some()
    }

    /// Replaces the file for a rebuild command, and answers it. Catching up does the rest.
    fn rebuild(
        &self,
        reply: oneshot::Sender<Result<(), String>>,
        writer: Option<Writer>,
    ) -> Result<Writer, ProjectorError> {
        let replaced = self.replace(writer);
        // The requester may be gone.
        drop(reply.send(replaced.as_ref().map(|_| ()).map_err(ToString::to_string)));
        Ok(replaced?)
    }

    fn replace(&self, writer: Option<Writer>) -> Result<Writer, ProjectionError> {
        self.projection.progress().end_feed();
        self.projection.progress().commit(Seq::ZERO);
        drop(writer);
        let mut replaced = self.with_no_reader(catch_up::replace)?;
        replaced.set_bytes_max(self.projection.bytes_max());
        Ok(replaced)
    }

    /// Logs and publishes the error of a phase, whose file is closed; deletes a broken one.
    fn fail(&mut self, error: &ProjectorError) -> Phase {
        tracing::error!(error = error as &dyn std::error::Error, "the projection failed; it is tried again");
        self.projection.progress().end_feed();
        self.projection.set_failed(Some(error.to_string()));
        if let ProjectorError::File(error) = error
            && error.is_damage()
            && let Err(error) = self.with_no_reader(Writer::delete)
        {
            tracing::error!(%error, "the broken projection cannot be deleted");
        }
        Phase::Failed
    }

    /// Waits for the next try; a command ends the wait.
    #[expect(clippy::disallowed_methods, reason = "nothing is decided by when a failed disk is tried again")]
    async fn wait(&mut self) -> Result<Option<Phase>, ProjectorError> {
        let backoff = self.backoff;
        self.backoff = (backoff * 2).min(BACKOFF_MAX);
        tokio::select! {
            () = self.subscribe.closed() => Ok(None),
            () = tokio::time::sleep(backoff) => Ok(Some(Phase::Opening(None))),
            Some(command) = self.commands.recv() => Ok(Some(match command {
                Command::Rebuild(reply) => {
                    Phase::Subscribing { writer: self.rebuild(reply, None)?, fold: None }
                }
                // Opening the file does both.
                Command::ForgetBefore(_) | Command::Check => Phase::Opening(None),
            })),
        }
    }

    fn report_progress(&self, writer: &Writer) {
        self.projection.progress().commit(writer.cursor());
    }

    fn with_no_reader<T>(&self, run: impl FnOnce(&Path) -> T) -> T {
        self.projection.with_no_reader(|| run(self.projection.path()))
    }
}

/// Collects the notes that arrive after `first` within [`GATHER`], at most a full transaction.
async fn gather(first: Notes, feed: &mut mpsc::Receiver<Notes>) -> Vec<Notes> {
    let (mut count, mut bytes) = (first.notes().len(), first.bytes());
    let mut batches = vec![first];
    let more = async {
        while count < TRANSACTION_NOTES_MAX
            && bytes < KEPT_BYTES_MAX
            && let Some(more) = feed.recv().await
        {
            (count, bytes) = (count + more.notes().len(), bytes + more.bytes());
            batches.push(more);
        }
    };
    // After the timeout, write the notes that have arrived.
    timeout(GATHER, more).await.ok();
    batches
}

/// Reports that the thread has ended by a panic.
struct Ended(Projection);

impl Drop for Ended {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.progress().end_feed();
            self.0.set_failed(Some("its thread panicked; restart the daemon to retry".to_owned()));
        }
    }
}
