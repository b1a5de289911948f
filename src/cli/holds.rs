//! Holds as lines for people: the kind, the rule behind it with its place, and when it ends.

use super::{terminal::Terminal, why::rules::Rules};
use crate::api::wire::inbox::HoldView;

impl HoldView {
    /// In short, such as `quiet by limits.quiet (subscribers/pager.toml:12), ends in 1h`.
    pub(super) fn short(&self, subscriber: &str, rules: &Rules<'_, '_>, terminal: &Terminal) -> String {
        self.rule(subscriber, rules) + &self.end(terminal)
    }

    /// The same with its beginning.
    pub(super) fn whole(&self, subscriber: &str, rules: &Rules<'_, '_>, terminal: &Terminal) -> String {
        let since = format!(", began {}", terminal.moment(&self.since));
        self.rule(subscriber, rules) + &since + &self.end(terminal)
    }

    fn rule(&self, subscriber: &str, rules: &Rules<'_, '_>) -> String {
        format!("{} by {}{}", self.kind, self.cause, rules.of_hold(self, subscriber))
    }

    fn end(&self, terminal: &Terminal) -> String {
        let until = self.until.as_ref().map(|until| format!("ends {}", terminal.moment(until)));
        let ends = until.into_iter().chain(self.after.iter().map(|after| format!("after {after}")));
        let ends = ends.collect::<Vec<_>>().join(" or ");
        if ends.is_empty() { String::new() } else { format!(", {ends}") }
    }
}
