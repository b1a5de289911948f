//! What a session is woken for, in words.

use super::{exchange::limits, parts::Engine, text::item};
use crate::{event::SessionId, exchange::Exchange, format, notification::InjectionPoint, session::WakeKind};

impl Engine {
    /// What an idle session is woken for, in one sentence; `None` if it requests no wake.
    ///
    /// Shape: about the notifications that the start of a turn would deliver, for an unlimited
    /// carrier.
    pub fn wake_sentence(&self, session: &SessionId) -> Option<String> {
        let view = self.sessions.view(session).filter(|view| view.is_open)?;
        let wake = view.injector.wake(view.state, self.rules.wake.threshold);
        wake.filter(|wake| wake.kind == WakeKind::StartTurn)?;
        let exchange = Exchange::new(session.clone(), InjectionPoint::TurnStart, "");
        let offer = view.injector.offer(&exchange, &limits(&self.rules, &exchange));
        let items: Vec<_> = offer.candidates.iter().map(item).collect();
        (!items.is_empty()).then(|| format::sentence(&items))
    }
}
