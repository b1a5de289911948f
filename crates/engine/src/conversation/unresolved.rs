//! The conditions that hold, of all sessions: what their regions have of each.
//!
//! A notification with conditions is here from when it is made until all of them are resolved, or
//! until it expires, also after its delivery. A newer report of the same condition takes its place.
//!
//! Shape: in delivery order, the newest first within a priority; bounded in number and in size. What
//! is least urgent makes room, and is counted until no condition is left.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use hashbrown::HashMap;
use journal::time::Timestamp;
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

use super::{
    resolved_in::{Reach, ResolvedIn},
    session::SessionKey,
};
use crate::{
    event::Scope,
    notification::{Notification, NotificationId, Priority, RegionUse, Resolution, State, StateKey, Unseen},
    snapshot,
};

/// Most notifications with conditions that hold.
const UNRESOLVED_MAX: usize = 16_384;
/// Most bytes of their contents.
const BYTES_MAX: usize = 16 << 20;

/// The place of a notification: its urgency, then the newest first.
type Rank = (Reverse<Priority>, Reverse<Timestamp>, NotificationId);

/// A notification with conditions that hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Holding {
    #[serde(with = "snapshot::shared")]
    pub(super) notification: Arc<Notification>,
    /// Number of its conditions when it was made.
    pub(super) made_of: u32,
    /// The sessions in which the user dismissed it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) dismissed_in: BTreeSet<SessionKey>,
    /// Where all of its conditions were resolved.
    #[serde(default, skip_serializing_if = "ResolvedIn::is_empty")]
    pub(super) resolved_in: ResolvedIn,
}

impl Holding {
    fn rank(&self) -> Rank {
        let own = &self.notification;
        (Reverse(own.priority), Reverse(own.created_at), own.id)
    }
}

/// The conditions that hold.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "Stored")]
pub(crate) struct Unresolved {
    holding: BTreeMap<Rank, Holding>,
    /// Never iterated.
    by_id: HashMap<NotificationId, Rank>,
    by_state: BTreeSet<(StateKey, Rank)>,
    by_expiry: BTreeSet<(Timestamp, Rank)>,
    bytes: usize,
    /// Number of those that made room for others since none was left.
    evicted: u64,
    /// Number of changes of any kind, since the start of the process.
    changes: u64,
}

impl Unresolved {
    /// Takes the conditions of a notification that was made, in place of earlier reports of them for
    /// sessions that get it too: `is_for` tells that of the scope of a report.
    pub(super) fn insert(&mut self, notification: &Arc<Notification>, is_for: &dyn Fn(&Scope) -> bool) {
        self.replace_by(notification, is_for);
        if notification.unresolved.is_empty() || notification.region == RegionUse::Never {
            return;
        }
        self.changes += 1;
        let made_of = u32::try_from(notification.unresolved.len()).unwrap_or(u32::MAX);
        let notification = Arc::clone(notification);
        let (dismissed_in, resolved_in) = (BTreeSet::new(), ResolvedIn::default());
        self.add(Holding { notification, made_of, dismissed_in, resolved_in });
        while self.holding.len() > UNRESOLVED_MAX || self.bytes > BYTES_MAX {
            let Some((last, _)) = self.holding.last_key_value() else { break };
            self.remove(*last);
            self.evicted += 1;
        }
    }

    /// Removes what `newer` reports again.
    fn replace_by(&mut self, newer: &Notification, is_for: &dyn Fn(&Scope) -> bool) {
        for rank in self.with_keys(newer.keys()) {
            let Some(older) = self.holding.get(&rank) else { continue };
            let own = &older.notification;
            if own.subscriber != newer.subscriber || !is_for(&own.scope) {
                continue;
            }
            let is_again = |state: &State| newer.unresolved.iter().any(|later| later.replaces(state));
            if own.is_superseded_by(newer) || own.unresolved.iter().all(is_again) {
                self.remove(rank);
            } else {
                self.change(rank, |left| left.unresolved.retain(|state| !is_again(state)));
            }
        }
    }

    /// Removes what is out of date, because nobody gets what is newer; `is_for` as for [`Self::insert`].
    pub(super) fn outdate(&mut self, newer: &Unseen, is_for: &dyn Fn(&Scope) -> bool) {
        for rank in self.with_keys(newer.state.iter().map(|state| state.key)) {
            let own = self.holding.get(&rank).map(|holding| &holding.notification);
            if own.is_some_and(|own| is_for(&own.scope) && newer.outdates(own)) {
                self.remove(rank);
            }
        }
    }

