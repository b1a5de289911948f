//! Applies the records of ended processes to the engine, and leaves out those that cannot be
//! applied.

use std::{
    any::Any,
    cell::Cell,
    collections::BTreeMap,
    io,
    ops::ControlFlow,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    fold::{Fold, FoldError},
    quarantine::{Attempt, Convicted},
    rules::RulesStore,
    skipped::Skipped,
    snapshots::Snapshots,
};
use engine::{
    Output,
    event::{Event, Seq, codec},
    notes::Notes,
    records::{self, Records},
    sorted::SortedSet,
};
use journal::{Journal, OpenError, ReadError, Reader, Record};

use crate::daemon::{causes::with_causes, publisher::Publisher};

/// Most records per read.
const BATCH_RECORDS_MAX: usize = 4_096;

/// Most records that one start skips; a larger number is not a set of isolated failures.
const SKIPPED_MAX: usize = 16;

/// Why the state cannot be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The folder of the journal or of the snapshots cannot be created or read.
    #[error("use the folder {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A restore into it was interrupted.
    #[error("use {}: a restore into it did not finish; restore again", .0.display())]
    Unrestored(PathBuf),
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The journal cannot be read.
    #[error("read the journal")]
    Read(#[from] ReadError),
    /// A record cannot be applied.
    #[error("replay the journal")]
    Fold(#[from] FoldError),
    /// A record cannot be applied, and what follows means something else without it.
    #[error(
        "replay the journal: record {seq} ({kind}, {place}) cannot be applied ({why}); a record of this kind is never skipped, because those \
         after it mean something else without it: start another build of aside, or restore a backup; `aside journal verify` tells whether the \
         journal is damaged, and `aside journal repair` mends that; if it is not, report this error"
    )]
    NeverSkipped {
        /// The record.
        seq: Seq,
        /// Its kind.
        kind: &'static str,
        /// Its file and its offset there.
        place: String,
        /// The reason.
        why: String,
    },
    /// The caller ended the replay.
    #[error("replay the journal: it was ended at record {0}")]
    Interrupted(Seq),
    /// More records would have to be skipped than allowed.
    #[error(
        "replay the journal: record {seq} cannot be applied ({why}), and {SKIPPED_MAX} before it were skipped; `aside journal verify` lists the damage"
    )]
    Unreadable {
        /// The record.
        seq: Seq,
        /// The reason.
        why: String,
    },
}

/// Called with the position and the kind of each record before it is applied; `Break` ends the
/// replay there, as if its process were killed.
pub type Before<'a> = dyn Fn(Seq, u8) -> ControlFlow<()> + 'a;

/// The records of ended processes.
pub struct Replay<'a> {
    /// The journal.
    pub journal: &'a Journal,
    /// Its snapshots.
    pub snapshots: &'a Snapshots,
    /// The rules of any time.
    pub rules: &'a RulesStore,
    /// The last record.
    pub ended: Seq,
    /// The state folder.
    pub state: &'a Path,
    /// The build of this program. A record that another build skipped is tried again.
    pub build: &'a str,
    /// The record that ended children of this process.
    pub convicted: Option<&'a Convicted>,
    /// Called before each record.
    pub before: &'a Before<'a>,
}

/// The state at the journal's head.
#[derive(Debug)]
pub struct Followed {
    /// The engine.
    pub fold: Fold,
    /// At the first record after it.
    pub reader: Reader,
    /// The events of the engine that are still to be published.
    pub outbox: Vec<Event>,
    /// The skipped records.
    pub skipped: SortedSet<Seq>,
}

/// Why the replay stopped.
enum Stopped {
    /// At this record, of this kind.
    At(Seq, u8, String),
    /// The journal failed.
    Error(RecoveryError),
}

/// What a replay leaves out and where it ends.
struct Within<'a> {
    skipped: &'a SortedSet<Seq>,
    /// Ends the replay, unless it is the journal's head.
    until: Option<Seq>,
    before: &'a Before<'a>,
}

