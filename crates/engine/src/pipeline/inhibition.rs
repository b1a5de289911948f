//! Inhibition: an event that suppresses the events of a subscriber for a time, where both are equal
//! in some fields.
//!
//! The inhibiting event need not be taken by anybody. One that none of the fields names a value for
//! inhibits nothing, and is inhibited by nothing. An untrusted event inhibits untrusted ones, and one
//! below critical inhibits no critical one.

use std::time::Duration;

use journal::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::key::KeyWriter;
use crate::{
    event::{Event, FieldPath, Pattern, Scope, Seq, Severity, Trust},
    notification::StateKey,
    sorted::SortedMap,
};

/// Most inhibitions of a subscriber. When it is reached, the one that ends first is forgotten.
pub const INHIBITIONS_MAX: usize = 4_096;

/// Which events inhibit, and what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InhibitRule {
    /// The types of the events that inhibit; at least one.
    pub by: Vec<Pattern>,
    /// The sources of these; all if empty.
    pub sources: Vec<String>,
    /// The fields in which both are equal: of the inhibited event, and of the other one. None for
    /// everything.
    pub equal: Vec<(FieldPath, FieldPath)>,
    /// The types of the events that end it, with equal fields.
    pub until: Vec<Pattern>,
    /// The longest time that an event inhibits.
    pub lasts: Duration,
}

impl InhibitRule {
    /// Whether an event inhibits or ends what it inhibited.
    fn concerns(&self, patterns: &[Pattern], event: &Event) -> bool {
        let is_listed = self.sources.is_empty() || self.sources.iter().any(|own| **own == *event.source);
        is_listed && patterns.iter().any(|pattern| pattern.matches(&event.event_type))
    }
}

/// The inhibitions of one subscriber.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Inhibitions {
    /// By the number of their rule and the values of its fields; of one such pair, by scope and trust.
    all: SortedMap<(usize, StateKey), Vec<Inhibition>>,
    /// Their number.
    count: usize,
    /// Number of those for a part of the sessions.
    scoped: usize,
    /// No later than the first of them ends.
    ends_at: Option<Timestamp>,
}

/// One that is in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Inhibition {
    /// The event.
    pub(crate) by: Seq,
    /// The sessions in which it inhibits.
    pub(crate) scope: Scope,
    is_trusted: bool,
    severity: Severity,
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
}

impl Inhibition {
    /// Whether it inhibits an event of this trust that is critical or not.
    fn can_inhibit(&self, trust: Trust, is_critical: bool) -> bool {
        (self.is_trusted || !trust.is_trusted()) && (!is_critical || self.severity == Severity::Critical)
    }
}

/// What an event changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Inhibited {
    /// It begins to inhibit.
    pub(crate) began: bool,
    /// The inhibitions that it ended.
    pub(crate) ended: Vec<Seq>,
}

impl Inhibitions {
    /// Takes an event that may inhibit, or end what another one inhibits.
    pub(crate) fn note(
        &mut self,
        rules: &[InhibitRule],
        writer: &mut KeyWriter,
        seq: Seq,
        event: &Event,
        trust: Trust,
        now: Timestamp,
    ) -> Inhibited {
        let mut inhibited = Inhibited::default();
        for (number, rule) in rules.iter().enumerate() {
            let is_end = rule.concerns(&rule.until, event);
            let is_begin = rule.concerns(&rule.by, event);
            let key = (is_end || is_begin).then(|| key(rule, Side::Source, writer, event)).flatten();
            let Some(key) = key.map(|key| (number, key)) else { continue };
            if is_end && let Some(open) = self.all.get_mut(&key) {
                let scope = event.scope();
                let is_over = |one: &mut Inhibition| {
                    scope.covers(&one.scope) && (trust.is_trusted() || !one.is_trusted)
                };
                let over: Vec<Inhibition> = open.extract_if(.., is_over).collect();
                if open.is_empty() {
                    self.all.remove(&key);
                }
                inhibited.ended.extend(self.discount(&over));
            }
            if is_begin {
                inhibited.began |= self.begin(key, rule, seq, event, trust, now);
                inhibited.ended.extend(self.forget_over_bound());
            }
        }
        inhibited
    }

    /// Returns whether something is inhibited that was not.
    fn begin(
        &mut self,
        key: (usize, StateKey),
        rule: &InhibitRule,
        seq: Seq,
        event: &Event,
        trust: Trust,
        now: Timestamp,
    ) -> bool {
        let (scope, until) = (event.scope(), now + rule.lasts);
        let open = self.all.get_or_default(key);
        let is_same = |one: &&mut Inhibition| {
            one.scope == scope && one.is_trusted == trust.is_trusted() && one.severity == event.severity
        };
        if let Some(one) = open.iter_mut().find(is_same) {
            one.until = until;
            return false;
        }
        let (is_trusted, severity) = (trust.is_trusted(), event.severity);
        open.push(Inhibition { by: seq, scope, is_trusted, severity, since: now, until });
        self.count += 1;
        self.scoped += usize::from(event.scope() != Scope::All);
        self.ends_at = Some(self.ends_at.map_or(until, |at| at.min(until)));
        true
    }

