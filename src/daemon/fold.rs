//! The fold: takes one journal record and returns the engine's outputs.
//!
//! Recovery and live operation both use [`Fold::apply`]; they differ only in how they handle the
//! outputs.

use std::{collections::BTreeMap, sync::Arc};

use engine::{
    Engine, Input, Output, Saved,
    event::Seq,
    exchange::{Release, ReleaseRecord},
    notes::Notes,
    records::{self, RecordError, RecordInput, Skip, SkipDecision},
    snapshot::Damaged,
    sorted::SortedSet,
};
use journal::{Reader, Record, time::Timestamp};

use crate::{
    capability::outside::{self, Generation},
    daemon::rules::RulesStore,
};

/// An engine, and the store of the rules of any time.
#[derive(Debug)]
pub struct Fold {
    /// The engine, after the record [`Fold::applied`].
    pub engine: Engine,
    /// The store of the rules that `rules` records name.
    pub rules: RulesStore,
    /// The settings of the sources, of the rules in force.
    pub outside: Arc<outside::Settings>,
    /// Reads later records during a replay.
    ahead: Option<LookAhead>,
    /// Notes for the projection, while it is fed.
    pub notes: Option<Notes>,
    /// The position of the last applied record.
    pub applied: Seq,
    /// The time of that record.
    pub applied_at: Timestamp,
}

/// A record that does not have the form of its kind.
#[derive(Debug, thiserror::Error)]
#[error("record {seq} of the journal cannot be decoded")]
pub struct FoldError {
    /// The position of the record.
    pub seq: Seq,
    /// The cause.
    pub source: RecordError,
}

impl Fold {
    /// The state before the journal's first record: an engine without rules.
    pub fn new(rules: RulesStore) -> Self {
        let Generation { rules: in_force, outside } = Generation::none();
        let engine = Engine::new(in_force);
        let (applied, applied_at) = (Seq::ZERO, Timestamp::ZERO);
        Self { engine, rules, outside, ahead: None, notes: None, applied, applied_at }
    }

    /// Starts the use of later records: an exchange of an earlier process then releases the same
    /// notifications as it did then. `until` is the last record of the earlier processes. `reader`
    /// is at the next record; `skipped` records are not applied.
    pub fn look_ahead(&mut self, reader: Reader, until: Seq, skipped: SortedSet<Seq>) {
        self.ahead = Some(LookAhead::new(reader, until, skipped));
    }

    /// Ends the use of later records: from here on the engine decides.
    pub fn go_live(&mut self) {
        self.ahead = None;
    }

    /// Encodes the state; [`Fold::poll_output`] must have been drained.
    ///
    /// Errors: it cannot be written.
    pub fn to_state(&self) -> Result<Vec<u8>, Damaged> {
        self.engine.save(self.applied, self.applied_at)
    }

    /// Decodes the state that [`Fold::to_state`] encoded.
    ///
    /// Shape: has the rules of that time, or the nearest ones if they are lost.
    ///
    /// Errors: the bytes are not a valid state.
    pub fn from_state(rules: RulesStore, state: &[u8]) -> Result<Self, Damaged> {
        let saved = Saved::read(state)?;
        let hash = &saved.rules;
        let in_force = if hash.is_empty() { Generation::none() } else { rules.load_or_nearest(hash, None) };
        let (applied, applied_at, outside) = (saved.applied, saved.applied_at, in_force.outside);
        let engine = Engine::restored(in_force.rules, saved);
        Ok(Self { engine, rules, outside, ahead: None, notes: None, applied, applied_at })
    }

