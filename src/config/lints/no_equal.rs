//! `no-equal`: found when the file is read.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::NoEqual,
    level: LintLevel::Refused,
    finds: "`resolved_by` with neither `equal` nor `supersede_key`; `inhibited_by` without `inhibit_equal`",
    why: "Without the fields that must be equal, one event would end every condition of the \
          subscriber. Write `equal = \"\"` if that is meant.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["alert.firing"]

[limits]
resolved_by = ["alert.resolved"]

[output]
inject_at = "turn_end"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["alert.firing"]

[limits]
resolved_by = ["alert.resolved"]
equal = "payload.fingerprint"

[output]
inject_at = "turn_end"
"#,
        )],
    },
    check: Check::Elsewhere,
};
