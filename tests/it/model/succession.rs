//! The part of the account about contexts: sessions that continue or copy others, and cancelled
//! calls.

use std::{collections::BTreeSet, time::Duration};

use engine::{
    event::SessionId,
    exchange::{Answer, ContextChange, Exchange, Harness},
    notification::{InjectionPoint, Notification, NotificationId, Priority},
};
use journal::time::Timestamp;

use super::account::{Account, Known, Place};

impl Account {
    /// Notes that a session is there, with what its harness reports.
    pub(super) fn meet(&mut self, id: &SessionId, harness: &Harness, now: Timestamp) {
        if !self.open.contains_key(id) {
            for other in self.open.values_mut().chain(self.away.values_mut()) {
                other.former.remove(id);
            }
        }
        let back = self.away.remove(id);
        self.met += 1;
        let number = self.met;
        let open = self.open.entry(id.clone()).or_insert_with(|| {
            back.unwrap_or_else(|| Known {
                number,
                workspace: None,
                parent: None,
                pid: None,
                former: BTreeSet::new(),
                last_seen: now,
                continuations: 0,
            })
        });
        open.last_seen = now;
        open.pid = harness.pid.or(open.pid);
        open.workspace = harness.workspace.clone().or(open.workspace.take());
        open.parent = harness.parent.clone().or(open.parent.take());
    }

    /// A new turn begins: the agent may be asked to continue again.
    pub(super) fn expect_restart(&mut self, exchange: &Exchange) {
        if exchange.point == InjectionPoint::TurnStart
            && let Some(open) = self.open.get_mut(&exchange.session)
        {
            open.continuations = 0;
        }
    }

    /// Finds the session that is continued or copied: the named one, or the newest one of the same
    /// process.
    pub(super) fn expect_succession(&mut self, exchange: &Exchange, now: Timestamp) {
        let (from, ends) = match &exchange.context {
            ContextChange::Unstated
            | ContextChange::Unchanged
            | ContextChange::Compacted
            | ContextChange::Resumed => return,
            ContextChange::Cleared { from } => (from, true),
            ContextChange::Forked { from } => (from, false),
        };
        let own = &self.open[&exchange.session];
        let pid = own.pid.filter(|_| own.parent.is_none());
        let is_recent = |known: &Known| now.since(known.last_seen) <= Duration::from_secs(60);
        let away = self.away.iter().filter(|(_, known)| from.is_some() || is_recent(known));
        let others = self.open.iter().chain(away).filter(|(id, known)| {
            let is_it = from.as_ref().map_or(pid.is_some() && known.pid == pid, |from| from == *id);
            is_it && **id != exchange.session && known.parent.is_none()
        });
        // A session found by its process is continued only in the same folder.
        let is_there = |known: &Known| from.is_some() || !ends || known.workspace == own.workspace;
        // Of several in one millisecond, a suspended one, else the one that opened last.
        let rank =
            |id: &SessionId, known: &Known| (known.last_seen, self.away.contains_key(id), known.number);
        let newest = others.max_by_key(|(id, known)| rank(id, known)).filter(|(_, known)| is_there(known));
        let found = newest.map(|(id, _)| id.clone());
        let Some(from) = found else { return };
        let delivered = self.delivered.get(&from).cloned().unwrap_or_default();
        if ends {
            let gone = self.open.get(&from).or_else(|| self.away.get(&from)).expect("found");
            let former: Vec<SessionId> = gone.former.iter().cloned().chain([from.clone()]).collect();
            for (id, known) in &mut self.open {
                if known.parent.as_ref().is_some_and(|parent| former.contains(parent)) {
                    known.parent = (*id != exchange.session).then(|| exchange.session.clone());
                }
            }
            self.open.get_mut(&exchange.session).expect("met").former.extend(former);
        } else {
            self.delivered.entry(exchange.session.clone()).or_default().extend(delivered);
        }
        self.goes_on_from = Some((from, ends));
    }

    /// Whether the predecessor has the notification queued; returns whether it may have been
    /// delivered before. A predecessor that ends loses it.
    pub(super) fn comes_from_predecessor(&mut self, id: &NotificationId, to: &SessionId) -> Option<bool> {
        let (from, ends) = self.goes_on_from.clone()?;
        let place = self.places.get_mut(&from).and_then(|places| places.get_mut(id))?;
        let Place::Queued { again } = *place else { return None };
        if ends {
            *place = Place::Over;
        }
        if self.repeated.contains(&(from.clone(), *id)) {
            self.repeated.insert((to.clone(), *id));
        }
        if self.cancelled.contains(&(from, *id)) {
            self.cancelled.insert((to.clone(), *id));
        }
        Some(again)
    }

    /// Whether another session has just continued this one.
    pub(super) fn has_just_ended(&self, session: &SessionId) -> bool {
        self.goes_on_from.as_ref().is_some_and(|(from, ends)| *ends && from == session)
    }

    /// A call is cancelled for a critical notification that cancels for the first time, also if the
    /// carrier has no room for that one.
    pub(super) fn note_cancelled<'a>(
        &mut self,
        session: &SessionId,
        answer: &Answer,
        waiting: impl Iterator<Item = &'a Notification>,
    ) {
        let delivered = answer.injection.iter().flat_map(|injection| &injection.notifications);
        let delivered: Vec<_> = delivered.map(|delivered| (delivered.id, delivered.priority)).collect();
        let critical = waiting.map(|waiting| (waiting.id, waiting.priority)).chain(delivered.iter().copied());
        let mut critical = critical.filter(|(_, priority)| *priority == Priority::Critical);
        if critical.any(|(id, _)| !self.cancelled.contains(&(session.clone(), id))) {
            self.held.insert(session.clone());
        }
        self.cancelled.extend(delivered.into_iter().map(|(id, _)| (session.clone(), id)));
        assert!(self.held.contains(session), "nothing holds the batch: {answer:?}");
    }
}
