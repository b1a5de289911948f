//! `[limits]` of a subscriber's file: the amount that is delivered, its time to live, and the
//! events that end it; the keys for batching and deduplication of its events; and the share of the
//! limits of an injection that its frame takes, for any format of a harness.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use engine::{
    event::{FieldPath, Pattern},
    exchange::Format,
    format::sample,
    hold::{Delay, WAITS_MAX},
    notification::Tokens,
    pipeline::{
        condition::Condition,
        inhibition::InhibitRule,
        rule::{
            BatchMode, Batching, DedupeRule, DigestTimes, Keep, OrderRule, RateOf, RateRule, ResolveRule,
        },
    },
    rate::Rate,
    settings::{Keys as _, settings},
};
use journal::time::hours::Hours;
use strum::{IntoStaticStr, VariantArray};
use toon::tokens;

use crate::config::{inhibit, lint_name::LintName, patterns, raw::Section, values};

settings! {
    /// How much is delivered, for how long, and which events end it.
    pub(super) struct Written from Section<'_> {
        /// The rate of notifications, such as `"10/min"`; the units are `s`, `sec`, `m`, `min`, `h`
        /// and `hour`.
        rate: Rate, rate(), else "none";
        /// There is a rate for each combination of the values of these fields; of a batch, those of
        /// its first event.
        rate_by: Vec<FieldPath> = Vec::new(), fields();
        /// What the rate limits; with `"events"` each event counts before it joins a batch.
        rate_of: RateOf = RateOf::default(), word();
        /// Most tokens of its notifications in each session in a time, such as `"300/h"`, the frames of
        /// the texts included: a [budget](delivery.md#budgets) that fills evenly.
        tokens: Rate, rate(), else "none";
        /// A notification that is still pending this long after its batch closed ends as `expired`,
        /// and a delivered one is not delivered again in a [new context](api.md#contexts) after that.
        ttl: Duration, duration(Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600)), else "none";
        /// Hours of each day, days, or a list of them, by the clock of the machine. Nothing is
        /// delivered in them: a batch stays open until they end, and what is pending is held.
        /// Critical notifications are delivered.
        quiet: Hours = Hours::default(), hours(), else "none";
        /// A session that opens gets the newest notification of each `supersede_key` (of the subscriber,
        /// if it has none), also if others had it: for this time, or with `true` for its `ttl`, else for
        /// 24 hours. Subagents get none.
        retain: Retain, retain(RETAIN), else "`false`";
        /// What a delivery waits for, or a list of which the first counts: `"3 turns"` of the session,
        /// `"10m"`, a local time such as `"18:00"`, a timestamp, the next result of a tool
        /// (`"tool:Bash"`, `"tool:mcp__*"`), the next event of a type (`"event:ci.**"`), or the use of
        /// the session's context (`"context:80%"`, as [it is reported](sources.md)).
        deliver_after: Vec<Delay> = Vec::new(), delays(WAITS_MAX), else "nothing";
        /// The state that an event gives: a newer event replaces an older one with equal values that
        /// is [pending](batching.md#from-event-to-notification).
        supersede_key: Vec<FieldPath> = Vec::new(), fields();
        /// The types of events that end the conditions of this subscriber: a condition
        /// [holds until then](batching.md#from-event-to-notification).
        resolved_by: Vec<Pattern> = Vec::new(), patterns();
        /// The fields in which such an event must equal the one that it resolves; `""` for
        /// everything.
        equal: Vec<FieldPath>, fields(), else "`supersede_key`";
        /// What an event is about, such as a commit: without a known order, events with different
        /// values neither replace nor resolve each other.
        revision: Vec<FieldPath> = Vec::new(), fields();
        /// The values that [order](batching.md#from-event-to-notification) the events about one state, the most
        /// significant first: numbers or times.
        order_by: Vec<FieldPath> = Vec::new(), fields();
    }
}

/// The contents of `[limits]`.
pub(crate) struct Limits {
    pub(crate) rate: Option<RateRule>,
    pub(crate) tokens: Option<Rate>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) quiet: Hours,
    pub(crate) retain: Option<Duration>,
    pub(crate) deliver_after: Vec<Delay>,
    pub(crate) supersede_key: Vec<FieldPath>,
    pub(crate) resolve: Option<ResolveRule>,
    pub(crate) inhibit: Vec<InhibitRule>,
    pub(crate) order: OrderRule,
}

