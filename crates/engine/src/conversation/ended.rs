//! The rules of subscribers that new rules no longer have, and the end of what they left behind.
//!
//! A notification has the rules by which it was made. Those that ended are taken out of it wherever
//! it is kept, so a queue that takes it later does not apply them either.

use std::sync::Arc;

use crate::{
    hold::{DelayedBy, Hold},
    notification::{Nature, Notification, SubscriberId},
    sorted::SortedSet,
};

/// The subscribers that lost a rule: it was removed from their file, or they were removed or disabled.
#[derive(Debug, Default)]
pub struct EndedRules {
    /// `[repeat]`.
    pub repeats: SortedSet<SubscriberId>,
    /// `deliver_after`; also those that have another one now.
    pub delays: SortedSet<SubscriberId>,
    /// `retain`.
    pub retained: SortedSet<SubscriberId>,
    /// What ends a condition: `resolved_by` or `[absent]`.
    pub conditions: SortedSet<SubscriberId>,
}

impl EndedRules {
    pub(super) fn are_empty(&self) -> bool {
        let Self { repeats, delays, retained, conditions } = self;
        [repeats, delays, retained, conditions].into_iter().all(SortedSet::is_empty)
    }

    /// The notification without the rules that ended; `None` if it had none of them.
    pub(super) fn applied_to(&self, notification: &Notification) -> Option<Arc<Notification>> {
        let subscriber = &notification.subscriber;
        let is_ended = |by: DelayedBy| by == DelayedBy::Subscriber && self.delays.contains(subscriber);
        let loses_repeat = notification.repeat.is_some() && self.repeats.contains(subscriber);
        let loses_delay = notification.delays.iter().any(|delay| is_ended(delay.by));
        let loses_condition = !notification.unresolved.is_empty() && self.conditions.contains(subscriber);
        if !loses_repeat && !loses_delay && !loses_condition {
            return None;
        }
        let mut left = notification.clone();
        left.delays = left.delays.into_iter().filter(|delay| !is_ended(delay.by)).collect();
        if loses_repeat {
            left.repeat = None;
        }
        if loses_condition {
            // It tells what happened, and no longer what holds.
            left.unresolved.clear();
            left.nature = Nature::Occurrence;
        }
        Some(Arc::new(left))
    }

    /// Whether a hold of a pending notification ends.
    pub(super) fn end_hold(&self, notification: &Notification, hold: &Hold) -> bool {
        matches!(hold, Hold::Deferred { by: DelayedBy::Subscriber, .. })
            && self.delays.contains(&notification.subscriber)
    }
}
