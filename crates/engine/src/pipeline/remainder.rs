//! What later files of a core subscriber leave to an earlier one: the events that the earlier one
//! takes and none of them does.
//!
//! The event and the rules alone decide, so of the subscribers of one id exactly one takes an event,
//! and a replay repeats the decision. A `where` that fails for an event does not take it.

use std::sync::Arc;

use crate::{
    event::{Event, Pattern, PatternSegment, Severity},
    notification::SubscriberId,
    pipeline::rule::Subscriber,
};

/// Whether no later subscriber of the same id takes `event`.
pub(crate) fn is_left(rule: &Subscriber, event: &Arc<Event>) -> bool {
    !rule.later.iter().any(|later| later.takes(event))
}

/// The id of what later files leave to the subscriber `id` of a layer: `ID@LAYER`.
pub fn id(id: &SubscriberId, layer: &str) -> SubscriberId {
    SubscriberId::new(&format!("{id}@{layer}"))
}

/// The keys of `[events]` by which `later` may take less than `earlier`, each with the reason, as
/// the end of a sentence; none if it takes every event that `earlier` takes.
pub fn narrower_keys(later: &Subscriber, earlier: &Subscriber) -> Vec<(&'static str, String)> {
    let mut keys = Vec::new();
    let is_kept = |pattern: &&Pattern| later.types.iter().any(|own| covers(own, pattern));
    if let Some(missing) = earlier.types.iter().find(|pattern| !is_kept(pattern)) {
        keys.push(("types", format!("`{missing}` is missing")));
    }
    let has_all_sources = later.sources.is_empty()
        || (!earlier.sources.is_empty() && earlier.sources.iter().all(|name| later.sources.contains(name)));
    if !has_all_sources {
        keys.push(("sources", "only events of these `sources` pass".to_owned()));
    }
    let is_lowered = later.severity_min > Severity::Debug && !later.severity_when.is_empty();
    if is_lowered {
        keys.push(("severity_when", "it can make events less severe than `severity_filter`".to_owned()));
    }
    if later.severity_min > earlier.severity_min {
        keys.push(("severity_filter", format!("`severity_filter` was {}", earlier.severity_min)));
    }
    let source = |rule: &Subscriber| rule.condition.as_ref().map(|condition| condition.source().to_owned());
    if later.condition.is_some() && source(later) != source(earlier) {
        keys.push(("where", "only events that meet `where` pass".to_owned()));
    }
    keys
}

/// Whether `wide` selects every type that `narrow` selects.
pub fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
    let mut narrow = narrow.segments();
    for segment in wide.segments() {
        let is_covered = match (segment, narrow.next()) {
            (PatternSegment::Rest, Some(_)) => return true,
            (PatternSegment::One, Some(PatternSegment::One | PatternSegment::Exact(_))) => true,
            (PatternSegment::Exact(wide), Some(PatternSegment::Exact(narrow))) => wide == narrow,
            (PatternSegment::One | PatternSegment::Exact(_), Some(_)) | (_, None) => false,
        };
        if !is_covered {
            return false;
        }
    }
    narrow.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::{
        condition::Condition,
        tests::{event, rule},
    };

    fn patterns(texts: &[&str]) -> Vec<Pattern> {
        texts.iter().map(|text| text.parse().expect("a pattern")).collect()
    }

    fn subscriber(types: &[&str], sources: &[&str], severity_min: Severity, condition: &str) -> Subscriber {
        let condition = Some(condition).filter(|text| !text.is_empty());
        Subscriber {
            types: patterns(types),
            sources: sources.iter().map(|source| (*source).to_owned()).collect(),
            severity_min,
            condition: condition.map(|text| Condition::compile(text).expect("valid")),
            ..rule()
        }
    }

    #[test]
    fn keys_that_take_less_are_named() {
        let earlier = || subscriber(&["a.b", "a.c.*"], &[], Severity::Info, "");
        for (later, expected) in [
            (subscriber(&["a.b", "a.c.d", "a.c.*"], &[], Severity::Debug, ""), &[][..]),
            (subscriber(&["a.**"], &[], Severity::Info, ""), &[]),
            (subscriber(&["a.b"], &[], Severity::Info, ""), &["types"]),
            (subscriber(&["a.**"], &["x"], Severity::Info, ""), &["sources"]),
            (subscriber(&["a.**"], &[], Severity::Error, ""), &["severity_filter"]),
            (subscriber(&["a.**"], &[], Severity::Info, "payload.n > 1"), &["where"]),
            (
                subscriber(&["a.b"], &["x"], Severity::Error, "payload.n"),
                &["types", "sources", "severity_filter", "where"],
            ),
        ] {
            let keys: Vec<_> = narrower_keys(&later, &earlier()).into_iter().map(|(key, _)| key).collect();
            assert_eq!(keys, expected, "{later:?}");
        }
        let filtered = || subscriber(&["a.b"], &["x", "y"], Severity::Info, "payload.n");
        assert_eq!(narrower_keys(&filtered(), &filtered()), []);
    }

    #[test]
    fn an_event_is_taken_by_exactly_one() {
        let (mut e, l) = (
            subscriber(&["tool.call.*"], &[], Severity::Debug, ""),
            subscriber(&["tool.call.failure"], &["x"], Severity::Error, "payload.n + 1 > 3"),
        );
        e.later = vec![Arc::new(l)];
        for (event_type, source, severity, fields, is_left_over) in [
            ("tool.call.failure", "x", Severity::Error, r#""n":3"#, false),
            ("tool.call.timeout", "x", Severity::Error, r#""n":3"#, true),
            ("tool.call.failure", "y", Severity::Error, r#""n":3"#, true),
            ("tool.call.failure", "x", Severity::Warning, r#""n":3"#, true),
            ("tool.call.failure", "x", Severity::Error, r#""n":1"#, true),
            // The condition fails: a text has no sum with a number.
            ("tool.call.failure", "x", Severity::Error, r#""n":"3""#, true),
        ] {
            let event = Arc::new(Event {
                event_type: event_type.parse().expect("a type"),
                source: source.into(),
                severity,
                ..(*event(fields)).clone()
            });
            assert_eq!(is_left(&e, &event), is_left_over, "{event_type} {source} {severity} {fields}");
            assert!(e.takes(&event), "the earlier one would take it");
        }
    }

    #[test]
    fn a_pattern_covers_those_that_select_no_more() {
        let pattern = |text: &str| text.parse::<Pattern>().expect("a pattern");
        for (wide, narrow, expected) in [
            ("tool.call.failure", "tool.call.failure", true),
            ("tool.call.*", "tool.call.failure", true),
            ("tool.**", "tool.call.*", true),
            ("tool.**", "tool.call.**", true),
            ("**", "tool.call.failure", true),
            ("tool.call.*", "tool.call.**", false),
            ("tool.call.failure", "tool.call.*", false),
            ("tool.call.failure.**", "tool.call.failure", false),
            ("tool.call", "tool.call.failure", false),
        ] {
            assert_eq!(covers(&pattern(wide), &pattern(narrow)), expected, "{wide} {narrow}");
        }
    }
}
