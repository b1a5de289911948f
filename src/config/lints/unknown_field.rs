//! `unknown-field`: a payload field that nothing has.

use engine::{
    event::{FieldPath, Pattern},
    nearest::nearest,
    pipeline::{condition::Condition, rule::Subscriber, threshold::Measure},
    sorted::SortedSet,
};

use super::{
    lint::{Check, Example, Lint, LintLevel, LintName},
    subject::Subject,
};
use crate::config::report::{Diagnostic, Place, shown};

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

/// The events whose payload a key names a field of.
#[derive(Clone, Copy)]
enum Of<'a> {
    /// Those of the subscriber, and those that resolve it.
    Own,
    /// Those of the subscriber alone.
    Taken,
    /// Those that resolve it.
    Resolving(&'a [Pattern]),
    /// Those that inhibit it.
    Inhibiting(&'a [Pattern]),
}

/// A key with the payload fields that it names.
struct Named<'a> {
    key: &'static str,
    place: Option<Place>,
    of: Of<'a>,
    fields: Vec<String>,
}

impl Of<'_> {
    fn known<'a>(&self, subject: &Subject<'a>) -> Option<SortedSet<&'a str>> {
        match self {
            Self::Own => subject.payload_fields(),
            Self::Taken => subject.fields_of(&subject.rule.types),
            Self::Resolving(patterns) | Self::Inhibiting(patterns) => subject.fields_of(*patterns),
        }
    }

    fn words(&self) -> &'static str {
        match self {
            Self::Own | Self::Taken => "the types of",
            Self::Resolving(_) => "the types that resolve",
            Self::Inhibiting(_) => "the types that inhibit",
        }
    }
}

fn check(subject: &Subject<'_>, _: &[Subject<'_>]) -> Vec<Diagnostic> {
    let named = own_keys(subject).chain(equal_keys(subject)).chain(inhibit_keys(subject));
    named.flat_map(|named| unknown(subject, &named)).collect()
}

fn unknown(subject: &Subject<'_>, named: &Named<'_>) -> Vec<Diagnostic> {
    let Named { key, place, of, fields } = named;
    let (Some(place), Some(known)) = (place, of.known(subject)) else { return Vec::new() };
    let fields = fields.iter().filter(|field| !known.contains(field.as_str()));
    let diagnose = |field: &String| {
        let (name, of, id) = (shown(field), of.words(), &subject.rule.id);
        let message = format!("no example of {of} `{id}` has a field `{name}` in its payload");
        let at = place.first_name(&format!("payload.{field}")).unwrap_or_else(|| place.clone());
        let meant = nearest(field, known.iter().copied()).map(|meant| format!("payload.{meant}"));
        Diagnostic::error(at, *key, message)
            .with_nearest(meant)
            .with_note("if it is intended, use it in an event of `[[tests]]`")
    };
    fields.map(diagnose).collect()
}

fn names<'p>(paths: impl IntoIterator<Item = &'p FieldPath>) -> Vec<String> {
    paths.into_iter().flat_map(FieldPath::payload_fields).map(str::to_owned).collect()
}

/// The keys that name fields of its own events.
fn own_keys<'a>(subject: &Subject<'a>) -> impl Iterator<Item = Named<'a>> {
    let rule: &Subscriber = subject.rule;
    let read = |condition: &Condition| condition.fields().iter().cloned().collect::<Vec<_>>();
    let conditions = |condition: &Option<Condition>| condition.as_ref().map(read).unwrap_or_default();
    let severities = rule.severity_when.iter().flat_map(|one| read(&one.condition)).collect();
    let (threshold, rate) = (rule.threshold.as_ref(), rule.rate.as_ref());
    let sum = threshold.and_then(|threshold| match &threshold.measure {
        Measure::Sum(field) => Some(field),
        Measure::Count => None,
    });
    let dedupe = rule.dedupe.as_ref();
    let fields = [
        ("events.where", conditions(&rule.condition)),
        ("events.severity_when", severities),
        ("batching.group_by", names(&rule.batching.group_by)),
        ("batching.dedupe_key", names(dedupe.iter().flat_map(|dedupe| &dedupe.key))),
        ("batching.dedupe_ignore", names(dedupe.iter().flat_map(|dedupe| &dedupe.ignore))),
        ("batching.close_when", conditions(&rule.close_when)),
        ("batching.open_when", conditions(&rule.open_when)),
        ("absent.by", names(rule.absence.iter().flat_map(|absence| &absence.by))),
        ("threshold.by", names(threshold.iter().flat_map(|threshold| &threshold.by))),
        ("threshold.sum", names(sum)),
        ("output.priority_by", names(&rule.output.priority_by)),
        ("limits.rate_by", names(rate.iter().flat_map(|rate| &rate.by))),
        ("limits.supersede_key", names(&rule.supersede_key)),
        ("limits.revision", names(&rule.order.revision)),
        ("limits.order_by", names(&rule.order.by)),
    ];
    let named = |(key, fields)| Named { key, place: subject.place(key).cloned(), of: Of::Own, fields };
    fields.map(named).into_iter()
}

/// `equal`: a field of both events.
fn equal_keys<'a>(subject: &Subject<'a>) -> Vec<Named<'a>> {
    let Some(resolve) = &subject.rule.resolve else { return Vec::new() };
    let place = subject.place("limits.equal");
    let named = |of| Named { key: "limits.equal", place: place.cloned(), of, fields: names(&resolve.equal) };
    [Of::Taken, Of::Resolving(&resolve.by)].map(named).into()
}

/// The fields in which an inhibited event equals the other one, in the short form and in the long one.
fn inhibit_keys<'a>(subject: &Subject<'a>) -> Vec<Named<'a>> {
    let long = subject.places_in_list("limits", "inhibit", "equal");
    let each = subject.rule.inhibit.iter().enumerate().flat_map(|(index, rule)| {
        let (key, place) = match subject.place("limits.inhibit_equal") {
            Some(place) => ("limits.inhibit_equal", Some(place.clone())),
            None => ("limits.inhibit", long.get(index).cloned().flatten()),
        };
        let (own, other): (Vec<_>, Vec<_>) = rule.equal.iter().map(|(own, other)| (own, other)).unzip();
        let sides = [(Of::Taken, names(own)), (Of::Inhibiting(&rule.by), names(other))];
        sides.map(|(of, fields)| Named { key, place: place.clone(), of, fields })
    });
    each.collect()
}
