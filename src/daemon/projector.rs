//! Keeps the projection: writes what the event loop feeds, and catches up by itself on what it
//! missed.
//!
//! The event loop never waits for it. When the feed overflows, the loop cuts it. The projection
//! then folds the journal on its own, with the same code, up to the journal's end, and resubscribes
//! from there. A start that is far behind, a missing or broken file, and an order to rebuild are
//! handled the same way. It has its own thread, as SQLite blocks.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    fold::{Fold, FoldError},
    rules::RulesStore,
    snapshots::Snapshots,
};
use crate::{
    background,
    event::Seq,
    journal::{Journal, ReadError, Reader},
    projection::{Command, Failed, Notes, Projection, ProjectionError, Writer},
};

/// Most batches that wait for the thread; each is the result of one slice of the event loop.
const FEED_LEN_MAX: usize = 16;
/// Most notes and bytes that the event loop keeps for a slow thread before it cuts the feed.
const KEPT_NOTES_MAX: usize = 16_384;
const KEPT_BYTES_MAX: usize = 16 << 20;
/// After how many records the cursor moves although they left nothing to write.
const RECORDS_MAX: u64 = 4_096;
/// Most records folded between two checks for orders, and two commits.
const FOLD_RECORDS_MAX: u64 = 65_536;
/// Approximate limit of notes per transaction.
const TRANSACTION_NOTES_MAX: usize = 4_096;
/// How long the first notes wait for more to share their transaction: each transaction takes some
/// twenty pages, however small. This delay of the history is not noticeable.
const GATHER: Duration = Duration::from_millis(20);
/// Most records per read.
const BATCH_RECORDS_MAX: usize = 1_024;
/// How far the file may be behind at a start to be brought up to date by the start's own replay.
pub(super) const REPLAY_RECORDS_MAX: u64 = 65_536;
/// First and longest backoff after a failure; each is twice the one before.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// A request for a subscription to what follows a record.
pub(super) struct Attach {
    after: Seq,
    feed: mpsc::Sender<Notes>,
    /// What the event loop had applied when the feed began.
    begun: oneshot::Sender<Seq>,
}

/// The event loop's end of the feed.
pub(super) struct Feed {
    projection: Projection,
    wishes: mpsc::Receiver<Attach>,
    sender: Option<mpsc::Sender<Notes>>,
}

impl Feed {
    /// Waits for a subscription request; forever if there will be none. Cancel-safe.
    pub(super) async fn wish(&mut self) -> Option<Attach> {
        self.wishes.recv().await
    }

    /// Feeds the subscriber from now on.
    pub(super) fn begin(&mut self, attach: Attach, fold: &mut Fold) {
        let after = attach.after.max(fold.applied);
        if attach.begun.send(fold.applied).is_err() {
            return;
        }
        fold.notes = Some(Notes::after(after));
        self.sender = Some(attach.feed);
        self.projection.progress().begin_feed(fold.applied);
    }

    /// Feeds the notes of a replay, and everything after it; returns `None` if the replay took no
    /// notes.
    fn begin_at_start(&mut self, fold: &mut Fold) -> Option<mpsc::Receiver<Notes>> {
        let has_missed = fold.notes.as_ref().map(|notes| notes.records() > 0)?;
        let (sender, feed) = mpsc::channel(FEED_LEN_MAX);
        self.sender = Some(sender);
        self.projection.progress().begin_feed(fold.applied);
        if has_missed {
            self.send(fold);
        }
        Some(feed)
    }

    /// Hands over the notes of `fold`, if there is something to write; never waits.
    pub(super) fn hand_over(&mut self, fold: &mut Fold) {
        let Some(notes) = fold.notes.as_ref().filter(|_| self.sender.is_some()) else { return };
        if !notes.notes().is_empty() || notes.records() >= RECORDS_MAX {
            self.send(fold);
        }
        self.projection.progress().apply(fold.applied);
    }