    /// Ends the conditions that an event resolves.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        for rank in self.with_keys(resolution.keys.iter().copied()) {
            let Some(holding) = self.holding.get_mut(&rank) else { continue };
            let Notification { subscriber, scope, unresolved, .. } = &*holding.notification;
            match holding.resolved_in.reach(resolution, subscriber, scope) {
                Reach::Everywhere => {
                    self.change(rank, |left| left.unresolved.retain(|state| !resolution.ends(state)));
                }
                Reach::Part => {
                    let is_new = holding.resolved_in.note(resolution, unresolved);
                    self.changes += u64::from(is_new);
                }
                Reach::Nowhere => {}
            }
        }
    }

    /// Ends a notification because the user dismissed it: in one session, or in all.
    pub(super) fn dismiss(&mut self, notification: &NotificationId, session: Option<SessionKey>) {
        let Some(rank) = self.by_id.get(notification).copied() else { return };
        match session {
            None => self.remove(rank),
            Some(session) => {
                let holding = self.holding.get_mut(&rank).expect("the indices agree");
                holding.dismissed_in.insert(session);
                self.changes += 1;
            }
        }
    }

    /// Forgets the notifications that `is_over` selects.
    pub(super) fn forget(&mut self, is_over: impl Fn(&Notification) -> bool) {
        let over = self.holding.iter().filter(|(_, holding)| is_over(&holding.notification));
        let over: Vec<Rank> = over.map(|(rank, _)| *rank).collect();
        over.into_iter().for_each(|rank| self.remove(rank));
    }

    /// When the next one expires.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.by_expiry.first().map(|(at, _)| *at)
    }

    /// Ends those that expire at or before `at`.
    pub(super) fn expire(&mut self, at: Timestamp) {
        while let Some((_, rank)) = self.by_expiry.first().filter(|(until, _)| *until <= at).copied() {
            self.remove(rank);
        }
    }

    /// All of them, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Holding> {
        self.holding.values()
    }

    /// Number of those that made room for others since none was left.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Number of changes since the start of the process.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    fn with_keys(&self, keys: impl Iterator<Item = StateKey>) -> BTreeSet<Rank> {
        let last = (Reverse(Priority::Low), Reverse(Timestamp::ZERO), NotificationId::new("\u{7f}"));
        let first =
            (Reverse(Priority::Critical), Reverse(Timestamp::from_millis(u64::MAX)), NotificationId::new(""));
        let of = |key| self.by_state.range((key, first)..=(key, last)).map(|(_, rank)| *rank);
        keys.flat_map(of).collect()
    }

    /// Changes the conditions of one; it ends with the last.
    fn change(&mut self, rank: Rank, change: impl FnOnce(&mut Notification)) {
        let holding = self.holding.get(&rank).expect("the indices agree").clone();
        let mut left = (*holding.notification).clone();
        change(&mut left);
        self.remove(rank);
        if !left.unresolved.is_empty() {
            self.add(Holding { notification: Arc::new(left), ..holding });
        }
    }

    fn add(&mut self, holding: Holding) {
        let (rank, own) = (holding.rank(), &holding.notification);
        self.by_id.insert(own.id, rank);
        self.by_state.extend(own.keys().map(|key| (key, rank)));
        self.by_expiry.extend(own.expires_at.map(|at| (at, rank)));
        self.bytes += own.content.text().len();
        if let Some(same) = self.holding.insert(rank, holding) {
            self.bytes -= same.notification.content.text().len();
        }
    }

    fn remove(&mut self, rank: Rank) {
        let Some(holding) = self.holding.remove(&rank) else { return };
        let own = holding.notification;
        self.by_id.remove(&own.id);
        for key in own.keys() {
            self.by_state.remove(&(key, rank));
        }
        if let Some(at) = own.expires_at {
            self.by_expiry.remove(&(at, rank));
        }
        self.bytes -= own.content.text().len();
        if self.holding.is_empty() {
            self.evicted = 0;
        }
        self.changes += 1;
    }
}

impl Serialize for Unresolved {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let holding: Vec<&Holding> = self.holding.values().collect();
        let mut fields = to.serialize_struct("Unresolved", 2)?;
        fields.serialize_field("holding", &holding)?;
        fields.serialize_field("evicted", &self.evicted)?;
        fields.end()
    }
}

/// The form in a snapshot, as it is read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    holding: Vec<Holding>,
    evicted: u64,
}

impl From<Stored> for Unresolved {
    fn from(Stored { holding, evicted }: Stored) -> Self {
        let mut unresolved = Self::default();
        holding.into_iter().for_each(|holding| unresolved.add(holding));
        Self { evicted, ..unresolved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Scope, Seq, SessionId},
        notification::SubscriberId,
    };

    fn made(seq: u64, keys: &[u64], priority: Priority) -> Arc<Notification> {
        let state = |key: &u64| State { key: StateKey(*key), seq: Seq(seq), version: None };
        Arc::new(Notification {
            unresolved: keys.iter().map(state).collect(),
            created_at: Timestamp::from_millis(seq),
            ..Notification::example(&format!("n{seq}"), priority)
        })
    }

