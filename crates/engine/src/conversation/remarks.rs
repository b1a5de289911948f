//! Remarks on the fields of an exchange that have no effect on its session.

use super::{session::Session, sessions::Sessions};
use crate::{
    event::SessionId,
    exchange::{ContextChange, Exchange, Remark},
    nearest::nearest,
};

impl Sessions {
    /// The fields of an exchange that have no effect. Call it before the exchange begins.
    pub fn remarks(&self, exchange: &Exchange) -> Vec<Remark> {
        let session = self.table.known(&exchange.session);
        let has_released =
            |injection| session.is_some_and(|session| session.injector.has_released(injection));
        let unknown = exchange.acks.iter().enumerate().filter(|(_, injection)| !has_released(injection));
        let mut remarks: Vec<Remark> =
            unknown.map(|(index, injection)| Remark::UnknownAck { index, injection: *injection }).collect();
        remarks.extend(session.and_then(|session| session.past_turn(exchange)));
        let parent = exchange.harness.parent.as_ref();
        let known_parent = session.and_then(|session| session.harness.parent.as_ref());
        if let Some(parent) = parent.filter(|parent| known_parent != Some(*parent)) {
            remarks.extend(self.unknown("harness.parent", parent));
        }
        if let ContextChange::Cleared { from: Some(from) } | ContextChange::Forked { from: Some(from) } =
            &exchange.context
            && !session.is_some_and(|session| session.predecessors.contains(from))
        {
            remarks.extend(self.unknown("from", from));
        }
        remarks
    }

    /// The known session whose id is most similar to `id`.
    pub fn nearest(&self, id: &SessionId) -> Option<SessionId> {
        let ids = self.table.open().chain(self.table.suspended()).map(|session| session.id().as_str());
        nearest(id.as_str(), ids).map(SessionId::new)
    }

    fn unknown(&self, field: &'static str, id: &SessionId) -> Option<Remark> {
        let unknown = || Remark::UnknownSession { field, session: id.clone(), nearest: self.nearest(id) };
        self.table.addressed(id).is_none().then(unknown)
    }
}

impl Session {
    /// The remark on a turn that ended before the last one began.
    fn past_turn(&self, exchange: &Exchange) -> Option<Remark> {
        let (turn, last) = (exchange.turn.as_ref()?, self.turns.last()?);
        let is_past = turn != last && self.turns.has_had(turn);
        is_past.then(|| Remark::PastTurn { turn: turn.clone(), last: last.clone() })
    }
}
