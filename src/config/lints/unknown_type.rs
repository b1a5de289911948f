//! `unknown-type`: found when the file is read.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::UnknownType,
    level: LintLevel::Warning,
    finds: "a pattern that selects no known type",
    why: "Such a pattern is mostly misspelt. Types of your own are known once `events.toml` names \
          them.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.falure"]
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]
"#,
        )],
    },
    check: Check::Elsewhere,
};
