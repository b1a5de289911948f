//! The words of the kinds of ledger entries, as the history and the API have them.

use serde::Deserialize;

use super::{LedgerEntry, Step};

/// The kind of a ledger entry; each step of a notice to the user is one of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "`LedgerEntry` and `Step` describe them")]
pub enum What {
    Unmatched,
    HeldBack,
    Batched,
    EventEnded,
    Created,
    Unclaimed,
    Queued,
    Injected,
    Confirmed,
    Returned,
    Recalled,
    NotificationEnded,
    UserQueued,
    UserSent,
    UserFailed,
    UserWaits,
    UserEnded,
    UserSuppressed,
}

impl What {
    /// The kind's word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unmatched => "unmatched",
            Self::HeldBack => "held_back",
            Self::Batched => "batched",
            Self::EventEnded => "event_ended",
            Self::Created => "created",
            Self::Unclaimed => "unclaimed",
            Self::Queued => "queued",
            Self::Injected => "injected",
            Self::Confirmed => "confirmed",
            Self::Returned => "returned",
            Self::Recalled => "recalled",
            Self::NotificationEnded => "notification_ended",
            Self::UserQueued => "user_queued",
            Self::UserSent => "user_sent",
            Self::UserFailed => "user_failed",
            Self::UserWaits => "user_waits",
            Self::UserEnded => "user_ended",
            Self::UserSuppressed => "user_suppressed",
        }
    }
}

impl LedgerEntry {
    /// Its kind.
    pub const fn what(&self) -> What {
        match self {
            Self::Unmatched { .. } => What::Unmatched,
            Self::HeldBack { .. } => What::HeldBack,
            Self::Batched { .. } => What::Batched,
            Self::EventEnded { .. } => What::EventEnded,
            Self::Created { .. } => What::Created,
            Self::Unclaimed { .. } => What::Unclaimed,
            Self::Queued { .. } => What::Queued,
            Self::Injected { .. } => What::Injected,
            Self::Confirmed { .. } => What::Confirmed,
            Self::Returned { .. } => What::Returned,
            Self::Recalled { .. } => What::Recalled,
            Self::NotificationEnded { .. } => What::NotificationEnded,
            Self::ForUser { step, .. } => match step {
                Step::Queued(_) => What::UserQueued,
                Step::Sent(..) => What::UserSent,
                Step::Failed { .. } => What::UserFailed,
                Step::Waits { .. } => What::UserWaits,
                Step::Ended(..) => What::UserEnded,
                Step::Suppressed(_) => What::UserSuppressed,
            },
        }
    }
}
