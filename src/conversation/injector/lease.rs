//! Leases of unconfirmed injections, and the answers kept for carriers.
//!
//! A lease is confirmed, called back because its carrier was gone, or expires; the injector decides
//! what happens to its notifications. Answers are kept so that a repeated request with the same
//! carrier gets the same bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use crate::{
    exchange::{Answer, Exchange, InjectionId},
    notification::{InjectionPoint, NotificationId, Resolution, SubscriberId},
    time::Timestamp,
};

use super::entry::Entry;

/// How long after a release an exchange at the same point and turn counts as a parallel one, which
/// proves nothing: the deadline after which a hook gives up waiting for an answer.
pub const PARALLEL_MS: u64 = 150;
/// Most carriers whose answers a session keeps for a repeated request; the oldest is evicted first.
pub const CARRIERS_MAX: usize = 64;

/// Most open leases of a session; beyond it the oldest expires. As many as answers are kept: a
/// harness that confirms nothing for so many carriers does not return to the first.
pub(super) const LEASES_MAX: usize = CARRIERS_MAX;

/// An unconfirmed injection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) injection: InjectionId,
    pub(super) point: InjectionPoint,
    pub(super) carrier: Arc<str>,
    pub(super) turn: Option<Arc<str>>,
    pub(super) released_at: Timestamp,
    pub(super) expires_at: Timestamp,
    /// Number of answers with it that are not known to be lost.
    pub(super) answers: u32,
    pub(super) entries: Vec<Entry>,
    /// Number of evicted events of each subscriber that its text reports.
    pub(super) evicted: BTreeMap<SubscriberId, u32>,
}

impl Lease {
    /// Whether `exchange` proves that this injection arrived.
    fn is_confirmed_by(&self, exchange: &Exchange, now: Timestamp) -> bool {
        let is_other_turn = matches!((&self.turn, &exchange.turn), (Some(own), Some(other)) if own != other);
        let is_parallel =
            self.point == exchange.point && now.since(self.released_at) <= Duration::from_millis(PARALLEL_MS);
        let is_same_message = self.carrier == exchange.carrier && self.point == exchange.point;
        !is_same_message && !is_other_turn && !is_parallel
    }
}

/// The open leases of one session, oldest first.
///
/// Shape: every push reads which notifications are leased and when the next lease expires, so both
/// are indexed; only closing a lease scans them.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "LeasesState")]
pub(super) struct Leases {
    open: Vec<Lease>,
    /// The notifications in `open`; never iterated.
    #[serde(skip)]
    held: HashSet<NotificationId>,
    /// The earliest expiry in `open`.
    #[serde(skip)]
    ends_at: Option<Timestamp>,
}

impl Leases {
    pub(super) fn open(&mut self, lease: Lease) {
        self.held.extend(lease.entries.iter().map(|entry| entry.notification.id));
        self.ends_at = Some(self.ends_at.map_or(lease.expires_at, |at| at.min(lease.expires_at)));
        self.open.push(lease);
    }

    /// Closes the lease of `injection`.
    pub(super) fn take(&mut self, injection: &InjectionId) -> Option<Lease> {
        let index = self.open.iter().position(|lease| lease.injection == *injection)?;
        let lease = self.open.remove(index);
        self.note_closed(std::slice::from_ref(&lease));
        Some(lease)
    }

    /// Closes the oldest lease when there are more than [`LEASES_MAX`].
    pub(super) fn take_overflow(&mut self) -> Option<Lease> {
        let oldest = (self.open.len() > LEASES_MAX).then(|| self.open.remove(0))?;
        self.note_closed(std::slice::from_ref(&oldest));
        Some(oldest)
    }

    /// Notes that one more answer holds `injection`.
    pub(super) fn answered_again(&mut self, injection: &InjectionId) {
        if let Some(lease) = self.open.iter_mut().find(|lease| lease.injection == *injection) {
            lease.answers = lease.answers.saturating_add(1);
        }
    }

