//! The end of what rules left in a session that are no longer in force.

use super::{entry::Entry, parts::Injector};
use crate::{conversation::ended::EndedRules, ledger::Reason};

impl Injector {
    /// Ends the repetitions and delays of rules that are no longer in force, and forgets the delivered
    /// conditions that nothing can resolve any more.
    ///
    /// Shape: a repetition that the user or the agent put off still comes, as somebody asked for it;
    /// so does one whose delivery is not confirmed.
    pub fn end_rules(&mut self, ended: &EndedRules) {
        self.delivered.end_rules(ended);
        let is_waiting = |entry: &Entry| {
            let is_wanted = entry.is_recalled || entry.returned_from.is_some();
            entry.is_repeated() && !is_wanted && !entry.is_snoozed()
        };
        let is_over = |entry: &Entry| {
            let has_rule = entry.notification.repeat.is_some();
            has_rule && ended.repeats.contains(&entry.notification.subscriber) && is_waiting(entry)
        };
        for entry in self.queue.take_all_that(&is_over) {
            self.arrived.insert(entry.notification.id);
            self.end(&entry.notification, Reason::NotRepeated);
            self.delivered.insert(entry.notification);
        }
        let is_changed = |entry: &Entry| ended.applied_to(&entry.notification).is_some();
        for mut entry in self.queue.take_all_that(&is_changed) {
            entry.notification = ended.applied_to(&entry.notification).unwrap_or(entry.notification);
            entry.holds.retain(|hold| !ended.end_hold(&entry.notification, hold));
            self.queue.restore(entry);
        }
        self.leases.end_rules(ended);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use journal::time::Timestamp;

    use super::*;
    use crate::{
        conversation::injector::tests::{Story, exchange, in_step, notification},
        notification::{
            InjectionPoint, Notification, Priority, SubscriberId,
            repeat::{Action, Repeat, RepeatAfter, RepeatUntil, Response},
        },
    };

    #[test]
    fn a_snoozed_notification_comes_without_repeat() {
        let after = vec![RepeatAfter::Millis(10_000)];
        let repeat = Repeat { until: RepeatUntil::Answered, after, raise: Vec::new(), is_endless: true };
        let mut story = Story::new();
        for name in ["repeated", "snoozed"] {
            let made = notification(name, Priority::High, InjectionPoint::AfterTool);
            story.injector.push(Arc::new(Notification { repeat: Some(Box::new(repeat.clone())), ..made }));
        }
        let call = |number: &str| in_step(number, exchange(InjectionPoint::AfterTool, number));
        assert_eq!(story.exchange(&call("1"), 0), ["repeated", "snoozed"]);
        assert_eq!(story.exchange(&call("2"), 1_000), Vec::<String>::new());
        let until = Some(Timestamp::from_millis(5_000));
        let response = Response { action: Action::Snooze, by: "user".into(), until };
        let snoozed = notification("snoozed", Priority::High, InjectionPoint::AfterTool).id;
        assert!(story.injector.respond(&snoozed, &response, Timestamp::from_millis(2_000)));
        let repeats = ["repeated", "snoozed"].map(SubscriberId::new).into_iter().collect();
        story.injector.end_rules(&EndedRules { repeats, ..EndedRules::default() });
        assert_eq!(story.exchange(&call("3"), 60_000), ["snoozed"]);
        assert_eq!(story.exchange(&call("4"), 120_000), Vec::<String>::new());
    }
}
