//! What keeps the notifications of a subscriber from its agent, and is not allowed for all of them.

use engine::{
    notification::{Activation, Audience, Priority, RegionUse},
    pipeline::rule::OutputRule,
    settings::Keys as _,
};

use crate::config::{
    raw::{Section, Value},
    report::Diagnostic,
};

/// A finding about a value that a core subscriber may not have; absent for others.
pub(super) type Refusal<'r> = Option<&'r dyn Fn(&Value<'_>, &str) -> Diagnostic>;

/// Reports all of it.
pub(super) fn check(section: &mut Section<'_>, rule: &OutputRule, held: Held, refusal: Refusal<'_>) {
    check_audience(section, rule, refusal);
    check_escalation(section, rule, refusal);
    check_region(section, rule, held, refusal);
}

/// Reports settings that keep a core subscriber from its agent, and warns of an activation without
/// an agent.
fn check_audience(section: &mut Section<'_>, rule: &OutputRule, refusal: Refusal<'_>) {
    if rule.audience != Audience::User {
        return;
    }
    if let Some(refusal) = refusal {
        let message = "a core subscriber notifies its agent; `both` notifies the user too";
        section.object("audience", |value| refusal(value, message));
    }
    if rule.activation != Activation::Passive {
        section
            .warn("activation", "`activation` applies to agents, and this subscriber is for the user only");
    }
}

/// Reports a core subscriber that keeps a critical event from being critical.
fn check_escalation(section: &mut Section<'_>, rule: &OutputRule, refusal: Refusal<'_>) {
    let Some(refusal) = refusal.filter(|_| rule.escalate_at.is_none()) else { return };
    let message = "a critical event of a core subscriber is always critical";
    section.object("escalate_at", |value| refusal(value, message));
}

/// Reports a delay of notifications that nothing postpones.
pub(super) fn check_delay(limits: &mut Section<'_>, priority: Priority) {
    if priority == Priority::Critical {
        let message = "`deliver_after` postpones nothing here: a critical notification never waits";
        limits.object("deliver_after", |value| value.error(message));
    }
}

/// What of a subscriber a region can have, and what needs a delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    /// Its notifications report conditions, or are retained.
    pub(super) has_states: bool,
    /// They are repeated.
    pub(super) is_repeated: bool,
}

/// Reports a `region` without anything that a region could have, and one without a delivery that
/// other keys need.
fn check_region(section: &mut Section<'_>, rule: &OutputRule, held: Held, refusal: Refusal<'_>) {
    let is_only = rule.region == RegionUse::Only;
    if !held.has_states && section.value("region").is_some() {
        let message = "a region has conditions and retained states, and this subscriber makes none";
        let note = "set `resolved_by`, `[absent]` or `retain`";
        if is_only {
            section.object("region", |value| value.error(message).with_note(note));
        } else {
            section.warn("region", message);
        }
    }
    if !is_only {
        return;
    }
    if let Some(refusal) = refusal {
        let message = "a core subscriber notifies its agent; `also` is in the region too";
        section.object("region", |value| refusal(value, message));
    }
    let needs = [
        (rule.requires_response, "`requires_response` asks for an answer to a delivery"),
        (held.is_repeated, "`[repeat]` repeats a delivery"),
        (rule.audience == Audience::User, "`audience = \"user\"` is for no agent"),
        (rule.activation == Activation::Prompt, "`activation = \"prompt\"` asks before a delivery"),
        (rule.priority == Priority::Critical, "a critical notification is always delivered"),
    ];
    for (_, need) in needs.iter().filter(|(is_set, _)| *is_set) {
        let message = format!("{need}, and `region = \"only\"` delivers nothing");
        section.object("region", |value| value.error(message.as_str()));
    }
}
