//! Collects events into batches, and closes them.
//!
//! Events with the same scope and the same `group_by` values share one open batch. It closes when
//! its window ends, when it is full, or when the pipeline requests it, and never later. It closes
//! earlier only if [`BATCHES_OPEN_MAX`] are open and another one opens. One that only its time closes
//! keeps its newest rows. A batch that is due closes
//! as of its deadline, however late the caller polls, so a replay returns the same batch.

use std::sync::Arc;

use journal::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{
    event::{Event, Scope, Seq, Severity},
    pipeline::{
        key::Key,
        row::Row,
        timing::{HeldOpen, Timing},
    },
    snapshot,
    sorted::{SortedMap, SortedSet},
};

/// Most open batches of a subscriber: far above sessions times groups in use. With full batches
/// (100 rows) it bounds the waiting rows. When it is reached, the batch with the next deadline
/// closes early.
pub(crate) const BATCHES_OPEN_MAX: usize = 256;

/// Most rows of a batch that only its time closes. Beyond it the oldest row ends, and is counted.
const ROWS_KEPT_MAX: usize = 1_000;
/// Most bytes of the payloads of such a batch.
const BYTES_KEPT_MAX: usize = 1 << 20;

/// Most rows reserved when a batch opens; enough for most full batches.
const ROWS_AT_FIRST: usize = 10;

/// Rows that close together.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The scope of all its events.
    pub(crate) scope: Scope,
    /// Oldest first, at least one.
    pub(crate) rows: Vec<Row>,
    /// When it closed: its deadline, or the time at which it was full, requested or closed early.
    pub(crate) closed_at: Timestamp,
    /// When its newest event came, repeats excepted.
    pub(crate) newest_at: Timestamp,
    /// Number of events in rows that it did not keep.
    pub(crate) omitted: u32,
    /// Since when quiet hours kept it open.
    pub(crate) held_since: Option<Timestamp>,
}

impl Batch {
    /// A batch of one row that was never open.
    pub(crate) fn alone(scope: Scope, row: Row, now: Timestamp) -> Self {
        Self { scope, rows: vec![row], closed_at: now, newest_at: now, omitted: 0, held_since: None }
    }

    /// The highest severity of its rows.
    pub(crate) fn severity(&self) -> Severity {
        self.rows.iter().map(|row| row.event.severity).max().unwrap_or(Severity::Debug)
    }

    /// Number of events covered by its rows.
    pub(crate) fn event_count(&self) -> u32 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.repeats))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Open {
    #[serde(with = "snapshot::bytes")]
    group: Key,
    rows: Vec<Row>,
    opened_at: Timestamp,
    ends_at: Timestamp,
    /// When the newest event came, repeats excepted.
    #[serde(default)]
    newest_at: Timestamp,
    /// Number of events in rows that were not kept.
    #[serde(default)]
    omitted: u32,
    /// What keeps it open until `ends_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    held: Option<HeldOpen>,
}

impl Open {
    /// Ends the oldest rows over the bounds of a batch that only its time closes.
    fn end_oldest(&mut self) -> Vec<Row> {
        let mut bytes: usize = self.rows.iter().map(|row| row.event.payload.as_str().len()).sum();
        let mut over = 0;
        for row in &self.rows {
            if self.rows.len() - over <= ROWS_KEPT_MAX && bytes <= BYTES_KEPT_MAX
                || self.rows.len() - over == 1
            {
                break;
            }
            bytes -= row.event.payload.as_str().len();
            self.omitted = self.omitted.saturating_add(row.repeats);
            over += 1;
        }
        self.rows.drain(..over).collect()
    }

    fn deadline(&self, scope: &Scope) -> Deadline {
        Deadline { ends_at: self.ends_at, scope: scope.clone(), group: Key::clone(&self.group) }
    }
}

/// Identifies an open batch; ordered by deadline, then scope and group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Deadline {
    ends_at: Timestamp,
    scope: Scope,
    group: Key,
}

