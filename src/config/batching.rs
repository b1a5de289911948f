//! The keys of a subscriber's file that control batching and deduplication of its events.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use engine::pipeline::rule::{BatchMode, Batching, DedupeRule, Keep};
use strum::{IntoStaticStr, VariantArray};

use crate::config::{
    raw::{Parsed, Section, Value},
    values,
};

/// Longest batch window in ms.
const WINDOW_MS_MAX: u64 = 10_000;
/// Default batch window: the one of the format, which files rely on.
const WINDOW: Duration = Duration::from_millis(2_000);
/// Most rows of a batch.
const BATCH_SIZE_MAX: u32 = 100;
/// Default number of rows of a batch.
const BATCH_SIZE: NonZeroU32 = NonZeroU32::new(10).expect("ten is not zero");
/// Longest time a debounced batch stays open in ms: a minute-old batch is late for any turn.
const MAX_WAIT_MS_MAX: u64 = 60_000;
/// How many windows a debounced batch stays open by default.
const MAX_WAIT_WINDOWS: u32 = 10;
/// Longest dedupe window in ms.
const DEDUPE_WINDOW_MS_MAX: u64 = 60_000;
/// Default dedupe window when there is a key.
const DEDUPE_WINDOW: Duration = Duration::from_millis(5_000);

/// The words of `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Mode {
    Window,
    Debounce,
}

/// Reads the batching keys.
pub(crate) fn read(section: &mut Section<'_>) -> Batching {
    let window = section.read("window_ms", |value| milliseconds(value, 0..=WINDOW_MS_MAX));
    let max_size = section.read("max_size", |value| values::integer(value, 1..=BATCH_SIZE_MAX));
    let mode = section.read("mode", values::word::<Mode>);
    let max_wait = section.read("max_wait_ms", |value| milliseconds(value, 1..=MAX_WAIT_MS_MAX));
    let is_window_wrong = section.is_wrong("window_ms", window.as_ref());
    let is_mode_wrong = section.is_wrong("mode", mode.as_ref());
    let window = window.unwrap_or(WINDOW);
    let is_debounce = mode == Some(Mode::Debounce);
    if is_debounce && window.is_zero() && !is_window_wrong {
        section.object("mode", |value| value.error("`debounce` needs a `window_ms` of at least 1"));
    }
    if !is_debounce && !is_mode_wrong {
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
    let group_by = section.read("group_by", values::field_paths).unwrap_or_default();
    if !group_by.is_empty() && window.is_zero() && !is_window_wrong {
        section.object("group_by", |value| {
            value
                .error("`group_by` has no effect while `window_ms` is 0: each event is a separate batch")
                .into_warning()
        });
    }
    let longest = Duration::from_millis(MAX_WAIT_MS_MAX);
    let max_wait = max_wait.unwrap_or_else(|| (window * MAX_WAIT_WINDOWS).min(longest));
    Batching {
        window,
        max_size: max_size.and_then(NonZeroU32::new).unwrap_or(BATCH_SIZE),
        mode: if is_debounce { BatchMode::Debounce { max_wait } } else { BatchMode::Window },
        group_by,
    }
}

/// Reads the dedupe key, the dedupe window, and the handling of a repeated row.
pub(crate) fn read_dedupe(section: &mut Section<'_>, batching: &Batching) -> Option<DedupeRule> {
    let key = section.read("dedupe_key", values::field_paths);
    let is_key_wrong = section.is_wrong("dedupe_key", key.as_ref());
    let key = key.unwrap_or_default();
    let window = section.read("dedupe_window_ms", |value| milliseconds(value, 0..=DEDUPE_WINDOW_MS_MAX));
    if key.is_empty() && !is_key_wrong && window.is_some_and(|window| !window.is_zero()) {
        section.object("dedupe_window_ms", |value| {
            value.error("`dedupe_window_ms` has no effect without a `dedupe_key`").into_warning()
        });
    }
    let window = window.unwrap_or(DEDUPE_WINDOW);
    let keep = section.read("dedupe_keep", values::word::<Keep>);
    let rule = (!key.is_empty() && !window.is_zero()).then_some(DedupeRule {
        key,
        window,
        keep: keep.unwrap_or_default(),
    });
    if keep == Some(Keep::Newest)
        && !is_key_wrong
        && let Some(doubt) = doubt_of_newest(rule.as_ref(), batching)
    {
        section.object("dedupe_keep", |value| value.error(doubt).into_warning());
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

fn milliseconds(value: &Value<'_>, range: RangeInclusive<u64>) -> Parsed<Duration> {
    values::integer(value, range).map(Duration::from_millis)
}
