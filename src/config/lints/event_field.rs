//! `event-field`: a field that no event has.

use engine::{
    nearest::nearest,
    pipeline::render::{EVENT_FIELDS, Layout, StrayField},
};

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
    let fields = subject.payload_fields().unwrap_or_default();
    let found = strays(subject).into_iter().map(|(name, place)| {
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

/// The fields that no event has, each with its place: in a template file, or in `many`.
fn strays<'a>(subject: &Subject<'a>) -> Vec<(&'a str, Place)> {
    match &subject.rule.output.layout {
        Layout::Template(name) => {
            let Some(file) = subject.template else { return Vec::new() };
            let strays = subject.compiled.rules.templates.stray_fields(name).iter();
            let placed = |stray: &'a StrayField| {
                (stray.name.as_str(), Place::new(&file.path, &file.text, stray.range.clone()))
            };
            strays.map(placed).collect()
        }
        Layout::Declared(declared) => {
            let Some((place, text)) = subject.declared().and_then(|own| own.many.as_ref()) else {
                return Vec::new();
            };
            let placed =
                |stray: &'a StrayField| (stray.name.as_str(), place.within(text, stray.range.clone()));
            declared.stray_fields().iter().map(placed).collect()
        }
    }
}