/// The open batches of one subscriber.
///
/// The rule is an argument of each call: after a rule change, open batches keep their rows, and their
/// deadlines unless they are rescheduled.
#[derive(Debug, Default)]
pub(crate) struct Batcher {
    open: SortedMap<Scope, SortedMap<Key, Open>>,
    /// One for each open batch.
    deadlines: SortedSet<Deadline>,
}

impl Batcher {
    /// The number of open batches.
    pub(crate) fn len(&self) -> usize {
        self.deadlines.len()
    }

    /// The number of rows in open batches, and when the next one closes.
    pub(crate) fn open_rows(&self) -> (usize, Option<Timestamp>) {
        let groups = self.open.iter().flat_map(|(_, groups)| groups.iter());
        let rows = groups.map(|(_, open)| open.rows.len()).sum();
        (rows, self.deadlines.iter().next().map(|first| first.ends_at))
    }

    /// Adds `row` to the batch of its scope and group; returns the batch that this closes, if any,
    /// and the rows that it does not keep.
    ///
    /// Shape: the batch that is now full; the row alone if nothing collects; or, if
    /// [`BATCHES_OPEN_MAX`] are open, the one with the next deadline.
    pub(crate) fn push(
        &mut self,
        timing: Timing<'_>,
        scope: &Scope,
        group: &[u8],
        row: Row,
        now: Timestamp,
    ) -> (Option<Batch>, Vec<Row>) {
        if !timing.collects(now) {
            return (Some(Batch::alone(scope.clone(), row, now)), Vec::new());
        }
        let Some(open) = self.open.get_mut(scope).and_then(|groups| groups.get_mut(group)) else {
            return (self.open(timing, scope, Key::from(group), row, now), Vec::new());
        };
        open.rows.push(row);
        open.newest_at = now;
        if timing.is_by_time(now) {
            return (None, open.end_oldest());
        }
        let size_max = usize::try_from(timing.rule.max_size.get()).unwrap_or(usize::MAX);
        let is_full = open.rows.len() >= size_max;
        let deadline = (is_full || timing.restarts_window()).then(|| open.deadline(scope));
        match deadline {
            Some(deadline) if is_full => (self.take(deadline, now), Vec::new()),
            Some(deadline) => {
                self.restart(timing, deadline, now);
                (None, Vec::new())
            }
            None => (None, Vec::new()),
        }
    }

    /// Counts a repeat of the event `of` on its row, and makes the row show `newest` if given.
    /// Returns false if no open batch of `scope` has the row.
    pub(crate) fn repeat(
        &mut self,
        timing: Timing<'_>,
        scope: &Scope,
        of: Seq,
        newest: Option<&Arc<Event>>,
        now: Timestamp,
    ) -> bool {
        let open = self.open.get_mut(scope).into_iter().flat_map(SortedMap::values_mut).find_map(|open| {
            let index = open.rows.binary_search_by_key(&of, |row| row.seq).ok()?;
            let row = open.rows.get_mut(index)?;
            row.repeats = row.repeats.saturating_add(1);
            if let Some(newest) = newest {
                row.event = Arc::clone(newest);
            }
            Some(open.deadline(scope))
        });
        let is_found = open.is_some();
        if let Some(deadline) = open {
            self.restart(timing, deadline, now);
        }
        is_found
    }

    /// Gives each open batch the deadline that it would have had by this rule, but none before `now`.
    pub(crate) fn reschedule(&mut self, timing: Timing<'_>, now: Timestamp) {
        self.deadlines = SortedSet::default();
        for (scope, open) in self
            .open
            .iter_mut()
            .flat_map(|(scope, groups)| groups.values_mut().map(move |open| (scope, open)))
        {
            let begins_at = if timing.restarts_window() { open.newest_at } else { open.opened_at };
            let (ends_at, held) = timing.ending(open.opened_at, begins_at);
            let was_held = open.held.filter(|held| held.due_at < now);
            (open.ends_at, open.held) = (ends_at.max(now), held.or(was_held));
            self.deadlines.insert(open.deadline(scope));
        }
    }

