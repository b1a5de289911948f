//! `no-effect`: found when the file is read.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::NoEffect,
    level: LintLevel::Warning,
    finds: "a key that changes nothing with the others of its file",
    why: "Another key decides. Remove the key, or change the other one.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
window_ms = 0
group_by = "payload.tool_name"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
window_ms = 500
group_by = "payload.tool_name"
"#,
        )],
    },
    check: Check::Elsewhere,
};