    /// Applies one record to the engine. Drain [`Fold::poll_output`] afterwards.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), FoldError> {
        let seq = record.seq;
        if let Some(notes) = &mut self.notes {
            notes.begin(record);
        }
        let input = if self.ahead.as_mut().is_some_and(|ahead| ahead.is_skipped(seq)) {
            Input::Skipped { event: (record.kind.0 == records::EVENT).then_some(seq) }
        } else {
            self.input(record)?
        };
        self.engine.handle(input, record.time);
        self.applied = seq;
        self.applied_at = record.time;
        Ok(())
    }

    fn input<'a>(&mut self, record: &Record<'a>) -> Result<Input<'a>, FoldError> {
        let seq = record.seq;
        let decoded = records::decode(record.kind.0, seq, record.body);
        Ok(match decoded.map_err(|source| FoldError { seq, source })? {
            RecordInput::Input(Input::Exchange { seq, request, exchange, release: _ }) => {
                let release = self.ahead.as_mut().map_or(Release::Decide, |ahead| ahead.release_of(seq));
                Input::Exchange { seq, request, exchange, release }
            }
            RecordInput::Input(input) => input,
            // Both concern earlier records. A replay reads them before: the look-ahead the
            // releases, and `Skipped::open` the skips.
            RecordInput::Released(_) => Input::Tick,
            RecordInput::Skipped(Skip { record, decision, .. }) => {
                if decision == SkipDecision::Skipped
                    && let Some(notes) = &mut self.notes
                {
                    notes.take_skip(record);
                }
                Input::Tick
            }
            // Every start and every segment repeats the current ones.
            RecordInput::Rules { hash } if hash == self.engine.rules().hash => Input::Tick,
            RecordInput::Rules { hash } => {
                let (rules, outside) = (Arc::clone(self.engine.rules()), Arc::clone(&self.outside));
                let nearest = self.rules.load_or_nearest(&hash, Some(Generation { rules, outside }));
                self.outside = nearest.outside;
                Input::RulesReplaced(nearest.rules)
            }
        })
    }

    /// The next output that has to be executed; the notes record the others.
    pub fn poll_output(&mut self) -> Option<Output> {
        loop {
            let output = self.engine.poll_output()?;
            if let Some(notes) = &mut self.notes {
                notes.take(&output);
            }
            match output {
                Output::Record(_) | Output::Made(_) | Output::Said(_) => {}
                wanted @ (Output::Session(..)
                | Output::Answer { .. }
                | Output::Refuse { .. }
                | Output::Publish(_)
                | Output::Wake(_)) => {
                    return Some(wanted);
                }
            }
        }
    }
}

/// Largest distance between an exchange and its release, in records. The release is written before
/// the next record is applied, and publishers wait when the engine is 4 to 16,384 records behind,
/// depending on its pace.
const RECORDS_AHEAD: u64 = 65_536;
/// Most records per read.
const BATCH_RECORDS_MAX: usize = 4_096;

/// Finds in later records, up to a position, which notifications each earlier exchange released, and
/// which records are skipped.
///
/// A replay needs the release before it applies the exchange. So a second reader runs ahead of the
/// first, from the exchange to its release. Without exchanges no record is read twice.
#[derive(Debug)]
pub(super) struct LookAhead {
    reader: Reader,
    /// The last record of an earlier process; this process decides later ones.
    until: Seq,
    releases: BTreeMap<Seq, ReleaseRecord>,
    /// The newest exchange whose release was read; the releases of earlier exchanges are written
    /// before it.
    newest: Seq,
    skipped: SortedSet<Seq>,
    has_failed: bool,
}

impl LookAhead {
    /// Reads with `reader`, which is at or before the first exchange; `skipped` records are not
    /// applied.
    pub(super) fn new(reader: Reader, until: Seq, skipped: SortedSet<Seq>) -> Self {
        Self { reader, until, releases: BTreeMap::new(), newest: Seq::ZERO, skipped, has_failed: false }
    }

    /// Whether the record at `seq` is skipped.
    pub(super) fn is_skipped(&self, seq: Seq) -> bool {
        self.skipped.contains(&seq)
    }

    /// The notifications that the exchange at `seq` released, if its process has ended. Call it in
    /// order.
    pub(super) fn release_of(&mut self, seq: Seq) -> Release {
        if seq > self.until {
            return Release::Decide;
        }
        self.read_for(seq);
        Release::Recorded(self.releases.remove(&seq))
    }

