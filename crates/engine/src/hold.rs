//! Holds: what keeps a pending notification from being released, and what postpones one.
//!
//! A notification is releasable when it has no hold. A hold that ends by its time or with the
//! session's own exchanges is kept and ended by the queue; one of a subscriber or of a person is
//! ended by the engine. A critical notification of a trusted source has none, except for a silence
//! that names critical ones.

use std::{fmt, ops::Not, str::FromStr, sync::Arc, time::Duration};

use journal::time::{
    Timestamp,
    hours::{minutes, next_time_of_day},
    parse_duration,
    zone::Zone,
};
use serde::{Deserialize, Serialize};
use strum::{EnumDiscriminants, IntoStaticStr, VariantArray};

use crate::{
    budget::BudgetName,
    event::{Pattern, Seq},
    name::ShortName,
};

/// Most turns that a delay counts.
const TURNS_MAX: u32 = 1_000;
/// The longest delay by time.
const DELAY_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// Most things of which a delay waits for the first.
pub const WAITS_MAX: usize = 8;

/// What keeps a pending notification of a session from being released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, EnumDiscriminants)]
#[strum_discriminants(
    name(HoldKind),
    doc = "The kind of a hold.",
    derive(IntoStaticStr, VariantArray, PartialOrd, Ord),
    strum(serialize_all = "snake_case")
)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// The quiet hours of its subscriber, or of the session's user.
    Quiet {
        /// When they began, or when the queue took it.
        since: Timestamp,
        /// When they end.
        until: Timestamp,
        /// Whether they are the user's.
        #[serde(default, skip_serializing_if = "Not::not")]
        of_user: bool,
    },
    /// A delay.
    Deferred {
        /// When the queue took it.
        since: Timestamp,
        /// The first that comes true ends it.
        waits: Vec<Wait>,
        /// Who wants it.
        #[serde(default)]
        by: DelayedBy,
    },
    /// An agent or a user put it off.
    Snoozed {
        /// When.
        since: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// A silence; its notification is only about conditions.
    Silenced {
        /// When it began, or when the queue took it.
        since: Timestamp,
        /// The silence.
        by: SilenceId,
    },
    /// A budget has no room for it.
    Budget {
        /// Since when.
        since: Timestamp,
        /// The budget.
        of: BudgetName,
        /// When the budget has room for it, if a time gives room.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        until: Option<Timestamp>,
    },
    /// `inhibited_by`; its notification is only about conditions.
    Inhibited {
        /// When it began, or when the queue took it.
        since: Timestamp,
        /// The event that inhibits.
        by: Seq,
    },
}

impl_as_str!(HoldKind);

/// A delay of a notification that is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Postponed {
    /// Who wants it.
    pub by: DelayedBy,
    /// The first that comes true ends it.
    pub waits: Vec<Wait>,
}

/// Who delays a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelayedBy {
    /// `deliver_after` of its subscriber.
    #[default]
    Subscriber,
    /// `deliver_after` of its events.
    Event,
    /// It is a repetition, which `[repeat]` of its subscriber makes.
    Repetition,
    /// It was delivered for the last time, and ends if nobody answers.
    Answer,
}

/// What a delay waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// So many turns of the session begin.
    Turns(u32),
    /// A time.
    Until(Timestamp),
    /// A tool of this name has run; with `*` any whose name begins so.
    Tool(Arc<str>),
    /// An event that concerns the session.
    Event(Pattern),
    /// The session's context is used up to this share, in percent, as its harness reports it.
    Context(u8),
}

/// A delay as its author writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delay {
    /// From the time at which the notification is made.
    For(Duration),
    /// The next such local time, in minutes after midnight.
    TimeOfDay(u16),
    /// Anything that does not depend on the present time.
    Wait(Wait),
}

/// The delay that an event has for itself: the first of its items that comes true ends it.
///
/// Shape of the text: one delay, or up to [`WAITS_MAX`] with ` or ` between them, such as
/// `3 turns or 18:00`. One text, because an attribute of a CloudEvent is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDelay(Vec<Delay>);

impl FromStr for EventDelay {
    type Err = DelayError;

    fn from_str(text: &str) -> Result<Self, DelayError> {
        let delays: Vec<Delay> = text.split(" or ").map(str::parse).collect::<Result<_, _>>()?;
        if delays.len() > WAITS_MAX {
            return Err(DelayError(text.chars().take(60).collect()));
        }
        Ok(Self(delays))
    }
}

impl EventDelay {
    /// What it waits for, if it is counted from `now`.
    pub fn waits(&self, now: Timestamp, zone: &Zone) -> impl Iterator<Item = Wait> {
        self.0.iter().map(move |delay| delay.wait(now, zone))
    }
}

/// Why a text is not a delay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a delay")]
pub struct DelayError(pub String);

/// The forms of a delay.
pub const DELAY_FORMS: &str = "\"3 turns\", \"10m\", \"18:00\", a timestamp, \"tool:Bash\", \
     \"event:ci.**\" or \"context:80%\"";

impl FromStr for Delay {
    type Err = DelayError;