impl Replay<'_> {
    /// Brings `fold` to the journal's head. A record that cannot be read, or that crashed this
    /// process or its children, is skipped from then on. A record that another build skipped is
    /// applied again if the state before it is known.
    ///
    /// Shape: `notes_of` makes the buffer for the notes of a fold that is to be followed.
    ///
    /// Errors: the journal cannot be read, or a record cannot be applied and is never skipped.
    pub fn follow(
        &self,
        fold: Fold,
        notes_of: impl Fn(&Fold) -> Option<Notes>,
    ) -> Result<Followed, RecoveryError> {
        let mut skipped = Skipped::open(self.state, self.journal);
        let (fold, retried) = self.take_back(fold, &mut skipped);
        let begin = fold.applied;
        let attempt = Attempt::begin(self.state)
            .inspect_err(|error| tracing::warn!(%error, "if this start crashes, the next one cannot identify the record"))
            .ok();
        let before = |seq: Seq, kind: u8| {
            if let Some(attempt) = &attempt {
                attempt.applying(seq);
            }
            (self.before)(seq, kind)
        };
        let mut left = SKIPPED_MAX;
        if let Some((Convicted { seq, why }, kind)) = self.convicted_after(begin) {
            if !records::may_be_skipped(kind) {
                return Err(self.never_skipped(*seq, kind, why.clone()));
            }
            self.skip(*seq, why.clone(), &mut skipped);
            left -= 1;
        }
        let mut fold = Some(fold);
        loop {
            let mut fold = fold.take().unwrap_or_else(|| self.state_before(begin));
            fold.notes = notes_of(&fold);
            let within = Within { skipped: skipped.records(), until: None, before: &before };
            match self.try_follow(fold, &within) {
                Ok((fold, reader, outbox)) => {
                    let skipped_again = skipped.records().clone();
                    for seq in retried.iter().filter(|seq| !skipped_again.contains(*seq)) {
                        self.record_taken_back(*seq, &mut skipped);
                    }
                    let ended = attempt.map_or(Ok(()), Attempt::end);
                    if let Err(error) = ended {
                        tracing::warn!(%error, "the file of the replayed record could not be removed; the next start notes each record");
                    }
                    return Ok(Followed { fold, reader, outbox, skipped: skipped.into_records() });
                }
                Err(Stopped::At(seq, kind, why)) if left > 0 && !skipped.records().contains(&seq) => {
                    let culprit = self.culprit(begin, seq, kind, skipped.records());
                    let culprit = culprit.ok_or_else(|| self.never_skipped(seq, kind, why.clone()))?;
                    self.skip(culprit, why, &mut skipped);
                    left -= 1;
                }
                Err(Stopped::At(seq, _, why)) => return Err(RecoveryError::Unreadable { seq, why }),
                Err(Stopped::Error(error)) => return Err(error),
            }
        }
    }

    /// The convicted record and its kind, if this replay would apply it.
    fn convicted_after(&self, begin: Seq) -> Option<(&Convicted, u8)> {
        let convicted = self.convicted.filter(|convicted| convicted.seq > begin)?;
        // A replay up to a damaged or deleted record reports that itself.
        let record = self.journal.read_at(convicted.seq).ok().flatten()?;
        Some((convicted, record.kind.0))
    }

    /// The state after the newest snapshot up to `upto`, or before the journal's first record.
    fn state_before(&self, upto: Seq) -> Fold {
        let loaded = self.snapshots.load_before(upto, self.journal, self.rules);
        loaded.unwrap_or_else(|| Fold::new(self.rules.clone()))
    }

    /// Takes back the skips of other builds, and returns the state from which these records can be
    /// applied. Without such a state the skips stay.
    fn take_back(&self, fold: Fold, skipped: &mut Skipped) -> (Fold, SortedSet<Seq>) {
        let mut retried = skipped.of_other_builds(self.build);
        let Some(first) = retried.first().copied() else { return (fold, retried) };
        let earlier = if first > fold.applied {
            Some(fold.applied)
        } else {
            let before_it = Seq(first.0.saturating_sub(1));
            let snapshot = self.snapshots.load_before(before_it, self.journal, self.rules);
            let has_beginning = || matches!(self.journal.read_at(Seq(1)), Ok(Some(_)));
            snapshot.map(|fold| fold.applied).or_else(|| has_beginning().then_some(Seq::ZERO))
        };
        let fold = match earlier {
            Some(earlier) if earlier < fold.applied => self.state_before(earlier),
            Some(_) => fold,
            // Only later ones can be applied.
            None => {
                retried.retain(|seq| *seq > fold.applied);
                fold
            }
        };
        for seq in &retried {
            tracing::warn!(%seq, "a record that another build of the program skipped is applied again");
            skipped.take_back(*seq);
        }
        (fold, retried)
    }

    /// The record to skip because the replay stops at `seq`: an event before it without which the
    /// replay goes on, or itself; `None` if it is never skipped.
    ///
    /// A record may only be where an earlier event takes effect, as its batch closes or an exchange
    /// releases it.
    fn culprit(&self, begin: Seq, seq: Seq, kind: u8, skipped: &SortedSet<Seq>) -> Option<Seq> {
        let goes_on_without = |events: &[Seq]| {
            let skipped = skipped.iter().chain(events).copied().collect();
            let within = Within { skipped: &skipped, until: Some(seq), before: self.before };
            self.try_follow(self.state_before(begin), &within).is_ok()
        };
        let itself = records::may_be_skipped(kind).then_some(seq);
        if kind == records::EVENT && goes_on_without(&[seq]) {
            return itself;
        }
        let events = self.events_between(begin, seq).ok()?;
        last_that_matters(&events, goes_on_without).or(itself)
    }

    /// The events after `begin` and before `end`.
    fn events_between(&self, begin: Seq, end: Seq) -> Result<Vec<Seq>, ReadError> {
        let mut reader = self.journal.read_from(begin.next());
        let mut events = Vec::new();
        loop {
            let batch = reader.next_batch(BATCH_RECORDS_MAX)?;
            let is_event = |record: &Record<'_>| record.kind.0 == records::EVENT;
            events.extend(batch.iter().filter(is_event).map(|record| record.seq).filter(|seq| *seq < end));
            if batch.is_empty() || reader.position() >= end {
                return Ok(events);
            }
        }
    }

    fn try_follow(&self, mut fold: Fold, within: &Within<'_>) -> Result<(Fold, Reader, Vec<Event>), Stopped> {
        let mut reader = first_reader(self.journal, &fold).map_err(|error| Stopped::Error(error.into()))?;
        let ahead = self.journal.read_from(reader.position());
        fold.look_ahead(ahead, self.ended, within.skipped.clone());
        let applying = Cell::new((Seq::ZERO, 0));
        let begin = |seq: Seq, kind: u8| {
            if within.until.is_some_and(|until| seq > until) {
                return ControlFlow::Break(());
            }
            applying.set((seq, kind));
            if within.skipped.contains(&seq) { ControlFlow::Continue(()) } else { (within.before)(seq, kind) }
        };
        // After a panic the fold is dropped.
        let replayed = catch_unwind(AssertUnwindSafe(|| replay(&mut reader, &mut fold, begin)));
        let (seq, kind) = applying.get();
        match replayed {
            Ok(Ok(outbox)) => {
                fold.go_live();
                Ok((fold, reader, outbox))
            }
            Ok(Err(RecoveryError::Interrupted(at))) if within.until.is_some_and(|until| at > until) => {
                Ok((fold, reader, Vec::new()))
            }
            Ok(Err(RecoveryError::Fold(FoldError { seq, source }))) if source.is_damage() => {
                Err(Stopped::At(seq, kind, with_causes(&source)))
            }
            Ok(Err(error)) => Err(Stopped::Error(error)),
            Err(panic) => Err(Stopped::At(seq, kind, words_of(panic.as_ref()))),
        }
    }

    fn never_skipped(&self, seq: Seq, kind: u8, why: String) -> RecoveryError {
        let kind = records::kind_name(kind).unwrap_or("unknown");
        let place = match self.journal.place_of(seq) {
            Ok(Some((path, offset))) => format!("byte {offset} of {}", path.display()),
            Ok(None) | Err(_) => "of an unknown file".to_owned(),
        };
        RecoveryError::NeverSkipped { seq, kind, place, why }
    }

    /// Records in the journal that a record is skipped, so that it stays skipped.
    fn skip(&self, seq: Seq, why: String, skipped: &mut Skipped) {
        tracing::error!(%seq, why, "a record of the journal is skipped; it has no effect");
        let noted = Records::build(|records| records.skipped(seq, self.build));
        skipped.add(seq, self.append(noted));
        self.journal.note_skipped(seq, why);
    }

    /// Records in the journal that a record is not skipped any more.
    fn record_taken_back(&self, seq: Seq, skipped: &mut Skipped) {
        tracing::info!(%seq, "the record is applied; it is not skipped any more");
        let noted = Records::build(|records| records.unskipped(seq, self.build));
        skipped.note(self.append(noted));
    }

    /// The position of what was appended; `None` if it could not be.
    fn append(&self, noted: Records) -> Option<Seq> {
        let appended = Publisher::new(self.journal.clone()).append_synced_blocking(noted);
        let appended = appended.inspect_err(
            |error| tracing::error!(%error, "that could not be recorded; it is so for this start only"),
        );
        appended.ok().and_then(|appended| appended.first())
    }
}

