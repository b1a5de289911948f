//! Silences: what a person suppresses for a time, without a change of a file.
//!
//! A silence without a session and a folder acts on the rows of every subscriber that it concerns. One
//! for some sessions acts where a session's queue takes a notification, if it concerns each row.

use std::{collections::VecDeque, fmt, ops::Not, sync::Arc, time::Duration};

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    condition::{Condition, Needed},
    rule::{Activity, Subscriber},
};
use crate::{
    event::{Event, FieldPath, FieldValue, Pattern, SessionId},
    hold::SilenceId,
    notification::SubscriberId,
    sorted::SortedMap,
};

/// Most silences in force.
pub const SILENCES_MAX: usize = 256;
/// The longest time of a silence.
pub const SILENCE_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);
/// The time of a silence that names none.
pub const SILENCE_DEFAULT: Duration = Duration::from_secs(3_600);
/// How long an ended silence is kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Most ended silences that are kept.
const ENDED_MAX: usize = 1_000;
/// The word for all subscribers.
pub const ALL_SUBSCRIBERS: &str = "*";
/// The pattern of every type.
const ANY_TYPE: &str = "**";

/// What a silence suppresses: what all of these match.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Matchers {
    /// The subscriber; `*` for all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscriber: Option<SubscriberId>,
    /// The types of the events; any if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Pattern>,
    /// The source of the events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<Arc<str>>,
    /// An expression over the event, as in `where`.
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub condition: Option<Arc<str>>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The folder: its sessions, and those below it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Arc<str>>,
    /// Whether critical notifications are suppressed too.
    #[serde(skip_serializing_if = "Not::not")]
    pub critical: bool,
}

impl Matchers {
    /// Whether it names nothing that it suppresses.
    pub fn is_empty(&self) -> bool {
        let Self { subscriber, types, source, condition, session, workspace, critical: _ } = self;
        subscriber.is_none()
            && types.is_empty()
            && source.is_none()
            && condition.is_none()
            && session.is_none()
            && workspace.is_none()
    }

    /// Whether it matches every event of every session without the subscriber `*`, which asks for that:
    /// its patterns are `**`, and its expression uses no field of an event.
    pub fn is_everything(&self) -> bool {
        let Self { subscriber, types, source, condition, session, workspace, critical: _ } = self;
        let is_any_type = types.is_empty() || types.iter().any(|pattern| pattern.as_str() == ANY_TYPE);
        let has_no_field =
            condition.as_ref().is_none_or(|condition| Condition::deferred(condition).fields().is_empty());
        let is_any = is_any_type && has_no_field;
        is_any && subscriber.is_none() && source.is_none() && session.is_none() && workspace.is_none()
    }

    /// Whether it is for a part of the sessions.
    pub fn is_scoped(&self) -> bool {
        self.session.is_some() || self.workspace.is_some()
    }

    /// Whether it is for all subscribers.
    fn is_for_all(&self) -> bool {
        self.subscriber.as_ref().is_none_or(|id| id.as_str() == ALL_SUBSCRIBERS)
    }

    /// Whether it may suppress what a subscriber makes, by its id alone.
    pub fn may_concern(&self, subscriber: &SubscriberId) -> bool {
        let is_named = |id: &SubscriberId| [subscriber.as_str(), subscriber.in_file()].contains(&id.as_str());
        self.is_for_all() || self.subscriber.as_ref().is_some_and(is_named)
    }

    /// Whether it suppresses what a subscriber makes, apart from the event: a core one only by its id, and
    /// nothing critical of it.
    fn reaches(&self, rule: &Subscriber, is_critical: bool) -> bool {
        let is_core = rule.activity == Activity::Core;
        let is_named = self.subscriber.as_ref().is_some_and(|id| is_of(id, rule));
        (is_named || self.is_for_all() && !is_core) && (!is_critical || self.critical && !is_core)
    }
}

impl fmt::Display for Matchers {
    /// What it suppresses in a line, such as `pager where payload.zone == 'eu'`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subscriber, types, source, condition, session, workspace, critical } = self;
        let what = match subscriber {
            Some(id) if id.as_str() == ALL_SUBSCRIBERS => "everything",
            Some(id) => id.as_str(),
            None => "",
        };
        let parts = [
            (!what.is_empty()).then(|| what.to_owned()),
            (!types.is_empty()).then(|| format!("events {}", patterns(types))),
            source.as_ref().map(|source| format!("from {source}")),
            condition.as_ref().map(|condition| format!("where {condition}")),
            session.as_ref().map(|session| format!("in session {session}")),
            workspace.as_ref().map(|folder| format!("in {folder}")),
            critical.then(|| "critical ones too".to_owned()),
        ];
        f.write_str(&parts.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// A silence, as a person makes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Its id.
    pub id: SilenceId,
    /// What it suppresses.
    pub matchers: Matchers,
    /// When it ends.
    pub until: Timestamp,
    /// Who made it.
    pub by: Arc<str>,
    /// Why; may be empty.
    pub comment: Arc<str>,
}

/// A silence with what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The silence.
    pub silence: Silence,
    /// When it began.
    pub since: Timestamp,
    /// When it ended, if it has.
    pub ended_at: Option<Timestamp>,
    /// What it suppressed when it began.
    pub began: Began,
    /// Number of events and notifications that ended by it, by subscriber.
    pub ended: SortedMap<SubscriberId, u64>,
}

