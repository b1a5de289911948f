//! States that a session opens with: the newest notification of each state of a subscriber with
//! `retain`, also after its delivery.
//!
//! Shape: bounded for each subscriber; the oldest makes room.

use std::{collections::VecDeque, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    event::Scope,
    notification::{Notification, Resolution, SubscriberId},
    snapshot,
    sorted::{SortedMap, SortedSet},
};

/// Most retained notifications of a subscriber.
const RETAINED_MAX: usize = 256;

/// The retained notifications.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Retained(SortedMap<SubscriberId, OfSubscriber>);

/// Those of one subscriber, the newest last.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct OfSubscriber(#[serde(with = "snapshot::shared::list")] VecDeque<Arc<Notification>>);

impl Retained {
    /// Retains a notification, if its subscriber wants that, in place of those about the same states;
    /// in place of all in its scope, if it names no state.
    pub(super) fn keep(&mut self, notification: &Arc<Notification>) {
        if notification.retain_until.is_none() {
            return;
        }
        let OfSubscriber(own) = self.0.get_or_default(notification.subscriber.clone());
        let is_replaced = |older: &Notification| match notification.states.is_empty() {
            true => older.scope == notification.scope,
            false => older.is_superseded_by(notification),
        };
        own.retain(|older| !is_replaced(older));
        own.push_back(Arc::clone(notification));
        own.drain(..own.len().saturating_sub(RETAINED_MAX));
    }

    /// Applies a resolution: what has no condition left is not retained.
    pub(super) fn resolve(&mut self, resolution: &Resolution) {
        let Some(OfSubscriber(own)) = self.0.get_mut(&resolution.subscriber) else { return };
        own.retain_mut(|retained| {
            let Some(left) = resolution.applied_to(retained) else { return true };
            *retained = left;
            !retained.is_resolved()
        });
    }

    /// Forgets those of `subscribers`.
    pub(super) fn forget_of(&mut self, subscribers: &SortedSet<SubscriberId>) {
        self.0.retain(|subscriber, _| !subscribers.contains(subscriber));
    }

    /// Those whose scope `concerns` selects and that are not over at `now`, the oldest first. Each
    /// expires when it is not retained any more.
    pub(super) fn for_session(
        &mut self,
        concerns: &dyn Fn(&Scope) -> bool,
        now: Timestamp,
    ) -> Vec<Arc<Notification>> {
        let is_over = |retained: &Arc<Notification>| retained.retain_until.is_some_and(|until| until <= now);
        let mut found = Vec::new();
        for OfSubscriber(own) in self.0.values_mut() {
            own.retain(|retained| !is_over(retained));
            let of_session = own.iter().filter(|retained| concerns(&retained.scope));
            found.extend(of_session.map(|retained| {
                let expires_at = retained.retain_until;
                Arc::new(Notification { expires_at, ..(**retained).clone() })
            }));
        }
        self.0.retain(|_, OfSubscriber(own)| !own.is_empty());
        found.sort_by_key(|retained| retained.created_at);
        found
    }
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
    }
}
