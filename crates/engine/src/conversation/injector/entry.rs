//! A notification of a session: its place in the queue, its form when an exchange may release it, and
//! its form after the session left it.

use std::{cmp::Reverse, ops::Not, sync::Arc};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    exchange::{InjectionId, Released},
    hold::{DelayedBy, Hold, HoldKind, Wait},
    ledger::Redelivered,
    notification::{Activation, Cut, InjectionPoint, Interrupt, Notification, Priority},
    snapshot,
};

/// Notifications that are released together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lane {
    pub(super) urgency: Reverse<Priority>,
    pub(super) readiness: Readiness,
    pub(super) inject_at: InjectionPoint,
}

impl Lane {
    /// Whether its notifications wait for an exchange alone.
    pub(super) fn is_for_agent(self) -> bool {
        !matches!(self.readiness, Readiness::User | Readiness::Held)
    }
}

/// The reason that delays a notification besides its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Readiness {
    /// Nothing, and it may cancel the current step.
    Cancels,
    /// Nothing.
    Free,
    /// Nothing, and the user wants it delivered, so it wakes an idle agent.
    Asked,
    /// It is critical and waits for the next turn.
    NextTurn,
    /// The user decides whether it is delivered.
    User,
    /// It has a hold.
    Held,
}

/// The position of a notification in the queue: its lane, then oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) lane: Lane,
    pub(super) age: Age,
}

/// The age of a notification: by creation, then by arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Age {
    created_at: Timestamp,
    arrival: u64,
}

impl Age {
    pub(super) const OLDEST: Self = Self { created_at: Timestamp::ZERO, arrival: 0 };
    pub(super) const NEWEST: Self = Self { created_at: Timestamp::from_millis(u64::MAX), arrival: u64::MAX };
}

impl Key {
    pub(super) const FIRST: Self = Self {
        lane: Lane {
            urgency: Reverse(Priority::Critical),
            readiness: Readiness::Cancels,
            inject_at: InjectionPoint::Immediate,
        },
        age: Age::OLDEST,
    };

    /// The delivery order: priority, then age, in any lane.
    pub(super) fn rank(self) -> (Reverse<Priority>, Age) {
        (self.lane.urgency, self.age)
    }
}

/// A pending or leased notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(with = "snapshot::shared")]
    pub(super) notification: Arc<Notification>,
    /// The earlier injection that released it and was not confirmed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) returned_from: Option<InjectionId>,
    /// Whether it was delivered in a context that is gone.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_recalled: bool,
    /// Whether it already cancelled a tool call, which it may once.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) has_cancelled: bool,
    /// The user wants it delivered to the agent.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_released_by_user: bool,
    /// It was shown to the user as waiting.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_shown: bool,
    /// Another session is woken for it.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_quiet: bool,
    /// The most that it may do by itself for the session's user; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) level: Option<Activation>,
    /// The number of its repetition; 0 for its first delivery.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) reminder: u32,
    /// How many of its deliveries are no repetitions of its rule, as a snooze made them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) put_off: u8,
    /// How often it was snoozed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) snoozes: u8,
    /// It was answered on its way: it is not repeated.
    #[serde(default, skip_serializing_if = "Not::not")]
    pub(super) is_answered: bool,
    /// When a budget had no room for it for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) short_since: Option<Timestamp>,
    /// What keeps it from being released.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) holds: Vec<Hold>,
    /// Its order within its age, kept when it returns.
    pub(super) arrival: u64,
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

impl Entry {
    /// Whether it was delivered before, and comes again.
    pub(super) fn is_repeated(&self) -> bool {
        self.reminder > 0
    }

    pub(super) fn key(&self) -> Key {
        let (urgency, inject_at) = (Reverse(self.notification.priority), self.notification.inject_at);
        Key {
            lane: Lane { urgency, readiness: self.readiness(), inject_at },
            age: Age { created_at: self.notification.created_at, arrival: self.arrival },
        }
    }

    /// What it does by itself in this queue; a critical one is not limited.
    fn activation(&self) -> Activation {
        let own = self.notification.activation;
        match self.level {
            Some(level) if self.notification.priority < Priority::Critical => own.min(level),
            Some(_) | None => own,
        }
    }

    pub(super) fn readiness(&self) -> Readiness {
        let notification = &self.notification;
        if !self.holds.is_empty() {
            return Readiness::Held;
        }
        if self.activation() == Activation::Prompt {
            match (self.is_released_by_user, self.is_recalled) {
                (false, _) => return Readiness::User,
                (true, false) => return Readiness::Asked,
                // A delivered notification needs no second request.
                (true, true) => {}
            }
        }
        match (notification.priority, notification.interrupt) {
            (Priority::Critical, Interrupt::CancelAndRestart) => Readiness::Cancels,
            (Priority::Critical, Interrupt::QueueForNext) => Readiness::NextTurn,
            (Priority::Critical, Interrupt::InjectAndContinue) => Readiness::Free,
            (Priority::Low | Priority::Normal | Priority::High, _) => Readiness::Free,
        }
    }

