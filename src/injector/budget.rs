//! How much of what a point releases goes into one injection.
//!
//! The wrapper and the overflow line count too, so the text is written and measured as it will be sent, and the tail is cut
//! until it fits. Critical notifications stay whatever they cost. How text is written and measured is the caller's.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    exchange::{Budget, Directive},
    notification::{Notification, Priority, SubscriberId, Tokens},
};

/// The most an injection may hold, critical notifications excepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Notifications.
    pub max_notifications: u32,
    /// Estimated tokens of the whole text.
    pub max_tokens: Tokens,
    /// Characters of the whole text.
    pub max_chars: u32,
}

impl Limits {
    /// These limits, lowered to what a harness asks for; a higher wish changes nothing.
    #[must_use]
    pub fn lowered_to(self, budget: &Budget) -> Self {
        Self {
            max_notifications: budget
                .max_notifications
                .map_or(self.max_notifications, |n| n.min(self.max_notifications)),
            max_tokens: budget.max_tokens.map_or(self.max_tokens, |n| n.min(self.max_tokens)),
            max_chars: budget.max_chars.map_or(self.max_chars, |n| n.min(self.max_chars)),
        }
    }
}

/// A notification that could be released.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What it is.
    pub notification: Arc<Notification>,
    /// Whether it may have been told before.
    pub redelivered: bool,
    /// Whether it came in place of a tool call before.
    pub has_cancelled: bool,
}

/// What a point would release if there were room.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Offer {
    /// By priority, then oldest first; no more than may be chosen by number. Empty when nothing is to be said.
    pub candidates: Vec<Candidate>,
    /// How many of each subscriber are due at the point, the candidates included.
    pub due: BTreeMap<SubscriberId, u32>,
    /// What the harness is asked to do if it gets the candidates.
    pub directive: Option<Directive>,
}

/// What goes into one injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The chosen ones, in the order of the text; never empty.
    pub chosen: Vec<Candidate>,
    /// The text, as it will be sent.
    pub text: String,
    /// Its estimated size.
    pub tokens: Tokens,
    /// What the harness is asked to do besides.
    pub directive: Option<Directive>,
}

/// Chooses from `offer` what `limits` leave room for; `None` when that is nothing.
///
/// `write` gets the chosen ones and how many of each subscriber are left out, and `estimate` counts the tokens of what it
/// wrote. The last candidate that is not critical is left out until the text fits. Where that would leave nothing, the first
/// one is too big for these limits by itself: it is passed over so that those behind it are not held up.
pub fn fit(
    offer: Offer,
    limits: &Limits,
    write: impl Fn(&[Candidate], BTreeMap<SubscriberId, u32>) -> String,
    estimate: impl Fn(&str) -> Tokens,
) -> Option<Fitted> {
    let Offer { mut candidates, due, directive } = offer;
    while !candidates.is_empty() {
        let mut chosen = candidates.clone();
        while !chosen.is_empty() {
            let text = write(&chosen, left_out(&due, &chosen));
            let tokens = estimate(&text);
            if is_within(&text, tokens, limits) || chosen.iter().all(is_critical) {
                return Some(Fitted { chosen, text, tokens, directive });
            }
            if let Some(last) = chosen.iter().rposition(|candidate| !is_critical(candidate)) {
                chosen.remove(last);
            }
        }
        candidates.remove(0);
    }
    None
}

fn is_critical(candidate: &Candidate) -> bool {
    candidate.notification.priority == Priority::Critical
}

fn is_within(text: &str, tokens: Tokens, limits: &Limits) -> bool {
    let max_chars = usize::try_from(limits.max_chars).unwrap_or(usize::MAX);
    text.chars().count() <= max_chars && tokens <= limits.max_tokens
}

