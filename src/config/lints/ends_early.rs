//! `ends-early`: a life that is shorter than the wait before a delivery or a repetition.

use std::time::Duration;

use engine::{
    hold::Delay,
    notification::repeat::RepeatAfter,
    pipeline::rule::{BatchMode, DigestTimes, Subscriber},
};

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::{report::Diagnostic, values::duration_text};

/// The minutes of a day.
const DAY_MINUTES: u16 = 24 * 60;

pub(super) const LINT: Lint = Lint {
    name: LintName::EndsEarly,
    level: LintLevel::Warning,
    finds: "a `ttl` shorter than the window of a batch, or no longer than `deliver_after`, the quiet hours or \
            the first repetition",
    why: "A batch waits for its window, and then has less time to be delivered than it waited. A \
          notification whose delivery waits longer than it lives is never delivered, and one whose \
          repetition does is never repeated.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
window_ms = 10000

[limits]
ttl = "2s"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
window_ms = 10000

[limits]
ttl = "10m"
"#,
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let rule = subject.rule;
    let (Some(ttl), Some(place)) = (rule.ttl, subject.place("limits.ttl")) else { return Vec::new() };
    let window = rule.batching.open_max();
    let delay = rule.deliver_after.iter().map(|delay| least(delay, rule)).min();
    let quiet = rule.quiet.shortest().filter(|quiet| ttl <= *quiet);
    let message = if ttl < window {
        format!(
            "a batch waits up to {} ms, and its notification ends after {} ms: `ttl` is shorter than the window",
            window.as_millis(),
            ttl.as_millis()
        )
    } else if let Some(delay) = delay.filter(|delay| ttl <= *delay) {
        let [delay, ttl] = [delay, ttl].map(duration_text);
        format!(
            "a notification waits for {delay} and ends after {ttl}: `ttl` is no longer than `deliver_after`"
        )
    } else if let Some(quiet) = quiet {
        let [quiet, ttl] = [quiet, ttl].map(duration_text);
        format!(
            "quiet hours last {quiet} at least, and what is pending when they begin ends {ttl} after its batch \
             closed: `ttl` is no longer than `quiet`"
        )
    } else if let Some(wait) = first_repetition(rule).filter(|wait| ttl <= *wait) {
        let [wait, ttl] = [wait, ttl].map(duration_text);
        format!(
            "the first repetition comes after {wait}, and a notification ends after {ttl}: `ttl` is no longer than `[repeat] after`"
        )
    } else {
        return Vec::new();
    };
    vec![Diagnostic::error(place.clone(), "limits.ttl", message)]
}

/// The time between a delivery and its first repetition; `None` if it counts turns, or nothing is repeated.
fn first_repetition(rule: &Subscriber) -> Option<Duration> {
    match rule.repeat.as_ref()?.after.first()? {
        RepeatAfter::Turns(_) => None,
        RepeatAfter::Millis(millis) => Some(Duration::from_millis(*millis)),
    }
}

/// The time that `delay` lasts at least. What does not depend on time alone may come at once, and so
/// may a time of day, unless the batches close at known times of day.
fn least(delay: &Delay, rule: &Subscriber) -> Duration {
    match (delay, &rule.batching.mode) {
        (Delay::For(delay), _) => *delay,
        (Delay::TimeOfDay(end), BatchMode::Digest(DigestTimes::At(starts))) if rule.quiet.is_empty() => {
            let waits = starts.iter().map(|start| (end + DAY_MINUTES - start - 1) % DAY_MINUTES + 1);
            // A change of the clock can skip an hour.
            let least = waits.min().unwrap_or_default().saturating_sub(60);
            Duration::from_secs(60 * u64::from(least))
        }
        (Delay::TimeOfDay(_) | Delay::Wait(_), _) => Duration::ZERO,
    }
}
