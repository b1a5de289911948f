//! One running subscriber: it turns events of its types into notifications.
//!
//! The stages, in order: severity, filter, order, dedupe, threshold, rate of events, batch, rate,
//! supersede, render. They do not know
//! each other; [`Pipeline::handle`] lists them. Events that resolve conditions bypass them
//! ([`Pipeline::resolve`]). A pipeline takes an event and the time, and returns outputs and its
//! next deadline. Every event ends exactly once: in a row of a notification, or with a [`Reason`].
//! Only open batches have deadlines. A pipeline does not know sessions or other subscribers.
//!
//! A snapshot stores the memory of a subscriber, once its outputs are drained. The rule is not
//! stored: it is read again with the current rules, and memory is matched by subscriber id.

pub mod absence;
pub mod activation;
mod aged;
mod batch;
pub mod condition;
mod dedupe;
mod delay;
mod hints;
pub mod inhibition;
mod key;
mod limit;
mod making;
pub mod memory;
pub mod mute;
mod newest;
mod origins;
mod output;
mod presence;
pub mod progress;
pub mod recent;
pub mod remainder;
pub mod render;
mod resolve;
pub mod row;
pub mod rule;
mod sandbox;
pub mod silence;
pub mod suppression;
pub mod territory;
pub mod threshold;
mod timing;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

use std::{collections::VecDeque, sync::Arc};

use journal::time::{Timestamp, zone::Zone};

use crate::{
    budget::BudgetSettings,
    event::{Event, Scope, Seq},
    ledger::{FilteredBy, Reason},
    notification::{Audience, State, StateKey},
    pipeline::{
        absence::Absences,
        batch::{Batch, Batcher},
        condition::Condition,
        dedupe::{Dedupe, Verdict},
        inhibition::Inhibitions,
        key::KeyWriter,
        newest::{Named, Newest},
        output::Failures,
        render::Templates,
        row::{DeferredByScope, DeferredCounts, Row},
        rule::{Keep, Subscriber, Weight, is_alone},
        silence::Silences,
        threshold::{Reached, Thresholds},
        timing::Timing,
    },
    rate::Buckets,
};

pub use crate::pipeline::output::{FailedPart, Failing, Failure, HoldChange, PipelineOutput, RowEvents};

/// What a pipeline uses that is not its own.
#[derive(Debug, Clone, Copy)]
pub struct Resources<'a> {
    /// The templates of all subscribers.
    pub templates: &'a Templates,
    /// The local clock.
    pub zone: &'a Zone,
    /// The silences of people.
    pub silences: &'a Silences,
    /// `[budget]` of `aside.toml`.
    pub budget: &'a BudgetSettings,
    /// Why no session gets what the event at hand makes, if that is known.
    pub muted: Option<&'a Arc<str>>,
}

/// A running subscriber.
#[derive(Debug)]
pub struct Pipeline {
    rule: Arc<Subscriber>,
    key: KeyWriter,
    dedupe: Dedupe,
    batcher: Batcher,
    thresholds: Thresholds,
    limiter: Buckets<Scope>,
    limiter_by: Buckets<StateKey>,
    deferred: DeferredByScope,
    failures: Failures,
    newest: Newest,
    inhibitions: Inhibitions,
    absences: Absences,
    /// The end of the quiet hours that have begun.
    quiet_until: Option<Timestamp>,
    /// When quiet hours begin or end next; `None` if it is not known yet, or if there are none.
    next_change: Option<Timestamp>,
    outputs: VecDeque<PipelineOutput>,
}

impl Pipeline {
    /// Starts a pipeline with empty memory.
    pub fn new(rule: Arc<Subscriber>) -> Self {
        Self::remembering(rule, Default::default())
    }

    /// The subscriber.
    pub fn rule(&self) -> &Arc<Subscriber> {
        &self.rule
    }

    /// The number of its open batches.
    pub fn batches_open(&self) -> usize {
        self.batcher.len()
    }

