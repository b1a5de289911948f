//! The holds that a queue adds to what it takes, because they are the same for all sessions.

use std::collections::BTreeMap;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    dismissed::Dismissed, for_user::ForUser, injector, retained::Retained, session::SessionKey,
    unresolved::Unresolved,
};
use crate::{
    budget::SourceAccounts,
    hold::{Hold, Postponed},
    notification::{Notification, NotificationId, SubscriberId},
    sorted::{SortedMap, SortedSet},
};

/// Most notifications whose holds are kept for a queue that takes them later.
pub(super) const KEPT_MAX: usize = 10_000;

/// The holds that a queue adds to what it takes.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// The quiet hours that have begun: since when, and until when.
    pub(super) quiet: SortedMap<SubscriberId, (Timestamp, Timestamp)>,
    /// The holds of suppressed conditions. A tree: a silence may add all of them at once.
    pub(super) suppressed: BTreeMap<NotificationId, Vec<Hold>>,
    /// The states that a session opens with.
    #[serde(default)]
    pub(super) retained: Retained,
    /// What waits for the user.
    #[serde(default)]
    pub(super) for_user: ForUser,
    /// The conditions that were dismissed.
    #[serde(default)]
    pub(super) dismissed: Dismissed,
    /// The conditions that hold.
    #[serde(default)]
    pub(super) unresolved: Unresolved,
    /// What the sessions of each user used of the budgets of sources.
    #[serde(default)]
    pub(super) sources: SourceAccounts,
    /// The sessions in which an event could end a hold.
    #[serde(skip)]
    pub(super) listening: SortedSet<SessionKey>,
}

impl Standing {
    /// The holds of a notification in a queue that takes it.
    pub(super) fn holds(&self, notification: &Notification) -> Vec<Hold> {
        let mut holds = self.suppressed.get(&notification.id).cloned().unwrap_or_default();
        if injector::is_urgent(notification) {
            return holds;
        }
        let made = notification.created_at;
        holds.extend(self.quiet_hold(notification));
        holds.extend((notification.delays.iter()).map(|delay| {
            let Postponed { by, waits } = delay.clone();
            Hold::Deferred { since: made, waits, by }
        }));
        holds
    }

    /// The hold of the quiet hours of a notification's subscriber, if they have begun; none for an urgent
    /// one.
    pub(super) fn quiet_hold(&self, notification: &Notification) -> Option<Hold> {
        let made = notification.created_at;
        let (since, until) = self.quiet.get(&notification.subscriber).filter(|(_, until)| *until > made)?;
        let hold = Hold::Quiet { since: made.max(*since), until: *until, of_user: false };
        (!injector::is_urgent(notification)).then_some(hold)
    }

    /// Notes whether an event could end a hold in a session.
    pub(super) fn note_listening(&mut self, session: SessionKey, is_listening: bool) {
        if is_listening {
            self.listening.insert(session);
        } else {
            self.listening.remove(&session);
        }
    }
}
