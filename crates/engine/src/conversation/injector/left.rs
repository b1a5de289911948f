//! A notification that a session left, with its state there.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{exchange::InjectionId, notification::Notification};

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
