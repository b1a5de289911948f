//! What the projection is told: of each record what the engine said that people may ask for later.
//!
//! Notes are taken while a fold runs, live or in a replay, so both tell the same. An event is noted only once an entry says that
//! a subscriber asked for it; of the others there is a count, and nothing is allocated for them.

use std::{mem, sync::Arc};

use crate::{
    engine::{Output, SessionChange},
    event::{Seq, SessionId},
    exchange::Injection,
    journal::Record,
    ledger::{LedgerEntry, Subject},
    notification::Notification,
    protocol::record,
    time::Timestamp,
};

/// Bits of a place that number the notes of one record: a record can close a session with a full queue, and reload the rules
/// of all of them.
const NUMBER_BITS: u32 = 24;

/// Where a note stands: its record's position and its number among those of that record.
///
/// Shape: the position shifted left by 24 bits, plus the number; ordered as things happened, and the same in every replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(pub i64);

impl Place {
    /// The place of the first note of the record at `seq`.
    pub fn first_of(seq: Seq) -> Self {
        Self(i64::try_from(seq.0).unwrap_or(i64::MAX).min(i64::MAX >> NUMBER_BITS) << NUMBER_BITS)
    }

    /// The position of the record.
    pub fn seq(self) -> Seq {
        Seq(u64::try_from(self.0 >> NUMBER_BITS).unwrap_or_default())
    }
}

/// One thing that was noted.
#[derive(Debug)]
pub struct Note {
    /// Where it stands.
    pub place: Place,
    /// The time of its record.
    pub at: Timestamp,
    /// What it is.
    pub what: What,
}

/// What can be noted.
#[derive(Debug)]
pub enum What {
    /// An event that a subscriber asked for, or that was held back: the body of its record.
    Event(Box<[u8]>),
    /// What became of something.
    Entry(LedgerEntry),
    /// A notification was made.
    Made(Arc<Notification>),
    /// What an exchange released, as it was written for its carrier.
    Injection(SessionId, Injection),
    /// A session began, ended, or said more of itself.
    Session(SessionId, SessionChange),
}

/// The notes of consecutive records.
#[derive(Debug, Default)]
pub struct Notes {
    /// What is at or before it is known to the projection, and not noted.
    after: Seq,
    upto: Seq,
    at: Timestamp,
    number: i64,
    unmatched: u64,
    notes: Vec<Note>,
    bytes: usize,
    /// The last record's body, while it is an event that was not noted.
    event: Vec<u8>,
    has_event: bool,
    /// Whether the last record's exchange released something; one that repeats an answer does not.
    has_released: bool,
}

impl Notes {
    /// Notes of the records after `after`.
    pub fn after(after: Seq) -> Self {
        Self { after, upto: after, ..Self::default() }
    }

    /// Turns to the next record, which the engine is about to handle.
    pub fn begin(&mut self, found: &Record<'_>) {
        (self.upto, self.at, self.number) = (found.seq.max(self.upto), found.time, 0);
        self.has_released = false;
        self.has_event = found.kind.0 == record::EVENT && found.seq > self.after;
        if self.has_event {
            self.event.clear();
            self.event.extend_from_slice(found.body);
        }
    }

    /// Notes what the engine says of that record.
    pub fn take(&mut self, output: &Output) {
        if self.upto <= self.after {
            return;
        }
        match output {
            Output::Record(LedgerEntry::Unmatched { .. }) => self.unmatched += 1,
            Output::Record(entry) => self.take_entry(entry),
            Output::Made(notification) => {
                if notification.events.contains(&self.upto) {
                    self.take_event();
                }
                self.push(What::Made(notification.clone()));
            }
            Output::Answer { session, answer, .. } => {
                if let Some(injection) = answer.injection.as_ref().filter(|_| self.has_released) {
                    self.push(What::Injection(session.clone(), injection.clone()));
                }
            }
            Output::Session(session, change) => self.push(What::Session(session.clone(), change.clone())),
            Output::Publish(_) | Output::Said(_) | Output::Wake(_) | Output::Refuse { .. } => {}
        }
    }

    fn take_entry(&mut self, entry: &LedgerEntry) {
        match entry {
            LedgerEntry::HeldBack { seq, .. }
            | LedgerEntry::Batched { seq, .. }
            | LedgerEntry::EventEnded { seq, .. }
            | LedgerEntry::ForUser { subject: Subject::Event(seq), .. } => {
                if *seq == self.upto {
                    self.take_event();
                }
            }
            LedgerEntry::Injected { .. } => self.has_released = true,
            LedgerEntry::Unmatched { .. }
            | LedgerEntry::Created { .. }
            | LedgerEntry::Unclaimed { .. }
            | LedgerEntry::Queued { .. }
            | LedgerEntry::Confirmed { .. }
            | LedgerEntry::Returned { .. }
            | LedgerEntry::Recalled { .. }
            | LedgerEntry::NotificationEnded { .. }
            | LedgerEntry::ForUser { subject: Subject::Notification(_), .. } => {}
        }
        self.push(What::Entry(entry.clone()));
    }

    fn take_event(&mut self) {
        if mem::take(&mut self.has_event) {
            self.bytes += self.event.len();
            self.push(What::Event(self.event.as_slice().into()));
        }
    }

    fn push(&mut self, what: What) {
        self.number += 1;
        let place = Place(Place::first_of(self.upto).0 + self.number);
        self.notes.push(Note { place, at: self.at, what });
    }

    /// Takes what was noted so far; what follows is noted from there on.
    pub fn hand_over(&mut self) -> Self {
        let event = mem::take(&mut self.event);
        // The time too: what nobody could take is put back, and may be handed over again before the next record.
        let rest = Self { event, at: self.at, ..Self::after(self.upto.max(self.after)) };
        mem::replace(self, rest)
    }

    /// Puts `earlier` in front again, which nobody could take.
    pub fn put_back(&mut self, mut earlier: Self) {
        earlier.notes.append(&mut self.notes);
        self.notes = earlier.notes;
        self.after = earlier.after;
        self.unmatched += earlier.unmatched;
        self.bytes += earlier.bytes;
    }

    /// The record before the first that they tell of.
    pub fn from(&self) -> Seq {
        self.after
    }

    /// The last record that they tell of.
    pub fn upto(&self) -> Seq {
        self.upto
    }

    /// The time of that record.
    pub fn time(&self) -> Timestamp {
        self.at
    }

    /// Events that no subscriber asked for.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// What was noted, in order.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// The bytes of the events among them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many records they tell of.
    pub fn records(&self) -> u64 {
        self.upto.0.saturating_sub(self.after.0)
    }
}
