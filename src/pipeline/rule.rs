//! What a subscriber's file says, in types that cannot be wrong.
//!
//! `config` makes these; a pipeline is one of them running. Nothing here knows TOML or files.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use crate::{
    event::{FieldPath, Pattern, Severity},
    notification::{Activation, Audience, InjectionPoint, Interrupt, Priority, SubscriberId, Tokens},
    pipeline::{activation::WakeSettings, condition::Condition, render::Layout},
};

/// One subscriber, compiled.
#[derive(Debug)]
pub struct Subscriber {
    /// Unique name.
    pub id: SubscriberId,
    /// Name for people.
    pub name: String,
    /// What it is for, for people.
    pub description: String,
    /// The author's version of the file.
    pub version: String,
    /// Whether it can be switched off, and whether it is.
    pub activity: Activity,
    /// The event types it asks for; at least one.
    pub types: Vec<Pattern>,
    /// The sources it listens to; all if empty.
    pub sources: Vec<String>,
    /// The least severity that passes.
    pub severity_min: Severity,
    /// `where`.
    pub condition: Option<Condition>,
    /// How events are collected.
    pub batching: Batching,
    /// What is a repeat, and for how long.
    pub dedupe: Option<DedupeRule>,
    /// How many events may pass in a time.
    pub rate: Option<Rate>,
    /// How long a notification stays worth telling.
    pub ttl: Option<Duration>,
    /// The fields that name a state: a newer event about it replaces an older one that is pending.
    /// None does if this is empty.
    pub supersede_key: Vec<FieldPath>,
    /// What ends a condition that an event gives; each event is an occurrence if there is none.
    pub resolve: Option<ResolveRule>,
    /// What becomes of a batch.
    pub output: OutputRule,
    /// What the user allows notifications to do by themselves; the same for all subscribers.
    pub wake: Arc<WakeSettings>,
}

/// Whether a subscriber runs. A core one has no off state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Always runs.
    Core,
    /// Runs, and can be switched off.
    Enabled,
    /// Switched off.
    Disabled,
}

/// How events are collected into one notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batching {
    /// Zero closes a batch at once.
    pub window: Duration,
    /// A batch of this many rows closes at once.
    pub max_size: NonZeroU32,
    /// What an event does to an open window.
    pub mode: BatchMode,
    /// One batch for each value of these; one batch for all if empty.
    pub group_by: Vec<FieldPath>,
}

impl Batching {
    /// Whether an event waits for others.
    pub(crate) fn collects(&self) -> bool {
        !self.window.is_zero() && self.max_size > NonZeroU32::MIN
    }
}

/// What an event does to an open window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchMode {
    /// Nothing: the window counts from the first event.
    Window,
    /// It restarts it, until `max_wait` after the first event.
    Debounce {
        /// The longest a batch stays open.
        max_wait: Duration,
    },
}

/// What makes an event a repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeRule {
    /// The fields whose values, joined, are the key. An event's own `dedupe_key` goes before.
    pub key: Vec<FieldPath>,
    /// How long after the first one an equal key is a repeat; never zero.
    pub window: Duration,
    /// Which of equal events a row shows.
    pub keep: Keep,
}

/// What ends a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRule {
    /// The event types that do; at least one. An event of one of them gives no condition itself.
    pub by: Vec<Pattern>,
    /// The fields in which such an event equals the one that gave the condition; all conditions end
    /// if this is empty.
    pub equal: Vec<FieldPath>,
}

/// Which of equal events a row shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Keep {
    /// The first. A repeat is counted, also when the row has left.
    #[default]
    First,
    /// The newest, in the place of the first. When the row has left, the next one is a row of its
    /// own.
    Newest,
}

impl Keep {
    /// Both.
    pub const ALL: [Self; 2] = [Self::First, Self::Newest];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Newest => "newest",
        }
    }
}

/// So many in such a time, as a token bucket that starts full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The bucket's size, and what flows in during `per`.
    pub count: NonZeroU32,
    /// Never zero.
    pub per: Duration,
}

/// What becomes of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputRule {
    /// How urgent its notifications are.
    pub priority: Priority,
    /// Where they may enter the context.
    pub inject_at: InjectionPoint,
    /// What they may do by themselves while they wait.
    pub activation: Activation,
    /// What critical ones do to a turn that is under way.
    pub interrupt: Interrupt,
    /// An event this severe makes its notification critical and immediate, past any batch.
    pub escalate_at: Option<Severity>,
    /// How a batch becomes its text.
    pub layout: Layout,
    /// The most a notification may hold; rows beyond it are counted instead.
    pub max_tokens: Tokens,
    /// Whom its notifications are for.
    pub audience: Audience,
}
