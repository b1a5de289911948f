//! One row of a batch: an event and its count.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, Seq},
    snapshot,
};

/// An event in a batch, with its repeats.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The journal position of the event that opened the row.
    pub seq: Seq,
    /// The shown event: the first, or the newest of its repeats.
    #[serde(with = "snapshot::shared")]
    pub event: Arc<Event>,
    /// The count within the dedupe window; 1 without repeats.
    pub repeats: u32,
}
