//! The keys of `[limits]` by which events inhibit the events of a subscriber.

use std::{ops::RangeInclusive, time::Duration};

use engine::{
    event::{FieldPath, Pattern},
    pipeline::inhibition::InhibitRule,
    settings::{Key, Keys as _, settings},
};

use crate::config::{
    lint_name::LintName,
    patterns,
    raw::{Parsed, Section, Value},
    values,
};

/// The limits of `for`.
const LASTS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 3_600);
/// How long an event of `inhibited_by` inhibits.
const LASTS_SHORT: Duration = Duration::from_secs(600);
/// How long an event inhibits whose end has types.
const LASTS_DEFAULT: Duration = Duration::from_secs(24 * 3_600);
/// Most rules.
const RULES_MAX: usize = 16;

/// The fields in which two events are equal: of the inhibited one, and of the other one.
pub(super) type Equal = Vec<(FieldPath, FieldPath)>;

settings! {
    /// Which events inhibit those of this subscriber.
    pub(super) struct Keys from Section<'_> {
        /// The types of events that inhibit those of this subscriber for 10 minutes each: an
        /// occurrence ends as `inhibited`, a condition is
        /// [held](batching.md#from-event-to-notification). They inhibit whether anybody takes them or
        /// not, and also what came shortly before and is still pending. An untrusted event inhibits no
        /// trusted one, and only a critical one inhibits critical ones.
        inhibited_by: Vec<Pattern> = Vec::new(), patterns();
        /// The fields in which both events must be equal; `""` for everything. A table, from the
        /// fields of the inhibited event to those of the other one, if their names differ. An event
        /// that has none of these fields of the payload inhibits nothing, and is not inhibited.
        inhibit_equal: Equal, equal_fields(), else "none; it is required with `inhibited_by`";
        /// The same in more detail, in place of `inhibited_by`; any number of these.
        inhibit: Vec<InhibitRule> = Vec::new(), inhibitions(RULES_MAX, inhibit_keys());
    }
}

/// The keys of an entry of `[[limits.inhibit]]`.
fn inhibit_keys() -> Vec<Key> {
    engine::settings::keys! {
        /// The types of events that inhibit.
        by: Vec<Pattern>, types();
        /// The sources of these; any if empty.
        sources: Vec<String> = Vec::new(), lines();
        /// The fields in which both must be equal, as in `inhibit_equal`.
        equal: Equal, required_equal_fields();
        /// The types of events that end it, with equal fields.
        until: Vec<Pattern> = Vec::new(), patterns();
        /// The longest time; required without `until`.
        lasts "for": Duration, duration(LASTS), else "24h with `until`";
    }
}

impl Section<'_> {
    fn equal_fields(&mut self, key: &'static str) -> Option<Equal> {
        self.read(key, read_equal)
    }

    fn inhibitions(&mut self, key: &'static str, max: usize, _: Vec<Key>) -> Option<Vec<InhibitRule>> {
        self.read(key, |value| {
            let rules = values::list(value, read_rule)?;
            values::at_most(value, rules, max)
        })
    }
}

/// Fields joined by `:`, or a table from fields of one event to fields of the other one.
fn read_equal(value: &Value<'_>) -> Parsed<Equal> {
    let Some(entries) = value.entries() else {
        let fields = values::field_paths(value)?;
        return Ok(fields.into_iter().map(|field| (field.clone(), field)).collect());
    };
    let (mut equal, mut found) = (Vec::new(), Vec::new());
    for (target, source) in entries {
        match (FieldPath::parse(target), values::field_paths(&source)) {
            (Some(target), Ok(fields)) if fields.len() == 1 => {
                equal.extend(fields.into_iter().map(|field| (target.clone(), field)));
            }
            (Some(_), Ok(_)) => found.push(source.error(format!("`{target}` equals one field"))),
            (Some(_), Err(wrong)) => found.extend(wrong),
            (None, _) => found.push(source.key_error(format!("`{target}` is no field of an event"))),
        }
    }
    if found.is_empty() { Ok(equal) } else { Err(found) }
}

fn read_rule(value: &Value<'_>) -> Parsed<InhibitRule> {
    let mut section = value.section().ok_or_else(|| value.wrong_kind("a table"))?;
    let by = section.require("by", values::patterns);
    let sources = section.lines("sources").unwrap_or_default();
    let equal = section.require("equal", read_equal);
    let until = section.read("until", values::patterns).unwrap_or_default();
    let lasts = section.duration("for", LASTS);
    if until.is_empty() && lasts.is_none() && !section.is_wrong("for") && !section.is_wrong("until") {
        section.miss("for");
    }
    let found = section.finish();
    match (by, equal) {
        (Some(by), Some(equal)) if found.is_empty() => {
            Ok(InhibitRule { by, sources, equal, until, lasts: lasts.unwrap_or(LASTS_DEFAULT) })
        }
        _ => Err(found),
    }
}

/// Reads the keys of `[limits]`, and checks the types.
pub(super) fn read(section: &mut Section<'_>, known_types: &[&str]) -> Vec<InhibitRule> {
    let Keys { inhibited_by, inhibit_equal, inhibit } = Keys::read(section);
    patterns::check(section, "inhibited_by", |list| patterns::in_list(list, known_types));
    patterns::check(section, "inhibit", |rules| patterns::in_tables(rules, &["by", "until"], known_types));
    if inhibited_by.is_empty() {
        if inhibit_equal.is_some() && !section.is_wrong("inhibited_by") {
            let message = "`inhibit_equal` needs `inhibited_by`: it names the fields that must match";
            section.object("inhibit_equal", |value| value.error(message));
        }
        return inhibit;
    }
    if !inhibit.is_empty() {
        let message = "`inhibited_by` and `[[limits.inhibit]]` are two forms of one rule; write all of them in the long form";
        section.object("inhibited_by", |value| value.error(message));
    }
    if inhibit_equal.is_none() && !section.is_wrong("inhibit_equal") {
        let message = "`inhibited_by` needs `inhibit_equal`: the fields that must match for an event to inhibit another one";
        let note =
            "such as inhibit_equal = \"payload.zone\"; with inhibit_equal = \"\" it inhibits everything";
        section.object("inhibited_by", |value| value.error(message).with_note(note).named(LintName::NoEqual));
    }
    let (sources, until, equal) = (Vec::new(), Vec::new(), inhibit_equal.unwrap_or_default());
    vec![InhibitRule { by: inhibited_by, sources, equal, until, lasts: LASTS_SHORT }]
}
