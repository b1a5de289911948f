//! `[limits]` of a subscriber's file: the amount that is delivered, its time to live, and the
//! events that end it.

use std::{ops::RangeInclusive, time::Duration};

use engine::{
    event::FieldPath,
    pipeline::rule::{OrderRule, ResolveRule},
    rate::Rate,
};

use crate::config::{patterns, raw::Section, unsupported, values};

/// Shortest and longest time to live.
const TTL_LIMITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600);

/// The contents of `[limits]`.
pub(crate) struct Limits {
    pub(crate) rate: Option<Rate>,
    pub(crate) ttl: Option<Duration>,
    pub(crate) supersede_key: Vec<FieldPath>,
    pub(crate) resolve: Option<ResolveRule>,
    pub(crate) order: OrderRule,
}

/// Reads the section.
pub(crate) fn read(section: &mut Section<'_>, known_types: &[&str]) -> Limits {
    let rate = section.read("rate", values::rate);
    let ttl = section.read("ttl", |value| values::duration(value, TTL_LIMITS));
    let supersede_key = section.read("supersede_key", values::field_paths).unwrap_or_default();
    let resolve = read_resolve(section, &supersede_key, known_types);
    let order = read_order(section, &supersede_key, resolve.as_ref());
    unsupported::check_limits(section);
    Limits { rate, ttl, supersede_key, resolve, order }
}

/// Reads the order of reports about a state. It needs a state.
fn read_order(
    section: &mut Section<'_>,
    supersede_key: &[FieldPath],
    resolve: Option<&ResolveRule>,
) -> OrderRule {
    let revision = section.read("revision", values::field_paths).unwrap_or_default();
    let by = section.read("order_by", values::field_paths).unwrap_or_default();
    let has_state = !supersede_key.is_empty() || resolve.is_some_and(|resolve| !resolve.equal.is_empty());
    for (key, fields) in [("revision", &revision), ("order_by", &by)] {
        if !fields.is_empty() && !has_state {
            let message = format!(
                "`{key}` needs `supersede_key` or `equal`: it orders the events with the same values there"
            );
            section.object(key, |value| value.error(message.clone()));
        }
    }
    OrderRule { revision, by }
}

/// Reads which events resolve a condition. Without `equal` they must match it in the fields of
/// `supersede_key`.
fn read_resolve(
    section: &mut Section<'_>,
    supersede_key: &[FieldPath],
    known_types: &[&str],
) -> Option<ResolveRule> {
    let by = section.read("resolved_by", |value| values::list(value, patterns::read));
    let equal = section.read("equal", values::field_paths);
    let is_unread = section.is_wrong("resolved_by", by.as_ref());
    let by = by.unwrap_or_default();
    patterns::check(section, "resolved_by", &by, known_types);
    if by.is_empty() {
        if equal.is_some_and(|equal| !equal.is_empty()) && !is_unread {
            let message = "`equal` needs `resolved_by`: it names the fields that must match for an event to resolve a notification";
            section.object("equal", |value| value.error(message));
        }
        return None;
    }
    if section.value("equal").is_none() && supersede_key.is_empty() {
        let message =
            "`resolved_by` needs `equal`: the fields that must match for an event to resolve a notification";
        let note = "such as equal = \"payload.name\"; with equal = \"\" it resolves everything";
        section.object("resolved_by", |value| value.error(message).with_note(note));
    }
    Some(ResolveRule { by, equal: equal.unwrap_or_else(|| supersede_key.to_vec()) })
}