pub(crate) fn read_limits(section: &mut Section<'_>, known_types: &[&str]) -> Limits {
    let Written {
        rate,
        rate_by,
        rate_of,
        tokens,
        ttl,
        quiet,
        retain,
        deliver_after,
        supersede_key,
        resolved_by,
        equal,
        revision,
        order_by,
    } = Written::read(section);
    let retain = retain.and_then(|Retain(retain)| retain.map(|own| own.or(ttl).unwrap_or(RETAIN_DEFAULT)));
    if rate.is_none() && !section.is_wrong("rate") {
        for key in ["rate_by", "rate_of"] {
            section.warn(key, &format!("`{key}` has no effect without a `rate`"));
        }
    }
    let rate = rate.map(|rate| RateRule { rate, by: rate_by, of: rate_of });
    let resolve = read_resolve(section, resolved_by, equal, &supersede_key, known_types);
    let order = OrderRule { revision, by: order_by };
    check_order(section, &supersede_key, &order, resolve.as_ref());
    let inhibit = inhibit::read(section, known_types);
    patterns::check(section, "deliver_after", |delays| patterns::in_delays(delays, known_types));
    Limits { rate, tokens, ttl, quiet, retain, deliver_after, supersede_key, resolve, inhibit, order }
}

/// Reports an order of events about a state without a state.
fn check_order(
    section: &mut Section<'_>,
    supersede_key: &[FieldPath],
    order: &OrderRule,
    resolve: Option<&ResolveRule>,
) {
    let has_state = !supersede_key.is_empty() || resolve.is_some_and(|resolve| !resolve.equal.is_empty());
    for (key, fields) in [("revision", &order.revision), ("order_by", &order.by)] {
        if !fields.is_empty() && !has_state {
            let message = format!(
                "`{key}` needs `supersede_key` or `equal`: it orders the events with the same values there"
            );
            section.object(key, |value| value.error(message.clone()));
        }
    }
}

/// Reads which events resolve a condition. Without `equal` they must match it in the fields of
/// `supersede_key`.
fn read_resolve(
    section: &mut Section<'_>,
    by: Vec<Pattern>,
    equal: Option<Vec<FieldPath>>,
    supersede_key: &[FieldPath],
    known_types: &[&str],
) -> Option<ResolveRule> {
    patterns::check(section, "resolved_by", |list| patterns::in_list(list, known_types));
    if by.is_empty() {
        if equal.is_some_and(|equal| !equal.is_empty()) && !section.is_wrong("resolved_by") {
            let message = "`equal` needs `resolved_by`: it names the fields that must match for an event to resolve a notification";
            section.object("equal", |value| value.error(message));
        }
        return None;
    }
    if section.value("equal").is_none() && supersede_key.is_empty() {
        let message =
            "`resolved_by` needs `equal`: the fields that must match for an event to resolve a notification";
        let note = "such as equal = \"payload.name\"; with equal = \"\" it resolves everything";
        section.object("resolved_by", |value| value.error(message).with_note(note).named(LintName::NoEqual));
    }
    Some(ResolveRule { by, equal: equal.unwrap_or_else(|| supersede_key.to_vec()) })
}

/// Longest time a debounced batch stays open in ms: a minute-old batch is late for any turn.
const MAX_WAIT_MS_MAX: u64 = 60_000;
/// How many windows a debounced batch stays open by default.
const MAX_WAIT_WINDOWS: u32 = 10;

/// The limits of `every`.
const EVERY: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(7 * 24 * 3_600);
/// Most times of `at`.
const TIMES_MAX: usize = 24;

/// The limits of `dedupe_window`.
const DEDUPE_WINDOW: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);

/// The words of `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
enum Mode {
    Window,
    Debounce,
    Digest,
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
        /// With `"digest"` a batch closes by `every` or `at` alone: neither an exchange nor `max_size`
        /// closes it, and it keeps the newest 1,000 rows.
        mode: Mode = Mode::Window, word();
        /// With `debounce` only: a batch stays open no longer than this, in ms; at least `window_ms`.
        max_wait_ms: u64, number(1..=MAX_WAIT_MS_MAX), else "ten windows";
        /// With `digest` only: a batch closes so long after its first event.
        every: Duration, duration(EVERY), else "none";
        /// With `digest` only: a batch closes at the next of these local times.
        at: Vec<u16> = Vec::new(), times_of_day(TIMES_MAX), else "none";
        /// There is one batch for each combination of the values of these fields.
        group_by: Vec<FieldPath> = Vec::new(), fields();
        /// An event for which this expression is true closes its batch at once.
        close_when: Condition, condition(), else "none";
        /// An event for which this expression is true closes the open batch of its group, and begins
        /// the next one.
        open_when: Condition, condition(), else "none";
        /// Events with equal values of these fields are repeats; without fields nothing is a repeat.
        dedupe_key: Vec<FieldPath> = Vec::new(), fields();
        /// How long a repeat is recognised, in ms; 0 means never.
        dedupe_window_ms: u64 = 5_000, number(0..=60_000);
        /// The same with its unit, for up to a day; one of the two.
        dedupe_window: Duration, duration(DEDUPE_WINDOW), else "`dedupe_window_ms`";
        /// The fields that `dedupe_key = "payload"` leaves out, such as a time.
        dedupe_ignore: Vec<FieldPath> = Vec::new(), fields();
        /// Which of equal events a row shows, see [dedupe](batching.md#from-event-to-notification).
        dedupe_keep: Keep = Keep::First, word();
    }
}

