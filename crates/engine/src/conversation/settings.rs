//! The settings of sessions and of their injections.

use std::time::Duration;

use crate::{
    exchange::Format,
    notification::{Priority, Tokens},
};

/// Most notifications in all queues together, unless configured: at some 550 bytes each 220 MB, and
/// as much again while the history folds the journal with an engine of its own. With the servers'
/// memory that stays within the 1 GB that the installed unit allows the daemon.
pub const PENDING_MAX: u32 = 400_000;

/// All settings of sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// `[injection]` of `aside.toml`.
    pub injection: InjectionSettings,
    /// `[sessions]` of `aside.toml`.
    pub sessions: SessionSettings,
    /// The least priority that wakes an idle session.
    pub wake_threshold: Priority,
}

/// The limits of one injection, and its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectionSettings {
    /// Most notifications (10 unless set).
    pub max_notifications: u32,
    /// Most estimated tokens, wrapper included (800 unless set).
    pub max_tokens: Tokens,
    /// Most characters, wrapper included (8,000 unless set).
    pub max_chars: u32,
    /// The format if the exchange has none.
    pub format: Format,
    /// How long a released injection may stay unconfirmed.
    pub lease: Duration,
    /// Whether the user sees a line about each delivery, where the harness can show one.
    pub delivery_notice: bool,
}

impl InjectionSettings {
    /// The settings of an empty `[injection]`.
    pub const DEFAULT: Self = Self {
        max_notifications: 10,
        max_tokens: Tokens(800),
        max_chars: 8_000,
        format: Format::Xml,
        lease: Duration::from_secs(15 * 60),
        delivery_notice: true,
    };
}

/// How long sessions and their notifications are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// Most notifications in one session's queue.
    pub queue_len_max: u32,
    /// Most notifications in all queues together.
    pub pending_max: u32,
    /// How long a silent session stays open.
    pub idle_close: Duration,
    /// How long a notification without a `ttl` waits for a session to open.
    pub unclaimed_ttl: Duration,
}

impl SessionSettings {
    /// The settings of an empty `[sessions]`.
    pub const DEFAULT: Self = {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self { queue_len_max: 1_000, pending_max: PENDING_MAX, idle_close: DAY, unclaimed_ttl: DAY }
    };
}
