//! The texts of the kinds of ledger entries, as used by the history and the API.

use serde::Deserialize;

use super::{LedgerEntry, Step};

/// The kind of a ledger entry; each step of a notice to the user is a separate kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "`LedgerEntry` and `Step` describe them")]
pub enum EntryKind {
    Unmatched,
    Throttled,
    Skipped,
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

impl EntryKind {
    /// The kind's text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unmatched => "unmatched",
            Self::Throttled => "throttled",
            Self::Skipped => "skipped",
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
    /// The entry's kind.
    pub const fn kind(&self) -> EntryKind {
        match self {
            Self::Unmatched { .. } => EntryKind::Unmatched,
            Self::Throttled { .. } => EntryKind::Throttled,
            Self::Skipped { .. } => EntryKind::Skipped,
            Self::Batched { .. } => EntryKind::Batched,
            Self::EventEnded { .. } => EntryKind::EventEnded,
            Self::Created { .. } => EntryKind::Created,
            Self::Unclaimed { .. } => EntryKind::Unclaimed,
            Self::Queued { .. } => EntryKind::Queued,
            Self::Injected { .. } => EntryKind::Injected,
            Self::Confirmed { .. } => EntryKind::Confirmed,
            Self::Returned { .. } => EntryKind::Returned,
            Self::Recalled { .. } => EntryKind::Recalled,
            Self::NotificationEnded { .. } => EntryKind::NotificationEnded,
            Self::ForUser { step, .. } => match step {
                Step::Queued(_) => EntryKind::UserQueued,
                Step::Sent(..) => EntryKind::UserSent,
                Step::Failed { .. } => EntryKind::UserFailed,
                Step::Waits { .. } => EntryKind::UserWaits,
                Step::Ended(..) => EntryKind::UserEnded,
                Step::Suppressed(_) => EntryKind::UserSuppressed,
            },
        }
    }
}
