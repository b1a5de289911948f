//! What postpones the delivery of a notification: `deliver_after` of its subscriber and of its events.
//!
//! Each is a hold of its own, so the later one counts.

use std::time::Duration;

use journal::time::zone::Zone;

use super::{batch::Batch, rule::Subscriber};
use crate::{
    event::Event,
    hold::{DelayedBy, EventDelay, Postponed, Wait},
    notification::Priority,
};

/// The longest delay of an event whose notification has no `ttl`.
const EVENT_DELAY_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// The delays of the notification of a batch; a critical one has none.
pub(super) fn delays(rule: &Subscriber, batch: &Batch, priority: Priority, zone: &Zone) -> Box<[Postponed]> {
    let has_none = || batch.rows.iter().any(|row| row.event.deliver_after.is_none());
    if priority == Priority::Critical || rule.deliver_after.is_empty() && has_none() {
        return Box::default();
    }
    let of_rule: Vec<Wait> =
        rule.deliver_after.iter().map(|delay| delay.wait(batch.closed_at, zone)).collect();
    let of_rule = (!of_rule.is_empty()).then_some(Postponed { by: DelayedBy::Subscriber, waits: of_rule });
    of_rule.into_iter().chain(of_events(rule, batch, zone)).collect()
}

/// The delay of the events of a batch, counted from the newest one. One of them without a delay is
/// enough for none.
fn of_events(rule: &Subscriber, batch: &Batch, zone: &Zone) -> Option<Postponed> {
    let own = |event: &Event| event.deliver_after.as_deref()?.parse::<EventDelay>().ok();
    let delays: Option<Vec<EventDelay>> = batch.rows.iter().map(|row| own(&row.event)).collect();
    let mut waits: Vec<Wait> = delays?.pop()?.waits(batch.newest_at, zone).collect();
    if rule.ttl.is_none() {
        waits.push(Wait::Until(batch.newest_at + EVENT_DELAY_MAX));
    }
    Some(Postponed { by: DelayedBy::Event, waits })
}
