//! Input of the history: for each record, the part of the engine's output that queries may need.
//!
//! Notes are recorded during a fold, live or in a replay, so both have the same result. An event is
//! noted once it has a ledger entry, also if it was throttled or skipped; events that no subscriber
//! takes are only counted, without an allocation.

use std::{mem, sync::Arc};

use journal::{Record, time::Timestamp};

use crate::{
    engine::io::{Output, SessionChange},
    event::{Seq, SessionId},
    exchange::Injection,
    ledger::{LedgerEntry, Subject},
    notification::Notification,
    records,
};

/// Bits of a place for the numbers of the notes of one record: one record can close a session with
/// a full queue, or reload the rules for all sessions.
const NUMBER_BITS: u32 = 24;

/// The position of a note: its record's position and its number within that record.
///
/// Shape: the record's position shifted left by 24 bits, plus the number. Places are in order of
/// occurrence, and the same in every replay.
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

/// One note.
#[derive(Debug)]
pub struct Note {
    /// Its position.
    pub place: Place,
    /// The time of its record.
    pub at: Timestamp,
    /// Its content.
    pub what: NoteContent,
}

/// The content of a note.
#[derive(Debug)]
pub enum NoteContent {
    /// An event that a subscriber takes, or a throttled or skipped one: the body of its record.
    Event(Box<[u8]>),
    /// A ledger entry.
    Entry(LedgerEntry),
    /// A notification was created.
    Made(Arc<Notification>),
    /// The text released by an exchange, as written for its carrier.
    Injection(SessionId, Injection),
    /// A session began, ended, or reported changes.
    Session(SessionId, SessionChange),
}

/// The notes of consecutive records.
#[derive(Debug, Default)]
pub struct Notes {
    /// Records up to this one are already in the projection, and are not noted.
    after: Seq,
    upto: Seq,
    at: Timestamp,
    number: i64,
    unmatched: u64,
    notes: Vec<Note>,
    bytes: usize,
    /// The last record's body, if it is an event that was not noted yet.
    event: Vec<u8>,
    has_event: bool,
    /// Whether the last record's exchange released anything; a repeated answer does not.
    has_released: bool,
}

impl Notes {
    /// Notes of the records after `after`.
    pub fn after(after: Seq) -> Self {
        Self { after, upto: after, ..Self::default() }
    }

    /// Advances to the next record, which the engine is about to handle.
    pub fn begin(&mut self, found: &Record<'_>) {
        (self.upto, self.at, self.number) = (found.seq.max(self.upto), found.time, 0);
        self.has_released = false;
        self.has_event = found.kind.0 == records::EVENT && found.seq > self.after;
        if self.has_event {
            self.event.clear();
            self.event.extend_from_slice(found.body);
        }
    }

    /// Notes the engine's output for the current record.
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
                self.push(NoteContent::Made(notification.clone()));
            }
            Output::Answer { session, answer, .. } => {
                if let Some(injection) = answer.injection.as_ref().filter(|_| self.has_released) {
                    self.push(NoteContent::Injection(session.clone(), injection.clone()));
                }
            }
            Output::Session(session, change) => {
                self.push(NoteContent::Session(session.clone(), change.clone()))
            }
            Output::Publish(_) | Output::Said(_) | Output::Wake(_) | Output::Refuse { .. } => {}
        }
    }

    /// Notes that the current record is the decision of a start to skip the one at `seq`, unless
    /// that one is noted itself.
    pub fn take_skip(&mut self, seq: Seq) {
        if seq <= self.after {
            self.take(&Output::Record(LedgerEntry::Skipped { seq }));
        }
    }

    fn take_entry(&mut self, entry: &LedgerEntry) {
        match entry {
            LedgerEntry::Throttled { seq, .. }
            | LedgerEntry::Skipped { seq }
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
            | LedgerEntry::Repeated { .. }
            | LedgerEntry::Responded { .. }
            | LedgerEntry::NotificationEnded { .. }
            | LedgerEntry::ForUser { subject: Subject::Notification(_), .. } => {}
        }
        self.push(NoteContent::Entry(entry.clone()));
    }

    fn take_event(&mut self) {
        if mem::take(&mut self.has_event) {
            self.bytes += self.event.len();
            self.push(NoteContent::Event(self.event.as_slice().into()));
        }
    }

    fn push(&mut self, what: NoteContent) {
        self.number += 1;
        let place = Place(Place::first_of(self.upto).0 + self.number);
        self.notes.push(Note { place, at: self.at, what });
    }

    /// Returns the notes so far; later ones start after them.
    pub fn hand_over(&mut self) -> Self {
        let event = mem::take(&mut self.event);
        // Keeps the time: notes that were not accepted are put back, and may be handed over again
        // before the next record.
        let rest = Self { event, at: self.at, ..Self::after(self.upto.max(self.after)) };
        mem::replace(self, rest)
    }

    /// Prepends `earlier` notes, which were not accepted.
    pub fn put_back(&mut self, mut earlier: Self) {
        earlier.notes.append(&mut self.notes);
        self.notes = earlier.notes;
        self.after = earlier.after;
        self.unmatched += earlier.unmatched;
        self.bytes += earlier.bytes;
    }

    /// The record before the first covered one.
    pub fn from(&self) -> Seq {
        self.after
    }

    /// The last covered record.
    pub fn upto(&self) -> Seq {
        self.upto
    }

    /// The time of that record.
    pub fn time(&self) -> Timestamp {
        self.at
    }

    /// Number of events that no subscriber takes.
    pub fn unmatched(&self) -> u64 {
        self.unmatched
    }

    /// The notes, in order.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Size of the noted events, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Number of covered records.
    pub fn records(&self) -> u64 {
        self.upto.0.saturating_sub(self.after.0)
    }
}
