//! The settings of sessions and of their injections.

use std::{ops::RangeInclusive, time::Duration};

use crate::{
    exchange::Format,
    notification::{Priority, Tokens},
    settings::{Keys, settings},
};

/// Most notifications in all queues together, unless configured: at some 550 bytes each 220 MB, and
/// as much again while the history folds the journal with an engine of its own. With the servers'
/// memory that stays within the 1 GB that the installed unit allows the daemon.
pub const PENDING_MAX: u32 = 400_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);
/// Shortest and longest time for which sessions and their pending notifications are kept.
const KEEP_LIMITS: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(30 * 24 * 3_600);

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

settings! {
    /// One injection is the text that one hook adds to the context of an agent.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct InjectionSettings from impl Keys {
        /// Most notifications in one injection.
        max_notifications: u32 = 10, number(1..=100);
        /// Most tokens of one injection, its wrapper included; the number is estimated.
        max_tokens: Tokens = Tokens(800), number(Tokens(100)..=Tokens(20_000));
        /// Most characters of one injection, its wrapper included. Some clients cut the output of a
        /// hook at 10,000.
        max_chars: u32 = 8_000, number(400..=100_000);
        /// The format of an injection, unless the client asks for another one.
        format: Format = Format::Xml, word();
        /// An injection that its client does not confirm within this time counts as lost. The time
        /// covers tools that run long.
        lease: Duration = Duration::from_secs(15 * 60), duration(Duration::from_secs(1)..=DAY);
        /// Shows the user one line about each delivery, such as "aside: 2 tool failures, 1 file
        /// change", if the client can show one and not all notifications have low priority.
        delivery_notice: bool = true, flag();
    }
}

settings! {
    /// Sessions and their queues.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct SessionSettings from impl Keys {
        /// Most notifications that wait for one session. Beyond it, the least important one is
        /// evicted and counted.
        queue_len_max: u32 = 1_000, number(10..=100_000);
        /// Most notifications that wait in all queues together. Each takes some 550 bytes, twice
        /// while the history is rebuilt; the systemd unit allows the daemon 1 GB in all. Beyond it,
        /// the least important notification of the longest queue is evicted and counted.
        pending_max: u32 = PENDING_MAX, number(1_000..=10_000_000);
        /// A session is closed after this time without activity.
        idle_close: Duration = DAY, duration(KEEP_LIMITS);
        /// How long a notification without a `ttl` waits for a session that is not open yet.
        unclaimed_ttl: Duration = DAY, duration(KEEP_LIMITS);
    }
}
