//! A subscriber's file as types that exclude invalid values, and the filter of a subscriber.
//!
//! `config` creates these; a pipeline is a running subscriber. This module does not know TOML or
//! files.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use journal::time::hours::Hours;
use strum::{IntoStaticStr, VariantArray};

use crate::{
    event::{Event, FieldPath, FieldValue, Pattern, Scope, Severity, Territory},
    hold::{Delay, Wait},
    ledger::FilteredBy,
    notification::{
        Activation, ActiveFor, Audience, InjectionPoint, Interrupt, Priority, RegionUse, SubscriberId,
        Tokens, repeat::Repeat,
    },
    pipeline::{
        absence::AbsenceRule,
        activation::WakeSettings,
        condition::{Condition, ConditionFailure},
        inhibition::InhibitRule,
        render::{Kept, Layout, Sentence},
        row::Row,
        threshold::ThresholdRule,
    },
    rate::Rate,
    words::Words,
};

/// One subscriber, compiled.
#[derive(Debug)]
pub struct Subscriber {
    /// Unique name.
    pub id: SubscriberId,
    /// Name for people.
    pub name: String,
    /// Its purpose, for people.
    pub description: String,
    /// The author's version of the file; `None` if it names none.
    pub version: Option<semver::Version>,
    /// Whether it is enabled, and whether it can be disabled.
    pub activity: Activity,
    /// The subscribed event types; at least one.
    pub types: Vec<Pattern>,
    /// The accepted sources; all if empty.
    pub sources: Vec<String>,
    /// The severities that events have for this subscriber: of the first condition that is true.
    pub severity_when: Vec<SeverityRule>,
    /// The lowest accepted severity.
    pub severity_min: Severity,
    /// `where`.
    pub condition: Option<Condition>,
    /// How events are collected.
    pub batching: Batching,
    /// The definition of a repeat; `None` if there are none.
    pub dedupe: Option<DedupeRule>,
    /// How many events let one go on; `None` if each does.
    pub threshold: Option<ThresholdRule>,
    /// The limit per time.
    pub rate: Option<RateRule>,
    /// The budget of its notifications, in tokens.
    pub tokens: Option<Rate>,
    /// An event for which it is true closes its batch.
    pub close_when: Option<Condition>,
    /// An event for which it is true closes the open batch and begins the next one.
    pub open_when: Option<Condition>,
    /// How long a notification is useful.
    pub ttl: Option<Duration>,
    /// The hours in which nothing is delivered, critical notifications excepted.
    pub quiet: Hours,
    /// What a delivery waits for, the first of them; empty for nothing.
    pub deliver_after: Vec<Delay>,
    /// What did not come.
    pub absence: Option<AbsenceRule>,
    /// How long a session that opens gets the newest notification of each state.
    pub retain: Option<Duration>,
    /// How a delivered notification is repeated.
    pub repeat: Option<Box<Repeat>>,
    /// The fields that identify a state: a newer event about it replaces a pending older one. Empty
    /// for no replacement.
    pub supersede_key: Vec<FieldPath>,
    /// The end of a condition raised by an event; `None` if each event is an occurrence.
    pub resolve: Option<ResolveRule>,
    /// Which events inhibit this subscriber's.
    pub inhibit: Vec<InhibitRule>,
    /// The order of reports about a state or a condition; empty for the order of their arrival.
    pub order: OrderRule,
    /// How a batch becomes a notification.
    pub output: OutputRule,
    /// The user's limits on the activation of notifications; the same for all subscribers.
    pub wake: Arc<WakeSettings>,
    /// Those of later files with the same id, of a core one that they do not replace wholly: this one
    /// takes the events that none of them takes. Empty for the one of the latest file.
    pub later: Vec<Arc<Subscriber>>,
    /// The sessions for which it is there, if it is a folder's own; `None` for all sessions.
    pub territory: Option<Arc<Territory>>,
    /// Those of folders with the same id, each of which replaces this one in its territory.
    pub in_folders: Vec<Arc<Subscriber>>,
}

