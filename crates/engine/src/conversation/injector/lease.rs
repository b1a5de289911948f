//! Leases of unconfirmed injections, and the answers kept for carriers.
//!
//! A lease is confirmed, called back because its carrier was gone, or expires; the injector decides
//! what happens to its notifications. Answers are kept so that a repeated request with the same
//! carrier gets the same bytes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use hashbrown::{HashMap, HashSet};
use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    conversation::ended::EndedRules,
    exchange::{Answer, Exchange, InjectionId},
    hold::Hold,
    ledger::ConfirmedBy,
    notification::{InjectionPoint, NotificationId, Resolution, SubscriberId},
    sorted::SortedMap,
};

use super::{
    entry::Entry,
    spent::Charge,
    turns::{Answered, Proof, StepPosition, Turns},
};

/// Most carriers whose answers a session keeps for a repeated request; the oldest is evicted first.
pub const CARRIERS_MAX: usize = 64;

/// How long exchanges of the session can renew a lease.
pub const RENEWED_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// Most open leases of a session; beyond it the oldest expires. As many as answers are kept: a
/// harness that confirms nothing for so many carriers does not return to the first.
pub(super) const LEASES_MAX: usize = CARRIERS_MAX;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Lease {
    pub(super) injection: InjectionId,
    pub(super) point: InjectionPoint,
    pub(super) carrier: Arc<str>,
    pub(super) turn: Option<Arc<str>>,
    /// The turn and step for which it counts.
    pub(super) place: StepPosition,
    /// It was released at the end of the turn, and no call of a tool came since.
    pub(super) is_at_end: bool,
    /// A wake route pushed it, so its client may hold it back.
    pub(super) is_pushed: bool,
    pub(super) released_at: Timestamp,
    /// How long it lasts without an exchange.
    pub(super) lasts: Duration,
    pub(super) expires_at: Timestamp,
    /// Number of answers with it that are not known to be lost.
    pub(super) answers: u32,
    pub(super) entries: Vec<Entry>,
    /// What it took of the budgets.
    #[serde(default)]
    pub(super) charge: Charge,
    /// Number of evicted events of each subscriber that its text reports.
    pub(super) evicted: SortedMap<SubscriberId, u32>,
}

impl Lease {
    /// How `proof` shows that it has arrived.
    fn proven_by(&self, proof: &Proof<'_>) -> Option<ConfirmedBy> {
        use InjectionPoint::{AfterTool, BeforeTool, TurnEnd};
        if self.is_pushed {
            return None;
        }
        if self.place.turn != proof.turn {
            return proof.ends_earlier.then_some(ConfirmedBy::Turn);
        }
        let point = proof.exchange.point;
        let is_end = point == TurnEnd && !self.is_at_end;
        // It was carried over from an earlier turn, and the model has answered in this one.
        let is_later = matches!(point, BeforeTool | AfterTool | TurnEnd)
            && matches!((&self.turn, &proof.exchange.turn), (Some(own), Some(turn)) if own != turn);
        if is_end || is_later {
            return Some(ConfirmedBy::Turn);
        }
        proof.step.is_some_and(|step| step > self.place.step).then_some(ConfirmedBy::Step)
    }

    /// Moves it to the present turn, as it has not arrived. What was released at an end that went
    /// on is followed by the calls of its continuation.
    fn carry_over(&mut self, proof: &Proof<'_>) {
        let is_call = matches!(proof.exchange.point, InjectionPoint::BeforeTool | InjectionPoint::AfterTool);
        if self.place.turn != proof.turn {
            (self.place, self.is_at_end) = (proof.place, false);
        } else if is_call {
            self.is_at_end = false;
        }
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
        self.note_closed(std::iter::once(&lease));
        Some(lease)
    }

