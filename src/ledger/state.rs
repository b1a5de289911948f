//! How the ledger's entries are written in a snapshot.

use super::{ConfirmedBy, FilteredBy, HeldBackBy, LedgerEntry, Reason};
use crate::snapshot::state;

state!(FilteredBy[Source = 0, Severity = 1, Where = 2, WhereFailed = 3]);
state!(HeldBackBy[Causes = 0, SourceRate = 1]);
state!(ConfirmedBy[Ack = 0, LaterExchange = 1, Seen = 2]);
state!(Reason[
    FilteredOut(by) = 0,
    Duplicate { of } = 1,
    RateLimited { retry_at } = 2,
    Expired = 3,
    QueueOverflow = 4,
    SessionGone = 5,
    Uncertain = 6,
    SubscriberOff = 7,
    Dismissed = 8,
]);
state!(LedgerEntry[
    Unmatched { seq } = 0,
    HeldBack { seq, by } = 1,
    Batched { seq, subscriber } = 2,
    EventEnded { seq, subscriber, reason } = 3,
    Created { notification, subscriber, events, created_at } = 4,
    Unclaimed { notification } = 5,
    Queued { notification, session } = 6,
    Injected { notification, session, injection, point, redelivered } = 7,
    Confirmed { notification, session, by } = 8,
    Returned { notification, session } = 9,
    NotificationEnded { notification, session, reason } = 10,
    Recalled { notification, session } = 11,
]);
