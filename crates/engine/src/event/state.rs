//! The snapshot form of an event: the journal's encoding.

use super::{
    Event,
    codec::{self, IdOrigin},
};
use crate::snapshot::{Damaged, Shared};

impl Shared for Event {
    const TABLE: &'static str = "events";

    fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), Damaged> {
        codec::encode(&self.as_ref(), IdOrigin::Producer, bytes);
        Ok(())
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        codec::decode(bytes).map(|event| event.to_event()).map_err(|error| Damaged::new(error.to_string()))
    }
}
