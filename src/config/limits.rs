//! `[limits]` of a subscriber's file: the amount that is delivered, its time to live, and the
//! events that end it.

use std::time::Duration;

use engine::{
    event::{FieldPath, Pattern},
    pipeline::rule::{OrderRule, ResolveRule},
    rate::Rate,
    settings::{Keys, settings},
};

use crate::config::{patterns, raw::Section, unsupported};

settings! {
    /// How much is delivered, for how long, and which events end it.
    pub(super) struct Written from Section<'_> {
        /// The rate of notifications, such as `"10/min"`; the units are `s`, `sec`, `m`, `min`, `h`
        /// and `hour`.
        rate: Rate, rate(), else "none";
        /// A notification that is still pending this long after its batch closed ends as `expired`,
        /// and a delivered one is not delivered again in a [new context](api.md#contexts) after that.
        ttl: Duration, duration(Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3600)), else "none";
        /// The state that an event gives: a newer event replaces an older one with equal values that
        /// is [pending](#from-event-to-notification).
        supersede_key: Vec<FieldPath> = Vec::new(), fields();
        /// The types of events that end the conditions of this subscriber: a condition
        /// [holds until then](#from-event-to-notification).
        resolved_by: Vec<Pattern> = Vec::new(), patterns();
        /// The fields in which such an event must equal the one that it resolves; `""` for
        /// everything.
        equal: Vec<FieldPath>, fields(), else "`supersede_key`";
        /// What an event is about, such as a commit: without a known order, events with different
        /// values neither replace nor resolve each other.
        revision: Vec<FieldPath> = Vec::new(), fields();
        /// The values that [order](#from-event-to-notification) the events about one state, the most
        /// significant first: numbers or times.
        order_by: Vec<FieldPath> = Vec::new(), fields();
    }
}

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
    let Written { rate, ttl, supersede_key, resolved_by, equal, revision, order_by } = Written::read(section);
    unsupported::check_limits(section);
    let resolve = read_resolve(section, resolved_by, equal, &supersede_key, known_types);
    let order = OrderRule { revision, by: order_by };
    check_order(section, &supersede_key, &order, resolve.as_ref());
    Limits { rate, ttl, supersede_key, resolve, order }
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
    patterns::check(section, "resolved_by", &by, known_types);
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
        section.object("resolved_by", |value| value.error(message).with_note(note));
    }
    Some(ResolveRule { by, equal: equal.unwrap_or_else(|| supersede_key.to_vec()) })
}
