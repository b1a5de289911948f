//! `unknown-field`: a payload field that nothing has.

use engine::{
    event::FieldPath,
    nearest::nearest,
    pipeline::{condition::Condition, rule::Subscriber, threshold::Measure},
};

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::{Diagnostic, shown};

pub(super) const LINT: Lint = Lint {
    name: LintName::UnknownField,
    level: LintLevel::Warning,
    finds: "a payload field in `where`, a key, a column or a text that no example and no test has",
    why: "Such a name is mostly misspelt: the field is always absent. The examples are those of the \
          catalogue, of your `events.toml` and of the `[[tests]]`.",
    example: Example {
        wrong: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
dedupe_key = "payload.tol_name"
"#,
        )],
        right: &[(
            "subscribers/x.toml",
            r#"[subscriber]
id = "x"

[events]
types = ["tool.call.failure"]

[batching]
dedupe_key = "payload.tool_name"
"#,
        )],
    },
    check: Check::Subscriber(check),
};

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let Some(known) = subject.payload_fields() else { return Vec::new() };
    let mut found = Vec::new();
    for (key, fields) in fields(subject.rule) {
        let Some(place) = subject.place(key) else { continue };
        for field in fields.iter().filter(|field| !known.contains(field.as_str())) {
            let name = shown(field);
            let message = format!(
                "no example of the types of `{}` has a field `{name}` in its payload",
                subject.rule.id
            );
            let at = place.first_name(&format!("payload.{field}")).unwrap_or_else(|| place.clone());
            let meant = nearest(field, known.iter().copied()).map(|meant| format!("payload.{meant}"));
            found.push(
                Diagnostic::error(at, key, message)
                    .with_nearest(meant)
                    .with_note("if it is intended, use it in an event of `[[tests]]`"),
            );
        }
    }
    found
}

/// The keys that name fields, with the payload fields that they name.
fn fields(rule: &Subscriber) -> Vec<(&'static str, Vec<String>)> {
    let names = |paths: &[FieldPath]| {
        paths.iter().flat_map(FieldPath::payload_fields).map(str::to_owned).collect::<Vec<_>>()
    };
    let read = |condition: &Condition| condition.fields().iter().cloned().collect::<Vec<_>>();
    let conditions = |condition: &Option<Condition>| condition.as_ref().map(read).unwrap_or_default();
    let severities = rule.severity_when.iter().flat_map(|one| read(&one.condition)).collect();
    let (threshold, rate) = (rule.threshold.as_ref(), rule.rate.as_ref());
    let sum = threshold.and_then(|threshold| match &threshold.measure {
        Measure::Sum(field) => Some(names(std::slice::from_ref(field))),
        Measure::Count => None,
    });
    let equal = rule.resolve.as_ref().map(|resolve| names(&resolve.equal));
    let targets = rule.inhibit.iter().flat_map(|one| one.equal.iter().map(|(target, _)| target.clone()));
    let inhibit = names(&targets.collect::<Vec<_>>());
    let dedupe = rule.dedupe.as_ref().map(|dedupe| names(&dedupe.key));
    vec![
        ("events.where", conditions(&rule.condition)),
        ("events.severity_when", severities),
        ("batching.group_by", names(&rule.batching.group_by)),
        ("batching.dedupe_key", dedupe.unwrap_or_default()),
        ("batching.close_when", conditions(&rule.close_when)),
        ("batching.open_when", conditions(&rule.open_when)),
        ("absent.by", rule.absence.as_ref().map(|absence| names(&absence.by)).unwrap_or_default()),
        ("threshold.by", threshold.map(|threshold| names(&threshold.by)).unwrap_or_default()),
        ("threshold.sum", sum.unwrap_or_default()),
        ("output.priority_by", names(rule.output.priority_by.as_slice())),
        ("limits.rate_by", rate.map(|rate| names(&rate.by)).unwrap_or_default()),
        ("limits.supersede_key", names(&rule.supersede_key)),
        ("limits.equal", equal.unwrap_or_default()),
        ("limits.inhibit_equal", inhibit),
        ("limits.revision", names(&rule.order.revision)),
        ("limits.order_by", names(&rule.order.by)),
    ]
}