    /// When the next batch closes.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|deadline| deadline.ends_at)
    }

    /// Takes the batch that closed first, if one has closed at `now`. Call it until `None`.
    pub(crate) fn due(&mut self, now: Timestamp) -> Option<Batch> {
        let deadline = self.deadlines.first().filter(|first| first.ends_at <= now)?.clone();
        let closed_at = deadline.ends_at;
        self.take(deadline, closed_at)
    }

    /// Closes the open batch of a scope and a group.
    pub(crate) fn close_group(&mut self, scope: &Scope, group: &[u8], now: Timestamp) -> Option<Batch> {
        let deadline = self.open.get(scope)?.get(group)?.deadline(scope);
        self.take(deadline, now)
    }

    /// Closes the batches of the wanted scopes, in order of their deadlines.
    pub(crate) fn close(&mut self, wanted: &dyn Fn(&Scope) -> bool, now: Timestamp) -> Vec<Batch> {
        self.close_that(|scope, _| wanted(scope), now)
    }

    /// Takes the rows selected by `is_wanted` out of the batches whose scope is covered by `scope`,
    /// in batch order. Batches without rows are removed.
    pub(crate) fn withdraw(&mut self, scope: &Scope, is_wanted: &mut dyn FnMut(&Row) -> bool) -> Vec<Row> {
        let (mut taken, mut empty) = (Vec::new(), Vec::new());
        for (own, groups) in self.open.iter_mut().filter(|(own, _)| scope.covers(own)) {
            for open in groups.values_mut() {
                taken.extend(open.rows.extract_if(.., |row| is_wanted(row)));
                if open.rows.is_empty() {
                    empty.push(open.deadline(own));
                }
            }
        }
        for deadline in empty {
            let closed_at = deadline.ends_at;
            self.take(deadline, closed_at);
        }
        taken
    }

    /// Closes the batches whose scope and rows are wanted, in order of their deadlines.
    pub(crate) fn close_that(
        &mut self,
        mut is_wanted: impl FnMut(&Scope, &[Row]) -> bool,
        now: Timestamp,
    ) -> Vec<Batch> {
        let rows_of = |open: &Deadline| self.open.get(&open.scope)?.get(&open.group).map(|open| &*open.rows);
        let wanted: Vec<_> = self
            .deadlines
            .iter()
            .filter(|open| rows_of(open).is_some_and(|rows| is_wanted(&open.scope, rows)))
            .cloned()
            .collect();
        wanted.into_iter().filter_map(|deadline| self.take(deadline, now)).collect()
    }

    /// The row of an event, the number of rows in its batch, and when that closes.
    pub(crate) fn find(&self, seq: Seq) -> Option<(&Row, usize, Timestamp)> {
        self.open.values().flat_map(SortedMap::values).find_map(|open| {
            let row = open.rows.iter().find(|row| row.seq == seq)?;
            Some((row, open.rows.len(), open.ends_at))
        })
    }

    /// The waiting rows, in batch order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row> {
        self.open.values().flat_map(SortedMap::values).flat_map(|open| &open.rows)
    }

    fn open(
        &mut self,
        timing: Timing<'_>,
        scope: &Scope,
        group: Key,
        row: Row,
        now: Timestamp,
    ) -> Option<Batch> {
        let is_full = self.deadlines.len() >= BATCHES_OPEN_MAX;
        let forced = self.deadlines.first().filter(|_| is_full).cloned();
        let forced = forced.and_then(|deadline| self.take(deadline, now));
        let mut rows = Vec::with_capacity(
            usize::try_from(timing.rule.max_size.get()).map_or(ROWS_AT_FIRST, |max| max.min(ROWS_AT_FIRST)),
        );
        rows.push(row);
        let (ends_at, held) = timing.ending(now, now);
        let open = Open { group, rows, opened_at: now, ends_at, newest_at: now, omitted: 0, held };
        self.deadlines.insert(open.deadline(scope));
        self.open.get_or_default(scope.clone()).insert(Key::clone(&open.group), open);
        forced
    }

    /// Restarts the window of an open batch if the mode requires it.
    fn restart(&mut self, timing: Timing<'_>, mut deadline: Deadline, now: Timestamp) {
        if !timing.restarts_window() {
            return;
        }
        self.deadlines.remove(&deadline);
        let groups = self.open.get_mut(&deadline.scope);
        if let Some(open) = groups.and_then(|groups| groups.get_mut(&deadline.group)) {
            (open.ends_at, open.held) = timing.ending(open.opened_at, now);
            deadline.ends_at = open.ends_at;
            self.deadlines.insert(deadline);
        }
    }

    fn take(&mut self, deadline: Deadline, closed_at: Timestamp) -> Option<Batch> {
        self.deadlines.remove(&deadline);
        let groups = self.open.get_mut(&deadline.scope)?;
        let open = groups.remove(&deadline.group)?;
        if groups.is_empty() {
            self.open.remove(&deadline.scope);
        }
        let Open { rows, newest_at, omitted, held, .. } = open;
        let held_since = held.filter(|held| held.due_at < closed_at).map(|held| held.since);
        Some(Batch { scope: deadline.scope, rows, closed_at, newest_at, omitted, held_since })
    }
}

