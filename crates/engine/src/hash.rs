//! Short names of contents: the first 64 bits of a SHA-256.

use sha2::{Digest, Sha256};

/// The first 64 bits of a hash, as a big-endian number.
pub fn first_64_bits(hash: Sha256) -> u64 {
    u64::from_be_bytes(*hash.finalize().first_chunk().expect("32 bytes begin with 8"))
}

/// The first 64 bits of a hash over the parts, each of which is followed by a zero byte.
pub fn hash_parts(parts: &[&str]) -> u64 {
    first_64_bits(parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part).chain_update([0])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_beginning_of_the_published_vector() {
        assert_eq!(first_64_bits(Sha256::new_with_prefix("abc")), 0xba78_16bf_8f01_cfea);
    }

    #[test]
    fn parts_that_are_split_elsewhere_differ() {
        assert_eq!(hash_parts(&["abc"]), first_64_bits(Sha256::new_with_prefix("abc\0")));
        assert_ne!(hash_parts(&["ab", "c"]), hash_parts(&["a", "bc"]));
    }
}
