//! How notifications are written in a snapshot; one that waits in many queues is written once.

use super::{
    Activation, InjectionPoint, Interrupt, Notification, NotificationId, Priority, SubscriberId, Tokens,
};
use crate::snapshot::{Shared, state};

state!(SubscriberId);
state!(NotificationId);
state!(Tokens);
state!(Activation[Passive = 0, Prompt = 1, Active = 2]);
state!(Interrupt[InjectAndContinue = 0, CancelAndRestart = 1, QueueForNext = 2]);
state!(Priority[Low = 0, Normal = 1, High = 2, Critical = 3]);
state!(InjectionPoint[Immediate = 0, TurnStart = 1, BeforeTool = 2, AfterTool = 3, TurnEnd = 4]);
state!(Notification {
    id,
    subscriber,
    scope,
    priority,
    inject_at,
    activation,
    interrupt,
    severity,
    content,
    tokens,
    raw_bytes,
    events,
    created_at,
    expires_at,
});

impl Shared for Notification {}