    /// The number of rows in its open batches, and when the next one closes.
    pub fn rows_open(&self) -> (usize, Option<Timestamp>) {
        self.batcher.open_rows()
    }

    /// The parts written by its author that failed under the current rule.
    pub fn failing(&self) -> impl Iterator<Item = &(FailedPart, Failing)> {
        self.failures.failing()
    }

    /// Replaces the rule by another one of the same subscriber.
    ///
    /// Open batches keep their rows and are rendered by the new rule. They keep their deadlines unless
    /// the mode or the quiet hours changed; then each gets the one that it would have by the new rule,
    /// but none before `now`. Dedupe windows stay open unless the fields of the key changed. Token buckets stay unless the rate changed.
    /// Deferred counts stay. The newest known versions of states stay unless the fields of their
    /// keys or of their order changed.
    pub fn replace_rule(&mut self, rule: Arc<Subscriber>, zone: &Zone, now: Timestamp) {
        let key = |rule: &Subscriber| rule.dedupe.as_ref().map(|dedupe| dedupe.key.clone());
        if key(&rule) != key(&self.rule) {
            self.dedupe.clear();
        }
        if rule.rate != self.rule.rate {
            self.limiter.clear();
            self.limiter_by.clear();
        }
        if rule.threshold != self.rule.threshold {
            self.thresholds.clear();
        }
        let equal = |rule: &Subscriber| rule.resolve.as_ref().map(|resolve| resolve.equal.clone());
        if rule.order != self.rule.order
            || rule.supersede_key != self.rule.supersede_key
            || equal(&rule) != equal(&self.rule)
        {
            self.newest.clear();
        }
        self.failures.clear();
        if rule.inhibit != self.rule.inhibit {
            let ended = self.inhibitions.clear();
            self.end_inhibitions(ended);
        }
        if rule.absence != self.rule.absence {
            self.end_absences();
        }
        if rule.quiet != self.rule.quiet {
            self.forget_clock();
        }
        if rule.quiet != self.rule.quiet || rule.batching.mode != self.rule.batching.mode {
            self.batcher.reschedule(timing(&rule, zone), now);
        }
        self.rule = rule;
    }

    /// Forgets when quiet hours begin and end, because they or the local clock changed. Call
    /// [`Self::handle_timeout`] afterwards.
    pub fn forget_clock(&mut self) {
        if self.quiet_until.take().is_some() {
            self.outputs.push_back(PipelineOutput::Holds(HoldChange::QuietEnded));
        }
        self.next_change = None;
    }

    /// Takes an event of a subscribed type. Afterwards drain `poll_output`.
    ///
    /// Due batches close before the event is handled, so a late timer changes nothing.
    pub fn handle(&mut self, seq: Seq, event: &Arc<Event>, resources: Resources<'_>, now: Timestamp) {
        self.handle_timeout(resources, now);
        if let Err(by) = self.rule.check_source(event) {
            return self.end(seq, Reason::FilteredOut(by));
        }
        let scope = territory::scope_for(&self.rule, event);
        let event = &self.seen(event, now);
        let weight = Weight::new(&self.rule, event);
        if let Err(reason) = self.filter(event, now) {
            return self.end(seq, reason);
        }
        if self.is_stale(event) {
            return self.end(seq, Reason::Stale);
        }
        if let Some(by) = resources.muted {
            return self.end_unseen(seq, event, scope, Reason::Muted { by: Arc::clone(by) });
        }
        if self.rule.absence.is_some() {
            return self.note_presence(seq, event, resources, now);
        }
        self.take(seq, event, scope, weight, resources, now);
    }