/// What a silence suppressed when it began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Began {
    /// Pending notifications that ended or are held.
    pub pending: u64,
    /// Rows of open batches.
    pub rows: u64,
}

impl Kept {
    /// Number of events and notifications that ended by it.
    pub fn ended_count(&self) -> u64 {
        self.ended.values().sum()
    }
}

/// All silences: those in force, and those that ended in the last days.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(from = "State")]
pub struct Silences {
    in_force: SortedMap<SilenceId, InForce>,
    /// The last one that ended last.
    ended: VecDeque<Kept>,
    /// When the first one ends.
    #[serde(skip)]
    ends_at: Option<Timestamp>,
    /// Whether one in force is for a part of the sessions.
    #[serde(skip)]
    is_scoped: bool,
    /// Those in force by the subscriber that they name; [`ALL_SUBSCRIBERS`] if they name none. So silences
    /// of other subscribers cost an event nothing.
    #[serde(skip)]
    by_subscriber: SortedMap<Arc<str>, Places>,
}

/// The places of silences among those in force.
#[derive(Debug, Default)]
struct Places {
    /// Of those whose condition needs the same field, by the text that it must have.
    by_need: Vec<(FieldPath, SortedMap<String, Vec<usize>>)>,
    /// Of all others.
    others: Vec<usize>,
}

impl Places {
    fn add(&mut self, place: usize, condition: Option<&Condition>) {
        let Some(Needed { field, text }) = condition.and_then(Condition::needed) else {
            return self.others.push(place);
        };
        let known = self.by_need.iter().position(|(own, _)| own == field);
        let at = known.unwrap_or_else(|| {
            self.by_need.push((field.clone(), SortedMap::new()));
            self.by_need.len() - 1
        });
        let (_, by_text) = self.by_need.get_mut(at).expect("it is there");
        by_text.get_or_default(text.clone()).push(place);
    }

    /// Those that an event does not rule out by a field.
    fn possible(&self, event: &Event) -> impl Iterator<Item = usize> {
        let needing = self.by_need.iter().filter_map(|(field, by_text)| match field.value(event) {
            FieldValue::Text(text) => by_text.get(&*text),
            FieldValue::Absent | FieldValue::Null | FieldValue::Json(_) => None,
        });
        self.others.iter().chain(needing.flatten()).copied()
    }
}

/// A silence in force, with its condition.
#[derive(Debug, Serialize)]
#[serde(transparent)]
struct InForce {
    kept: Kept,
    #[serde(skip)]
    condition: Option<Condition>,
}

impl From<Kept> for InForce {
    fn from(kept: Kept) -> Self {
        let condition = kept.silence.matchers.condition.as_deref().map(Condition::deferred);
        Self { kept, condition }
    }
}

#[derive(Deserialize)]
struct State {
    in_force: SortedMap<SilenceId, Kept>,
    ended: VecDeque<Kept>,
}

impl From<State> for Silences {
    fn from(State { in_force, ended }: State) -> Self {
        let in_force = in_force.into_iter().map(|(id, kept)| (id, kept.into())).collect();
        let mut silences = Self { in_force, ended, ..Self::default() };
        silences.note_changed();
        silences
    }
}

impl Silences {
    /// Begins a silence, or changes when one of the same id ends. Returns whether it is new; nothing
    /// changes if there are [`SILENCES_MAX`].
    pub fn begin(&mut self, silence: &Silence, now: Timestamp) -> bool {
        self.ended.retain(|kept| kept.ended_at.is_none_or(|at| now.since(at) < KEPT));
        if let Some(InForce { kept, .. }) = self.in_force.get_mut(&silence.id) {
            kept.silence.until = silence.until;
            self.note_changed();
            return false;
        }
        if self.in_force.len() >= SILENCES_MAX || silence.until <= now {
            return false;
        }
        let silence = silence.clone();
        let id = silence.id;
        let (began, ended) = (Began::default(), SortedMap::new());
        self.in_force.insert(id, Kept { silence, since: now, ended_at: None, began, ended }.into());
        self.note_changed();
        true
    }

