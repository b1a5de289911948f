//! The texts of the kinds of ledger entries, as used by the history and the API.

use serde::Deserialize;
use strum::IntoStaticStr;

use super::{LedgerEntry, Step};

impl_as_str!(EntryKind);

/// The kind of a ledger entry; each step of a notice to the user is a separate kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
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
