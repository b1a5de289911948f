//! `untested`: a subscriber that nothing tests.

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::Diagnostic;

pub(super) const LINT: Lint = Lint {
    name: LintName::Untested,
    level: LintLevel::Off,
    finds: "a subscriber without `[[tests]]`",
    why: "A test states what a subscriber does, so that a later change of its keys is noticed.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[[tests]]
name = "a failure is delivered"
at = [["0ms", "tool.call.failure", { tool_name = "grep" }]]
expect = [{ at = "2s", decoded = {} }]
"#,
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let place = subject.place("subscriber.id").filter(|_| subject.tests().is_empty());
    let message = format!("`{}` has no test", subject.rule.id);
    place.map(|place| Diagnostic::error(place.clone(), "tests", message)).into_iter().collect()
}
