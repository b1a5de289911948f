//! How much waits in all queues together, and whose queue gives way when it is too much.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use super::Engine;
use crate::{event::SessionId, injector::Injector, notification::Priority};

/// What each queue holds.
#[derive(Debug, Default)]
pub(super) struct Pressure {
    of: BTreeMap<SessionId, (Priority, usize)>,
    /// Who gives way first.
    order: BTreeSet<(Priority, Reverse<usize>, SessionId)>,
    total: usize,
}

impl Pressure {
    /// Notes how many wait for a session, and how important the least important one is; `None` when nothing does.
    pub(super) fn set(&mut self, id: &SessionId, waiting: Option<(Priority, usize)>) {
        let before = self.of.get(id).copied();
        if before == waiting {
            return;
        }
        if let Some((least, count)) = before {
            self.order.remove(&(least, Reverse(count), id.clone()));
            self.total -= count;
        }
        match waiting {
            Some((least, count)) => {
                self.order.insert((least, Reverse(count), id.clone()));
                self.of.insert(id.clone(), (least, count));
                self.total += count;
            }
            None => drop(self.of.remove(id)),
        }
    }

    /// Whose queue is to give way, if there are more than `total_max`: the longest of those that hold something of the least
    /// importance.
    fn over(&self, total_max: usize) -> Option<&SessionId> {
        let first = self.order.first().filter(|_| self.total > total_max);
        first.map(|(_, _, id)| id)
    }
}

impl Engine {
    /// Evicts what is over the bound for all queues together, as each queue chooses when it is full.
    pub(super) fn relieve(&mut self) {
        let total_max = usize::try_from(self.rules.sessions.pending_max).unwrap_or(usize::MAX);
        while let Some(id) = self.sessions.pressure.over(total_max).cloned() {
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
    }
}