fn left_out(due: &BTreeMap<SubscriberId, u32>, chosen: &[Candidate]) -> BTreeMap<SubscriberId, u32> {
    let mut left = due.clone();
    for candidate in chosen {
        if let Some(count) = left.get_mut(&candidate.notification.subscriber) {
            *count = count.saturating_sub(1);
        }
    }
    left.retain(|_, count| *count > 0);
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{injector::tests::notification, notification::InjectionPoint};

    /// An offer of notifications by name, of which `!name` is critical; every one is due, and `more` of `late` besides.
    fn offer(names: &[&str], more: u32) -> Offer {
        let candidates: Vec<Candidate> = names
            .iter()
            .map(|name| {
                let priority = if name.starts_with('!') { Priority::Critical } else { Priority::Normal };
                let notification = Arc::new(notification(name, priority, InjectionPoint::AfterTool));
                Candidate { notification, redelivered: false, has_cancelled: false }
            })
            .collect();
        let mut due: BTreeMap<SubscriberId, u32> = BTreeMap::new();
        for candidate in &candidates {
            *due.entry(candidate.notification.subscriber.clone()).or_default() += 1;
        }
        if more > 0 {
            due.insert(SubscriberId::new("late"), more);
        }
        Offer { candidates, due, directive: None }
    }

    /// The text that fits: names joined by spaces, then how many are left out; a token is a byte.
    fn fitted(offer: Offer, max_tokens: u32, max_chars: u32) -> Option<String> {
        let limits = Limits { max_notifications: 10, max_tokens: Tokens(max_tokens), max_chars };
        let write = |chosen: &[Candidate], left: BTreeMap<SubscriberId, u32>| {
            let names: Vec<&str> =
                chosen.iter().map(|candidate| candidate.notification.id.as_str()).collect();
            let left: String = left.iter().map(|(name, count)| format!(" +{count}{name}")).collect();
            names.join(" ") + &left
        };
        let estimate = |text: &str| Tokens(u32::try_from(text.len()).expect("short"));
        fit(offer, &limits, write, estimate).map(|fitted| fitted.text)
    }

    #[test]
    fn the_tail_is_cut_until_the_whole_text_fits_and_is_counted_by_subscriber() {
        for (max, expected) in [
            (39, Some("a#aaaaaaaa a#bbbbbbbb b#cccccccc +2late")),
            (38, Some("a#aaaaaaaa a#bbbbbbbb +1b +2late")),
            (31, Some("a#aaaaaaaa +1a +1b +2late")),
            (25, Some("a#aaaaaaaa +1a +1b +2late")),
            (24, Some("b#cccccccc +2a +2late")),
            (20, None),
        ] {
            let offered = || offer(&["a#aaaaaaaa", "a#bbbbbbbb", "b#cccccccc"], 2);
            assert_eq!(fitted(offered(), max, 1_000).as_deref(), expected, "{max} tokens");
            assert_eq!(fitted(offered(), 1_000, max).as_deref(), expected, "{max} characters");
        }
    }

    #[test]
    fn critical_ones_stay_whatever_they_cost() {
        let text = fitted(offer(&["!aaaaaaaa", "!bbbbbbbb", "cccc"], 0), 5, 5);
        assert_eq!(text.as_deref(), Some("!aaaaaaaa !bbbbbbbb +1cccc"));
    }

    #[test]
    fn one_that_is_too_big_by_itself_does_not_hold_up_those_behind_it() {
        let big = "x#xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx";
        assert_eq!(fitted(offer(&[big, "b", "c"], 0), 20, 20).as_deref(), Some("b c +1x"));
        assert_eq!(fitted(offer(&[big], 0), 20, 20), None);
        assert_eq!(fitted(offer(&[], 0), 20, 20), None);
    }

    #[test]
    fn a_harness_can_lower_the_limits_but_not_raise_them() {
        let configured = Limits { max_notifications: 10, max_tokens: Tokens(800), max_chars: 8_000 };
        let wish = Budget { max_notifications: Some(20), max_tokens: Some(Tokens(100)), max_chars: None };
        let lowered = Limits { max_tokens: Tokens(100), ..configured };
        assert_eq!(configured.lowered_to(&wish), lowered);
    }
}