    /// Notes that an answer with `injection` was lost, and closes its lease if that was the last
    /// one.
    pub(super) fn take_undelivered(&mut self, injection: &InjectionId) -> Option<Lease> {
        let lease = self.open.iter_mut().find(|lease| lease.injection == *injection)?;
        lease.answers = lease.answers.saturating_sub(1);
        if lease.answers > 0 {
            return None;
        }
        self.take(injection)
    }

    /// Closes the leases that `exchange` proves to have arrived, except that of `unread`, which is
    /// known not to have been read before it.
    pub(super) fn take_confirmed(
        &mut self,
        exchange: &Exchange,
        unread: Option<&InjectionId>,
        now: Timestamp,
    ) -> Vec<Lease> {
        self.take_all_that(|lease| Some(&lease.injection) != unread && lease.is_confirmed_by(exchange, now))
    }

    /// Closes the expired leases.
    pub(super) fn take_expired(&mut self, now: Timestamp) -> Vec<Lease> {
        if self.ends_at.is_none_or(|at| at > now) {
            return Vec::new();
        }
        self.take_all_that(|lease| lease.expires_at <= now)
    }

    /// Takes the entries that `is_wanted` selects out of the leases, each with its injection,
    /// oldest first; an empty lease closes.
    pub(super) fn take_entries(&mut self, is_wanted: impl Fn(&Entry) -> bool) -> Vec<(InjectionId, Entry)> {
        let mut taken = Vec::new();
        for lease in &mut self.open {
            let wanted = lease.entries.extract_if(.., |entry| is_wanted(entry));
            taken.extend(wanted.map(|entry| (lease.injection, entry)));
        }
        for (_, entry) in &taken {
            self.held.remove(&entry.notification.id);
        }
        self.take_all_that(|lease| lease.entries.is_empty());
        taken
    }

    /// Applies a resolution to the conditions in the leases.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        for entry in self.open.iter_mut().flat_map(|lease| &mut lease.entries) {
            if let Some(left) = resolution.applied_to(&entry.notification) {
                entry.notification = left;
            }
        }
    }

    /// Closes all leases.
    pub(super) fn take_all(&mut self) -> Vec<Lease> {
        std::mem::take(self).open
    }

    pub(super) fn contains(&self, id: &NotificationId) -> bool {
        self.held.contains(id)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &Lease> {
        self.open.iter()
    }

    /// When the next lease expires.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.ends_at
    }

    fn take_all_that(&mut self, is_wanted: impl Fn(&Lease) -> bool) -> Vec<Lease> {
        let closed: Vec<Lease> = self.open.extract_if(.., |lease| is_wanted(lease)).collect();
        self.note_closed(&closed);
        closed
    }

    fn note_closed(&mut self, closed: &[Lease]) {
        for entry in closed.iter().flat_map(|lease| &lease.entries) {
            self.held.remove(&entry.notification.id);
        }
        if closed.iter().any(|lease| Some(lease.expires_at) == self.ends_at) {
            self.ends_at = self.open.iter().map(|lease| lease.expires_at).min();
        }
    }
}

/// Repetitions after which a carrier counts as one that never changes, if they take at least
/// [`TIME_OF_A_FIXED_CARRIER`]. A harness that retries because an answer was lost does so a few
/// times within seconds.
pub const REPEATS_OF_A_FIXED_CARRIER: u32 = 10;
/// See [`REPEATS_OF_A_FIXED_CARRIER`].
pub const TIME_OF_A_FIXED_CARRIER: Duration = Duration::from_secs(60);

/// An answer, and the message it is kept for.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    carrier: Arc<str>,
    /// `None` in the state of an older program; then the carrier alone decides.
    #[serde(default)]
    point: Option<InjectionPoint>,
    #[serde(default)]
    turn: Option<Arc<str>>,
    #[serde(default)]
    answered_at: Timestamp,
    /// `None` in the state of an older program, which kept it without limit.
    #[serde(default)]
    kept_until: Option<Timestamp>,
    #[serde(default)]
    repeats: u32,
    #[serde(default)]
    has_shown_fixed_carrier: bool,
    answer: Answer,
}