    /// The stages after the filters.
    fn take(
        &mut self,
        seq: Seq,
        event: &Arc<Event>,
        scope: Scope,
        weight: Weight,
        resources: Resources<'_>,
        now: Timestamp,
    ) {
        let suppressed = self.suppressor(seq, event, weight, resources, now);
        if let Some(hold) = &suppressed
            && !self.is_condition(seq, event)
        {
            return self.end_unseen(seq, event, scope, row::reason(hold));
        }
        let threshold = match self.count(seq, event, &scope, weight, resources, now) {
            Ok(threshold) => threshold,
            Err(reason) => return self.end(seq, reason),
        };
        if let Err(reason) = self.limit_event(event, &scope, weight, now) {
            return self.end(seq, reason);
        }
        let (threshold, suppressed) = (threshold.map(Box::new), suppressed.map(Box::new));
        let row = Row { seq, event: Arc::clone(event), repeats: 1, threshold, suppressed };
        if is_alone(&self.rule, weight) {
            return self.leave(Batch::alone(scope, row, now), weight, resources);
        }
        self.batch(row, &scope, weight, resources, now);
    }

    /// Closes every batch that is due, each as of its deadline, and notes the quiet hours that have
    /// begun or ended.
    pub fn handle_timeout(&mut self, resources: Resources<'_>, now: Timestamp) {
        while let Some(batch) = self.batcher.due(now) {
            self.leave(batch, Weight::Usual, resources);
        }
        let ended = self.inhibitions.end(now);
        self.end_inhibitions(ended);
        self.report_absences(resources, now);
        if !self.rule.quiet.is_empty() && self.next_change.is_none_or(|at| at <= now) {
            self.note_quiet(resources, now);
        }
    }

    /// Notes whether quiet hours last, and when that changes.
    fn note_quiet(&mut self, resources: Resources<'_>, now: Timestamp) {
        let rule = Arc::clone(&self.rule);
        let timing = timing(&rule, resources.zone);
        let before = std::mem::replace(&mut self.quiet_until, timing.quiet_until(now));
        self.next_change = timing.next_change(now);
        let change = match (before, self.quiet_until) {
            (_, Some(until)) => HoldChange::QuietBegan { since: now, until },
            (Some(_), None) => HoldChange::QuietEnded,
            (None, None) => return,
        };
        self.outputs.push_back(PipelineOutput::Holds(change));
    }

    /// Closes the open batches whose scope is `wanted`, because an exchange can take them or no
    /// further event will come; none that closes by its time alone.
    pub fn close(&mut self, wanted: &dyn Fn(&Scope) -> bool, resources: Resources<'_>, now: Timestamp) {
        self.handle_timeout(resources, now);
        if timing(&self.rule, resources.zone).is_by_time(now) {
            return;
        }
        self.close_now(wanted, resources, now);
    }

    /// Closes the open batches whose scope is `wanted`, also those that close by their time alone.
    fn close_now(&mut self, wanted: &dyn Fn(&Scope) -> bool, resources: Resources<'_>, now: Timestamp) {
        for batch in self.batcher.close(wanted, now) {
            self.leave(batch, Weight::Usual, resources);
        }
    }

    /// Closes every open batch and ends what else waits, and the holds of its rules, because the subscriber ends.
    pub fn close_for_good(&mut self, resources: Resources<'_>, now: Timestamp) {
        self.close_now(&|_| true, resources, now);
        self.end_absences();
        let inhibitions = self.inhibitions.clear();
        self.end_inhibitions(inhibitions);
        self.forget_clock();
    }

    /// Ends the rows of open batches for `scope` that the agent already knows. They stay counted, and
    /// a subscriber for the user keeps them.
    pub fn end_known(&mut self, scope: &Scope, is_known: impl Fn(Seq) -> bool) {
        if self.rule.output.audience != Audience::Agent {
            return;
        }
        for row in self.batcher.withdraw(scope, &mut |row| is_known(row.seq)) {
            self.end(row.seq, Reason::Known);
        }
    }

