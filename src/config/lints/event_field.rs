//! `event-field`: a field that no event has.

use engine::{nearest::nearest, pipeline::render::EVENT_FIELDS};

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::{Diagnostic, Place, shown};

pub(super) const LINT: Lint = Lint {
    name: LintName::EventField,
    level: LintLevel::Error,
    finds: "a field of an event that does not exist, also inside `if` and `default`",
    why: "An event has nine fields. What its producer sends is below `payload`, so that \
          `events[0].tool_name` is always empty.",
    example: Example {
        wrong: &[(
            "templates/x.toon.j2",
            "fails: {{ count }}
{% if events[0].tool_name %}
tool: grep
{% endif %}
",
        )],
        right: &[(
            "templates/x.toon.j2",
            "fails: {{ count }}
{% if events[0].payload.tool_name %}
tool: grep
{% endif %}
",
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let (Some(file), Some(name)) = (subject.template, subject.rule.output.layout.template()) else {
        return Vec::new();
    };
    let fields = subject.payload_fields().unwrap_or_default();
    let strays = subject.compiled.rules.templates.stray_fields(name).iter();
    let found = strays.map(|stray| {
        let name = stray.name.as_str();
        let place = Place::new(&file.path, &file.text, stray.range.clone());
        let meant = match (fields.contains(name), nearest(name, EVENT_FIELDS)) {
            (true, _) => Some(format!("payload.{name}")),
            (false, Some(field)) => Some(field.to_owned()),
            (false, None) => nearest(name, fields.iter().copied()).map(|field| format!("payload.{field}")),
        };
        Diagnostic::error(
            place,
            "",
            format!("an event has no field `{}`, so this is always empty", shown(name)),
        )
        .with_nearest(meant)
        .with_note(format!("its fields are {}", EVENT_FIELDS.join(", ")))
    });
    found.collect()
}
