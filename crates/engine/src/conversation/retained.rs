//! States that a session opens with: the newest notification of each state of a subscriber with
//! `retain`, also after its delivery.
//!
//! Shape: bounded for each subscriber; the oldest makes room.

use std::{collections::VecDeque, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::{
    ended::EndedRules,
    resolved_in::{Reach, ResolvedIn},
};
use crate::{
    event::Scope,
    notification::{Notification, NotificationId, Resolution, SubscriberId, Unseen},
    snapshot,
    sorted::{SortedMap, SortedSet},
};

/// Most retained notifications of a subscriber.
const RETAINED_MAX: usize = 256;

/// The retained notifications.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "SortedMap<SubscriberId, OfSubscriber>")]
pub(crate) struct Retained {
    by_subscriber: SortedMap<SubscriberId, OfSubscriber>,
    /// When each is over.
    ends: SortedSet<(Timestamp, NotificationId)>,
    /// Number of changes since the start of the process.
    changes: u64,
}

impl Serialize for Retained {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.by_subscriber.serialize(to)
    }
}

impl From<SortedMap<SubscriberId, OfSubscriber>> for Retained {
    fn from(by_subscriber: SortedMap<SubscriberId, OfSubscriber>) -> Self {
        let mut retained = Self { by_subscriber, ..Self::default() };
        retained.note_ends();
        retained
    }
}

/// Those of one subscriber, the newest last.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct OfSubscriber(VecDeque<Kept>);

/// A retained notification.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    #[serde(with = "snapshot::shared")]
    notification: Arc<Notification>,
    /// Where all of its conditions were resolved.
    #[serde(default, skip_serializing_if = "ResolvedIn::is_empty")]
    resolved_in: ResolvedIn,
}

impl Retained {
    /// Retains a notification, if its subscriber wants that, in place of those about the same states;
    /// in place of all in its scope, if it names no state.
    pub(super) fn keep(&mut self, notification: &Arc<Notification>) {
        if notification.retain_until.is_none() {
            return;
        }
        self.forget_older(&notification.subscriber, |older| match notification.states.is_empty() {
            true => older.scope == notification.scope,
            false => older.is_superseded_by(notification),
        });
        self.changes += 1;
        let Self { by_subscriber, ends, .. } = self;
        let OfSubscriber(own) = by_subscriber.get_or_default(notification.subscriber.clone());
        own.push_back(Kept { notification: Arc::clone(notification), resolved_in: ResolvedIn::default() });
        for evicted in own.drain(..own.len().saturating_sub(RETAINED_MAX)) {
            ends.remove(&end_of(&evicted.notification));
        }
        ends.insert(end_of(notification));
    }

    /// Forgets what is out of date, because nobody gets what is newer.
    pub(super) fn outdate(&mut self, newer: &Unseen) {
        self.forget_older(&newer.subscriber, |older| match newer.state {
            Some(_) => newer.outdates(older),
            None => older.scope == newer.scope,
        });
    }

    fn forget_older(&mut self, subscriber: &SubscriberId, is_older: impl Fn(&Notification) -> bool) {
        let Self { by_subscriber, ends, changes } = self;
        let Some(OfSubscriber(own)) = by_subscriber.get_mut(subscriber) else { return };
        own.retain(|Kept { notification, .. }| {
            let is_older = is_older(notification);
            if is_older {
                ends.remove(&end_of(notification));
                *changes += 1;
            }
            !is_older
        });
    }

