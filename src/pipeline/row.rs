//! One line of a batch: an event and how often it happened.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, Seq},
    snapshot,
};

/// An event in a batch, with its repeats.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The position in the journal of the event that opened the row.
    pub seq: Seq,
    /// The event that it shows: the first, or the newest of its repeats.
    #[serde(with = "snapshot::shared")]
    pub event: Arc<Event>,
    /// How often it happened inside the dedupe window; 1 when it did not repeat.
    pub repeats: u32,
}
