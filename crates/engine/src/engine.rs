//! Every pipeline and every session as one state machine.
//!
//! Inputs ([`Input`]) come in journal order. Before each one the engine fires every deadline up to
//! its time, each at its own time, so the order of a timer and the next input does not matter.

pub mod io;

mod dispatch;
mod echoes;
mod exchange;
mod outcome;
mod parts;
mod region;
mod reload;
mod state;
mod suppression;
mod user;
mod views;

#[cfg(test)]
mod tests;

use self::parts::{Closes, pipeline, resources};
pub use self::{
    dispatch::SUBSCRIBER_FAILED,
    echoes::Echoes,
    io::{Input, Output, Pending, RequestId, SessionChange, WakeReason},
    outcome::{Delivery, Fate, Inhibitor, Outcome, SubscriberOutcome},
    parts::Engine,
    state::Saved,
    suppression::SILENCE_ENDED,
    views::{Explanation, Taker, Verdict},
};
use journal::time::{Timestamp, zone::Zone};

use crate::{
    conversation::{Suspension, TAKEN_PER_TICK},
    event::{EventRef, Seq, SessionId},
    ledger::LedgerEntry,
    pipeline::absence,
};

impl Engine {
    /// Handles one input. Drain [`Engine::poll_output`] to `None` before the next one.
    ///
    /// `now` is the time of the input's journal record; it never decreases.
    pub fn handle(&mut self, input: Input<'_>, now: Timestamp) {
        let before = std::mem::replace(&mut self.now, now);
        self.stand_still(before, now);
        self.fire_deadlines(now);
        self.region_changes += u64::from(changes_regions(&input));
        let taken_max = if matches!(input, Input::Tick) { TAKEN_PER_TICK } else { 0 };
        match input {
            Input::Event { seq, event } => self.event(seq, event, now),
            Input::Exchange { seq, request, exchange, release } => {
                self.exchange(seq, request, &exchange, &release, now);
            }
            Input::Skipped { event } => self.skip(event),
            Input::Ack { session, injection, by } => self.sessions.ack(&session, &injection, by, now),
            Input::Undelivered { session, injection } => {
                self.sessions.take_back_undelivered(&session, &injection, now);
            }
            Input::SessionOpened { session, harness } => {
                self.sessions.open_session(&session, &harness, now);
            }
            Input::SessionSuspended { session } => {
                self.sessions.suspend(&session, Suspension::ByHarness, now);
            }
            Input::SessionEnded { session } => self.sessions.end_session(&session, now),
            Input::ProcessGone { session, process } => self.sessions.process_gone(&session, process, now),
            Input::SessionSeen { session } => self.sessions.note_attached(&session, now),
            Input::SessionIdle { session, as_of } => self.sessions.note_idle(&session, as_of),
            Input::Decided { session, notification, decision } => {
                self.sessions.decide(session.as_ref(), &notification, decision);
            }
            Input::RulesReplaced(rules) => self.replace_rules(rules, now),
            Input::ShuttingDown => self.close_batches(|_| true, Closes::AtShutdown, now),
            Input::Silenced(silence) => self.begin_silence(&silence, now),
            Input::Responded { notification, response } => {
                self.sessions.respond(&notification, &response, now);
            }
            Input::UserSettings { user, settings } => self.set_user(&user, *settings, now),
            Input::SilencesEnded(ids) => ids.into_iter().for_each(|id| self.end_silence(id, now)),
            Input::ZoneChanged(zone) => self.set_zone(zone, now),
            Input::Tick => {}
        }
        self.drain_sessions();
        self.note_idle_sessions(now);
        // The new rules can make a batch or a session due.
        self.fire_deadlines(now);
        self.sessions.advance_fanout(taken_max, now);
        self.sessions.relieve();
        self.drain_sessions();
    }

    /// Handles an event, and replaces its session by that session's current name.
    fn event(&mut self, seq: Seq, event: EventRef<'_>, now: Timestamp) {
        // Almost no id has a separator; skip the others without allocating.
        let full_name = event.session.filter(|name| name.contains(SessionId::SEPARATOR)).map(SessionId::new);
        let addressed = full_name.and_then(|name| self.sessions.by_full_name(&name));
        let session = addressed.as_ref().map(SessionId::as_str).or(event.session);
        if let Some(session) = session.filter(|_| self.sessions.fanout_timeout().is_some()) {
            self.sessions.catch_up_session(&SessionId::new(session));
            self.drain_sessions();
        }
        self.dispatch(seq, &EventRef { session, ..event }, now);
    }