/// The last of `events` that has to be left out for the replay to go on; `None` if it does not even
/// go on without all of them.
fn last_that_matters(events: &[Seq], goes_on_without: impl Fn(&[Seq]) -> bool) -> Option<Seq> {
    if !goes_on_without(events) {
        return None;
    }
    // It goes on without those from `with` on, and does not without those from `without` on.
    let (mut with, mut without) = (0, events.len());
    while without - with > 1 {
        let middle = usize::midpoint(with, without);
        if goes_on_without(events.get(middle..)?) { with = middle } else { without = middle }
    }
    events.get(with).copied()
}

/// A reader of the records that `fold` has not applied. Without a snapshot, a journal whose
/// beginning was deleted is read from its oldest record.
fn first_reader(journal: &Journal, fold: &Fold) -> Result<Reader, ReadError> {
    let is_without_snapshot = fold.applied == Seq::ZERO;
    match journal.read_at(fold.applied.next()) {
        Err(ReadError::Gone { oldest, .. }) if is_without_snapshot => {
            tracing::warn!(
                %oldest,
                "the beginning of the journal was deleted and no snapshot replaces it: what was pending then is lost"
            );
            Ok(journal.read_from(oldest))
        }
        Err(error) => Err(error),
        Ok(_) => Ok(journal.read_from(fold.applied.next())),
    }
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("the program failed on it: {}", words.unwrap_or_else(|| "without a message".to_owned()))
}