/// The batches in a snapshot; their deadlines are recomputed.
#[derive(Serialize, Deserialize)]
struct BatcherState<B> {
    open: B,
}

impl Serialize for Batcher {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Self { open, deadlines: _ } = self;
        let batches = open.iter().flat_map(|(scope, groups)| groups.values().map(move |open| (scope, open)));
        BatcherState { open: batches.collect::<Vec<_>>() }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Batcher {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut batcher = Self::default();
        for (scope, open) in <BatcherState<Vec<(Scope, Open)>>>::deserialize(from)?.open {
            batcher.deadlines.insert(open.deadline(&scope));
            batcher.open.get_or_default(scope).insert(Key::clone(&open.group), open);
        }
        Ok(batcher)
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroU32, time::Duration};

    use journal::time::{hours::Hours, zone::Zone};

    use super::*;
    use crate::{
        event::{Payload, SessionId},
        pipeline::rule::{BatchMode, Batching, DigestTimes},
    };

    const WINDOW_MS: u64 = 2_000;

    fn rule(max_size: u32, mode: BatchMode) -> Batching {
        Batching {
            window: Duration::from_millis(WINDOW_MS),
            max_size: NonZeroU32::new(max_size).expect("not zero"),
            mode,
            group_by: Vec::new(),
        }
    }

    fn row(seq: u64, severity: Severity) -> Row {
        let event = Event {
            id: "e".into(),
            event_type: "tool.call.failure".parse().expect("valid type"),
            source: "s".into(),
            provenance: crate::event::Provenance::Harness,
            severity,
            timestamp: Timestamp::ZERO,
            payload: Payload::from_valid("{}"),
            dedupe_key: None,
            session: None,
            workspace: None,
            cause: None,
            deliver_after: None,
        };
        Row { seq: Seq(seq), event: Arc::new(event), repeats: 1, threshold: None, suppressed: None }
    }

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn session(id: &str) -> Scope {
        Scope::Session(SessionId::new(id))
    }

    /// The close time, and the rows with their repeats.
    fn shape(batch: Option<Batch>) -> Option<(u64, Vec<(u64, u32)>)> {
        batch.map(|batch| {
            let rows = batch.rows.iter().map(|row| (row.seq.0, row.repeats)).collect();
            (batch.closed_at.as_millis(), rows)
        })
    }

    struct Case {
        rule: Batching,
        quiet: Hours,
        batcher: Batcher,
    }

    impl Case {
        fn new(max_size: u32, mode: BatchMode) -> Self {
            Self { rule: rule(max_size, mode), quiet: Hours::default(), batcher: Batcher::default() }
        }

