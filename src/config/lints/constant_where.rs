//! `constant-where`: found when the file is read.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::ConstantWhere,
    level: LintLevel::Warning,
    finds: "a `where` that uses no field of the event",
    why: "Such an expression accepts all events or none. Compare a field, or remove the key.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]
where = "'error' == 'error'"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]
where = "payload.tool_name == 'grep'"
"#,
        )],
    },
    check: Check::Elsewhere,
};
