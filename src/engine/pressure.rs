//! The total length of all queues, and which queue evicts when it exceeds the bound.

use std::{cmp::Reverse, collections::BTreeSet};

use super::{Engine, sessions::Sessions};
use crate::{event::SessionId, injector::Injector, notification::Priority};

/// The lowest priority in a queue, and the queue's length; `None` when it is empty.
pub(super) type Weight = Option<(Priority, usize)>;

/// The total of all queues.
///
/// Shape: usually there is room for everything. The eviction order is built when the bound is
/// exceeded, and kept until half of the room is free again. Building it visits each session, at
/// most once per as many notifications as that half.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    total: usize,
    /// The eviction order.
    order: Option<BTreeSet<Place>>,
}

/// Orders queues: a lesser one evicts first.
type Place = (Priority, Reverse<usize>, SessionId);

fn place(id: &SessionId, (least, count): (Priority, usize)) -> Place {
    (least, Reverse(count), id.clone())
}

impl Pressure {
    /// Updates the total for a session's weight, from `before` to `now`.
    pub(super) fn change(&mut self, id: &SessionId, before: Weight, now: Weight) {
        if before == now {
            return;
        }
        let count = |weight: Weight| weight.map_or(0, |(_, count)| count);
        self.total = self.total - count(before) + count(now);
        if let Some(order) = &mut self.order {
            if let Some(before) = before {
                order.remove(&place(id, before));
            }
            order.extend(now.map(|now| place(id, now)));
        }
    }
}

impl Sessions {
    /// The queue that has to evict, if there are more than `total_max` in all: the longest of those
    /// with a notification of the lowest priority.
    fn over(&mut self, total_max: usize) -> Option<SessionId> {
        if self.pressure.total <= total_max {
            if self.pressure.total <= total_max / 2 {
                self.pressure.order = None;
            }
            return None;
        }
        let order = self.pressure.order.get_or_insert_with(|| {
            let known = self.open.iter().chain(self.away.iter());
            known.filter_map(|(id, session)| session.weight.map(|weight| place(id, weight))).collect()
        });
        order.first().map(|(_, _, id)| id.clone())
    }
}

impl Engine {
    /// Evicts down to the bound for all queues together; each queue chooses as when it is full.
    pub(super) fn relieve(&mut self) {
        let total_max = usize::try_from(self.rules.sessions.pending_max).unwrap_or(usize::MAX);
        while let Some(id) = self.sessions.over(total_max) {
            self.with_injector(&id, Injector::evict_least);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        engine::{CompiledRules, Input},
        event::{Scope, Severity},
        exchange::Harness,
        notification::{
            Activation, InjectionPoint, Interrupt, Notification, NotificationId, SubscriberId, Tokens,
        },
        time::Timestamp,
    };

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn notification(name: String, priority: Priority) -> Arc<Notification> {
        Arc::new(Notification {
            id: NotificationId::new(&name),
            subscriber: SubscriberId::new("s"),
            scope: Scope::All,
            priority,
            inject_at: InjectionPoint::AfterTool,
            activation: Activation::Passive,
            interrupt: Interrupt::InjectAndContinue,
            severity: Severity::Info,
            content: "key: value".into(),
            tokens: Tokens(3),
            raw_bytes: 40,
            states: Vec::new(),
            unresolved: Vec::new(),
            events: Vec::new(),
            created_at: NOW,
            expires_at: None,
            nature: Default::default(),
            untrusted_source: None,
        })
    }

    #[test]
    fn all_queues_together_hold_no_more_than_the_bound_and_the_least_important_goes() {
        const MAX: usize = 10_000;
        let mut rules = CompiledRules::none();
        rules.sessions.pending_max = u32::try_from(MAX).expect("small");
        let mut engine = Engine::new(Arc::new(rules));
        let id = |number: usize| SessionId::new(&format!("s{number:03}"));
        for number in 0..=100 {
            engine.handle(Input::SessionOpened { session: id(number), harness: Harness::default() }, NOW);
        }
        engine.queue(&id(0), notification("low".to_owned(), Priority::Low));
        for number in 1..=100 {
            for n in 0..100 {
                let priority = if number == 7 { Priority::Normal } else { Priority::High };
                engine.queue(&id(number), notification(format!("{number}/{n}"), priority));
            }
        }
        engine.handle(Input::Tick, NOW);
        let pending =
            |engine: &Engine, number| engine.session(&id(number)).expect("open").injector.pending().0;
        assert_eq!((pending(&engine, 0), pending(&engine, 7), engine.sessions.pressure.total), (0, 100, MAX));
        engine.queue(&id(0), notification("critical".to_owned(), Priority::Critical));
        engine.handle(Input::Tick, NOW);
        assert_eq!((pending(&engine, 0), pending(&engine, 7), pending(&engine, 8)), (1, 99, 100));
        engine.handle(Input::SessionClosed { session: id(8), may_return: false }, NOW);
        assert_eq!(engine.sessions.pressure.total, MAX - 100);
        for number in 9..=70 {
            let closed = Input::SessionClosed { session: id(number), may_return: false };
            engine.handle(closed, NOW);
        }
        assert!(engine.sessions.pressure.order.is_none(), "half of the room is free");
        for (number, n) in (71..80).flat_map(|number| (0..700).map(move |n| (number, n))) {
            engine.queue(&id(number), notification(format!("{number} again {n}"), Priority::High));
        }
        engine.queue(&id(71), notification("least".to_owned(), Priority::Low));
        engine.handle(Input::Tick, NOW);
        assert_eq!((engine.sessions.pressure.total, pending(&engine, 71)), (MAX, 800));
    }
}
