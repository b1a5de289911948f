//! One line of a batch: an event and how often it happened.

use std::sync::Arc;

use crate::{
    event::{Event, Seq},
    snapshot::state,
};

/// An event in a batch, with its repeats.
#[derive(Debug, Clone)]
pub struct Row {
    /// Where the event stands in the journal.
    pub seq: Seq,
    /// The event.
    pub event: Arc<Event>,
    /// How often it happened inside the dedupe window; 1 when it did not repeat.
    pub repeats: u32,
}

state!(Row { seq, event, repeats });
