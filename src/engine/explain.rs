//! What would become of an event that comes now, as far as the rules and the open sessions tell.
//!
//! It looks at types and filters only: whether the event repeats another, is over a rate or waits in a batch is not asked.

use std::sync::Arc;

use super::Engine;
use crate::{
    event::{Event, Pattern, Scope, SessionId},
    ledger::FilteredBy,
    notification::SubscriberId,
    pipeline::{
        filter,
        rule::{Activity, Subscriber},
    },
};

/// Who asks for an event, and whom what comes of it would reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The subscribers that take its type, or whose conditions it resolves, by id.
    pub subscribers: Vec<(SubscriberId, Verdict)>,
    /// The open sessions in its scope, by id.
    pub sessions: Vec<SessionId>,
}

/// What a subscriber that takes an event's type makes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It takes the event.
    Takes,
    /// It withdraws what the event resolves, and does not take the event.
    Resolves,
    /// Its filter refuses the event.
    Filtered(FilteredBy),
    /// It is switched off.
    Off,
}

impl Engine {
    /// Who would take `event`, and which sessions it concerns. Changes nothing.
    pub fn explain(&self, event: &Arc<Event>) -> Explanation {
        let selects = |types: &[Pattern]| types.iter().any(|pattern| pattern.matches(&event.event_type));
        let verdict = |rule: &Subscriber| {
            let is_off = rule.activity == Activity::Disabled;
            let found = match (selects(&rule.types), &rule.resolve) {
                (true, _) => filter::whole(rule, event).map(|()| Verdict::Takes),
                (false, Some(resolve)) if selects(&resolve.by) => {
                    filter::check_source(rule, event).map(|()| Verdict::Resolves)
                }
                (false, _) => return None,
            };
            Some(if is_off { Verdict::Off } else { found.unwrap_or_else(Verdict::Filtered) })
        };
        let rules = self.rules.subscribers.iter();
        let scope = match event.scope() {
            Scope::Session(name) => Scope::Session(self.sessions.by_full_name(&name).unwrap_or(name)),
            scope @ (Scope::Workspace(_) | Scope::All) => scope,
        };
        Explanation {
            subscribers: rules.filter_map(|rule| Some((rule.id.clone(), verdict(rule)?))).collect(),
            sessions: self.sessions.concerned(&scope, usize::MAX).expect("there is no bound"),
        }
    }
}
