//! `unused-allow`: found when the findings are complete.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::UnusedAllow,
    level: LintLevel::Warning,
    finds: "an allowance that silences nothing, or that names no lint",
    why: "The finding is gone, or it never was at this line. Such a comment would hide a later \
          mistake.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]
# aside: allow(constant-where)
where = "payload.tool_name == 'grep'"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]
# aside: allow(constant-where)
where = "'error' == 'error'"
"#,
        )],
    },
    check: Check::Elsewhere,
};