impl Subscriber {
    /// Whether `types` select the event and the whole filter passes it.
    pub fn takes(&self, event: &Arc<Event>) -> bool {
        self.types.iter().any(|pattern| pattern.matches(&event.event_type)) && self.check_whole(event).is_ok()
    }

    /// Whether it is the subscriber `id`, or what a later file of `id` leaves to an earlier one.
    pub fn is_part_of(&self, id: &SubscriberId) -> bool {
        self.id == *id || (self.territory.is_none() && self.id.in_file() == id.as_str())
    }

    /// The patterns of all events that concern it: those that it takes, and those that resolve, inhibit
    /// or release what it made.
    pub fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        let resolving = self.resolve.iter().flat_map(|resolve| &resolve.by);
        let inhibiting = self.inhibit.iter().flat_map(|inhibit| inhibit.by.iter().chain(&inhibit.until));
        let releasing = self.deliver_after.iter().filter_map(|delay| match delay {
            Delay::Wait(Wait::Event(pattern)) => Some(pattern),
            Delay::Wait(Wait::Turns(_) | Wait::Until(_) | Wait::Tool(_) | Wait::Context(_))
            | Delay::For(_)
            | Delay::TimeOfDay(_) => None,
        });
        self.types.iter().chain(resolving).chain(inhibiting).chain(releasing)
    }

    /// The event with the severity that it has for this subscriber, and the failure of a condition,
    /// which counts as false. An untrusted event is never critical by a condition, and a core
    /// subscriber sees no event as less severe than it is.
    pub(crate) fn as_seen(&self, event: &Arc<Event>) -> (Arc<Event>, Option<ConditionFailure>) {
        let mut failure = None;
        for rule in &self.severity_when {
            match rule.condition.test(event) {
                Ok(false) => {}
                Ok(true) => {
                    let is_trusted = self.wake.trust_in(event).is_trusted();
                    let least =
                        if self.activity == Activity::Core { event.severity } else { Severity::Debug };
                    let most = if is_trusted { Severity::Critical } else { Severity::Error };
                    let severity = rule.is.min(most).max(least);
                    let seen = Event { severity, ..(**event).clone() };
                    return (Arc::new(seen), failure);
                }
                Err(failed) => failure = Some(failed),
            }
        }
        (Arc::clone(event), failure)
    }

    /// Whether an event makes a critical notification of its own.
    pub(crate) fn makes_critical(&self, event: &Event) -> bool {
        is_alone(self, Weight::new(self, event))
    }

    /// Checks `sources`.
    pub(crate) fn check_source(&self, event: &Event) -> Result<(), FilteredBy> {
        let is_listed = || self.sources.iter().any(|source| **source == *event.source);
        if self.sources.is_empty() || is_listed() { Ok(()) } else { Err(FilteredBy::Source) }
    }

    /// Checks `severity_filter`.
    pub(crate) fn check_severity(&self, event: &Event) -> Result<(), FilteredBy> {
        if event.severity < self.severity_min { Err(FilteredBy::Severity) } else { Ok(()) }
    }

    /// Checks the whole filter: `sources`, `severity_filter` and `where`.
    pub(crate) fn check_whole(&self, event: &Arc<Event>) -> Result<(), FilteredBy> {
        self.check_source(event)?;
        let (event, _) = &self.as_seen(event);
        self.check_severity(event)?;
        match self.condition.as_ref().map(|condition| condition.test(event)) {
            None | Some(Ok(true)) => Ok(()),
            Some(Ok(false)) => Err(FilteredBy::Where),
            Some(Err(_)) => Err(FilteredBy::WhereFailed),
        }
    }
}

/// The class of an event; it decides whether the event makes a critical notification of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// An event of an untrusted source: its priority is high at most.
    Untrusted,
    /// The subscriber's priority applies.
    Usual,
    /// An event of a trusted source, at least as severe as `escalate_at`: it bypasses batching and
    /// rate limits, but not filters and dedupe.
    Escalated,
}

impl Weight {
    pub(crate) fn new(rule: &Subscriber, event: &Event) -> Self {
        if !rule.wake.trust_in(event).is_trusted() {
            return Self::Untrusted;
        }
        let escalates = rule.output.escalate_at.is_some_and(|least| event.severity >= least);
        if escalates { Self::Escalated } else { Self::Usual }
    }
}