    /// Closes the oldest lease when there are more than [`LEASES_MAX`].
    pub(super) fn take_overflow(&mut self) -> Option<Lease> {
        let oldest = (self.open.len() > LEASES_MAX).then(|| self.open.remove(0))?;
        self.note_closed(std::iter::once(&oldest));
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

    /// Closes the leases that have arrived by `proof`, and moves the others to its turn.
    pub(super) fn take_arrived(&mut self, proof: &Proof<'_>) -> Vec<(Lease, ConfirmedBy)> {
        let mut arrived = Vec::new();
        let mut index = 0;
        while let Some(lease) = self.open.get_mut(index) {
            if let Some(by) = lease.proven_by(proof) {
                arrived.push((self.open.remove(index), by));
            } else {
                lease.carry_over(proof);
                index += 1;
            }
        }
        self.note_closed(arrived.iter().map(|(lease, _)| lease));
        arrived
    }

    /// Closes the leases that a wake route pushed.
    pub(super) fn take_pushed(&mut self) -> Vec<Lease> {
        self.take_all_that(|lease| lease.is_pushed)
    }

    /// Lets the leases last from `now`, at most [`RENEWED_MAX`] from their release.
    pub(super) fn renew(&mut self, now: Timestamp) {
        for lease in &mut self.open {
            let renewed = (now + lease.lasts).min(lease.released_at + RENEWED_MAX);
            lease.expires_at = lease.expires_at.max(renewed);
        }
        self.ends_at = self.open.iter().map(|lease| lease.expires_at).min();
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

    /// Takes the rules that ended out of the notifications on their way.
    pub(super) fn end_rules(&mut self, ended: &EndedRules) {
        for entry in self.open.iter_mut().flat_map(|lease| &mut lease.entries) {
            if let Some(left) = ended.applied_to(&entry.notification) {
                entry.notification = left;
            }
        }
    }

    /// Notes that a notification on its way is answered.
    pub(super) fn answer(&mut self, id: &NotificationId) {
        if let Some(entry) = self.entry_mut(id) {
            entry.is_answered = true;
        }
    }

    /// Lets a notification on its way wait with this hold, should it return or be repeated; returns
    /// whether it is on its way.
    pub(super) fn snooze(&mut self, id: &NotificationId, hold: &Hold) -> bool {
        let Some(entry) = self.entry_mut(id) else { return false };
        entry.holds = vec![hold.clone()];
        entry.snoozes = entry.snoozes.saturating_add(1);
        true
    }

    /// How often a notification on its way was snoozed.
    pub(super) fn snoozes(&self, id: &NotificationId) -> Option<u8> {
        let mut entries = self.open.iter().flat_map(|lease| &lease.entries);
        entries.find(|entry| entry.notification.id == *id).map(|entry| entry.snoozes)
    }

    fn entry_mut(&mut self, id: &NotificationId) -> Option<&mut Entry> {
        let mut entries = self.open.iter_mut().flat_map(|lease| &mut lease.entries);
        entries.find(|entry| entry.notification.id == *id)
    }

    pub(super) fn take_all(&mut self) -> Vec<Lease> {
        std::mem::take(self).open
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
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
        self.note_closed(closed.iter());
        closed
    }

    fn note_closed<'l>(&mut self, closed: impl Iterator<Item = &'l Lease>) {
        let mut is_first = false;
        for lease in closed {
            for entry in &lease.entries {
                self.held.remove(&entry.notification.id);
            }
            is_first |= Some(lease.expires_at) == self.ends_at;
        }
        if is_first {
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
    point: InjectionPoint,
    turn: Option<Arc<str>>,
    answered: Answered,
    answered_at: Timestamp,
    kept_until: Timestamp,
    repeats: u32,
    has_shown_fixed_carrier: bool,
    answer: Answer,
}

impl Kept {
    /// Whether `exchange` is a repetition of the answered message.
    fn is_for(&self, exchange: &Exchange, turns: &Turns, now: Timestamp) -> bool {
        self.carrier == exchange.carrier
            && self.point == exchange.point
            && now < self.kept_until
            && turns.is_repeated(exchange, self.turn.as_ref(), self.answered)
    }

    /// Whether `exchange` takes its place: the same carrier, unless two names tell their turns
    /// apart.
    fn is_replaced_by(&self, exchange: &Exchange) -> bool {
        let is_other_turn = matches!((&self.turn, &exchange.turn), (Some(own), Some(other)) if own != other);
        self.carrier == exchange.carrier && !is_other_turn
    }

    fn holds(&self, injection: &InjectionId) -> bool {
        self.answer.injection.as_ref().is_some_and(|own| own.id == *injection)
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
    /// Number of answers of each carrier; never iterated. Most lookups find nothing.
    #[serde(skip)]
    carriers: HashMap<Arc<str>, u32>,
}

impl Answers {
    /// The answer to the message of `exchange`; counts the repetition.
    pub(super) fn replay(&mut self, exchange: &Exchange, turns: &Turns, now: Timestamp) -> Option<Replayed> {
        if !self.carriers.contains_key(&exchange.carrier) {
            return None;
        }
        let kept = self.newest_last.iter_mut().find(|kept| kept.is_for(exchange, turns, now))?;
        kept.repeats = kept.repeats.saturating_add(1);
        let is_fixed = kept.repeats >= REPEATS_OF_A_FIXED_CARRIER
            && now.since(kept.answered_at) > TIME_OF_A_FIXED_CARRIER;
        let shows_fixed_carrier = is_fixed && !std::mem::replace(&mut kept.has_shown_fixed_carrier, is_fixed);
        Some(Replayed { answer: kept.answer.clone(), shows_fixed_carrier })
    }

    /// Keeps the answer for the time of `lease`; beyond [`CARRIERS_MAX`] the oldest is evicted. The
    /// carrier's answer at another point, or in a turn that is not named, is removed too.
    pub(super) fn insert(
        &mut self,
        exchange: &Exchange,
        turns: &Turns,
        answer: Answer,
        lease: Duration,
        now: Timestamp,
    ) {
        let carrier = Arc::clone(&exchange.carrier);
        if self.carriers.contains_key(&carrier) {
            self.remove_all_that(|kept| kept.is_replaced_by(exchange));
        }
        *self.carriers.entry(Arc::clone(&carrier)).or_default() += 1;
        self.newest_last.push_back(Kept {
            carrier,
            point: exchange.point,
            turn: exchange.turn.clone(),
            answered: turns.answered(),
            answered_at: now,
            kept_until: now + lease,
            repeats: 0,
            has_shown_fixed_carrier: false,
            answer,
        });
        if self.newest_last.len() > CARRIERS_MAX
            && let Some(oldest) = self.newest_last.pop_front()
        {
            self.note_removed(&oldest.carrier);
        }
    }

    /// Whether a kept answer has `injection`.
    pub(super) fn contains(&self, injection: &InjectionId) -> bool {
        self.newest_last.iter().any(|kept| kept.holds(injection))
    }

    /// Removes the answer with `injection`, so that its carrier gets a new one.
    pub(super) fn forget(&mut self, injection: &InjectionId) {
        self.remove_all_that(|kept| kept.holds(injection));
    }

    fn remove_all_that(&mut self, is_wanted: impl Fn(&Kept) -> bool) {
        let mut removed = Vec::new();
        self.newest_last.retain(|kept| {
            let is_removed = is_wanted(kept);
            if is_removed {
                removed.push(Arc::clone(&kept.carrier));
            }
            !is_removed
        });
        removed.iter().for_each(|carrier| self.note_removed(carrier));
    }

    fn note_removed(&mut self, carrier: &Arc<str>) {
        if let Some(count) = self.carriers.get_mut(carrier) {
            *count -= 1;
            if *count == 0 {
                self.carriers.remove(carrier);
            }
        }
    }
}

/// The snapshot form; the count of carriers is rebuilt.
#[derive(Deserialize)]
struct AnswersState {
    newest_last: VecDeque<Kept>,
}

impl From<AnswersState> for Answers {
    fn from(AnswersState { newest_last }: AnswersState) -> Self {
        let mut carriers = HashMap::new();
        for kept in &newest_last {
            *carriers.entry(Arc::clone(&kept.carrier)).or_default() += 1;
        }
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
        open.into_iter().for_each(|lease| leases.open(lease));
        leases
    }
}