/// Checks the batching keys.
pub(crate) fn read_batching(section: &mut Section<'_>, keys: &Keys) -> Batching {
    let (window, max_wait) = (milliseconds(keys.window_ms), keys.max_wait_ms.map(milliseconds));
    let is_debounce = keys.mode == Mode::Debounce;
    let digest = read_digest(section, keys);
    if is_debounce && window.is_zero() {
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
    let longest = Duration::from_millis(MAX_WAIT_MS_MAX);
    let max_wait = max_wait.unwrap_or_else(|| (window * MAX_WAIT_WINDOWS).min(longest));
    Batching {
        window,
        max_size: NonZeroU32::new(keys.max_size).expect("its limits begin at 1"),
        mode: match digest {
            Some(times) => BatchMode::Digest(times),
            None if is_debounce => BatchMode::Debounce { max_wait },
            None => BatchMode::Window,
        },
        group_by: keys.group_by.clone(),
    }
}

/// Warns of keys that change nothing, because a digest closes by its time alone, or because each event
/// is a batch of its own. In quiet hours a batch stays open whatever its window is.
///
/// Shape: nothing about a key that is inherited by the file with the other one, which cannot remove it.
pub(crate) fn check_batching(section: &mut Section<'_>, batching: &Batching, quiet: &Hours) {
    let mut warn = |cause: &str, key: &'static str, why: &str| {
        if !section.is_later(cause, key) {
            section.warn(key, &format!("`{key}` has no effect {why}"));
        }
    };
    if matches!(batching.mode, BatchMode::Digest(_)) {
        for key in ["window_ms", "max_size"] {
            warn("mode", key, "on a digest: it closes by `every` or `at`");
        }
        return;
    }
    let is_zero = batching.window.is_zero();
    // One row says the same as no window.
    if is_zero && batching.max_size > NonZeroU32::MIN {
        warn("window_ms", "max_size", "while `window_ms` is 0: each event is a separate batch");
    }
    if batching.collects() || !quiet.is_empty() {
        return;
    }
    let (cause, state) =
        if is_zero { ("window_ms", "`window_ms` is 0") } else { ("max_size", "`max_size` is 1") };
    let time = ["window_ms", "mode", "max_wait_ms"].into_iter().filter(|_| !is_zero);
    for key in time.chain(["group_by"]) {
        warn(cause, key, &format!("while {state}: each event is a separate batch"));
    }
    for key in ["close_when", "open_when"] {
        warn(cause, key, &format!("while {state}: no batch is open"));
    }
}

/// When a digest closes; `None` for another mode. The keys of a digest are for it alone, and it has one
/// of `every` and `at`.
fn read_digest(section: &mut Section<'_>, keys: &Keys) -> Option<DigestTimes> {
    let is_digest = keys.mode == Mode::Digest;
    for key in ["every", "at"] {
        // A file that inherits one of them cannot remove it, so its other mode makes it unused.
        if !is_digest && !section.is_wrong("mode") && !section.is_later("mode", key) {
            let message = format!("`{key}` is for `mode = \"digest\"` only");
            section.object(key, |value| value.error(message));
        }
    }
    match (keys.every, &keys.at[..]) {
        _ if !is_digest => None,
        (Some(every), []) => Some(DigestTimes::Every(every)),
        (None, at @ [_, ..]) => Some(DigestTimes::At(at.to_vec())),
        (Some(every), [_, ..]) if section.is_later("every", "at") => Some(DigestTimes::Every(every)),
        (Some(_), at @ [_, ..]) if section.is_later("at", "every") => Some(DigestTimes::At(at.to_vec())),
        (Some(_), [_, ..]) => {
            section
                .object("at", |value| value.error("a digest closes by `every` or by `at`; name one of them"));
            None
        }
        (None, []) => {
            if !section.is_wrong("every") && !section.is_wrong("at") {
                let note = "such as every = \"1h\", or at = [\"09:00\", \"17:00\"]";
                section.object("mode", |value| value.error("a digest needs `every` or `at`").with_note(note));
            }
            None
        }
    }
}

