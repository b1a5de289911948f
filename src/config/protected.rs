//! The parts of a core subscriber that a later layer may not change: whether it delivers. A later
//! layer may change its text.

use std::sync::Arc;

use crate::{
    config::{
        raw::{Section, Value},
        report::Diagnostic,
    },
    event::{Pattern, PatternSegment, Severity},
    pipeline::rule::{OrderRule, ResolveRule, Subscriber},
};

/// A core subscriber of an earlier layer.
pub(crate) struct Protected {
    path: Arc<str>,
    types: Vec<Pattern>,
    severity_min: Severity,
    resolve: Option<ResolveRule>,
    order: OrderRule,
}

impl Protected {
    /// The protected parts of `rule`, from the file `path`.
    pub(crate) fn new(path: &Arc<str>, rule: &Subscriber) -> Self {
        Self {
            path: Arc::clone(path),
            types: rule.types.clone(),
            severity_min: rule.severity_min,
            resolve: rule.resolve.clone(),
            order: rule.order.clone(),
        }
    }

    /// A value of a later file that is not allowed.
    pub(crate) fn refusal(&self, value: &Value<'_>, message: impl Into<String>) -> Diagnostic {
        let note = format!("it replaces a core subscriber, which is in {}", self.path);
        value.error(message).with_note(note)
    }

    /// Finds keys in a later file's `[events]` that keep events from it.
    pub(crate) fn check(
        &self,
        section: &mut Section<'_>,
        types: &[Pattern],
        sources: &[String],
        severity_min: Severity,
    ) {
        let is_kept = |pattern: &&Pattern| types.iter().any(|own| covers(own, pattern));
        let (_, missing): (Vec<&Pattern>, Vec<&Pattern>) = self.types.iter().partition(is_kept);
        if let (Some(first), false) = (missing.first(), types.is_empty()) {
            let message = format!("a core subscriber keeps its types, and `{first}` is missing");
            section.object("types", |value| self.refusal(value, message));
        }
        section.object("where", |value| self.refusal(value, "a core subscriber cannot have `where`"));
        if !sources.is_empty() {
            section.object("sources", |value| self.refusal(value, "a core subscriber cannot have `sources`"));
        }
        if severity_min > self.severity_min {
            let message = format!(
                "a core subscriber's `severity_filter` may be lower than before, not higher: it was {}",
                self.severity_min
            );
            section.object("severity_filter", |value| self.refusal(value, message));
        }
    }
}

impl Protected {
    /// Finds keys in a later file's `[limits]` that withdraw its notifications.
    pub(crate) fn check_resolve(&self, section: &mut Section<'_>, resolve: Option<&ResolveRule>) {
        let Some(resolve) = resolve else { return };
        let by = self.resolve.as_ref().map_or(&[][..], |own| &own.by);
        if let Some(other) = resolve.by.iter().find(|pattern| !by.iter().any(|own| covers(own, pattern))) {
            let message = format!(
                "only the shipped `resolved_by` may resolve notifications of a core subscriber, and `{other}` is not in it"
            );
            section.object("resolved_by", |value| self.refusal(value, message));
        }
        let equal = self.resolve.as_ref().map_or(&[][..], |own| &own.equal);
        if !equal.iter().all(|field| resolve.equal.contains(field)) {
            let message = "a core subscriber's `equal` cannot be changed";
            let key = if section.value("equal").is_some() { "equal" } else { "resolved_by" };
            section.object(key, |value| self.refusal(value, message));
        }
    }
}

impl Protected {
    /// Finds keys in a later file's `[limits]` by which its events would end as older ones.
    pub(crate) fn check_order(&self, section: &mut Section<'_>, order: &OrderRule) {
        let keys =
            [("revision", &order.revision, &self.order.revision), ("order_by", &order.by, &self.order.by)];
        for (key, own, before) in keys {
            if own != before {
                let message = format!("a core subscriber's `{key}` cannot be changed");
                section.object(key, |value| self.refusal(value, message.clone()));
            }
        }
    }
}

/// Whether `wide` selects every type that `narrow` selects.
fn covers(wide: &Pattern, narrow: &Pattern) -> bool {
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
