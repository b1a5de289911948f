//! The settings of users: which subscribers and kinds of notifications their sessions do not get, in
//! which hours they get none, and how much a notification may do by itself.
//!
//! A session is of the user that its harness names, else of the daemon's own user. What is decided
//! where a session's queue takes a notification depends on the settings at that time; a change is
//! applied to what is pending too. Core subscribers are never switched off.

use std::sync::Arc;

use journal::time::{Timestamp, hours::Hours, zone::Zone};
use serde::{Deserialize, Serialize};

use crate::{
    event::Event,
    exchange::Harness,
    hold::Hold,
    notification::{Activation, Priority, SubscriberId},
    pipeline::{
        mute::{Mute, Mutes, Place},
        rule::{Activity, Subscriber},
        silence::is_of,
    },
    sorted::{SortedMap, SortedSet},
};

/// The user of a session whose harness names none: the one who runs the daemon.
pub const OWN_USER: &str = "me";
/// Most users with settings.
pub const USERS_MAX: usize = 256;
/// Most subscribers that a user disables.
pub const DISABLED_MAX: usize = 256;

/// What a user has switched off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct UserSettings {
    /// The subscribers that deliver nothing.
    #[serde(skip_serializing_if = "SortedSet::is_empty")]
    pub disabled: SortedSet<SubscriberId>,
    /// The kinds of notifications that are not delivered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mute: Vec<Mute>,
    /// The hours in which only critical notifications are delivered.
    #[serde(skip_serializing_if = "Hours::is_empty")]
    pub quiet: Hours,
    /// The most that a notification may do by itself; `None` for all. Critical ones may do all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<Activation>,
}

/// The settings of all users.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Users {
    of: SortedMap<Arc<str>, Own>,
    /// When quiet hours of a user begin or end next.
    next_change: Option<Timestamp>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "State")]
struct Own {
    settings: UserSettings,
    /// The quiet hours that have begun: since when, and until when.
    quiet: Option<(Timestamp, Timestamp)>,
    #[serde(skip)]
    mutes: Mutes,
}

#[derive(Deserialize)]
struct State {
    settings: UserSettings,
    quiet: Option<(Timestamp, Timestamp)>,
}

impl From<State> for Own {
    fn from(State { settings, quiet }: State) -> Self {
        let mutes = settings.mute.iter().cloned().collect();
        Self { settings, quiet, mutes }
    }
}

impl UserSettings {
    /// Whether a subscriber is disabled.
    pub fn disables(&self, rule: &Subscriber) -> bool {
        rule.activity != Activity::Core && self.disabled.iter().any(|id| is_of(id, rule))
    }
}

/// The user of a session.
pub fn user_of(harness: &Harness) -> &str {
    harness.user.as_deref().unwrap_or(OWN_USER)
}

impl Users {
    /// Replaces the settings of a user. Returns false if [`USERS_MAX`] others have some.
    pub fn set(&mut self, user: &Arc<str>, settings: UserSettings, zone: &Zone, now: Timestamp) -> bool {
        if self.of.len() >= USERS_MAX && !self.of.contains_key(user) {
            return false;
        }
        if settings == UserSettings::default() {
            self.of.remove(user);
        } else {
            let before = self.of.get(user).and_then(|own| own.quiet);
            let own = Own { quiet: before, ..Own::from(State { settings, quiet: None }) };
            self.of.insert(Arc::clone(user), own);
        }
        self.note_time(zone, now);
        true
    }

    /// Notes which quiet hours last at `now`; returns the users for whom that changed.
    pub fn note_time(&mut self, zone: &Zone, now: Timestamp) -> Vec<Arc<str>> {
        let offset = |at| zone.offset(at);
        let (mut changed, mut next) = (Vec::new(), None);
        for (user, own) in self.of.iter_mut() {
            let until = own.settings.quiet.end(now, offset);
            let before = own.quiet;
            own.quiet = until.map(|until| (before.map_or(now, |(since, _)| since), until));
            if own.quiet != before {
                changed.push(Arc::clone(user));
            }
            let own_next = own.settings.quiet.next_change(now, &offset);
            next = Timestamp::earliest([next, own_next]);
        }
        self.next_change = next;
        changed
    }

    /// When quiet hours begin or end next.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.next_change
    }

    /// Whether no user has settings.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// The settings of a user.
    pub fn get(&self, user: &str) -> Option<&UserSettings> {
        self.of.get(user).map(|own| &own.settings)
    }

    /// All users with settings.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &UserSettings)> {
        self.of.iter().map(|(user, own)| (user, &own.settings))
    }

    /// The hold of a notification that the queue of a session of this user takes at `now`.
    pub fn hold(&self, user: &str, now: Timestamp) -> Option<Hold> {
        let (since, until) = self.of.get(user)?.quiet?;
        (until > now).then_some(Hold::Quiet { since, until, of_user: true })
    }

    /// The most that a notification may do by itself for a user.
    pub fn level(&self, user: &str) -> Activation {
        self.get(user).and_then(|settings| settings.level).unwrap_or(Activation::Active)
    }

    /// Why a user does not get what `rule` makes of `event`, in words; `None` if the user does. An event
    /// that is forgotten has only its subscriber.
    pub fn mutes(
        &self,
        user: &str,
        place: Option<Place<'_>>,
        rule: &Subscriber,
        event: Option<&Arc<Event>>,
        priority: Priority,
    ) -> Option<Arc<str>> {
        let own = self.of.get(user)?;
        if rule.activity == Activity::Core {
            return None;
        }
        let who = if user == OWN_USER { "you" } else { user };
        if own.settings.disables(rule) {
            return Some(format!("{who} disabled {}", rule.id.in_file()).into());
        }
        own.mutes.find(place, rule, event?, priority).map(|mute| format!("{who} muted {mute}").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    #[test]
    fn quiet_hours_of_a_user_begin_and_end() {
        let mut users = Users::default();
        let user: Arc<str> = "ada".into();
        let settings =
            UserSettings { quiet: "22:00-07:00".parse().expect("hours"), ..UserSettings::default() };
        let zone = Zone::default();
        assert!(users.set(&user, settings, &zone, at("2026-11-28T12:00:00Z")));
        assert_eq!(users.hold("ada", at("2026-11-28T12:00:00Z")), None);
        let evening = at("2026-11-28T22:00:00Z");
        assert_eq!(users.poll_timeout(), Some(evening));
        assert_eq!(users.note_time(&zone, evening), [Arc::clone(&user)]);
        let morning = at("2026-11-29T07:00:00Z");
        assert_eq!(
            users.hold("ada", at("2026-11-28T23:00:00Z")),
            Some(Hold::Quiet { since: evening, until: morning, of_user: true })
        );
        assert_eq!((users.poll_timeout(), users.hold("me", evening)), (Some(morning), None));
        assert_eq!(users.note_time(&zone, morning), [Arc::clone(&user)]);
        assert_eq!(users.hold("ada", morning), None);
        assert!(users.set(&user, UserSettings::default(), &zone, morning));
        assert!(users.is_empty() && users.poll_timeout().is_none());
    }
}
