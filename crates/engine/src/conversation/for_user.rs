//! Notifications for the user that wait as those for an agent do: while their conditions are suppressed,
//! in the quiet hours of their subscriber, and until the time of their delay.
//!
//! Turns, tools and the use of a context are a session's, so they delay nothing for the user. The quiet
//! hours of the sinks come after what holds here.

use std::sync::Arc;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

use super::{ended::EndedRules, injector::Suppress};
use crate::{
    hold::{Hold, HoldKind, add_holds},
    ledger::Reason,
    notification::{Audience, Notification, NotificationId, Resolution, SubscriberId},
    snapshot,
    sorted::SortedMap,
};

/// Most notifications that wait. Beyond it the one that was made first goes to the user.
const WAITING_MAX: usize = 1_000;

/// The notifications that wait.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "SortedMap<NotificationId, Waiting>")]
pub(crate) struct ForUser {
    waiting: SortedMap<NotificationId, Waiting>,
    /// When a delay or a time to live is over next.
    next_end: Option<Timestamp>,
}

impl Serialize for ForUser {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.waiting.serialize(to)
    }
}

impl From<SortedMap<NotificationId, Waiting>> for ForUser {
    fn from(waiting: SortedMap<NotificationId, Waiting>) -> Self {
        let mut own = Self { waiting, next_end: None };
        own.note_next_end();
        own
    }
}

/// One that waits.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Waiting {
    #[serde(with = "snapshot::shared")]
    notification: Arc<Notification>,
    /// For whom it is; never the agent alone.
    is_for_agent: bool,
    /// At least one.
    holds: Vec<Hold>,
}

impl Waiting {
    /// Ends the holds that `is_over` selects.
    fn release(&mut self, mut is_over: impl FnMut(&Notification, &Hold) -> bool) {
        let notification = &self.notification;
        self.holds.retain(|hold| !is_over(notification, hold));
    }

    /// When its delay or its time to live is over.
    fn next_end(&self) -> Option<Timestamp> {
        let delays = self.holds.iter().filter(|hold| hold.kind() == HoldKind::Deferred);
        delays.filter_map(Hold::until).chain(self.notification.expires_at).min()
    }
}

impl ForUser {
    /// Adds a notification with its holds, a delay without a time excepted.
    pub(super) fn insert(&mut self, notification: &Arc<Notification>, audience: Audience, holds: Vec<Hold>) {
        let is_felt = |hold: &Hold| hold.kind() != HoldKind::Deferred || hold.until().is_some();
        let holds = holds.into_iter().filter(is_felt).collect();
        let is_for_agent = audience == Audience::Both;
        let waiting = Waiting { notification: Arc::clone(notification), is_for_agent, holds };
        self.waiting.insert(notification.id, waiting);
        if self.waiting.len() > WAITING_MAX {
            let all = self.waiting.values_mut();
            let first = all.min_by_key(|own| (own.notification.created_at, own.notification.id));
            first.expect("there are some").holds.clear();
        }
    }

    /// A notification that waits.
    pub(super) fn notification(&self, id: &NotificationId) -> Option<&Arc<Notification>> {
        self.waiting.get(id).map(|own| &own.notification)
    }

    /// Those for the user alone, the one that was made first first, with their holds.
    pub(super) fn of_user_alone(&self) -> Vec<(&Arc<Notification>, &[Hold])> {
        let own = self.waiting.values().filter(|own| !own.is_for_agent);
        let mut own: Vec<_> = own.map(|own| (&own.notification, own.holds.as_slice())).collect();
        own.sort_by_key(|(notification, _)| (notification.created_at, notification.id));
        own
    }

    /// Those with a hold that `is_wanted` selects.
    pub(super) fn held_by(&self, is_wanted: impl Fn(&Hold) -> bool) -> Vec<NotificationId> {
        let wanted = self.waiting.iter().filter(|(_, own)| own.holds.iter().any(&is_wanted));
        wanted.map(|(id, _)| *id).collect()
    }

    /// Ends the holds that `is_over` selects.
    pub(super) fn end_holds(&mut self, mut is_over: impl FnMut(&Notification, &Hold) -> bool) {
        for waiting in self.waiting.values_mut() {
            waiting.release(&mut is_over);
        }
    }

    /// Applies the end of rules to what waits.
    pub(super) fn end_rules(&mut self, ended: &EndedRules) {
        for waiting in self.waiting.values_mut() {
            if let Some(left) = ended.applied_to(&waiting.notification) {
                waiting.notification = left;
            }
        }
        self.end_holds(|notification, hold| ended.end_hold(notification, hold));
    }

    /// Ends the delays that are over at `at`.
    pub(super) fn end_delays(&mut self, at: Timestamp) {
        self.end_holds(|_, hold| {
            hold.kind() == HoldKind::Deferred && hold.until().is_some_and(|until| until <= at)
        });
    }

    /// Begins the quiet hours of a subscriber.
    pub(super) fn begin_quiet(&mut self, subscriber: &SubscriberId, hold: &Hold) {
        let own = self.waiting.values_mut().filter(|own| own.notification.subscriber == *subscriber);
        for waiting in own {
            waiting.release(|_, own| matches!(own, Hold::Quiet { .. }));
            waiting.holds.push(hold.clone());
        }
    }

    /// Removes what is selected; returns those that are not also for the agent, whose end the queues of
    /// sessions record.
    pub(super) fn end(&mut self, is_over: impl Fn(&Notification) -> bool) -> Vec<NotificationId> {
        let mut ended = Vec::new();
        self.waiting.retain(|id, waiting| {
            let is_left = !is_over(&waiting.notification);
            ended.extend((!is_left && !waiting.is_for_agent).then_some(*id));
            is_left
        });
        self.note_next_end();
        ended
    }

    /// Applies a resolution to the conditions of what waits.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        for waiting in self.waiting.values_mut() {
            let is_covered = resolution.scope.covers(&waiting.notification.scope);
            if let Some(left) = resolution.applied_to(&waiting.notification).filter(|_| is_covered) {
                waiting.notification = left;
            }
        }
    }

    /// Suppresses what waits: `decide` says what becomes of each notification. Returns those that end.
    pub(super) fn suppress(
        &mut self,
        decide: &mut dyn FnMut(&Notification) -> Option<Suppress>,
    ) -> Vec<(NotificationId, Reason)> {
        let mut ended = Vec::new();
        for (id, waiting) in self.waiting.iter_mut() {
            match decide(&waiting.notification) {
                Some(Suppress::Hold(holds)) => add_holds(&mut waiting.holds, holds),
                Some(Suppress::End(reason)) => ended.push((*id, reason)),
                None => {}
            }
        }
        ended
    }

    /// Removes what has no hold left, the one that was made first first.
    pub(super) fn take_free(&mut self) -> Vec<(Arc<Notification>, Audience)> {
        let mut free = Vec::new();
        self.waiting.retain(|_, Waiting { notification, is_for_agent, holds }| {
            let audience = if *is_for_agent { Audience::Both } else { Audience::User };
            free.extend(holds.is_empty().then(|| (Arc::clone(notification), audience)));
            !holds.is_empty()
        });
        self.note_next_end();
        free.sort_by_key(|(notification, _)| (notification.created_at, notification.id));
        free
    }

    /// When a delay or a time to live is over next.
    pub(super) fn poll_timeout(&self) -> Option<Timestamp> {
        self.next_end
    }

    fn note_next_end(&mut self) {
        self.next_end = self.waiting.values().filter_map(Waiting::next_end).min();
    }
}
