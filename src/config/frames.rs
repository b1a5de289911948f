//! The share of the limits of an injection that its frame takes, for any format of a harness.

use std::sync::Arc;

use engine::{
    event::{Scope, Severity},
    exchange::{Format, InjectionId, Replaces},
    format::{Item, Overflow, write},
    notification::{
        Activation, InjectionPoint, Interrupt, Nature, Notification, NotificationId, Priority, SubscriberId,
        Tokens,
    },
};
use journal::time::Timestamp;
use strum::VariantArray;
use toon::tokens;

/// The shortest possible content; the rest of the text is the frame.
const CONTENT: &str = "x: 1";

/// The text around one notification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// The format of the injection.
    pub(crate) format: Format,
    /// Its characters.
    pub(crate) chars: u32,
    /// Its estimated tokens.
    pub(crate) tokens: Tokens,
}

/// The frames of all formats.
pub(crate) fn frames() -> Vec<Frame> {
    let notification = Arc::new(shortest());
    let items = [Item { notification: &notification, redelivered: false, cut: None }];
    let chars = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    let frame = |format: Format| {
        let text =
            write(format, &InjectionId::new("abcdef"), &items, &Overflow::default(), Replaces::Nothing);
        let content = tokens::estimate(CONTENT).0;
        Frame {
            format,
            chars: chars(&text).saturating_sub(chars(CONTENT)),
            tokens: Tokens(tokens::estimate(&text).0.saturating_sub(content)),
        }
    };
    Format::VARIANTS.iter().copied().map(frame).collect()
}

fn shortest() -> Notification {
    Notification {
        id: NotificationId::new("n0"),
        subscriber: SubscriberId::new("background_task"),
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
        content: CONTENT.into(),
        sentences: Vec::new(),
        tokens: tokens::estimate(CONTENT),
        raw_bytes: 0,
        states: Vec::new(),
        unresolved: Vec::new(),
        events: Vec::new(),
        created_at: Timestamp::ZERO,
        expires_at: None,
    }
}
