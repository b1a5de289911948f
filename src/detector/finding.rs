//! What a detector found, before it is an event.

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::event::Severity;

/// What a detector found.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The event type.
    pub(super) event_type: &'static str,
    pub(super) severity: Severity,
    /// Distinguishes it from other findings of the session for the same event.
    pub(super) name: String,
    pub(super) payload: Value,
}

/// The first 64 bits of a hash.
pub(super) fn first_64_bits(hash: Sha256) -> u64 {
    u64::from_be_bytes(*hash.finalize().first_chunk().expect("32 bytes begin with 8"))
}
