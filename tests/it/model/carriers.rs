//! The answer that a carrier gets again, found in the whole history of its session.

use std::{collections::BTreeMap, sync::Arc};

use engine::{
    event::SessionId,
    exchange::{Answer, Exchange, InjectionId},
    notification::InjectionPoint,
};
use journal::time::Timestamp;

/// The exchanges of each session that were no repetitions, in order.
#[derive(Debug, Default)]
pub(super) struct Carriers(BTreeMap<SessionId, Vec<Answered>>);

#[derive(Debug)]
struct Answered {
    exchange: Exchange,
    /// When its lease is over.
    until: Timestamp,
    /// `None` once it is not given again.
    answer: Option<Answer>,
}

impl Carriers {
    /// The answer to the same message: the same carrier at the same point and turn, within a lease.
    pub(super) fn find(&self, exchange: &Exchange, now: Timestamp) -> Option<Answer> {
        let all = self.0.get(&exchange.session)?;
        let (turns, name) = turns(all);
        let is_start = exchange.point == InjectionPoint::TurnStart;
        let is_repeated = |index: usize| {
            let before = &all[index].exchange;
            let is_it = before.carrier == exchange.carrier && before.point == exchange.point;
            let is_same_turn = match (&before.turn, &exchange.turn) {
                (Some(one), Some(other)) if one != other => false,
                (Some(one), Some(_)) if name.as_ref() != Some(one) => true,
                _ if is_start => index + 1 == all.len(),
                _ => (index + 1..all.len()).all(|later| {
                    let starts = all[later].exchange.point == InjectionPoint::TurnStart;
                    let newest = turns[..later].iter().flatten().max().copied().unwrap_or(0);
                    !starts && turns[later].is_none_or(|turn| turn <= newest)
                }),
            };
            is_it && is_same_turn && now < all[index].until
        };
        let found = (0..all.len()).find(|index| all[*index].answer.is_some() && is_repeated(*index));
        found.and_then(|index| all[index].answer.clone())
    }

    pub(super) fn note(&mut self, exchange: &Exchange, answer: &Answer, until: Timestamp) {
        let all = self.0.entry(exchange.session.clone()).or_default();
        for before in all.iter_mut().filter(|before| before.exchange.carrier == exchange.carrier) {
            let is_distinct =
                matches!((&before.exchange.turn, &exchange.turn), (Some(one), Some(other)) if one != other);
            if !is_distinct {
                before.answer = None;
            }
        }
        all.push(Answered { exchange: exchange.clone(), until, answer: Some(answer.clone()) });
    }

    /// The text of an injection never left.
    pub(super) fn forget(&mut self, session: &SessionId, injection: &InjectionId) {
        for answered in self.0.get_mut(session).into_iter().flatten() {
            let holds =
                |answer: &Answer| answer.injection.as_ref().is_some_and(|given| given.id == *injection);
            answered.answer = answered.answer.take().filter(|answer| !holds(answer));
        }
    }

    pub(super) fn close(&mut self, session: &SessionId) {
        self.0.remove(session);
    }
}

/// The turn of each exchange by number, none for one that comes late from an earlier turn; and the
/// name of the present turn.
fn turns(all: &[Answered]) -> (Vec<Option<usize>>, Option<Arc<str>>) {
    let (mut number, mut name, mut earlier, mut turns) = (0, None, Vec::new(), Vec::new());
    for Answered { exchange, .. } in all {
        let is_start = exchange.point == InjectionPoint::TurnStart;
        let is_same = name.is_some() && name == exchange.turn;
        let is_named = exchange.turn.is_some();
        if !is_same && !is_start && exchange.turn.as_ref().is_some_and(|turn| earlier.contains(turn)) {
            turns.push(None);
            continue;
        }
        if !is_same && (is_start || is_named && name.is_some()) {
            number += 1;
            earlier.extend(name.take());
        }
        name = exchange.turn.clone().or(name.take());
        turns.push(Some(number));
    }
    (turns, name)
}

/// The same carrier gets the same answer, but for the remarks, which are about its request.
pub(super) fn assert_same(answer: &Answer, before: &Answer) {
    let [answer, before] = [answer, before].map(|one| Answer { remarks: Vec::new(), ..one.clone() });
    assert_eq!(answer, before);
}