impl Kept {
    /// Whether `exchange` is a repetition of the answered message.
    fn is_for(&self, exchange: &Exchange, now: Timestamp) -> bool {
        let is_other_turn = matches!((&self.turn, &exchange.turn), (Some(own), Some(other)) if own != other);
        let is_other_point = self.point.is_some_and(|point| point != exchange.point);
        let is_over = self.kept_until.is_some_and(|until| until <= now);
        self.carrier == exchange.carrier && !is_other_turn && !is_other_point && !is_over
    }
}

/// A repeated answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The answer.
    pub answer: Answer,
    /// Whether this repetition shows that the harness never changes its carrier; true once per
    /// answer.
    pub shows_fixed_carrier: bool,
}

/// The answers to the newest carriers.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "AnswersState")]
pub(super) struct Answers {
    newest_last: VecDeque<Kept>,
    /// Their carriers; never iterated. Most lookups find nothing.
    #[serde(skip)]
    carriers: HashSet<Arc<str>>,
}

impl Answers {
    /// The answer to the message of `exchange`; counts the repetition.
    pub(super) fn replay(&mut self, exchange: &Exchange, now: Timestamp) -> Option<Replayed> {
        if !self.carriers.contains(&exchange.carrier) {
            return None;
        }
        let kept = self.newest_last.iter_mut().find(|kept| kept.is_for(exchange, now))?;
        kept.repeats = kept.repeats.saturating_add(1);
        let is_fixed = kept.repeats >= REPEATS_OF_A_FIXED_CARRIER
            && now.since(kept.answered_at) > TIME_OF_A_FIXED_CARRIER;
        let shows_fixed_carrier = is_fixed && !std::mem::replace(&mut kept.has_shown_fixed_carrier, is_fixed);
        Some(Replayed { answer: kept.answer.clone(), shows_fixed_carrier })
    }

    /// Keeps the answer for the time of `lease`; beyond [`CARRIERS_MAX`] the oldest is evicted. The
    /// carrier's answer at another point, or in another turn, is removed too.
    pub(super) fn insert(&mut self, exchange: &Exchange, answer: Answer, lease: Duration, now: Timestamp) {
        let carrier = Arc::clone(&exchange.carrier);
        if !self.carriers.insert(Arc::clone(&carrier)) {
            self.newest_last.retain(|kept| kept.carrier != carrier);
        }
        self.newest_last.push_back(Kept {
            carrier,
            point: Some(exchange.point),
            turn: exchange.turn.clone(),
            answered_at: now,
            kept_until: Some(now + lease),
            repeats: 0,
            has_shown_fixed_carrier: false,
            answer,
        });
        if self.newest_last.len() > CARRIERS_MAX
            && let Some(oldest) = self.newest_last.pop_front()
        {
            self.carriers.remove(&oldest.carrier);
        }
    }

    /// Removes the answer with `injection`, so that its carrier gets a new one.
    pub(super) fn forget(&mut self, injection: &InjectionId) {
        let holds = |kept: &Kept| kept.answer.injection.as_ref().is_some_and(|own| own.id == *injection);
        if let Some(at) = self.newest_last.iter().position(holds)
            && let Some(kept) = self.newest_last.remove(at)
        {
            self.carriers.remove(&kept.carrier);
        }
    }
}

/// The snapshot form; the set of carriers is rebuilt.
#[derive(Deserialize)]
struct AnswersState {
    newest_last: VecDeque<Kept>,
}

impl From<AnswersState> for Answers {
    fn from(AnswersState { newest_last }: AnswersState) -> Self {
        let carriers = newest_last.iter().map(|kept| Arc::clone(&kept.carrier)).collect();
        Self { newest_last, carriers }
    }
}

/// The snapshot form; the indices are rebuilt.
#[derive(Deserialize)]
struct LeasesState {
    open: Vec<Lease>,
}

impl From<LeasesState> for Leases {
    fn from(LeasesState { open }: LeasesState) -> Self {
        let mut leases = Self::default();
        for lease in open {
            leases.open(lease);
        }
        leases
    }
}
