//! The outcome that an event would have now, according to the rules and the open sessions.
//!
//! Only types and filters are checked, not deduplication, rates or open batches.

use std::sync::Arc;

use super::parts::Engine;
use crate::{
    event::{Event, Pattern, Scope, SessionId},
    ledger::FilteredBy,
    notification::SubscriberId,
    pipeline::{
        filter, remainder,
        rule::{Activity, Subscriber},
    },
};

/// The subscribers and sessions that an event would reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The subscribers that take its type, or whose conditions it resolves, by id.
    pub subscribers: Vec<(SubscriberId, Verdict)>,
    /// The open sessions in its scope, by id.
    pub sessions: Vec<SessionId>,
}

/// How a subscriber that selects an event's type handles it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It takes the event.
    Takes,
    /// It withdraws the conditions that the event resolves, but does not take the event.
    Resolves,
    /// Its filter rejects the event.
    Filtered(FilteredBy),
    /// It is disabled.
    Off,
}

impl Engine {
    /// The subscribers that would take `event`, and the sessions in its scope. Changes no state.
    pub fn explain(&self, event: &Arc<Event>) -> Explanation {
        let selects = |types: &[Pattern]| types.iter().any(|pattern| pattern.matches(&event.event_type));
        let verdict = |rule: &Subscriber| {
            let is_off = rule.activity == Activity::Disabled;
            let found = match (selects(&rule.types), &rule.resolve) {
                (true, _) if !remainder::is_left(rule, event) => return None,
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
            sessions: self.sessions.all_concerned(&scope),
        }
    }
}
