//! `resolves-itself`: conditions that end only by the next one.

use engine::event::{EventType, Pattern};

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::Diagnostic;

pub(super) const LINT: Lint = Lint {
    name: LintName::ResolvesItself,
    level: LintLevel::Error,
    finds: "a subscriber of which each type is also in `resolved_by`",
    why: "`resolved_by` names the events that end what is pending. If each event that the subscriber \
          takes is one of them, a condition ends only when the next one begins. To let a newer \
          event replace an older one, use `supersede_key`.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["alert.firing"]

[limits]
resolved_by = ["alert.*"]
equal = "payload.fingerprint"

[output]
inject_at = "turn_end"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["alert.firing"]

[limits]
resolved_by = ["alert.resolved"]
equal = "payload.fingerprint"

[output]
inject_at = "turn_end"
"#,
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let rule = subject.rule;
    let (Some(resolve), Some(place)) = (&rule.resolve, subject.place("limits.resolved_by")) else {
        return Vec::new();
    };
    let resolves = |event_type| resolve.by.iter().any(|pattern| pattern.matches(event_type));
    let is_exact = |pattern: &Pattern| {
        let own = pattern.to_string().parse::<EventType>();
        own.is_ok_and(|own| resolve.by.iter().any(|by| by.matches(&own)))
    };
    let is_own = |pattern: &Pattern| {
        let mut entries = subject.entries(std::slice::from_ref(pattern)).peekable();
        resolve.by.contains(pattern)
            || is_exact(pattern)
            || (entries.peek().is_some() && entries.all(|entry| resolves(&entry.event_type)))
    };
    // A filter can keep the events apart that are of one type: it does not apply to those that resolve.
    let is_filtered = rule.condition.is_some() || subject.place("events.severity_filter").is_some();
    if is_filtered || !rule.types.iter().all(is_own) {
        return Vec::new();
    }
    let message = format!(
        "each event that `{}` takes also resolves: a condition ends only when the next one begins",
        rule.id
    );
    let note = "to let a newer event replace an older one, use `supersede_key`";
    vec![Diagnostic::error(place.clone(), "limits.resolved_by", message).with_note(note)]
}
