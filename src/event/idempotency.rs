//! The key by which an event is known to be published already.

use sha2::{Digest, Sha256};

use crate::event::EventRef;

/// The key of the event that `source` calls `id`.
///
/// Shape: the first 128 bits of a SHA-256, so that no producer can find an id that collides with another one's event.
pub fn idempotency_key(source: &str, id: &str) -> u128 {
    let mut hash = Sha256::new();
    // The length keeps ("ab", "c") and ("a", "bc") apart.
    hash.update((source.len() as u64).to_le_bytes());
    hash.update(source);
    hash.update(id);
    let digest: [u8; 32] = hash.finalize().into();
    u128::from_le_bytes(*digest.first_chunk().expect("32 bytes begin with 16"))
}

impl EventRef<'_> {
    /// See [`idempotency_key`].
    pub fn idempotency_key(&self) -> u128 {
        idempotency_key(self.source, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idempotency_key_depends_on_source_and_id_and_stays_the_same() {
        // Computed apart from this program: sha256(u64 2, "fs1"), the first 16 bytes, little-endian.
        assert_eq!(idempotency_key("fs", "1"), 0xdcd7_d900_8321_0523_03b7_9bb7_6259_0db2);
        assert_ne!(idempotency_key("ab", "c"), idempotency_key("a", "bc"));
    }
}