        fn push(&mut self, scope: &Scope, group: &str, seq: u64, ms: u64) -> Option<(u64, Vec<(u64, u32)>)> {
            let row = row(seq, Severity::Info);
            let timing = Timing { rule: &self.rule, quiet: &self.quiet, zone: &Zone::default() };
            shape(self.batcher.push(timing, scope, group.as_bytes(), row, at(ms)).0)
        }

        fn due(&mut self, ms: u64) -> Option<(u64, Vec<(u64, u32)>)> {
            shape(self.batcher.due(at(ms)))
        }
    }

    #[test]
    fn late_poll_closes_a_batch_at_its_deadline() {
        let mut case = Case::new(10, BatchMode::Window);
        assert_eq!(case.push(&Scope::All, "", 1, 100), None);
        assert_eq!(case.push(&Scope::All, "", 2, 1_500), None);
        assert_eq!(case.batcher.poll_timeout(), Some(at(2_100)));
        assert_eq!(case.due(2_099), None);
        assert_eq!(case.due(9_000), Some((2_100, vec![(1, 1), (2, 1)])));
        assert_eq!((case.due(9_000), case.batcher.poll_timeout()), (None, None));
    }

    #[test]
    fn a_full_batch_closes_at_once() {
        let mut case = Case::new(2, BatchMode::Window);
        assert_eq!(case.push(&Scope::All, "", 1, 0), None);
        assert_eq!(case.push(&Scope::All, "", 2, 10), Some((10, vec![(1, 1), (2, 1)])));
        assert_eq!(case.push(&Scope::All, "", 3, 20), None);
        assert_eq!(case.due(2_020), Some((2_020, vec![(3, 1)])));
    }

    #[test]
    fn a_rule_that_collects_nothing_opens_no_batch() {
        let mut case = Case::new(1, BatchMode::Window);
        assert_eq!(case.push(&Scope::All, "", 1, 5), Some((5, vec![(1, 1)])));
        let mut case = Case::new(10, BatchMode::Window);
        case.rule.window = Duration::ZERO;
        assert_eq!(case.push(&Scope::All, "", 1, 5), Some((5, vec![(1, 1)])));
        assert_eq!(case.batcher.poll_timeout(), None);
    }

    #[test]
    fn debounce_waits_for_quiet_up_to_max_wait() {
        let mut case = Case::new(100, BatchMode::Debounce { max_wait: Duration::from_millis(5_000) });
        for (seq, ms, ends_at) in [(1, 0, 2_000), (2, 1_500, 3_500), (3, 3_400, 5_000), (4, 4_900, 5_000)] {
            assert_eq!(case.push(&Scope::All, "", seq, ms), None);
            assert_eq!(case.batcher.poll_timeout(), Some(at(ends_at)), "after {seq}");
        }
        assert_eq!(case.due(5_000), Some((5_000, vec![(1, 1), (2, 1), (3, 1), (4, 1)])));
    }

    #[test]
    fn a_digest_closes_by_time_with_newest_rows() {
        let every = Duration::from_millis(60_000);
        let mut case = Case::new(2, BatchMode::Digest(DigestTimes::Every(every)));
        let rows = u64::try_from(ROWS_KEPT_MAX).expect("small") + 5;
        for seq in 0..rows {
            assert_eq!(case.push(&Scope::All, "", seq, seq), None);
        }
        let batch = case.batcher.due(at(90_000)).expect("it is due");
        assert_eq!((batch.closed_at, batch.rows.len(), batch.omitted), (at(60_000), ROWS_KEPT_MAX, 5));
        assert_eq!(batch.rows[0].seq, Seq(5));
    }

    #[test]
    fn quiet_hours_keep_a_batch_open() {
        let mut case = Case::new(2, BatchMode::Window);
        case.quiet = "00:01-00:05".parse().expect("hours");
        assert_eq!(case.push(&Scope::All, "", 1, 59_000), None);
        for seq in 2..9 {
            assert_eq!(case.push(&Scope::All, "", seq, 60_000 + seq), None);
        }
        assert_eq!(case.batcher.poll_timeout(), Some(at(300_000)));
        assert_eq!(case.due(400_000).map(|(ms, rows)| (ms, rows.len())), Some((300_000, 8)));
        case.rule.window = Duration::ZERO;
        assert_eq!(case.push(&Scope::All, "", 9, 300_000), Some((300_000, vec![(9, 1)])));
    }

