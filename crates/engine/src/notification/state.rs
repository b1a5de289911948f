//! The snapshot form of a notification: an entry of a table, because many queues may share it.

use super::Notification;
use crate::snapshot::{self, Damaged, Shared};

impl Shared for Notification {
    const TABLE: &'static str = "notifications";

    fn append_to(&self, bytes: &mut Vec<u8>) -> Result<(), Damaged> {
        snapshot::append_named(self, bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        snapshot::from_named(bytes)
    }
}
