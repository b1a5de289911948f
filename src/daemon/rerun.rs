//! Feeds the journal of a state folder through two engines: *then*, with the rules of each time and the
//! recorded releases, as a recovery does; and *now*, with the rules of a folder and new decisions.
//!
//! Nothing is delivered, published, run or written, and the journal is not locked. Each engine has a
//! thread and a reader of its own. They hand over their facts batch by batch, so that neither is more
//! than some batches ahead and memory stays bounded. *Now* follows *then*, from which it learns which
//! exchanges an earlier process did not answer before it ended.

mod extent;
mod now;
mod span;
mod then;

use std::{
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use journal::{ReadOnly, files::DirFiles, time::Timestamp};

pub use self::extent::{Extent, LostRules, RerunError, Stopped};
use self::{
    now::{Now, Rules},
    span::{Part, Span},
    then::Then,
};
use super::{
    fold::Fold,
    maintenance::files_for_reading,
    rules::RulesStore,
    skipped::Skipped,
    snapshots::{FOLDER as SNAPSHOTS, Snapshots},
};
use crate::{
    comparison::{Comparison, Outcome, Side},
    config::layers::Sources,
};

/// Most batches of facts that one engine is ahead of the comparison; then it waits.
const BATCHES_AHEAD_MAX: usize = 4;
/// Most batches of which *now* has not heard yet what *then* did not answer. It hears of each before it
/// begins it, and the comparison takes parts in turns, so fewer than this are under way.
const PROGRESS_MAX: usize = 4 * BATCHES_AHEAD_MAX;

/// What is replayed.
#[derive(Debug)]
pub struct Request<'a> {
    /// The state folder.
    pub state: &'a Path,
    /// The files of *now*, without those of workspaces: these are of each time.
    pub sources: Sources,
    /// The subscribers whose rules are those of `sources`; the others keep their own. Empty: all.
    pub subscribers: &'a [String],
    /// Where the counting begins; `None` for the journal's beginning.
    pub since: Option<Timestamp>,
    /// Where the replay ends; `None` for the last record.
    pub until: Option<Timestamp>,
}

/// Replays and compares.
///
/// Errors: the journal cannot be read up to its end. Damage of records before the snapshot that is
/// used is not seen.
pub fn rerun(request: &Request<'_>) -> Result<(Outcome, Extent), RerunError> {
    let journal = ReadOnly::open(Arc::new(files_for_reading(request.state)?))?;
    let rules = RulesStore::new(request.state);
    let skipped = Skipped::look_up(request.state, &journal)?;
    let since = request.since.unwrap_or(Timestamp::ZERO);
    let span = Span { state: request.state, journal: &journal, skipped, since, until: request.until };
    let start = || -> Result<Option<Fold>, RerunError> {
        let Some(since) = request.since else { return Ok(None) };
        Ok(snapshots(request.state)?.and_then(|kept| kept.load_as_of(since, &journal, &rules)))
    };
    let (then_start, now_start) = (start()?, start()?);
    let snapshot = then_start.as_ref().map(|fold| fold.applied);
    let then = Then::new(then_start.unwrap_or_else(|| Fold::new(rules.clone())), &span);
    let tried = Rules::new(request.sources.clone(), request.subscribers.to_vec(), rules.clone());
    let now = Now::new(now_start.unwrap_or_else(|| Fold::new(rules)), tried, &span);
    let mut comparison = Comparison::since(since);
    let (mut events, mut exchanges) = (0, 0);
    let (then, now) = thread::scope(|scope| {
        let (then_sender, then_parts) = sync_channel(BATCHES_AHEAD_MAX);
        let (now_sender, now_parts) = sync_channel(BATCHES_AHEAD_MAX);
        // Each sender ends with its thread, and so do the parts.
        let span = &span;
        let (progress_sender, progress) = sync_channel(PROGRESS_MAX);
        let then = scope.spawn(move || then.run(span, &then_sender, progress_sender));
        let now = scope.spawn(move || now.run(span, &now_sender, progress));
        compare(&then_parts, &now_parts, |side, part| {
            events += part.events;
            exchanges += part.exchanges;
            part.facts.into_iter().for_each(|fact| comparison.take(side, fact));
        });
        (then.join(), now.join())
    });
    let then = then.map_err(|_| RerunError::Failed)??;
    let now = now.map_err(|_| RerunError::Failed)??;
    let extent = Extent {
        first: journal.first(),
        snapshot,
        begins_at: then.begins_at,
        last: then.last,
        last_at: then.last_at,
        events,
        exchanges,
        lost: then.lost,
        stopped: now.stopped,
    };
    Ok((comparison.finish(), extent))
}

/// Takes the parts of both sides in turns until both have ended.
fn compare(then: &Receiver<Part>, now: &Receiver<Part>, mut take: impl FnMut(Side, Part)) {
    let mut open = [(Side::Then, Some(then)), (Side::Now, Some(now))];
    while open.iter().any(|(_, parts)| parts.is_some()) {
        for (side, parts) in &mut open {
            match parts.map(Receiver::recv) {
                Some(Ok(part)) => take(*side, part),
                Some(Err(_)) => *parts = None,
                None => {}
            }
        }
    }
}

/// The snapshots of `state`; `None` if it has none.
fn snapshots(state: &Path) -> Result<Option<Snapshots>, RerunError> {
    let path = state.join(SNAPSHOTS);
    if !path.is_dir() {
        return Ok(None);
    }
    let opened = DirFiles::for_reading(&path).and_then(|files| Snapshots::open(Arc::new(files)));
    opened.map(Some).map_err(|source| RerunError::Snapshots { path, source })
}
