//! `plain-text`: found when a text is tried.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::PlainText,
    level: LintLevel::Warning,
    finds: "a text without a key",
    why: "A notification is TOON: a line is `key: value`. JSON and lists of YAML are only text there.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[output]
one = "{{ payload.tool_name }} failed"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[output]
one = "failed: {{ payload.tool_name }}"
"#,
        )],
    },
    check: Check::Elsewhere,
};
