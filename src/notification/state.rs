//! How notifications are written in a snapshot; one that waits in many queues is written once.

use super::{InjectionPoint, Notification, NotificationId, Priority, SubscriberId, Tokens};
use crate::snapshot::{Shared, state};

state!(SubscriberId);
state!(NotificationId);
state!(Tokens);
state!(Priority[Low = 0, Normal = 1, High = 2, Critical = 3]);
state!(InjectionPoint[Immediate = 0, TurnStart = 1, BeforeTool = 2, AfterTool = 3, TurnEnd = 4]);
state!(Notification {
    id,
    subscriber,
    scope,
    priority,
    inject_at,
    severity,
    content,
    tokens,
    raw_bytes,
    events,
    created_at,
    expires_at,
});

impl Shared for Notification {}