    /// Forgets the one that ends first if there are too many.
    fn forget_over_bound(&mut self) -> Vec<Seq> {
        if self.count <= INHIBITIONS_MAX {
            return Vec::new();
        }
        let first = self.iter().min_by_key(|one| (one.until, one.by)).map(|one| one.by);
        self.remove(|one| Some(one.by) == first)
    }

    /// Counts those that are over; returns their events.
    fn discount(&mut self, over: &[Inhibition]) -> Vec<Seq> {
        self.count -= over.len();
        self.scoped -= over.iter().filter(|one| one.scope != Scope::All).count();
        over.iter().map(|one| one.by).collect()
    }

    /// What inhibits an event everywhere, or where `is_in` is true of its scope.
    pub(crate) fn find(
        &self,
        rules: &[InhibitRule],
        writer: &mut KeyWriter,
        seq: Seq,
        event: &Event,
        (trust, is_critical): (Trust, bool),
        is_in: &dyn Fn(&Scope) -> bool,
    ) -> Option<&Inhibition> {
        if self.is_empty() {
            return None;
        }
        rules.iter().enumerate().find_map(|(number, rule)| {
            let open = self.all.get(&(number, key(rule, Side::Target, writer, event)?))?;
            // An event never inhibits the notification that it is a row of.
            let inhibits =
                |one: &&Inhibition| one.by != seq && one.can_inhibit(trust, is_critical) && is_in(&one.scope);
            open.iter().find(inhibits)
        })
    }

    /// Ends those whose time is over at `now`.
    pub(crate) fn end(&mut self, now: Timestamp) -> Vec<Seq> {
        if self.ends_at.is_none_or(|at| at > now) { Vec::new() } else { self.remove(|one| one.until <= now) }
    }

    /// Ends all of them, because the rules changed.
    pub(crate) fn clear(&mut self) -> Vec<Seq> {
        self.remove(|_| true)
    }

    fn remove(&mut self, is_over: impl Fn(&Inhibition) -> bool) -> Vec<Seq> {
        let mut over = Vec::new();
        self.all.retain(|_, open| {
            over.extend(open.extract_if(.., |one| is_over(one)));
            !open.is_empty()
        });
        self.ends_at = self.iter().map(|one| one.until).min();
        self.discount(&over)
    }

    /// When the next one may end.
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        self.ends_at
    }

    /// Until when an event inhibits, if it still does.
    pub(crate) fn until(&self, by: Seq) -> Option<Timestamp> {
        self.iter().find(|one| one.by == by).map(|one| one.until)
    }

    /// What an event inhibits, with the number of its rule.
    pub(crate) fn find_by(&self, by: Seq) -> Option<(usize, &Inhibition)> {
        self.all.iter().find_map(|((number, _), open)| Some((*number, open.iter().find(|one| one.by == by)?)))
    }

    /// Whether nothing inhibits.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether one applies to a part of the sessions.
    pub(crate) fn is_scoped(&self) -> bool {
        self.scoped > 0
    }

    fn iter(&self) -> impl Iterator<Item = &Inhibition> {
        self.all.values().flatten()
    }
}

/// What an event does to the events of a subscriber that does not take it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inhibiting {
    /// It inhibits them.
    Begins,
    /// It ends what another event inhibits.
    Ends,
}

impl Inhibiting {
    /// What an event does by these rules.
    pub(crate) fn find(rules: &[InhibitRule], event: &Event) -> Option<Self> {
        let is_any = |patterns: fn(&InhibitRule) -> &[Pattern]| {
            let is_one = |rule: &&InhibitRule| rule.concerns(patterns(rule), event);
            let mut concerned = rules.iter().filter(is_one);
            concerned.any(|rule| key(rule, Side::Source, &mut KeyWriter::default(), event).is_some())
        };
        if is_any(|rule| &rule.by) {
            Some(Self::Begins)
        } else {
            is_any(|rule| &rule.until).then_some(Self::Ends)
        }
    }
}

/// Which of the two events a field is read of.
#[derive(Debug, Clone, Copy)]
enum Side {
    Target,
    Source,
}

/// The values of the rule's fields; `None` if the event has none of its payload fields.
fn key(rule: &InhibitRule, side: Side, writer: &mut KeyWriter, event: &Event) -> Option<StateKey> {
    let fields = rule.equal.iter().map(|(target, source)| match side {
        Side::Target => target,
        Side::Source => source,
    });
    let lacks_all = writer.start().values(fields, event);
    (!lacks_all).then(|| writer.digest())
}
