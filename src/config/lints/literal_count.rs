//! `literal-count`: found when a text is tried.

use super::lint::{Check, Example, Lint, LintLevel, LintName};

pub(super) const LINT: Lint = Lint {
    name: LintName::LiteralCount,
    level: LintLevel::Refused,
    finds: "a number where the header of a table needs the count",
    why: "The header says how many rows follow. A batch has any number of rows, so a number that is \
          written in the template is wrong for all others, and the text fails.",
    example: Example {
        wrong: &[(
            "templates/x.toon.j2",
            "fails[2]{tool}:
{% for row in rows %}
  {{ row.tool_name }}
{% endfor %}
",
        )],
        right: &[(
            "templates/x.toon.j2",
            "fails[{{ count }}]{tool}:
{% for row in rows %}
  {{ row.tool_name }}
{% endfor %}
",
        )],
    },
    check: Check::Elsewhere,
};