    /// Takes another local clock; quiet hours begin and end by it.
    fn set_zone(&mut self, zone: Zone, now: Timestamp) {
        self.zone = zone;
        for index in (0_u32..).take(self.pipelines.len()) {
            let resources = resources(&self.rules, &self.zone, &self.silences);
            let pipeline = pipeline(&mut self.pipelines, index);
            pipeline.forget_clock();
            pipeline.handle_timeout(resources, now);
            self.drain_pipeline(index, now);
        }
        self.note_quiet_users(now);
    }

    /// Lets the clocks of absences stand while no input could come.
    fn stand_still(&mut self, before: Timestamp, now: Timestamp) {
        if !self.pipeline_deadlines.first().is_some_and(|first| absence::is_unwatched(first, now)) {
            return;
        }
        for index in self.pipeline_deadlines.keys() {
            pipeline(&mut self.pipelines, index).stand_still(before, now);
            self.note_pipeline(index);
        }
    }

    /// Records that an event has no effect.
    fn skip(&mut self, event: Option<Seq>) {
        if let Some(seq) = event {
            self.record(LedgerEntry::Skipped { seq });
        }
    }

    /// The next action for the shell; the order matters.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// The latest time of the engine's next input, and the reason. `None` while nothing is pending.
    pub fn poll_timeout(&self) -> Option<(Timestamp, WakeReason)> {
        let fanout = self.sessions.fanout_timeout().map(|at| (at, WakeReason::Fanout));
        fanout.into_iter().chain(self.next_deadline()).min()
    }

    /// The earliest deadline and its reason; of several at one time the first reason of the list.
    ///
    /// It is called twice per input, so the candidates are compared one after the other: an array
    /// of them would be filled and copied first.
    fn next_deadline(&self) -> Option<(Timestamp, WakeReason)> {
        let mut first = None;
        let mut add = |at: Option<Timestamp>, reason| {
            if let Some(at) = at
                && first.is_none_or(|(earliest, _)| at < earliest)
            {
                first = Some((at, reason));
            }
        };
        add(self.pipeline_deadlines.first(), WakeReason::Pipeline);
        add(self.sessions.session_timeout(), WakeReason::Session);
        add(self.sessions.unclaimed_timeout(), WakeReason::Unclaimed);
        add(self.sessions.region_timeout(), WakeReason::Region);
        add(self.sessions.for_user_timeout(), WakeReason::ForUser);
        add(self.silences.poll_timeout(), WakeReason::Silence);
        add(self.users.poll_timeout(), WakeReason::User);
        add(self.folds.poll_timeout(), WakeReason::Fold);
        first
    }

    fn fire_deadlines(&mut self, now: Timestamp) {
        while let Some((at, reason)) = self.next_deadline().filter(|(at, _)| *at <= now) {
            // Queues that take something decide by the deadline's time too.
            self.now = at;
            match reason {
                WakeReason::Pipeline => self.fire_pipelines(at),
                WakeReason::Session => self.sessions.expire_sessions(at),
                WakeReason::Unclaimed => self.sessions.expire_unclaimed(at),
                WakeReason::Fanout => unreachable!("next_deadline does not return it"),
                WakeReason::Region => self.sessions.expire_regions(at),
                WakeReason::ForUser => self.sessions.expire_for_user(at),
                WakeReason::Silence => {
                    self.region_changes += 1;
                    self.end_silences(at);
                }
                WakeReason::User => self.note_quiet_users(at),
                WakeReason::Fold => {
                    self.folds.handle_timeout(at, &mut self.effects);
                    self.drain_folds();
                }
            }
            self.drain_sessions();
        }
        self.now = now;
    }

    /// Ends the watches that wait for a session that is idle now.
    fn note_idle_sessions(&mut self, now: Timestamp) {
        if self.folds.watches.waits_for_idle() {
            let sessions = &self.sessions;
            self.folds.watches.note_idle(|id| sessions.is_idle(id), now, &mut self.effects);
            self.drain_folds();
        }
    }
}

/// Whether an input can change what a region shows of what it can have.
fn changes_regions(input: &Input<'_>) -> bool {
    match input {
        Input::SessionOpened { .. }
        | Input::SessionSuspended { .. }
        | Input::SessionEnded { .. }
        | Input::Decided { .. }
        | Input::RulesReplaced(_)
        | Input::Silenced(_)
        | Input::Responded { .. }
        | Input::UserSettings { .. }
        | Input::SilencesEnded(_) => true,
        Input::Event { .. }
        | Input::Exchange { .. }
        | Input::Skipped { .. }
        | Input::Ack { .. }
        | Input::Undelivered { .. }
        | Input::ProcessGone { .. }
        | Input::SessionSeen { .. }
        | Input::SessionIdle { .. }
        | Input::ShuttingDown
        | Input::ZoneChanged(_)
        | Input::Tick => false,
    }
}