    /// Hands over the notes of `fold` early if there are many.
    pub(super) fn hand_over_much(&mut self, fold: &mut Fold) {
        if fold.notes.as_ref().is_some_and(|notes| notes.notes().len() >= TRANSACTION_NOTES_MAX) {
            self.hand_over(fold);
        }
    }

    /// Hands over the rest, so that the file ends where the journal does.
    pub(super) fn end(mut self, fold: &mut Fold) {
        if fold.notes.as_ref().is_some_and(|notes| notes.records() > 0) {
            self.send(fold);
        }
    }

    fn send(&mut self, fold: &mut Fold) {
        let Some((sender, kept)) = self.sender.as_ref().zip(fold.notes.as_mut()) else { return };
        let notes = kept.hand_over();
        self.projection.progress().hand(notes.upto());
        match sender.try_send(notes) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(notes))
                if notes.notes().len() <= KEPT_NOTES_MAX && notes.bytes() <= KEPT_BYTES_MAX =>
            {
                kept.put_back(notes);
            }
            // Full, or its thread has ended or failed: it resubscribes after catching up.
            Err(_) => {
                self.sender = None;
                fold.notes = None;
                self.projection.progress().end_feed();
            }
        }
    }
}

/// Why the projection cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum ProjectorError {
    /// The file failed.
    #[error(transparent)]
    File(#[from] ProjectionError),
    /// The journal cannot be read.
    #[error("the journal cannot be read: {0}")]
    Read(#[from] ReadError),
    /// The journal's files cannot be listed.
    #[error("the journal's files cannot be looked at: {0}")]
    Look(#[source] io::Error),
    /// A record cannot be applied.
    #[error(transparent)]
    Fold(#[from] FoldError),
}

/// Why the thread leaves the feed.
enum Turn {
    /// The daemon stops.
    Stop,
    /// The feed was cut, or the file has to be rebuilt.
    CatchUp,
}

/// Opens the file at `path`; deletes a broken one or one of another version first.
///
/// Errors: it cannot be opened or deleted.
pub(super) fn open(path: &Path) -> Result<Writer, ProjectionError> {
    match Writer::open(path) {
        Err(error) if error.is_damage() => {
            tracing::warn!(%error, "the projection is made again from the journal");
            Writer::delete(path)?;
            Writer::open(path)
        }
        other => other,
    }
}

/// Uses a file if it belongs to `journal`, else a new one.
///
/// Errors: the file cannot be deleted or opened.
fn of(journal: &Journal, opened: Writer, path: &Path) -> Result<Writer, ProjectionError> {
    if is_of(&opened, journal) {
        return Ok(opened);
    }
    tracing::warn!("the projection tells of records that the journal does not have; it is made again");
    drop(opened);
    Writer::delete(path)?;
    Writer::open(path)
}

/// Whether the record at the cursor is the one that was projected. After a power failure the
/// journal may have lost unsynced records, and have others in their place.
fn is_of(writer: &Writer, journal: &Journal) -> bool {
    let cursor = writer.cursor();
    if cursor == Seq::ZERO {
        return true;
    }
    match journal.read_at(cursor) {
        Ok(found) => found.is_some_and(|found| found.time == writer.time()),
        Err(ReadError::Gone { .. }) => true,
        // The components that need the journal report its damage.
        Err(ReadError::Io { .. } | ReadError::Damaged { .. }) => true,
    }
}

/// The sources for a separate fold.
#[derive(Debug, Clone)]
pub(super) struct Past {
    pub(super) journal: Journal,
    pub(super) snapshots: Arc<Snapshots>,
    pub(super) rules: RulesStore,
    /// The last record of ended processes.
    pub(super) ended: Seq,
    /// Those of their records that are not applied.
    pub(super) skipped: BTreeSet<Seq>,
}

impl Past {
    /// [`Past::fold_before`] for the cursor of `writer`; raises the floor of `writer` if records
    /// before it are missing.
    fn fold_for(&self, writer: &mut Writer) -> Result<(Fold, Reader), ProjectorError> {
        let cursor = writer.cursor();
        let (fold, reader) = self.fold_before(cursor)?;
        if reader.position() > cursor.next() {
            writer.raise_floor(reader.position())?;
        }
        Ok((fold, reader))
    }

    /// The engine before the record after `cursor`, or earlier, and the reader that continues
    /// there.
    ///
    /// Shape: from the newest snapshot at or before the cursor, else from the journal's first
    /// record. If that was deleted, from the oldest snapshot; earlier records are then not
    /// projected.
    ///
    /// Errors: the journal's files cannot be listed.
    fn fold_before(&self, cursor: Seq) -> Result<(Fold, Reader), ProjectorError> {
        let first = self.journal.stored().map_err(ProjectorError::Look)?.first;
        let is_whole = first <= Seq::ZERO.next();
        let fold = self.snapshots.load_before(cursor, &self.journal, &self.rules);
        let oldest = || self.snapshots.load_oldest(&self.journal, &self.rules);
        let fold = fold.or_else(|| (!is_whole).then(oldest).flatten());
        let mut fold = fold.unwrap_or_else(|| Fold::new(self.rules.clone()));
        let reader = || self.journal.read_from(fold.applied.next().max(first));
        let (reader, ahead) = (reader(), reader());
        fold.look_ahead(ahead, self.ended, self.skipped.clone());
        Ok((fold, reader))
    }
}

/// Rebuilds the file at `path` from `past`; returns the last record.
///
/// Errors: the file or the journal fails.
pub(super) fn rebuild(path: &Path, past: &Past) -> Result<Seq, ProjectorError> {
    Writer::delete(path)?;
    let mut writer = Writer::open(path)?;
    let (mut fold, mut reader) = past.fold_for(&mut writer)?;
    fold.notes = Some(Notes::default());
    while step(&mut fold, &mut reader, &mut writer, Seq(u64::MAX))? {}
    Ok(writer.cursor())
}

/// Applies the next records up to `until` and writes their notes; returns whether there were any.
fn step(
    fold: &mut Fold,
    reader: &mut Reader,
    writer: &mut Writer,
    until: Seq,
) -> Result<bool, ProjectorError> {
    let before = fold.applied;
    loop {
        let had = fold.applied;
        let left = usize::try_from(until.0.saturating_sub(had.0)).unwrap_or(usize::MAX);
        if left > 0 {
            for found in reader.next_batch(left.min(BATCH_RECORDS_MAX))?.iter() {
                fold.apply(&found)?;
                while fold.poll_output().is_some() {}
            }
        }
        let Some(kept) = &mut fold.notes else { return Ok(false) };
        let is_at_end = fold.applied == had;
        if is_at_end || kept.notes().len() >= TRANSACTION_NOTES_MAX || kept.records() >= FOLD_RECORDS_MAX {
            if kept.records() > 0 {
                writer.write(&[kept.hand_over()])?;
            }
            return Ok(fold.applied > before);
        }
    }
}

/// The thread's state.
pub(super) struct Projector {
    projection: Projection,
    commands: mpsc::Receiver<Command>,
    wishes: mpsc::Sender<Attach>,
    past: Past,
    /// The file as the start found it; the thread checks whether it belongs to this journal.
    at_start: Option<Writer>,
    /// What the start's replay noted for that file, and what follows.
    fed: Option<mpsc::Receiver<Notes>>,
    writer: Option<Writer>,
    /// A separate engine, while the event loop does not feed.
    own: Option<(Fold, Reader)>,
}

impl Projector {
    /// A projector, and the event loop's end of it; nothing runs yet.
    ///
    /// `at_start` is the existing file, and the notes of `fold` are what it lacks: they are fed
    /// first.
    pub(super) fn new(
        projection: Projection,
        commands: mpsc::Receiver<Command>,
        past: Past,
        at_start: Option<Writer>,
        fold: &mut Fold,
    ) -> (Self, Feed) {
        let (wish, wishes) = mpsc::channel(1);
        let mut feed = Feed { projection: projection.clone(), wishes, sender: None };
        let fed = at_start.as_ref().and_then(|_| feed.begin_at_start(fold));
        (Self { projection, commands, wishes: wish, past, at_start, fed, writer: None, own: None }, feed)
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
        let mut pause = PAUSE_MIN;
        loop {
            match self.follow(&mut pause).await {
                Ok(Turn::Stop) => return,
                Ok(Turn::CatchUp) => {}
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the projection does not go on"
                    );
                    self.give_up(&error);
                    if self.rest(pause).await {
                        return;
                    }
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
    }

    /// Subscribes after catching up, and writes what is fed.
    async fn follow(&mut self, pause: &mut Duration) -> Result<Turn, ProjectorError> {
        self.ensure_open()?;
        let mut feed = loop {
            if let Some(feed) = self.fed.take() {
                break feed;
            }
            let Some((begun, feed)) = self.attach().await? else { return Ok(Turn::Stop) };
            if self.writer()?.cursor() >= begun {
                break feed;
            }
            if self.own.is_some() {
                if self.catch_up(begun)? {
                    return Ok(Turn::Stop);
                }
                break feed;
            }
            // A fold takes long, and the loop must not keep notes for that time.
            drop(feed);
            if self.catch_up(Seq(u64::MAX))? {
                return Ok(Turn::Stop);
            }
        };
        self.own = None;
        self.projection.set_failed(None);
        *pause = PAUSE_MIN;
        loop {
            tokio::select! {
                Some(command) = self.commands.recv() => {
                    if self.obey(command)? {
                        return Ok(Turn::CatchUp);
                    }
                }
                notes = feed.recv() => {
                    let Some(notes) = notes else {
                        return Ok(if self.wishes.is_closed() { Turn::Stop } else { Turn::CatchUp });
                    };
                    if self.take(&gather(notes, &mut feed).await)? {
                        return Ok(Turn::CatchUp);
                    }
                }
            }
        }
    }

    /// Subscribes to what follows the cursor; returns where the feed begins; `None` when the event
    /// loop has ended.
    async fn attach(&mut self) -> Result<Option<(Seq, mpsc::Receiver<Notes>)>, ProjectorError> {
        let (sender, feed) = mpsc::channel(FEED_LEN_MAX);
        let (begun, has_begun) = oneshot::channel();
        let after = self.writer()?.cursor();
        if self.wishes.send(Attach { after, feed: sender, begun }).await.is_err() {
            return Ok(None);
        }
        Ok(has_begun.await.ok().map(|begun| (begun, feed)))
    }

    /// Writes what was fed; returns whether the file has to be rebuilt.
    fn take(&mut self, batches: &[Notes]) -> Result<bool, ProjectorError> {
        if !self.writer()?.is_in_place() {
            self.replace()?;
            return Ok(true);
        }
        self.writer()?.write(batches)?;
        self.say_how_far();
        Ok(false)
    }

    fn ensure_open(&mut self) -> Result<(), ProjectorError> {
        let path = self.projection.path().to_owned();
        let journal = self.past.journal.clone();
        if let Some(opened) = self.at_start.take() {
            let cursor = opened.cursor();
            let writer = self.projection.with_no_reader(|| of(&journal, opened, &path))?;
            // A rebuilt file lacks more than the feed has.
            self.fed = self.fed.take().filter(|_| writer.cursor() == cursor);
            self.writer = Some(writer);
        }
        if self.writer.is_none() {
            let writer = self
                .projection
                .with_no_reader(|| open(&path).and_then(|opened| of(&journal, opened, &path)))?;
            // A fold takes long, so check first that the disk can be written.
            writer.probe()?;
            self.writer = Some(writer);
        }
        self.say_how_far();
        Ok(())
    }

    /// Folds the journal up to `until` or its end; returns whether the daemon stops.
    fn catch_up(&mut self, until: Seq) -> Result<bool, ProjectorError> {
        while !self.wishes.is_closed() {
            while let Ok(command) = self.commands.try_recv() {
                self.obey(command)?;
            }
            let cursor = self.writer()?.cursor();
            let (mut fold, mut reader) = match self.own.take() {
                Some(own) => own,
                None => {
                    let past = self.past.clone();
                    past.fold_for(self.writer()?)?
                }
            };
            fold.notes.get_or_insert_with(|| Notes::after(cursor));
            let has_more = step(&mut fold, &mut reader, self.writer()?, until)?;
            self.own = Some((fold, reader));
            self.say_how_far();
            if !has_more {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Executes a command; returns whether the journal has to be folded again.
    fn obey(&mut self, command: Command) -> Result<bool, ProjectorError> {
        match command {
            Command::Rebuild(reply) => {
                let replaced = self.replace();
                // The requester may have gone.
                drop(reply.send(replaced.as_ref().map(|_| ()).map_err(ToString::to_string)));
                replaced?;
                return Ok(true);
            }
            Command::ForgetBefore(seq) => self.writer()?.forget_before(seq)?,
            Command::Check => {
                let damage = self.projection.take_damage();
                if let Some(damage) = &damage {
                    tracing::error!(damage, "the history is broken and is made again from the journal");
                    self.projection.set_failed(Some(format!("{damage}; it is made again from the journal")));
                }
                if damage.is_some() || self.writer.as_ref().is_some_and(|writer| !writer.is_in_place()) {
                    self.replace()?;
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn replace(&mut self) -> Result<(), ProjectorError> {
        self.projection.progress().end_feed();
        self.projection.progress().commit(Seq::ZERO);
        (self.own, self.writer, self.fed) = (None, None, None);
        let path = self.projection.path().to_owned();
        let replaced = self.projection.with_no_reader(|| {
            Writer::delete(&path)?;
            Writer::open(&path)
        });
        self.writer = Some(replaced?);
        Ok(())
    }

    /// Drops all state, so that the next try starts by opening the file; deletes a broken one.
    fn give_up(&mut self, error: &ProjectorError) {
        self.projection.progress().end_feed();
        self.projection.set_failed(Some(error.to_string()));
        (self.own, self.writer, self.fed) = (None, None, None);
        if let ProjectorError::File(error) = error
            && error.is_damage()
        {
            let path = self.projection.path().to_owned();
            if let Err(error) = self.projection.with_no_reader(|| Writer::delete(&path)) {
                tracing::error!(%error, "the broken projection stays");
            }
        }
    }

    /// Waits before the next try; returns whether the daemon stops. An order to rebuild ends the
    /// wait.
    #[expect(clippy::disallowed_methods, reason = "nothing is decided by when a failed disk is tried again")]
    async fn rest(&mut self, pause: Duration) -> bool {
        tokio::select! {
            () = self.wishes.closed() => true,
            () = tokio::time::sleep(pause) => false,
            Some(command) = self.commands.recv() => {
                if let Err(error) = self.obey(command) {
                    tracing::error!(error = &error as &dyn std::error::Error, "the projection does not go on");
                }
                false
            }
        }
    }

    fn say_how_far(&self) {
        if let Some(writer) = &self.writer {
            self.projection.progress().commit(writer.cursor());
        }
    }

    fn writer(&mut self) -> Result<&mut Writer, ProjectionError> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            None => Err(ProjectionError { doing: "written", source: Failed::Content("it is not open") }),
        }
    }
}

/// Collects what follows `first` within [`GATHER`], at most a full transaction.
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
    // Write what arrived by then.
    timeout(GATHER, more).await.ok();
    batches
}

/// Reports that the thread has ended by a panic.
struct Ended(Projection);

impl Drop for Ended {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.progress().end_feed();
            self.0.set_failed(Some("its thread panicked; a restart of the daemon tries again".to_owned()));
        }
    }
}
