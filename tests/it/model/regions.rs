//! The part of the account about regions: what is shown as true is true for that session, what holds
//! is shown, and the text changes only with the counter of changes.

use std::collections::BTreeMap;

use engine::{
    Engine,
    event::SessionId,
    exchange::Format,
    format::region::write_region,
    hold::Hold,
    notification::{NotificationId, Tokens, repeat::Action},
};
use journal::time::Timestamp;

use super::{Content, account::Account};
use crate::support::generations;

/// The size of a text, in tokens: some are left out.
const TOKENS: Tokens = Tokens(120);

/// The texts of all sessions after the input before.
#[derive(Debug, Default)]
pub(super) struct Regions {
    changes: u64,
    texts: BTreeMap<SessionId, String>,
    /// Whether a person or a rule may hide something from a region.
    may_hide: bool,
}

/// The region of a session as a text.
pub(super) fn region_text(engine: &Engine, session: &SessionId) -> Option<String> {
    Some(write_region(&engine.region(session)?, Format::Xml, TOKENS).text)
}

impl Account {
    /// Checks the regions of all sessions after an input.
    pub(super) fn check_regions(&mut self, content: Option<&Content>, engine: &Engine, now: Timestamp) {
        self.regions.may_hide |= match content {
            Some(Content::Silence(_) | Content::Settings(_) | Content::Rules(_)) => true,
            Some(Content::Responded(_, response)) => response.action == Action::Dismiss,
            _ => false,
        };
        let sessions: Vec<SessionId> = engine.sessions().views().map(|session| session.id.clone()).collect();
        for session in &sessions {
            self.check_facts(session, engine);
            if !self.regions.may_hide {
                self.assert_conditions_are_shown(session, engine, now);
            }
        }
        let texts: BTreeMap<SessionId, String> =
            sessions.into_iter().filter_map(|id| Some((id.clone(), region_text(engine, &id)?))).collect();
        let changes = engine.region_changes();
        if changes == self.regions.changes {
            let both = texts.iter().filter_map(|(id, text)| Some((text, self.regions.texts.get(id)?)));
            both.for_each(|(text, before)| assert_eq!(text, before, "without a change that is counted"));
        }
        (self.regions.changes, self.regions.texts) = (changes, texts);
    }

    /// Each fact is about this session, and holds.
    fn check_facts(&self, session: &SessionId, engine: &Engine) {
        let region = engine.region(session).expect("it is known");
        let is_open = self.open.contains_key(session);
        for fact in &region.conditions {
            let id = &fact.notification.id;
            let made = &self.made[id];
            assert!(!is_open || self.concerns(&made.scope, session), "{id} is not for {session}");
            let is_over = self.conditions.are_resolved(&made.subscriber, &made.events);
            assert!(!is_over, "{id} of {} is resolved", made.subscriber);
        }
        for fact in &region.retained {
            let id = &fact.notification.id;
            assert!(self.is_retaining(id), "{id} is not retained");
            assert!(!is_open || self.concerns(&self.made[id].scope, session), "{id} is not for {session}");
        }
    }

    /// What is pending and holds is in the region, or a newer report of it is.
    fn assert_conditions_are_shown(&self, session: &SessionId, engine: &Engine, now: Timestamp) {
        let region = engine.region(session).expect("it is known");
        if region.more_conditions + region.forgotten > 0 {
            return;
        }
        let view = engine.sessions().view(session).expect("it is known");
        for pending in view.injector.view(now).pending {
            let own = &pending.notification;
            let is_shown =
                || region.conditions.iter().any(|fact| fact.notification.subscriber == own.subscriber);
            let is_suppressed = |hold: &Hold| matches!(hold, Hold::Silenced { .. } | Hold::Inhibited { .. });
            // What a subagent left is pending, and is for no region.
            let is_for = self.concerns(&own.scope, session);
            if is_for && !own.unresolved.is_empty() && !pending.holds.iter().any(is_suppressed) {
                assert!(is_shown(), "{} of {} is not in the region of {session}", own.id, own.subscriber);
            }
        }
    }

    /// A notification that only regions have is in no queue.
    pub(super) fn end_in_region(&mut self, id: &NotificationId) {
        let (routed, _) = self.routed.take().expect("it was just made");
        assert_eq!((routed, self.made[id].subscriber.as_str()), (*id, generations::IN_REGION_ONLY));
    }
}