    fn resolution(seq: u64, key: u64, scope: Scope) -> Resolution {
        let (subscriber, keys) = (SubscriberId::new("s"), vec![StateKey(key)]);
        Resolution { subscriber, seq: Seq(seq), scope, keys, version: None }
    }

    fn ids(unresolved: &Unresolved) -> Vec<&str> {
        unresolved.iter().map(|holding| holding.notification.id.as_str()).collect()
    }

    #[test]
    fn conditions_are_ordered_and_end_one_by_one() {
        let mut unresolved = Unresolved::default();
        for (seq, keys, priority) in
            [(1, &[1, 2][..], Priority::Normal), (2, &[3], Priority::High), (3, &[4], Priority::Normal)]
        {
            unresolved.insert(&made(seq, keys, priority), &|_| true);
        }
        assert_eq!(ids(&unresolved), ["n2", "n3", "n1"]);
        unresolved.resolve(&resolution(4, 1, Scope::All));
        let last = unresolved.iter().last().expect("it holds");
        assert_eq!((last.notification.unresolved.len(), last.made_of), (1, 2));
        unresolved.resolve(&resolution(5, 2, Scope::All));
        assert_eq!(ids(&unresolved), ["n2", "n3"]);
        unresolved.insert(&made(6, &[4], Priority::Low), &|_| true);
        assert_eq!(ids(&unresolved), ["n2", "n6"], "a newer report takes the place of the earlier one");
        unresolved.dismiss(&NotificationId::new("n2"), None);
        unresolved.dismiss(&NotificationId::new("n6"), Some(SessionKey(1)));
        let bytes = snapshot::write(&unresolved).expect("written");
        let read: Unresolved = snapshot::read(&bytes).expect("read");
        assert_eq!((ids(&read), read.iter().next().map(|one| one.dismissed_in.len())), (vec!["n6"], Some(1)));
    }

    #[test]
    fn resolution_in_one_session_leaves_others() {
        let mut unresolved = Unresolved::default();
        unresolved.insert(&made(1, &[1], Priority::Normal), &|_| true);
        let own = Scope::Session(SessionId::new("s1"));
        unresolved.resolve(&resolution(2, 1, own.clone()));
        let is_resolved = |unresolved: &Unresolved, own: &Scope| {
            unresolved.iter().next().map(|one| one.resolved_in.concerns(|scope| scope == own))
        };
        assert_eq!(is_resolved(&unresolved, &own), Some(true));
        assert_eq!(is_resolved(&unresolved, &Scope::Session(SessionId::new("s2"))), Some(false));
        for number in 2..=16 {
            unresolved.resolve(&resolution(3, 1, own.clone()));
            unresolved.resolve(&resolution(3, 1, Scope::Session(SessionId::new(&format!("s{number}")))));
        }
        assert_eq!(ids(&unresolved), ["n1"]);
        unresolved.resolve(&resolution(3, 1, Scope::Session(SessionId::new("s17"))));
        assert_eq!(ids(&unresolved), Vec::<&str>::new());
    }

    #[test]
    fn a_full_table_evicts_the_least_urgent() {
        let mut unresolved = Unresolved::default();
        unresolved.insert(&made(1, &[1], Priority::High), &|_| true);
        for seq in 2..=UNRESOLVED_MAX as u64 + 3 {
            unresolved.insert(&made(seq, &[seq], Priority::Normal), &|_| true);
        }
        assert_eq!((unresolved.holding.len(), unresolved.evicted()), (UNRESOLVED_MAX, 3));
        assert_eq!(ids(&unresolved).first(), Some(&"n1"));
        assert!(!ids(&unresolved).contains(&"n4"), "the oldest of the least priority");
        unresolved.forget(|_| true);
        assert_eq!((unresolved.evicted(), unresolved.by_state.len(), unresolved.bytes), (0, 0, 0));
    }

    #[test]
    fn a_condition_expires_at_its_time() {
        let mut unresolved = Unresolved::default();
        let expires_at = Some(Timestamp::from_millis(9));
        unresolved.insert(
            &Arc::new(Notification { expires_at, ..(*made(1, &[1], Priority::Normal)).clone() }),
            &|_| true,
        );
        assert_eq!(unresolved.poll_timeout(), expires_at);
        unresolved.expire(Timestamp::from_millis(8));
        assert_eq!(ids(&unresolved), ["n1"]);
        unresolved.expire(Timestamp::from_millis(9));
        assert_eq!((ids(&unresolved).len(), unresolved.poll_timeout()), (0, None));
    }
}