    /// When to call `handle_timeout` at the latest; `None` while no batch is open and no quiet hours
    /// begin or end.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        let Self { batcher, inhibitions, absences, next_change, .. } = self;
        let (batch, inhibition) = (batcher.poll_timeout(), inhibitions.poll_timeout());
        Timestamp::earliest([batch, inhibition, absences.poll_timeout(), *next_change])
    }

    /// The next output, oldest first.
    pub fn poll_output(&mut self) -> Option<PipelineOutput> {
        self.outputs.pop_front()
    }

    fn filter(&mut self, event: &Arc<Event>, now: Timestamp) -> Result<(), Reason> {
        self.rule.check_severity(event).map_err(Reason::FilteredOut)?;
        let Some(condition) = &self.rule.condition else { return Ok(()) };
        let tested = condition.test(event);
        if tested.is_ok() {
            self.failures.succeeded(&FailedPart::Condition);
        }
        match tested {
            Ok(true) => Ok(()),
            Ok(false) => Err(Reason::FilteredOut(FilteredBy::Where)),
            Err(failure) => {
                let part = FailedPart::Condition;
                self.report(Failure { part, line: None, message: failure.message }, now);
                Err(Reason::FilteredOut(FilteredBy::WhereFailed))
            }
        }
    }

    /// Whether a newer version of the state or the condition of `event` is known. Afterwards this one
    /// is.
    fn is_stale(&mut self, event: &Event) -> bool {
        let rule = &self.rule;
        let Some(version) = newest::version_of(rule, event) else { return false };
        let trust = rule.wake.trust_in(event);
        let equal = rule.resolve.as_ref().map(|resolve| &*resolve.equal);
        let states = (!rule.supersede_key.is_empty()).then_some((Named::State, &*rule.supersede_key));
        // The same fields name one key.
        let equal = equal.filter(|equal| **equal != *rule.supersede_key);
        let conditions = equal.map(|equal| (newest::name_of_condition(rule), equal));
        let mut is_stale = false;
        for (named, fields) in states.into_iter().chain(conditions) {
            let key = self.key.state(fields, trust, event);
            is_stale |= self.newest.is_stale(named, key, &version);
        }
        is_stale
    }

    fn dedupe(
        &mut self,
        seq: Seq,
        event: &Arc<Event>,
        scope: &Scope,
        weight: Weight,
        resources: Resources<'_>,
        now: Timestamp,
    ) -> Result<(), Reason> {
        let Some(rule) = &self.rule.dedupe else { return Ok(()) };
        let timing = timing(&self.rule, resources.zone);
        let condition = newest::condition_of(&self.rule, &mut self.key, seq, event);
        let key = dedupe::write_key(&mut self.key, rule, scope, event, weight);
        let verdict = self.dedupe.check(key, rule.window, seq, condition, now);
        let Verdict::Repeat { of } = verdict else { return Ok(()) };
        let newest = match rule.keep {
            Keep::First => None,
            Keep::Newest => Some(event),
        };
        if self.batcher.repeat(timing, scope, of, newest, now) {
            return Err(Reason::Duplicate { of });
        }
        let waits = timing.collects(now) && !is_alone(&self.rule, weight);
        if newest.is_some() && waits {
            self.dedupe.renew(key, rule.window, seq, now);
            return Ok(());
        }
        self.deferred.add(scope, DeferredCounts { repeats: 1, suppressed: 0 }, now);
        Err(Reason::Duplicate { of })
    }

    /// The event as this subscriber sees it.
    fn seen(&mut self, event: &Arc<Event>, now: Timestamp) -> Arc<Event> {
        if self.rule.severity_when.is_empty() {
            return Arc::clone(event);
        }
        let (event, failure) = self.rule.as_seen(event);
        self.judge(FailedPart::SeverityWhen, failure.map(|failure| failure.message), now);
        event
    }

    /// Counts an event in its dedupe window and its threshold, and returns the sum with the level that
    /// it reached; a critical one goes on without a level. An event that reaches one goes on even if it
    /// is a repeat: no row counts it.
    fn count(
        &mut self,
        seq: Seq,
        event: &Arc<Event>,
        scope: &Scope,
        weight: Weight,
        resources: Resources<'_>,
        now: Timestamp,
    ) -> Result<Option<Reached>, Reason> {
        let Some(rule) = &self.rule.threshold else {
            return self.dedupe(seq, event, scope, weight, resources, now).map(|()| None);
        };
        let key = self.key.state(&rule.by, self.rule.wake.trust_in(event), event);
        let (reached, counted) = self.thresholds.add(rule, key, event, (now, resources.zone.midnight(now)));
        let is_critical = weight == Weight::Escalated;
        let without_level = is_critical.then(|| self.thresholds.counted(rule, key, event));
        let failure = counted.err().map(|_| "`sum` names no number in this event, which counts 0".to_owned());
        self.judge(FailedPart::Threshold, failure, now);
        if reached.is_some() {
            return Ok(reached);
        }
        self.dedupe(seq, event, scope, weight, resources, now)?;
        without_level.ok_or(Reason::BelowThreshold)
    }

    /// Reports the failure of a part, or notes that it succeeded.
    fn judge(&mut self, part: FailedPart, failure: Option<String>, now: Timestamp) {
        match failure {
            None => self.failures.succeeded(&part),
            Some(message) => self.report(Failure { part, line: None, message }, now),
        }
    }

    /// Adds the row to a batch; the batches that this closes leave.
    fn batch(&mut self, row: Row, scope: &Scope, weight: Weight, resources: Resources<'_>, now: Timestamp) {
        let rule = Arc::clone(&self.rule);
        let opens = self.holds(rule.open_when.as_ref(), FailedPart::OpenWhen, &row.event, now);
        let closes = self.holds(rule.close_when.as_ref(), FailedPart::CloseWhen, &row.event, now);
        let group = row::group(&mut self.key, &rule.batching.group_by, &row.event, row.suppressed.as_deref());
        let seq = row.seq;
        let before = if opens { self.batcher.close_group(scope, group, now) } else { None };
        let (full, over) = self.batcher.push(timing(&rule, resources.zone), scope, group, row, now);
        let with_it = if closes { self.batcher.close_group(scope, group, now) } else { None };
        for row in over {
            self.end(row.seq, Reason::BatchOverflow);
        }
        let closed = [before, full, with_it];
        let has_it = |batch: &Batch| batch.rows.last().is_some_and(|row| row.seq == seq);
        // With `[absent]` it waited before.
        if rule.absence.is_none() && !closed.iter().flatten().any(has_it) {
            self.outputs.push_back(PipelineOutput::Batched { seq });
        }
        for batch in closed.into_iter().flatten() {
            self.leave(batch, weight, resources);
        }
    }

    /// Whether a condition is there and true; a failure of it is reported, and is false.
    fn holds(
        &mut self,
        condition: Option<&Condition>,
        part: FailedPart,
        event: &Arc<Event>,
        now: Timestamp,
    ) -> bool {
        let Some(condition) = condition else { return false };
        let tested = condition.test(event);
        self.judge(part, tested.as_ref().err().map(|failure| failure.message.clone()), now);
        tested.unwrap_or(false)
    }

    /// Runs the stages after batching on a batch that was open.
    fn leave(&mut self, batch: Batch, weight: Weight, resources: Resources<'_>) {
        if let Some(batch) = self.limit(batch, weight) {
            let (batch, states) = self.supersede(batch);
            self.render(batch, states, weight, resources);
        }
    }

    /// Ends the rows superseded in their own batch; returns the states of the others.
    fn supersede(&mut self, mut batch: Batch) -> (Batch, Vec<State>) {
        let (states, ended) = newest::supersede(&self.rule, &mut self.key, &mut batch.rows);
        for seq in ended {
            self.end(seq, Reason::Superseded);
        }
        (batch, states)
    }

    fn end(&mut self, seq: Seq, reason: Reason) {
        self.outputs.push_back(PipelineOutput::Ended { seq, reason });
    }

    fn report(&mut self, failure: Failure, now: Timestamp) {
        if self.failures.should_report(&failure, now) {
            self.outputs.push_back(PipelineOutput::Failed(failure));
        }
    }
}

/// When batches of a subscriber close.
fn timing<'a>(rule: &'a Subscriber, zone: &'a Zone) -> Timing<'a> {
    Timing { rule: &rule.batching, quiet: &rule.quiet, zone }
}
