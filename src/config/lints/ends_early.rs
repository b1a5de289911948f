//! `ends-early`: a life that is shorter than the wait before it.

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::Diagnostic;

pub(super) const LINT: Lint = Lint {
    name: LintName::EndsEarly,
    level: LintLevel::Warning,
    finds: "a `ttl` shorter than the window of a batch",
    why: "A batch waits for its window, and then has less time to be delivered than it waited.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
window_ms = 10000

[limits]
ttl = "2s"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
window_ms = 10000

[limits]
ttl = "10m"
"#,
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let longest = subject.rule.batching.open_max();
    let (Some(ttl), Some(place)) = (subject.rule.ttl, subject.place("limits.ttl")) else { return Vec::new() };
    if ttl >= longest {
        return Vec::new();
    }
    let message = format!(
        "a batch waits up to {} ms, and its notification ends after {} ms: `ttl` is shorter than the window",
        longest.as_millis(),
        ttl.as_millis()
    );
    vec![Diagnostic::error(place.clone(), "limits.ttl", message)]
}