    /// Ends a silence; returns it if it was in force.
    pub fn end(&mut self, id: SilenceId, now: Timestamp) -> Option<&Kept> {
        let InForce { mut kept, .. } = self.in_force.remove(&id)?;
        kept.ended_at = Some(now);
        self.note_changed();
        self.ended.push_back(kept);
        self.ended.drain(..self.ended.len().saturating_sub(ENDED_MAX));
        self.ended.back()
    }

    /// The silence that ends first at or before `now`, if there is one.
    pub fn due(&self, now: Timestamp) -> Option<SilenceId> {
        let first = self.in_force().min_by_key(|kept| (kept.silence.until, kept.silence.id));
        first.filter(|kept| kept.silence.until <= now).map(|kept| kept.silence.id)
    }

    /// When the next one ends.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        self.ends_at
    }

    fn note_changed(&mut self) {
        self.ends_at = self.in_force().map(|kept| kept.silence.until).min();
        let is_scoped = self.in_force().any(|kept| kept.silence.matchers.is_scoped());
        self.is_scoped = is_scoped;
        self.by_subscriber.clear();
        for (place, InForce { kept, condition }) in self.in_force.values().enumerate() {
            let name = kept.silence.matchers.subscriber.as_ref();
            let name = name.map_or(ALL_SUBSCRIBERS, SubscriberId::as_str);
            self.by_subscriber.get_or_default(name.into()).add(place, condition.as_ref());
        }
    }

    /// The places of those in force that may suppress an event of a subscriber, in any order.
    fn possible(&self, rule: &Subscriber, event: &Event) -> impl Iterator<Item = usize> {
        let in_file = rule.territory.is_some().then(|| rule.id.in_file());
        let names = [Some(rule.id.as_str()), in_file, Some(ALL_SUBSCRIBERS)];
        let groups = names.into_iter().flatten().filter_map(|name| self.by_subscriber.get(name));
        groups.flat_map(|places| places.possible(event))
    }

    /// Those in force, by id.
    pub fn in_force(&self) -> impl Iterator<Item = &Kept> {
        self.in_force.values().map(|own| &own.kept)
    }

    /// Those that ended in the last days, the last one last.
    pub fn ended(&self) -> impl Iterator<Item = &Kept> {
        self.ended.iter()
    }

    /// Whether a silence is in force.
    pub fn is_in_force(&self, id: SilenceId) -> bool {
        self.in_force.contains_key(&id)
    }

    /// A silence, also one that has ended.
    pub fn get(&self, id: SilenceId) -> Option<&Kept> {
        let in_force = self.in_force.get(&id).map(|own| &own.kept);
        in_force.or_else(|| self.ended.iter().rev().find(|kept| kept.silence.id == id))
    }

    /// Whether none is in force.
    pub fn is_empty(&self) -> bool {
        self.in_force.is_empty()
    }

    /// Whether one in force is for a part of the sessions.
    pub fn is_scoped(&self) -> bool {
        self.is_scoped
    }

    /// Counts an event or a notification of a subscriber that ended by a silence.
    pub fn count(&mut self, id: SilenceId, subscriber: &SubscriberId) {
        if let Some(InForce { kept, .. }) = self.in_force.get_mut(&id) {
            *kept.ended.get_or_default(subscriber.clone()) += 1;
        }
    }

    /// Notes what a silence suppressed when it began.
    pub fn note_began(&mut self, id: SilenceId, began: Began) {
        if let Some(InForce { kept, .. }) = self.in_force.get_mut(&id) {
            kept.began = began;
        }
    }

    /// The first silence that suppresses an event of a subscriber; `is_wanted` selects by what it
    /// matches.
    pub fn find(
        &self,
        rule: &Subscriber,
        event: &Arc<Event>,
        is_critical: bool,
        is_wanted: impl Fn(&Matchers) -> bool,
    ) -> Option<SilenceId> {
        let matches = |InForce { kept, condition }: &InForce| {
            let Matchers { types, source, .. } = &kept.silence.matchers;
            is_wanted(&kept.silence.matchers)
                && kept.silence.matchers.reaches(rule, is_critical)
                && matches_event(types, source.as_deref(), condition.as_ref(), event)
        };
        let at = |place| self.in_force.iter().nth(place).map(|(_, own)| own).expect("it is in force");
        let mut first = None;
        for place in self.possible(rule, event) {
            if first.is_none_or(|first| place < first) && matches(at(place)) {
                first = Some(place);
            }
        }
        first.map(|place| at(place).kept.silence.id)
    }

    /// The first silence that suppresses whatever a subscriber makes; `is_wanted` selects by what it
    /// matches.
    pub fn find_whole(
        &self,
        rule: &Subscriber,
        is_critical: bool,
        is_wanted: impl Fn(&Matchers) -> bool,
    ) -> Option<SilenceId> {
        let mut whole = self.whole(rule, is_critical);
        whole.find(|kept| is_wanted(&kept.silence.matchers)).map(|kept| kept.silence.id)
    }

    /// The silence that suppresses every event of a subscriber in all sessions, critical ones aside; of
    /// several the one that ends last.
    pub fn longest_whole(&self, rule: &Subscriber) -> Option<&Kept> {
        let of_all = self.whole(rule, false).filter(|kept| !kept.silence.matchers.is_scoped());
        of_all.max_by_key(|kept| kept.silence.until)
    }

    /// The silences of a subscriber that match every event.
    fn whole(&self, rule: &Subscriber, is_critical: bool) -> impl Iterator<Item = &Kept> {
        self.in_force().filter(move |kept| {
            let Matchers { types, source, condition, .. } = &kept.silence.matchers;
            let is_part = !types.is_empty() || source.is_some() || condition.is_some();
            !is_part && kept.silence.matchers.reaches(rule, is_critical)
        })
    }
}

