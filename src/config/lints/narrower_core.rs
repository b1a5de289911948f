//! `narrower-core`: found when the files of a subscriber are compared.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::NarrowerCore,
    level: LintLevel::Warning,
    finds: "a file that takes fewer events than the core subscriber that it replaces",
    why: "What it does not take is delivered as before, by the earlier file.",
    example: Example {
        wrong: &[(
            "subscribers/tool_failure.toml",
            r#"[subscriber]
id = "tool_failure"
inherit = true

[events]
severity_filter = "error"
"#,
        )],
        right: &[(
            "subscribers/tool_failure.toml",
            r#"[subscriber]
id = "tool_failure"
inherit = true

[output]
max_tokens = 100
"#,
        )],
    },
    check: Check::Elsewhere,
};
