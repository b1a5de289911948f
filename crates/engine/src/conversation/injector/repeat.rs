//! Repeats a recorded release, even if the current program would decide differently.
//!
//! A replay by a later version must not change the past: the agent has the text of the recorded
//! release.

use super::{
    budget::{Decided, Fitted, Writer, has_sentence, replaces},
    candidate::{Candidate, candidate},
    parts::Injector,
};
use crate::{
    exchange::{Answer, Exchange, ReleaseRecord},
    notification::{Counts, Detail},
};

impl Injector {
    /// The release in `record`. Notifications in it that are not pending here are not delivered
    /// when they arrive later.
    ///
    /// Shape: the text is rendered again, as the journal keeps only the ids.
    pub fn repeat(&mut self, record: &ReleaseRecord, exchange: &Exchange, writer: &impl Writer) -> Decided {
        let mut chosen: Vec<Candidate> = Vec::with_capacity(record.notifications.len());
        for id in &record.notifications {
            match self.queue.get(id) {
                Some(entry) => chosen.push(candidate(entry)),
                None => self.recent.insert(*id),
            }
        }
        let fitted = (!chosen.is_empty()).then(|| {
            let replaces = replaces(record.directive.as_ref());
            let text = writer.write(&chosen, Counts::default(), Detail::Total, replaces);
            let tokens = writer.tokens(&text);
            let sentence = if has_sentence(exchange.shows_notices, record.directive.as_ref()) {
                writer.sentence(&chosen.iter().collect::<Vec<_>>())
            } else {
                String::new()
            };
            Fitted { chosen, text, sentence, tokens }
        });
        Decided { fitted, directive: record.directive.clone() }
    }

    /// The answer that releases nothing, because the process died before, or because the wake is no
    /// longer needed. Nothing is kept for its carrier.
    pub fn unanswered(&self) -> Answer {
        let (pending, _) = self.pending();
        let check_before_tool = self.check_before_tool();
        Answer { pending, check_before_tool, ..Answer::default() }
    }
}
