//! Repetitions of what nobody has answered, and the answers of agents and users.

use std::{sync::Arc, time::Duration};

use journal::time::{Timestamp, duration_millis};
use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use super::priority::Priority;
use crate::hold::Wait;

/// Most repetitions of a notification.
pub const REPEATS_MAX: u32 = 10;
/// The longest time of a snooze.
pub const SNOOZE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// How often a notification can be snoozed.
pub const SNOOZES_MAX: u8 = 3;

impl_as_str!(RepeatUntil, Action);

/// How a delivered notification is repeated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repeat {
    /// What ends it.
    pub until: RepeatUntil,
    /// The wait for each repetition, since the delivery before.
    pub after: Vec<RepeatAfter>,
    /// The priority of each repetition; the last one also of those that follow.
    pub raise: Vec<Priority>,
    /// Whether the last wait counts again and again.
    pub is_endless: bool,
}

/// What ends the repetitions of a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum RepeatUntil {
    /// An answer.
    #[default]
    Answered,
    /// The end of its condition, or an answer.
    Resolved,
}

/// The wait for a repetition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RepeatAfter {
    /// So many turns of the session.
    Turns(u32),
    /// So many milliseconds.
    Millis(u64),
}

impl RepeatAfter {
    /// A wait for a time.
    pub fn time(time: Duration) -> Self {
        Self::Millis(duration_millis(time))
    }

    fn wait(self, now: Timestamp) -> Wait {
        match self {
            Self::Turns(turns) => Wait::Turns(turns),
            Self::Millis(millis) => Wait::Until(now + Duration::from_millis(millis)),
        }
    }
}

impl Repeat {
    /// What the repetition of this number, from 1, waits for after a delivery at `now`, and its
    /// priority if that is another one; `None` if there is no such repetition.
    pub fn next(&self, number: u32, now: Timestamp) -> Option<(Wait, Option<Priority>)> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let last = || if self.is_endless { self.after.last() } else { None };
        let after = self.after.get(index).or_else(last)?;
        let is_over = number > REPEATS_MAX && !(self.is_endless && self.until == RepeatUntil::Resolved);
        let raised = self.raise.get(index).or(self.raise.last()).copied();
        (!is_over).then(|| (after.wait(now), raised))
    }

    /// How long the last delivery waits for an answer: as long as the last repetition waited for its
    /// time. `None` if no answer is wanted.
    pub fn wait_for_answer(&self, now: Timestamp) -> Option<Wait> {
        let last = self.after.last().filter(|_| self.until == RepeatUntil::Answered);
        last.map(|after| after.wait(now))
    }
}

/// An answer to a notification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The answer.
    pub action: Action,
    /// Who gave it: a session, or a user.
    pub by: Arc<str>,
    /// Until when it is snoozed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
}

/// What an agent or a user does with a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr, VariantArray)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Action {
    /// It is known: it is not repeated, and not delivered again in a new context.
    Acknowledge,
    /// The same, and somebody has taken it up.
    Investigate,
    /// It ends; a condition until it is resolved and comes again.
    Dismiss,
    /// It is held for a time.
    Snooze,
}

impl Action {
    /// The state of a notification after it.
    pub const fn state(self) -> &'static str {
        match self {
            Self::Acknowledge => "acknowledged",
            Self::Investigate => "investigating",
            Self::Dismiss => "dismissed",
            Self::Snooze => "snoozed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_repetition_has_its_wait_and_priority() {
        let repeat = Repeat {
            until: RepeatUntil::Answered,
            after: vec![RepeatAfter::Turns(3), RepeatAfter::Millis(1_000)],
            raise: vec![Priority::Normal, Priority::High],
            is_endless: false,
        };
        let now = Timestamp::from_millis(5);
        assert_eq!(repeat.next(1, now), Some((Wait::Turns(3), Some(Priority::Normal))));
        let second = Some((Wait::Until(Timestamp::from_millis(1_005)), Some(Priority::High)));
        assert_eq!((repeat.next(2, now), repeat.next(3, now)), (second.clone(), None));
        let endless = Repeat { is_endless: true, ..repeat };
        assert_eq!((endless.next(3, now), endless.next(REPEATS_MAX, now)), (second.clone(), second.clone()));
        assert_eq!(endless.next(REPEATS_MAX + 1, now), None);
        let resolved = Repeat { until: RepeatUntil::Resolved, ..endless };
        assert_eq!(resolved.next(1_000, now), second);
    }
}
