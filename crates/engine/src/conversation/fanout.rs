//! Broadcasts: notifications for so many sessions that queueing them all at once would delay the
//! next input.
//!
//! A broadcast is kept once, in a log. A session takes its pending broadcasts before any other use
//! of its queue, so every decision about it is the same as if they had been queued at once. The
//! other sessions take theirs in slices: while some are pending the engine requests ticks, and each
//! tick does a fixed amount of that work. The schedule depends on the inputs alone, so a replay
//! repeats it.

use std::{collections::VecDeque, sync::Arc};

use serde::{Deserialize, Serialize};

use super::session::SessionKey;
use journal::time::Timestamp;

use crate::{
    notification::{Notification, NotificationId, Resolution},
    snapshot,
};

/// Most sessions that get a notification at once; one for more is a broadcast. An event for so many
/// costs some 10 microseconds more than one for a single session.
pub const DIRECT_MAX: usize = 8;
/// Number of notifications that sessions take in a tick: one to two milliseconds, the longest that
/// an exchange waits for it. The last session of a tick still takes all of its pending ones.
pub const TAKEN_PER_TICK: usize = 1_024;
/// With this many broadcasts in the log, each input does as much work as a broadcast adds, so the
/// log stops growing. With many sessions, publishing waits before that
/// ([`super::Sessions::untaken`]); with few, the work is small.
pub const LOG_MAX: usize = 4_000;

/// The broadcasts that some session may not have taken.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Fanout {
    /// The number of the first broadcast in the log.
    first: u64,
    #[serde(with = "snapshot::shared::list")]
    log: VecDeque<Arc<Notification>>,
    /// The session that is woken for a broadcast, by its number in ascending order; only of those
    /// that wake one.
    woken: VecDeque<(u64, SessionKey)>,
    sweep: Option<Sweep>,
    /// The time of the last input.
    handled_at: Timestamp,
}

/// One pass over the sessions, oldest first.
#[derive(Debug, Serialize, Deserialize)]
struct Sweep {
    /// The last session visited.
    last: SessionKey,
    /// When the pass ends, all sessions have taken the broadcasts before this number.
    until: u64,
}

impl Fanout {
    /// The number of the next broadcast; a session that opens counts as having taken all before it.
    pub(super) fn head(&self) -> u64 {
        self.first + self.log.len() as u64
    }

    /// Whether a notification is in the log.
    pub(super) fn contains(&self, id: &NotificationId) -> bool {
        self.any(|notification| notification.id == *id)
    }

    /// Whether one that `is_wanted` selects is in the log.
    pub(super) fn any(&self, is_wanted: impl Fn(&Notification) -> bool) -> bool {
        self.log.iter().any(|notification| is_wanted(notification))
    }

    /// Applies a resolution to the conditions in the log.
    ///
    /// Shape: returns the notifications without a condition, and whether some sessions have to take
    /// others unchanged.
    pub(super) fn resolve(&mut self, resolution: &Resolution) -> (Vec<NotificationId>, bool) {
        let (mut ended, mut is_for_others) = (Vec::new(), false);
        for notification in self.log.iter_mut() {
            let Some(left) = resolution.applied_to(notification) else { continue };
            if !resolution.scope.covers(&notification.scope) {
                is_for_others |= resolution.scope.meets(&notification.scope);
                continue;
            }
            if left.is_resolved() {
                ended.push(left.id);
            }
            *notification = left;
        }
        (ended, is_for_others)
    }

    /// When sessions have to take more.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        (!self.log.is_empty()).then_some(self.handled_at)
    }

    /// Adds a broadcast, for which the session `woken` is woken.
    pub(super) fn push(&mut self, notification: Arc<Notification>, woken: Option<SessionKey>) {
        if let Some(woken) = woken {
            self.woken.push_back((self.head(), woken));
        }
        self.log.push_back(notification);
    }

    /// The session that is woken for the broadcast of this number.
    pub(super) fn woken_for(&self, number: u64) -> Option<SessionKey> {
        let at = self.woken.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.woken.get(at).map(|(_, woken)| *woken)
    }

    /// Whether sessions have nothing to take.
    pub(super) fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Number of broadcasts in the log.
    pub(super) fn len(&self) -> usize {
        self.log.len()
    }

    /// Whether the log is so long that each input has to shorten it.
    pub(super) fn is_over_full(&self) -> bool {
        self.log.len() > LOG_MAX
    }

    /// Notes the time of an input.
    pub(super) fn note_handled(&mut self, now: Timestamp) {
        self.handled_at = now;
    }

    /// The last session that the current pass visited; a new pass begins if there is none.
    pub(super) fn last_visited(&mut self) -> SessionKey {
        let until = self.head();
        self.sweep.get_or_insert(Sweep { last: SessionKey::default(), until }).last
    }

    /// Notes the session that the pass visits next. `None`: it has visited all, so the broadcasts
    /// that all have taken leave the log.
    pub(super) fn advance_to(&mut self, next: Option<SessionKey>) {
        match (next, &mut self.sweep) {
            (Some(next), Some(sweep)) => sweep.last = next,
            (None, Some(sweep)) => {
                let taken_by_all = usize::try_from(sweep.until - self.first).unwrap_or(usize::MAX);
                self.log.drain(..taken_by_all);
                self.first = sweep.until;
                let first_kept = self.woken.partition_point(|(number, _)| *number < self.first);
                self.woken.drain(..first_kept);
                self.sweep = None;
            }
            (_, None) => {}
        }
    }

    /// The pending broadcasts of a session that has taken those before `taken`, with their numbers.
    pub(super) fn pending_after(&self, taken: u64) -> impl Iterator<Item = (u64, &Arc<Notification>)> {
        let skipped = taken.saturating_sub(self.first);
        (self.first..).zip(&self.log).skip(usize::try_from(skipped).unwrap_or(usize::MAX))
    }
}
