//! `lost-key`: found when the files of a subscriber are compared.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::LostKey,
    level: LintLevel::Warning,
    finds: "a key that falls back to its default, because a file replaces an earlier one whole",
    why: "A file with the id of an earlier layer replaces all of it. What it does not name is at its \
          default, which is often not what was meant. `inherit = true` keeps the other keys.",
    example: Example {
        wrong: &[(
            "subscribers/timer.toml",
            r#"[subscriber]
id = "timer"

[events]
types = ["timer.fired"]

[output]
priority = "high"
"#,
        )],
        right: &[(
            "subscribers/timer.toml",
            r#"[subscriber]
id = "timer"
inherit = true

[output]
priority = "high"
"#,
        )],
    },
    check: Check::Elsewhere,
};
