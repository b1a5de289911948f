//! `never-passes`: a filter that nothing passes.

use engine::{
    event::{Pattern, catalogue},
    nearest::nearest,
};

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::{
    producers,
    report::{Diagnostic, Place, shown},
};

pub(super) const LINT: Lint = Lint {
    name: LintName::NeverPasses,
    level: LintLevel::Warning,
    finds: "a `severity_filter` above the default severity of every selected type, and one of `sources` that \
            nothing which ships, no setting, no test and no event of the history has",
    why: "An event has the default severity of its type unless its producer says another one, and a name \
          in `sources` is the whole name of a source. A test with an event that passes shows that \
          producers publish such events. A type of your own has a producer of your own, so its source is \
          reported only if a known one is similar.",
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
    severity_filter(subject).into_iter().chain(sources(subject)).collect()
}

/// The names of sources in `sources`, and in the `sources` of what inhibits, that nothing has.
fn sources(subject: &Subject<'_>) -> Vec<Diagnostic> {
    let rule = subject.rule;
    let place = subject.place("events.sources").cloned();
    let own = unknown_sources(subject, "events.sources", place, &rule.sources, &rule.types);
    let places = subject.places_in_list("limits", "inhibit", "sources");
    let inhibiting = rule.inhibit.iter().zip(places);
    let inhibiting = inhibiting.flat_map(|(inhibit, place)| {
        unknown_sources(subject, "limits.inhibit", place, &inhibit.sources, &inhibit.by)
    });
    own.into_iter().chain(inhibiting).collect()
}

fn unknown_sources(
    subject: &Subject<'_>,
    key: &str,
    place: Option<Place>,
    sources: &[String],
    types: &[Pattern],
) -> Vec<Diagnostic> {
    let Some(place) = place else { return Vec::new() };
    let ships = |pattern: &Pattern| catalogue::types().any(|entry| pattern.matches(&entry.event_type));
    let diagnose = |source: &String| {
        let meant = nearest(source, producers::sources());
        if subject.is_source_known(source) || (meant.is_none() && !types.iter().all(ships)) {
            return None;
        }
        let at = place.first_name(source).unwrap_or_else(|| place.clone());
        let message = format!("no known source is called `{}`", shown(source));
        let note = "if a producer of yours has this name, use it as the source of an event in `[[tests]]`";
        Some(Diagnostic::error(at, key, message).with_nearest(meant).with_note(note))
    };
    sources.iter().filter_map(diagnose).collect()
}

fn severity_filter(subject: &Subject<'_>) -> Vec<Diagnostic> {
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
