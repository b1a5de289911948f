//! What a subscriber with `[absent]` does with events and with what does not come.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{Pipeline, PipelineOutput, Resources, absence::Seen, rule::Weight, territory};
use crate::{
    event::{Event, Seq},
    ledger::Reason,
    notification::Resolution,
};

impl Pipeline {
    /// Notes that an event came; if it was missed, its absence is resolved. It waits for the next event
    /// of its key, and is a row if that does not come.
    pub(super) fn note_presence(
        &mut self,
        seq: Seq,
        event: &Arc<Event>,
        resources: Resources<'_>,
        now: Timestamp,
    ) {
        let rule = Arc::clone(&self.rule);
        let Some(absence) = &rule.absence else { return };
        let key = self.key.state(&absence.by, rule.wake.trust_in(event), event);
        let noted = self.absences.note(absence, key, seq, event, now);
        if noted.was_missed {
            let (subscriber, scope) = (rule.id.clone(), event.scope());
            let resolution = Resolution { subscriber, seq, scope, keys: vec![key], version: None };
            self.withdraw_rows(&rule, &resolution, resources, now);
            self.outputs.push_back(PipelineOutput::Resolved(resolution));
        }
        self.outputs.push_back(PipelineOutput::Batched { seq });
        for (ended, reason) in [(noted.replaced, Reason::Superseded), (noted.evicted, Reason::BatchOverflow)]
        {
            if let Some(ended) = ended {
                self.end(ended, reason);
            }
        }
    }

    /// Takes the last event of each key that is missed, as of the time since which it is.
    pub(super) fn report_absences(&mut self, resources: Resources<'_>, now: Timestamp) {
        if self.absences.poll_timeout().is_none_or(|next| next > now) {
            return;
        }
        let rule = Arc::clone(&self.rule);
        let Some(absence) = &rule.absence else { return };
        let mut forgotten = Vec::new();
        while let Some((Seen { seq, event, .. }, since)) = self.absences.due(absence, now, &mut forgotten) {
            let scope = territory::scope_for(&rule, &event);
            self.take(seq, &event, scope, Weight::new(&rule, &event), resources, since);
        }
        for seq in forgotten {
            self.end(seq, Reason::Expired);
        }
    }

    /// Ends the events that wait for the next one of their key, because the subscriber or its
    /// `[absent]` does.
    pub(super) fn end_absences(&mut self) {
        for seq in self.absences.clear() {
            self.end(seq, Reason::SubscriberOff);
        }
    }

    /// Lets the clock of absences stand from `before` to `now`, if nothing watched it.
    pub fn stand_still(&mut self, before: Timestamp, now: Timestamp) {
        self.absences.stand_still(before, now);
    }
}