    /// Applies a resolution: what has no condition left is not retained for the sessions that it is for.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        let Self { by_subscriber, ends, changes } = self;
        let Some(OfSubscriber(own)) = by_subscriber.get_mut(&resolution.subscriber) else { return };
        own.retain_mut(|Kept { notification, resolved_in }| {
            let Some(left) = resolution.applied_to(notification) else { return true };
            match resolved_in.reach(resolution, &notification.subscriber, &notification.scope) {
                Reach::Nowhere => return true,
                Reach::Part => {
                    let is_new = left.is_resolved() && resolved_in.note(resolution, &notification.unresolved);
                    *changes += u64::from(is_new);
                    return true;
                }
                Reach::Everywhere => *notification = left,
            }
            *changes += 1;
            if notification.is_resolved() {
                ends.remove(&end_of(notification));
            }
            !notification.is_resolved()
        });
    }

    /// Forgets one that the user dismissed.
    pub(super) fn forget(&mut self, notification: &NotificationId) {
        for subscriber in self.by_subscriber.keys().cloned().collect::<Vec<_>>() {
            self.forget_older(&subscriber, |own| own.id == *notification);
        }
    }

    /// Forgets those of `subscribers`.
    pub(super) fn forget_of(&mut self, subscribers: &SortedSet<SubscriberId>) {
        self.by_subscriber.retain(|subscriber, _| !subscribers.contains(subscriber));
        self.note_ends();
        self.changes += 1;
    }

    /// Takes the rules that ended out of the others.
    pub(super) fn end_rules(&mut self, ended: &EndedRules) {
        for retained in self.by_subscriber.values_mut().flat_map(|OfSubscriber(own)| own) {
            if let Some(left) = ended.applied_to(&retained.notification) {
                retained.notification = left;
            }
        }
    }

    /// Those whose scope `concerns` selects and that are not over at `now`.
    pub(super) fn of<'r, 'f>(
        &'r self,
        concerns: &'f dyn Fn(&Scope) -> bool,
        now: Timestamp,
    ) -> impl Iterator<Item = &'r Arc<Notification>> + use<'r, 'f> {
        let all = self.by_subscriber.values().flat_map(|OfSubscriber(own)| own);
        let is_for = move |Kept { notification, resolved_in }: &&Kept| {
            !is_over(notification, now) && concerns(&notification.scope) && !resolved_in.concerns(concerns)
        };
        all.filter(is_for).map(|retained| &retained.notification)
    }

    /// When the next one is over.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.ends.first().map(|(at, _)| *at)
    }

    /// Forgets those that are over at `at`.
    pub(super) fn expire(&mut self, at: Timestamp) {
        if self.poll_timeout().is_none_or(|next| next > at) {
            return;
        }
        for OfSubscriber(own) in self.by_subscriber.values_mut() {
            own.retain(|retained| !is_over(&retained.notification, at));
        }
        self.by_subscriber.retain(|_, OfSubscriber(own)| !own.is_empty());
        self.note_ends();
        self.changes += 1;
    }

    fn note_ends(&mut self) {
        let all = self.by_subscriber.values().flat_map(|OfSubscriber(own)| own);
        self.ends = all.map(|retained| end_of(&retained.notification)).collect();
    }

    /// Number of changes since the start of the process.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Those whose scope `concerns` selects and that are not over at `now`, the oldest first. Each
    /// expires when it is not retained any more.
    pub(super) fn for_session(
        &self,
        concerns: &dyn Fn(&Scope) -> bool,
        now: Timestamp,
    ) -> Vec<Arc<Notification>> {
        let until = |retained: &Arc<Notification>| {
            let expires_at = retained.retain_until;
            Arc::new(Notification { expires_at, ..(**retained).clone() })
        };
        let mut found: Vec<_> = self.of(concerns, now).map(until).collect();
        found.sort_by_key(|retained| retained.created_at);
        found
    }
}

/// When a retained notification is over, and its id.
fn end_of(retained: &Notification) -> (Timestamp, NotificationId) {
    (retained.retain_until.expect("it is retained"), retained.id)
}

fn is_over(retained: &Notification, now: Timestamp) -> bool {
    retained.retain_until.is_some_and(|until| until <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notification::Priority;

    #[test]
    fn the_oldest_of_a_subscriber_makes_room() {
        let mut retained = Retained::default();
        for number in 0..=RETAINED_MAX {
            let scope = Scope::Workspace(format!("/w{number}").into());
            let retain_until = Some(Timestamp::from_millis(9));
            let example = Notification::example(&number.to_string(), Priority::High);
            retained.keep(&Arc::new(Notification { scope, retain_until, ..example }));
        }
        let all = retained.for_session(&|_| true, Timestamp::ZERO);
        assert_eq!((all.len(), all[0].id.as_str()), (RETAINED_MAX, "1"));
        assert!(retained.for_session(&|_| true, Timestamp::from_millis(9)).is_empty());
        assert_eq!(retained.ends.len(), RETAINED_MAX);
    }

    #[test]
    fn end_of_a_replaced_state_wakes_nobody() {
        let mut retained = Retained::default();
        for (name, until) in [("a", 5), ("b", 9)] {
            let retain_until = Some(Timestamp::from_millis(until));
            let example = Notification::example(name, Priority::High);
            retained.keep(&Arc::new(Notification { retain_until, ..example }));
        }
        assert_eq!(retained.poll_timeout(), Some(Timestamp::from_millis(9)));
        retained.forget_of(&[SubscriberId::new("s")].into());
        assert_eq!(retained.poll_timeout(), None);
    }
}