/// Applies all records from `reader` to `fold`, and calls `begin` with each record before it is
/// applied; returns the events that are still to be published.
///
/// Errors: the journal cannot be read, a record cannot be applied, or `begin` ends the replay.
pub fn replay(
    reader: &mut Reader,
    fold: &mut Fold,
    begin: impl Fn(Seq, u8) -> ControlFlow<()>,
) -> Result<Vec<Event>, RecoveryError> {
    let mut outbox: BTreeMap<Arc<str>, Event> = BTreeMap::new();
    loop {
        let before = fold.applied;
        for record in reader.next_batch(BATCH_RECORDS_MAX)?.iter() {
            if begin(record.seq, record.kind.0).is_break() {
                return Err(RecoveryError::Interrupted(record.seq));
            }
            fold.apply(&record)?;
            if record.kind.0 == records::EVENT && !outbox.is_empty() {
                remove_published(&mut outbox, record.body);
            }
            while let Some(output) = fold.poll_output() {
                if let Output::Publish(event) = output {
                    outbox.insert(event.id.clone(), event);
                }
            }
        }
        if fold.applied == before {
            return Ok(outbox.into_values().collect());
        }
    }
}

fn remove_published(outbox: &mut BTreeMap<Arc<str>, Event>, body: &[u8]) {
    if let Ok(event) = codec::decode(body)
        && outbox.get(event.id).is_some_and(|own| *own.source == *event.source)
    {
        outbox.remove(event.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_event_that_matters_is_found() {
        let events: Vec<Seq> = (10..30).map(Seq).collect();
        for fatal in [vec![10], vec![29], vec![17], vec![12, 25]] {
            let goes_on = |left_out: &[Seq]| fatal.iter().any(|fatal| left_out.contains(&Seq(*fatal)));
            let last = fatal.last().copied().map(Seq);
            assert_eq!(
                last_that_matters(&events, goes_on),
                last,
                "each of {fatal:?} is needed for the fault"
            );
        }
        assert_eq!(last_that_matters(&events, |_| false), None);
        assert_eq!(last_that_matters(&[], |_| true), None);
    }
}
