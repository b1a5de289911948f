//! What suppresses events of a subscriber: silences, and events that inhibit.
//!
//! An occurrence ends. A condition may still hold when the suppression ends, so it goes into a batch
//! of its own, whose notification is held. What suppresses a part of the sessions alone is not
//! applied here: the engine applies it where a session's queue takes the notification.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{
    HoldChange, Pipeline, PipelineOutput, Resources,
    key::KeyWriter,
    newest,
    row::{self, Row},
    rule::{Weight, is_alone},
    silence::Matchers,
    territory, timing,
};
use crate::{
    event::{Event, Scope, Seq},
    hold::{Hold, add_holds},
    ledger::Reason,
    notification::{Notification, Priority, Unseen},
};

impl Pipeline {
    /// Takes an event that may inhibit events of this subscriber, or end what inhibits them. Whether it
    /// is taken too does not matter.
    pub fn inhibit(&mut self, seq: Seq, event: &Event, resources: Resources<'_>, now: Timestamp) {
        self.handle_timeout(resources, now);
        let rule = Arc::clone(&self.rule);
        let trust = rule.wake.trust_in(event);
        let inhibited = self.inhibitions.note(&rule.inhibit, &mut self.key, seq, event, trust, now);
        self.end_inhibitions(inhibited.ended);
        if inhibited.began {
            let rows = self.suppress_rows(resources, now);
            let scope = event.scope();
            self.outputs.push_back(PipelineOutput::Holds(HoldChange::SuppressionBegan { scope, rows }));
        }
    }

    pub(super) fn end_inhibitions(&mut self, ended: Vec<Seq>) {
        if !ended.is_empty() {
            self.outputs.push_back(PipelineOutput::Holds(HoldChange::InhibitionsEnded(ended)));
        }
    }

    /// What suppresses an event for all of its sessions.
    pub(super) fn suppressor(
        &self,
        seq: Seq,
        event: &Arc<Event>,
        weight: Weight,
        resources: Resources<'_>,
        now: Timestamp,
    ) -> Option<Hold> {
        if resources.silences.is_empty() && self.inhibitions.is_empty() {
            return None;
        }
        let scope = event.scope();
        let chosen =
            Chosen { is_silence: Some(&|own| !own.is_scoped()), is_in: Some(&|own| own.covers(&scope)) };
        self.suppressor_among(&chosen, (seq, event), is_alone(&self.rule, weight), resources, now)
    }

    /// What suppresses an event: the first silence, else the first event that inhibits it.
    fn suppressor_among(
        &self,
        chosen: &Chosen<'_>,
        (seq, event): (Seq, &Arc<Event>),
        is_critical: bool,
        resources: Resources<'_>,
        now: Timestamp,
    ) -> Option<Hold> {
        let rule = &*self.rule;
        let silence =
            chosen.is_silence.and_then(|is_it| resources.silences.find(rule, event, is_critical, is_it));
        silence.map(|by| Hold::Silenced { since: now, by }).or_else(|| {
            let weight = (rule.wake.trust_in(event), is_critical);
            let key = &mut KeyWriter::default();
            let found = self.inhibitions.find(&rule.inhibit, key, seq, event, weight, chosen.is_in?);
            found.map(|one| Hold::Inhibited { since: now, by: one.by })
        })
    }

    /// Whether what suppressed a row still does.
    pub(super) fn is_in_force(&self, hold: &Hold, resources: Resources<'_>) -> bool {
        match hold {
            Hold::Silenced { by, .. } => resources.silences.is_in_force(*by),
            Hold::Inhibited { by, .. } => self.inhibitions.until(*by).is_some(),
            Hold::Quiet { .. } | Hold::Deferred { .. } | Hold::Snoozed { .. } | Hold::Budget { .. } => true,
        }
    }

    /// Suppresses the rows of open batches, because something has begun to. Returns their number.
    pub fn suppress_rows(&mut self, resources: Resources<'_>, now: Timestamp) -> usize {
        let open: Vec<(Seq, Arc<Event>)> = (self.batcher.rows())
            .filter(|row| row.suppressed.is_none())
            .map(|row| (row.seq, Arc::clone(&row.event)))
            .collect();
        let mut suppressed = Vec::new();
        for (seq, event) in open {
            let weight = Weight::new(&self.rule, &event);
            suppressed.extend(self.suppressor(seq, &event, weight, resources, now).map(|hold| (seq, hold)));
        }
        if suppressed.is_empty() {
            return 0;
        }
        let hold_of = |seq: Seq| suppressed.iter().find(|(own, _)| *own == seq).map(|(_, hold)| hold.clone());
        let rows = self.batcher.withdraw(&Scope::All, &mut |row| hold_of(row.seq).is_some());
        let count = rows.len();
        for row in rows {
            let hold = hold_of(row.seq).expect("it was withdrawn for it");
            self.suppress_row(row, hold, resources, now);
        }
        count
    }

