//! The sessions for which a subscriber holds: one of a folder for those of its territory, and the one
//! that it replaces for the others.
//!
//! The event, the folder of a session and the rules alone decide, so of the subscribers of one id
//! exactly one delivers an event to a session, and a replay repeats the decision. Of a core subscriber
//! a folder's one takes over only the events that it takes.

use std::sync::Arc;

use crate::{
    event::{Event, Scope, Territory},
    pipeline::rule::{Activity, Subscriber},
};

/// The sessions of the event's scope for which `rule` holds. Those of an event that is addressed to
/// one session are not narrowed: [`holds_for`] decides about them.
pub(crate) fn scope_for(rule: &Subscriber, event: &Arc<Event>) -> Scope {
    if rule.territory.is_none() && rule.in_folders.is_empty() {
        return event.scope();
    }
    event.scope().narrowed(rule.territory.as_ref(), replaced(rule, event).cloned().collect())
}

/// Whether `rule` holds for `event`: for the session with the folder `workspace` if the event is
/// addressed to one, else for some session in its scope.
pub(crate) fn holds_for(rule: &Subscriber, event: &Arc<Event>, workspace: Option<&str>) -> bool {
    let is_replaced = || replaced(rule, event).any(|territory| territory.contains(workspace));
    is_around(rule, event, workspace) && (event.session.is_none() || !is_replaced())
}

/// The same, also where another subscriber has taken the place of `rule`: what `rule` delivered there
/// before can still be resolved and inhibited.
pub(crate) fn is_around(rule: &Subscriber, event: &Event, workspace: Option<&str>) -> bool {
    rule.territory.as_ref().is_none_or(|own| match event.session {
        Some(_) => own.contains(workspace),
        None => own.meets(&event.scope()),
    })
}

/// The territories in which another subscriber has the place of `rule` for `event`.
fn replaced<'r>(rule: &'r Subscriber, event: &'r Arc<Event>) -> impl Iterator<Item = &'r Arc<Territory>> {
    let is_replaced = |own: &&Arc<Subscriber>| rule.activity != Activity::Core || own.takes(event);
    rule.in_folders.iter().filter(is_replaced).filter_map(|own| own.territory.as_ref())
}
