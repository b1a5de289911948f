//! `unused-file`: found when the files are compared.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::UnusedFile,
    level: LintLevel::Warning,
    finds: "a template or library that no subscriber uses, a fixture that neither a test nor \
            a preview can use, or a file that is not read because of its name",
    why: "The file changes nothing. A template is used by the subscriber with its name, or by one that \
          names it as `template`. A library is used by a text in use that takes a macro of \
          it. A fixture is used by the test that names it as `@NAME`, and by the preview of a subscriber \
          that takes its events.",
    example: Example {
        wrong: &[(
            "templates/tool_failur.toon.j2",
            "fails: {{ count }}
",
        )],
        right: &[(
            "templates/tool_failure.toon.j2",
            "fails: {{ count }}
",
        )],
    },
    check: Check::Elsewhere,
};
