//! The keys of a subscriber's file that control batching and deduplication of its events.

use std::{num::NonZeroU32, time::Duration};

use engine::{
    event::FieldPath,
    pipeline::rule::{BatchMode, Batching, DedupeRule, Keep},
    settings::{Keys as _, settings},
};
use strum::{IntoStaticStr, VariantArray};

use crate::config::raw::Section;

/// Longest time a debounced batch stays open in ms: a minute-old batch is late for any turn.
const MAX_WAIT_MS_MAX: u64 = 60_000;
/// How many windows a debounced batch stays open by default.
const MAX_WAIT_WINDOWS: u32 = 10;

/// The words of `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Mode {
    Window,
    Debounce,
}

settings! {
    /// How events are collected into one notification.
    pub(super) struct Keys from Section<'_> {
        /// How long a batch stays open after its first event, in ms; with 0 each event is a
        /// notification at once.
        window_ms: u64 = 2_000, number(0..=10_000);
        /// A batch with this many rows closes at once.
        max_size: u32 = 10, number(1..=100);
        /// With `"debounce"` each event, and each repeat of a row in the batch, restarts the window.
        mode: Mode = Mode::Window, word();
        /// With `debounce` only: a batch stays open no longer than this, in ms; at least `window_ms`.
        max_wait_ms: u64, number(1..=MAX_WAIT_MS_MAX), else "ten windows";
        /// There is one batch for each combination of the values of these fields.
        group_by: Vec<FieldPath> = Vec::new(), fields();
        /// Events with equal values of these fields are repeats; without fields nothing is a repeat.
        dedupe_key: Vec<FieldPath> = Vec::new(), fields();
        /// How long a repeat is recognised, in ms; 0 means never.
        dedupe_window_ms: u64 = 5_000, number(0..=60_000);
        /// Which of equal events a row shows, see [dedupe](#from-event-to-notification).
        dedupe_keep: Keep = Keep::First, word();
    }
}

/// Checks the batching keys.
pub(crate) fn read(section: &mut Section<'_>, keys: &Keys) -> Batching {
    let (window, max_wait) = (milliseconds(keys.window_ms), keys.max_wait_ms.map(milliseconds));
    let is_window_wrong = section.is_wrong("window_ms");
    let is_debounce = keys.mode == Mode::Debounce;
    if is_debounce && window.is_zero() && !is_window_wrong {
        section.object("mode", |value| value.error("`debounce` needs a `window_ms` of at least 1"));
    }
    if !is_debounce && !section.is_wrong("mode") {
        // A file that inherits `max_wait_ms` cannot remove it, so its other mode makes it unused.
        if !section.is_later("mode", "max_wait_ms") {
            section.object("max_wait_ms", |value| {
                value.error("`max_wait_ms` is for `mode = \"debounce\"` only")
            });
        }
    } else if max_wait.is_some_and(|max_wait| max_wait < window) {
        section.object("max_wait_ms", |value| {
            value.error(format!("`max_wait_ms` is less than `window_ms`, which is {}", window.as_millis()))
        });
    }
    if !keys.group_by.is_empty() && window.is_zero() && !is_window_wrong {
        let message = "`group_by` has no effect while `window_ms` is 0: each event is a separate batch";
        section.warn("group_by", message);
    }
    let longest = Duration::from_millis(MAX_WAIT_MS_MAX);
    let max_wait = max_wait.unwrap_or_else(|| (window * MAX_WAIT_WINDOWS).min(longest));
    Batching {
        window,
        max_size: NonZeroU32::new(keys.max_size).expect("its limits begin at 1"),
        mode: if is_debounce { BatchMode::Debounce { max_wait } } else { BatchMode::Window },
        group_by: keys.group_by.clone(),
    }
}

/// Checks the dedupe key, the dedupe window, and the handling of a repeated row.
pub(crate) fn read_dedupe(section: &mut Section<'_>, keys: Keys, batching: &Batching) -> Option<DedupeRule> {
    let Keys { dedupe_key: key, dedupe_window_ms, dedupe_keep: keep, .. } = keys;
    let (is_key_wrong, window) = (section.is_wrong("dedupe_key"), milliseconds(dedupe_window_ms));
    if key.is_empty() && !is_key_wrong && !window.is_zero() && !section.is_wrong("dedupe_window_ms") {
        section.warn("dedupe_window_ms", "`dedupe_window_ms` has no effect without a `dedupe_key`");
    }
    let rule = (!key.is_empty() && !window.is_zero()).then_some(DedupeRule { key, window, keep });
    if keep == Keep::Newest
        && !is_key_wrong
        && let Some(doubt) = doubt_of_newest(rule.as_ref(), batching)
    {
        section.warn("dedupe_keep", &doubt);
    }
    rule
}

/// Why `dedupe_keep = "newest"` has only a partial effect with the other keys.
fn doubt_of_newest(rule: Option<&DedupeRule>, batching: &Batching) -> Option<String> {
    let longest = match batching.mode {
        BatchMode::Window => batching.window,
        BatchMode::Debounce { max_wait } => max_wait,
    };
    let Some(rule) = rule else {
        return Some("`dedupe_keep` has no effect without a `dedupe_key` and its window".into());
    };
    if !batching.collects() {
        return Some(
            "`newest` has no effect while each event is a separate batch: no row is pending at a repeat"
                .into(),
        );
    }
    (rule.window < longest).then(|| {
        format!(
            "a batch is open for up to {} ms and `dedupe_window_ms` is less, so a key can have several rows",
            longest.as_millis()
        )
    })
}

fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}
