//! What ends the holds of a session's queue: its exchanges, events that concern it, and the engine.

use journal::time::Timestamp;

use super::{parts::Injector, queue::Changed};
use crate::{
    event::EventRef,
    exchange::{Exchange, Trigger},
    hold::{Hold, Wait, is_tool},
    ledger::Reason,
    notification::{Activation, Notification, NotificationId, Priority, SubscriberId},
};

/// The effect of a suppression on a pending notification of which it suppresses every row.
#[derive(Debug, Clone)]
pub enum Suppress {
    /// It ends: it reports an occurrence.
    End(Reason),
    /// It is held: it reports only conditions.
    Hold(Vec<Hold>),
}

impl Injector {
    /// Counts a turn that an exchange of the agent starts, for what `has_waited` for it, and notes the tool
    /// that has run.
    pub fn note_delays(
        &mut self,
        exchange: &Exchange,
        starts_turn: bool,
        has_waited: &dyn Fn(&NotificationId) -> bool,
    ) {
        let tool = exchange.tool_that_ran();
        if exchange.trigger != Trigger::Agent || self.queue.len_held() == 0 || !starts_turn && tool.is_none()
        {
            return;
        }
        self.end_delays(|notification, wait| match wait {
            Wait::Turns(left) if starts_turn && has_waited(&notification.id) => {
                *left -= 1;
                *left == 0
            }
            Wait::Tool(wanted) => tool.is_some_and(|tool| is_tool(wanted, tool)),
            Wait::Turns(_) | Wait::Until(_) | Wait::Event(_) | Wait::Context(_) => false,
        });
    }

    /// Notes an event that concerns the session; `context`: the share of its context that is used,
    /// in percent, if the event reports it.
    pub fn note_event(&mut self, event: &EventRef<'_>, context: Option<u64>) -> bool {
        self.end_delays(|_, wait| match wait {
            Wait::Event(pattern) => pattern.matches_text(event.event_type),
            Wait::Context(share) => context.is_some_and(|used| used >= u64::from(*share)),
            Wait::Turns(_) | Wait::Until(_) | Wait::Tool(_) => false,
        })
    }

    /// Whether an event could end a hold.
    pub fn waits_for_event(&self) -> bool {
        self.queue.waits_for_event()
    }

    /// Ends the delays of which something is over; returns whether a notification has no hold left.
    fn end_delays(&mut self, mut is_over: impl FnMut(&Notification, &mut Wait) -> bool) -> bool {
        let changed = self.queue.change_holds(&mut |notification, hold| {
            let Hold::Deferred { waits, .. } = hold else { return true };
            let mut is_ended = false;
            // Each is asked, as turns are counted.
            for wait in waits {
                is_ended |= is_over(notification, wait);
            }
            !is_ended
        });
        self.end_unanswered(changed)
    }

    /// Ends the holds whose time is over at `now`.
    pub(super) fn end_holds(&mut self, now: Timestamp) {
        let changed = self.queue.end_holds(now);
        self.end_unanswered(changed);
    }

    /// Ends what nobody answered; returns whether a notification has no hold left.
    fn end_unanswered(&mut self, changed: Changed) -> bool {
        changed.unanswered.into_iter().for_each(|entry| self.note_unanswered(entry));
        changed.is_released
    }

    /// The pending notifications, in delivery order.
    pub fn pending_notifications(&self) -> impl Iterator<Item = &Notification> {
        self.queue.in_order().into_iter().map(|entry| &*entry.notification)
    }

    /// Whether a notification of a subscriber that `is_its` selects is pending.
    pub fn has_pending_of(&self, is_its: impl Fn(&SubscriberId) -> bool) -> bool {
        self.queue.subscribers().any(is_its)
    }

    /// A pending notification.
    pub fn pending_notification(&self, id: &NotificationId) -> Option<&Notification> {
        self.queue.get(id).map(|entry| &*entry.notification)
    }

    /// The pending notifications with a hold that `is_wanted` selects.
    pub fn held_by(&self, is_wanted: impl Fn(&Hold) -> bool) -> Vec<NotificationId> {
        self.queue.held_by(&is_wanted)
    }

    /// Ends or holds a pending notification.
    pub fn suppress(&mut self, id: NotificationId, suppress: &Suppress) {
        match suppress {
            Suppress::End(reason) => {
                if let Some(entry) = self.queue.take(&id) {
                    self.end(&entry.notification, reason.clone());
                }
            }
            Suppress::Hold(holds) => self.queue.hold_one(&id, holds),
        }
    }

    /// Limits what a pending notification may do by itself.
    pub fn limit(&mut self, id: &NotificationId, level: Activation) {
        self.queue.limit(id, level);
    }

    /// Adds a hold to the pending notifications that `is_wanted` selects.
    pub fn hold(&mut self, is_wanted: impl Fn(&Notification) -> bool, hold: &Hold) {
        self.queue.hold(&|entry| is_wanted(&entry.notification), hold);
    }

    /// Ends the holds that `is_over` selects; returns whether a notification has none left.
    pub fn release_holds(&mut self, mut is_over: impl FnMut(&Notification, &Hold) -> bool) -> bool {
        if self.queue.len_held() == 0 {
            return false;
        }
        let changed = self.queue.change_holds(&mut |notification, hold| !is_over(notification, hold));
        self.end_unanswered(changed)
    }
}

/// Whether a notification is never postponed: it is critical.
pub(in crate::conversation) fn is_urgent(notification: &Notification) -> bool {
    notification.priority == Priority::Critical
}