    /// Ends a row of an open batch, or moves it to one that is held.
    fn suppress_row(&mut self, row: Row, hold: Hold, resources: Resources<'_>, now: Timestamp) {
        let rule = Arc::clone(&self.rule);
        let scope = territory::scope_for(&rule, &row.event);
        if !self.is_condition(row.seq, &row.event) {
            return self.end_unseen(row.seq, &row.event, scope, row::reason(&hold));
        }
        let group = row::group(&mut self.key, &rule.batching.group_by, &row.event, Some(&hold));
        let row = Row { suppressed: Some(hold.into()), ..row };
        let (full, over) = self.batcher.push(timing(&rule, resources.zone), &scope, group, row, now);
        for row in over {
            self.end(row.seq, Reason::BatchOverflow);
        }
        if let Some(batch) = full {
            self.leave(batch, Weight::Usual, resources);
        }
    }

    /// Ends an event that nobody gets. What is older about its state is not delivered as if it were the
    /// newest.
    pub(super) fn end_unseen(&mut self, seq: Seq, event: &Arc<Event>, scope: Scope, reason: Reason) {
        self.end(seq, reason);
        let rule = Arc::clone(&self.rule);
        let state = newest::state_of(&rule, &mut self.key, seq, event);
        if let Some(newer) = &state {
            let key = &mut self.key;
            let mut is_older = |row: &Row| {
                let own = newest::state_of(&rule, key, row.seq, &row.event);
                own.is_some_and(|own| newer.replaces(&own))
            };
            for row in self.batcher.withdraw(&scope, &mut is_older) {
                self.end(row.seq, Reason::Superseded);
            }
        }
        if state.is_some() || rule.retain.is_some() {
            let subscriber = rule.id.clone();
            self.outputs.push_back(PipelineOutput::Unseen(Unseen { subscriber, scope, state }));
        }
    }

    /// Whether an event reports a condition, which may still hold later.
    pub(super) fn is_condition(&mut self, seq: Seq, event: &Event) -> bool {
        newest::condition_of(&self.rule, &mut self.key, seq, event).is_some()
    }

    /// What suppresses a notification whose events are forgotten: one of the silences that `is_silence`
    /// selects and that is for whatever the subscriber makes.
    pub fn suppressors_of_forgotten(
        &self,
        notification: &Notification,
        chosen: &Chosen<'_>,
        resources: Resources<'_>,
        now: Timestamp,
    ) -> Suppressors {
        let is_critical = notification.priority == Priority::Critical;
        let silences = resources.silences;
        let by = chosen.is_silence.and_then(|is_it| silences.find_whole(&self.rule, is_critical, is_it));
        let holds: Vec<Hold> = by.map(|by| Hold::Silenced { since: now, by }).into_iter().collect();
        Suppressors { is_of_all: !holds.is_empty(), holds }
    }

    /// What suppresses the events of a notification: for each one of the silences that `is_silence`
    /// selects, or an event whose scope `is_in` selects.
    pub fn suppressors_of(
        &self,
        notification: &Notification,
        events: &mut dyn Iterator<Item = (Seq, &Arc<Event>)>,
        chosen: &Chosen<'_>,
        resources: Resources<'_>,
        now: Timestamp,
    ) -> Suppressors {
        let is_critical = notification.priority == Priority::Critical;
        let mut found = Suppressors { holds: Vec::new(), is_of_all: true };
        for event in events {
            let hold = self.suppressor_among(chosen, event, is_critical, resources, now);
            found.is_of_all &= hold.is_some();
            add_holds(&mut found.holds, hold);
        }
        found
    }

    /// Until when an event inhibits at the latest, if it does.
    pub fn inhibits_until(&self, by: Seq) -> Option<Timestamp> {
        self.inhibitions.until(by)
    }

    /// Whether an event inhibits in a part of the sessions.
    pub fn inhibits_in_part(&self) -> bool {
        self.inhibitions.is_scoped()
    }
}

/// What suppresses the events of a notification.
pub struct Suppressors {
    /// The holds, each cause once.
    pub holds: Vec<Hold>,
    /// Whether each event has one.
    pub is_of_all: bool,
}

/// Which silences and which scopes count; `None` for none of them.
pub struct Chosen<'a> {
    /// Of silences.
    pub is_silence: Option<&'a dyn Fn(&Matchers) -> bool>,
    /// Of the events that inhibit.
    pub is_in: Option<&'a dyn Fn(&Scope) -> bool>,
}
