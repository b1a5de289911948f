//! Encodes drafts for one append, and keeps what the answer about each needs.

use std::{mem, ops::Range, sync::Arc};

use journal::{Appended, Level, Outcome};

use crate::{
    draft::{CallerFacts, NumberedDraft},
    event::{Seq, codec::IdOrigin},
    records::Records,
    request::FieldError,
};

/// Drafts of the next append.
#[derive(Debug, Default)]
pub struct Intake {
    records: Records,
    batch: TakenBatch,
}

/// A draft depends on its caller, which is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerNeeded;

/// The drafts of one append, before it is answered.
#[derive(Debug, Default)]
pub struct TakenBatch {
    taken: Vec<Taken>,
    ids: Ids,
}

/// The ids of a batch's events, in one string; one allocation per id would be wasted when only
/// counts are returned.
#[derive(Debug, Default)]
struct Ids(String);

/// A draft before its append; its number in the body counts from 1.
#[derive(Debug)]
enum Taken {
    Encoded { id: Range<usize>, session: Option<Arc<str>> },
    Refused { number: u64, error: FieldError },
}

impl Ids {
    fn add(&mut self, id: &str) -> Range<usize> {
        let start = self.0.len();
        self.0.push_str(id);
        start..self.0.len()
    }

    fn get(&self, id: Range<usize>) -> &str {
        self.0.get(id).expect("a range that `add` gave")
    }
}

impl Intake {
    /// Adds a draft to the batch, completed by what is known of its `caller`, or records its refusal.
    ///
    /// Errors: the draft was not added, because its caller has to be found first.
    pub fn take(
        &mut self,
        (number, mut draft): NumberedDraft<'_>,
        caller: Option<&CallerFacts>,
    ) -> Result<(), CallerNeeded> {
        let session = match &mut draft {
            Ok(draft) if draft.needs_caller() => draft.complete(caller.ok_or(CallerNeeded)?),
            Ok(_) | Err(_) => None,
        };
        let encoded = draft.and_then(|draft| {
            let event = draft.as_event();
            let added = match draft.id_origin {
                IdOrigin::Producer => self.records.event(&event),
                IdOrigin::Daemon => self.records.event_with_new_id(&event),
            };
            added.map_err(|error| FieldError::whole(error.to_string()))?;
            Ok(self.batch.ids.add(event.id))
        });
        self.batch.taken.push(match encoded {
            Ok(id) => Taken::Encoded { id, session },
            Err(error) => Taken::Refused { number, error },
        });
        Ok(())
    }

    /// Makes room for events of `bytes` bytes together.
    pub fn reserve(&mut self, bytes: usize) {
        self.records.reserve(bytes);
    }

    /// Number of taken and refused drafts.
    pub fn len(&self) -> usize {
        self.batch.taken.len()
    }

    /// Whether there are no drafts.
    pub fn is_empty(&self) -> bool {
        self.batch.taken.is_empty()
    }

    /// Empties the intake: returns the records to append, if any, and their drafts.
    pub fn drain(&mut self) -> (Option<Records>, TakenBatch) {
        let Self { records, batch } = mem::take(self);
        (Some(records).filter(|records| !records.is_empty()), batch)
    }
}

impl TakenBatch {
    /// Number of taken and refused drafts.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Whether there are no drafts.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The verdicts for `appended`; `None` when there was nothing to append.
    pub fn settle(self, appended: Option<&Appended>) -> Verdicts {
        let level = appended.map(|appended| appended.level);
        let mut outcomes = appended.into_iter().flat_map(Appended::outcomes);
        let settle = |taken| match taken {
            Taken::Refused { number, error } => Some(Settled::Refused { number, error }),
            Taken::Encoded { id, session } => {
                outcomes.next().map(|outcome| Settled::Published { outcome, id, session })
            }
        };
        Verdicts { settled: self.taken.into_iter().filter_map(settle).collect(), ids: self.ids, level }
    }
}

/// The verdicts of one batch, in its order.
#[derive(Debug)]
pub struct Verdicts {
    settled: Vec<Settled>,
    ids: Ids,
    level: Option<Level>,
}

#[derive(Debug)]
enum Settled {
    Published { outcome: Outcome, id: Range<usize>, session: Option<Arc<str>> },
    Refused { number: u64, error: FieldError },
}

/// What became of one draft.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// An event has its id.
    Published {
        /// Its position, or that of the original event.
        outcome: Outcome,
        /// Its id.
        id: &'a str,
        /// The session to which the daemon addressed it.
        session: Option<Arc<str>>,
    },
    /// Nothing was published.
    Refused {
        /// Why.
        error: FieldError,
    },
}

/// The verdicts of one batch as counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Published and new.
    pub accepted: u64,
    /// Published before.
    pub duplicates: u64,
    /// Refused.
    pub refused: u64,
    /// The first position among the new ones.
    pub first: Option<Seq>,
    /// The last position among the new ones.
    pub last: Option<Seq>,
    /// The first refusals, each with its number in the body.
    pub errors: Vec<(u64, FieldError)>,
}

impl Verdicts {
    /// The durability of the published events; `None` when there are none.
    pub fn level(&self) -> Option<Level> {
        self.level
    }

    /// Numbers of the published and of the refused drafts.
    pub fn split(&self) -> (u64, u64) {
        let is_refused = |settled: &&Settled| matches!(settled, Settled::Refused { .. });
        let refused = self.settled.iter().filter(is_refused).count();
        ((self.settled.len() - refused) as u64, refused as u64)
    }

    /// The error, if there is one draft and it was refused.
    pub fn into_lone_refusal(mut self) -> Result<Self, FieldError> {
        match self.settled.pop() {
            Some(Settled::Refused { error, .. }) if self.settled.is_empty() => Err(error),
            last => {
                self.settled.extend(last);
                Ok(self)
            }
        }
    }

    /// Counts the verdicts, and keeps at most `errors_max` errors.
    pub fn into_counts(self, errors_max: usize) -> Counts {
        let mut counts = Counts::default();
        for settled in self.settled {
            match settled {
                Settled::Published { outcome: Outcome::Duplicate(_), .. } => counts.duplicates += 1,
                Settled::Published { outcome: Outcome::Appended(seq), .. } => {
                    counts.accepted += 1;
                    counts.first = counts.first.or(Some(seq));
                    counts.last = Some(seq);
                }
                Settled::Refused { number, error } => {
                    counts.refused += 1;
                    if counts.errors.len() < errors_max {
                        counts.errors.push((number, error));
                    }
                }
            }
        }
        counts
    }

    /// Converts each verdict.
    pub fn into_each<T>(self, mut convert: impl FnMut(Verdict<'_>) -> T) -> Vec<T> {
        let Self { settled, ids, level: _ } = self;
        let convert = |settled| match settled {
            Settled::Published { outcome, id, session } => {
                convert(Verdict::Published { outcome, id: ids.get(id), session })
            }
            Settled::Refused { number: _, error } => convert(Verdict::Refused { error }),
        };
        settled.into_iter().map(convert).collect()
    }
}
