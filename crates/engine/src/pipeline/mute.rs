//! Mutes: kinds of notifications that are not delivered, for good. They act where a session's queue
//! takes a notification; the journal and the history stay whole.
//!
//! A mute is for a kind, a silence for a time ([`super::silence`]). None acts on a core subscriber.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{
    condition::{Condition, NeededValues},
    rule::{Activity, Subscriber},
    silence::{is_of, matches_event, patterns},
};
use crate::{
    event::{Event, Pattern, Scope, SessionId},
    notification::{Priority, SubscriberId},
};

/// Most mutes of a user, and most of the configuration.
pub const MUTES_MAX: usize = 64;

/// What is not delivered: what all of these match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Mute {
    /// The subscriber.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<SubscriberId>,
    /// The types of the events; any if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Pattern>,
    /// The source of the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Arc<str>>,
    /// The tool, as the payload's `tool_name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<Arc<str>>,
    /// An expression over the event, as in `where`.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Arc<str>>,
    /// The lowest priority that passes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<Priority>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder: its sessions, and those below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
}

/// A session in which something is delivered.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The session.
    pub session: &'a SessionId,
    /// Its folder.
    pub workspace: Option<&'a str>,
}

impl Place<'_> {
    /// Whether something for a session and a folder, if it names them, is for this session.
    pub fn is_meant(self, session: Option<&SessionId>, workspace: Option<&Arc<str>>) -> bool {
        let is_in = |folder: &Arc<str>| {
            let own = self.workspace.map(|own| Scope::Workspace(own.into()));
            own.is_some_and(|own| Scope::Workspace(Arc::clone(folder)).covers(&own))
        };
        session.is_none_or(|id| id == self.session) && workspace.is_none_or(is_in)
    }
}

impl Mute {
    /// Whether it names nothing that it concerns.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Whether it is for a part of the sessions.
    pub fn is_scoped(&self) -> bool {
        self.session.is_some() || self.workspace.is_some()
    }

    /// Whether it is for the sessions at `place`; `None` means all sessions together.
    fn is_for(&self, place: Option<Place<'_>>) -> bool {
        match place {
            Some(place) => place.is_meant(self.session.as_ref(), self.workspace.as_ref()),
            None => !self.is_scoped(),
        }
    }

    fn matches(
        &self,
        rule: &Subscriber,
        event: &Arc<Event>,
        priority: Priority,
        condition: Option<&Condition>,
        values: &mut NeededValues<'_>,
    ) -> bool {
        let tool =
            || event.payload.value().get("tool_name").and_then(|name| name.as_str().map(str::to_owned));
        self.subscriber.as_ref().is_none_or(|id| is_of(id, rule))
            && self.below.is_none_or(|least| priority < least)
            && condition.is_none_or(|condition| values.allow(condition.needed()))
            && matches_event(&self.types, self.source.as_deref(), condition, event)
            && self.tool.as_ref().is_none_or(|name| tool().as_deref() == Some(&**name))
    }
}

impl fmt::Display for Mute {
    /// What it concerns in a line, such as `types mcp.**, below high`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subscriber, types, source, tool, condition, below, session, workspace } = self;
        let parts = [
            subscriber.as_ref().map(|id| format!("subscriber {id}")),
            (!types.is_empty()).then(|| format!("types {}", patterns(types))),
            source.as_ref().map(|source| format!("source {source}")),
            tool.as_ref().map(|tool| format!("tool {tool}")),
            condition.as_ref().map(|condition| format!("where {condition}")),
            below.map(|least| format!("below {}", least.as_str())),
            session.as_ref().map(|session| format!("in session {session}")),
            workspace.as_ref().map(|folder| format!("in {folder}")),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Mutes, with their conditions; these are compiled at their first test.
#[derive(Debug, Default)]
pub struct Mutes(Vec<(Mute, Option<Condition>)>);

impl FromIterator<Mute> for Mutes {
    fn from_iter<T: IntoIterator<Item = Mute>>(mutes: T) -> Self {
        let with_condition = |mute: Mute| {
            let condition = mute.condition.as_deref().map(Condition::deferred);
            (mute, condition)
        };
        Self(mutes.into_iter().map(with_condition).collect())
    }
}

impl PartialEq for Mutes {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Mutes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The mutes, in the order of their author.
    pub fn iter(&self) -> impl Iterator<Item = &Mute> {
        self.0.iter().map(|(mute, _)| mute)
    }

    /// The first mute that concerns `event` at `place`; without a place, all sessions together.
    pub fn find(
        &self,
        place: Option<Place<'_>>,
        rule: &Subscriber,
        event: &Arc<Event>,
        priority: Priority,
    ) -> Option<&Mute> {
        if rule.activity == Activity::Core {
            return None;
        }
        let mut values = NeededValues::new(event);
        let mut concerns = |(mute, condition): &&(Mute, Option<Condition>)| {
            mute.is_for(place) && mute.matches(rule, event, priority, condition.as_ref(), &mut values)
        };
        self.0.iter().find(|one| concerns(one)).map(|(mute, _)| mute)
    }
}
