//! The idempotency key of an event, which detects that it was already published.

use sha2::{Digest, Sha256};

use super::EventRef;

impl EventRef<'_> {
    /// The key of its source and id.
    ///
    /// Shape: the first 128 bits of a SHA-256, so that a producer cannot find an id that collides
    /// with another one's event.
    pub fn idempotency_key(&self) -> u128 {
        let mut hash = Sha256::new();
        // The length distinguishes ("ab", "c") from ("a", "bc").
        hash.update((self.source.len() as u64).to_le_bytes());
        hash.update(self.source);
        hash.update(self.id);
        let digest: [u8; 32] = hash.finalize().into();
        u128::from_le_bytes(*digest.first_chunk().expect("32 bytes begin with 16"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::{EventRef, Provenance, Severity};
    use journal::time::Timestamp;

    #[test]
    fn an_idempotency_key_hashes_source_and_id() {
        let key = |source, id| {
            let event = EventRef {
                id,
                event_type: "ci.check.failed",
                source,
                provenance: Provenance::Local,
                severity: Severity::Error,
                timestamp: Timestamp::ZERO,
                payload: "{}",
                dedupe_key: None,
                session: None,
                workspace: None,
                cause: None,
            };
            event.idempotency_key()
        };
        // Computed independently: sha256(u64 2, "fs1"), the first 16 bytes, little-endian.
        assert_eq!(key("fs", "1"), 0xdcd7_d900_8321_0523_03b7_9bb7_6259_0db2);
        assert_ne!(key("ab", "c"), key("a", "bc"));
    }
}
