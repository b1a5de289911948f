//! What keeps the notifications of a subscriber from its agent, and is not allowed for all of them.

use engine::{
    hold::{Delay, Wait},
    notification::{Activation, Audience, Interrupt, Priority, RegionUse},
    pipeline::rule::{Batching, OutputRule},
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

/// Warns of keys of a subscriber for the user only that change nothing: they are for a delivery to an
/// agent.
///
/// Shape: nothing about a key that is inherited by the file with `audience`, which cannot remove it.
pub(super) fn check_user(
    [output, limits, repeat]: [&mut Section<'_>; 3],
    (rule, held): (&OutputRule, Held),
    delays: &[Delay],
    batching: &Batching,
) {
    let layer = output.value("audience").map(|value| value.file().layer);
    let warn = |section: &mut Section<'_>, key: &'static str, name: &str| {
        if section.value(key).map(|value| value.file().layer) >= layer {
            section
                .warn(key, &format!("`{name}` applies to agents, and this subscriber is for the user only"));
        }
    };
    let keys = [
        ("active_for", rule.activation == Activation::Active),
        ("interrupt", rule.can_be_critical() && rule.interrupt != Interrupt::default()),
        ("requires_response", rule.requires_response),
        ("region", held.has_states && rule.region != RegionUse::Only),
        // The point of an exchange selects the open batches that it closes.
        ("inject_at", !batching.is_closed_by_exchanges()),
    ];
    for (key, _) in keys.into_iter().filter(|(_, is_without_effect)| *is_without_effect) {
        warn(output, key, key);
    }
    // Only a time ends the delay of what is for the user.
    let is_time = |delay: &Delay| match delay {
        Delay::For(_) | Delay::TimeOfDay(_) | Delay::Wait(Wait::Until(_)) => true,
        Delay::Wait(Wait::Turns(_) | Wait::Tool(_) | Wait::Event(_) | Wait::Context(_)) => false,
    };
    let delay = (!delays.iter().any(is_time)).then_some("deliver_after");
    for key in ["retain", "tokens"].into_iter().chain(delay) {
        warn(limits, key, key);
    }
    warn(repeat, "after", "[repeat]");
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