    /// Whether it waits for the user's decision.
    pub(super) fn is_for_user(&self) -> bool {
        self.readiness() == Readiness::User
    }

    /// Whether it wakes the agent, given enough priority or a user's request.
    pub(super) fn is_active(&self) -> bool {
        match self.readiness() {
            Readiness::Held => false,
            Readiness::Asked => true,
            Readiness::Cancels | Readiness::Free | Readiness::NextTurn | Readiness::User => {
                self.activation() == Activation::Active
            }
        }
    }

    /// Whether somebody put it off.
    pub(super) fn is_snoozed(&self) -> bool {
        self.holds.iter().any(|hold| matches!(hold, Hold::Snoozed { .. }))
    }

    /// Whether it was delivered for the last time, and waits for an answer alone.
    pub(super) fn waits_for_answer(&self) -> bool {
        self.holds.iter().any(|hold| matches!(hold, Hold::Deferred { by: DelayedBy::Answer, .. }))
    }

    /// When the first of its holds ends by its time.
    pub(super) fn held_until(&self) -> Option<Timestamp> {
        self.holds.iter().filter_map(Hold::until).min()
    }

    /// Whether one of its holds ends with an event.
    pub(super) fn waits_for_event(&self) -> bool {
        self.holds.iter().any(|hold| match hold {
            Hold::Deferred { waits, .. } => {
                waits.iter().any(|wait| matches!(wait, Wait::Event(_) | Wait::Context(_)))
            }
            Hold::Quiet { .. }
            | Hold::Snoozed { .. }
            | Hold::Silenced { .. }
            | Hold::Inhibited { .. }
            | Hold::Budget { .. } => false,
        })
    }

    /// Whether it has a hold, and that of budgets alone.
    pub(super) fn waits_for_budget(&self) -> bool {
        !self.holds.is_empty() && self.holds.iter().all(|hold| hold.kind() == HoldKind::Budget)
    }

    /// Why it is redelivered; `None` when it was not delivered before.
    pub(super) fn redelivered(&self) -> Option<Redelivered> {
        match self.returned_from {
            Some(_) => Some(Redelivered::Unconfirmed),
            None => self.is_recalled.then_some(Redelivered::ContextLost),
        }
    }
}

/// A notification that could be released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The notification.
    pub notification: Arc<Notification>,
    /// Why it is redelivered, if it may have been delivered before.
    pub redelivered: Option<Redelivered>,
    /// Whether it already cancelled a tool call.
    pub has_cancelled: bool,
    /// The part that fits; `None` for all of it.
    pub cut: Option<Cut>,
    /// The number of its repetition; 0 for its first delivery.
    pub reminder: u32,
}

/// An entry as it is offered.
pub(super) fn candidate(entry: &Entry) -> Candidate {
    Candidate {
        notification: entry.notification.clone(),
        redelivered: entry.redelivered(),
        has_cancelled: entry.has_cancelled,
        cut: None,
        reminder: entry.reminder,
    }
}

/// An entry as it is released.
pub(super) fn released(entry: &Entry) -> Released {
    let notification = &entry.notification;
    Released {
        id: notification.id,
        subscriber: notification.subscriber.clone(),
        priority: notification.priority,
        severity: notification.severity,
        redelivered: entry.redelivered().is_some(),
        tokens: notification.tokens,
        first_event: notification.events.iter().min().copied(),
    }
}

/// A notification that a session left without a confirmation that it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// The notification.
    pub notification: Arc<Notification>,
    /// Its state there.
    pub marks: Marks,
}

/// The state of a notification in its previous queue, kept if the same conversation continues.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks {
    /// Whether it may have been delivered.
    pub earlier: Earlier,
    /// It cancelled a tool call, which it may once.
    pub(super) has_cancelled: bool,
    /// The user wants it delivered to the agent.
    pub(super) is_released_by_user: bool,
    /// It was shown to the user as waiting.
    pub(super) is_shown: bool,
    /// Another session is woken for it.
    pub(super) is_quiet: bool,
    /// The most that it may do by itself there.
    pub(super) level: Option<Activation>,
    /// The number of its repetition there.
    pub(super) reminder: u32,
    /// How many of its deliveries a snooze made there.
    pub(super) put_off: u8,
    /// How often it was snoozed there.
    pub(super) snoozes: u8,
    /// Its holds there; `None` for those of a queue that takes it for the first time.
    pub(in crate::conversation) holds: Option<Vec<Hold>>,
}

/// Whether a notification may have been delivered before, in a session that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Earlier {
    /// It was not released, or is known not to have arrived.
    #[default]
    Not,
    /// Possibly, into a context that is gone.
    Perhaps,
    /// Possibly, by this injection, which can still be confirmed.
    By(InjectionId),
}

impl Left {
    /// A notification for another agent: it cancelled no call there, and the user decided nothing.
    pub fn for_another(notification: Arc<Notification>, earlier: Earlier) -> Self {
        Self { notification, marks: Marks { earlier, ..Marks::default() } }
    }

    /// Converts a notification that waited here to one for another agent.
    pub fn to_another(self) -> Self {
        Self::for_another(self.notification, self.marks.earlier)
    }
}
