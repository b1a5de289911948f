//! Invented notifications, to measure what a format costs.

use journal::time::Timestamp;
use toon::tokens;

use crate::{
    event::{Scope, Severity},
    notification::{
        Activation, InjectionPoint, Interrupt, Nature, Notification, NotificationId, Priority, RegionUse,
        SubscriberId,
    },
};

/// Two usual notifications, which come in runs: a subscriber, and a content.
const USUAL: [(&str, &str); 2] = [
    ("tool_failure", "tool_fail: grep timeout\nerror: took 30 s"),
    ("background_task", "task_completed: cargo test\nexit_code: 0\nduration_ms: 91000"),
];

/// Usual notifications: a subscriber and a content each.
pub(super) fn usual(count: usize) -> Vec<(&'static str, &'static str)> {
    (0..count).filter_map(|n| USUAL.get(n * USUAL.len() / count).copied()).collect()
}

/// A notification with this content.
pub(super) fn notification(subscriber: &str, content: &str) -> Notification {
    Notification {
        id: NotificationId::new("n0"),
        subscriber: SubscriberId::new(subscriber),
        scope: Scope::All,
        priority: Priority::High,
        inject_at: InjectionPoint::AfterTool,
        activation: Activation::Passive,
        is_asked: false,
        interrupt: Interrupt::InjectAndContinue,
        nature: Nature::default(),
        untrusted_source: None,
        rows_name_sources: false,
        severity: Severity::Warning,
        content: content.into(),
        sentences: Vec::new(),
        tokens: tokens::estimate(content),
        raw_bytes: 0,
        states: Vec::new(),
        unresolved: Vec::new(),
        events: Vec::new(),
        created_at: Timestamp::ZERO,
        expires_at: None,
        delays: Box::default(),
        retain_until: None,
        requires_response: false,
        repeat: None,
        region: RegionUse::Also,
        charged_to: Box::default(),
        summarised: None,
    }
}