/// Whether an event makes a critical notification of its own. An untrusted event never does,
/// whatever the subscriber's rule is.
pub(crate) fn is_alone(rule: &Subscriber, weight: Weight) -> bool {
    match weight {
        Weight::Untrusted => false,
        Weight::Usual => rule.output.priority == Priority::Critical,
        Weight::Escalated => true,
    }
}

/// A severity, and the condition on which an event has it.
#[derive(Debug)]
pub struct SeverityRule {
    /// The severity.
    pub is: Severity,
    /// The condition.
    pub condition: Condition,
}

/// A limit per time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateRule {
    /// How many.
    pub rate: Rate,
    /// The fields that have a limit for each of their values.
    pub by: Vec<FieldPath>,
    /// What is limited.
    pub of: RateOf,
}

impl From<Rate> for RateRule {
    /// A limit of notifications, one for all.
    fn from(rate: Rate) -> Self {
        Self { rate, by: Vec::new(), of: RateOf::Notifications }
    }
}

impl_as_str!(RateOf);

/// What a rate limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum RateOf {
    /// Notifications.
    #[default]
    Notifications,
    /// Events, before they join a batch.
    Events,
}

/// Whether a subscriber runs. A core one cannot be disabled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Always runs.
    Core,
    /// Runs, and can be disabled.
    Enabled,
    /// Disabled.
    Disabled,
}

/// How events are collected into one notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batching {
    /// Time for collecting events; zero closes a batch at once.
    pub window: Duration,
    /// A batch with this many rows closes at once.
    pub max_size: NonZeroU32,
    /// The effect of an event on an open window.
    pub mode: BatchMode,
    /// One batch for each value of these fields; one batch for all if empty.
    pub group_by: Vec<FieldPath>,
}

impl Batching {
    /// The longest time that a batch is open, apart from quiet hours.
    pub fn open_max(&self) -> Duration {
        match &self.mode {
            BatchMode::Window => self.window,
            BatchMode::Debounce { max_wait } => *max_wait,
            BatchMode::Digest(DigestTimes::Every(every)) => *every,
            BatchMode::Digest(DigestTimes::At(_)) => Duration::from_secs(24 * 3_600),
        }
    }

    /// The rows that a text keeps if it cannot show all.
    pub fn kept(&self) -> Kept {
        match self.mode {
            BatchMode::Window | BatchMode::Debounce { .. } => Kept::Oldest,
            BatchMode::Digest(_) => Kept::Newest,
        }
    }

    /// Whether an exchange can close a batch that is open.
    pub fn is_closed_by_exchanges(&self) -> bool {
        match self.mode {
            BatchMode::Window | BatchMode::Debounce { .. } => self.collects(),
            BatchMode::Digest(_) => false,
        }
    }

    /// Whether events wait for others within the window.
    pub fn collects(&self) -> bool {
        !self.window.is_zero() && self.max_size > NonZeroU32::MIN
    }
}

/// The effect of an event on an open window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BatchMode {
    /// None: the window counts from the first event.
    Window,
    /// The event restarts it, until `max_wait` after the first event.
    Debounce {
        /// The longest time that a batch stays open.
        max_wait: Duration,
    },
    /// A batch closes at these times alone.
    Digest(DigestTimes),
}

/// When a digest closes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DigestTimes {
    /// So long after its first event.
    Every(Duration),
    /// The next of these local times, in minutes after midnight.
    At(Vec<u16>),
}

/// The definition of a repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DedupeRule {
    /// The fields whose values, joined, are the key. An event's own `dedupe_key` takes precedence.
    pub key: Vec<FieldPath>,
    /// The fields that the whole payload is compared without.
    pub ignore: Vec<FieldPath>,
    /// How long after the first event an equal key is a repeat; never zero.
    pub window: Duration,
    /// The event that a row of equal events shows.
    pub keep: Keep,
}

