//! The rules of the engine: every subscriber, every template, and the limits of an injection.
//!
//! Built by `config::compile` and immutable: a reload builds new ones, which arrive as an input.

pub mod outside;

use std::{sync::Arc, time::Duration};

use crate::{
    detector,
    exchange::Format,
    notification::Tokens,
    pipeline::{
        activation::WakeSettings,
        render::Templates,
        rule::{Rate, Subscriber},
    },
    probe, sink,
};

/// One generation of rules.
#[derive(Debug, Clone)]
pub struct CompiledRules {
    /// Identifies the source of the rules: lower-case hex of its SHA-256.
    pub hash: Arc<str>,
    /// Sorted by unique id; includes disabled ones.
    pub subscribers: Vec<Arc<Subscriber>>,
    /// Every template that a subscriber names.
    pub templates: Arc<Templates>,
    /// `[injection]` of `aside.toml`.
    pub injection: InjectionSettings,
    /// `[sessions]` of `aside.toml`.
    pub sessions: SessionSettings,
    /// `[sources]` of `aside.toml`.
    pub sources: SourceSettings,
    /// The tables of `[sources]` for detectors.
    pub detectors: detector::Settings,
    /// The tables of `[sources]` for probes.
    pub probes: Arc<probe::Settings>,
    /// The tables of `[sources]` for sources that wait for something outside.
    pub outside: Arc<outside::Settings>,
    /// Whether `[webhooks]` has a sender.
    pub takes_webhooks: bool,
    /// `[sinks]` of `aside.toml`.
    pub sinks: Arc<sink::Settings>,
    /// `[activation]` of `aside.toml`; every subscriber has it too.
    pub wake: Arc<WakeSettings>,
}

/// Most notifications in all queues together, unless configured: at some 550 bytes each 220 MB, and
/// as much again while the history folds the journal with an engine of its own. With the servers'
/// memory that stays within the 1 GB that the installed unit allows the daemon.
pub const PENDING_MAX: u32 = 400_000;

impl CompiledRules {
    /// Rules without subscribers: in force before the journal's first record.
    pub fn none() -> Self {
        const DAY: Duration = Duration::from_secs(24 * 60 * 60);
        Self {
            hash: "".into(),
            subscribers: Vec::new(),
            templates: Arc::new(Templates::new()),
            injection: InjectionSettings {
                max_notifications: 10,
                max_tokens: Tokens(800),
                max_chars: 8_000,
                format: Format::Xml,
                lease: Duration::from_secs(15 * 60),
                delivery_notice: true,
            },
            sessions: SessionSettings {
                queue_len_max: 1_000,
                pending_max: PENDING_MAX,
                idle_close: DAY,
                unclaimed_ttl: DAY,
            },
            sources: SourceSettings { rate: None, remote_rate: None },
            detectors: detector::Settings::default(),
            probes: Arc::default(),
            outside: Arc::default(),
            takes_webhooks: false,
            sinks: Arc::default(),
            wake: Arc::default(),
        }
    }
}

/// How many events of one source are dispatched per period; more are journaled and counted only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSettings {
    /// For any source; `None` for no limit.
    pub rate: Option<Rate>,
    /// For an untrusted source of remote events, instead of `rate`.
    pub remote_rate: Option<Rate>,
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
    /// The format when the exchange does not give one.
    pub format: Format,
    /// How long a released injection may stay unconfirmed.
    pub lease: Duration,
    /// Whether the user sees a line about each delivery, where the harness can show one.
    pub delivery_notice: bool,
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
