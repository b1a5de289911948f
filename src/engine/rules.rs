//! The rules the engine runs by: every subscriber, every template, and the limits of an injection.
//!
//! Made by `config::compile`, never changed in place: a reload makes new ones and hands them in as an input.

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
    /// Names the content the rules were compiled from: lower-case hex of its SHA-256.
    pub hash: Arc<str>,
    /// Sorted by id, ids unique, switched-off ones included.
    pub subscribers: Vec<Arc<Subscriber>>,
    /// Every template that a subscriber names.
    pub templates: Arc<Templates>,
    /// `[injection]` of `aside.toml`.
    pub injection: InjectionSettings,
    /// `[sessions]` of `aside.toml`.
    pub sessions: SessionSettings,
    /// `[sources]` of `aside.toml`.
    pub sources: SourceSettings,
    /// The tables of `[sources]` that are about detectors.
    pub detectors: detector::Settings,
    /// The tables of `[sources]` that are about probes.
    pub probes: Arc<probe::Settings>,
    /// The tables of `[sources]` that are about what waits for something outside.
    pub outside: Arc<outside::Settings>,
    /// Whether `[webhooks]` lets anybody send.
    pub takes_webhooks: bool,
    /// `[sinks]` of `aside.toml`.
    pub sinks: Arc<sink::Settings>,
    /// `[activation]` of `aside.toml`; every subscriber has it too.
    pub wake: Arc<WakeSettings>,
}

/// Most notifications that wait in all queues together, unless the configuration says otherwise: at some 550 bytes each 220 MB, and as much
/// again while the history folds the journal with an engine of its own. With what the servers may hold that stays within the
/// 1 GB that the installed unit allows the daemon.
pub const PENDING_MAX: u32 = 400_000;

impl CompiledRules {
    /// No subscriber at all: what holds before the journal's first record says otherwise.
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

/// How many events of one source are dispatched in a time; what is over it is kept and counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSettings {
    /// Of any source; `None` when there is no limit.
    pub rate: Option<Rate>,
    /// Of a source whose events came from elsewhere and that is not trusted, in place of `rate`.
    pub remote_rate: Option<Rate>,
}

/// What one injection may hold, and how long it is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectionSettings {
    /// Most notifications (10 unless set).
    pub max_notifications: u32,
    /// Most estimated tokens, wrapper included (800 unless set).
    pub max_tokens: Tokens,
    /// Most characters, wrapper included (8,000 unless set).
    pub max_chars: u32,
    /// How an injection is written when the exchange does not say.
    pub format: Format,
    /// How long a released injection may stay unconfirmed.
    pub lease: Duration,
    /// Whether the user is shown a line about what was delivered, where the harness can show one.
    pub delivery_notice: bool,
}

/// How long sessions and what waits for them are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionSettings {
    /// Most notifications in one session's queue.
    pub queue_len_max: u32,
    /// Most notifications in all queues together.
    pub pending_max: u32,
    /// A session that has been silent for this long is closed.
    pub idle_close: Duration,
    /// How long a notification without a `ttl` waits for a session that is not open yet.
    pub unclaimed_ttl: Duration,
}
