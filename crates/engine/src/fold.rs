//! The interface of folds: parts that keep state over the events of the journal.
//!
//! A fold takes every dispatched event in the order of the journal, has a time at which it wants to
//! be called again, and follows a session that continues under another id. It returns [`Effects`].
//! It knows no other fold. A new fold is a type that implements [`Fold`] and a row of the table in
//! `engine::folds`, which passes on all of this, writes the state into snapshots and reads it.

use journal::time::Timestamp;

use crate::{
    event::{Event, EventRef, Seq, SessionId, Trust},
    exchange::Exchange,
    ledger::{LedgerEntry, Reason},
    session::Succession,
};

/// An event, as the folds take it.
#[derive(Debug, Clone, Copy)]
pub struct Dispatched<'a> {
    /// Its position.
    pub seq: Seq,
    /// The event.
    pub event: &'a EventRef<'a>,
    /// Whether it may move state.
    pub trust: Trust,
    /// At the end of a push's checks: whether checks of a push of the same owner are followed that
    /// is not older. False for other events.
    pub checks_go_on: bool,
    /// The share of its session's context that is used, in percent, if it reports it.
    pub used_context: Option<u64>,
    /// The time of its record.
    pub now: Timestamp,
}

/// An effect of a fold.
#[derive(Debug)]
pub enum Effect {
    /// Publish an event. Its id is deterministic, so a replay publishes the same.
    Publish(Event),
    /// Record an outcome.
    Record(LedgerEntry),
}

impl<'a> Dispatched<'a> {
    /// An event of a trusted source.
    pub const fn trusted(seq: Seq, event: &'a EventRef<'a>, now: Timestamp) -> Self {
        Self { seq, event, trust: Trust::Trusted, checks_go_on: false, used_context: None, now }
    }
}

/// The effects of folds, in order.
#[derive(Debug, Default)]
pub struct Effects(Vec<Effect>);

impl Effects {
    /// Adds events to publish.
    pub fn publish(&mut self, events: impl IntoIterator<Item = Event>) {
        self.0.extend(events.into_iter().map(Effect::Publish));
    }

    /// Adds outcomes.
    pub fn record(&mut self, entries: impl IntoIterator<Item = LedgerEntry>) {
        self.0.extend(entries.into_iter().map(Effect::Record));
    }

    #[cfg(test)]
    pub(crate) fn into_events(self) -> Vec<Event> {
        let event = |effect| match effect {
            Effect::Publish(event) => Some(event),
            Effect::Record(_) => None,
        };
        self.0.into_iter().filter_map(event).collect()
    }

    #[cfg(test)]
    pub(crate) fn into_entries(self) -> Vec<LedgerEntry> {
        let entry = |effect| match effect {
            Effect::Publish(_) => None,
            Effect::Record(entry) => Some(entry),
        };
        self.0.into_iter().filter_map(entry).collect()
    }

    /// Removes and returns the effects.
    pub fn take(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.0)
    }
}

/// A part of the engine that keeps state over events.
pub trait Fold {
    /// The settings that it uses, a part of the rules.
    type Settings;

    /// Applies settings: those of a start, where `before` is `None`, or changed ones.
    fn apply(&mut self, _settings: &Self::Settings, _before: Option<&Self::Settings>) {}

    /// Takes an event. Returns whether it is addressed to this fold, so that it needs no subscriber.
    fn observe(
        &mut self,
        _dispatched: &Dispatched<'_>,
        _settings: &Self::Settings,
        _to: &mut Effects,
    ) -> bool {
        false
    }

    /// The time at which it wants to be called.
    fn poll_timeout(&self) -> Option<Timestamp> {
        None
    }

    /// Does what is due at `now`, the time returned by [`Fold::poll_timeout`].
    fn handle_timeout(&mut self, _now: Timestamp, _to: &mut Effects) {}

    /// Follows a session whose identity changed.
    fn follow(&mut self, _change: &Succession, _to: &mut Effects) {}

    /// Notes an exchange that a session's harness made for the first time.
    fn note_exchange(
        &mut self,
        _exchange: &Exchange,
        _settings: &Self::Settings,
        _now: Timestamp,
        _to: &mut Effects,
    ) {
    }

    /// Notes the end of a turn of `session` that no event reports.
    fn end_turn(&mut self, _session: &SessionId, _now: Timestamp, _to: &mut Effects) {}

    /// Notes that the user began another task in `session`.
    fn begin_task(&mut self, _session: &SessionId) {}

    /// The reason why `session` needs no notification of `events`; `None` if it may need it.
    fn reason_against(&self, _session: &SessionId, _events: &[Seq]) -> Option<Reason> {
        None
    }
}
