//! `never-passes`: a filter that nothing passes.

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::Diagnostic;

pub(super) const LINT: Lint = Lint {
    name: LintName::NeverPasses,
    level: LintLevel::Warning,
    finds: "a `severity_filter` above the default severity of every selected type",
    why: "An event has the default severity of its type unless its producer says another one. A test \
          with an event that passes shows that producers do.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["timer.fired"]
severity_filter = "critical"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["timer.fired"]
severity_filter = "info"
"#,
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let (rule, place) = (subject.rule, subject.place("events.severity_filter"));
    let passes = |severity| severity >= rule.severity_min;
    let severities: Vec<_> = subject
        .entries(&rule.types)
        .map(|entry| subject.default_severity(entry.event_type.as_str()))
        .collect();
    let is_tested = subject.test_events().filter_map(|event| event.severity).any(passes);
    let (Some(place), Some(most)) = (place, severities.iter().max().filter(|most| !passes(**most))) else {
        return Vec::new();
    };
    // A pattern with types of nobody's catalogue can select any severity.
    let is_known = |pattern| subject.entries(std::slice::from_ref(pattern)).next().is_some();
    let is_raised = rule.severity_when.iter().any(|one| passes(one.is));
    if is_tested || is_raised || !rule.types.iter().all(is_known) {
        return Vec::new();
    }
    let message =
        format!("no event passes: the selected types have at most the severity {} by default", most.as_str());
    let note = "if producers publish them as more severe, use such an event in `[[tests]]`";
    vec![Diagnostic::error(place.clone(), "events.severity_filter", message).with_note(note)]
}
