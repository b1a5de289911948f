//! What an exchange released once is released again, whatever would be decided now.
//!
//! A replay by a later version of the program decides nothing that has happened: what the journal says was released is what the
//! agent has.

use std::collections::BTreeMap;

use super::{Candidate, Decided, Fitted, Injector, Writer, candidate};
use crate::{
    exchange::{Answer, ReleaseRecord},
    notification::{Counts, Detail},
};

impl Injector {
    /// What `record` says was released. Those of it that do not wait here are not delivered when they come later.
    ///
    /// Shape: the text is written anew, as all that the journal keeps of it is what was in it.
    pub fn repeat(&mut self, record: &ReleaseRecord, writer: &impl Writer) -> Decided {
        let mut chosen: Vec<Candidate> = Vec::with_capacity(record.notifications.len());
        for id in &record.notifications {
            match self.queue.get(id) {
                Some(entry) => chosen.push(candidate(entry)),
                None => self.recent.insert(id.clone()),
            }
        }
        let fitted = (!chosen.is_empty()).then(|| {
            let text = writer.write(&chosen, &Counts::new(&BTreeMap::new(), Detail::Total), Detail::Total);
            let tokens = writer.tokens(&text);
            let sentence = writer.sentence(&chosen.iter().collect::<Vec<_>>());
            Fitted { chosen, text, sentence, tokens }
        });
        Decided { fitted, directive: record.directive.clone() }
    }

    /// The answer to an exchange with which nothing leaves, as the process died before, or as it is for a wake that nothing asks for any
    /// more: nothing is released, and nothing is kept for its carrier.
    pub fn unanswered(&self) -> Answer {
        let (pending, _) = self.pending();
        let check_before_tool = self.check_before_tool();
        Answer { injection: None, pending, check_before_tool, directive: None, notice: None }
    }
}
