//! The parts of a core subscriber that a later layer may not change: what ends its notifications. A
//! later layer may change its text, and take fewer events (`pipeline/remainder.rs`).

use std::sync::Arc;

use engine::pipeline::{
    remainder::covers,
    rule::{OrderRule, ResolveRule, Subscriber},
};

use crate::config::{
    raw::{Section, Value},
    report::Diagnostic,
};

/// A core subscriber of an earlier layer.
pub(crate) struct Protected {
    path: Arc<str>,
    resolve: Option<ResolveRule>,
    order: OrderRule,
}

impl Protected {
    /// The protected parts of `rule`, from the file `path`.
    pub(crate) fn new(path: &Arc<str>, rule: &Subscriber) -> Self {
        Self { path: Arc::clone(path), resolve: rule.resolve.clone(), order: rule.order.clone() }
    }

    /// A value of a later file that is not allowed.
    pub(crate) fn refusal(&self, value: &Value<'_>, message: impl Into<String>) -> Diagnostic {
        let note = format!("it replaces a core subscriber, which is in {}", self.path);
        value.error(message).with_note(note)
    }
}

impl Protected {
    /// Finds keys in a later file's `[limits]` that withdraw its notifications, or by which its events
    /// would end as older ones.
    pub(crate) fn check(&self, limits: &mut Section<'_>, resolve: Option<&ResolveRule>, order: &OrderRule) {
        self.check_resolve(limits, resolve);
        self.check_order(limits, order);
    }

    fn check_resolve(&self, section: &mut Section<'_>, resolve: Option<&ResolveRule>) {
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

    fn check_order(&self, section: &mut Section<'_>, order: &OrderRule) {
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