    /// Reads until the release of the exchange at `seq` is found.
    fn read_for(&mut self, seq: Seq) {
        self.reader.skip_to(seq.next());
        let last = Seq(seq.0.saturating_add(RECORDS_AHEAD)).min(self.until);
        while !self.has_failed && self.newest < seq && self.reader.position() <= last {
            match self.reader.next_batch(BATCH_RECORDS_MAX) {
                Ok(batch) if batch.is_empty() => return,
                Ok(batch) => {
                    for found in batch.iter().filter(|found| found.kind.0 == records::RELEASED) {
                        // The main replay reports unreadable records.
                        if let Ok(RecordInput::Released(release)) =
                            records::decode(found.kind.0, found.seq, found.body)
                        {
                            self.newest = self.newest.max(release.exchange);
                            self.releases.insert(release.exchange, release);
                        }
                    }
                }
                Err(_) => self.has_failed = true,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use engine::exchange::InjectionId;
    use journal::{
        AppendBatch, Journal, JournalSettings, Level, RecordKind, memory::MemoryFiles, time::Timestamp,
    };

    /// A journal of `records` records. Each pair is the position of a release, and of its exchange.
    fn journal(records: u64, released: &[(u64, u64)]) -> Journal {
        let settings = JournalSettings { segment_bytes: 1 << 20, ..JournalSettings::default() };
        let clock = Arc::new(|| Timestamp::ZERO);
        let opened = Journal::open(Arc::new(MemoryFiles::new()), settings, clock, &|_| None).expect("opened");
        for place in 1..=records {
            let exchange = released.iter().find(|(at, _)| *at == place).map(|(_, exchange)| Seq(*exchange));
            let mut body = Vec::new();
            let kind = if let Some(exchange) = exchange {
                records::encode_released(&release(exchange), &mut body);
                records::RELEASED
            } else {
                records::encode_bare(&mut body);
                records::TICK
            };
            let batch = AppendBatch::of(RecordKind(kind), &body, None).expect("small");
            opened.journal.append_blocking(batch, Level::Written).expect("appended");
        }
        opened.journal
    }

    fn release(exchange: Seq) -> ReleaseRecord {
        let injection = InjectionId::new(&format!("of{exchange}"));
        ReleaseRecord {
            exchange,
            injection,
            notifications: Vec::new(),
            directive: None,
            format: None,
            tokens: None,
        }
    }

    fn recorded(exchange: u64) -> Release {
        Release::Recorded(Some(release(Seq(exchange))))
    }

    #[test]
    fn look_ahead_finds_the_release_of_each_exchange() {
        let journal = journal(30_000, &[(3, 2), (9_000, 7), (9_001, 8), (29_000, 28_000)]);
        let mut ahead = LookAhead::new(journal.read_from(Seq(1)), Seq(30_000), SortedSet::new());
        let nothing = Release::Recorded(None);
        for (exchange, expected) in [
            (2, recorded(2)),
            (5, nothing.clone()),
            (7, recorded(7)),
            (8, recorded(8)),
            (20_000, nothing.clone()),
            (28_000, recorded(28_000)),
            (29_500, nothing),
            (30_001, Release::Decide),
        ] {
            assert_eq!(ahead.release_of(Seq(exchange)), expected, "{exchange}");
        }
    }

    #[test]
    fn look_ahead_reads_from_exchange_to_release_only() {
        let journal = journal(40_000, &[(20_001, 20_000), (20_003, 20_002)]);
        let mut ahead = LookAhead::new(journal.read_from(Seq(1)), Seq(40_000), SortedSet::new());
        assert!(!ahead.is_skipped(Seq(7)));
        assert_eq!(ahead.reader.position(), Seq(1));
        assert_eq!(ahead.release_of(Seq(20_000)), recorded(20_000));
        let read = ahead.reader.position();
        assert!(read <= Seq(20_000 + BATCH_RECORDS_MAX as u64 + 1), "{read}");
        assert_eq!(ahead.release_of(Seq(20_002)), recorded(20_002));
        assert_eq!(ahead.reader.position(), read, "it was known");
    }
}