/// Checks the dedupe key, the dedupe window, and the handling of a repeated row.
pub(crate) fn read_dedupe(
    section: &mut Section<'_>,
    keys: &mut Keys,
    batching: &Batching,
) -> Option<DedupeRule> {
    let key = std::mem::take(&mut keys.dedupe_key);
    let Keys { dedupe_window_ms, dedupe_keep: keep, .. } = *keys;
    let is_key_wrong = section.is_wrong("dedupe_key");
    let uses_ms = section.is_later("dedupe_window_ms", "dedupe_window");
    let window = keys.dedupe_window.filter(|_| !uses_ms).unwrap_or_else(|| milliseconds(dedupe_window_ms));
    // Of a file that inherits one of them and names the other one, its own counts.
    if keys.dedupe_window.is_some() && !uses_ms && !section.is_later("dedupe_window", "dedupe_window_ms") {
        section.object("dedupe_window_ms", |value| {
            value.error("`dedupe_window` and `dedupe_window_ms` are one key in two forms; name one of them")
        });
    }
    if key.is_empty() && !is_key_wrong {
        for name in ["dedupe_window_ms", "dedupe_window"] {
            if !window.is_zero() && !section.is_wrong(name) {
                section.warn(name, &format!("`{name}` has no effect without a `dedupe_key`"));
            }
        }
    }
    let ignore = std::mem::take(&mut keys.dedupe_ignore);
    let is_whole = key.len() == 1 && key.iter().all(FieldPath::is_whole_payload);
    if !ignore.is_empty() && !is_key_wrong && !is_whole {
        let message = "`dedupe_ignore` needs `dedupe_key = \"payload\"`: of other keys it leaves out nothing";
        section.object("dedupe_ignore", |value| value.error(message));
    }
    if ignore.iter().any(|field| !field.is_of_payload() || field.is_whole_payload()) {
        let message = "`dedupe_ignore` names fields of the payload, such as `payload.ts`";
        section.object("dedupe_ignore", |value| value.error(message));
    }
    let rule = (!key.is_empty() && !window.is_zero()).then_some(DedupeRule { key, ignore, window, keep });
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
    let longest = batching.open_max();
    let Some(rule) = rule else {
        return Some("`dedupe_keep` has no effect without a `dedupe_key` and its window".into());
    };
    if !batching.collects() && !matches!(batching.mode, BatchMode::Digest(_)) {
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

/// The limits of `retain`.
const RETAIN: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3_600);
/// How long something is retained that has no other time.
const RETAIN_DEFAULT: Duration = Duration::from_secs(24 * 3_600);

/// Whether the newest state is retained, and how long if that is said.
struct Retain(Option<Option<Duration>>);

impl Section<'_> {
    fn retain(&mut self, key: &'static str, range: RangeInclusive<Duration>) -> Option<Retain> {
        self.read(key, |value| match value.get().as_bool() {
            Some(is_on) => Ok(Retain(is_on.then_some(None))),
            None if value.get().as_str().is_some() => {
                values::duration(value, range.clone()).map(|time| Retain(Some(Some(time))))
            }
            None => Err(value.wrong_kind("true, false or a duration such as \"12h\"")),
        })
    }
}

/// The shortest possible content; the rest of the text is the frame.
const CONTENT: &str = "x: 1";

/// The text around one notification.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// The format of the injection.
    pub(crate) format: Format,
    /// Its characters.
    pub(crate) chars: u32,
    /// Its estimated tokens.
    pub(crate) tokens: Tokens,
}

/// The frames of the formats that can be configured.
pub(crate) fn frames() -> Vec<Frame> {
    let chars = |text: &str| u32::try_from(text.chars().count()).unwrap_or(u32::MAX);
    let frame = |format: Format| {
        let text = sample(format, &[("background_task", CONTENT)]);
        let content = tokens::estimate(CONTENT).0;
        Frame {
            format,
            chars: chars(&text).saturating_sub(chars(CONTENT)),
            tokens: Tokens(tokens::estimate(&text).0.saturating_sub(content)),
        }
    };
    Format::texts().into_iter().map(frame).collect()
}