    #[test]
    fn a_repeat_counts_and_restarts_the_debounce_window() {
        let mut case = Case::new(100, BatchMode::Debounce { max_wait: Duration::from_millis(5_000) });
        case.push(&Scope::All, "a", 1, 0);
        case.push(&Scope::All, "b", 2, 100);
        let repeat = |case: &mut Case, scope: &Scope, of, ms| {
            let timing = Timing { rule: &case.rule, quiet: &case.quiet, zone: &Zone::default() };
            case.batcher.repeat(timing, scope, Seq(of), None, at(ms))
        };
        assert!(repeat(&mut case, &Scope::All, 1, 1_000));
        assert!(repeat(&mut case, &Scope::All, 1, 1_100));
        assert!(!repeat(&mut case, &Scope::All, 3, 1_200));
        assert!(!repeat(&mut case, &session("s"), 1, 1_200));
        assert_eq!(case.due(9_000), Some((2_100, vec![(2, 1)])));
        assert_eq!(case.due(9_000), Some((3_100, vec![(1, 3)])));
    }

    #[test]
    fn groups_and_scopes_have_separate_batches() {
        let mut case = Case::new(10, BatchMode::Window);
        let (one, other) = (session("s1"), session("s2"));
        for (seq, scope, group, ms) in
            [(1, &other, "a", 0), (2, &one, "b", 0), (3, &one, "a", 0), (4, &one, "", 1), (5, &other, "a", 1)]
        {
            assert_eq!(case.push(scope, group, seq, ms), None);
        }
        let closed: Vec<_> = std::iter::from_fn(|| case.due(9_000)).collect();
        let expected = [(2_000, vec![3]), (2_000, vec![2]), (2_000, vec![1, 5]), (2_001, vec![4])];
        let expected = expected.map(|(ms, rows)| (ms, rows.into_iter().map(|seq| (seq, 1)).collect()));
        assert_eq!(closed, expected);
    }

    #[test]
    fn closing_a_scope_leaves_other_batches_open() {
        let mut case = Case::new(10, BatchMode::Window);
        let (one, other) = (session("s1"), session("s2"));
        case.push(&one, "b", 1, 0);
        case.push(&other, "", 2, 100);
        case.push(&one, "a", 3, 200);
        let closed = case.batcher.close(&|scope| *scope == one, at(300));
        let closed: Vec<_> = closed.into_iter().map(|batch| shape(Some(batch))).collect();
        assert_eq!(closed, [Some((300, vec![(1, 1)])), Some((300, vec![(3, 1)]))]);
        assert_eq!(case.batcher.poll_timeout(), Some(at(2_100)));
    }

    #[test]
    fn too_many_batches_close_the_earliest_due_batch() {
        let mut case = Case::new(10, BatchMode::Window);
        for id in 0..BATCHES_OPEN_MAX {
            let seq = u64::try_from(id).expect("small");
            assert_eq!(case.push(&session(&id.to_string()), "", seq, seq), None);
        }
        assert_eq!(case.push(&session("new"), "", 900, 500), Some((500, vec![(0, 1)])));
        assert_eq!(case.push(&session("1"), "", 901, 501), None);
        assert_eq!(case.batcher.deadlines.len(), BATCHES_OPEN_MAX);
    }

    #[test]
    fn a_batch_takes_worst_severity_and_counts_repeats() {
        let rows = vec![row(1, Severity::Warning), row(2, Severity::Error), row(3, Severity::Info)];
        let mut batch = Batch {
            scope: Scope::All,
            rows,
            closed_at: at(0),
            newest_at: at(0),
            omitted: 0,
            held_since: None,
        };
        batch.rows[0].repeats = 4;
        assert_eq!((batch.severity(), batch.event_count()), (Severity::Error, 6));
    }
}