/// Whether an event is of one of these types, if there are any, of this source, and `condition` holds;
/// a condition that cannot be evaluated does not. `values`: those of `event`, for all that is asked of it.
pub(super) fn matches_event(
    types: &[Pattern],
    source: Option<&str>,
    condition: Option<&Condition>,
    event: &Arc<Event>,
) -> bool {
    (types.is_empty() || types.iter().any(|types| types.matches(&event.event_type)))
        && source.is_none_or(|source| *source == *event.source)
        && condition.is_none_or(|one| one.test(event).unwrap_or(false))
}

/// Whether a person means this subscriber by an id. Who names a subscriber need not know the folders in
/// which it has another text.
pub(crate) fn is_of(id: &SubscriberId, rule: &Subscriber) -> bool {
    rule.id == *id || rule.territory.is_some() && id.as_str() == rule.id.in_file()
}

/// Patterns in a line.
pub(super) fn patterns(types: &[Pattern]) -> String {
    types.iter().map(Pattern::as_str).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        event::Territory,
        pipeline::tests::{event, rule},
    };

    const NAMES: [Option<&str>; 5] =
        [None, Some(ALL_SUBSCRIBERS), Some("pager@shop"), Some("pager"), Some("other")];
    /// Those that match the event, then those that do not.
    const CONDITIONS: [Option<&str>; 7] = [
        None,
        Some("payload.zone == 'eu'"),
        Some("payload.n > 1 and payload.name == 'A'"),
        Some("payload.n > 1"),
        Some("payload.zone == 'us'"),
        Some("payload.name == 'eu'"),
        Some("payload.n == '2'"),
    ];
    const MATCHING: usize = 4;

    proptest! {
        #[test]
        fn found_silence_is_the_first_of_all(
            begun in prop::collection::vec((0_u8..20, 0..NAMES.len(), 0..CONDITIONS.len()), 0..30),
            ended in prop::collection::vec(0_u8..20, 0..8),
            is_in_folder: bool,
        ) {
            let (mut silences, now) = (Silences::default(), Timestamp::ZERO);
            let id = |number: u8| SilenceId::new(&format!("s{number:02}"));
            for (number, name, condition) in begun {
                let subscriber = NAMES[name].map(SubscriberId::new);
                let condition = CONDITIONS[condition].map(Into::into);
                let matchers = Matchers { subscriber, condition, ..Matchers::default() };
                let (by, comment) = ("user".into(), "".into());
                let until = now + SILENCE_DEFAULT;
                silences.begin(&Silence { id: id(number), matchers, until, by, comment }, now);
            }
            for number in ended {
                silences.end(id(number), now);
            }
            let territory = is_in_folder.then(|| Territory { folder: "/shop".into(), except: Vec::new() }.into());
            let rule = Subscriber { id: SubscriberId::new("pager@shop"), territory, ..rule() };
            let first = silences.in_force().find(|kept| {
                let own = &kept.silence.matchers;
                let is_true = |text: &&str| own.condition.as_deref() == Some(*text);
                let holds = CONDITIONS[..MATCHING].iter().flatten().any(is_true);
                own.reaches(&rule, false) && (own.condition.is_none() || holds)
            });
            let event = event(r#""zone":"eu","n":2,"name":"A""#);
            let found = silences.find(&rule, &event, false, |_| true);
            prop_assert_eq!(found, first.map(|kept| kept.silence.id));
        }
    }
}