/// The end of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolveRule {
    /// The types of resolving events; at least one. Such an event raises no condition itself.
    pub by: Vec<Pattern>,
    /// The fields in which a resolving event must equal the one that raised the condition; if
    /// empty, it resolves all conditions.
    pub equal: Vec<FieldPath>,
}

/// The order of reports about one state or condition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OrderRule {
    /// The fields that identify the revision that a report is of, such as its commit. Reports of
    /// different revisions between which no order is known neither replace nor resolve each other.
    pub revision: Vec<FieldPath>,
    /// The fields whose values order reports, the most significant first.
    pub by: Vec<FieldPath>,
}

impl OrderRule {
    /// Whether reports are in the order of their arrival.
    pub fn is_empty(&self) -> bool {
        self.revision.is_empty() && self.by.is_empty()
    }
}

impl_as_str!(Keep);

/// The event that a row of equal events shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Keep {
    /// The first. A later repeat is counted even if the row was already in a notification.
    #[default]
    First,
    /// The newest. If the row was already in a notification, the next event gets its own row.
    Newest,
}

/// How a batch becomes a notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputRule {
    /// The priority of its notifications.
    pub priority: Priority,
    /// The field of an event with the priority of its notification in place of that one; a
    /// notification has the highest of its events.
    pub priority_by: Option<FieldPath>,
    /// The point at which they may enter the context.
    pub inject_at: InjectionPoint,
    /// How pending ones may act on an agent.
    pub activation: Activation,
    /// Whether a notification asks for an answer.
    pub requires_response: bool,
    /// Whether the regions of sessions have its notifications.
    pub region: RegionUse,
    /// The scopes in which an active one is active.
    pub active_for: ActiveFor,
    /// The effect of critical ones on a running turn.
    pub interrupt: Interrupt,
    /// An event of at least this severity makes its notification critical and immediate, bypassing
    /// batching.
    pub escalate_at: Option<Severity>,
    /// How a batch becomes its text.
    pub layout: Layout,
    /// How an event becomes words for a person; `None` for the first values of the text.
    pub sentence: Option<Arc<Sentence>>,
    /// Most tokens of a notification; further rows are only counted.
    pub max_tokens: Tokens,
    /// The recipients of its notifications.
    pub audience: Audience,
}

impl OutputRule {
    /// Whether an event can make its notification critical.
    pub fn can_be_critical(&self) -> bool {
        self.priority == Priority::Critical || self.escalate_at.is_some()
    }

    /// The priority of a notification of these rows: at most high by the field of an event.
    pub(crate) fn priority_of(&self, rows: &[Row]) -> Priority {
        let Some(field) = &self.priority_by else { return self.priority };
        let of_row = |row: &Row| match field.value(&row.event) {
            FieldValue::Text(word) => {
                Priority::of_word(&word).map_or(self.priority, |own| own.min(Priority::High))
            }
            FieldValue::Absent | FieldValue::Null | FieldValue::Json(_) => self.priority,
        };
        rows.iter().map(of_row).max().unwrap_or(self.priority)
    }

    /// The activation that it requests for a notification of `scope`.
    pub fn activation_in(&self, scope: &Scope) -> Activation {
        match (self.activation, self.active_for, scope) {
            (Activation::Active, ActiveFor::Session, Scope::Workspace(_) | Scope::All | Scope::Part(_)) => {
                Activation::Passive
            }
            (own, _, _) => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{event::SessionId, pipeline::tests::rule};

    #[test]
    fn active_for_session_wakes_for_its_session_alone() {
        use Activation::{Active, Passive, Prompt};
        let own = || Scope::Session(SessionId::new("s1"));
        for (activation, active_for, scope, expected) in [
            (Active, ActiveFor::Session, own(), Active),
            (Active, ActiveFor::Session, Scope::Workspace("/w".into()), Passive),
            (Active, ActiveFor::Session, Scope::All, Passive),
            (Active, ActiveFor::Any, Scope::All, Active),
            (Prompt, ActiveFor::Session, Scope::All, Prompt),
        ] {
            let output = OutputRule { activation, active_for, ..rule().output };
            assert_eq!(output.activation_in(&scope), expected, "{activation:?} {active_for:?} {scope:?}");
        }
    }
}
