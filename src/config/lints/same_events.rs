//! `same-events`: two subscribers for the same events.

use engine::{pipeline::rule::Subscriber, sorted::SortedSet};

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::Diagnostic;

pub(super) const LINT: Lint = Lint {
    name: LintName::SameEvents,
    level: LintLevel::Warning,
    finds: "two enabled subscribers that take the same types, without `where`, at the same point",
    why: "Each makes a notification of each event, so the agent reads the same twice.",
    example: Example {
        wrong: &[
            (
                "subscribers/x.toml",
                r#"[subscriber]
id = "x"

[events]
types = ["timer.fired"]

[output]
audience = "user"
"#,
            ),
            (
                "subscribers/y.toml",
                r#"[subscriber]
id = "y"

[events]
types = ["timer.fired"]

[output]
audience = "user"
"#,
            ),
        ],
        right: &[
            (
                "subscribers/x.toml",
                r#"[subscriber]
id = "x"

[events]
types = ["timer.fired"]

[output]
audience = "user"
"#,
            ),
            (
                "subscribers/y.toml",
                r#"[subscriber]
id = "y"

[events]
types = ["timer.fired"]

[output]
audience = "user"
inject_at = "turn_end"
"#,
            ),
        ],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, all: &[Subject<'_>]) -> Vec<Diagnostic> {
    let (rule, place) = (subject.rule, subject.place("events.types"));
    // Of two subscribers the later one is named, or the one that is not shipped.
    let is_earlier = |other: &&Subject<'_>| {
        other.is_shipped() || (!subject.is_shipped() && other.rule.id < subject.rule.id)
    };
    let is_same = |other: &&Subject<'_>| other.rule.id != rule.id && takes_the_same(rule, other.rule);
    let (Some(place), Some(other)) = (place, all.iter().filter(is_earlier).find(is_same)) else {
        return Vec::new();
    };
    let message = format!("`{}` takes the same events as `{}`, for the same point", rule.id, other.rule.id);
    let note = "give one of them a `where`, or disable it: each event is delivered twice";
    vec![Diagnostic::error(place.clone(), "events.types", message).with_note(note)]
}

fn takes_the_same(one: &Subscriber, other: &Subscriber) -> bool {
    let types = |rule: &Subscriber| rule.types.iter().map(ToString::to_string).collect::<SortedSet<String>>();
    let sources = |rule: &Subscriber| rule.sources.iter().cloned().collect::<SortedSet<String>>();
    let takes_each = |rule: &Subscriber| {
        rule.condition.is_none() && rule.threshold.is_none() && rule.severity_when.is_empty()
    };
    takes_each(one)
        && takes_each(other)
        && one.severity_min == other.severity_min
        && one.output.inject_at == other.output.inject_at
        && one.output.audience == other.output.audience
        && types(one) == types(other)
        && sources(one) == sources(other)
}
