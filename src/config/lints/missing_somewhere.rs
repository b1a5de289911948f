//! `missing-somewhere`: a value that is printed although it can be absent.

use std::ops::Range;

use engine::pipeline::render::Code;

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::{Diagnostic, shown};

pub(super) const LINT: Lint = Lint {
    name: LintName::MissingSomewhere,
    level: LintLevel::Warning,
    finds: "a field that one example has and another has not, printed amid other text without a test",
    why: "An absent value prints nothing. Alone on its line it takes the line with it, but amid other \
          words it leaves a hole. Test it by `if`, or give it a default.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["task.completed", "task.failed"]

[output]
one = "task: {{ payload.task }} took {{ payload.seconds }} s"

[[tests]]
name = "a task without a duration"
at = [["0ms", "task.completed", { task = "build" }], ["3s", "task.failed", { task = "lint", seconds = 4 }]]
expect = [{ at = "2s", decoded = {} }, { at = "5s", decoded = {} }]
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["task.completed", "task.failed"]

[output]
one = """
task: {{ payload.task }}
seconds: {{ payload.seconds }}
"""

[[tests]]
name = "a task without a duration"
at = [["0ms", "task.completed", { task = "build" }], ["3s", "task.failed", { task = "lint", seconds = 4 }]]
expect = [{ at = "2s", decoded = {} }, { at = "5s", decoded = {} }]
"#,
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let Some(places) = subject.declared() else { return Vec::new() };
    let examples = subject.examples();
    let has =
        |field: &str| examples.iter().filter(|event| event.payload.value().get(field).is_some()).count();
    let texts = places.one.iter().chain(&places.sentence);
    let holes = texts.flat_map(|(place, text)| {
        let open = holes(text);
        open.into_iter().filter(|(field, _)| (1..examples.len()).contains(&has(field))).map(
            |(field, range)| {
                let message =
                    format!("some examples have no `{}`, and this leaves a hole in the text", shown(field));
                Diagnostic::error(place.within(text, range), "", message)
                    .with_note(format!("test it: {{% if payload.{field} %}} .. {{% endif %}}"))
            },
        )
    });
    holes.collect()
}

/// The payload fields that a text prints on a line with other text, and tests nowhere.
fn holes(text: &str) -> Vec<(&str, Range<usize>)> {
    let printed = Code::of(text).map(|code| code.printed).unwrap_or_default();
    let hole = |range: &Range<usize>| {
        let code = text.get(range.clone())?.trim_start_matches("{{").trim_end_matches("}}");
        let field = code.trim_matches(['-', '+', ' ']).strip_prefix("payload.")?;
        let is_name = field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let (before, after) = (text.get(..range.start)?, text.get(range.end..)?);
        let start = before.rsplit('\n').next()?;
        let end = after.split('\n').next()?;
        // What follows `key: ` is the value of a line.
        let start = start.split_once(": ").map_or(start, |(_, value)| value);
        let is_alone = start.trim().is_empty() && end.trim().is_empty();
        let is_tested = text.match_indices(field).count() > 1;
        (is_name && !is_alone && !is_tested).then_some((field, range.clone()))
    };
    printed.iter().filter_map(hole).collect()
}