    fn from_str(text: &str) -> Result<Self, DelayError> {
        let text = text.trim();
        let wrong = || DelayError(text.chars().take(60).collect());
        let turns = text.strip_suffix(" turns").or_else(|| text.strip_suffix(" turn"));
        if let Some(turns) = turns {
            let count = turns.trim().parse().ok().filter(|count| (1..=TURNS_MAX).contains(count));
            return count.map(|count| Self::Wait(Wait::Turns(count))).ok_or_else(wrong);
        }
        if let Some(tool) = text.strip_prefix("tool:") {
            let is_name = !tool.is_empty() && !tool.trim_end_matches('*').contains(['*', ' ']);
            return is_name.then(|| Self::Wait(Wait::Tool(tool.into()))).ok_or_else(wrong);
        }
        if let Some(pattern) = text.strip_prefix("event:") {
            return pattern.parse().map(|pattern| Self::Wait(Wait::Event(pattern))).map_err(|_| wrong());
        }
        if let Some(share) = text.strip_prefix("context:") {
            let share = share.strip_suffix('%').and_then(|share| share.parse().ok());
            let share = share.filter(|share| (1..=100).contains(share));
            return share.map(|share| Self::Wait(Wait::Context(share))).ok_or_else(wrong);
        }
        if let Some(minutes) = minutes(text) {
            return Ok(Self::TimeOfDay(minutes));
        }
        if let Ok(at) = text.parse() {
            return Ok(Self::Wait(Wait::Until(at)));
        }
        parse_duration(text)
            .filter(|delay| *delay <= DELAY_MAX && !delay.is_zero())
            .map(Self::For)
            .ok_or_else(wrong)
    }
}

impl Delay {
    /// What it waits for, if it is counted from `now`.
    pub fn wait(&self, now: Timestamp, zone: &Zone) -> Wait {
        match self {
            Self::For(delay) => Wait::Until(now + *delay),
            Self::TimeOfDay(minutes) => Wait::Until(next_time_of_day(*minutes, now, |at| zone.offset(at))),
            Self::Wait(wait) => wait.clone(),
        }
    }
}

/// Whether a tool's name is meant by `wanted`: it, or with `*` at its end any name that begins so.
pub fn is_tool(wanted: &str, name: &str) -> bool {
    wanted.strip_suffix('*').map_or_else(|| wanted == name, |begin| name.starts_with(begin))
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turns(1) => f.write_str("1 turn"),
            Self::Turns(left) => write!(f, "{left} turns"),
            Self::Until(at) => at.fmt(f),
            Self::Tool(tool) => write!(f, "tool:{tool}"),
            Self::Event(pattern) => write!(f, "event:{}", pattern.as_str()),
            Self::Context(share) => write!(f, "context:{share}%"),
        }
    }
}

impl Hold {
    /// Its kind.
    pub fn kind(&self) -> HoldKind {
        self.into()
    }

    /// Whether it is for the same cause: of two holds of a suppression, one is enough.
    fn has_cause_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Silenced { by, .. }, Self::Silenced { by: other, .. }) => by == other,
            (Self::Inhibited { by, .. }, Self::Inhibited { by: other, .. }) => by == other,
            (own, other) => own == other,
        }
    }

    /// Whether it is that of a silence or an inhibition.
    pub const fn is_suppression(&self) -> bool {
        match self {
            Self::Silenced { .. } | Self::Inhibited { .. } => true,
            Self::Quiet { .. } | Self::Deferred { .. } | Self::Snoozed { .. } | Self::Budget { .. } => false,
        }
    }

    /// When it began.
    pub const fn since(&self) -> Timestamp {
        match self {
            Self::Quiet { since, .. }
            | Self::Deferred { since, .. }
            | Self::Snoozed { since, .. }
            | Self::Silenced { since, .. }
            | Self::Budget { since, .. }
            | Self::Inhibited { since, .. } => *since,
        }
    }

    /// The time at which it ends by itself, if it has one that its queue knows.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Self::Quiet { until, .. } | Self::Snoozed { until, .. } => Some(*until),
            Self::Deferred { waits, .. } => waits
                .iter()
                .filter_map(|wait| if let Wait::Until(at) = wait { Some(*at) } else { None })
                .min(),
            Self::Budget { until, .. } => *until,
            Self::Silenced { .. } | Self::Inhibited { .. } => None,
        }
    }
}

/// Adds the holds that are for a cause of their own.
pub fn add_holds(holds: &mut Vec<Hold>, new: impl IntoIterator<Item = Hold>) {
    for hold in new {
        if !holds.iter().any(|own| own.has_cause_of(&hold)) {
            holds.push(hold);
        }
    }
}

/// The id of a silence: `s` and 4 hexadecimal digits, or what its client names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SilenceId(ShortName<15>);

impl SilenceId {
    /// Wraps an id.
    pub fn new(id: &str) -> Self {
        Self(ShortName::new(id))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl fmt::Display for SilenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_a_delay_is_read() {
        let wait = |text: &str| {
            let now: Timestamp = "2026-11-28T12:00:00Z".parse().expect("a time");
            text.parse::<Delay>().map(|delay| delay.wait(now, &Zone::default()).to_string())
        };
        for (text, expected) in [
            ("3 turns", "3 turns"),
            ("1 turn", "1 turn"),
            ("10m", "2026-11-28T12:10:00Z"),
            ("12:00", "2026-11-29T12:00:00Z"),
            ("18:00", "2026-11-28T18:00:00Z"),
            ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00Z"),
            ("tool:Bash", "tool:Bash"),
            ("tool:mcp__*", "tool:mcp__*"),
            ("event:ci.**", "event:ci.**"),
            ("context:80%", "context:80%"),
        ] {
            assert_eq!(wait(text).as_deref(), Ok(expected), "{text}");
        }
        for text in
            ["0 turns", "turns", "0s", "40d", "tool:", "tool:*a", "event:", "context:0%", "context:80", "x"]
        {
            assert_eq!(wait(text), Err(DelayError(text.into())), "{text}");
        }
    }
}
